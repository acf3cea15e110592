"""The contract of workspaces: the commit that a checkpoint names, and the packs that carry it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha1
from typing import ClassVar

import pytest

from holdfast.errors import InvalidIdentifier, PackMissing
from holdfast.model import CheckpointQuery, PackReport, WorkspacePack
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session


def commit(name: str) -> str:
    """Return a commit id made of a name."""
    return sha1(name.encode(), usedforsecurity=False).hexdigest()


A, B, C, D = map(commit, "abcd")


def put_chain(store: Store) -> None:
    """Store packs: D needs B and C, both need A."""
    for one, needs in ((A, []), (B, [A]), (C, [A]), (D, [B, C])):
        assert store.put_pack(one, needs=needs, data=b"pack " + one[:4].encode()) is True


def order(store: Store, name: str, **options: list[str]) -> list[str]:
    """Return the commits of the packs that a commit is made of, as they are read."""
    return [pack.commit for pack in store.read_packs(name, **options)]


class PackContract(Contract):
    """Workspace commits and packs."""

    pack_overhead: ClassVar[int] = 0
    """How many bytes a store adds to each pack."""

    @pytest.mark.parametrize("size", [40, 64])
    def test_a_checkpoint_names_its_snapshot(self, store: Store, size: int) -> None:
        owner = store.create_session(session())
        named = "a1" * (size // 2)
        saved = store.put(checkpoint(owner.id, workspace_commit=named)).record
        plain = store.put(checkpoint(owner.id)).record
        assert (saved.workspace_commit, plain.workspace_commit) == (named, None)
        assert store.list_checkpoints(CheckpointQuery(owner.id)) == [plain, saved]
        copy = store.copy_session(owner.id, session(agent_id=owner.agent_id))
        copied = store.list_checkpoints(CheckpointQuery(copy.id))
        assert [one.workspace_commit for one in copied] == [None, named]

    @pytest.mark.parametrize(
        "wrong", ["", "abc", "A1" * 20, "g" * 40, "a" * 41, 7], ids=lambda value: repr(value)[:8]
    )
    def test_only_a_whole_commit_id_is_taken(self, store: Store, wrong: str) -> None:
        owner = store.create_session(session())
        with pytest.raises(InvalidIdentifier):
            store.put(checkpoint(owner.id, workspace_commit=wrong))
        with pytest.raises(InvalidIdentifier):
            store.put_pack(wrong, needs=[], data=b"")
        with pytest.raises(InvalidIdentifier):
            store.put_pack(A, needs=[wrong], data=b"")
        with pytest.raises(InvalidIdentifier):
            store.read_packs(wrong)
        assert store.list_checkpoints(CheckpointQuery(owner.id)) == []
        assert store.pack_usage() == PackReport(0, 0)

    def test_all_named_commits_are_known_each_once(self, store: Store, neighbour: Store) -> None:
        owner = store.create_session(session())
        for one in (A, A, B):
            store.put(checkpoint(owner.id, workspace_commit=one))
        past = datetime.now(UTC) - timedelta(seconds=5)
        draft = checkpoint(owner.id, workspace_commit=C, expires_at=past)
        expired = store.put(draft).record
        other = neighbour.create_session(session())
        neighbour.put(checkpoint(other.id, workspace_commit=D))
        assert store.workspace_commits() == {A, B, C}
        store.delete_checkpoints([expired.id])
        assert store.workspace_commits() == {A, B}
        assert neighbour.workspace_commits() == {D}

    def test_packs_come_back_bases_first(self, store: Store) -> None:
        put_chain(store)
        found = list(store.read_packs(D))
        assert [pack.commit for pack in found] == [A, B, C, D]
        assert found[3] == WorkspacePack(D, (B, C), b"pack " + D[:4].encode())
        assert order(store, B) == [A, B]
        assert order(store, D, have=[A]) == [B, C, D]
        assert order(store, D, have=[B]) == [A, C, D]
        assert order(store, D, have=[B, C]) == [D]
        assert order(store, D, have=[D]) == []
        assert store.find_packs([A, D, commit("unknown")]) == {A, D}
        assert store.find_packs([]) == set()
        assert store.pack_usage() == PackReport(4, 36 + 4 * self.pack_overhead)
        assert store.pack_needs() == {A: (), B: (A,), C: (A,), D: (B, C)}

    def test_a_long_chain_comes_back_in_order(self, store: Store) -> None:
        chain = [commit(f"link {number}") for number in range(1500)]
        for number, one in enumerate(chain):
            store.put_pack(one, needs=chain[max(0, number - 1) : number], data=b"%d" % number)
        assert order(store, chain[-1]) == chain

    def test_a_pack_is_put_once(self, store: Store) -> None:
        assert store.put_pack(A, needs=[], data=b"first") is True
        assert store.put_pack(A, needs=[], data=b"second") is False
        assert [pack.data for pack in store.read_packs(A)] == [b"first"]
        assert store.put_pack(A, needs=[], data=b"third", replace=True) is True
        assert [pack.data for pack in store.read_packs(A)] == [b"third"]
        assert store.pack_usage() == PackReport(1, 5 + self.pack_overhead)

    def test_a_pack_without_its_base_is_refused(self, store: Store) -> None:
        with pytest.raises(PackMissing, match=A):
            store.put_pack(B, needs=[A], data=b"b")
        assert store.find_packs([B]) == set()
        with pytest.raises(PackMissing, match=B):
            store.read_packs(B)

    def test_packs_cannot_need_each_other(self, store: Store) -> None:
        put_chain(store)
        with pytest.raises(InvalidIdentifier):
            store.put_pack(A, needs=[D], data=b"", replace=True)
        with pytest.raises(InvalidIdentifier):
            store.put_pack(A, needs=[A], data=b"", replace=True)
        assert order(store, D) == [A, B, C, D]

    def test_only_bytes_are_packs(self, store: Store) -> None:
        with pytest.raises(InvalidIdentifier):
            store.put_pack(A, needs=[], data="text")  # type: ignore[arg-type]

    def test_a_required_pack_must_be_there(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id, workspace_commit=A, pack_required=True)
        with pytest.raises(PackMissing, match=A):
            store.put(draft)
        assert store.list_checkpoints(CheckpointQuery(owner.id)) == []
        store.put_pack(A, needs=[], data=b"a")
        assert store.put(draft).created is True
        with pytest.raises(InvalidIdentifier):
            store.put(checkpoint(owner.id, pack_required=True))

    def test_deleting_spares_what_is_needed(self, store: Store) -> None:
        owner = store.create_session(session())
        put_chain(store)
        assert store.delete_packs([A]) == PackReport(0, 0)
        saved = store.put(checkpoint(owner.id, workspace_commit=B, pack_required=True)).record
        assert store.delete_packs([A, B, C, D]) == PackReport(2, 18 + 2 * self.pack_overhead)
        assert order(store, B) == [A, B]
        store.delete_checkpoints([saved.id])
        assert store.delete_packs([A, B]) == PackReport(2, 18 + 2 * self.pack_overhead)
        assert store.pack_usage() == PackReport(0, 0)
        assert store.delete_packs([A]) == PackReport(0, 0)

    def test_a_sweep_spares_what_was_just_put(self, store: Store) -> None:
        put_chain(store)
        assert store.sweep_packs(dry_run=True) == PackReport(0, 0)
        assert store.sweep_packs() == PackReport(0, 0)
        assert order(store, D) == [A, B, C, D]

    def test_erasing_a_session_takes_its_packs_along(self, store: Store) -> None:
        mine, theirs = (store.create_session(session()) for _ in range(2))
        put_chain(store)
        store.put(checkpoint(mine.id, workspace_commit=D))
        store.put(checkpoint(theirs.id, workspace_commit=C))
        store.put_pack(commit("coming"), needs=[], data=b"of a checkpoint that is on its way")
        assert store.delete_session(mine.id)
        assert store.find_packs([A, B, C, D, commit("coming")]) == {A, C, commit("coming")}
        assert order(store, C) == [A, C]

    def test_erasing_a_thread_takes_its_packs_along(self, store: Store) -> None:
        owner = store.create_session(session())
        put_chain(store)
        store.put(checkpoint(owner.id, namespace="going", workspace_commit=D))
        store.put(checkpoint(owner.id, namespace="staying", workspace_commit=B))
        store.erase_threads([owner.id], namespace="going", agent_prefix=owner.agent_id)
        assert store.find_packs([A, B, C, D]) == {A, B}

    def test_tenants_have_packs_of_their_own(self, store: Store, neighbour: Store) -> None:
        store.put_pack(A, needs=[], data=b"ours")
        assert neighbour.find_packs([A]) == set()
        assert neighbour.pack_needs() == {}
        with pytest.raises(PackMissing):
            neighbour.put_pack(B, needs=[A], data=b"")
        assert neighbour.put_pack(A, needs=[], data=b"theirs") is True
        assert [pack.data for pack in store.read_packs(A)] == [b"ours"]
        assert neighbour.delete_packs([A]) == PackReport(1, 6 + self.pack_overhead)
        assert store.find_packs([A]) == {A}
