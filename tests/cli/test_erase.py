"""`holdfast erase` asks, erases for good, and says what is left."""

import errno
import json
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import apsw
import pytest

from holdfast import SessionManager
from holdfast.errors import StoreBusy, WorkspaceUnavailable
from holdfast.hooks.desk import Desk
from holdfast.runner import brief_path
from holdfast.sessions.files import ProjectFiles
from holdfast.stores.sqlite import SqliteStore
from tests.cli.conftest import CommandLine
from tests.cli.terminal import on_terminal


def test_a_session_is_erased_and_the_others_stay(cli: CommandLine, manager: SessionManager) -> None:
    doomed = manager.create_session("tester", session_id="doomed-one")
    kept = manager.create_session("tester")
    doomed.save_checkpoint("one", state={"n": 1})
    doomed.close()
    erased = cli.json("erase", "--session", "doomed-one", "--yes")["erasure"]
    assert (erased["sessions"], erased["snapshots"], erased["left"]) == (1, 1, [])
    assert [one["id"] for one in cli.json("sessions")["sessions"]] == [kept.id]
    assert cli("erase", "--session", "doomed-one", "--yes").code == 3


def test_a_session_that_cannot_be_read_is_erased_by_its_id(
    cli: CommandLine, manager: SessionManager
) -> None:
    for name in ("damaged", "whole"):
        manager.create_session("tester", session_id=name).close()
        brief = brief_path(cli.project, name)
        brief.parent.mkdir(exist_ok=True)
        brief.write_text("what was said")
    with closing(apsw.Connection(str(cli.project / ".agents" / "sessions.db"))) as connection:
        connection.execute("UPDATE sessions SET created_at = 'no time' WHERE id = 'damaged'")
    drawn = on_terminal("erase", "--session", "damaged", cwd=cli.project, typed="y\n")
    assert "damaged  cannot be read" in drawn
    assert "erased 1 session" in drawn
    assert manager.unreadable_sessions() == {}
    assert [one.id for one in manager.list_sessions()] == ["whole"]
    assert not brief_path(cli.project, "damaged").exists()
    assert brief_path(cli.project, "whole").exists()


def test_all_takes_what_cannot_be_read_along(cli: CommandLine, manager: SessionManager) -> None:
    manager.create_session("tester", session_id="damaged").close()
    brief = brief_path(cli.project, "damaged")
    brief.parent.mkdir(exist_ok=True)
    brief.write_text("what was said")
    with closing(apsw.Connection(str(cli.project / ".agents" / "sessions.db"))) as connection:
        connection.execute("UPDATE sessions SET created_at = 'no time'")
    cli.ok("erase", "--all", "--yes")
    assert manager.unreadable_sessions() == {}
    assert not brief.exists()


def test_erasing_again_finishes_what_was_interrupted(
    cli: CommandLine, manager: SessionManager
) -> None:
    session = manager.create_session("tester", session_id="gone")
    (cli.project / "gone.txt").write_text("gone")
    session.save_checkpoint("one", state={"n": 1})
    session.close()
    # As a kill between the database and the files leaves it.
    assert manager.store.delete_session("gone")
    assert manager.file_usage().snapshots == 1
    answer = cli("erase", "--session", "gone", "--yes")
    assert (answer.code, "no session 'gone'" in answer.err) == (3, True)
    assert manager.file_usage().snapshots == 0


def test_a_tenant_is_erased_whole(cli: CommandLine) -> None:
    cli.save("mine", {"n": 1})
    cli.save("theirs", {"n": 2}, "--tenant", "other")
    assert cli.ok("erase", "--all", "--yes", "--tenant", "other").startswith("erased 1 session")
    assert cli.json("sessions", "--tenant", "other")["sessions"] == []
    assert len(cli.json("sessions")["sessions"]) == 1


def test_it_says_what_to_erase_and_never_guesses(cli: CommandLine) -> None:
    cli.save("one", {})
    for arguments in ((), ("--yes",), ("--all", "--session", "x", "--yes")):
        answer = cli("erase", *arguments)
        assert answer.code == 2
        assert "say what to erase" in answer.err
    assert "nobody to ask" in cli("erase", "--all").err
    assert "nobody to ask" in cli("erase", "--all", "--json").err
    assert len(cli.json("sessions")["sessions"]) == 1


