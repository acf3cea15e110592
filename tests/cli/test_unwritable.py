"""Where nothing can be written: every command says so in the same way, and leaves nothing behind."""

import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine

NOBODY = 65534
posix = pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs POSIX users")

COMMANDS = {
    "init": ("init",),
    "export": ("export", "work", "-o", "out.tar"),
    "handoff": ("handoff", "--write"),
    "log": ("handoff", "--session-log"),
    "issue": ("handoff", "--issue", "7"),
}


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that others may look into, with nothing in it yet."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        monkeypatch.chdir(root)
        yield root
        for path in (root, *root.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)


def as_somebody_else(work: Callable[[], None]) -> None:
    """Run ``work`` in a child that is not the superuser; what goes wrong there fails here."""
    with warnings.catch_warnings():
        # Forking beside threads; Python 3.12 warns of it.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setuid(NOBODY)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@posix
@pytest.mark.parametrize("name", ["init", "export", "handoff", "log"])
def test_a_directory_that_cannot_be_written_is_said_to_be_read_only(
    closed: Path, name: str
) -> None:
    cli = CommandLine(closed)
    with SessionManager.open(closed / ".agents" / "sessions.db") as manager:
        manager.create_session("x", session_id="work").save_checkpoint("one", state={})
    (closed / ".agents" / "holdfast.toml").write_text('[handoff]\nfile = "HANDOFF.md"\n')
    # Once where it can be done: whoever is not the superuser may not be able to import what it takes.
    cli.ok(*COMMANDS[name])
    shutil.rmtree(closed / ".agents" / "sessions", ignore_errors=True)
    for made in ("out.tar", "HANDOFF.md"):
        (closed / made).unlink(missing_ok=True)
    if os.getuid() == 0:
        for path in (closed / ".agents", *(closed / ".agents").rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    (closed / ".agents" / "sessions").mkdir()
    (closed / ".agents" / "sessions").chmod(0o555)
    if name == "init":
        shutil.rmtree(closed / ".agents")
    closed.chmod(0o555)
    before = sorted(closed.rglob("*"))

    def call() -> None:
        answer = cli(*COMMANDS[name], "--json")
        assert answer.code == 6, answer
        assert answer.error["code"] == "store_read_only"
        assert "check the permissions" in answer.error["message"]
        assert not any(one in answer.error["message"] for one in ("Errno", ".part", ".holdfast-"))

    as_somebody_else(call)
    closed.chmod(0o755)
    assert sorted(closed.rglob("*")) == before


@pytest.mark.parametrize("name", ["log", "issue"])
def test_a_file_in_the_place_of_a_directory_is_told(cli: CommandLine, name: str) -> None:
    cli.save("one", {})
    folder = cli.project / ".agents" / "sessions"
    if name == "issue":
        folder.mkdir()
        folder /= "handoffs"
    folder.write_text("mine")
    answer = cli(*COMMANDS[name], "--json")
    assert (answer.code, answer.error["code"]) == (6, "store_unavailable")
    assert "Not a directory" in answer.error["message"]
    assert folder.read_text() == "mine"
