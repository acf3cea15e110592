"""A rollback is killed whose session was in memory: what it has overwritten survives whoever comes next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from holdfast import SessionManager, Workspace
from tests.faults.in_memory import WORK

TOP = Path(__file__).parents[2]


def killed_at(step: int, project: Path) -> bool:
    """Roll back in a process that is killed at a step; whether it got that far."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.in_memory", str(project), str(step)],
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": f"{TOP}{os.pathsep}{TOP / 'src'}"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def save_and_sweep(manager: SessionManager, number: int) -> None:
    (manager.project_dir / "later").write_text(str(number))
    with manager.create_session("worker") as session:
        session.save_checkpoint("later", state={"number": number})
    manager.gc()


def is_as_worked(path: Path) -> bool:
    return path.exists() and path.read_text() == WORK[path.name]


def work_in(workspace: Workspace, commit: str) -> dict[str, str]:
    found = WORK.keys() & workspace.files(commit)
    return {name: workspace.read(commit, name).decode() for name in found}


def drill(folder: Path, *, first: int, every: int) -> tuple[int, int]:
    """Kill a rollback at one step after another; return how often its work was in the files, and beside them."""
    in_files = beside = 0
    for step in count(first, every):
        project = folder / f"killed-at-{step}"
        project.mkdir()
        if not killed_at(step, project):
            return in_files, beside
        with SessionManager.open(project_dir=project) as manager:
            workspace = manager.workspace
            interrupted = workspace.is_interrupted()
            for number in range(2):
                save_and_sweep(manager, number)
            rescued = workspace.rescued()
            if all(is_as_worked(project / name) for name in WORK):
                in_files += 1
                assert rescued == set()
            elif interrupted:
                beside += 1
                # Others are how its finisher found the files.
                assert WORK in [work_in(workspace, one) for one in rescued]
                assert workspace.verify(rescued) == []
            assert not (workspace.store_dir / "journal.json").exists()
            assert not list(workspace.store_dir.glob("passing-*"))
    raise AssertionError("it never came to its end")


def test_what_a_rollback_killed_at_some_steps_has_overwritten_is_kept(tmp_path: Path) -> None:
    assert min(drill(tmp_path, first=5, every=14)) > 0


@pytest.mark.slow
def test_what_a_rollback_killed_at_any_step_has_overwritten_is_kept(tmp_path: Path) -> None:
    assert min(drill(tmp_path, first=1, every=1)) > 5
