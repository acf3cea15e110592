"""Whether a worker is still at work: yes, no, or nobody can tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agent import worker as module
from holdfast.agent.worker import at_work, is_at_work, this_worker
from holdfast.errors import AlreadyResumed
from holdfast.processes import started_at

ASK = "from holdfast.agent.worker import this_worker; print(this_worker())"


def hide_processes(monkeypatch: pytest.MonkeyPatch, empty: Path) -> None:
    """Have the system tell nothing about processes, as some do."""
    monkeypatch.setattr(module, "_PROC", empty)
    monkeypatch.setattr(module, "started_at", lambda _: None)


def test_this_process_knows_its_own_runs() -> None:
    me = this_worker()
    assert is_at_work(me, "r") is False
    with at_work("r"):
        assert is_at_work(me, "r") is True
        assert is_at_work(me, "other") is False
        with pytest.raises(AlreadyResumed), at_work("r"):
            pass
        assert is_at_work(me, "r") is True
    assert is_at_work(me, "r") is False
    assert is_at_work(None, "r") is False


@pytest.mark.parametrize("with_proc", [True, False], ids=["proc", "signals"])
def test_another_process_is_looked_up(
    with_proc: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_proc:
        hide_processes(monkeypatch, tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        other = this_worker() | {
            "pid": process.pid,
            "started": started_at(process.pid) if with_proc else None,
        }
        assert is_at_work(other, "r") is True
        process.kill()
        if with_proc:
            # Dead, although nobody has asked for its exit code yet.
            process.stdin.close()  # type: ignore[union-attr]
            while started_at(process.pid) is not None:
                pass
            assert is_at_work(other, "r") is False
    assert is_at_work(other, "r") is False
    if with_proc:
        # A later process with the same number is another one.
        assert is_at_work(this_worker() | {"started": "1"}, "r") is False


def test_a_process_elsewhere_cannot_be_known() -> None:
    assert is_at_work(this_worker() | {"place": "another boot/pid:[1]"}, "r") is None
    assert is_at_work({"place": this_worker()["place"], "pid": "x"}, "r") is None


def test_without_signals_nothing_can_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_processes(monkeypatch, tmp_path)
    other = this_worker() | {"pid": 1}
    assert is_at_work(other, "r") is True
    monkeypatch.setattr("holdfast.agent.worker.os.name", "nt")
    assert is_at_work(other, "r") is None
