"""Pruning and sweeping, killed at their steps: what is kept stays whole, and the next one finishes the work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import SessionManager
from tests.faults.upkeep import KEPT, tidy

TOP = Path(__file__).parents[2]
SAVED = 6
# More than it has; the drill ends by itself when the work was done.
MOST_STEPS = 500


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose checkpoints have states and files of their own."""
    root = tmp_path / "project"
    root.mkdir()
    with SessionManager.open(project_dir=root, create=True) as manager:
        session = manager.create_session("worker", session_id="work")
        for number in range(SAVED):
            (root / "file.txt").write_text(f"content {number}\n" * 2_000)
            session.save_checkpoint(f"c{number}", state=state(number), retention_class="step")
    return root


def state(number: int) -> dict[str, object]:
    return {"number": number, "text": f"state {number} " * 2_000}


def killed_at(step: int, project: Path) -> bool:
    """Tidy a project up in a process that is killed at a step; whether it got that far."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.upkeep", str(project), str(step)],
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": f"{TOP}{os.pathsep}{TOP / 'src'}"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def check(project: Path) -> set[str]:
    """See that all there is can be read and restored; return the names."""
    with SessionManager.open(project_dir=project) as manager:
        report = manager.verify(deep=True)
        assert report.ok, report.damaged
        session = manager.resume_session("work")
        found = {one.name for one in session.list_checkpoints()}
        kept = {f"c{number}" for number in range(SAVED - KEPT, SAVED)}
        assert kept <= found
        for name in kept:
            number = int(name[1:])
            assert session.get_checkpoint(name).state == state(number)
            session.rollback(name)
            assert (project / "file.txt").read_text() == f"content {number}\n" * 2_000
        return found


def drill(project: Path, *, every: int) -> int:
    """Kill the upkeep at one step after another, each time in a fresh copy; return how many were tried."""
    for tried, step in enumerate(range(1, MOST_STEPS, every), 1):
        copy = project.with_name("copy")
        shutil.copytree(project, copy, symlinks=True)
        killed = killed_at(step, copy)
        check(copy)
        tidy(copy)
        check(copy)
        with SessionManager.open(project_dir=copy) as manager:
            again = manager.gc(dry_run=True)
            assert (again.chunks, again.held_again) == (0, 0)
        shutil.rmtree(copy)
        if not killed:
            return tried
    raise AssertionError("it never came to its end")


def test_upkeep_killed_at_some_steps(project: Path) -> None:
    assert drill(project, every=12) > 2


@pytest.mark.slow
def test_upkeep_killed_at_every_step(project: Path) -> None:
    assert drill(project, every=1) > 20
