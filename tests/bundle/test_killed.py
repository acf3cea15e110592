"""Killed with SIGKILL at any step, an import or a copy leaves all of a session or nothing to be seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from holdfast import SessionManager
from tests.bundle.conftest import Open, tree_digest, work
from tests.bundle.killed import STEPS
from tests.bundle.test_round_trip import rows_of

ROOT = Path(__file__).parents[2]
# Steps that only a restore has.
RESTORING = ("safety", "files", "landing")
ALL = [(step, number) for step in STEPS if step not in RESTORING for number in (1, 2)]
SOME = [("content", 2), ("within rows", 1), ("comparing", 3)]
EXTENT = pytest.mark.parametrize(
    "points", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"]
)


def attempt(point: tuple[str, int], project: Path, url: str, *what: str) -> int:
    """Run the program and return how it ended: killed, or 0 where it never came to that step."""
    step, number = point
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bundle.killed", step, str(number), str(project), url, *what],
        env=environment, cwd=project, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def url_of(backend: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if backend == "postgres":
        return cast("str", request.getfixturevalue("postgres_url"))
    return str(folder / ".agents" / "sessions.db")


def whole_or_absent(manager: SessionManager, session_id: str) -> bool:
    """See that a session is there with all that it has, or that nothing of it can be seen."""
    assert manager.verify().ok
    if manager.store.find_session(session_id) is not None:
        return True
    assert manager.list_sessions() == []
    assert manager.store.workspace_commits() == set()
    return False


@EXTENT
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_an_import_that_is_killed_left_all_or_nothing(
    backend: str,
    points: list[tuple[str, int]],
    open_at: Open,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    ours = open_at("a")
    session = work(ours)
    wanted = tree_digest(ours.project_dir)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    folder = tmp_path / "b"
    folder.mkdir()
    url = url_of(backend, folder, request)
    killed = 0
    seen = set()
    with open_at("b", url) as theirs:
        for point in points:
            if attempt(point, folder, url, "import", str(bundle)):
                killed += 1
            there = whole_or_absent(theirs, session.id)
            seen.add(there)
            if there:
                assert rows_of(theirs, session.id) == rows_of(ours, session.id)
                theirs.delete_session(session.id)
                theirs.gc()
        assert killed > len(points) // 2
        assert seen == {True, False}
        # What the kills left is in nobody's way, and a sweep takes it.
        theirs.gc()
        assert theirs.import_bundle(bundle, restore=True).outcome == "imported"
        assert theirs.verify().ok
        assert tree_digest(folder) == wanted


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
@pytest.mark.parametrize("point", [("safety", 1), ("files", 2), ("landing", 1)])
def test_a_restore_that_is_killed_is_finished_by_importing_again(
    backend: str,
    point: tuple[str, int],
    open_at: Open,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    ours = open_at("a")
    session = work(ours)
    wanted = tree_digest(ours.project_dir)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "mine.txt").write_text("not saved")
    before = tree_digest(folder)
    url = url_of(backend, folder, request)
    assert attempt(point, folder, url, "restore", str(bundle))
    with open_at("b", url) as theirs:
        report = theirs.import_bundle(bundle, restore=True)
        assert (report.outcome, report.restored) == ("present", True)
        assert tree_digest(folder) == wanted
        with theirs.hold_session(session.id) as held:
            held.undo()
            assert tree_digest(folder) == before
        assert theirs.verify().ok


@EXTENT
@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_a_copy_that_is_killed_goes_on_where_it_was(
    target: str,
    points: list[tuple[str, int]],
    open_at: Open,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    ours = open_at("a")
    sessions = [work(ours)]
    for number in range(2):
        extra = ours.create_session("tester", session_id=f"extra {number}")
        extra.save_checkpoint("one", state={"page": f"{number}" * 60_000})
        sessions.append(extra)
    folder = ours.project_dir
    source = str(folder / ".agents" / "sessions.db")
    url = url_of("postgres", folder, request) if target == "postgres" else str(tmp_path / "t.db")
    counts = []
    with open_at("a", url) as theirs:
        for point in points:
            attempt(point, folder, source, "copy", url)
            assert theirs.verify().ok
            counts.append(len(theirs.list_sessions()))
            for record in theirs.list_sessions():
                assert rows_of(theirs, record.id) == rows_of(ours, record.id)
        # Nothing is ever taken back, and each attempt came at least as far as the one before.
        assert counts == sorted(counts)
        reports = ours.copy_to(url)
        assert {one.outcome for one in reports} <= {"copied", "present"}
        assert {one.outcome for one in ours.copy_to(url)} == {"present"}
        assert {one.id for one in theirs.list_sessions()} == {
            one.id for one in ours.list_sessions()
        }
        held = theirs.resume_session(sessions[0].id)
        held.rollback("save 1")
        there = tree_digest(folder)
        held.close()
        sessions[0].rollback("save 1")
        assert tree_digest(folder) == there


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_of_many_who_import_at_once_one_does(
    backend: str, open_at: Open, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ours = open_at("a")
    session = work(ours)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    folder = tmp_path / "b"
    folder.mkdir()
    url = url_of(backend, folder, request)
    with open_at("b", url) as theirs:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tests.bundle.killed", "rows", "99", str(folder), url]
        workers = [
            subprocess.Popen(
                [*command, "import", str(bundle)],
                env=environment, cwd=folder, stdout=subprocess.PIPE, text=True,
            )
            for _ in range(3)
        ]  # fmt: skip
        said = sorted(worker.communicate(timeout=120)[0].strip() for worker in workers)
        assert said == ["imported", "present", "present"]
        assert rows_of(theirs, session.id) == rows_of(ours, session.id)
        assert theirs.verify().ok
