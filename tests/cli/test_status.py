"""`holdfast status`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.errors import InvalidFilter
from holdfast.sessions import Session
from holdfast.sessions.status import read_status
from holdfast.stores.sqlite import SqliteStore
from tests.cli.conftest import CommandLine, run_process


@pytest.fixture
def session(manager: SessionManager) -> Session:
    return manager.create_session("tester", session_id="session-1", task_description="a task")


def fail(session: Session) -> None:
    with session.autosave(lambda: {"n": 1 // 0}, interval=None):
        pass


def note(project: Path, session: Session, **changes: Any) -> None:
    values = {
        "at": "2026-01-01T00:00:00+00:00",
        "message": "autosave failed: gone",
        "session_id": session.id,
        "url": session._store.url,
        "tenant": session._store.tenant,
        "event": "interval",
        "code": "store_unavailable",
        "after_seq": 0,
    }
    FallbackLog(project).append(Entry(**{**values, **changes}))


def test_all_is_well(cli: CommandLine, session: Session) -> None:
    assert cli.ok("status").endswith("ok  1 session, 0 saved, 1 never\n")
    saved = session.save_checkpoint("one", state={"n": 1})
    session.log("error", "a tool failed")
    out = cli.ok("status")
    assert "session-1" in out
    assert "ok  1 session, all saved" in out
    status = cli.json("status")["status"]
    assert (status["ok"], status["errors"]) == (True, [])
    (shown,) = status["sessions"]
    assert (shown["id"], shown["status"]) == ("session-1", "active")
    assert shown["checkpoint_id"] == saved.id
    assert shown["saved_at"] is not None
    assert shown["last_error"] == "a tool failed"


def test_a_failed_save_of_a_session_that_cannot_be_read_is_told(
    cli: CommandLine, session: Session, manager: SessionManager
) -> None:
    manager.create_session("tester", session_id="good").save_checkpoint("one", state={})
    session.save_checkpoint("one", state={"n": 1})
    fail(session)
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("UPDATE sessions SET created_at = 'junk' WHERE id = 'session-1'")
    database.close()
    answer = cli("status")
    assert answer.code == 5
    assert "failed    session session-1" in answer.out
    assert answer.out.endswith("failing  1 failed save not made up for, 1 session unreadable\n")
    answer = cli("status", "--json")
    assert answer.code == 5
    status = answer.json["status"]
    assert (status["ok"], [one["resolved"] for one in status["errors"]]) == (False, [False])


def test_a_save_that_could_not_have_the_files_is_told_until_one_has_them(
    cli: CommandLine, session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", str(tmp_path / "nothing"))
        saved = session.save_checkpoint("one", state={"n": 1})
    answer = cli("status")
    assert answer.code == 1
    assert "no files  session session-1, one: files not captured: git is not" in answer.out
    assert answer.out.endswith("failing  1 session saved without files\n")
    status = cli("status", "--json").json["status"]
    assert status["ok"] is False
    (found,) = status["without_files"]
    assert found["checkpoint"] == {"id": saved.id, "name": "one"}
    assert "files not captured by one: git is not installed" in cli.ok("log")
    assert "git is not installed" in cli.json("log")["files_problem"]

    (cli.project / ".agents" / "holdfast.toml").write_text("[workspace]\ncapture = false\n")
    assert "all saved" in cli.ok("status")
    (cli.project / ".agents" / "holdfast.toml").unlink()
    session.save_checkpoint("two", state={"n": 1})
    assert cli.json("status")["status"]["without_files"] == []
    assert cli.json("log")["files_problem"] is None
    # Whoever wants no files misses none.
    session.save_checkpoint("three", state={"n": 1}, workspace=False)
    assert "all saved" in cli.ok("status")


def test_a_session_that_is_completed_misses_no_files(
    cli: CommandLine, session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", str(tmp_path / "nothing"))
        session.save_checkpoint("one", state={"n": 1})
    session.complete()
    assert "all saved" in cli.ok("status")


@pytest.mark.row("S1-54")
def test_a_failed_save_is_an_exit_code_until_the_session_is_saved(
    cli: CommandLine, session: Session
) -> None:
    session.save_checkpoint("one", state={"n": 1})
    fail(session)
    answer = cli("status")
    assert answer.code == 1
    assert "failed    session session-1" in answer.out
    assert "ZeroDivisionError" in answer.out
    assert "failing  1 failed save not made up for" in answer.out
    status = cli("status", "--json").json["status"]
    assert status["ok"] is False
    (error,) = status["errors"]
    assert (error["session_id"], error["event"], error["source"]) == ("session-1", "exit", "log")
    assert error["resolved"] is False

    session.save_checkpoint("two", state={"n": 2})
    assert "resolved" in cli.ok("status")
    assert cli.json("status")["status"]["errors"][0]["resolved"] is True
    fail(session)
    assert cli("status").code == 1
    session.complete()
    assert cli.ok("status").endswith("ok  1 session, all saved\n")


@pytest.mark.row("S1-54")
def test_a_failure_that_only_the_file_knows_is_an_exit_code_too(
    cli: CommandLine, session: Session
) -> None:
    saved = session.save_checkpoint("one", state={"n": 1})
    note(cli.project, session, after_seq=saved.seq)
    note(cli.project, session, after_seq=saved.seq, message="autosave failed (2 times): gone")
    answer = cli("status", "--json")
    assert answer.code == 1
    (error,) = answer.json["status"]["errors"]
    assert error["message"] == "autosave failed (2 times): gone"
    assert (error["source"], error["resolved"]) == ("file", False)
    session.save_checkpoint("two", state={"n": 2})
    assert cli.json("status")["status"]["errors"][0]["resolved"] is True
    assert "holdfast-errors.log; remove it when done" in cli.ok("status")


@pytest.mark.row("S1-54")
def test_a_database_that_is_gone_is_said_with_what_the_file_knows(
    cli: CommandLine, session: Session, manager: SessionManager
) -> None:
    manager.close()
    note(cli.project, session)
    (cli.project / ".agents" / "sessions.db").rename(cli.project / "hidden.db")
    # Without a database only the directory says where the project is.
    (cli.project / ".git").mkdir()
    answer = cli("status")
    assert answer.code == 6
    assert "failed    session session-1" in answer.out
    assert answer.err.startswith("error: ")
    answer = cli("status", "--json")
    assert (answer.code, answer.json["status"]["ok"]) == (6, False)
    assert answer.json["status"]["url"] is None
    assert answer.error["code"] == "store_unavailable"


@pytest.mark.parametrize(
    "changes",
    [
        {"session_id": "erased"},
        {"url": "postgresql://elsewhere/db"},
        {"tenant": "another"},
        {"session_id": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_cannot_be_found_settled_counts(
    cli: CommandLine, session: Session, changes: dict[str, Any]
) -> None:
    session.save_checkpoint("one", state={"n": 1})
    note(cli.project, session, **changes)
    assert cli("status").code == 1
    (cli.project / ".agents" / "holdfast-errors.log").unlink()
    assert cli("status").code == 0


def test_a_file_that_cannot_be_read_is_said_with_the_rest(
    cli: CommandLine, session: Session
) -> None:
    session.save_checkpoint("one", state={"n": 1})
    path = cli.project / ".agents" / "holdfast-errors.log"
    path.mkdir()
    answer = cli("status")
    assert answer.code == 1
    assert "holdfast-errors.log cannot be read: not a regular file" in answer.out
    assert "session-1" in answer.out
    path.rmdir()
    assert cli("status").code == 0


def test_only_sessions_are_limited(cli: CommandLine, manager: SessionManager) -> None:
    oldest = manager.create_session("tester", session_id="oldest-session")
    fail(oldest)
    for number in range(25):
        manager.create_session("tester", session_id=f"session-{number}")
    answer = cli("status", "--json")
    assert answer.code == 1
    assert len(answer.json["status"]["sessions"]) == 20
    assert answer.json["status"]["errors"][0]["session_id"] == "oldest-session"
    assert len(cli("status", "-n", "3", "--json").json["status"]["sessions"]) == 3


def test_a_database_that_opens_and_cannot_be_read_is_said_with_what_the_file_knows(
    cli: CommandLine, session: Session, manager: SessionManager
) -> None:
    session.save_checkpoint("one", state={"n": 1})
    note(cli.project, session)
    manager.close()
    path = cli.project / ".agents" / "sessions.db"
    database = apsw.Connection(str(path))
    [(page,)] = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sessions'")
    database.close()
    with path.open("rb+") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    answer = cli("status")
    assert answer.code == 6
    assert "failed    session session-1" in answer.out
    assert cli("status", "--json").error["code"] == "not_a_database"


@pytest.mark.parametrize("limit", [-1, "x", True], ids=repr)
def test_a_limit_that_is_none_is_refused(cli: CommandLine, limit: Any) -> None:
    with pytest.raises(InvalidFilter, match="limit"):
        read_status(lambda: SessionManager.open(), project_dir=cli.project, limit=limit)


def test_a_session_that_is_erased_meanwhile_is_no_error(
    cli: CommandLine, session: Session, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.save_checkpoint("one", state={"n": 1})
    listed = SqliteStore.list_sessions

    def list_and_erase(self: SqliteStore, *args: Any, **kwargs: Any) -> Any:
        found = listed(self, *args, **kwargs)
        self.delete_session(session.id)
        return found

    monkeypatch.setattr(SqliteStore, "list_sessions", list_and_erase)
    assert read_status(lambda: SessionManager.open(), project_dir=cli.project).ok


@pytest.mark.row("S1-54")
def test_an_agent_whose_database_vanishes_shows_in_the_status(
    cli: CommandLine, session: Session, manager: SessionManager
) -> None:
    database = cli.project / ".agents" / "sessions.db"
    hidden = cli.project / ".agents" / "hidden.db"
    state = {"n": 1}
    with session.autosave(lambda: dict(state), interval=None) as saver:
        saver.flush()
        database.rename(hidden)
        state["n"] = 2
        saver.flush()
        hidden.rename(database)
        ended = run_process("status", cwd=cli.project)
        assert ended.returncode == 1
        assert b"was removed while it was open" in ended.stdout
    assert run_process("status", cwd=cli.project).returncode == 0


def test_it_works_on_postgresql(cli: CommandLine, postgres_url: str) -> None:
    with SessionManager.open(postgres_url, project_dir=cli.project) as manager:
        session = manager.create_session("tester")
        fail(session)
        assert cli("status", "--url", postgres_url).code == 1
        session.save_checkpoint(state={"n": 1})
        assert cli("status", "--url", postgres_url).code == 0
