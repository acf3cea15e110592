"""``holdfast pause``, ``resume`` and ``complete``."""

import shutil

import pytest

from holdfast import SessionManager, runner
from tests.cli.conftest import CommandLine

TASKS = [
    {"id": "1", "title": "Read", "status": "completed"},
    {"id": "2", "title": "Write it down", "status": "pending"},
]


@pytest.mark.row("S1-06", "S1-19")
def test_a_session_is_paused_resumed_and_completed(cli: CommandLine) -> None:
    saved = cli.save("one", {"n": 1, "task_state": {"tasks": TASKS}}, "--task", "Port it")
    paused = cli.json("pause", "-m", "lunch", "--until", "2999-01-01T12:30")
    assert paused["session"]["status"] == "paused"
    assert paused["session"]["pause_reason"] == "lunch"
    assert paused["session"]["paused_until"].startswith("2999-01-01T12:30")
    assert paused["checkpoint"]["session_id"] == saved["session_id"]
    lines = cli.ok("resume", saved["session_id"]).splitlines()
    assert lines[0].split() == ["resumed", saved["session_id"], "tester"]
    assert lines[1].split(maxsplit=1) == ["task", "Port it"]
    assert lines[2].startswith("paused")
    assert lines[3].split()[1] == paused["checkpoint"]["name"]
    assert lines[4].split(maxsplit=1) == ["tasks", "1 of 2 completed"]
    assert lines[5].split(maxsplit=1) == ["next", "Write it down"]
    found = cli.json("resume", "--checkpoint", "one")
    assert found["session"]["status"] == "active"
    assert found["session"]["paused_for"] is None
    assert found["session"]["lineage"] == []
    assert found["checkpoint"]["name"] == "one"
    assert cli.json("complete")["session"]["status"] == "completed"
    assert cli("resume", "--json").error["code"] == "nothing_to_resume"
    assert cli("resume", "--json", saved["session_id"]).error["code"] == "illegal_transition"
    assert cli("pause", "--json", saved["session_id"]).error["code"] == "illegal_transition"


def test_people_read_what_happened(cli: CommandLine) -> None:
    saved = cli.save("one", {"n": 1})
    lines = cli.ok("pause").splitlines()
    assert lines[0] == f"paused {saved['session_id']}"
    assert cli.ok("complete").startswith(f"completed {saved['session_id']}")


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 parked sessions were due"), (1, "1 parked session was due")]
)
def test_how_many_were_due_is_said_in_words(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, count: int, said: str
) -> None:
    cli.ok("init")
    due = [runner.Outcome("one", 0)] * count
    monkeypatch.setattr(runner, "start_due", lambda *_, **__: due)
    assert cli.ok("resume", "--when-due").splitlines()[0] == said


def test_a_session_that_is_paused_until_later_is_named_and_can_be_looked_at(
    cli: CommandLine,
) -> None:
    session_id = cli.save("one", {"n": 1}, "--task", "Port it")["session_id"]
    cli.ok("pause", "-m", "rate limit", "--until", "2999-01-01T08:30")
    assert "Port it" in cli.ok("brief")
    assert cli.json("brief", "--check")["preflight"]["checkpoint"] is not None
    assert cli.json("decide", "Wait")["decision"]["session_id"] == session_id
    again = cli.json("pause", "-m", "approval", "--until", "2999-01-02")["session"]
    assert (again["id"], again["pause_reason"]) == (session_id, "approval")
    # What goes on with it, or ends it, has to name it, and a hook starts with something else.
    assert cli.json("brief", "--if-any") == {"brief": None}
    assert cli.json("brief", "--if-any", "--check") == {"preflight": None}
    for command in ("resume", "complete"):
        answer = cli(command)
        assert answer.code == 3
        assert f"{session_id} is paused until 2999-01-02 00:00 UTC" in answer.err
    # Where there is another one, that is meant.
    with SessionManager.open(project_dir=cli.project, workspace=False) as manager:
        other = manager.create_session("tester").id
    assert cli.json("decide", "Go on")["decision"]["session_id"] == other
    cli.ok("complete")
    assert cli.json("resume", session_id)["session"]["status"] == "active"


def test_a_session_that_was_never_saved_can_be_resumed(cli: CommandLine) -> None:
    cli.ok("init")
    with SessionManager.open(project_dir=cli.project, workspace=False) as manager:
        session_id = manager.create_session("a").id
    assert "nothing saved yet" in cli.ok("resume")
    assert cli.json("resume", session_id)["checkpoint"] is None


