"""Many processes and one file: nothing that was acknowledged is lost, nobody is turned away."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from holdfast.model import CheckpointQuery
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.drafts import session

# A process of its own, with as little to import as a user's has.
WRITER = """
import os, sys, time
from holdfast.ids import new_id
from holdfast.model import NewAgent, NewCheckpoint, NewSession
from holdfast.state.refs import Ref, digest_of, pack_refs
from holdfast.stores.sqlite import SqliteStore

path, session_id, agent_type, seconds = sys.argv[1:]
store = SqliteStore(path)
agent = NewAgent(new_id(), "worker", agent_type)
session = NewSession(session_id, agent.id, agent_type, agent=agent)
end = time.monotonic() + float(seconds)
while time.monotonic() < end:
    chunks = {digest_of(data): data for data in (os.urandom(300), b"shared" * 50)}
    refs = pack_refs(Ref(digest, 0, 0, 300) for digest in chunks)
    id_ = new_id()
    store.put(NewCheckpoint(id_, session_id, id_, "{}", refs, chunks, (), 600, session=session))
    os.write(1, id_.encode() + b"\\n")
store.close()
"""


def start(path: Path, session_id: str, agent_type: str, seconds: float) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", WRITER, str(path), session_id, agent_type, str(seconds)]
    # Without a buffer, what readline() does not return is still there for communicate().
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


def check_integrity(path: Path) -> None:
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


@pytest.mark.row("S1-31", "S1-92")
def test_eighteen_agents_save_to_one_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    writers = [start(path, f"session {n}", f"type {n}", 3) for n in range(18)]
    acknowledged: dict[str, list[str]] = {}
    for number, writer in enumerate(writers):
        out, err = writer.communicate(timeout=60)
        assert writer.returncode == 0, err.decode()
        acknowledged[f"session {number}"] = out.decode().split()
    with SqliteStore(path) as store:
        assert len({one.agent_type for one in store.list_sessions()}) == 18
        sequence = []
        for session_id, ids in acknowledged.items():
            records = store.list_checkpoints(CheckpointQuery(session_id=session_id))
            assert [record.id for record in reversed(records)] == ids
            assert ids, "every agent got its turn"
            sequence += [record.seq for record in records]
        assert len(set(sequence)) == len(sequence)
    check_integrity(path)


def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    SqliteStore(path).close()
    acknowledged: list[str] = []
    delays = random.Random(7)
    for round_number in range(10):
        pair = [start(path, f"session {n}", "worker", 60) for n in range(2)]
        firsts = [writer.stdout.readline() for writer in pair if writer.stdout]
        time.sleep(delays.uniform(0, 0.15))
        for writer, line in zip(pair, firsts, strict=True):
            os.kill(writer.pid, signal.SIGKILL)
            out, err = writer.communicate(timeout=30)
            assert line, err.decode()
            # The last line may be cut short by the kill; it was then not received.
            whole = (line + out).decode().split("\n")[:-1]
            acknowledged += whole
        if round_number % 3 == 0:
            check_integrity(path)
    with SqliteStore(path) as store:
        records = store.list_checkpoints(CheckpointQuery())
        assert {record.id for record in records} >= set(acknowledged)
        assert len(acknowledged) >= 20
        for record in records:
            payload = store.read_payload(record.id)
            assert payload is not None
        assert store.gc(dry_run=True).chunks == 0
    check_integrity(path)


def test_a_writer_that_waits_for_another_process_can_be_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    SqliteStore(path).close()
    writer = start(path, "session", "worker", 60)
    assert writer.stdout is not None
    assert writer.stdout.readline()
    # The database file may be opened by one library only in a process.
    holder = apsw.Connection(str(path))
    holder.set_busy_timeout(30_000)
    holder.execute("BEGIN IMMEDIATE")
    try:
        writer.send_signal(signal.SIGINT)
        _, err = writer.communicate(timeout=20)
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert b"KeyboardInterrupt" in err
    check_integrity(path)


@pytest.mark.row("S1-92")
def test_each_session_may_have_a_database_of_its_own(tmp_path: Path) -> None:
    for number in range(3):
        with SqliteStore(tmp_path / f"{number}" / "sessions.db") as store:
            store.create_session(session())
            assert len(store.list_sessions()) == 1
