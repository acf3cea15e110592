"""A save that fails disturbs nobody, and nobody can overlook it."""

from __future__ import annotations

import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.errors import (
    NotInitialised,
    ProviderTooSlow,
    StateNotSerializable,
    StoreBusy,
    StoreUnavailable,
)
from holdfast.sessions import Session
from holdfast.stores.sqlite import SqliteStore
from tests.autosave.conftest import FakeClock, RunAgent, events, reopened
from tests.postgres_server import PostgresServer


def error_rows(session: Session) -> list[dict[str, Any]]:
    return [
        {"message": row.message, **(row.data or {})}
        for row in session.logs()
        if row.level == "error"
    ]


def exits() -> dict[str, Any]:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        pytest.param(lambda: {"n": 1 // 0}, "ZeroDivisionError: ", id="raises"),
        pytest.param(exits, "SystemExit: 3", id="exits"),
        pytest.param(lambda: {"lock": threading.Lock()}, "$.lock: ", id="unserialisable"),
        pytest.param(lambda: None, "returned None", id="returns-none"),
        pytest.param(lambda: [1, 2], "a state must be a dict", id="returns-a-list"),
        pytest.param(lambda: {"task_state": 7}, "$.task_state", id="invalid"),
        pytest.param(lambda: {"n": "\ud800"}, "surrogate", id="surrogate"),
    ],
)
@pytest.mark.row("S1-54")
def test_a_provider_at_fault_is_reported_and_asked_again(
    session: Session,
    clock: FakeClock,
    capsys: pytest.CaptureFixture[str],
    provider: Callable[[], Any],
    expected: str,
) -> None:
    chosen: list[Callable[[], Any]] = [provider]
    with session.autosave(lambda: chosen[0](), clock=clock) as saver:
        clock.advance(30)
        assert saver.last_error is not None
        assert session.list_checkpoints() == []
        (row,) = error_rows(session)
        assert expected in row["message"]
        assert row["autosave"] == "interval"
        said = capsys.readouterr().err
        assert expected in said
        assert "work goes on; next try in 30 s" in said
        chosen[0] = lambda: {"n": 1}
        clock.advance(30)
        assert saver.last_error is None
        assert session.latest_checkpoint().state == {"n": 1}
        assert "works again" in capsys.readouterr().err
    assert session.logs()[-1].message.startswith("autosave works again; before: ")


def test_a_failed_event_is_made_up_for_at_the_next_tick(session: Session, clock: FakeClock) -> None:
    states: list[Any] = [None, {"n": 1}]
    with session.autosave(lambda: states[0], clock=clock) as saver:
        assert saver.notify("agent_spawned", agent="scout") is None
        assert isinstance(saver.last_error, StateNotSerializable)
        del states[0]
        clock.advance(30)
        assert session.latest_checkpoint().metadata == {"event": "agent_spawned", "agent": "scout"}


def test_what_failed_is_saved_even_if_unchanged_since(session: Session, clock: FakeClock) -> None:
    session.save_checkpoint("by-hand", state={"n": 1})
    states: list[Any] = [None, {"n": 1}]
    with session.autosave(lambda: states[0], clock=clock):
        clock.advance(30)
        del states[0]
        clock.advance(30)
        assert events(session) == ["", "interval"]
        clock.advance(30)
        assert events(session) == ["", "interval"]