def test_it_shows_what_goes_and_asks(cli: CommandLine) -> None:
    cli.save("one", {}, "--task", "Paint the fence")
    drawn = on_terminal("erase", "--all", cwd=cli.project, typed="n\n", code=1)
    assert "Paint the fence" in drawn
    assert "nothing was changed" in drawn
    assert len(cli.json("sessions")["sessions"]) == 1
    drawn = on_terminal("erase", "--all", cwd=cli.project, typed="y\n")
    assert "erased 1 session" in drawn
    assert cli.json("sessions")["sessions"] == []


def test_what_hooks_and_save_points_left_in_the_project_goes_too(
    cli: CommandLine, manager: SessionManager
) -> None:
    for name in ("gone", "kept"):
        session = manager.create_session(
            "tester", session_id=name, metadata={"agent_session": f"claude-code:{name}"}
        )
        session.close()
        desk = Desk(str(cli.project), "claude-code", name)
        desk.prepare()
        desk.append({"tool": "Edit", "paths": [name]})
        desk.write_note({"n": 1})
        folder = cli.project / ".claude" / "checkpoints" / f"checkpoint-{name}"
        folder.mkdir(parents=True)
        (folder / ".holdfast").write_text(json.dumps({"session": name, "checkpoint": "c"}))
    cli.ok("erase", "--session", "gone", "--yes")
    left = {path.name for path in _files(cli.project / ".agents" / "hooks")}
    assert left == {"claude-code-kept.jsonl", "claude-code-kept.json"}
    assert [path.name for path in (cli.project / ".claude" / "checkpoints").iterdir()] == [
        "checkpoint-kept"
    ]


def leave_traces(project: Path, session_id: str, *, of: SessionManager | None = None) -> Desk:
    """Leave what hooks, ``run`` and save points leave of a session; the store that a note names is ``of``."""
    desk = Desk(str(project), "claude-code", session_id)
    desk.prepare()
    desk.append({"tool": "Edit", "paths": [session_id]})
    if of is not None:
        saved = {"session_id": session_id, "url": of.store.url, "tenant": of.store.tenant}
        desk.write_note({"saved": saved | {"after_seq": 1}})
    brief = brief_path(project, session_id)
    brief.parent.mkdir(exist_ok=True)
    brief.write_text("what was said")
    folder = project / ".claude" / "checkpoints" / f"checkpoint-{session_id}"
    folder.mkdir(parents=True)
    (folder / ".holdfast").write_text(json.dumps({"session": session_id, "checkpoint": "c"}))
    return desk


def traces(project: Path) -> set[str]:
    """Name the sessions that something is left of."""
    found = {path.stem for path in _files(project / ".agents" / "briefs")}
    found |= {path.parent.name for path in _files(project / ".claude" / "checkpoints")}
    found |= {path.stem for path in _files(project / ".agents" / "hooks")}
    return {name.removeprefix("checkpoint-").removeprefix("claude-code-") for name in found}


def agent(session_id: str) -> dict[str, str]:
    return {"agent_session": f"claude-code:{session_id}"}


