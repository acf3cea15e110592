"""The contract of checkpoints after their put: restored, being restored, deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import CheckpointNotFound, InputError
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, Trim
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session, stored


class RestoringContract(Contract):
    """What restoring notes about a checkpoint, and what deleting leaves."""

    def test_reading_does_not_mark_a_checkpoint_as_restored(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id)
        store.put(draft)
        store.read_payload(draft.id)
        store.latest_of_agent(owner.agent_id)
        (record,) = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert record.restored_at is None

    def test_marking_a_checkpoint_as_restored_sets_the_time(self, store: Store) -> None:
        owner = store.create_session(session())
        record = store.put(checkpoint(owner.id, metadata={"k": 1})).record
        once = store.mark_restored(record.id)
        assert once.restored_at is not None
        assert once == replace(record, restored_at=once.restored_at)
        assert abs(once.restored_at - datetime.now(UTC)) < timedelta(seconds=60)
        twice = store.mark_restored(record.id)
        assert twice.restored_at is not None
        assert twice.restored_at > once.restored_at
        assert store.list_checkpoints(CheckpointQuery(id=record.id)) == [twice]
        with pytest.raises(CheckpointNotFound):
            store.mark_restored(new_id())

    def test_what_is_being_restored_is_neither_trimmed_nor_pruned(self, store: Store) -> None:
        owner = store.create_session(session())
        first, second = (store.put(checkpoint(owner.id, name=name)).record for name in "ab")
        store.mark_restoring(first.id, seconds=600)
        trimmed = store.put(checkpoint(owner.id, name="c", trim=Trim(keep=1)))
        assert trimmed.removed == (second.id,)
        assert store.delete_checkpoints([first.id], beside=[]) == 0
        store.mark_restoring(first.id, seconds=0)
        assert store.delete_checkpoints([first.id], beside=[]) == 1
        with pytest.raises(CheckpointNotFound):
            store.mark_restoring(first.id, seconds=600)

    def test_deleting_checkpoints_counts_those_that_were_there(self, store: Store) -> None:
        owner = store.create_session(session())
        ids = [store.put(checkpoint(owner.id)).record.id for _ in range(3)]
        assert store.delete_checkpoints([ids[0], ids[2], new_id(), ids[0]]) == 2
        assert list(store.iter_checkpoint_ids()) == [ids[1]]
        assert store.read_payload(ids[0]) is None
        assert store.delete_checkpoints([]) == 0

    # Removal by a plan

    def test_a_plan_leaves_lines_alone_whose_newest_is_another_by_now(self, store: Store) -> None:
        owner, other = (store.create_session(session()) for _ in range(2))
        old, last = (store.put(checkpoint(owner.id, name)).record for name in ("old", "last"))
        newest = store.put(checkpoint(owner.id, "newest")).record
        elsewhere = store.put(checkpoint(owner.id, namespace="sub")).record
        beside = store.put(checkpoint(owner.id, namespace="sub")).record
        going = [old.id, last.id, elsewhere.id]
        staying = [newest.id, beside.id, store.put(checkpoint(other.id)).record.id]
        store.delete_checkpoints([newest.id])
        assert store.delete_checkpoints(going, beside=staying) == 1
        assert stored(store, owner.id, namespace="") == ["last", "old"]
        assert store.delete_checkpoints([old.id], beside=[last.id]) == 1
        assert store.delete_checkpoints([last.id], beside=[]) == 0
        assert stored(store, owner.id, namespace="") == ["last"]

    @pytest.mark.parametrize("how", ["quarantined", "expired", "not resumable"])
    def test_a_plan_leaves_the_newest_that_can_be_resumed_from(
        self, store: Store, how: str
    ) -> None:
        owner = store.create_session(session())
        good = store.put(checkpoint(owner.id, "good")).record
        past = datetime.now(UTC) - timedelta(seconds=5)
        newest = checkpoint(
            owner.id,
            "newest",
            resumable=how != "not resumable",
            expires_at=past if how == "expired" else None,
        )
        store.put(newest)
        if how == "quarantined":
            store.quarantine([newest.id])
        assert store.delete_checkpoints([good.id], beside=[newest.id]) == 0
        assert store.delete_checkpoints([newest.id], beside=[good.id]) == 1
        assert stored(store, owner.id) == ["good"]

    def test_a_plan_leaves_what_one_was_put_on_that_it_does_not_know(self, store: Store) -> None:
        owner = store.create_session(session())
        for number, parent in enumerate((None, "e0", "e1", "e0")):
            draft = checkpoint(owner.id, f"n{number}", external_id=f"e{number}", parent_id=parent)
            store.put(draft)
        ids = [one.id for one in store.list_checkpoints(CheckpointQuery(session_id=owner.id))]
        new, newest, middle, oldest = ids
        assert store.delete_checkpoints([oldest], beside=[middle, newest]) == 0
        # What the plan knows may go on without its parent.
        assert store.delete_checkpoints([oldest, middle], beside=[newest, new]) == 2
        assert stored(store, owner.id) == ["n3", "n2"]

    def test_a_plan_may_mean_the_newest_too(self, store: Store) -> None:
        owner = store.create_session(session())
        for number, parent in enumerate((None, "e0", "e1")):
            draft = checkpoint(owner.id, f"n{number}", external_id=f"e{number}", parent_id=parent)
            store.put(draft)
        ids = [one.id for one in store.list_checkpoints(CheckpointQuery(session_id=owner.id))]
        newest, middle, oldest = ids
        # A child that the plan does not know, and one that is being restored, stay all the same.
        assert store.delete_checkpoints([middle], beside=[oldest], newest_too=True) == 0
        store.mark_restoring(newest, seconds=600)
        assert store.delete_checkpoints([newest, middle], beside=[oldest], newest_too=True) == 1
        store.mark_restoring(newest, seconds=0)
        assert stored(store, owner.id) == ["n2", "n0"]
        assert store.delete_checkpoints([newest, oldest], beside=[]) == 0
        assert store.delete_checkpoints([newest, oldest], beside=[], newest_too=True) == 2
        assert stored(store, owner.id) == []

    def test_a_plan_reaches_no_other_sessions_of_the_same_names(self, store: Store) -> None:
        owner, other = (store.create_session(session()) for _ in range(2))
        for one in (owner, other):
            store.put(checkpoint(one.id, "a", external_id="a"))
        newest = store.put(checkpoint(owner.id, "b", external_id="b")).record
        # A child of the same name's, but elsewhere.
        store.put(checkpoint(other.id, "b", external_id="b", parent_id="a"))
        store.put(checkpoint(owner.id, "c", namespace="sub", parent_id="a"))
        [going] = store.list_checkpoints(CheckpointQuery(session_id=owner.id, external_id="a"))
        assert store.delete_checkpoints([going.id], beside=[newest.id]) == 1
        assert stored(store, other.id) == ["b", "a"]

    def test_what_a_plan_was_made_of_is_checked(self, store: Store) -> None:
        for bad in ([7], [None]):
            with pytest.raises(InputError):
                store.delete_checkpoints([new_id()], beside=bad)  # type: ignore[arg-type]
