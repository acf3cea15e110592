"""The contract of sessions: creating, finding, changing and erasing them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from holdfast.errors import (
    AgentNotFound,
    IllegalTransition,
    InputError,
    InvalidFilter,
    LeaseLost,
    SessionExists,
    SessionNotFound,
)
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, NewSession, SessionQuery
from holdfast.state import StateEncoder
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, agent, checkpoint, session, stored, write

ODD_IDENTIFIERS = [
    "'; DROP TABLE sessions; --",
    '"quoted" and \\ backslash',
    "two\nlines\tand a tab",
    "../../etc/passwd",
    "a/b",
    "..",
    "-rf",
    " leading and trailing ",
    "100% _wild_card?*[x]",
    "🦀 émoji ‮ rtl",
    "caf\u00e9",
    "cafe\u0301",
    "ÀÉ upper",
    "x" * 512,
]


class SessionContract(Contract):
    """One line of work each, under an id that somebody chose."""

    def test_a_session_comes_back_as_it_was_created(self, store: Store) -> None:
        draft = session(
            task_description="Move auth to OAuth",
            continues_id="earlier",
            forked_from="elsewhere",
            metadata={"k": "v"},
        )
        created = store.create_session(draft)
        assert store.find_session(draft.id) == created
        for field in fields(NewSession):
            if field.name not in ("agent", "lease_ttl"):
                assert getattr(created, field.name) == getattr(draft, field.name)
        assert created.status == "active"
        assert created.updated_at == created.created_at
        assert (created.resumed_at, created.paused_at) == (None, None)

    def test_a_session_brings_its_agent(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        assert store.find_agent(draft.agent_id) is not None

    def test_a_session_may_bring_an_agent_that_exists(self, store: Store) -> None:
        worker = agent(name="first")
        store.create_session(session(agent_id=worker.id, agent=worker))
        second = agent(id=worker.id, name="second")
        store.create_session(session(agent_id=worker.id, agent=second))
        found = store.find_agent(worker.id)
        assert found is not None
        assert found.name == "first"

    def test_a_taken_session_id_is_refused_and_stores_nothing(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        again = session(id=draft.id)
        with pytest.raises(SessionExists):
            store.create_session(again)
        assert store.find_agent(again.agent_id) is None

    def test_a_session_of_an_unknown_agent_is_refused(self, store: Store) -> None:
        draft = session(agent_id=new_id())
        with pytest.raises(AgentNotFound):
            store.create_session(draft)
        assert store.find_session(draft.id) is None

    def test_a_session_needs_an_agent_type(self, store: Store) -> None:
        with pytest.raises(InputError):
            store.create_session(session(agent_type=""))
        assert store.list_sessions() == []

    def test_an_unknown_session_is_none(self, store: Store) -> None:
        assert store.find_session("nobody") is None

    def test_sessions_are_listed_newest_first(self, store: Store) -> None:
        ids = [store.create_session(session()).id for _ in range(4)]
        assert [one.id for one in store.list_sessions()] == ids[::-1]
        assert [one.id for one in store.list_sessions(SessionQuery(limit=2))] == ids[:1:-1]
        assert store.list_sessions(SessionQuery(limit=0)) == []
        with pytest.raises(InvalidFilter):
            store.list_sessions(SessionQuery(limit=-1))

    def test_sessions_are_found_by_each_filter(self, store: Store) -> None:
        worker = agent(id="abcdef00-0000-8000-8000-000000000002", agent_type="tester")
        chosen = session(
            id="chosen-1",
            agent_type="tester",
            agent_id=worker.id,
            agent=worker,
            metadata={"k": 1},
        )
        store.create_session(chosen)
        store.create_session(session(id="Chosen-2"))
        store.update_session(chosen.id, status="paused")
        for query in (
            SessionQuery(status="paused"),
            SessionQuery(agent_type="tester"),
            SessionQuery(agent_id=chosen.agent_id),
            SessionQuery(agent_prefix=worker.id),
            SessionQuery(agent_prefix="ABCDEF00-0"),
            SessionQuery(id_prefix="chosen-"),
            SessionQuery(metadata={"k": 1}),
            SessionQuery(status="paused", agent_type="tester", metadata={"k": 1.0}),
        ):
            assert [one.id for one in store.list_sessions(query)] == [chosen.id]
        assert store.list_sessions(SessionQuery(status="paused", agent_type="other")) == []
        assert store.list_sessions(SessionQuery(id_prefix="%")) == []
        for nobody in ("abcdef00-1", "abcdef000", "%", "é", f"{worker.id}0"):
            assert store.list_sessions(SessionQuery(agent_prefix=nobody)) == []
        assert store.list_sessions(SessionQuery(metadata={"k": True})) == []

    def test_sessions_are_found_by_whether_another_continues_them(self, store: Store) -> None:
        for name, before in (("first", None), ("second", "first"), ("third", "second")):
            store.create_session(session(id=name, continues_id=before))
        store.update_session("first", status="paused")
        for query, found in (
            (SessionQuery(continued=True), ["second", "first"]),
            (SessionQuery(continued=False), ["third"]),
            (SessionQuery(continued=True, status="paused"), ["first"]),
        ):
            assert [one.id for one in store.list_sessions(query)] == found
        with pytest.raises(InvalidFilter):
            store.list_sessions(SessionQuery(continued="yes"))  # type: ignore[arg-type]

    def test_metadata_can_be_merged_key_by_key(self, store: Store) -> None:
        created = store.create_session(session())
        moment = datetime(2026, 1, 2, tzinfo=UTC)
        first = store.update_session(created.id, merge_metadata={"a": {"deep": 1}, "b": moment})
        assert first.metadata == {"a": {"deep": 1}, "b": moment}
        named = store.update_session(created.id, task_description="Move to OAuth")
        assert (named.task_description, named.metadata) == ("Move to OAuth", first.metadata)
        second = store.update_session(created.id, merge_metadata={"a": [2**70], "c": None})
        assert second.metadata == {"a": [2**70], "b": moment, "c": None}
        assert store.find_session(created.id) == second
        assert second.updated_at > first.updated_at
        both = store.update_session(created.id, metadata={"x": 1}, merge_metadata={"y": 2})
        assert both.metadata == {"x": 1, "y": 2}
        odd = {"$t": "ref", "v": 0, "": {"$t": 1}}
        both = store.update_session(created.id, merge_metadata=odd)
        assert both.metadata == {"x": 1, "y": 2, **odd}
        assert store.update_session(created.id, merge_metadata={}).metadata == both.metadata
        with pytest.raises(InputError):
            store.update_session(created.id, merge_metadata={"no": object()})
        with pytest.raises(IllegalTransition):
            store.update_session(created.id, expected=["paused"], merge_metadata={"no": 1})
        found = store.find_session(created.id)
        assert found is not None
        assert found.metadata == both.metadata

    def test_merges_of_two_threads_lose_nothing(self, store: Store) -> None:
        created = store.create_session(session(metadata={"before": True}))

        def merge(worker: str) -> None:
            for number in range(15):
                store.update_session(created.id, merge_metadata={f"{worker}{number}": number})

        with ThreadPoolExecutor(2) as executor:
            list(executor.map(merge, "ab"))
        found = store.find_session(created.id)
        assert found is not None
        assert found.metadata == {"before": True} | {
            f"{worker}{number}": number for worker in "ab" for number in range(15)
        }

    def test_updating_a_session_changes_what_is_given_and_moves_updated_at(
        self, store: Store
    ) -> None:
        created = store.create_session(session(metadata={"k": 1}))
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        updated = store.update_session(created.id, status="paused", resumed_at=moment)
        assert (updated.status, updated.resumed_at) == ("paused", moment)
        assert updated.metadata == {"k": 1}
        assert updated.updated_at > created.updated_at
        again = store.update_session(created.id, metadata={"k": 2})
        assert (again.status, again.resumed_at, again.metadata) == ("paused", moment, {"k": 2})
        assert again.updated_at > updated.updated_at
        assert store.find_session(created.id) == again

    def test_a_transition_needs_the_expected_status(self, store: Store) -> None:
        created = store.create_session(session())
        with pytest.raises(IllegalTransition):
            store.update_session(created.id, status="active", expected={"paused", "stopped"})
        assert store.find_session(created.id) == created
        updated = store.update_session(created.id, status="paused", expected={"active"})
        assert updated.status == "paused"

    def test_of_several_reasons_to_refuse_a_change_the_same_is_named(self, store: Store) -> None:
        created = store.create_session(session())
        done = store.update_session(created.id, status="completed")
        with pytest.raises(LeaseLost):
            store.update_session(
                created.id, status="active", expected=["paused"], fence=done.lease_token + 1
            )
        with pytest.raises(
            IllegalTransition, match="is completed, not active or paused; it was not"
        ):
            store.update_session(created.id, status="active", expected=["paused", "active"])
        with pytest.raises(IllegalTransition, match="is completed; fork it"):
            store.update_session(created.id, status="active", expected=["completed"])
        naive = datetime(2026, 1, 1)  # noqa: DTZ001, which is what is wrong with it
        with pytest.raises(InputError, match="pause reason"):
            store.update_session(
                created.id, pause_reason="\0", task_description="\0", resumed_at=naive
            )
        with pytest.raises(InputError, match="metadata"):
            store.update_session(created.id, resumed_at=naive, metadata={"no": object()})
        with pytest.raises(InputError, match="fence"):
            store.update_session(created.id, metadata={"no": object()}, fence="1")  # type: ignore[arg-type]
        assert store.find_session(created.id) == done

    def test_an_unknown_status_is_refused(self, store: Store) -> None:
        created = store.create_session(session())
        with pytest.raises(InputError):
            store.update_session(created.id, status="Active")
        assert store.find_session(created.id) == created

    def test_an_unknown_session_cannot_be_updated(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            store.update_session("nobody", status="paused")

    @pytest.mark.parametrize("odd", ODD_IDENTIFIERS)
    def test_odd_identifiers_are_only_text(self, store: Store, odd: str) -> None:
        draft = session(id=odd, task_description=odd, metadata={odd: odd})
        store.create_session(draft)
        external_id = odd[:60]
        stored_one = store.put(
            checkpoint(odd, odd, namespace=odd, external_id=external_id, run_id=odd, label=odd)
        ).record
        query = CheckpointQuery(
            session_id=odd, name=odd, namespace=odd, external_id=external_id, run_id=odd, label=odd
        )
        assert store.list_checkpoints(query) == [stored_one]
        store.put_writes(draft, odd, external_id, [write(odd, channel=odd, task_path=odd)])
        (found,) = store.list_writes(odd, odd, [external_id])
        assert (found.task_id, found.channel, found.task_path) == (odd, odd, odd)
        store.append_log(odd, "info", odd)
        assert [line.message for line in store.list_logs(odd)] == [odd]
        listed = store.list_sessions(SessionQuery(metadata={odd: odd}))
        assert [(one.id, one.task_description) for one in listed] == [(odd, odd)]
        assert [one.session_id for one in store.session_usage([odd])] == [odd]
        assert store.delete_session(odd)

    def test_two_spellings_of_one_letter_are_two_sessions(self, store: Store) -> None:
        store.create_session(session(id="caf\u00e9", task_description="composed"))
        store.create_session(session(id="cafe\u0301", task_description="decomposed"))
        store.create_session(session(id="CAF\u00c9", task_description="upper"))
        found = store.find_session("cafe\u0301")
        assert found is not None
        assert found.task_description == "decomposed"

    @pytest.mark.parametrize("bad", ["", "nul\0", "lone \ud800 surrogate", "x" * 513])
    def test_impossible_identifiers_are_refused(self, store: Store, bad: str) -> None:
        with pytest.raises(InputError):
            store.create_session(session(id=bad))
        good = store.create_session(session())
        with pytest.raises(InputError):
            store.put(checkpoint(good.id, id="not a uuid"))
        with pytest.raises(InputError):
            store.put(checkpoint(bad))
        if bad:
            with pytest.raises(InputError):
                store.put(checkpoint(good.id, bad))
        assert store.list_sessions() == [good]
        assert stored(store, good.id) == []

    # Usage and erasure

    def test_usage_counts_checkpoints_and_bytes(self, store: Store) -> None:
        empty = store.create_session(session())
        busy = store.create_session(session())
        first = store.put(checkpoint(busy.id, contents=[b"a" * 100])).record
        second = store.put(checkpoint(busy.id, contents=[b"b" * 50], namespace="sub")).record
        used, unused = store.session_usage()
        assert (used.session_id, used.checkpoints, used.size_bytes) == (busy.id, 2, 150)
        assert used.stored_bytes == first.stored_bytes + second.stored_bytes
        assert used.latest_id == second.id
        assert (unused.session_id, unused.checkpoints, unused.latest_id) == (empty.id, 0, None)
        assert (unused.size_bytes, unused.stored_bytes) == (0, 0)
        assert store.session_usage([empty.id]) == [unused]
        assert store.session_usage(["nobody"]) == []
        assert store.session_usage([]) == []

    def test_erasing_a_session_leaves_nothing_of_it(self, store: Store) -> None:
        kept = store.create_session(session())
        shared = checkpoint(kept.id, contents=[b"shared by both"])
        store.put(shared)
        bytes_before = store.total_bytes()
        gone = store.create_session(session())
        own = checkpoint(gone.id, "own", contents=[b"of the erased one only", b"shared by both"])
        store.put(own)
        store.put_writes(session(id=gone.id), "", "e", [write(contents=[b"written only here"])])
        store.append_log(gone.id, "info", "hello")
        assert store.delete_session(gone.id)
        assert store.find_session(gone.id) is None
        assert store.list_checkpoints(CheckpointQuery(session_id=gone.id)) == []
        assert store.read_payload(own.id) is None
        assert store.list_logs(gone.id) == []
        assert store.list_writes(gone.id, "", ["e"]) == []
        assert store.total_bytes() == bytes_before
        assert store.read_chunks(list(own.chunks)) == dict(shared.chunks)
        assert store.gc(dry_run=True).chunks == 0

    @pytest.mark.parametrize("how", ["delete_session", "erase_threads", "erase_tenant", "gc"])
    def test_an_erasure_forgets_what_was_read(self, store: Store, how: str) -> None:
        owner = store.create_session(session())
        encoded = StateEncoder().encode({"text": "of the erased one only " * 1000})
        draft = checkpoint(
            owner.id, manifest=encoded.manifest, refs=encoded.refs, chunks=encoded.chunks
        )
        store.put(draft)
        assert store.load(draft.id) is not None
        assert store.cache.all_keys() != []
        if how == "delete_session":
            store.delete_session(owner.id)
        elif how == "erase_threads":
            store.erase_threads([owner.id], namespace="", agent_prefix=owner.agent_id)
        elif how == "erase_tenant":
            store.erase_tenant()
        else:
            store.delete_checkpoints([draft.id])
            store.gc()
        assert store.cache.all_keys() == []
        assert store.load(draft.id) is None

    def test_an_agent_goes_with_the_last_session_that_needs_it(self, store: Store) -> None:
        boss = store.create_agent(agent())
        worker = agent(parent_id=boss.id)
        first, second = (session(agent_id=worker.id, agent=worker) for _ in range(2))
        store.create_session(first)
        store.create_session(second)
        for name in ("a", "b", "c"):
            store.put(checkpoint(first.id, name))
        assert store.delete_session(first.id)
        assert store.find_agent(worker.id) is not None
        assert store.latest_of_agent(worker.id) is None
        assert store.delete_session(second.id)
        assert [one.id for one in store.list_agents()] == [boss.id]

    def test_an_emptied_thread_is_forgotten_with_its_agent(self, store: Store) -> None:
        workers = [agent(id=f"abcdef00-0000-8000-8000-00000000000{n}") for n in (1, 2)]
        first, second = (session(agent_id=one.id, agent=one) for one in workers)
        for one in (first, second):
            store.create_session(one)
            store.put(checkpoint(one.id))
        after = store.create_session(session(continues_id=first.id))
        agents = [store.create_agent(agent()), store.find_agent(after.agent_id)]
        threads = [first.id, second.id]
        assert store.erase_threads(threads, namespace="", agent_prefix="ABCDEF00-0000-8") == 2
        assert [one.id for one in store.list_sessions()] == [after.id]
        assert {one.id for one in store.list_agents()} == {one.id for one in agents if one}
        found = store.find_session(after.id)
        assert found is not None
        assert found.continues_id is None

    @pytest.mark.parametrize("ids", [("a", "b"), ("b", "a")])
    def test_an_agent_goes_with_the_last_one_below_it(
        self, store: Store, ids: tuple[str, str]
    ) -> None:
        boss = agent(id="abcdef00-0000-8000-8000-000000000001")
        worker = agent(id="abcdef00-0000-8000-8000-000000000002", parent_id=boss.id)
        store.create_session(session(id=ids[0], agent_id=boss.id, agent=boss))
        store.create_session(session(id=ids[1], agent_id=worker.id, agent=worker))
        for thread in ids:
            store.put(checkpoint(thread))
        assert store.erase_threads(["a", "b"], namespace="", agent_prefix=boss.id[:8]) == 2
        assert (store.list_sessions(), store.list_agents()) == ([], [])

    def test_an_agent_with_children_stays_when_its_session_is_erased(self, store: Store) -> None:
        boss = agent()
        owner = store.create_session(session(agent_id=boss.id, agent=boss))
        child = store.create_agent(agent(parent_id=boss.id))
        assert store.delete_session(owner.id)
        assert {one.id for one in store.list_agents()} == {boss.id, child.id}

    def test_nobody_goes_on_from_an_erased_session(self, store: Store) -> None:
        before = store.create_session(session())
        after = store.create_session(session(continues_id=before.id))
        assert store.delete_session(before.id)
        found = store.find_session(after.id)
        assert found is not None
        assert found.continues_id is None

    def test_an_erased_session_can_be_created_anew(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        store.put(checkpoint(draft.id, "same"))
        store.append_log(draft.id, "info", "old")
        store.delete_session(draft.id)
        store.create_session(draft)
        assert stored(store, draft.id) == []
        assert store.list_logs(draft.id) == []

    def test_erasing_an_unknown_session_is_false(self, store: Store) -> None:
        assert store.delete_session("nobody") is False
