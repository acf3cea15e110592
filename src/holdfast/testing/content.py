"""Content: chunks are stored once, come back as they were, and make up a state again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import ChunksMissing, InvalidFilter
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, NewCheckpoint
from holdfast.state import StateEncoder
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, refs_to, session

# Small values stand in the manifest, long ones become chunks, and enough of those an index.
STATE: dict[str, Any] = {
    "step": 7,
    "when": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "conversation_history": [
        {"role": "user", "content": f"message {number} " + "word " * 40} for number in range(2000)
    ],
    "image": bytes(range(256)) * 64,
}


def state_checkpoint(session_id: str, state: dict[str, Any], **changes: Any) -> NewCheckpoint:
    """Return a checkpoint of a state, encoded as the package does it."""
    encoded = StateEncoder().encode(state, changes.pop("context", None))
    return checkpoint(
        session_id,
        manifest=encoded.manifest,
        refs=encoded.refs,
        chunks=encoded.chunks,
        expects=encoded.expects,
        size_bytes=encoded.size_bytes,
        **changes,
    )


class ContentContract(Contract):
    """What a store promises about chunks, and about states as a whole."""

    def test_a_state_is_loaded_as_it_was_saved(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = state_checkpoint(owner.id, STATE, context={"files": ["a.py"]})
        store.put(draft)
        loaded = store.load(draft.id.upper())
        assert loaded is not None
        payload, content = loaded
        assert (payload.manifest, payload.refs) == (draft.manifest, draft.refs)
        assert payload == store.read_payload(draft.id)
        assert content.state == STATE
        assert list(content.state) == list(STATE)
        assert content.context == {"files": ["a.py"]}

    def test_what_is_loaded_belongs_to_the_caller(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = state_checkpoint(owner.id, STATE)
        store.put(draft)
        for _ in range(2):
            loaded = store.load(draft.id)
            assert loaded is not None
            assert loaded[1].state == STATE
            loaded[1].state["conversation_history"][0]["content"] = "changed"

    def test_nothing_is_loaded_for_an_unknown_id(self, store: Store, neighbour: Store) -> None:
        owner = store.create_session(session())
        draft = state_checkpoint(owner.id, STATE)
        store.put(draft)
        assert store.load(new_id()) is None
        assert store.load("no id at all") is None
        assert neighbour.load(draft.id) is None
        assert store.delete_checkpoints([draft.id]) == 1
        assert store.load(draft.id) is None

    def test_what_has_expired_is_not_loaded(self, store: Store) -> None:
        owner = store.create_session(session())
        past = datetime.now(UTC) - timedelta(days=1)
        draft = state_checkpoint(owner.id, STATE, expires_at=past)
        store.put(draft)
        assert store.load(draft.id) is None

    def test_the_newest_is_read_with_its_payload(self, store: Store, neighbour: Store) -> None:
        owner = store.create_session(session())
        past = datetime.now(UTC) - timedelta(days=1)
        first, second, third = (
            store.put(
                state_checkpoint(
                    owner.id,
                    STATE | {"step": step},
                    external_id=f"e{step}",
                    metadata={"odd": step % 2},
                )
            ).record
            for step in (1, 2, 3)
        )
        store.put(state_checkpoint(owner.id, STATE, expires_at=past))
        store.put(state_checkpoint(owner.id, STATE, namespace="beside"))
        line = CheckpointQuery(session_id=owner.id, namespace="")
        for query, wanted in (
            (line, third),
            (replace(line, limit=7), third),
            (replace(line, external_id="e1"), first),
            (replace(line, id=second.id.upper()), second),
            (replace(line, before_seq=third.seq), second),
            (replace(line, before_seq=third.seq, metadata={"odd": 1}), first),
        ):
            assert store.read_newest(query) == (wanted, store.read_payload(wanted.id))
            loaded = store.load_newest(query)
            assert loaded is not None
            record, payload, content = loaded
            assert (record, payload) == (wanted, store.read_payload(wanted.id))
            assert content.state == STATE | {"step": int((wanted.external_id or "")[1:])}
        for query in (
            replace(line, external_id="e4"),
            replace(line, id="no id at all"),
            replace(line, metadata={"odd": 2}),
            replace(line, before_seq=first.seq),
            CheckpointQuery(session_id="nobody"),
        ):
            assert store.read_newest(query) is None
            assert store.load_newest(query) is None
        assert neighbour.load_newest(line) is None
        with pytest.raises(InvalidFilter):
            store.read_newest(CheckpointQuery(session_id=7))  # type: ignore[arg-type]

    def test_ids_are_found_however_they_are_spelled_and_must_be_texts(self, store: Store) -> None:
        owner = store.create_session(session())
        record = store.put(state_checkpoint(owner.id, STATE)).record
        ids = [record.id.upper()]
        assert store.read_payloads(ids) == {record.id: store.read_payload(record.id)}
        copy = store.copy_session(owner.id, session(), checkpoint_ids=ids)
        assert len(store.list_checkpoints(CheckpointQuery(session_id=copy.id))) == 1
        assert store.quarantine(ids) == store.quarantine(ids, lift=True) == {record.id}
        wrong: list[Any] = [[5], [None], [record.id.encode()]]
        for odd in wrong:
            for ask in (store.read_payloads, store.quarantine, store.delete_checkpoints):
                with pytest.raises(InvalidFilter):
                    ask(odd)
            with pytest.raises(InvalidFilter):
                store.copy_session(owner.id, session(), checkpoint_ids=odd)
        assert store.delete_checkpoints(ids) == 1

    def test_loading_changes_nothing(self, store: Store) -> None:
        owner = store.create_session(session())
        record = store.put(state_checkpoint(owner.id, STATE)).record
        before = store.find_session(owner.id)
        assert store.load(record.id) is not None
        assert store.list_checkpoints(CheckpointQuery(id=record.id)) == [record]
        assert store.find_session(owner.id) == before

    def test_equal_content_is_stored_once(self, store: Store) -> None:
        owner = store.create_session(session())
        content = bytes(range(256)) * 40
        once = store.put(checkpoint(owner.id, contents=[content])).record
        bytes_before = store.total_bytes()
        again = store.put(checkpoint(owner.id, contents=[content])).record
        assert store.total_bytes() == bytes_before > 0
        assert again.stored_bytes < once.stored_bytes

    def test_a_put_may_rely_on_stored_chunks(self, store: Store) -> None:
        owner = store.create_session(session())
        content = b"known content"
        store.put(checkpoint(owner.id, contents=[content]))
        known = digest_of(content)
        draft = checkpoint(owner.id, refs=refs_to(content), expects=[known, known])
        store.put(draft)
        assert store.read_chunks([known]) == {known: content}

    def test_a_put_that_relies_on_missing_chunks_leaves_nothing(self, store: Store) -> None:
        owner = session()
        draft = checkpoint(
            owner.id,
            session=owner,
            contents=[b"sent"],
            expects=[digest_of(b"not stored")],
        )
        with pytest.raises(ChunksMissing):
            store.put(draft)
        assert store.find_session(owner.id) is None
        assert store.find_agent(owner.agent_id) is None
        assert store.read_payload(draft.id) is None
        assert store.read_chunks(list(draft.chunks)) == {}
        content = b"not stored"
        whole = replace(draft, chunks={**draft.chunks, digest_of(content): content})
        assert store.put(whole).created is True

    def test_a_refused_replacement_keeps_the_old_checkpoint(self, store: Store) -> None:
        owner = store.create_session(session())
        old = store.put(checkpoint(owner.id, "name")).record
        with pytest.raises(ChunksMissing):
            store.put(checkpoint(owner.id, "name", replace=True, expects=[digest_of(b"no")]))
        assert store.list_checkpoints(CheckpointQuery(session_id=owner.id)) == [old]

    def test_reading_chunks_leaves_out_what_is_not_stored(self, store: Store) -> None:
        owner = store.create_session(session())
        contents = [b"%d " % number * 50 for number in range(20)]
        store.put(checkpoint(owner.id, contents=contents))
        wanted = [digest_of(data) for data in contents[::2]]
        found = store.read_chunks([*wanted, digest_of(b"absent"), wanted[0]])
        assert found == {digest_of(data): data for data in contents[::2]}
        assert store.read_chunks([]) == {}

    @pytest.mark.parametrize("content", [b"", b"\0", b"x", b"\xff" * 70, bytes(range(256)) * 4096])
    def test_content_of_any_kind_comes_back(self, store: Store, content: bytes) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id, contents=[content])
        store.put(replace(draft, chunks={digest_of(content): memoryview(content)}))
        assert store.read_chunks([digest_of(content)]) == {digest_of(content): content}
