"""The contract of upkeep: expiry, sweeping, closing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import CheckpointNotFound, ChunksMissing, ForeignSession, StoreClosed
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, NewCheckpoint, SessionRecord
from holdfast.state.refs import digest_of, pack_refs, unpack_refs
from holdfast.stores.base import Store
from holdfast.testing.drafts import (
    Contract,
    checkpoint,
    index_of,
    refs_to,
    session,
    stored,
    write,
)


class UpkeepContract(Contract):
    """Expiry, gc and the end of a store."""

    def test_an_expired_checkpoint_is_invisible(self, store: Store) -> None:
        owner = store.create_session(session())
        past = datetime.now(UTC) - timedelta(seconds=5)
        gone = store.put(checkpoint(owner.id, "gone", external_id="e", expires_at=past)).record
        future = datetime.now(UTC) + timedelta(days=1)
        store.put(
            checkpoint(owner.id, "here", expires_at=future, created_at=past - timedelta(days=1))
        )
        assert stored(store, owner.id) == ["here"]
        assert store.list_checkpoints(CheckpointQuery(id=gone.id)) == []
        latest = store.latest_of_agent(owner.agent_id)
        assert latest is not None
        assert latest.name == "here"
        assert store.read_payload(gone.id) is None
        assert gone.id not in list(store.iter_checkpoint_ids())
        assert store.session_usage()[0].checkpoints == 1
        with pytest.raises(CheckpointNotFound):
            store.mark_restored(gone.id)

    def test_an_expired_checkpoint_does_not_stand_in_the_way_of_its_name(
        self, store: Store
    ) -> None:
        owner = store.create_session(session())
        past = datetime.now(UTC) - timedelta(seconds=5)
        store.put(checkpoint(owner.id, "name", external_id="e", expires_at=past))
        store.put(checkpoint(owner.id, "name", external_id="e"))
        assert stored(store, owner.id) == ["name"]

    def test_purging_removes_what_has_expired(self, store: Store) -> None:
        owner = store.create_session(session())
        now = datetime.now(UTC)
        for name, seconds in (("a", -5), ("b", -1), ("c", 3600)):
            expires_at = now + timedelta(seconds=seconds)
            store.put(
                checkpoint(owner.id, name, contents=[name.encode() * 99], expires_at=expires_at)
            )
        store.put(checkpoint(owner.id, "d"))
        assert [one.name for one in store.list_expired()] == ["b", "a"]
        assert store.purge_expired() == 2
        assert store.list_expired() == []
        assert store.purge_expired() == 0
        assert stored(store, owner.id) == ["d", "c"]
        assert store.gc().chunks == 2

    def test_gc_removes_what_nothing_refers_to(self, store: Store) -> None:
        owner = store.create_session(session())
        kept = checkpoint(owner.id, contents=[b"kept" * 50, b"shared" * 50])
        gone = checkpoint(owner.id, contents=[b"gone" * 50, b"shared" * 50])
        store.put(kept)
        bytes_before = store.total_bytes()
        store.put(gone)
        store.delete_checkpoints([gone.id])
        swept = store.total_bytes() - bytes_before
        report = store.gc(dry_run=True)
        assert (report.chunks, report.bytes, report.writes) == (1, swept, 0)
        assert report.dry_run is True
        assert store.total_bytes() == bytes_before + swept
        report = store.gc()
        assert (report.chunks, report.bytes, report.dry_run) == (1, swept, False)
        assert store.total_bytes() == bytes_before
        assert store.read_chunks(list(kept.chunks)) == dict(kept.chunks)
        assert store.gc().chunks == 0

    @pytest.mark.parametrize("level", [1, 2, 3])
    def test_gc_keeps_what_is_referred_to_through_indexes(self, store: Store, level: int) -> None:
        owner = store.create_session(session())
        leaves = [b"leaf %d " % number * 30 for number in range(10)]
        chunks = {digest_of(data): data for data in leaves}
        size = sum(map(len, leaves))
        data, refs = index_of(*leaves)
        chunks[digest_of(data)] = data
        for height in range(2, level + 1):
            data = refs
            chunks[digest_of(data)] = data
            (below,) = unpack_refs(refs)
            refs = pack_refs([below._replace(digest=digest_of(data), level=height, length=size)])
        draft = checkpoint(owner.id, refs=refs, chunks=chunks, size_bytes=size)
        store.put(draft)
        store.put(checkpoint(owner.id, "other", contents=[b"unrelated"]))
        assert store.gc().chunks == 0
        assert store.read_chunks(list(chunks)) == chunks
        store.delete_checkpoints([draft.id])
        assert store.gc().chunks == len(chunks)
        assert store.read_chunks(list(chunks)) == {}

    def test_erasing_a_session_keeps_what_others_reach_through_indexes(self, store: Store) -> None:
        mine, theirs = (store.create_session(session()) for _ in range(2))
        leaves = [b"leaf %d " % number * 30 for number in range(4)]
        data, refs = index_of(*leaves)
        chunks = {digest_of(one): one for one in (*leaves, data)}
        store.put(checkpoint(theirs.id, refs=refs, chunks=chunks))
        store.put(checkpoint(mine.id, contents=[leaves[0], b"mine only"]))
        assert store.delete_session(mine.id)
        assert store.read_chunks(list(chunks)) == chunks
        assert store.read_chunks([digest_of(b"mine only")]) == {}

    def test_erasing_leaves_no_index_without_what_is_below_it(self, store: Store) -> None:
        mine, theirs, indexed = _with_half_an_index(store)
        assert store.delete_session(theirs.id)
        # A writer who remembers the index asks only for that: it must be told that it is gone.
        with pytest.raises(ChunksMissing):
            store.put(checkpoint(mine.id, refs=indexed.refs, expects=[_index_in(indexed)]))
        assert store.read_chunks(list(indexed.chunks)) == {}

    def test_threads_are_erased_in_one_namespace_only(self, store: Store) -> None:
        own, foreign, outside = (store.create_session(session()) for _ in range(3))
        for owner in (own, foreign):
            for namespace in ("going", "staying"):
                contents = [f"{namespace} {owner.id}".encode() * 9]
                store.put(checkpoint(owner.id, namespace, namespace=namespace, contents=contents))
                draft = session(id=owner.id)
                store.put_writes(draft, namespace, "e", [write(contents=[contents[0] + b"w"])])
        trimmed = checkpoint(outside.id, contents=[b"trimmed before"])
        store.put(trimmed)
        store.delete_checkpoints([trimmed.id])
        ids = [own.id, foreign.id, "unknown"]
        agent_id = own.agent_id.upper()
        assert store.erase_threads(ids, namespace="going", agent_prefix=agent_id) == 2
        assert store.read_chunks([digest_of(b"trimmed before")]) == {}
        for owner in (own, foreign):
            assert stored(store, owner.id) == ["staying"]
            assert store.list_writes(owner.id, "going", ["e"]) == []
            assert len(store.list_writes(owner.id, "staying", ["e"])) == 1
            going = f"going {owner.id}".encode() * 9
            staying = f"staying {owner.id}".encode() * 9
            digests = [digest_of(one) for one in (going, staying, going + b"w", staying + b"w")]
            assert set(store.read_chunks(digests)) == {digests[1], digests[3]}
        assert store.erase_threads(ids, namespace="staying", agent_prefix=agent_id) == 2
        # A thread that a face made goes when it is empty; a session of somebody else stays.
        assert store.find_session(own.id) is None
        assert store.find_session(foreign.id) is not None
        assert store.total_bytes() == 0
        assert store.erase_threads(ids, namespace="staying", agent_prefix=agent_id) == 0
        assert store.erase_threads([], namespace="", agent_prefix=agent_id) == 0

    def test_a_session_of_another_agent_is_not_erased(self, store: Store) -> None:
        mine, theirs = (store.create_session(session()) for _ in range(2))
        for owner in (mine, theirs):
            store.put(checkpoint(owner.id, "kept", contents=[owner.id.encode() * 9]))
            store.put_writes(session(id=owner.id), "", "e", [write()])

        def everything() -> list[object]:
            writes = [store.list_writes(one.id, "", ["e"]) for one in (mine, theirs)]
            return [store.list_sessions(), store.list_checkpoints(CheckpointQuery()), *writes]

        before = everything()
        for agent_id in (mine.agent_id, new_id(), "no id", ""):
            with pytest.raises(ForeignSession, match=theirs.id) as refused:
                store.delete_session(theirs.id, agent_prefix=agent_id)
            assert theirs.agent_type in str(refused.value)
        with pytest.raises(ForeignSession, match=theirs.id):
            store.erase_threads([mine.id, theirs.id], namespace="", agent_prefix=mine.agent_id)
        assert everything() == before
        assert store.delete_session("unknown", agent_prefix=mine.agent_id) is False
        assert store.delete_session(mine.id, agent_prefix=mine.agent_id.upper()) is True
        assert store.delete_session(theirs.id) is True

    def test_erasing_threads_takes_pending_writes_of_no_checkpoint(self, store: Store) -> None:
        owner = session()
        store.put_writes(owner, "n", "e", [write(contents=[b"written" * 30])])
        assert store.erase_threads([owner.id], namespace="n", agent_prefix=owner.agent_id) == 0
        assert store.find_session(owner.id) is None
        assert store.read_chunks([digest_of(b"written" * 30)]) == {}

    def test_erasing_threads_leaves_no_index_without_what_is_below_it(self, store: Store) -> None:
        mine, theirs, indexed = _with_half_an_index(store)
        assert store.erase_threads([theirs.id], namespace="", agent_prefix=theirs.agent_id) == 1
        with pytest.raises(ChunksMissing):
            store.put(checkpoint(mine.id, refs=indexed.refs, expects=[_index_in(indexed)]))

    def test_gc_keeps_what_pending_writes_refer_to(self, store: Store) -> None:
        owner = session()
        store.put_writes(owner, "", "e", [write(contents=[b"written" * 30])])
        report = store.gc()
        assert (report.chunks, report.writes) == (0, 0)
        digest = digest_of(b"written" * 30)
        assert store.read_chunks([digest]) == {digest: b"written" * 30}
        assert len(store.list_writes(owner.id, "", ["e"])) == 1

    def test_a_put_that_relied_on_swept_chunks_is_told(self, store: Store) -> None:
        owner = store.create_session(session())
        content = b"was here" * 30
        old = checkpoint(owner.id, contents=[content])
        store.put(old)
        store.delete_checkpoints([old.id])
        store.gc()
        assert store.read_chunks([digest_of(content)]) == {}
        again = checkpoint(owner.id, refs=refs_to(content), contents=[content])
        assert store.put(again).created is True

    def test_a_closed_store_says_so(self, store: Store) -> None:
        owner = store.create_session(session())
        store.close()
        store.close()
        with pytest.raises(StoreClosed):
            store.find_session(owner.id)
        with pytest.raises(StoreClosed):
            store.put(checkpoint(owner.id))
        with pytest.raises(StoreClosed):
            list(store.iter_checkpoint_ids())

    def test_a_store_names_itself(self, store: Store) -> None:
        assert store.tenant
        assert store.url


def _with_half_an_index(store: Store) -> tuple[SessionRecord, SessionRecord, NewCheckpoint]:
    """Delete a checkpoint with an index of which another session's holds half of what is below it."""
    mine, theirs = (store.create_session(session()) for _ in range(2))
    leaves = [b"leaf %d " % number * 30 for number in range(4)]
    data, refs = index_of(*leaves)
    chunks = {digest_of(one): one for one in (*leaves, data)}
    indexed = checkpoint(mine.id, refs=refs, chunks=chunks)
    store.put(indexed)
    store.put(checkpoint(theirs.id, contents=leaves[:2]))
    store.delete_checkpoints([indexed.id])
    return mine, theirs, indexed


def _index_in(draft: NewCheckpoint) -> bytes:
    (ref,) = unpack_refs(draft.refs)
    return ref.digest
