"""What the doctor says of locks: who keeps others waiting, and what a killed git left behind."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from holdfast import SessionManager, processes
from holdfast.config import load_config
from holdfast.crypto import GivenKeys, KeyRing
from holdfast.doctor import Finding, examine
from holdfast.doctor.locks import (
    age_text,
    look_at_snapshot_locks,
    look_at_waits,
    look_at_write_lock,
)
from holdfast.stores import open_store
from holdfast.workspace.store_locks import StoreLocks
from tests.doctor.test_salvage import fill

ON_LINUX = pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="needs a list of locks")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / ".agents" / "sessions.db"
    path.parent.mkdir(mode=0o700)
    fill(path)
    return path


def look(project: Path) -> dict[str, Finding]:
    opening = partial(SessionManager.open, project_dir=project, create=False, busy_timeout=0.2)
    return {one.name: one for one in examine(load_config(project), opening)}


@contextmanager
def another(program: str) -> Iterator[int]:
    """Run a program that says when it is ready, and end it afterwards."""
    script = f"import time\n{program}\nprint('ready', flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def writer(path: Path, *statements: str) -> str:
    lines = [f"import apsw; it = apsw.Connection({str(path)!r})"]
    return "\n".join([*lines, *(f"it.execute({one!r}).fetchall()" for one in statements)])


def test_a_free_lock_is_free(path: Path) -> None:
    found = look(path.parents[1])
    assert (found["locks"].level, found["locks"].text) == ("ok", "the store's write lock is free")


@ON_LINUX
def test_a_writer_that_does_not_end_is_named(path: Path) -> None:
    before = path.read_bytes()
    with another(writer(path, "BEGIN IMMEDIATE")) as pid:
        found = look(path.parents[1])["locks"]
    assert found.level == "warning"
    assert f"process {pid} (" in found.text
    assert found.advice is not None
    assert f"kill {pid}" in found.advice
    assert path.read_bytes() == before


@ON_LINUX
def test_one_who_has_the_file_for_himself_is_named(path: Path) -> None:
    program = writer(path, "PRAGMA journal_mode = DELETE", "BEGIN EXCLUSIVE")
    with another(program) as pid:
        began = time.monotonic()
        found = look(path.parents[1])
        assert time.monotonic() - began < 20
    assert "too long" in found["store"].text
    assert f"process {pid} (" in found["locks"].text


@ON_LINUX
def test_a_reader_is_not_taken_for_a_writer(path: Path) -> None:
    reading = writer(path, "BEGIN", "SELECT * FROM sessions")
    with another(reading) as reader, another(writer(path, "BEGIN IMMEDIATE")) as pid:
        found = look_at_write_lock(path)
    assert f"process {pid} (" in found.text
    assert str(reader) not in found.text


def test_where_nobody_tells_it_is_another_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_LOCKS", "/nonexistent")
    with another(writer(path, "BEGIN IMMEDIATE")):
        found = look_at_write_lock(path)
    assert found.level == "warning"
    assert found.text.startswith("another process has kept the write lock")


# Snapshots


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "workspace.git"
    (home / "refs" / "snapshots").mkdir(parents=True)
    locks = StoreLocks(home, project=tmp_path)
    with locks.using(alone=False, seconds=1), locks.working(1):
        pass
    return home


def test_without_snapshots_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert look_at_snapshot_locks(tmp_path) is None


def test_own_lock_files_are_always_there(home: Path) -> None:
    found = look_at_snapshot_locks(home)
    assert found == Finding("file locks", "ok", "nobody works on the snapshots")


@pytest.mark.parametrize("name", ["index.lock", "refs/snapshots/1.lock"])
def test_a_lock_that_git_left_is_named_with_its_age(home: Path, name: str) -> None:
    left = home / name
    left.touch()
    os.utime(left, (time.time() - 7300, time.time() - 7300))
    found = look_at_snapshot_locks(home)
    assert found is not None
    assert found.level == "warning"
    assert f"{left} (2 hours old)" in found.text
    assert found.advice == f"nobody uses it: rm {left}"
    assert left.exists()


@pytest.mark.parametrize("said", [b"1", b"0of-an-earlier-boot", b""])
def test_after_a_kill_or_a_power_cut_the_next_save_clears_it_away(home: Path, said: bytes) -> None:
    (home / "index.lock").touch()
    (home / "work.lock").write_bytes(said)
    found = look_at_snapshot_locks(home)
    assert found is not None
    assert found.advice == "the next save clears it away"


@ON_LINUX
@pytest.mark.parametrize(("seconds", "level"), [(5, "ok"), (185, "warning")])
def test_who_works_on_the_snapshots_is_named(home: Path, seconds: int, level: str) -> None:
    (home / "index.lock").touch()
    os.utime(home / "work.lock", (time.time() - seconds, time.time() - seconds))
    with (home / "work.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = look_at_snapshot_locks(home)
    assert found is not None
    assert found.level == level
    assert f"process {os.getpid()} (" in found.text
    assert ("5 seconds" if level == "ok" else "3 minutes") in found.text
    assert "index.lock" not in found.text


def test_the_doctor_looks_at_the_project_s_own(path: Path) -> None:
    home = path.with_name("workspace.git")
    home.mkdir(mode=0o700)
    for name in ("work.lock", "HEAD.lock"):
        (home / name).touch()
    assert f"{home}/HEAD.lock" in look(path.parents[1])["file locks"].text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "less than a second"), (1, "1 second"), (150, "2 minutes"), (90_000, "1 day")],
)
def test_a_length_of_time_is_said_as_people_do(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


# PostgreSQL


@pytest.mark.parametrize("keys", [False, KeyRing.new()], ids=["plain", "sealed"])
def test_who_waits_at_a_server_is_named_with_whom_for(postgres_url: str, keys: GivenKeys) -> None:
    with open_store(postgres_url, keys=keys) as store:
        assert look_at_waits(store).level == "ok"
        address, _, schema = postgres_url.partition("&schema=")
        with psycopg.connect(address) as holder, psycopg.connect(address) as other:
            table = f'"{schema}".sessions'
            holder.execute(f"LOCK TABLE {table} IN SHARE MODE")
            waiting = threading.Thread(
                target=lambda: other.execute(f"UPDATE {table} SET status = status")
            )
            waiting.start()
            try:
                time.sleep(1.5)
                found = look_at_waits(store)
            finally:
                holder.rollback()
                waiting.join()
            pids = other.info.backend_pid, holder.info.backend_pid
            other.rollback()
    assert found.level == "warning"
    assert re.fullmatch(rf"backend {pids[0]} has waited \d+ seconds? for {pids[1]}", found.text)
    assert found.advice is not None
    assert f"pg_terminate_backend({pids[1]})" in found.advice
