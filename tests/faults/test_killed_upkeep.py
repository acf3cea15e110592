"""Pruning, sweeping and erasing, killed at their steps: what is kept stays whole, and the next one finishes the work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.errors import SessionNotFound
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


def killed_at(step: int, project: Path, *session: str) -> bool:
    """Tidy a project up, or erase a session, in a process that is killed at a step; whether it got that far."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.upkeep", str(project), str(step), *session],
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


GONE = "gone-with-the-wind"


@pytest.fixture
def with_one_to_erase(project: Path) -> Path:
    """The project with a second session, whose file is in the last snapshot only."""
    with SessionManager.open(project_dir=project) as manager:
        session = manager.create_session("worker", session_id="gone")
        (project / "gone.txt").write_text(GONE)
        session.save_checkpoint("last", state={"text": os.urandom(9_000).hex()})
        (project / "gone.txt").unlink()
        entry = Entry(at="2026-01-01T00:00:00Z", message=GONE, session_id=session.id)
        FallbackLog(project).append(entry)
    return project


def left_of_it(project: Path) -> list[str]:
    """Name what the project still has of the erased session."""
    agents = project / ".agents"
    objects = subprocess.run(
        [
            "git",
            f"--git-dir={agents / 'workspace.git'}",
            "cat-file",
            "--batch-all-objects",
            "--batch",
        ],
        capture_output=True,
        check=True,
    )
    found = ["a snapshot"] if GONE.encode() in objects.stdout else []
    return found + [entry.message for entry in FallbackLog(project).entries()]


def erase_drill(project: Path, *, every: int) -> int:
    """Kill an erasure at one step after another, and erase again; return how often it was found unfinished."""
    unfinished = 0
    for step in range(1, MOST_STEPS, every):
        copy = project.with_name("copy")
        shutil.copytree(project, copy, symlinks=True)
        killed = killed_at(step, copy, "gone")
        unfinished += bool(left_of_it(copy))
        with SessionManager.open(project_dir=copy) as manager:
            there = manager.store.find_session("gone") is not None
            with nullcontext() if there else pytest.raises(SessionNotFound):
                manager.delete_session("gone")
            log = copy / ".agents" / "sessions.db-wal"
            assert not log.exists() or log.stat().st_size == 0
        assert left_of_it(copy) == []
        check(copy)
        shutil.rmtree(copy)
        if not killed:
            return unfinished
    raise AssertionError("it never came to its end")


def test_erasing_again_finishes_what_was_killed_at_some_steps(with_one_to_erase: Path) -> None:
    assert erase_drill(with_one_to_erase, every=12) > 2


@pytest.mark.slow
def test_erasing_again_finishes_what_was_killed_at_every_step(with_one_to_erase: Path) -> None:
    assert erase_drill(with_one_to_erase, every=1) > 20
