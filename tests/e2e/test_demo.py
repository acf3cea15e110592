"""The demonstration is a real run: two processes, one SIGKILL, one database."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.cli.demo.agent import STEPS, Orders, expected_state

SOURCE = Path(__file__).parents[2] / "src"


def _demo(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "demo", *arguments],
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(cwd), **environment},
        timeout=120,
        check=False,
    )


@pytest.mark.row("S0-01")
def test_a_killed_agent_continues_at_the_same_step_in_a_new_process(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--json", "--keep")
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)["demo"]
    first, second = report["workers"]
    assert report["ok"] is True
    assert first["exit_status"] == -9
    assert first["pid"] != second["pid"]

    # The evidence is read again here, from the journal and the database that the run left.
    directory = Path(report["directory"])
    lines = [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]
    ran = {pid: [one["step"] for one in lines if (one["pid"], one["event"]) == (pid, "ran")]
           for pid in (first["pid"], second["pid"])}  # fmt: skip
    saved_by_first = [
        one["step"] for one in lines if (one["pid"], one["event"]) == (first["pid"], "saved")
    ]
    assert saved_by_first
    assert len(saved_by_first) < len(STEPS)
    assert not set(saved_by_first) & set(ran[second["pid"]])
    assert ran[second["pid"]] == list(range(report["resumed_at_step"], len(STEPS) + 1))
    assert set(report["in_flight"]) == set(ran[first["pid"]]) - set(
        range(1, report["resumed_at_step"])
    )
    with SessionManager.open(project_dir=directory) as manager:
        session = manager.get_session(report["session_id"])
        assert session.status == "completed"
        assert session.latest_checkpoint().state == expected_state()
        assert len(session.list_checkpoints()) == len(STEPS) == report["checkpoints"]
    assert report["stored_bytes"] < report["size_bytes"] / 4
    assert 0 < report["save_ms"] < 5000
    assert 0 < report["resume_ms"] < 30000
    assert report["file_bytes"] > 0


def test_people_are_told_what_happened_and_nothing_is_left_behind(tmp_path: Path) -> None:
    # The user's own settings do not matter to it.
    done = _demo(tmp_path, HOLDFAST_URL="postgresql://nowhere.invalid/x")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for part in ("SIGKILL", "A new process", "Finished steps repeated:     0", "Open and resume:"):
        assert part in done.stdout
    assert "FAIL" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_it_can_run_on_another_store(tmp_path: Path) -> None:
    url = str(tmp_path / "mine.db")
    done = _demo(tmp_path, "--json", "--url", url)
    assert done.returncode == 0
    report = json.loads(done.stdout)["demo"]
    assert report["file_bytes"] is None
    with SessionManager.open(url) as manager:
        assert manager.get_session(report["session_id"]).status == "completed"


def test_a_store_that_cannot_be_used_is_one_line_of_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    done = _demo(tmp_path, "--url", str(tmp_path / "notes.txt"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: the agent's process failed: ")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_step_that_was_repeated_would_be_noticed(tmp_path: Path) -> None:
    from holdfast.cli.demo.run import Event, _report

    url = str(tmp_path / "x.db")
    with SessionManager.open(url) as manager:
        session = manager.create_session("x", session_id="demo")
        session.save_checkpoint("step-01", state={})
    orders = Orders(url, None, str(tmp_path), "demo", "", 0.0, resume=False)
    events = [
        Event("began", 1, 1), Event("ran", 1, 1), Event("saved", 1, 1, 2.0), Event("ran", 1, 2),
        Event("began", 2, 1), Event("ran", 2, 1), Event("saved", 2, 1, 2.0),
    ]  # fmt: skip
    report = _report(orders, events, ((1, -9), (2, 0)), None)
    assert report.repeated == (1,)
    assert not report.checks["no finished step was repeated"]
    assert not report.checks["it continued right after the last saved step"]
    assert not report.ok