def test_nothing_is_changed_when_a_program_holds_the_session(cli: CommandLine) -> None:
    from holdfast.processes import this_process
    from holdfast.testing.drafts import session as draft

    cli.ok("init")
    far = str(this_process()._replace(host="elsewhere"))
    with SessionManager.open(project_dir=cli.project, workspace=False) as manager:
        manager.store.create_session(draft(id="held", lease_owner=far))
        for command in ("pause", "resume", "complete"):
            refused = cli(command, "--json", "held")
            assert (refused.code, refused.error["code"]) == (4, "checkpoint_busy")
        assert manager.get_session("held").status == "active"
        assert cli.json("pause", "held", "--take-over")["session"]["status"] == "paused"


def test_a_checkpoint_to_go_on_from_stays_the_one_until_that_is_taken_back(
    cli: CommandLine,
) -> None:
    session_id = cli.save("one", {"n": 1})["session_id"]
    cli.save("two", {"n": 2})
    said = cli.ok("resume", session_id, "--checkpoint", "one").splitlines()
    assert said[1].split()[:2] == ["from", "one"]
    assert said[-1] == f"to take it back: holdfast undo --session {session_id}"
    with SessionManager.open(project_dir=cli.project, workspace=False) as manager:
        assert manager.resume_session(session_id).state == {"n": 1}
    saved = cli.json("save", "three")["checkpoint"]
    assert cli.json("show", saved["id"])["checkpoint"]["state"] == {"n": 1}
    cli.ok("undo", "--yes", "--session", session_id)
    with SessionManager.open(project_dir=cli.project, workspace=False) as manager:
        assert manager.get_session(session_id).state == {"n": 2}


def test_nothing_goes_back_where_resuming_goes_on_from_that_checkpoint_anyway(
    cli: CommandLine,
) -> None:
    cli.save("one", {"n": 1})
    cli.save("two", {"n": 2})
    before = cli.json("log")["checkpoints"]
    assert "undo" not in cli.ok("resume", "--checkpoint", "two")
    assert cli.json("log")["checkpoints"][0]["id"] == before[0]["id"]
    cli.ok("resume", "--checkpoint", "one")
    landed = cli.json("log")["checkpoints"]
    assert len(landed) == len(before) + 2
    assert "undo" not in cli.ok("resume", "--checkpoint", "one")
    assert cli.json("log")["checkpoints"][0]["id"] == landed[0]["id"]


def test_a_time_that_is_over_is_none_to_pause_until(cli: CommandLine) -> None:
    session_id = cli.save("one", {"n": 1})["session_id"]
    refused = cli("pause", session_id, "--until", "2020-01-01")
    assert refused.code == 2
    assert "2020-01-01T00:00:00 is over: in UTC it is 2" in refused.err
    assert cli.json("sessions")["sessions"][0]["status"] == "active"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--within", "5"],
        ["--limit", "3"],
        ["--when-due", "--checkpoint", "one"],
        ["--when-due", "--no-start"],
        ["--when-due", "--take-over"],
        ["a-session", "--when-due"],
    ],
)
def test_what_goes_with_parked_sessions_only_is_refused_elsewhere(
    cli: CommandLine, arguments: list[str]
) -> None:
    cli.save("one", {"n": 1})
    refused = cli("resume", *arguments)
    assert refused.code == 2
    assert "--when-due" in refused.err


def test_a_project_that_was_moved_has_its_sessions_still(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = cli.save("one", {"n": 1}, "--task", "Port it")["session_id"]
    moved = cli.project.rename(cli.project.parent / "moved")
    monkeypatch.chdir(moved)
    assert "Port it" in cli.ok("brief")
    assert cli.json("save", "two")["checkpoint"]["session_id"] == session_id
    assert cli.json("pause")["session"]["id"] == session_id
    assert cli.json("resume")["session"]["id"] == session_id
    with (
        SessionManager.open(project_dir=moved, workspace=False) as manager,
        manager.create_session("tester") as other,
    ):
        # What begins here comes before what came along.
        assert manager.latest_unfinished_session().id == other.id


def test_sessions_of_a_directory_that_is_still_there_are_named(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = cli.save("one", {"n": 1})["session_id"]
    copied = cli.project.parent / "copied"
    shutil.copytree(cli.project, copied)
    monkeypatch.chdir(copied)
    refused = cli("resume", "--json")
    assert refused.error["code"] == "nothing_to_resume"
    assert f"1 unfinished is of {cli.project}" in refused.error["message"]
    assert cli.json("resume", session_id)["session"]["id"] == session_id
    # A store elsewhere is not this project's own.
    database = str(copied / ".agents" / "sessions.db")
    empty = cli.project.rename(cli.project.parent / "empty")
    monkeypatch.chdir(empty)
    assert cli("resume", "--json", "--url", database).error["code"] == "nothing_to_resume"
