"""Workspace packs beside sweeps: age, and checkpoints that are on their way."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import PackMissing, StateCorrupt
from holdfast.model import CheckpointQuery, PackReport
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.rules import MOST_PACKS, pack_order
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.drafts import checkpoint, session
from holdfast.testing.packs import A, B, C, D, commit, order, put_chain
from tests.stores.postgres_drafts import connect

Aged = tuple[Store, Callable[[timedelta], None]]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def aged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Aged]:
    """A store, and a way to let the time pass for its packs."""
    moment = [datetime(2026, 1, 1, tzinfo=UTC)]

    def pass_by(time: timedelta) -> None:
        moment[0] += time

    if request.param == "memory":
        yield MemoryStore(now=lambda: moment[0]), pass_by
    elif request.param == "sqlite":
        with SqliteStore(tmp_path / "sessions.db", now=lambda: moment[0]) as local:
            yield local, pass_by
    else:
        url = request.getfixturevalue("postgres_url")
        with PostgresStore(url) as store, connect(url) as beside:
            beside.autocommit = True

            def backdate(time: timedelta) -> None:
                beside.execute("UPDATE workspace_packs SET touched_at = touched_at - %s", [time])

            yield store, backdate


def test_a_sweep_removes_what_nobody_has_needed_for_a_day(aged: Aged) -> None:
    store, pass_by = aged
    owner = store.create_session(session())
    put_chain(store)
    store.put(checkpoint(owner.id, workspace_commit=B))
    pass_by(timedelta(hours=23))
    assert store.sweep_packs() == PackReport(0, 0)
    pass_by(timedelta(hours=2))
    assert store.sweep_packs(dry_run=True) == PackReport(2, 18)
    assert store.find_packs([A, B, C, D]) == {A, B, C, D}
    assert store.sweep_packs() == PackReport(2, 18)
    assert store.find_packs([A, B, C, D]) == {A, B}
    assert order(store, B) == [A, B]


def test_a_pack_that_is_put_again_is_young_and_keeps_its_bases(aged: Aged) -> None:
    store, pass_by = aged
    put_chain(store)
    pass_by(timedelta(days=2))
    assert store.put_pack(C, needs=[A], data=b"the same") is False
    store.sweep_packs()
    assert store.find_packs([A, B, C, D]) == {A, C}


def test_a_sweep_between_pack_and_checkpoint_is_told(aged: Aged) -> None:
    store, pass_by = aged
    owner = store.create_session(session())
    store.put_pack(A, needs=[], data=b"a")
    pass_by(timedelta(days=2))
    assert store.find_packs([A]) == {A}
    store.sweep_packs()
    draft = checkpoint(owner.id, workspace_commit=A, pack_required=True)
    with pytest.raises(PackMissing):
        store.put(draft)
    store.put_pack(A, needs=[], data=b"a")
    assert store.put(draft).created is True


def test_an_expired_checkpoint_still_needs_its_pack(aged: Aged) -> None:
    store, pass_by = aged
    owner = store.create_session(session())
    store.put_pack(A, needs=[], data=b"a")
    past = datetime(2020, 1, 1, tzinfo=UTC)
    store.put(checkpoint(owner.id, workspace_commit=A, expires_at=past))
    pass_by(timedelta(days=2))
    assert store.sweep_packs() == PackReport(0, 0)
    assert store.purge_expired() == 1
    assert store.sweep_packs() == PackReport(1, 1)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_saving_beside_removals_breaks_no_checkpoint(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    opened: Any = PostgresStore(url) if kind == "postgres" else SqliteStore(tmp_path / "s.db")
    with opened as store:
        owner = store.create_session(session())
        shared = [commit(f"shared {number}") for number in range(4)]

        def save(number: int) -> None:
            one = shared[number % 4]
            draft = checkpoint(owner.id, workspace_commit=one, pack_required=True)
            while True:
                try:
                    for base in (commit("base"), one):
                        needs = [] if base == commit("base") else [commit("base")]
                        store.put_pack(base, needs=needs, data=base.encode())
                    saved = store.put(draft).record
                    break
                except PackMissing:
                    continue
            if number % 3:
                store.delete_checkpoints([saved.id])

        def remove(number: int) -> None:
            store.delete_packs([*shared, commit("base")])

        with ThreadPoolExecutor(4) as pool:
            saving = [pool.submit(save, number) for number in range(60)]
            removing = [pool.submit(remove, number) for number in range(60)]
            for done in (*saving, *removing):
                done.result()
        kept = store.list_checkpoints(CheckpointQuery(owner.id))
        assert len(kept) == 20
        for one in kept:
            assert order(store, one.workspace_commit) == [commit("base"), one.workspace_commit]


def test_packs_that_need_each_other_are_not_followed_for_ever() -> None:
    with pytest.raises(StateCorrupt, match="need each other"):
        pack_order(A, {A: (B,), B: (A,)}, ())
    with pytest.raises(PackMissing, match=C):
        pack_order(A, {A: (B,), B: (C,)}, ())
    with pytest.raises(StateCorrupt, match="more than"):
        pack_order(A, {str(number): () for number in range(MOST_PACKS + 1)}, ())
