"""The contract of checkpoints after their put: restored, being restored, deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import CheckpointNotFound
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, Trim
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session


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
        assert store.delete_checkpoints([first.id], spare_restoring=True) == 0
        store.mark_restoring(first.id, seconds=0)
        assert store.delete_checkpoints([first.id], spare_restoring=True) == 1
        with pytest.raises(CheckpointNotFound):
            store.mark_restoring(first.id, seconds=600)

    def test_deleting_checkpoints_counts_those_that_were_there(self, store: Store) -> None:
        owner = store.create_session(session())
        ids = [store.put(checkpoint(owner.id)).record.id for _ in range(3)]
        assert store.delete_checkpoints([ids[0], ids[2], new_id(), ids[0]]) == 2
        assert list(store.iter_checkpoint_ids()) == [ids[1]]
        assert store.read_payload(ids[0]) is None
        assert store.delete_checkpoints([]) == 0