def test_an_erasure_that_the_store_refuses_removes_nothing(
    cli: CommandLine, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.create_session("tester", session_id="busy", metadata=agent("busy")).close()
    desk = leave_traces(cli.project, "busy", of=manager)
    before = _contents(cli.project)

    def refused(*_: object) -> NoReturn:
        raise StoreBusy("database is locked. Nothing was stored; a retry is safe")

    with monkeypatch.context() as during:
        during.setattr(SqliteStore, "delete_session", refused)
        during.setattr(SqliteStore, "erase_tenant", refused)
        for what in (("--session", "busy"), ("--all",)):
            answer = cli("erase", *what, "--yes")
            assert (answer.code, "a retry is safe" in answer.err) == (6, True)
    assert desk.peek() == [{"tool": "Edit", "paths": ["busy"]}]
    assert _contents(cli.project) == before
    cli.ok("erase", "--session", "busy", "--yes")
    assert traces(cli.project) == set()


def test_erasing_again_clears_the_project_too(cli: CommandLine, manager: SessionManager) -> None:
    manager.create_session("tester", session_id="kept", metadata=agent("kept")).close()
    for name in ("gone", "kept"):
        leave_traces(cli.project, name, of=manager)
    answer = cli("erase", "--session", "gone", "--yes")
    assert (answer.code, "no session 'gone'" in answer.err) == (3, True)
    assert traces(cli.project) == {"kept"}


@pytest.mark.parametrize("what", [("--session", "gone"), ("--all",)])
def test_erasing_again_in_another_project_of_the_store_clears_that_one(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: tuple[str, ...]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    url = str(tmp_path / "shared.db")
    with SessionManager.open(url, project_dir=other) as manager:
        manager.create_session("tester", session_id="gone", metadata=agent("gone")).close()
        leave_traces(other, "gone", of=manager)
    with SessionManager.open(project_dir=other) as manager:
        leave_traces(other, "kept", of=manager)
    cli.json("erase", *what, "--yes", "--url", url)
    assert traces(other) == {"gone", "kept"}
    monkeypatch.chdir(other)
    assert cli("erase", *what, "--yes", "--url", url).code == (0 if "--all" in what else 3)
    if "--all" in what:
        # Nobody knows any more that the rest was this store's; what has conversations is gone.
        assert _named(other / ".agents" / "hooks") == {"claude-code-kept"}
    else:
        assert traces(other) == {"kept"}


def test_what_a_session_that_cannot_be_read_left_goes_by_its_note(
    cli: CommandLine, manager: SessionManager
) -> None:
    manager.create_session("tester", session_id="damaged").close()
    leave_traces(cli.project, "damaged", of=manager)
    with closing(apsw.Connection(str(cli.project / ".agents" / "sessions.db"))) as connection:
        connection.execute("UPDATE sessions SET created_at = 'no time'")
    cli.ok("erase", "--session", "damaged", "--yes")
    assert traces(cli.project) == set()


def test_what_is_of_a_later_session_of_the_same_agent_stays(
    cli: CommandLine, manager: SessionManager
) -> None:
    for name in ("earlier", "later"):
        manager.create_session("tester", session_id=name, metadata=agent("later")).close()
    desk = leave_traces(cli.project, "later", of=manager)
    cli.ok("erase", "--session", "earlier", "--yes")
    assert desk.peek() != []
    cli.ok("erase", "--session", "later", "--yes")
    assert traces(cli.project) == set()


def test_what_could_not_be_freed_is_said(
    cli: CommandLine, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise WorkspaceUnavailable("git is not installed")

    def denied(desk: Desk) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", f"{desk.name}.json")

    manager.create_session("tester", session_id="gone", metadata=agent("gone")).close()
    leave_traces(cli.project, "gone", of=manager)
    monkeypatch.setattr(ProjectFiles, "sweep", refused)
    monkeypatch.setattr(Desk, "forget", denied)
    left = cli.json("erase", "--session", "gone", "--yes")["erasure"]["left"]
    assert any("git is not installed" in one for one in left)
    assert "claude-code-gone.json: Permission denied" in left
    again = cli("erase", "--session", "gone", "--yes")
    assert again.code == 3
    assert "git is not installed" in again.err
    assert "claude-code-gone.json: Permission denied" in again.err


def test_what_is_not_there_says_what_may_have_been_meant(
    cli: CommandLine, manager: SessionManager
) -> None:
    manager.create_session("tester", session_id="customer-42").close()
    answer = cli("erase", "--session", "customer-24", "--yes")
    assert (answer.code, "near matches: 'customer-42'" in answer.err) == (3, True)


def test_the_agent_that_a_session_names_leads_to_no_other_files(
    cli: CommandLine, manager: SessionManager
) -> None:
    agent = {"agent_session": "../../package:lock"}
    manager.create_session("tester", session_id="theirs", metadata=agent).close()
    (cli.project / ".agents" / "hooks").mkdir()
    (cli.project / "package-lock.json").write_text("mine")
    cli.ok("erase", "--session", "theirs", "--yes")
    assert (cli.project / "package-lock.json").read_text() == "mine"


def test_the_brief_for_its_command_goes_too(cli: CommandLine, manager: SessionManager) -> None:
    for name in ("gone", "../odd"):
        manager.create_session("tester", session_id=name).close()
        brief = brief_path(cli.project, name)
        brief.parent.mkdir(exist_ok=True)
        brief.write_text("what was said")
        cli.ok("erase", "--session", name, "--yes")
        assert not brief.exists()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _named(folder: Path) -> set[str]:
    return {path.stem for path in _files(folder)}


def _contents(project: Path) -> dict[Path, bytes]:
    folders = (project / ".agents" / "hooks", project / ".agents" / "briefs", project / ".claude")
    return {path: path.read_bytes() for one in folders for path in _files(one)}


def test_a_tenant_that_has_nothing_is_named(cli: CommandLine) -> None:
    with SessionManager.open(workspace=False) as manager:
        manager.create_session("tester")
    said = cli("erase", "--all", "--tenant", "typo", "--yes")
    assert (said.code, said.out) == (0, "erased 0 sessions\n")
    assert "there was none in tenant typo of " in said.err
    assert "there was none" not in cli("erase", "--all", "--yes").err
