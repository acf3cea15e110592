"""Turned bits: whatever is live is found by deep verification, and nothing wrong is ever loaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.doctor import salvage
from holdfast.errors import LogDamaged
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore
from tests.faults import flips
from tests.stores.postgres_drafts import connect

Saved = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Saved]:
    path = tmp_path_factory.mktemp("flips") / "sessions.db"
    with SqliteStore(path, compress=True) as store:
        saved = flips.fill(store, random.Random(0))
        assert not flips.is_detected(store)
        assert list(flips.wrong_loads(store, saved)) == []
    return path.read_bytes(), saved


def turn(
    path: Path,
    database: tuple[bytes, Saved],
    wanted: int,
    seed: int,
    turn_bit: Callable[[Path, random.Random], object],
) -> None:
    """Turn bits, each in a fresh copy, until so many were live; every one of those must be found."""
    pristine, saved = database
    randomness = random.Random(seed)
    path.write_bytes(pristine)
    before = flips.content(path)
    assert before is not None
    live = missed = 0
    while live < wanted:
        for ending in ("-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
        path.write_bytes(pristine)
        turn_bit(path, randomness)
        changed = flips.content(path) != before
        detected, wrong = flips.drill(path, saved)
        assert wrong == []
        live += changed
        missed += changed and not detected
    assert missed == 0


@pytest.mark.row("B8")
@pytest.mark.parametrize(
    "turn_bit", [flips.turn_file_bit, flips.turn_column_bit], ids=["file", "column"]
)
def test_turned_bits_are_found_and_never_loaded(
    tmp_path: Path, database: tuple[bytes, Saved], turn_bit: Callable[[Path, random.Random], object]
) -> None:
    turn(tmp_path / "sessions.db", database, 40, 1, turn_bit)


@pytest.mark.slow
@pytest.mark.row("B8")
@pytest.mark.parametrize("seed", range(2, 7))
@pytest.mark.parametrize(
    "turn_bit", [flips.turn_file_bit, flips.turn_column_bit], ids=["file", "column"]
)
def test_a_thousand_turned_bits_are_found_and_never_loaded(
    tmp_path: Path,
    database: tuple[bytes, Saved],
    turn_bit: Callable[[Path, random.Random], object],
    seed: int,
) -> None:
    turn(tmp_path / "sessions.db", database, 100, seed, turn_bit)


def turn_log(path: Path, wanted: int, seed: int) -> None:
    """Turn bits of a log that is not yet folded, each in a fresh copy; every one must be found."""
    randomness = random.Random(seed)
    with SqliteStore(path, compress=True) as store:
        saved = flips.fill(store, randomness, sweep=False)
        files = {ending: Path(f"{path}{ending}").read_bytes() for ending in ("", "-wal")}
    Path(f"{path}-shm").unlink(missing_ok=True)
    for number in range(wanted):
        for ending, content in files.items():
            Path(f"{path}{ending}").write_bytes(content)
        flips.turn_log_bit(Path(f"{path}-wal"), randomness)
        with pytest.raises(LogDamaged, match="--salvage"):
            SqliteStore(path)
        assert Path(f"{path}-wal").stat().st_size == len(files["-wal"])
        if number % 10 == 0:
            target = path.with_name(f"saved-{number}.db")
            lost = {one.checkpoint_id for one in salvage(path, target).lost}
            with SqliteStore(target) as store:
                assert list(flips.wrong_loads(store, saved)) == []
                assert saved.keys() - set(store.iter_checkpoint_ids()) <= lost
        for one in path.parent.glob(f"{path.name}-*"):
            one.unlink()


@pytest.mark.row("B8")
def test_turned_bits_of_a_log_are_found_before_anything_is_dropped(tmp_path: Path) -> None:
    turn_log(tmp_path / "sessions.db", 60, 1)


@pytest.mark.slow
@pytest.mark.row("B8")
def test_hundreds_of_turned_bits_of_a_log_are_found(tmp_path: Path) -> None:
    turn_log(tmp_path / "sessions.db", 600, 2)


def turn_columns(url: str, wanted: int, seed: int) -> None:
    """Turn bits of columns, one after the other, and put each back."""
    randomness = random.Random(seed)
    with PostgresStore(url) as store:
        saved = flips.fill(store, randomness)
    reading = f"{url}&options=-c%20default_transaction_read_only%3Don"
    # Who may only read marks nothing, so the turned bit can be put back where it is.
    with PostgresStore(reading, ensure_schema=False) as store, connect(url) as beside:
        beside.autocommit = True
        beside.execute("SET session_replication_role = replica")
        assert not flips.is_detected(store)
        turned = 0
        while turned < wanted:
            try:
                back = flips.turn_postgres_bit(beside, randomness)
            except (psycopg.IntegrityError, psycopg.DataError):
                continue
            if back is None:
                continue
            statement, *values = back
            turned += 1
            assert list(flips.wrong_loads(store, saved)) == []
            assert flips.is_detected(store), statement
            beside.execute(statement, values)
        assert not flips.is_detected(store)


@pytest.mark.row("B8")
def test_turned_bits_of_postgres_are_found_and_never_loaded(postgres_url: str) -> None:
    turn_columns(postgres_url, 30, 1)


@pytest.mark.slow
@pytest.mark.row("B8")
def test_hundreds_of_turned_bits_of_postgres_are_found_and_never_loaded(postgres_url: str) -> None:
    turn_columns(postgres_url, 400, 2)