def test_the_same_failure_again_and_again_is_no_flood(
    session: Session, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with session.autosave(lambda: {"n": 1 // 0}, clock=clock):
        for _ in range(20):
            clock.advance(30)
    assert [row["failures"] for row in error_rows(session)] == [1, 2, 4, 8, 16]
    assert len(capsys.readouterr().err.splitlines()) == 5


@pytest.mark.row("S1-54")
def test_a_slow_provider_delays_nobody_for_long_and_loses_nothing(
    session: Session, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    release = threading.Event()

    def slow() -> dict[str, Any]:
        release.wait(60)
        return {"n": 1}

    with session.autosave(slow, timeout=0.05, clock=clock) as saver:
        assert saver.notify("task_completed") is None
        assert isinstance(saver.last_error, ProviderTooSlow)
        assert "has not ended after 0.05 s" in capsys.readouterr().err
        assert error_rows(session)[0]["code"] == "provider_too_slow"
        release.set()
        clock.advance(0)
        assert saver.last_error is None
        assert events(session) == ["task_completed"]


def test_a_provider_that_never_returns_does_not_keep_the_block(session: Session) -> None:
    release = threading.Event()

    def hang() -> dict[str, Any]:
        release.wait(60)
        return {"n": "too late"}

    with session.autosave(hang, timeout=0.05) as saver:
        pass
    assert isinstance(saver.last_error, ProviderTooSlow)
    left = [one for one in threading.enumerate() if one.name == "holdfast-autosave"]
    release.set()
    for thread in left:
        thread.join(60)
    # What it said after the end is not taken for the state at the end.
    assert session.list_checkpoints() == []


def test_the_provider_itself_cannot_ask_for_a_save(session: Session) -> None:
    saver = session.autosave(lambda: {"inner": str(saver.flush())})
    with saver:
        saver.notify("task_completed")
        assert session.latest_checkpoint().state == {"inner": "None"}
    assert "the provider itself" in error_rows(session)[0]["message"]


def test_an_event_outside_of_the_block_is_reported(session: Session) -> None:
    saver = session.autosave(lambda: {"n": 1})
    assert saver.notify("task_completed") is None
    assert isinstance(saver.last_error, NotInitialised)
    assert session.list_checkpoints() == []
    assert "not running" in error_rows(session)[0]["message"]


@pytest.mark.row("S1-54")
@pytest.mark.parametrize("fault", ["removed", "replaced"])
def test_a_database_that_vanishes_is_noted_beside_it(
    manager: SessionManager,
    session: Session,
    project: Path,
    database: Path,
    clock: FakeClock,
    capsys: pytest.CaptureFixture[str],
    fault: str,
) -> None:
    state = {"n": 1}
    hidden = database.with_name("hidden.db")
    with session.autosave(lambda: dict(state), clock=clock) as saver:
        clock.advance(30)
        database.rename(hidden)
        if fault == "replaced":
            database.touch()
        state["n"] = 2
        clock.advance(30)
        state["n"] = 3  # the work goes on
        assert isinstance(saver.last_error, StoreUnavailable)
        assert fault in capsys.readouterr().err
        log = FallbackLog(project)
        (entry,) = log.entries()
        assert (entry.session_id, entry.event) == ("session-1", "interval")
        assert entry.code == "store_unavailable"
        assert fault in entry.message
        assert entry.url == manager.store.url
        assert entry.after_seq == 1
        assert stat.S_IMODE(log.path.stat().st_mode) == 0o600

        hidden.rename(database)
        clock.advance(30)
        assert saver.last_error is None
        assert session.latest_checkpoint().state == {"n": 3}


@pytest.mark.row("S1-54")
def test_a_locked_database_is_noted_beside_it_and_tried_again(
    project: Path, database: Path, clock: FakeClock
) -> None:
    store = SqliteStore(database, busy_timeout=0.05)
    with SessionManager(store, project_dir=project, workspace=False) as manager:
        session = manager.create_session("tester", session_id="session-1")
        with session.autosave(lambda: {"n": 1}, clock=clock) as saver:
            other = apsw.Connection(str(database))
            other.execute("BEGIN IMMEDIATE")
            clock.advance(30)
            assert isinstance(saver.last_error, StoreBusy)
            assert FallbackLog(project).entries()[0].code == "store_busy"
            other.execute("ROLLBACK")
            other.close()
            clock.advance(30)
            assert saver.last_error is None
        assert events(session) == ["interval"]


FULL_DISK = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
state["noise"] = "small"
with session.autosave(lambda: dict(state), interval=None) as saver:
    saver.notify("task_completed")
    size = os.path.getsize(sys.argv[1] + "-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + {room}, resource.RLIM_INFINITY))
    state["noise"] = os.urandom(400_000).hex()
    saver.notify("task_completed")
    say(type(saver.last_error).__name__)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    saver.flush()
    say(type(saver.last_error).__name__)
"""


@pytest.mark.row("S1-54")
@pytest.mark.parametrize(
    ("room", "noted"),
    [pytest.param(0, "file", id="not even for a row"), pytest.param(100_000, "row", id="a row")],
)
def test_a_full_disk_is_reported_wherever_there_is_room(
    run_agent: RunAgent, project: Path, database: Path, room: int, noted: str
) -> None:
    agent = run_agent(FULL_DISK.replace("{room}", str(room)))
    status, said, errors = agent.end()
    assert (status, said) == (0, ["StoreFull", "NoneType"])
    assert "No room is left" in errors
    with reopened(project, database) as session:
        assert events(session) == ["task_completed", "flush"]
        rows, entries = error_rows(session), FallbackLog(project).entries()
        assert (len(rows), len(entries)) == ((0, 1) if noted == "file" else (1, 0))
        codes = [one["code"] for one in rows] + [one.code for one in entries]
        assert codes == ["store_full"]


@pytest.mark.row("S1-54")
def test_a_database_that_became_read_only_is_reported(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """

with session.autosave(lambda: dict(state), interval=None) as saver:
    saver.notify("task_completed")
    # Every connection refuses to write from here on, as on a file system that was remounted.
    for connection in list(manager.store._file._idle):
        connection.pragma("query_only", True)
    state["n"] = 1
    saver.notify("task_completed")
    say(type(saver.last_error).__name__)
    for connection in list(manager.store._file._idle):
        connection.pragma("query_only", False)
"""
    )
    status, said, errors = agent.end()
    assert (status, said) == (0, ["StoreReadOnly"])
    assert "cannot be written" in errors
    assert FallbackLog(project).entries()[0].code == "store_read_only"
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 1}


def test_a_signal_with_the_database_gone_still_ends_the_process(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
with session.autosave(lambda: dict(state)) as saver:
    os.rename(sys.argv[1], sys.argv[1] + ".hidden")
    say("ready")
    wait()
"""
    )
    agent.expect("ready")
    agent.signal(signal.SIGTERM)
    status, _, errors = agent.end()
    assert status == -signal.SIGTERM
    assert "was removed while it was open" in errors
    (entry,) = FallbackLog(project).entries()
    assert entry.event == "signal"


def test_nothing_is_silent_when_no_file_can_be_written_either(
    session: Session, project: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with session.autosave(lambda: {"n": 1}, interval=None) as saver:
        database.rename(project / "hidden.db")
        (project / ".agents" / "holdfast-errors.log").mkdir()
        saver.notify("task_completed")
        said = capsys.readouterr().err
        assert "was removed while it was open" in said
        assert "cannot be written either" in said
        (project / "hidden.db").rename(database)
    assert events(session) == ["exit"]


@pytest.mark.slow
@pytest.mark.row("S1-54")
def test_a_server_that_goes_away_is_noted_and_saved_to_when_it_is_back(
    project: Path, clock: FakeClock
) -> None:
    with PostgresServer() as server:
        url = server.create_database()
        with SessionManager.open(url, project_dir=project, workspace=False) as manager:
            session = manager.create_session("tester")
            state = {"n": 1}
            with session.autosave(lambda: dict(state), clock=clock) as saver:
                clock.advance(30)
                server.kill()
                state["n"] = 2
                clock.advance(30)
                assert isinstance(saver.last_error, StoreUnavailable)
                (entry,) = FallbackLog(project).entries()
                assert (entry.session_id, entry.code) == (session.id, "store_unavailable")
                assert entry.after_seq == 1
                server.start()
                clock.advance(30)
                assert saver.last_error is None
            assert session.latest_checkpoint().state == {"n": 2}


class TestFallbackLog:
    def entry(self, message: str) -> Entry:
        return Entry(at="2026-01-01T00:00:00+00:00", message=message, session_id="s", after_seq=3)

    def test_entries_come_back_in_order(self, project: Path) -> None:
        log = FallbackLog(project)
        assert log.entries() == []
        for word in ("one", "two\nlines", "\ud800"):
            log.append(self.entry(word))
        assert [one.message for one in log.entries()] == ["one", "two\nlines", "\ud800"]

    def test_it_stays_small(self, project: Path) -> None:
        log = FallbackLog(project, max_bytes=2000)
        for number in range(100):
            log.append(self.entry(f"failure {number}"))
        files = list(log.path.parent.glob("holdfast-errors.log*"))
        assert len(files) == 2
        assert all(file.stat().st_size <= 2000 for file in files)
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
        messages = [one.message for one in log.entries()]
        assert messages[-1] == "failure 99"
        assert messages == sorted(messages, key=lambda text: int(text.split()[1]))

    def test_a_long_message_is_cut(self, project: Path) -> None:
        log = FallbackLog(project)
        log.append(self.entry("x" * 100_000))
        assert len(log.entries()[0].message) == 2000

    def test_a_line_that_cannot_be_read_is_an_entry_all_the_same(self, project: Path) -> None:
        log = FallbackLog(project)
        log.append(self.entry("fine"))
        with log.path.open("ab") as file:
            file.write(b'{"at": "2026\n[]\n{"at": 7, "message": []}\n\xff\n\n')
        assert [one.message for one in log.entries()] == [
            "fine", '{"at": "2026', "[]", '{"at": 7, "message": []}', "\ufffd",
        ]  # fmt: skip

    def test_a_link_is_not_followed(self, project: Path, tmp_path: Path) -> None:
        target = tmp_path / "theirs"
        target.touch()
        log = FallbackLog(project)
        log.path.symlink_to(target)
        with pytest.raises(OSError, match="holdfast-errors"):
            log.append(self.entry("x"))
        assert target.read_bytes() == b""
