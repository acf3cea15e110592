"""Processes are known by id and start; only those that are meant are ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.autosave.children import Child, end_children, find_child, started_at
from holdfast.errors import InvalidFilter
from holdfast.sessions import Session


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def found(process: Any) -> Child:
    child = find_child(process)
    assert child is not None
    return child


def test_a_process_is_asked_to_end(sleeper: subprocess.Popen[bytes]) -> None:
    assert end_children([found(sleeper)], grace=30) == []
    assert sleeper.returncode == -15


def test_a_deaf_process_is_killed() -> None:
    program = (
        "import signal, time; signal.signal(15, signal.SIG_IGN)\n"
        "print('deaf', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert end_children([found(process)], grace=0.1) == []
        assert process.wait() == -9


@pytest.mark.row("S1-15")
def test_a_process_that_got_the_id_of_another_is_left_alone(
    sleeper: subprocess.Popen[bytes],
) -> None:
    # The id is the sleeper's now; it was registered for a process that started earlier.
    earlier = replace(found(sleeper.pid), started="1")
    assert not earlier.is_running()
    assert end_children([earlier], grace=0) == []
    assert sleeper.poll() is None


def test_a_process_that_has_ended_is_no_child() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert find_child(process) is None
    assert started_at(process.pid) is None


def test_a_process_that_nobody_waited_for_counts_as_ended() -> None:
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert started_at(child) is None
    os.waitpid(child, 0)


@pytest.mark.parametrize("wrong", [0, 1, -1, True, "7", None], ids=repr)
def test_what_is_no_process_is_refused(session: Session, wrong: Any) -> None:
    saver = session.autosave(dict)
    with pytest.raises(InvalidFilter, match="process"):
        saver.register_child(wrong)


def test_this_process_is_no_child_of_its_own(session: Session) -> None:
    with pytest.raises(InvalidFilter, match="other than this one"):
        session.autosave(dict).register_child(os.getpid())


def test_a_normal_end_of_the_block_ends_children(
    session: Session, sleeper: subprocess.Popen[bytes]
) -> None:
    with session.autosave(dict) as saver:
        saver.register_child(sleeper)
        assert sleeper.poll() is None
    assert sleeper.returncode == -15


def test_a_process_that_may_not_be_ended_is_reported(
    session: Session,
    sleeper: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def forbidden(pid: int, signum: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with session.autosave(lambda: {"n": 1}) as saver:
        saver.register_child(sleeper)
        monkeypatch.setattr(os, "kill", forbidden)
    monkeypatch.undo()
    assert f"process {sleeper.pid} may not be ended" in capsys.readouterr().err
    assert [one.level for one in session.logs()] == ["warning"]
    assert saver.last_error is None
