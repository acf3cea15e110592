"""A database where nothing can be written: it is read as it is, with its log, and says that it cannot be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from holdfast import SessionManager
from holdfast.cli import holdfast
from holdfast.errors import StoreReadOnly, StoreUnavailable
from holdfast.stores import sqlite_file
from holdfast.stores.sqlite import SqliteStore
from tests.stores.test_sqlite_file import in_child

pytestmark = pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs POSIX users")


@pytest.fixture
def project() -> Iterator[Path]:
    """A directory that strangers can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
        for folder, _, _ in os.walk(directory):
            with suppress(OSError):
                os.chmod(folder, 0o755)


def save(project: Path) -> Path:
    (project / "file.txt").write_text("kept")
    with SessionManager.open(project_dir=project) as manager:
        manager.create_session("worker", session_id="one").save_checkpoint("a", state={"n": 1})
    return project / ".agents" / "sessions.db"


def as_a_stranger(project: Path, work: Callable[[], None]) -> None:
    """Do something as one who may read everything in a project and write nothing."""
    for folder, _, names in os.walk(project):
        os.chmod(folder, 0o555)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o444)
    before = {path: path.stat().st_mtime_ns for path in project.rglob("*")}

    def change_and_work() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        os.environ["HOME"] = "/nonexistent"
        work()

    in_child(change_and_work)
    assert {path: path.stat().st_mtime_ns for path in project.rglob("*")} == before


def test_it_is_read_and_not_written(project: Path) -> None:
    path = save(project)

    def look() -> None:
        with SessionManager.open(path, project_dir=project, workspace=False) as manager:
            assert manager.get_session("one").get_checkpoint("a").name == "a"
            with pytest.raises(StoreReadOnly, match="check the permissions"):
                manager.create_session("worker")

    as_a_stranger(project, look)


def test_what_stands_in_a_log_alone_is_read(project: Path) -> None:
    path = save(project)
    copy = project / "copy" / "s.db"
    copy.parent.mkdir()
    with SessionManager.open(path, project_dir=project, workspace=False) as manager:
        manager.create_session("worker", session_id="logged")
        for ending in ("", "-wal"):
            shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")

    def look() -> None:
        with SessionManager.open(copy, project_dir=project, workspace=False) as manager:
            assert manager.get_session("logged").id == "logged"
        immutable = apsw.Connection(
            f"file:{copy}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        found = immutable.execute("SELECT id FROM sessions").fetchall()
        assert ("logged",) not in found, "the log is not needed to find it"

    as_a_stranger(project, look)


@pytest.mark.parametrize("arguments", [["verify"], ["verify", "--deep"], ["doctor"]])
def test_commands_that_only_read_say_the_same_as_elsewhere(
    project: Path, arguments: list[str]
) -> None:
    save(project)

    def run() -> None:
        result = CliRunner().invoke(holdfast, [*arguments, "--project-dir", str(project)])
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        if arguments == ["doctor"]:
            assert "ok      structure: the database file is sound" in result.stdout
            assert "ok      locks: none are needed" in result.stdout
        else:
            assert "1 checkpoint read back, every digest is right" in result.stdout

    as_a_stranger(project, run)


def test_what_somebody_else_writes_meanwhile_is_noticed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(project)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "is_still", lambda path: True)
        still = SqliteStore(path, ensure_schema=False)
    with still:
        assert still.find_session("one") is not None
        with SessionManager.open(path, project_dir=project, workspace=False) as manager:
            manager.create_session("worker", session_id="two")
            with pytest.raises(StoreUnavailable, match="open it again"):
                still.find_session("one")
    with SessionManager.open(path, project_dir=project, workspace=False) as manager:
        assert manager.get_session("two").id == "two"
