import json
from datetime import datetime, timedelta

import apsw
import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine


def test_sessions_are_listed_newest_first_under_their_column_names(
    cli: CommandLine, manager: SessionManager
) -> None:
    manager.create_session("planner", session_id="one", metadata={"ticket": 7})
    manager.create_session("builder", session_id="two", task_description="Move to OAuth").complete()
    found = cli.json("sessions")["sessions"]
    assert [one["id"] for one in found] == ["two", "one"]
    assert found[0]["status"] == "completed"
    assert found[0]["task_description"] == "Move to OAuth"
    assert found[1]["metadata"] == {"ticket": 7}
    assert datetime.fromisoformat(found[0]["created_at"]).utcoffset() == timedelta(0)


def test_sessions_can_be_narrowed(cli: CommandLine, manager: SessionManager) -> None:
    manager.create_session("planner", session_id="one")
    manager.create_session("builder", session_id="two").complete()
    manager.create_session("builder", session_id="three")

    def ids(*arguments: str) -> list[str]:
        return [one["id"] for one in cli.json("sessions", *arguments)["sessions"]]

    assert ids("--status", "completed") == ["two"]
    assert ids("--agent-type", "builder") == ["three", "two"]
    assert ids("--limit", "1") == ["three"]
    assert ids("--agent-type", "nobody") == []


def test_people_see_a_table(cli: CommandLine, manager: SessionManager) -> None:
    manager.create_session("planner", session_id="one", task_description="a\nb")
    header, row = cli.ok("sessions").splitlines()
    assert header.split() == ["ID", "AGENT", "STATUS", "CREATED", "TASK"]
    assert row.startswith("one")
    assert row.endswith("a\\nb")


def test_an_empty_database_has_no_sessions(cli: CommandLine) -> None:
    cli.ok("init")
    assert cli.ok("sessions") == "no sessions\n"
    assert cli.json("sessions") == {"sessions": [], "unreadable": []}


def test_an_unknown_status_is_an_input_error(cli: CommandLine) -> None:
    answer = cli("sessions", "--status", "asleep")
    assert answer.code == 2
    assert "'asleep' is not one of 'active'" in answer.err


def test_tenants_do_not_see_each_other(cli: CommandLine) -> None:
    cli.ok("init")
    cli.save("mine", {}, "--tenant", "a")
    assert len(cli.json("sessions", "--tenant", "a")["sessions"]) == 1
    assert cli.json("sessions", "--tenant", "b")["sessions"] == []


@pytest.mark.row("S1-45", "S1-86")
def test_powershell_gets_its_own_kind_of_keys(cli: CommandLine, manager: SessionManager) -> None:
    session = manager.create_session("planner", task_description="t", metadata={"my_key": 1})
    session.save_checkpoint("one", state={"snake_case": {"stays_so": 1}})
    (found,) = cli.json("sessions", "--pascal-case")["Sessions"]
    assert (found["AgentType"], found["TaskDescription"]) == ("planner", "t")
    assert datetime.fromisoformat(found["CreatedAt"]) == session.created_at
    assert found["Metadata"] == {"my_key": 1}
    shown = cli.json("show", "--pascal-case")["Checkpoint"]
    assert shown["GitBranch"] is None
    assert shown["State"] == {"snake_case": {"stays_so": 1}}


def test_powershell_gets_its_own_kind_of_errors(cli: CommandLine) -> None:
    cli.ok("init")
    for arguments, code in ((("log", "none"), "session_not_found"), (("log", "--bad"), "usage")):
        answer = cli(*arguments, "--pascal-case")
        error = json.loads(answer.err)["Error"]
        assert (error["Code"], sorted(error), answer.out) == (code, ["Code", "Message"], "")


def test_a_session_that_cannot_be_read_is_named_apart(
    cli: CommandLine, manager: SessionManager
) -> None:
    for name in ("bad", "good"):
        manager.create_session("x", session_id=name).save_checkpoint("one", state={})
    # The library's own SQLite: two copies of it in one process would undo each other's locks.
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("UPDATE sessions SET created_at = 'junk' WHERE id = 'bad'")
    database.close()
    for command, code in (("sessions", 0), ("status", 5)):
        answer = cli(command)
        assert answer.code == code
        assert "good" in answer.out
        assert "bad" not in answer.out
        assert answer.err.startswith("unreadable session bad: the row of session 'bad'")
        assert "holdfast verify" in answer.err
        assert "--salvage" in answer.err
    [unreadable] = cli("sessions", "--json").json["unreadable"]
    assert (unreadable["id"], "junk" in unreadable["reason"]) == ("bad", True)
    [unreadable] = cli("status", "--json").json["status"]["unreadable"]
    assert unreadable["id"] == "bad"
    assert "one" in cli("log", "good").out
