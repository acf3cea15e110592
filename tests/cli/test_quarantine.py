"""What is in quarantine is marked wherever checkpoints and sessions are listed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import apsw
import pytest

from holdfast import CheckpointConfig, SessionManager, SQLiteCheckpointSaver
from holdfast.errors import CheckpointQuarantined
from holdfast.sessions import Session
from tests.cli.conftest import CommandLine, run_process


@pytest.fixture
def session(manager: SessionManager) -> Session:
    session = manager.create_session("tester", session_id="session-1", task_description="a task")
    for number in range(3):
        session.save_checkpoint(f"n{number}", state={"n": number}, description=f"step {number}")
    return session


def damage(cli: CommandLine, *names: str) -> None:
    """Alter stored checkpoints behind Holdfast's back, and let verification find it."""
    relabel(cli, {name: f"altered {name}" for name in names})
    assert cli("verify", "--deep").code == 5


def relabel(cli: CommandLine, labels: Mapping[str, str | None]) -> None:
    # The library's own SQLite: two copies of it in one process would undo each other's locks.
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    for name, label in labels.items():
        database.execute("UPDATE session_checkpoints SET label = ? WHERE name = ?", (label, name))
    database.close()


def test_log_marks_what_is_in_quarantine(cli: CommandLine, session: Session) -> None:
    assert [one["quarantined"] for one in cli.json("log")["checkpoints"]] == [False] * 3
    assert "quarantine" not in cli.ok("log")
    damage(cli, "n1")
    found = {one["name"]: one["quarantined"] for one in cli.json("log")["checkpoints"]}
    assert found == {"n2": False, "n1": True, "n0": False}
    _, newest, bad, oldest = cli.ok("log").splitlines()
    assert bad.startswith("n1")
    assert bad.endswith("in quarantine, step 1")
    assert "quarantine" not in newest + oldest


def test_gc_says_that_it_frees_nothing(cli: CommandLine, session: Session) -> None:
    assert "quarantine" not in cli.ok("gc")
    damage(cli, "n1")
    said = cli.ok("gc")
    assert "\n1 checkpoint in quarantine: nothing is freed" in said
    assert "holdfast delete" in said
    assert cli.json("gc", "--dry-run")["gc"]["in_quarantine"] == 1
    session.close()
    cli.ok("delete", "n1", "--yes")
    assert "quarantine" not in cli.ok("gc")


def test_sessions_counts_what_is_in_quarantine(
    cli: CommandLine, manager: SessionManager, session: Session
) -> None:
    manager.create_session("tester", session_id="session-2").save_checkpoint("m0", state={})
    damage(cli, "n1", "n2")
    found = {one["id"]: one["quarantined"] for one in cli.json("sessions")["sessions"]}
    assert found == {"session-2": 0, "session-1": 2}
    _, other, shown = cli.ok("sessions").splitlines()
    assert "active, 2 in quarantine" in shown
    assert "quarantine" not in other


def test_status_says_what_resuming_does_and_what_to_do(cli: CommandLine, session: Session) -> None:
    assert "quarantine" not in cli.ok("status")
    assert cli.json("status")["status"]["quarantine"] == []
    damage(cli, "n1", "n2")
    out = cli.ok("status")
    assert "active, 2 in quarantine" in out
    assert (
        "quarantine  session session-1: n2 and 1 other checkpoint failed verification; "
        "resuming goes on from n0\n"
    ) in out
    assert "`holdfast verify --deep` looks again" in out
    status = cli.json("status")["status"]
    n2, n1, n0 = session.list_checkpoints()
    assert status["sessions"][0]["quarantined"] == 2
    assert status["quarantine"] == [
        {
            "session_id": "session-1",
            "namespace": "",
            "checkpoints": [{"id": n2.id, "name": "n2"}, {"id": n1.id, "name": "n1"}],
            "last_good": {"id": n0.id, "name": "n0"},
            "resumes_from": {"id": n0.id, "name": "n0"},
        }
    ]
    session.close()
    assert cli("resume", "--json").json["checkpoint"]["id"] == n0.id


def test_status_tells_of_sessions_beyond_its_limit_and_of_those_without_a_good_one(
    cli: CommandLine, manager: SessionManager, session: Session
) -> None:
    manager.create_session("tester", session_id="session-2")
    damage(cli, "n0", "n1", "n2")
    out = cli.ok("status", "--limit", "1")
    assert "session-1: n2 and 2 other checkpoints failed verification; there is no good" in out
    (found,) = cli.json("status", "--limit", "1")["status"]["quarantine"]
    assert found["resumes_from"] is None
    session.close()
    refused = cli("resume", "session-1")
    assert (refused.code, refused.out) == (5, "")
    assert "has no good checkpoint to go on from: checkpoint 'n2', like 2 before it," in refused.err
    assert "There is no checkpoint to go on from." in cli.ok("brief", "session-1")


def test_status_says_of_a_thread_what_its_saver_does(cli: CommandLine) -> None:
    cli.ok("init")
    line, aside = CheckpointConfig("line"), CheckpointConfig("line", namespace="aside")
    with SQLiteCheckpointSaver(cli.project / ".agents" / "sessions.db") as saver:
        saved = [
            saver.put(config, {"n": n}).checkpoint_id or ""
            for n in range(3)
            for config in (line, aside)
        ]
        first, _, second, good, newest, bad = saved
        saver.store.quarantine([first, second, bad])
        out = cli.ok("status")
        assert f"thread line: {second} and 1 other checkpoint failed verification; " in out
        assert f"the latest, {newest}, is good and goes on\n" in out
        assert (
            f"thread line, namespace aside: {bad} failed verification; going on is refused until a good "
            f"one is named, the last of which is {good}\n"
        ) in out
        assert "resuming" not in out
        # Which is what happens.
        assert saver.get_tuple(line) is not None
        with pytest.raises(CheckpointQuarantined, match=good):
            saver.get_tuple(aside)
        assert saver.get_tuple(replace(aside, checkpoint_id=good)) is not None
    found = {one["namespace"]: one for one in cli.json("status")["status"]["quarantine"]}
    assert found[""]["resumes_from"]["id"] == newest
    assert found["aside"]["resumes_from"] is None
    assert found["aside"]["last_good"]["id"] == good
    assert cli.json("status")["status"]["sessions"][0]["quarantined"] == 3


