"""The contract of copies: a session that goes on as two."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.errors import CheckpointNotFound, SessionExists, SessionNotFound
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session, stored, write


class CopyContract(Contract):
    """The same checkpoints in another session of the same store."""

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
        assert [one.id for one in store.list_agents()] == [source.agent_id]

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
