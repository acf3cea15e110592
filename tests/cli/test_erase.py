"""`holdfast erase` asks, erases for good, and says what is left."""

import json
from contextlib import closing
from pathlib import Path

import apsw

from holdfast import SessionManager
from holdfast.hooks.desk import Desk
from holdfast.runner import brief_path
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
