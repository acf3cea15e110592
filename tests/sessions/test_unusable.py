"""A private store that cannot be used: said with what to do, and the state is kept all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.errors import HoldfastError, WorkspaceError, WorkspaceRefused
from tests.workspace.children import run_python


def a_file(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))
    home.write_text("")


def leading_nowhere(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))
    home.symlink_to("nowhere")


def a_directory_for_a_file(name: str) -> Callable[[Path], None]:
    def put(home: Path) -> None:
        (home / name).unlink()
        (home / name / "inside").mkdir(parents=True)

    return put


def a_file_for_a_directory(name: str) -> Callable[[Path], None]:
    def put(home: Path) -> None:
        (home / name).rename(home / "away")
        (home / name).write_text("")

    return put


UNUSABLE = {
    "workspace.git is a file": a_file,
    "workspace.git leads nowhere": leading_nowhere,
    "config is a directory": a_directory_for_a_file("config"),
    "use.lock is a directory": a_directory_for_a_file("use.lock"),
    "refs is a file": a_file_for_a_directory("refs"),
    "info is a file": a_file_for_a_directory("info"),
}


@pytest.fixture(params=UNUSABLE)
def why(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path, why: str) -> Path:
    """A project whose session has one checkpoint with files and can have no further one."""
    (tmp_path / "a.txt").write_text("one")
    with SessionManager.open(project_dir=tmp_path) as manager:
        manager.create_session("a", session_id="s").save_checkpoint("one", state={"n": 1})
        home = manager.workspace.store_dir
    UNUSABLE[why](home)
    (tmp_path / "a.txt").write_text("two")
    return tmp_path


def test_the_state_is_saved_without_files_and_the_reason_is_told(project: Path, why: str) -> None:
    with SessionManager.open(project_dir=project) as manager:
        session = manager.resume_session("s")
        saved = session.save_checkpoint("two", state={"n": 2})
        assert (saved.workspace_commit, saved.state) == (None, {"n": 2})
        assert saved.files is not None
        assert why.partition(" ")[0] in saved.files["problem"]


def test_what_needs_files_is_refused_and_what_does_not_goes_on(project: Path, why: str) -> None:
    with SessionManager.open(project_dir=project) as manager:
        session = manager.resume_session("s")
        assert session.state == {"n": 1}
        with pytest.raises(HoldfastError, match=why.partition(" ")[0]) as refused:
            session.rollback("one")
        assert isinstance(refused.value, (WorkspaceError, WorkspaceRefused))
        report = manager.verify(deep=True)
        assert not report.damaged
        assert report.notes or why.startswith("use.lock")
    assert (project / "a.txt").read_text() == "two"


def test_an_erasure_says_that_it_erased_and_names_what_is_left(project: Path, why: str) -> None:
    with SessionManager.open(project_dir=project) as manager:
        done = manager.delete_session("s")
        assert done.sessions == 1
        assert any(why.partition(" ")[0] in one for one in done.left)
        assert manager.list_sessions() == []


# The owner of what is closed to its owner, but not its master: no one else can go where the code lies.
NO_RIGHTS = """
import ctypes, os
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    version, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(version, rights) == 0
    rights[0] &= ~0b110
    assert libc.capset(version, rights) == 0
from holdfast import SessionManager
from holdfast.errors import WorkspaceUnavailable
(root / "a.txt").write_text("one")
with SessionManager.open(project_dir=root) as manager:
    session = manager.create_session("a", session_id="s")
    session.save_checkpoint("one", state={"n": 1})
    home = manager.workspace.store_dir
    os.chmod(home / FOLDER, 0)
    saved = session.save_checkpoint("two", state={"n": 2})
    assert "chmod -R u+rwX" in saved.files["problem"], saved.files
    for what in (
        lambda: session.rollback("one"),
        lambda: manager.list_files(session.load_checkpoint("one")),
        lambda: manager.workspace.usage(),
        lambda: manager.export_session("s", root / "s.tar"),
    ):
        try:
            what()
        except WorkspaceUnavailable as error:
            assert "workspace.git" in str(error), error
        else:
            raise AssertionError(what)
    report = manager.verify(deep=True)
    assert not report.damaged and "workspace.git" in report.notes[0], report
    assert session.brief() and session.preflight()
    session.close()
    done = manager.delete_session("s")
    assert done.sessions == 1 and "workspace.git" in done.left[0], done
    os.chmod(home / FOLDER, 0o700)
"""


@pytest.mark.parametrize("folder", ["", "objects"])
def test_a_store_without_rights_is_told_of_by_whatever_needs_it(
    tmp_path: Path, folder: str
) -> None:
    run_python(NO_RIGHTS.replace("FOLDER", repr(folder)), tmp_path)
