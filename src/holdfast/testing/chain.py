"""The contract of the hash chain: every checkpoint is a link, and what goes leaves a tombstone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import CheckpointExists
from holdfast.ids import new_id
from holdfast.model import Chain, CheckpointQuery, Trim
from holdfast.stores.base import Store
from holdfast.stores.chain import breaks
from holdfast.stores.memory import MemoryStore
from holdfast.testing.drafts import Contract, checkpoint, session
from holdfast.testing.transfer import filled, move, payloads, read


def chain_of(store: Store, session_id: str) -> Chain:
    """Return the chain of a session, which is whole and whose rows can all be read."""
    found = store.read_chain(session_id)
    assert found is not None
    assert list(breaks(found)) == []
    visible = [one.id for one in store.list_checkpoints(CheckpointQuery(session_id))]
    assert store.read_payloads(visible).keys() == set(visible)
    return found


def runs_of(chain: Chain) -> list[tuple[int, int]]:
    """Return the numbers that tombstones stand for."""
    return [(one.first_number, one.last_number) for one in chain.tombstones]


def put_links(store: Store, session_id: str, count: int, **changes: Any) -> list[str]:
    """Put checkpoints and return their ids."""
    drafts = [checkpoint(session_id, **changes) for _ in range(count)]
    return [store.put(draft).record.id for draft in drafts]


class ChainContract(Contract):
    """Links and tombstones."""

    def test_every_checkpoint_is_a_link_after_the_one_before(self, store: Store) -> None:
        owner = store.create_session(session())
        assert chain_of(store, owner.id) == Chain(owner.id, 0, b"", (), ())
        first, second = put_links(store, owner.id, 2)
        [third] = put_links(store, owner.id, 1, namespace="sub")
        chain = chain_of(store, owner.id)
        assert [one.checkpoint_id for one in chain.links] == [first, second, third]
        assert [one.number for one in chain.links] == [1, 2, 3]
        assert [one.previous for one in chain.links] == [
            b"",
            chain.links[0].hash,
            chain.links[1].hash,
        ]
        assert (chain.length, chain.head) == (3, chain.links[-1].hash)
        assert {len(one.hash) for one in chain.links} == {32}
        assert store.read_chain("nobody") is None

    def test_whatever_a_checkpoint_says_can_be_proved(self, store: Store) -> None:
        for text in ("plain", "ü\n\u2028'\"\\", ""):
            owner = store.create_session(session())
            draft = checkpoint(
                owner.id,
                external_id=f"e{text}",
                parent_id=new_id(),
                label=text or None,
                description=text,
                run_id=text,
                git_branch=text,
                git_commit="c" * 40,
                git_uncommitted=True,
                workspace_commit="a" * 40,
                resumable=False,
                pinned=True,
                contents=[text.encode() * 9 or b"-"],
                metadata={"b": [1, -0.0, 1e16, 1.10, text, None], "a": {"z": True, "y": text}},
                created_at=datetime(1999, 12, 31, 23, 59, 59, 5, tzinfo=UTC),
                expires_at=datetime(2999, 1, 1, tzinfo=UTC),
            )
            store.put(draft)
            store.put(replace(draft, id=new_id(), name="again", external_id=None))
            assert len(chain_of(store, owner.id).links) == 2

    def test_what_is_not_stored_is_no_link(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id, "once")
        store.put(draft)
        assert store.put(draft).created is False
        with pytest.raises(CheckpointExists):
            store.put(checkpoint(owner.id, "once"))
        assert chain_of(store, owner.id).length == 1

    def test_what_may_change_later_is_not_in_the_chain(self, store: Store) -> None:
        owner = store.create_session(session())
        [first] = put_links(store, owner.id, 1)
        before = chain_of(store, owner.id)
        store.mark_restored(first)
        store.mark_restoring(first, seconds=60)
        assert chain_of(store, owner.id) == before
        store.put(checkpoint(owner.id, consumes=first))
        assert chain_of(store, owner.id).links[0] == before.links[0]

    def test_a_capped_session_has_one_tombstone(self, store: Store) -> None:
        owner = store.create_session(session())
        put_links(store, owner.id, 9, trim=Trim(keep=3))
        chain = chain_of(store, owner.id)
        assert (chain.length, len(chain.links)) == (9, 3)
        [tombstone] = chain.tombstones
        assert runs_of(chain) == [(1, 6)]
        assert tombstone.hash == chain.links[0].previous

    def test_removed_links_become_runs(self, store: Store) -> None:
        owner = store.create_session(session())
        ids = put_links(store, owner.id, 8)
        for number, runs in (
            (3, [(3, 3)]),
            (5, [(3, 3), (5, 5)]),
            (4, [(3, 5)]),
            (8, [(3, 5), (8, 8)]),
            (2, [(2, 5), (8, 8)]),
        ):
            assert store.delete_checkpoints([ids[number - 1]]) == 1
            assert runs_of(chain_of(store, owner.id)) == runs
        put_links(store, owner.id, 1)
        assert store.delete_checkpoints([ids[0], ids[5], ids[6]]) == 3
        chain = chain_of(store, owner.id)
        assert runs_of(chain) == [(1, 8)]
        assert [one.number for one in chain.links] == [9]

    def test_a_replaced_checkpoint_keeps_its_seq_and_is_a_new_link(self, store: Store) -> None:
        owner = store.create_session(session())
        old = store.put(checkpoint(owner.id, external_id="e")).record
        [other] = put_links(store, owner.id, 1)
        new = store.put(checkpoint(owner.id, external_id="e", replace=True)).record
        assert new.seq == old.seq
        chain = chain_of(store, owner.id)
        assert runs_of(chain) == [(1, 1)]
        assert chain.tombstones[0].seq == old.seq
        assert [one.checkpoint_id for one in chain.links] == [other, new.id]

    def test_what_expired_leaves_a_tombstone_once_it_is_removed(self, store: Store) -> None:
        owner = store.create_session(session())
        past = datetime.now(UTC) - timedelta(seconds=5)
        put_links(store, owner.id, 2, expires_at=past)
        put_links(store, owner.id, 1)
        assert runs_of(chain_of(store, owner.id)) == []
        assert store.purge_expired() == 2
        assert runs_of(chain_of(store, owner.id)) == [(1, 2)]

    def test_a_copy_has_a_chain_of_its_own(self, store: Store) -> None:
        owner = store.create_session(session())
        first, _, third = put_links(store, owner.id, 3, metadata={"n": [1.10, 1e16]})
        before = chain_of(store, owner.id)
        whole = store.copy_session(owner.id, session())
        part = store.copy_session(owner.id, session(), checkpoint_ids=[third, first])
        assert [one.number for one in chain_of(store, whole.id).links] == [1, 2, 3]
        chain = chain_of(store, part.id)
        assert (chain.length, runs_of(chain)) == (2, [])
        assert chain_of(store, owner.id) == before
        put_links(store, part.id, 1)
        assert chain_of(store, part.id).length == 3

    def test_a_session_from_another_store_has_a_chain_of_its_own(self, store: Store) -> None:
        source = MemoryStore()
        session_id = filled(source)
        copy = read(source, session_id)
        move(source, store, copy)
        assert chain_of(store, session_id).length == len(copy.checkpoints)
        back = MemoryStore()
        back.stage_chunks(source.read_chunks([]))
        move(store, back, read(store, session_id))
        assert chain_of(back, session_id).length == len(copy.checkpoints)
        assert payloads(back)(copy.checkpoints[0].id) == payloads(store)(copy.checkpoints[0].id)

    def test_erasing_drops_the_chain(self, store: Store) -> None:
        draft = session()
        owner = store.create_session(draft)
        put_links(store, owner.id, 3, trim=Trim(keep=1))
        store.delete_session(owner.id)
        assert store.read_chain(owner.id) is None
        store.create_session(draft)
        assert chain_of(store, owner.id) == Chain(owner.id, 0, b"", (), ())

    def test_erasing_a_namespace_leaves_the_chain_of_the_others_whole(self, store: Store) -> None:
        owner = store.create_session(session())
        for namespace in ("", "sub", "sub", ""):
            put_links(store, owner.id, 1, namespace=namespace)
        erased = store.erase_threads([owner.id], namespace="sub", agent_prefix=owner.agent_id)
        assert erased == 2
        assert runs_of(chain_of(store, owner.id)) == [(2, 3)]
        store.erase_threads([owner.id], namespace="", agent_prefix=owner.agent_id)
        assert store.read_chain(owner.id) is None
