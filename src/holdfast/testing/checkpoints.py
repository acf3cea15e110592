"""The contract of checkpoints: what a put stores, in which order, and what it refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.errors import (
    AgentNotFound,
    CheckpointExists,
    InputError,
    SessionNotFound,
)
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, CheckpointRecord, NewCheckpoint
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store, first
from holdfast.testing.drafts import Contract, agent, checkpoint, names, session, stored

NOT_IN_THE_RECORD = {
    "manifest",
    "refs",
    "chunks",
    "expects",
    "parent_is_newest",
    "pack_required",
    "fence",
    "replace",
    "consumes",
    "follows",
    "trim",
    "session",
}


def moment(text: str) -> datetime:
    """Return a moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class CheckpointContract(Contract):
    """Putting checkpoints and reading them back."""

    def test_a_checkpoint_comes_back_as_it_was_put(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(
            owner.id,
            "before refactor",
            contents=[b"one" * 100, b"two"],
            checkpoint_type="failure",
            retention_class="failure",
            namespace="sub",
            external_id="1ef-external",
            parent_id=new_id(),
            label="checkpoint-20260102-030405",
            description="a description\nof two lines",
            run_id="run 1",
            version=7,
            git_branch="feature/ü",
            git_commit="a" * 40,
            git_uncommitted=True,
            workspace_commit="b" * 40,
            resumable=False,
            pinned=True,
            expires_at=moment("2099-01-01T00:00:00.000001"),
            metadata={"nested": {"list": [1, 2.5, None, True, "ü"]}, "big": 2**70},
            created_at=moment("2025-12-31T23:59:59.999999"),
        )
        result = store.put(draft)
        assert result.created is True
        assert result.removed == ()
        for field in fields(NewCheckpoint):
            if field.name not in NOT_IN_THE_RECORD:
                assert getattr(result.record, field.name) == getattr(draft, field.name), field.name
        assert result.record.agent_id == owner.agent_id
        assert result.record.restored_at is None
        assert store.list_checkpoints(CheckpointQuery(id=draft.id)) == [result.record]
        payload = store.read_payload(draft.id)
        assert payload is not None
        assert (payload.manifest, payload.refs) == (draft.manifest, draft.refs)
        assert store.read_chunks(list(draft.chunks)) == dict(draft.chunks)

    def test_a_manifest_comes_back_byte_for_byte(self, store: Store) -> None:
        owner = store.create_session(session())
        text = (
            '{ "z":1,\n "a": [1e16, -0.0, 1.10, 123456789012345678901234567890], "é\\u0041": "🦀"}'
        )
        draft = checkpoint(owner.id, manifest=text)
        store.put(draft)
        payload = store.read_payload(draft.id)
        assert payload is not None
        assert payload.manifest == text

    def test_unset_fields_have_their_defaults(self, store: Store) -> None:
        owner = store.create_session(session())
        record = store.put(checkpoint(owner.id, "plain")).record
        assert (record.checkpoint_type, record.retention_class) == ("manual", "manual")
        assert (record.namespace, record.version) == ("", 1)
        assert (record.resumable, record.pinned, record.git_uncommitted) == (True, False, False)
        assert abs(record.created_at - datetime.now(UTC)) < timedelta(seconds=60)
        assert first(store.list_checkpoints(CheckpointQuery(session_id=owner.id))) == record

    def test_times_keep_microseconds_and_become_utc(self, store: Store) -> None:
        owner = store.create_session(session())
        east = timezone(timedelta(hours=5, minutes=30))
        local = datetime(2026, 3, 4, 1, 2, 3, 4, tzinfo=east)
        store.put(checkpoint(owner.id, created_at=local))
        (record,) = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert record.created_at == local
        assert record.created_at.utcoffset() == timedelta(0)

    # Order

    def test_order_is_by_seq_and_not_by_clock_or_id(self, store: Store) -> None:
        owner = store.create_session(session())
        ids = sorted((new_id() for _ in range(4)), reverse=True)
        moments = [moment(f"202{5 - number}-01-01T00:00:00") for number in range(4)]
        for number, (id_, created_at) in enumerate(zip(ids, moments, strict=True)):
            store.put(checkpoint(owner.id, f"n{number}", id=id_, created_at=created_at))
        records = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert names(records) == ["n3", "n2", "n1", "n0"]
        sequence = [record.seq for record in records]
        assert sequence == sorted(set(sequence), reverse=True)

    def test_seq_is_shared_by_all_sessions(self, store: Store) -> None:
        owners = [store.create_session(session()) for _ in range(2)]
        records = [store.put(checkpoint(owners[n % 2].id)).record for n in range(6)]
        assert store.list_checkpoints(CheckpointQuery()) == records[::-1]
        assert list(store.iter_checkpoint_ids()) == [record.id for record in records]

    def test_a_seq_is_never_used_again(self, store: Store) -> None:
        owner = store.create_session(session())
        gone = store.put(checkpoint(owner.id)).record
        store.delete_checkpoints([gone.id])
        assert store.put(checkpoint(owner.id)).record.seq > gone.seq

    def test_the_latest_of_an_agent_is_by_time_then_by_id(self, store: Store) -> None:
        worker = agent()
        one = store.create_session(session(agent_id=worker.id, agent=worker))
        other = store.create_session(session(agent_id=worker.id))
        same = moment("2026-01-01T00:00:00")
        low, high = new_id(), new_id()
        store.put(checkpoint(one.id, id=high, created_at=same))
        store.put(checkpoint(other.id, id=low, created_at=same))
        store.put(checkpoint(one.id, created_at=same - timedelta(days=1)))
        found = store.latest_of_agent(worker.id)
        assert found is not None
        assert found.id == high
        assert store.latest_of_agent(new_id()) is None

    # Idempotence and replacement

    def test_putting_an_id_again_changes_nothing(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id, "same", contents=[b"content"], metadata={"try": 1})
        once = store.put(draft)
        again = store.put(replace(draft, description="a retry", metadata={"try": 2}))
        assert (again.created, again.removed) == (False, ())
        assert again.record == once.record
        assert store.list_checkpoints(CheckpointQuery(session_id=owner.id)) == [once.record]

    def test_other_content_under_a_stored_id_leaves_nothing_behind(self, store: Store) -> None:
        owner = store.create_session(session())
        first = checkpoint(owner.id, "a", contents=[b"one", b"two"])
        store.put(first)
        kept = list(first.chunks)
        for contents in ([b"other"], [b"one", b"other", b"another"]):
            again = checkpoint(owner.id, "b", contents=contents, id=first.id)
            assert not store.put(again).created
            missing = replace(again, expects=(digest_of(b"nowhere"),))
            assert not store.put(missing).created
        assert store.read_chunks(kept).keys() == set(kept)
        assert sorted(store.iter_digests()) == sorted(kept)

    def test_a_retry_creates_no_second_session(self, store: Store) -> None:
        owner = session()
        draft = checkpoint(owner.id, session=owner)
        store.put(draft)
        assert store.put(draft).created is False
        assert len(store.list_sessions()) == 1

    def test_an_id_of_another_session_is_refused(self, store: Store) -> None:
        owners = [store.create_session(session()) for _ in range(2)]
        draft = checkpoint(owners[0].id)
        store.put(draft)
        with pytest.raises(CheckpointExists):
            store.put(replace(draft, session_id=owners[1].id))
        assert stored(store, owners[1].id) == []

    def test_a_taken_name_is_refused_and_nothing_is_left_behind(self, store: Store) -> None:
        owner = store.create_session(session())
        old = store.put(checkpoint(owner.id, "taken", contents=[b"old"])).record
        new = checkpoint(owner.id, "taken", contents=[b"new content"])
        with pytest.raises(CheckpointExists, match="overwrite=True"):
            store.put(new)
        assert store.list_checkpoints(CheckpointQuery(session_id=owner.id)) == [old]
        assert store.read_payload(new.id) is None
        assert store.read_chunks(list(new.chunks)) == {}

    def test_a_name_is_free_in_another_session_and_namespace(self, store: Store) -> None:
        owner, other = (store.create_session(session()) for _ in range(2))
        for session_id, namespace in ((owner.id, ""), (owner.id, "sub"), (other.id, "")):
            store.put(checkpoint(session_id, "same", namespace=namespace, external_id="same"))
        assert stored(store, owner.id) == ["same", "same"]

    def test_replacing_a_name_makes_the_new_one_the_latest(self, store: Store) -> None:
        owner = store.create_session(session())
        old = store.put(checkpoint(owner.id, "draft")).record
        store.put(checkpoint(owner.id, "between"))
        new = store.put(checkpoint(owner.id, "draft", replace=True))
        assert new.removed == (old.id,)
        assert new.record.seq > old.seq
        assert stored(store, owner.id) == ["draft", "between"]
        assert store.read_payload(old.id) is None

    def test_replacing_an_external_id_hands_its_seq_on(self, store: Store) -> None:
        owner = store.create_session(session())
        old = store.put(checkpoint(owner.id, "a", external_id="e")).record
        store.put(checkpoint(owner.id, "b", external_id="f"))
        new = store.put(checkpoint(owner.id, "c", external_id="e", replace=True))
        assert new.removed == (old.id,)
        assert (new.record.seq, new.record.id) == (old.seq, new.record.id)
        assert stored(store, owner.id) == ["b", "c"]

    def test_a_taken_external_id_is_refused(self, store: Store) -> None:
        owner = store.create_session(session())
        store.put(checkpoint(owner.id, "a", external_id="e"))
        with pytest.raises(CheckpointExists):
            store.put(checkpoint(owner.id, "b", external_id="e"))
        assert stored(store, owner.id) == ["a"]

    def test_one_draft_may_replace_two_checkpoints(self, store: Store) -> None:
        owner = store.create_session(session())
        named = store.put(checkpoint(owner.id, "name", external_id="e1")).record
        external = store.put(checkpoint(owner.id, "other", external_id="e2")).record
        new = store.put(checkpoint(owner.id, "name", external_id="e2", replace=True))
        assert set(new.removed) == {named.id, external.id}
        assert new.record.seq == external.seq
        assert stored(store, owner.id) == ["name"]

    # Sessions in a put

    def test_a_put_creates_the_session_it_brings(self, store: Store) -> None:
        owner = session(task_description="brought")
        record = store.put(checkpoint(owner.id, session=owner)).record
        found = store.find_session(owner.id)
        assert found is not None
        assert (found.task_description, found.agent_id) == ("brought", record.agent_id)
        store.put(checkpoint(owner.id, session=replace(owner, task_description="ignored")))
        again = store.find_session(owner.id)
        assert again is not None
        assert (again.task_description, again.created_at) == ("brought", found.created_at)

    def test_a_put_moves_updated_at_of_its_session_and_a_retry_does_not(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id)
        store.put(draft)
        after = store.find_session(owner.id)
        assert after is not None
        assert after.updated_at > owner.updated_at
        store.put(draft)
        assert store.find_session(owner.id) == after

    def test_a_put_into_an_unknown_session_is_refused(self, store: Store) -> None:
        draft = checkpoint("nobody", contents=[b"content"])
        with pytest.raises(SessionNotFound):
            store.put(draft)
        assert store.read_chunks(list(draft.chunks)) == {}

    def test_a_put_that_brings_a_session_of_an_unknown_agent_is_refused(self, store: Store) -> None:
        owner = session(agent_id=new_id())
        with pytest.raises(AgentNotFound):
            store.put(checkpoint(owner.id, session=owner))
        assert store.find_session(owner.id) is None

    def test_a_put_must_bring_its_own_session(self, store: Store) -> None:
        with pytest.raises(InputError):
            store.put(checkpoint("one", session=session(id="another")))
        assert store.list_sessions() == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"checkpoint_type": "x"},
            {"checkpoint_type": ""},
            {"checkpoint_type": "Manual"},
            {"retention_class": "forever"},
            {"refs": b"not whole"},
            {"version": "1"},
            {"description": "nul\0"},
            {"pinned": "yes"},
            {"pinned": 1},
            {"resumable": None},
            {"git_uncommitted": "no"},
            {"replace": "x"},
            {"created_at": False},
            {"created_at": ""},
            {"expires_at": 0},
        ],
    )
    def test_an_impossible_draft_is_refused_before_anything_is_written(
        self, store: Store, changes: dict[str, Any]
    ) -> None:
        owner = session()
        with pytest.raises(InputError) as caught:
            store.put(checkpoint(owner.id, session=owner, **changes))
        assert isinstance(caught.value, ValueError)
        assert store.list_sessions() == []

    # Threads

    def test_eight_threads_put_into_one_session(self, store: Store) -> None:
        owner = store.create_session(session())
        shared = b"shared by all" * 30

        def work(worker: int) -> list[CheckpointRecord]:
            return [
                store.put(
                    checkpoint(
                        owner.id,
                        f"{worker}/{number}",
                        contents=[shared, b"%d/%d" % (worker, number) * 30],
                    )
                ).record
                for number in range(12)
            ]

        with ThreadPoolExecutor(8) as pool:
            puts = [record for batch in pool.map(work, range(8)) for record in batch]
        listed = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert {record.id for record in listed} == {record.id for record in puts}
        assert len({record.seq for record in puts}) == 96
        for worker in range(8):
            own = [record.seq for record in puts if record.name.startswith(f"{worker}/")]
            assert own == sorted(own)

    def test_threads_that_put_one_id_store_it_once(self, store: Store) -> None:
        owner = session()
        draft = checkpoint(owner.id, session=owner)
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: store.put(draft), range(16)))
        assert sum(result.created for result in results) == 1
        assert len({result.record.seq for result in results}) == 1

    def test_threads_that_put_one_name_agree_on_a_winner(self, store: Store) -> None:
        owner = store.create_session(session())

        def work(_: int) -> bool:
            try:
                return store.put(checkpoint(owner.id, "one")).created
            except CheckpointExists:
                return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(work, range(16))) == 1
        assert stored(store, owner.id) == ["one"]
