"""The contract of agents, sessions and logs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import (
    AgentExists,
    AgentNotFound,
    CheckpointNotFound,
    IllegalTransition,
    InputError,
    InvalidFilter,
    SessionExists,
    SessionNotFound,
)
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, NewSession, SessionQuery
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
    """Agents, sessions and logs."""

    # Agents

    def test_an_agent_comes_back_as_it_was_created(self, store: Store) -> None:
        draft = agent(name="planner", agent_type="planner", metadata={"team": ["a", {"b": 1.5}]})
        created = store.create_agent(draft)
        assert store.find_agent(draft.id) == created
        assert (created.name, created.agent_type, created.status) == ("planner", "planner", "idle")
        assert created.metadata == {"team": ["a", {"b": 1.5}]}
        assert created.depth_level == 0
        assert created.completed_at is None
        assert created.created_at.tzinfo is not None
        assert abs(created.created_at - datetime.now(UTC)) < timedelta(seconds=60)

    def test_an_unknown_agent_is_none(self, store: Store) -> None:
        assert store.find_agent(new_id()) is None

    def test_a_taken_agent_id_is_refused(self, store: Store) -> None:
        draft = agent()
        store.create_agent(draft)
        with pytest.raises(AgentExists):
            store.create_agent(agent(id=draft.id, name="another"))
        found = store.find_agent(draft.id)
        assert found is not None
        assert found.name == draft.name

    def test_a_child_is_one_deeper_than_its_parent(self, store: Store) -> None:
        root = store.create_agent(agent())
        child = store.create_agent(agent(parent_id=root.id))
        grandchild = store.create_agent(agent(parent_id=child.id))
        assert [one.depth_level for one in (root, child, grandchild)] == [0, 1, 2]
        assert [one.id for one in store.list_agents(parent_id=root.id)] == [child.id]

    def test_an_unknown_parent_is_refused(self, store: Store) -> None:
        draft = agent(parent_id=new_id())
        with pytest.raises(AgentNotFound):
            store.create_agent(draft)
        assert store.find_agent(draft.id) is None

    def test_agents_are_listed_newest_first_and_by_status(self, store: Store) -> None:
        first, second, third = (
            store.create_agent(agent(status=status)) for status in ("idle", "running", "idle")
        )
        assert [one.id for one in store.list_agents()] == [third.id, second.id, first.id]
        assert [one.id for one in store.list_agents(status="idle")] == [third.id, first.id]
        assert [one.id for one in store.list_agents(limit=1)] == [third.id]
        assert store.list_agents(limit=0) == []
        with pytest.raises(InvalidFilter):
            store.list_agents(limit=-1)

    def test_an_agents_final_status_sets_completed_at_and_leaving_it_clears_it(
        self, store: Store
    ) -> None:
        created = store.create_agent(agent(metadata={"kept": True}))
        for final in ("completed", "failed", "terminated"):
            done = store.update_agent(created.id, status=final)
            assert (done.status, done.metadata) == (final, {"kept": True})
            assert done.completed_at is not None
            assert done.updated_at > created.updated_at
            again = store.update_agent(created.id, status="running")
            assert again.completed_at is None
            assert store.find_agent(created.id) == again

    def test_an_agents_metadata_can_change_alone(self, store: Store) -> None:
        created = store.create_agent(agent(status="running"))
        changed = store.update_agent(created.id, metadata={"k": None})
        assert (changed.status, changed.metadata) == ("running", {"k": None})

    def test_an_unknown_agent_cannot_be_updated(self, store: Store) -> None:
        with pytest.raises(AgentNotFound):
            store.update_agent(new_id(), status="running")

    def test_an_unknown_agent_status_is_refused(self, store: Store) -> None:
        created = store.create_agent(agent())
        with pytest.raises(InputError):
            store.update_agent(created.id, status="asleep")
        with pytest.raises(InputError):
            store.create_agent(agent(status="asleep"))
        assert store.list_agents() == [created]

    # Sessions

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
        chosen = session(id="chosen-1", agent_type="tester", metadata={"k": 1})
        store.create_session(chosen)
        store.create_session(session(id="Chosen-2"))
        store.update_session(chosen.id, status="paused")
        for query in (
            SessionQuery(status="paused"),
            SessionQuery(agent_type="tester"),
            SessionQuery(agent_id=chosen.agent_id),
            SessionQuery(id_prefix="chosen-"),
            SessionQuery(metadata={"k": 1}),
            SessionQuery(status="paused", agent_type="tester", metadata={"k": 1.0}),
        ):
            assert [one.id for one in store.list_sessions(query)] == [chosen.id]
        assert store.list_sessions(SessionQuery(status="paused", agent_type="other")) == []
        assert store.list_sessions(SessionQuery(id_prefix="%")) == []
        assert store.list_sessions(SessionQuery(metadata={"k": True})) == []

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

    # Copies

    def test_a_copy_has_the_same_checkpoints_in_the_same_order(self, store: Store) -> None:
        source = store.create_session(session())
        first = store.put(
            checkpoint(
                source.id,
                "first",
                external_id="e1",
                contents=[b"shared content"],
                metadata={"k": 1},
                created_at=datetime(2025, 5, 5, tzinfo=UTC),
            )
        ).record
        second = store.put(
            checkpoint(source.id, "second", parent_id=first.id, namespace="sub", external_id="e2")
        ).record
        draft = session(forked_from=source.id)
        store.put_writes(session(id=source.id), "", "e1", [write(contents=[b"written"])])
        bytes_before = store.total_bytes()
        copied = store.copy_session(source.id, draft)
        assert (copied.id, copied.forked_from) == (draft.id, source.id)
        assert store.total_bytes() == bytes_before
        newest, oldest = store.list_checkpoints(CheckpointQuery(session_id=draft.id))
        assert newest.seq > oldest.seq > second.seq
        assert len({newest.id, oldest.id, first.id, second.id}) == 4
        assert (oldest.name, oldest.external_id, oldest.metadata) == ("first", "e1", {"k": 1})
        assert oldest.created_at == first.created_at
        assert (newest.namespace, newest.parent_id) == ("sub", oldest.id)
        assert newest.agent_id == draft.agent_id
        assert store.read_payload(oldest.id) == store.read_payload(first.id)
        assert store.list_writes(draft.id, "", ["e1"]) == store.list_writes(source.id, "", ["e1"])
        assert stored(store, source.id) == ["second", "first"]

    def test_a_copy_was_never_restored(self, store: Store) -> None:
        source = store.create_session(session())
        record = store.put(checkpoint(source.id, "restored")).record
        store.mark_restored(record.id)
        copy = store.copy_session(source.id, session())
        [copied] = store.list_checkpoints(CheckpointQuery(session_id=copy.id))
        assert copied.restored_at is None

    def test_a_copy_can_be_restricted_to_some_checkpoints(self, store: Store) -> None:
        source = store.create_session(session())
        first = store.put(checkpoint(source.id, "first", external_id="e1")).record
        second = store.put(
            checkpoint(source.id, "second", external_id="e2", parent_id=first.id)
        ).record
        store.put_writes(session(id=source.id), "", "e1", [write()])
        store.put_writes(session(id=source.id), "", "e2", [write()])
        draft = session()
        store.copy_session(source.id, draft, checkpoint_ids=[second.id])
        (copy,) = store.list_checkpoints(CheckpointQuery(session_id=draft.id))
        assert (copy.name, copy.parent_id) == ("second", first.id)
        writes = store.list_writes(draft.id, "", ["e1", "e2"])
        assert [one.external_id for one in writes] == ["e2"]

    def test_a_copy_that_cannot_be_made_leaves_nothing(self, store: Store) -> None:
        source = store.create_session(session())
        store.put(checkpoint(source.id))
        draft = session()
        with pytest.raises(SessionNotFound):
            store.copy_session("nobody", draft)
        with pytest.raises(CheckpointNotFound):
            store.copy_session(source.id, draft, checkpoint_ids=[new_id()])
        with pytest.raises(SessionExists):
            store.copy_session(source.id, session(id=source.id))
        assert store.find_session(draft.id) is None
        assert [one.id for one in store.list_sessions()] == [source.id]

    def test_a_copy_outlives_its_source(self, store: Store) -> None:
        source = store.create_session(session())
        draft = checkpoint(source.id, contents=[b"shared"])
        store.put(draft)
        copied = store.copy_session(source.id, session())
        assert store.delete_session(source.id)
        store.gc()
        (record,) = store.list_checkpoints(CheckpointQuery(session_id=copied.id))
        payload = store.read_payload(record.id)
        assert payload is not None
        assert payload.refs == draft.refs
        assert store.read_chunks(list(draft.chunks)) == dict(draft.chunks)

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

    def test_an_agent_goes_with_the_last_session_that_needs_it(self, store: Store) -> None:
        boss = store.create_agent(agent())
        worker = agent(parent_id=boss.id)
        first, second = (session(agent_id=worker.id, agent=worker) for _ in range(2))
        store.create_session(first)
        store.create_session(second)
        store.put(checkpoint(first.id))
        assert store.delete_session(first.id)
        assert store.find_agent(worker.id) is not None
        assert store.latest_of_agent(worker.id) is None
        assert store.delete_session(second.id)
        assert [one.id for one in store.list_agents()] == [boss.id]

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

    # Logs

    def test_logs_are_in_the_order_of_the_calls(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        other = store.create_session(session())
        lines = []
        for number, level in enumerate(("debug", "info", "warning", "error")):
            lines.append(store.append_log(draft.id, level, f"line {number}", {"n": number}))
            store.append_log(other.id, "info", "elsewhere")
        assert store.list_logs(draft.id) == lines
        assert sorted(lines, key=lambda line: line.id) == lines
        assert [line.data for line in lines] == [{"n": number} for number in range(4)]

    def test_logs_can_be_paged_and_filtered_by_level(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        for number in range(5):
            store.append_log(draft.id, "info" if number % 2 else "error", str(number))

        def messages(**options: object) -> list[str]:
            return [line.message for line in store.list_logs(draft.id, **options)]  # type: ignore[arg-type]

        assert messages(limit=2) == ["0", "1"]
        assert messages(limit=2, offset=2) == ["2", "3"]
        assert messages(offset=4) == ["4"]
        assert messages(limit=0) == []
        assert messages(level="info") == ["1", "3"]
        assert messages(level="error", limit=1, offset=1) == ["2"]
        assert messages(newest=True, limit=2, offset=1) == ["3", "2"]
        with pytest.raises(InvalidFilter):
            messages(limit=-1)
        with pytest.raises(InvalidFilter):
            messages(offset=-1)

    def test_logs_can_be_found_by_a_key_of_their_data(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        odd = 'a "quoted" $.key'
        for data in (None, {"decision": {"text": "x"}}, {"other": "decision"}, {odd: None}, {}):
            store.append_log(draft.id, "info", str(data), data)
        assert [line.data for line in store.list_logs(draft.id, key="decision")] == [
            {"decision": {"text": "x"}}
        ]
        assert [line.data for line in store.list_logs(draft.id, key=odd)] == [{odd: None}]
        assert store.list_logs(draft.id, key="text") == []
        assert store.list_logs(draft.id, key="decision", level="error") == []
        with pytest.raises(InvalidFilter):
            store.list_logs(draft.id, key=1)  # type: ignore[arg-type]

    def test_a_log_line_needs_a_session_and_a_known_level(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        with pytest.raises(SessionNotFound):
            store.append_log("nobody", "info", "hello")
        with pytest.raises(InputError):
            store.append_log(draft.id, "shout", "hello")
        assert store.list_logs(draft.id) == []
