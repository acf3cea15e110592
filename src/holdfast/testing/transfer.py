"""The contract of moving: a session read from one store and added to another is the same session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import (
    AlreadyResumed,
    CheckpointExists,
    ChunksMissing,
    InvalidIdentifier,
    PackMissing,
    SessionExists,
)
from holdfast.ids import new_id
from holdfast.model import (
    CheckpointQuery,
    EffectOutcome,
    NewEffect,
    Payload,
    SessionCopy,
    SessionQuery,
)
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.drafts import Contract, agent, checkpoint, index_of, refs_to, session, write
from holdfast.testing.packs import A

LEAVES = (b"first leaf", b"second leaf")
INDEX, TO_INDEX = index_of(*LEAVES)
INDEXES = {digest_of(INDEX): INDEX}
DIGESTS = [digest_of(one) for one in (*LEAVES, b"written", b"done")]


def filled(store: Store) -> str:
    """Store a session with some of everything, and return its id."""
    top = store.create_agent(agent(name="top", metadata={"team": "blue"}))
    below = store.create_agent(agent(name="below", parent_id=top.id, status="completed"))
    draft = session(
        agent_id=below.id,
        task_description="move",
        continues_id="before",
        metadata={"b": 1, "a": {}},
    )
    owner = store.create_session(draft)
    old = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    content = {digest_of(one): one for one in LEAVES} | INDEXES
    first = store.put(
        checkpoint(owner.id, "first", label="checkpoint-20240229-123000", created_at=old)
    ).record
    whole: dict[str, Any] = {
        "refs": TO_INDEX,
        "chunks": content,
        "parent_id": first.id,
        "external_id": "ext-1",
        "consumes": first.id,
        "retention_class": "failure",
        "checkpoint_type": "failure",
        "pinned": True,
        "resumable": False,
        "workspace_commit": A,
        "metadata": {"score": 0.5},
    }
    second = store.put(checkpoint(owner.id, "second", **whole)).record
    store.put(checkpoint(owner.id, "in a namespace", namespace="sub"))
    store.put(checkpoint(owner.id, "gone", expires_at=old))
    store.mark_restored(second.id)
    store.put_writes(draft, "", "ext-1", [write(contents=[b"written"])])
    store.put_writes(draft, "sub", "not there yet", [write("later", 3)])
    done = EffectOutcome("done", "{}", refs_to(b"done"), {digest_of(b"done"): b"done"})
    store.begin_effect(NewEffect(owner.id, "pay", 0, "pay", b"f", new_id(), done))
    failed = EffectOutcome("failed", error={"type": "ValueError"})
    store.begin_effect(NewEffect(owner.id, "pay", 1, "pay", b"f", new_id(), failed))
    store.append_log(owner.id, "info", "decision: move", {"decision": {"text": "move"}})
    store.append_log(owner.id, "error", "oh")
    store.update_session(owner.id, status="paused", pause_reason="lunch")
    return owner.id


def read(store: Store, session_id: str) -> SessionCopy:
    """Return the copy of a session that is there."""
    found = store.read_session(session_id)
    assert found is not None
    return found


def payloads(store: Store) -> Callable[[str], Payload]:
    """Return what reads the payload of a checkpoint."""

    def payload(checkpoint_id: str) -> Payload:
        found = store.read_payload(checkpoint_id)
        assert found is not None
        return found

    return payload


def plain(copy: SessionCopy) -> SessionCopy:
    """Return a copy without what is another store's own: positions, and who holds the session."""
    return replace(
        copy,
        session=replace(
            copy.session, lease_owner=None, lease_token=0, lease_since=None, lease_expires_at=None
        ),
        checkpoints=tuple(replace(one, seq=0) for one in copy.checkpoints),
        logs=tuple(replace(one, id=0) for one in copy.logs),
    )


def move(source: Store, target: Store, copy: SessionCopy, **options: Any) -> None:
    """Add a session of one store to another, content first."""
    target.stage_chunks(source.read_chunks(DIGESTS))
    target.add_session(copy, payloads(source), indexes=INDEXES, leaves=DIGESTS, **options)


