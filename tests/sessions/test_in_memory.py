"""Files of sessions whose store is in memory: there as long as the store, and after that in nobody's way."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing
from holdfast.stores.memory import MemoryStore

TOP = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "file").write_text("one")
    return folder


def run(program: str, project: Path, *arguments: str) -> int:
    """Run a program in the project to its end; return how it ended."""
    paths = os.pathsep.join((str(TOP), str(TOP / "src")))
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=project, env={**os.environ, "PYTHONPATH": paths}, timeout=60, check=False,
    ).returncode  # fmt: skip


class Elsewhere(MemoryStore):
    """Stands for a store of somebody else's, which keeps its data where no path leads to."""

    passing = False

    def __init__(self) -> None:
        super().__init__()
        self.url = "elsewhere:"


def test_a_store_is_taken_for_one_that_lasts_unless_it_says_that_it_does_not(project: Path) -> None:
    program = (
        "from holdfast import SessionManager; from tests.sessions.test_in_memory import Elsewhere\n"
        "m = SessionManager(Elsewhere())\n"
        "m.create_session('w').save_checkpoint('one', state={})\n"
    )
    assert run(program, project) == 0
    (project / "file").write_text("two")
    with SessionManager.open(project_dir=project) as manager:
        manager.create_session("worker").save_checkpoint("one", state={})
        assert manager.gc().snapshots == 0
    # Another process with the same store knows what it needs no more.
    with SessionManager(Elsewhere(), project_dir=project) as theirs:
        assert theirs.gc().snapshots == 1


def test_sealing_changes_nothing_of_how_long_a_store_lasts(project: Path) -> None:
    keys = KeyRing.new()
    with SessionManager.open("memory:", project_dir=project, keys=keys) as manager:
        assert manager.store.passing
        checkpoint = manager.create_session("worker").save_checkpoint("one", state={})
        (project / "file").write_text("two")
        with SessionManager.open("memory:", project_dir=project) as other:
            other.create_session("worker").save_checkpoint("two", state={})
            other.gc()
        assert manager.workspace.read(str(checkpoint.record.workspace_commit), "file") == b"one"


def test_files_are_there_for_whoever_has_the_store(project: Path) -> None:
    store = MemoryStore()
    first = SessionManager(store, project_dir=project)
    session = first.create_session("worker", session_id="work")
    session.save_checkpoint("one", state={})
    session.close()
    del first, session
    gc.collect()
    (project / "file").write_text("two")
    with SessionManager.open("memory:", project_dir=project) as other:
        other.create_session("worker").save_checkpoint("two", state={})
        assert other.gc().snapshots == 0
    again = SessionManager(store, project_dir=project)
    again.resume_session("work").rollback("one")
    assert (project / "file").read_text() == "one"
    again.close()