def test_status_tells_of_what_has_lost_its_session(cli: CommandLine, session: Session) -> None:
    session.close()
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("DELETE FROM sessions")
    database.close()
    assert cli("verify", "--deep").code == 5
    assert "session session-1: n2 and 2 other checkpoints failed verification; " in cli.ok("status")


def test_what_verifies_again_is_no_longer_marked(cli: CommandLine, session: Session) -> None:
    label = session.get_checkpoint("n2").label
    damage(cli, "n2")
    relabel(cli, {"n2": label})
    assert cli.json("log")["checkpoints"][0]["quarantined"] is True
    cli.ok("verify", "--deep")
    assert cli.json("log")["checkpoints"][0]["quarantined"] is False
    assert "quarantine" not in cli.ok("status") + cli.ok("sessions") + cli.ok("log")


def test_processes_on_postgresql_mark_it_too(cli: CommandLine, postgres_url: str) -> None:
    def run(*arguments: str, stdin: bytes = b"") -> Any:
        done = run_process(
            *arguments, "--json", "--url", postgres_url, cwd=cli.project, stdin=stdin
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    for name in ("one", "two"):
        run("save", name, "--agent-type", "x", "--state", "-", stdin=b'{"step": 1}')
    chosen = run("log")["checkpoints"][0]["id"]
    with SessionManager.open(postgres_url, project_dir=cli.project) as manager:
        manager.store.quarantine([chosen])
        assert [one.id for one in manager.list_quarantined()] == [chosen]
    assert [one["quarantined"] for one in run("log")["checkpoints"]] == [True, False]
    assert run("sessions")["sessions"][0]["quarantined"] == 1
    (found,) = run("status")["status"]["quarantine"]
    assert (found["checkpoints"][0]["id"], found["resumes_from"]["name"]) == (chosen, "one")


@pytest.mark.parametrize("damaged", [("n2",), ("n1", "n2")])
def test_whoever_gets_an_older_checkpoint_is_told_of_the_newer_ones(
    cli: CommandLine, session: Session, damaged: tuple[str, ...]
) -> None:
    names = sorted(damaged, reverse=True)
    session.close()
    for line in ("show", "show :a.txt", "diff --state", "handoff"):
        answer = cli(*line.split())
        assert "passed over" not in answer.err + answer.out
    damage(cli, *damaged)
    brief = cli.json("brief")["brief"]
    reasons = [one for one in brief["preflight"]["reasons"] if one["code"] == _QUARANTINED]
    assert brief["preflight"]["verdict"] == "unsafe"
    assert "UNSAFE" in brief["text"]
    for one, name in zip(reasons, names, strict=True):
        assert f"checkpoint {name} is newer" in one["message"]
        assert f"checkpoint {name} is newer" in brief["text"]
        assert "holdfast verify --deep" in brief["text"]
    for thing, *command in (
        ("checkpoint", "show"),
        ("checkpoint", "show", "--files"),
        ("diff", "diff", "--state"),
        ("handoff", "handoff"),
    ):
        found = cli.json(*command)[thing]["passed_over"]
        assert [(one["name"], one["code"]) for one in found] == [(n, _QUARANTINED) for n in names]
        said = cli(*command)
        text = said.err + said.out
        assert all(f"checkpoint {name} is newer and was passed over" in text for name in names)
        assert "`holdfast verify --deep`" in text
    assert cli.json("show", "n0")["checkpoint"]["passed_over"] == []
    assert "passed over" not in cli("diff", "n0", "--state").err
    said = cli("fork", "--as", "second")
    assert f"checkpoint {names[0]} is newer and was passed over" in said.err
    assert [one["name"] for one in cli.json("fork", "-s", "session-1")["passed_over"]] == names
    assert names[0] in cli("rollback", "-s", "session-1", "--dry-run").out
    cli("save", "again", "-s", "session-1", stdin=b'{"n": 3}')
    assert cli.json("brief", "session-1")["brief"]["preflight"]["verdict"] != "unsafe"
    assert cli.json("show", "-s", "session-1")["checkpoint"]["passed_over"] == []


_QUARANTINED = "checkpoint_quarantined"


def test_what_cannot_be_read_is_told_too_wherever_it_stands(
    cli: CommandLine, manager: SessionManager, session: Session
) -> None:
    ids = {one.name: one.id for one in session.list_checkpoints()}
    session.close()
    manager.close()
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("UPDATE session_checkpoints SET created_at = 'x' WHERE name IN ('n0', 'n1')")
    database.close()
    # Older than the newest good one, they are nothing that this lacks.
    assert cli.json("show")["checkpoint"]["passed_over"] == []
    damage(cli, "n2")
    with SessionManager.open() as opened:
        found = opened.get_session("session-1").passed_over()
    assert [one.id for one in found] == [ids["n2"], ids["n1"], ids["n0"]]
    assert [one.code for one in found] == [_QUARANTINED, *["checkpoint_unreadable"] * 2]