class TransferContract(Contract):
    """Sessions that leave and arrive whole."""

    def test_what_is_read_arrives_as_it_was(self, store: Store) -> None:
        source = MemoryStore()
        session_id = filled(source)
        for origin, target in ((source, store), (store, MemoryStore())):
            copy = read(origin, session_id)
            move(origin, target, copy)
            moved = read(target, session_id)
            assert plain(moved) == plain(copy)
            assert moved.session.lease_owner is None
            listed = target.list_checkpoints(CheckpointQuery(session_id, namespace=""))
            assert [one.name for one in listed] == ["second", "first"]
            for one in copy.checkpoints:
                assert target.read_payload(one.id) == origin.read_payload(one.id)
            assert target.gc().chunks == 0
            assert target.read_chunks(DIGESTS) == origin.read_chunks(DIGESTS)

    def test_all_kinds_of_rows_are_read_and_the_expired_is_not(self, store: Store) -> None:
        copy = read(store, filled(store))
        assert [one.name for one in copy.agents] == ["top", "below"]
        assert [one.name for one in copy.checkpoints] == ["first", "second", "in a namespace"]
        assert [one.seq for one in copy.checkpoints] == sorted(one.seq for one in copy.checkpoints)
        assert set(copy.consumed) == {copy.checkpoints[0].id}
        assert [(one.namespace, one.record.external_id) for one in copy.writes] == [
            ("", "ext-1"),
            ("sub", "not there yet"),
        ]
        assert [one.status for one in copy.effects] == ["done", "failed"]
        assert [one.message for one in copy.logs] == ["decision: move", "oh"]
        assert store.read_session("nobody") is None

    def test_a_session_is_read_with_some_of_its_checkpoints(self, store: Store) -> None:
        whole = read(store, filled(store))
        first, *others = whole.checkpoints
        chosen = store.read_session(whole.session.id, checkpoint_ids={first.id, new_id()})
        assert chosen == replace(whole, checkpoints=(first,))
        last = store.read_session(whole.session.id, checkpoint_ids=[others[-1].id])
        assert last == replace(whole, checkpoints=(others[-1],), consumed={})
        none = store.read_session(whole.session.id, checkpoint_ids=())
        assert none == replace(whole, checkpoints=(), consumed={})

    def test_what_was_consumed_stays_consumed(self, store: Store) -> None:
        source = MemoryStore()
        copy = read(source, filled(source))
        move(source, store, copy)
        store.update_session(copy.session.id, status="active")
        with pytest.raises(AlreadyResumed):
            store.put(checkpoint(copy.session.id, consumes=copy.checkpoints[0].id))

    def test_a_session_that_is_there_is_not_touched(self, store: Store) -> None:
        source = MemoryStore()
        copy = read(source, filled(source))
        move(source, store, copy)
        before = read(store, copy.session.id)
        with pytest.raises(SessionExists):
            move(source, store, replace(copy, logs=()))
        assert read(store, copy.session.id) == before

    def test_an_id_of_another_session_is_refused(self, store: Store) -> None:
        source = MemoryStore()
        copy = read(source, filled(source))
        move(source, store, copy)
        renamed = replace(
            copy,
            session=replace(copy.session, id="another"),
            checkpoints=tuple(replace(one, session_id="another") for one in copy.checkpoints),
        )
        with pytest.raises(CheckpointExists):
            move(source, store, renamed)
        assert store.find_session("another") is None

    def test_an_agent_that_is_there_stays_as_it_is(self, store: Store) -> None:
        source = MemoryStore()
        copy = read(source, filled(source))
        top = copy.agents[0]
        kept = store.create_agent(agent(id=top.id, name="mine"))
        move(source, store, copy)
        assert store.find_agent(top.id) == kept

    def test_nothing_is_added_while_content_or_a_pack_is_missing(self, store: Store) -> None:
        source = MemoryStore()
        copy = read(source, filled(source))
        with pytest.raises(ChunksMissing):
            store.add_session(copy, payloads(source), indexes=INDEXES, leaves=DIGESTS)
        with pytest.raises(PackMissing):
            move(source, store, copy, pack_required=True)
        assert store.list_sessions() == []
        assert store.list_agents() == []
        assert store.find_chunks(INDEXES.keys()) == set()
        store.put_pack(A, needs=[], data=b"pack")
        move(source, store, copy, pack_required=True)
        assert store.find_session(copy.session.id) is not None

    def test_content_that_was_sent_ahead_is_found_and_swept(self, store: Store) -> None:
        store.stage_chunks({DIGESTS[0]: LEAVES[0]})
        store.stage_chunks({DIGESTS[0]: LEAVES[0]})
        assert store.find_chunks(DIGESTS) == {DIGESTS[0]}
        assert store.find_chunks([]) == set()
        assert store.gc().chunks == 1
        assert store.find_chunks(DIGESTS) == set()

    def test_a_failure_in_the_middle_leaves_nothing(self, store: Store) -> None:
        source = MemoryStore()
        copy = read(source, filled(source))
        asked: list[str] = []

        def broken(checkpoint_id: str) -> Payload:
            asked.append(checkpoint_id)
            if len(asked) > 1:
                raise OSError("the file was cut")
            return payloads(source)(checkpoint_id)

        store.stage_chunks(source.read_chunks(DIGESTS))
        with pytest.raises(OSError, match="was cut"):
            store.add_session(copy, broken, indexes=INDEXES, leaves=DIGESTS)
        assert store.list_sessions(SessionQuery()) == []
        assert store.list_agents() == []
        assert asked == [one.id for one in copy.checkpoints[:2]]

    def test_tenants_do_not_share(self, store: Store, neighbour: Store) -> None:
        session_id = filled(store)
        assert neighbour.read_session(session_id) is None
        assert neighbour.find_chunks(DIGESTS) == set()

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda copy: {"checkpoints": (*copy.checkpoints, copy.checkpoints[0])},
            lambda copy: {"checkpoints": (replace(copy.checkpoints[0], session_id="other"),)},
            lambda copy: {"checkpoints": (replace(copy.checkpoints[0], retention_class="?"),)},
            lambda copy: {"checkpoints": (replace(copy.checkpoints[0], id="no-uuid"),)},
            lambda copy: {"session": replace(copy.session, status="lost")},
            lambda copy: {"session": replace(copy.session, id="")},
            lambda copy: {"agents": ()},
            lambda copy: {"agents": copy.agents[1:]},
            lambda copy: {"effects": copy.effects * 2},
            lambda copy: {"writes": copy.writes * 2},
            lambda copy: {"logs": (replace(copy.logs[0], level="loud"),)},
        ],
        ids=["twice", "foreign", "class", "id", "status", "unnamed", "orphan", "parentless",
             "effects", "writes", "log"],
    )  # fmt: skip
    def test_rows_that_no_store_could_have_are_refused(
        self, store: Store, spoil: Callable[[SessionCopy], dict[str, Any]]
    ) -> None:
        source = MemoryStore()
        copy = read(source, filled(source))
        with pytest.raises(InvalidIdentifier):
            move(source, store, replace(copy, **spoil(copy)))
        assert store.list_sessions() == []

    def test_order_is_kept_behind_what_is_there(self, store: Store) -> None:
        owner = store.create_session(session())
        there = store.put(checkpoint(owner.id)).record
        source = MemoryStore()
        copy = read(source, filled(source))
        move(source, store, copy)
        moved = read(store, copy.session.id)
        assert all(one.seq > there.seq for one in moved.checkpoints)
        later = store.put(checkpoint(owner.id)).record
        assert all(one.seq < later.seq for one in moved.checkpoints)

    def test_what_expires_later_still_does(self, store: Store) -> None:
        source = MemoryStore()
        owner = source.create_session(session())
        at = datetime.now(UTC) + timedelta(days=2)
        source.put(checkpoint(owner.id, expires_at=at))
        copy = read(source, owner.id)
        store.add_session(copy, payloads(source), indexes={}, leaves=())
        assert [one.expires_at for one in read(store, owner.id).checkpoints] == [at]
