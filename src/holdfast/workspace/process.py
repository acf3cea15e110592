"""Running git, and nothing but git.

Every call goes through here, in the environment that `holdfast.workspace.environment` makes: a repository
may come from strangers, and must not get anything executed.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import get_ident
from typing import IO, Final, cast

from holdfast.errors import (
    HoldfastError,
    SnapshotCorrupt,
    WorkspaceFull,
    WorkspaceTimeout,
    WorkspaceUnavailable,
)
from holdfast.workspace.environment import inherited, variables_for

# The open lock files of this process, each with the thread that has it. Every git of that thread holds it too: the
# lock lasts until the last git has ended, so that whoever comes after a killed process does not meet a git of
# its that is still writing.
HELD: Final[dict[int, int]] = {}
# What the system ends a process with that lets a file grow beyond its limit; not on Windows.
_TOO_LARGE: Final = getattr(signal, "SIGXFSZ", 0)
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# So long a command may be silent before there is doubt.
_PATIENCE: Final = 2.0
# What git prints of two million files.
_MOST_LISTED: Final = 256 * 1024 * 1024
_READ: Final = 1 << 20
# Git compares two snapshots to the end before it prints anything; this is its list of so many files.
_LIST_ROOM: Final = {"GIT_ALLOC_LIMIT": str(32 * 1024 * 1024)}
_NO_ROOM_TO_LIST: Final = b" over limit "
_FULL: Final = (
    "No space left on device",
    "Out of diskspace",
    "couldn't write ",
    "Disk quota exceeded",
    "File too large",
)


class Deadline:
    """How long a piece of work may still take; ``None`` means as long as it needs.

    ``doubt`` is called when a command has not answered for a while. It raises if there never will be an answer.
    """

    def __init__(
        self, seconds: float | None = None, *, doubt: Callable[[], None] | None = None
    ) -> None:
        self.seconds = seconds
        self.doubt = doubt
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Return the seconds that are left. Raises `WorkspaceTimeout` when none are."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise WorkspaceTimeout(
                f"the files could not be captured within {self.seconds:g} seconds; nothing was "
                "changed. Raise the time budget (workspace.seconds), or leave large directories out"
            )
        return left


@lru_cache(maxsize=8)
def _which(path: str | None) -> str | None:
    return shutil.which("git", path=path)


def find_git() -> str:
    """Return the git command. Raises `WorkspaceUnavailable` when there is none."""
    found = _which(os.environ.get("PATH"))
    if found is None:
        raise WorkspaceUnavailable(
            "git is not installed, so files can be neither captured nor read; the agent's state can. "
            "Install git 2.36 or later to have files in checkpoints"
        )
    return found


class Git:
    """Git for one repository: ``git_dir`` with an optional work tree and a place for objects."""

    def __init__(
        self,
        git_dir: Path,
        *,
        work_tree: Path | None = None,
        common_dir: Path | None = None,
        objects: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.git_dir = git_dir
        self.work_tree = work_tree
        self._variables = variables_for(
            str(git_dir), common_dir=str(common_dir or git_dir), settings=settings
        )
        if work_tree is not None:
            self._variables["GIT_WORK_TREE"] = str(work_tree)
        if objects is not None:
            self._variables["GIT_OBJECT_DIRECTORY"] = str(objects)

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        index: Path | None = None,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
        ok: Iterable[int] = (0,),
        deadline: Deadline | None = None,
    ) -> bytes:
        """Run a command to its end and return what it printed."""
        process = self.start(*arguments, index=index, cwd=cwd, variables=variables)
        return finish(process, arguments, stdin=stdin, ok=ok, deadline=deadline or Deadline())

    def listed(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run a command that lists the files of snapshots, and return what it printed.

        A few objects of a stranger's can name files without an end. Raises `SnapshotCorrupt` for a
        list that is longer than that of any project.
        """
        with TemporaryFile() as asked, TemporaryFile() as said:
            asked.write(stdin)
            asked.seek(0)
            process = self.start(*arguments, variables=_LIST_ROOM, stdin=asked, stderr=said)
            out = bytearray()
            try:
                with cast("IO[bytes]", process.stdout) as answer:
                    while len(out) <= _MOST_LISTED and (part := answer.read(_READ)):
                        out += part
            except BaseException:
                process.kill()
                raise
            finally:
                # It ends by itself where nobody reads on.
                process.wait()
            said.seek(0)
            err = said.read()
            if len(out) > _MOST_LISTED or _NO_ROOM_TO_LIST in err:
                raise SnapshotCorrupt(
                    "the snapshot holds more files than any project does, so it is not one of a project"
                )
            _check_end(process, arguments, err, ok=(0,))
        return bytes(out)

    def start(
        self,
        *arguments: str,
        index: Path | None = None,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start a command; `finish` waits for it."""
        env = inherited() | self._variables
        if index is not None:
            env["GIT_INDEX_FILE"] = str(index)
        held = [handle for handle, thread in tuple(HELD.items()) if thread == get_ident()]
        try:
            return subprocess.Popen(
                [find_git(), *arguments],
                env={**env, **(variables or {})},
                cwd=cwd or self.work_tree or self.git_dir,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=held,
            )
        except (OSError, ValueError) as error:
            raise WorkspaceUnavailable(f"git cannot be started: {error}") from error


@contextmanager
def understood(command: str) -> Iterator[None]:
    """Raise `WorkspaceUnavailable` where an answer is not what git prints for a command."""
    try:
        yield
    except HoldfastError:
        raise
    except (ValueError, LookupError, OverflowError) as error:
        raise WorkspaceUnavailable(f"git {command} answered something else: {error}") from error


def finish(
    process: subprocess.Popen[bytes],
    arguments: Iterable[str],
    *,
    stdin: bytes | None = None,
    ok: Iterable[int] = (0,),
    deadline: Deadline,
) -> bytes:
    """Wait for a command that `Git.start` began; end it when its time is over."""
    return finish_heard(process, arguments, stdin=stdin, ok=ok, deadline=deadline)[0]


def finish_heard(
    process: subprocess.Popen[bytes],
    arguments: Iterable[str],
    *,
    stdin: bytes | None = None,
    ok: Iterable[int] = (0,),
    deadline: Deadline,
) -> tuple[bytes, bytes]:
    """Wait for a command as `finish` does; return what it printed, and what it complained about."""
    try:
        out, err = _communicate(process, stdin, deadline)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        deadline.left()
        raise
    except BaseException:
        process.kill()
        process.communicate()
        raise
    _check_end(process, arguments, err, ok=ok)
    return out, err


def _communicate(
    process: subprocess.Popen[bytes], stdin: bytes | None, deadline: Deadline
) -> tuple[bytes, bytes]:
    # What was not sent yet would be lost on the way.
    if stdin is None and deadline.doubt is not None:
        left = deadline.left()
        patience = _PATIENCE if left is None else min(_PATIENCE, left)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=patience)
        deadline.doubt()
    return process.communicate(stdin, timeout=deadline.left())


def _check_end(
    process: subprocess.Popen[bytes], arguments: Iterable[str], err: bytes, *, ok: Iterable[int]
) -> None:
    """Raise unless a command ended as it should."""
    if process.returncode not in tuple(ok):
        said = err.decode("utf-8", "backslashreplace").strip()
        what = f"git {next(iter(arguments), '')} failed ({process.returncode}): {said}"
        if process.returncode == -_TOO_LARGE or any(sign in said for sign in _FULL):
            raise WorkspaceFull(f"no room for the project's files; nothing was changed. {what}")
        raise WorkspaceUnavailable(what)
