"""A system that is not POSIX, as far as it can be had on one: its names are gone before anything is imported."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import stat
import sys

SOURCE, REPOSITORY = sys.argv[1:]
sys.path[:] = [SOURCE, REPOSITORY, *(one for one in sys.path if "platforms" not in one)]

from tests.platforms.posix import MODULES, NAMES  # noqa: E402

# What the standard library itself calls as long as it takes this for POSIX.
NEEDED = {"waitpid", "WNOHANG", "WIFSTOPPED", "WSTOPSIG", "SIGCHLD", "SIGPIPE", "SIGKILL", "uname"}
for module, owner in (("os", os), ("signal", signal)):
    for name in NAMES[module] - NEEDED:
        if hasattr(owner, name):
            delattr(owner, name)
for module in MODULES - {"posix", "pwd"}:
    sys.modules[module] = None  # type: ignore[assignment]
os.supports_dir_fd.clear()

_open = os.open


def open_no_directory(path, flags, mode=0o777, **rest):  # type: ignore[no-untyped-def]
    """As on Windows: a directory cannot be opened."""
    if not rest and not isinstance(path, int) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return _open(path, flags, mode, **rest)


os.open = open_no_directory


def import_everything() -> int:
    import holdfast

    count = 0
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        # Those of others need what they are made for.
        if not found.name.startswith(("holdfast.integrations.", "holdfast.skill.")):
            importlib.import_module(found.name)
            count += 1
    return count


def work_with_sessions() -> None:
    import pytest

    from holdfast import SessionManager
    from holdfast.errors import WorkspaceUnavailable
    from holdfast.processes import started_at

    with open("a file.txt", "w") as file:
        file.write("one")
    with SessionManager.open(redact=True) as manager:
        session = manager.create_session("worker", task_description="Work elsewhere")
        session.save_checkpoint("one", state={"n": 1, "large": ["x" * 500] * 500})
        assert session.latest_checkpoint().workspace_commit is None
        assert session.step("pay", lambda: 5) == 5
        session.pause(reason="approval")
        session.close()
        again = manager.resume_session(session.id)
        assert again.state["n"] == 1
        again.save_checkpoint("two", state={"n": 2})
        assert manager.verify().damaged == ()
        manager.gc()
        with pytest.raises(WorkspaceUnavailable, match="POSIX"):
            manager.workspace.snapshot()
        again.close()
        erased = manager.delete_session(session.id)
        assert erased.sessions == 1
    assert stat.S_ISREG(os.stat(".agents/sessions.db").st_mode)
    started_at(os.getpid())


def work_with_commands() -> None:
    from click.testing import CliRunner

    from holdfast.cli import holdfast

    for command in (
        ["init"],
        ["save", "one", "--agent-type", "worker", "--state", "-"],
        ["sessions"],
        ["log"],
        ["show", "one"],
        ["status"],
        ["brief"],
        ["decide", "Go on"],
        ["verify"],
        ["usage"],
        ["gc"],
        ["hook", "task.pre"],
        ["run", "--", sys.executable, "-c", "pass"],
        ["erase", "--all", "--yes"],
    ):
        result = CliRunner().invoke(holdfast, [command[0], "--json", *command[1:]], input="{}")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        # Half of a save is missing; who wants no files says so in the settings (workspace.capture).
        expected = 1 if command[0] == "status" else 0
        assert result.exit_code == expected, (command, result.output, result.stderr)
        json.loads(result.stdout)


assert import_everything() > 200
work_with_sessions()
work_with_commands()
print("all is well")
