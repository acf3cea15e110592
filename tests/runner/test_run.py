"""Any program as a session: its files saved, its end recorded, its terminal left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager, runner
from holdfast.model import utc_now
from holdfast.processes import is_running, process_in
from tests.workspace.pictures import make_repository


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    make_repository(root)
    (root / "sub").mkdir()
    (root / "a.txt").write_text("before\n")
    return root


def holdfast(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=project, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@contextmanager
def working(
    project: Path, exit_code: int = 0, *, interval: str = "0.2"
) -> Iterator[subprocess.Popen[str]]:
    """A wrapped program that is at work; it changes a file and ends once it is waited for.

    Started again it ends at once.
    """
    program = (
        "import os, pathlib, time\n"
        "print('up', flush=True)\n"
        "while not pathlib.Path('go').exists() and 'HOLDFAST_BRIEF' not in os.environ:\n"
        "    time.sleep(0.01)\n"
        "pathlib.Path('a.txt').write_text('after\\n')\n"
        f"raise SystemExit({exit_code})\n"
    )
    command = [sys.executable, "-c", program]
    wrapper = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "--interval", interval, "--", *command],
        cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert wrapper.stdout is not None
        assert wrapper.stdout.readline() == "up\n"
        yield wrapper
    finally:
        (project / "go").touch()
        wrapper.kill()
        wrapper.communicate()


def let_end(project: Path, wrapper: subprocess.Popen[str]) -> tuple[int, str]:
    """Let a program at work come to its end; return how its wrapper ended, and what it said."""
    (project / "go").touch()
    _, said = wrapper.communicate(timeout=60)
    return wrapper.returncode, said


def test_a_program_that_ends_well_completes_its_session(project: Path) -> None:
    program = (
        "import os; open('a.txt', 'w').write('after\\n'); print(os.environ['HOLDFAST_SESSION'])"
    )
    done = holdfast(project, "run", "--task", "edit", "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert done.stdout.strip() == record.id
        assert (record.status, record.task_description) == ("completed", "edit")
        session = manager.get_session(record.id)
        last, *_, start = session.list_checkpoints()
        assert start.retention_class == "session"
        assert manager.workspace.read(start.workspace_commit or "", "a.txt") == b"before\n"
        assert manager.workspace.read(last.workspace_commit or "", "a.txt") == b"after\n"
        assert last.state["exit_code"] == 0


def test_a_program_that_fails_leaves_a_failure_checkpoint_and_its_code(project: Path) -> None:
    program = "open('a.txt', 'w').write('broken'); raise SystemExit(7)"
    done = holdfast(project, "run", "--", sys.executable, "-c", program)
    assert done.returncode == 7
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert record.status == "failed"
        failure = manager.get_session(record.id).latest_checkpoint()
        assert failure.checkpoint_type == "failure"
        assert failure.metadata is not None
        assert "exit code 7" in failure.metadata["error"]["message"]
        assert manager.workspace.read(failure.workspace_commit or "", "a.txt") == b"broken"
        # Nobody holds it any more.
        assert manager.resume_session(record.id).status == "active"


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGTERM, "failed"), (signal.SIGINT, "paused")]
)
def test_signals_reach_the_program(project: Path, signum: signal.Signals, status: str) -> None:
    program = "import time; print('up', flush=True); time.sleep(60)"
    wrapper = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "--", sys.executable, "-c", program],
        cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline() == "up\n"
    wrapper.send_signal(signum)
    _, complaint = wrapper.communicate(timeout=60)
    assert wrapper.returncode == -signum, complaint
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert record.status == status


def test_a_signal_while_the_program_is_being_started_reaches_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            super().__init__(command, **options)
            if command[0] == sys.executable:
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Slow)
    command = [sys.executable, "-c", "import time; time.sleep(20); raise SystemExit(3)"]
    with SessionManager.open(project_dir=project) as manager:
        assert runner.start(manager, command).exit_code == -signal.SIGTERM


def test_signals_that_are_ignored_are_ignored_in_the_program_too(project: Path) -> None:
    program = (
        "import os, signal\n"
        "for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):\n"
        "    print(one.name, signal.getsignal(one) == signal.SIG_IGN)\n"
        "os.kill(os.getppid(), signal.SIGHUP)\n"
    )
    ignoring = ["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]
    command = [sys.executable, "-m", "holdfast", "run", "--", sys.executable, "-c", program]
    done = subprocess.run(
        [*ignoring, *command],
        cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "SIGHUP", "True", "SIGINT", "True", "SIGQUIT", "True", "SIGTERM", "False",
    ]  # fmt: skip


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
def test_whatever_signal_ends_a_program_ends_the_wrapper(
    project: Path, signum: signal.Signals
) -> None:
    program = f"import os; os.kill(os.getpid(), {int(signum)})"
    done = holdfast(project, "run", "--", sys.executable, "-c", program)
    assert (done.returncode, done.stderr) == (-signum, "")
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert record.status == "failed"


@pytest.mark.row("S1-27")
def test_files_are_saved_while_it_works(project: Path) -> None:
    program = (
        "import pathlib, time\n"
        "pathlib.Path('a.txt').write_text('half way')\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        "pathlib.Path('a.txt').write_text('done')\n"
    )
    wrapper = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "holdfast",
            "run",
            "--interval",
            "0.2",
            "--",
            sys.executable,
            "-c",
            program,
        ],
        cwd=project,
    )
    try:
        with SessionManager.open(project_dir=project) as manager:
            end = time.monotonic() + 50
            contents: set[bytes] = set()
            while b"half way" not in contents and time.monotonic() < end:
                for record in manager.list_sessions():
                    for one in manager.get_session(record.id).list_checkpoints():
                        if one.workspace_commit is not None:
                            contents.add(manager.workspace.read(one.workspace_commit, "a.txt"))
                time.sleep(0.05)
            assert b"half way" in contents
        (project / "go").touch()
        assert wrapper.wait(60) == 0
    finally:
        wrapper.kill()
        wrapper.wait()


@pytest.mark.parametrize(("exit_code", "status"), [(0, "completed"), (3, "failed")])
def test_a_save_while_a_program_works_does_not_end_its_saves(
    project: Path, exit_code: int, status: str
) -> None:
    with working(project, exit_code) as wrapper:
        assert holdfast(project, "save", "between").returncode == 0
        assert let_end(project, wrapper) == (exit_code, "")
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert record.status == status
        session = manager.get_session(record.id)
        last = session.latest_checkpoint()
        assert last.state["exit_code"] == exit_code
        assert manager.workspace.read(last.workspace_commit or "", "a.txt") == b"after\n"
        # One line of checkpoints, with the one of the command in it.
        listed = session.list_checkpoints()
        assert [one.parent_id for one in listed[:-1]] == [one.id for one in listed[1:]]
        assert "between" in {one.name for one in listed}


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_pause_while_a_program_works_stays_a_pause(project: Path, exit_code: int) -> None:
    with working(project, exit_code) as wrapper:
        asked = ("pause", "-m", "rate limit", "--until", "2100-01-01")
        assert holdfast(project, *asked).returncode == 0
        assert let_end(project, wrapper) == (exit_code, "")
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert (record.status, record.pause_reason) == ("paused", "rate limit")
        assert record.paused_until is not None
        assert record.paused_until.year == 2100
        last = manager.get_session(record.id).latest_checkpoint()
        assert manager.workspace.read(last.workspace_commit or "", "a.txt") == b"after\n"
        assert manager.resume_session(record.id).status == "active"


def test_a_program_that_completes_its_session_is_told_of_no_failure(project: Path) -> None:
    completes = [sys.executable, "-m", "holdfast", "complete"]
    done = holdfast(project, "run", "--", *completes)
    assert (done.returncode, done.stderr) == (0, "")
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert record.status == "completed"


@pytest.mark.parametrize("held", [True, False])
def test_a_session_that_another_worker_has_resumed_is_left_to_it(project: Path, held: bool) -> None:
    with working(project, 3) as wrapper, SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        taken = manager.resume_session(record.id, take_over=True)
        last = taken.save_checkpoint("mine", state={"whose": "mine"})
        if not held:
            taken.close()
        exit_code, said = let_end(project, wrapper)
        assert exit_code == 3
        assert f"could not be recorded in session {record.id}" in said
        assert manager.get_session(record.id).latest_checkpoint().id == last.id
        assert manager.get_session(record.id).status == "active"
        if held:
            taken.save_checkpoint(state={"whose": "still mine"})


def test_the_exit_code_is_the_programs_own_when_its_end_cannot_be_recorded(project: Path) -> None:
    program = "import shutil; shutil.rmtree('.agents'); open('.agents', 'w'); raise SystemExit(7)"
    done = holdfast(project, "run", "--interval", "0", "--", sys.executable, "-c", program)
    assert done.returncode == 7
    assert "the end of the program could not be recorded" in done.stderr


def test_a_program_is_started_again_with_the_brief_where_it_was(project: Path) -> None:
    program = (
        "import os, pathlib, sys\n"
        "brief = os.environ.get('HOLDFAST_BRIEF')\n"
        "pathlib.Path('where').write_text(os.getcwd())\n"
        "if brief is None: sys.exit(3)\n"
        "pathlib.Path('brief').write_text(pathlib.Path(brief).read_text())\n"
    )
    failed = holdfast(
        project / "sub", "run", "--task", "say it", "--", sys.executable, "-c", program
    )
    assert failed.returncode == 3
    again = holdfast(project, "resume")
    assert again.returncode == 0, again.stderr
    assert "say it" in (project / "sub" / "brief").read_text()
    assert os.path.samefile((project / "sub" / "where").read_text(), project / "sub")
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert record.status == "completed"


def test_what_was_saved_by_hand_is_kept_over_every_start(project: Path) -> None:
    tasks = [
        {"id": "t1", "title": "parse", "status": "completed"},
        {"id": "t2", "title": "print", "status": "pending"},
    ]
    state = project.parent / "state.json"
    state.write_text(json.dumps({"task_state": tasks, "mine": 42}))
    with working(project, 3) as wrapper:
        assert holdfast(project, "save", "mid", "--state", str(state)).returncode == 0
        assert let_end(project, wrapper) == (3, "")
    for _ in range(2):
        assert holdfast(project, "resume").returncode == 3
        [brief] = (project / ".agents" / "briefs").iterdir()
        assert "print" in brief.read_text()
        with SessionManager.open(project_dir=project) as manager:
            [record] = manager.list_sessions()
            last = manager.get_session(record.id).latest_checkpoint()
            assert last.task_state["tasks"] == tasks
            assert (last.state["mine"], last.state["exit_code"]) == (42, 3)


def test_a_program_is_started_again_from_the_checkpoint_named_for_good(project: Path) -> None:
    with working(project, 3) as wrapper:
        for number in (1, 2):
            state = project.parent / f"{number}.json"
            state.write_text(json.dumps({"mine": number}))
            saved = holdfast(project, "save", f"by-hand-{number}", "--state", str(state))
            assert saved.returncode == 0
        assert let_end(project, wrapper) == (3, "")
    assert holdfast(project, "resume", "--checkpoint", "by-hand-1").returncode == 3
    assert holdfast(project, "resume").returncode == 3
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert manager.get_session(record.id).state["mine"] == 1


def test_the_session_of_a_killed_wrapper_is_free_and_its_program_is_not_started_twice(
    project: Path,
) -> None:
    with working(project, 3) as wrapper:
        wrapper.kill()
        wrapper.wait()
        for told in (holdfast(project, "resume", "--json"), holdfast(project, "resume", "--json")):
            assert told.returncode == 4
            assert json.loads(told.stderr)["error"]["code"] == "program_running"
        # Neither of them has touched the session, and nobody waits for the lease to expire.
        with SessionManager.open(project_dir=project) as manager:
            [marked] = manager.recover()
            assert (marked.status, marked.resumed_at) == ("interrupted", None)
            process = process_in((marked.metadata or {})["program_process"])
            assert process is not None
            assert is_running(process)
        (project / "go").touch()
        while is_running(process):
            time.sleep(0.01)
    again = holdfast(project, "resume")
    assert (again.returncode, again.stdout, again.stderr) == (3, "up\n", "")


def test_the_session_of_a_killed_wrapper_is_resumed_at_once(project: Path) -> None:
    with working(project) as wrapper:
        wrapper.kill()
        wrapper.wait()
        resumed = holdfast(project, "resume", "--no-start")
        assert resumed.returncode == 0, resumed.stderr
        assert holdfast(project, "resume").returncode == 4
        beside = holdfast(project, "resume", "--take-over")
        assert (beside.returncode, beside.stdout, beside.stderr) == (0, "up\n", "")


def test_a_parked_session_whose_program_still_runs_is_not_due(project: Path) -> None:
    # Without saves meanwhile nobody holds the session after the pause.
    with working(project, interval="0") as wrapper:
        with SessionManager.open(project_dir=project) as manager:
            [record] = manager.list_sessions()
            manager.hold_session(record.id).pause(until=utc_now() - timedelta(hours=1))
        due = holdfast(project, "resume", "--when-due", "--json")
        assert json.loads(due.stdout)["runs"] == []
        assert let_end(project, wrapper) == (0, "")
    due = holdfast(project, "resume", "--when-due", "--json")
    [run] = json.loads(due.stdout.removeprefix("up\n"))["runs"]
    assert run["exit_code"] == 0


def test_what_is_no_program_starts_nothing(project: Path) -> None:
    done = holdfast(project, "run", "--json", "--", "no-such-program-anywhere")
    assert done.returncode == 127
    assert json.loads(done.stdout or done.stderr)["error"]["code"] == "command_not_found"
    with SessionManager.open(project_dir=project) as manager:
        assert manager.list_sessions() == []


def test_a_directory_whose_name_begins_with_dots_is_within_the_project(project: Path) -> None:
    odd = project / "..odd"
    odd.mkdir()
    program = "import os; print(os.getcwd())"
    done = holdfast(odd, "run", "--", sys.executable, "-c", program)
    assert os.path.samefile(done.stdout.strip(), odd)


def test_a_program_is_started_in_the_project_from_outside_of_it(
    project: Path, tmp_path: Path
) -> None:
    program = "import os; print(os.getcwd())"
    where = ("--project-dir", str(project))
    done = holdfast(tmp_path, "run", *where, "--", sys.executable, "-c", program)
    assert os.path.samefile(done.stdout.strip(), project)


def test_the_path_of_a_program_is_relative_to_where_it_is_started(project: Path) -> None:
    program = project / "agent.sh"
    program.write_text("#!/bin/sh\ntest -e again\n")
    program.chmod(0o700)
    assert holdfast(project, "run", "--", "./agent.sh").returncode == 1
    (project / "again").touch()
    again = holdfast(project / "sub", "resume")
    assert again.returncode == 0, again.stderr


def test_a_session_whose_program_cannot_be_started_waits_for_it(project: Path) -> None:
    program = project / "agent.sh"
    program.write_bytes(b"\x7fELF of no machine")
    program.chmod(0o700)
    for command in (["run", "--json", "--", "./agent.sh"], ["resume", "--json"]):
        done = holdfast(project, *command)
        assert done.returncode == 127
        assert json.loads(done.stderr)["error"]["code"] == "command_not_found"
        with SessionManager.open(project_dir=project) as manager:
            [record] = manager.list_sessions()
            assert record.status == "paused"
    program.unlink()
    assert holdfast(project, "resume").returncode == 127
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    # Nobody holds it.
    assert holdfast(project, "resume").returncode == 0


@pytest.mark.row("B6")
def test_a_parked_session_is_started_once_when_its_time_has_come(project: Path) -> None:
    program = "import os, sys; os.path.exists('go') or sys.exit(5); open('ran', 'a').write('x')"
    assert holdfast(project, "run", "--", sys.executable, "-c", program).returncode == 5
    (project / "go").touch()
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        session = manager.resume_session(record.id)
        until = utc_now() + timedelta(seconds=6)
        session.pause("rate_limit", until=until)
    assert holdfast(project, "resume", "--when-due").returncode == 0
    assert not (project / "ran").exists()
    waited = holdfast(project, "resume", "--when-due", "--within", "30", "--json")
    assert json.loads(waited.stdout)["runs"] == [{"session_id": record.id, "exit_code": 0}]
    assert utc_now() >= until
    assert (project / "ran").read_text() == "x"
    again = holdfast(project, "resume", "--when-due", "--json")
    assert json.loads(again.stdout)["runs"] == []
    (project / ".agents" / "holdfast.toml").write_text("[run]\nwhen_due = false\n")
    assert holdfast(project, "resume", "--when-due").returncode == 2


@pytest.mark.parametrize("within", ["nan", "inf", "1e30"])
def test_a_wait_without_an_end_is_refused(project: Path, within: str) -> None:
    holdfast(project, "init")
    done = holdfast(project, "resume", "--when-due", "--within", within)
    assert (done.returncode, "within must be a number of seconds" in done.stderr) == (2, True)


def test_a_parked_session_that_is_damaged_does_not_hold_up_the_others(project: Path) -> None:
    program = "import os, sys; os.path.exists('go') or sys.exit(5); open('ran', 'a').write('x')"
    for _ in range(2):
        assert holdfast(project, "run", "--", sys.executable, "-c", program).returncode == 5
    (project / "go").touch()
    with SessionManager.open(project_dir=project) as manager:
        damaged, good = (one.id for one in manager.list_sessions())
        until = utc_now() + timedelta(seconds=1)
        for number, id_ in enumerate((damaged, good)):
            manager.resume_session(id_).pause("later", until=until + timedelta(seconds=number))
        listed = manager.get_session(damaged).list_checkpoints()
        manager.store.quarantine([one.id for one in listed])
    started = holdfast(project, "resume", "--when-due", "--within", "30", "--json")
    assert json.loads(started.stdout)["runs"] == [{"session_id": good, "exit_code": 0}]
    assert (project / "ran").read_text() == "x"
    with SessionManager.open(project_dir=project) as manager:
        # The lease of the attempt is still there; it would expire by itself.
        manager.hold_session(damaged).close(release=True)
    told = holdfast(project, "resume", "--when-due")
    assert told.returncode == 5
    assert f"session {damaged} has no good checkpoint to go on from" in told.stderr
