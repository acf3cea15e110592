"""The contract of lines of checkpoints: who may go on from the newest, and what goes with one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from threading import Barrier

import pytest

from holdfast.errors import (
    AlreadyResumed,
    CheckpointExists,
    CheckpointNotFound,
    ChunksMissing,
    IllegalTransition,
    InputError,
    PackMissing,
    StaleWriter,
)
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, Payload, Trim
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session, stored, write


class LineContract(Contract):
    """Checkpoints that follow each other in one session and namespace."""

    def test_whoever_follows_the_newest_may_put(self, store: Store) -> None:
        owner = session()
        store.put(checkpoint(owner.id, "a", session=owner, external_id="a", follows=""))
        store.put(checkpoint(owner.id, "b", external_id="b", follows="a"))
        store.put(checkpoint(owner.id, "sub", external_id="s", namespace="sub", follows=""))
        assert stored(store, owner.id, namespace="") == ["b", "a"]

    @pytest.mark.parametrize("follows", ["", "a", "unknown"])
    def test_a_stale_writer_is_refused_and_nothing_is_left_behind(
        self, store: Store, follows: str
    ) -> None:
        owner = session()
        store.put(checkpoint(owner.id, "a", session=owner, external_id="a"))
        store.put(checkpoint(owner.id, "b", external_id="b"))
        late = checkpoint(owner.id, "c", external_id="c", follows=follows, contents=[b"late" * 99])
        with pytest.raises(StaleWriter, match="Nothing was stored"):
            store.put(late)
        assert stored(store, owner.id) == ["b", "a"]
        assert store.read_chunks(list(late.chunks)) == {}

    def test_a_checkpoint_without_an_external_id_is_followed_by_its_id(self, store: Store) -> None:
        owner = session()
        first = store.put(checkpoint(owner.id, "a", session=owner)).record
        store.put(checkpoint(owner.id, "b", follows=first.id))
        assert stored(store, owner.id) == ["b", "a"]

    def test_a_retry_and_a_replacement_are_not_stale(self, store: Store) -> None:
        owner = session()
        store.put(checkpoint(owner.id, "a", session=owner, external_id="a"))
        draft = checkpoint(owner.id, "b", external_id="b", follows="a")
        assert store.put(draft).created
        assert not store.put(draft).created
        again = checkpoint(owner.id, "b", external_id="b", follows="a", replace=True)
        assert store.put(again).created
        assert stored(store, owner.id) == ["b", "a"]

    def test_of_several_reasons_to_refuse_the_same_one_is_named(self, store: Store) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record
        store.put(checkpoint(owner.id, "taken", external_id="newest", consumes=origin.id))
        draft = checkpoint(owner.id, "taken", contents=[b"kept" * 99])
        for reason, error in (
            ({}, CheckpointExists),
            ({"expects": [digest_of(b"gone")]}, ChunksMissing),
            ({"workspace_commit": "0" * 40, "pack_required": True}, PackMissing),
            ({"follows": "stale"}, StaleWriter),
            ({"consumes": origin.id}, AlreadyResumed),
        ):
            draft = replace(draft, **reason)
            with pytest.raises(error):
                store.put(draft)
        store.update_session(owner.id, status="completed")
        with pytest.raises(IllegalTransition):
            store.put(draft)
        assert stored(store, owner.id) == ["taken", "origin"]
        assert store.read_chunks(list(draft.chunks)) == {}

    def test_the_newest_becomes_the_parent_of_who_asks_for_it(self, store: Store) -> None:
        owner = session()
        first = checkpoint(owner.id, "a", session=owner, parent_is_newest=True)
        assert store.put(first).record.parent_id is None
        other = checkpoint(owner.id, "sub", namespace="sub", parent_is_newest=True)
        assert store.put(other).record.parent_id is None
        store.put(checkpoint(owner.id, "old", expires_at=datetime(2020, 1, 1, tzinfo=UTC)))
        second = checkpoint(owner.id, "b", external_id="b", parent_is_newest=True)
        assert store.put(second).record.parent_id == first.id
        assert store.put(second).record.parent_id == first.id
        third = checkpoint(owner.id, "b", replace=True, parent_is_newest=True)
        assert store.put(third).record.parent_id == first.id
        [record] = store.list_checkpoints(CheckpointQuery(id=third.id))
        assert record.parent_id == first.id

    @pytest.mark.parametrize("seed", range(4))
    def test_the_parent_is_the_newest_whatever_went_before(self, store: Store, seed: int) -> None:
        chance, owner = Random(seed), store.create_session(session())
        ages = {"past": timedelta(seconds=-1), "future": timedelta(hours=1)}
        for number in range(40):
            namespace = chance.choice(("", "", "sub"))
            query = CheckpointQuery(session_id=owner.id, namespace=namespace)
            line = store.list_checkpoints(query)
            what = chance.choice(("delete", "purge", "erase", *["put"] * 12))
            if what == "delete" and line:
                store.delete_checkpoints([chance.choice((line[0], line[-1])).id])
            elif what == "purge":
                store.purge_expired()
            elif what == "erase" and chance.random() < 0.3:
                store.erase_threads([owner.id], namespace=namespace, agent_prefix=owner.agent_id)
            line = store.list_checkpoints(query)
            age = chance.choice((None, None, None, "past", "future"))
            again = chance.choice(line) if line and chance.random() < 0.3 else None
            draft = checkpoint(
                owner.id,
                again.name if again else f"n{number}",
                external_id=chance.choice((None, again.external_id)) if again else f"x{number}",
                namespace=namespace,
                parent_is_newest=True,
                replace=again is not None,
                retention_class="step",
                expires_at=None if age is None else datetime.now(UTC) + ages[age],
                trim=chance.choice((Trim(), Trim(keep=3))),
            )
            left = [one for one in line if again is None or one.id != again.id]
            assert store.put(draft).record.parent_id == (left[0].id if left else None), number

    def test_many_whose_parent_is_the_newest_are_one_line(self, store: Store) -> None:
        owner = session()
        store.put(checkpoint(owner.id, "a", session=owner))
        start = Barrier(6)

        def go_on(number: int) -> None:
            start.wait()
            store.put(checkpoint(owner.id, f"n{number}", parent_is_newest=True))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(go_on, range(6)))
        line = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert [one.parent_id for one in line] == [*(one.id for one in line[1:]), None]

    def test_a_parent_is_named_or_the_newest(self, store: Store) -> None:
        owner = session()
        draft = checkpoint(owner.id, "a", session=owner, parent_id=new_id(), parent_is_newest=True)
        with pytest.raises(InputError, match="names no other parent"):
            store.put(draft)
        assert stored(store, owner.id) == []

    def test_of_many_that_follow_one_checkpoint_exactly_one_wins(self, store: Store) -> None:
        owner = session()
        store.put(checkpoint(owner.id, "a", session=owner, external_id="a"))
        start = Barrier(6)

        def follow(number: int) -> bool:
            start.wait()
            try:
                store.put(checkpoint(owner.id, f"n{number}", external_id=f"n{number}", follows="a"))
            except StaleWriter:
                return False
            return True

        with ThreadPoolExecutor(6) as pool:
            assert sorted(pool.map(follow, range(6))) == [False] * 5 + [True]
        assert len(stored(store, owner.id)) == 2

    def test_payloads_are_read_together(self, store: Store, neighbour: Store) -> None:
        owner = store.create_session(session())
        drafts = [checkpoint(owner.id, contents=[b"%d" % n * 50]) for n in range(3)]
        for draft in drafts:
            store.put(draft)
        ids = [draft.id for draft in drafts]
        wanted = {draft.id: Payload(draft.manifest, draft.refs) for draft in drafts[:2]}
        assert store.read_payloads([*ids[:2], new_id()]) == wanted
        assert store.read_payloads([]) == {}
        assert neighbour.read_payloads(ids) == {}
        with pytest.raises(InputError):
            store.read_payloads([ids[0], 7])  # type: ignore[list-item]

    def test_writes_go_with_their_checkpoint_and_no_others(self, store: Store) -> None:
        owner = session()
        for name in ("a", "b"):
            store.put(checkpoint(owner.id, name, session=owner, external_id=name))
        for place in (("", "a"), ("", "b"), ("sub", "a"), ("", "to come")):
            store.put_writes(owner, *place, [write()])
        (gone,) = store.list_checkpoints(CheckpointQuery(session_id=owner.id, external_id="a"))
        store.delete_checkpoints([gone.id])
        assert store.list_writes(owner.id, "", ["a"]) == []
        assert len(store.list_writes(owner.id, "", ["b", "to come"])) == 2
        assert len(store.list_writes(owner.id, "sub", ["a"])) == 1

    def test_a_spared_checkpoint_keeps_its_writes(self, store: Store) -> None:
        owner = session()
        kept = store.put(checkpoint(owner.id, session=owner, external_id="a")).record
        store.put_writes(owner, "", "a", [write()])
        store.mark_restoring(kept.id, seconds=600)
        assert store.delete_checkpoints([kept.id], beside=[]) == 0
        assert len(store.list_writes(owner.id, "", ["a"])) == 1

    # Going on from a checkpoint

    def test_a_checkpoint_is_consumed_once_and_a_retry_is_no_second_time(
        self, store: Store
    ) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record
        after = checkpoint(owner.id, "after", consumes=origin.id.upper())
        assert store.put(after).created is True
        assert store.put(after).created is False
        with pytest.raises(AlreadyResumed, match=origin.id):
            store.put(checkpoint(owner.id, "late", consumes=origin.id))
        store.put(checkpoint(owner.id, "next", consumes=after.id))
        assert stored(store, owner.id) == ["next", "after", "origin"]

    def test_a_copy_of_a_consumed_checkpoint_is_consumed(self, store: Store) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record
        store.put(checkpoint(owner.id, "after", consumes=origin.id))
        copy = store.copy_session(owner.id, session())
        newest, oldest = store.list_checkpoints(CheckpointQuery(session_id=copy.id))
        with pytest.raises(AlreadyResumed):
            store.put(checkpoint(copy.id, consumes=oldest.id))
        store.put(checkpoint(copy.id, consumes=newest.id))

    def test_what_another_line_or_tenant_has_cannot_be_consumed(
        self, store: Store, neighbour: Store
    ) -> None:
        owner = store.create_session(session())
        other = neighbour.create_session(session())
        for elsewhere in (
            store.put(checkpoint(owner.id, namespace="sub")).record.id,
            neighbour.put(checkpoint(other.id)).record.id,
            new_id(),
        ):
            with pytest.raises(CheckpointNotFound, match=elsewhere):
                store.put(checkpoint(owner.id, "late", contents=[b"chunk"], consumes=elsewhere))
        assert stored(store, owner.id, namespace="") == []
        assert store.total_bytes() == 0

    def test_a_put_that_fails_consumes_nothing(self, store: Store) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record
        missing = checkpoint(owner.id, "after", expects=[digest_of(b"gone")], consumes=origin.id)
        with pytest.raises(ChunksMissing):
            store.put(missing)
        with pytest.raises(CheckpointExists):
            store.put(checkpoint(owner.id, "origin", consumes=origin.id))
        assert store.put(replace(missing, expects=())).created is True

    def test_of_eight_threads_exactly_one_goes_on(self, store: Store) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record

        def go_on(number: int) -> bool:
            try:
                return store.put(checkpoint(owner.id, f"n{number}", consumes=origin.id)).created
            except AlreadyResumed:
                return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(go_on, range(24))) == 1
        assert len(stored(store, owner.id)) == 2
