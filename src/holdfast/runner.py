"""Any program as a session: started, watched, saved while it works, and started again where it was.

The program gets the terminal, the environment and the signals that it would have got without us. A
checkpoint is taken at its start, then of whatever files changed every so often, and at its end: a
program that ends well completes the session, one that fails leaves a failure checkpoint, one that was
interrupted leaves the session paused. The command is kept with the session, so that it can be started
again; it then finds the brief in the file that ``HOLDFAST_BRIEF`` names.

Commands that people or the program itself type meanwhile come first: they have the session for a moment, and
we take it again and go on from what they left. A pause that was asked for so stays one. Whatever goes wrong
with a save, the program runs on, and its exit code is the answer.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from holdfast import trust
from holdfast.config import AGENTS_DIR, RUN_SESSION
from holdfast.errors import (
    CheckpointBusy,
    CommandNotFound,
    CommandNotTrusted,
    HoldfastError,
    IllegalTransition,
    IntegrityError,
    InvalidFilter,
    LeaseLost,
    NotResumable,
    ProgramRunning,
    WorkspaceRefused,
)
from holdfast.model import SessionRecord, utc_now
from holdfast.places import file_name
from holdfast.processes import RUN, is_running, process_at, process_in, program_of, this_process
from holdfast.redaction import placeholders_in
from holdfast.sessions import Session, SessionManager

COMMAND: Final = "command"
_DIRECTORY: Final = "directory"
_PROGRAM_PROCESS: Final = "program_process"
_LONGEST_WAIT: Final = 366 * 24 * 3600
_BRIEFS: Final = "briefs"
# So long a command may have the session before a save is given up, and so often we look.
_PATIENCE: Final = 5.0
_LOOK: Final = 0.1
# Handed on to the program. The terminal itself sends it SIGINT and SIGQUIT.
_PASSED_ON: Final = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")
_LEFT_TO_IT: Final = ("SIGINT", "SIGQUIT")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended. ``exit_code`` is negative for a signal, as in `subprocess`.

    ``problem`` is why its end could not be recorded, if so.
    """

    session_id: str
    exit_code: int
    problem: Exception | None = None

    @property
    def shell_code(self) -> int:
        """The code as shells show it: 128 and more for a signal."""
        return self.exit_code if self.exit_code >= 0 else 128 - self.exit_code


def owner() -> str:
    """Return the owner that this process holds a wrapped program's session by.

    It gives way to commands, as agents do, and names the process, so that others need not wait for the
    lease of one that was killed.
    """
    return f"{RUN}{this_process()}"


def start(
    manager: SessionManager,
    command: Sequence[str],
    *,
    agent_type: str | None = None,
    task: str | None = None,
    interval: float | None = 30.0,
) -> Outcome:
    """Run a command as a new session, to its end."""
    where = _directory(manager)
    program = _find(command, manager.project_dir / where)
    session = manager.create_session(
        agent_type or Path(command[0]).name,
        task_description=task or shlex.join(command),
        metadata={COMMAND: list(command), _DIRECTORY: where},
    )
    trust.remember(session.id, _recorded(session.metadata))
    return _watch(session, program, command, manager.project_dir / where, interval, brief=None)


def start_again(
    manager: SessionManager,
    session: Session,
    *,
    interval: float | None = 30.0,
    trusted: bool = False,
) -> Outcome:
    """Run a resumed session's command once more, with the brief at hand.

    Raises `NotResumable` for a session that no command was kept with, and `CommandNotTrusted` for one that
    this user did not record on this machine, unless it is said to be ``trusted``.
    """
    command = session.metadata.get(COMMAND)
    if not command:
        raise NotResumable(
            f"session {session.id} was not started by `holdfast run`, so there is no command to start "
            "again; resume it in your program"
        )
    if not trusted and not trust.is_known(session.id, _recorded(session.metadata)):
        session.pause("its command is not trusted here")
        raise CommandNotTrusted(
            f"session {session.id} wants to run {_shown(command)}. You did not record that on this "
            "machine, so nothing was started: look at it, and resume with --trust to start it, or with "
            "--no-start to go on without it"
        )
    trust.remember(session.id, _recorded(session.metadata))
    command = _with_secrets(session, command)
    directory = manager.project_dir / str(session.metadata.get(_DIRECTORY, "."))
    if not directory.is_dir():
        directory = manager.project_dir
    with _paused_unless_started(session):
        program = _find(command, directory)
        brief = _write_brief(manager.project_dir, session)
    return _watch(session, program, command, directory, interval, brief=brief)


def check_ended(record: SessionRecord) -> None:
    """Raise `ProgramRunning` where a session's program, as far as anybody can know, has not ended.

    It may have outlived its wrapper: nobody watches it then, but it works on.
    """
    process = process_in(str((record.metadata or {}).get(_PROGRAM_PROCESS)))
    if process is not None and is_running(process):
        raise ProgramRunning(
            f"the program of session {record.id} still runs: {program_of(process.pid)}. Nothing was "
            "started: end it, or wait for its end, and resume again; --no-start goes on without it, and "
            "--take-over starts another beside it"
        )


def start_due(
    manager: SessionManager,
    *,
    limit: int = 1,
    within: float = 0.0,
    interval: float | None = 30.0,
    clock: Callable[[], datetime] = utc_now,
    wait: Callable[[float], None] = time.sleep,
    trusted: bool = False,
) -> list[Outcome]:
    """Start parked sessions again whose time has come, each once and ``limit`` at most.

    Waits up to ``within`` seconds for the next one to be due. Sessions without a command, those whose command
    this user did not record here (unless ``trusted``), those whose program still runs, and those that somebody
    else has taken meanwhile, are passed over. So is one without a good checkpoint, whose `IntegrityError` is
    raised where nothing else was due.
    """
    if not 0 <= within <= _LONGEST_WAIT:
        raise InvalidFilter(f"within must be a number of seconds, a year at most: {within!r}")
    outcomes: list[Outcome] = []
    damaged: IntegrityError | None = None
    tried: set[str] = set()
    end = clock() + timedelta(seconds=within)
    while len(outcomes) < limit:
        parked = [
            (one.paused_until, one.id)
            for one in manager.list_sessions(status="paused")
            if one.paused_until is not None
            and one.id not in tried
            and (one.metadata or {}).get(COMMAND)
            and (trusted or trust.is_known(one.id, _recorded(one.metadata or {})))
        ]
        if not parked or min(parked)[0] > end:
            break
        due, session_id = min(parked)
        if due > clock():
            wait(min(1.0, (due - clock()).total_seconds()))
            continue
        tried.add(session_id)
        try:
            check_ended(manager.get_session(session_id).record)
            session = manager.resume_session(session_id)
        except (CheckpointBusy, IllegalTransition, ProgramRunning):
            continue
        except IntegrityError as error:
            # The others do not wait for it.
            damaged = damaged or error
            continue
        outcomes.append(start_again(manager, session, interval=interval, trusted=trusted))
    if damaged is not None and not outcomes:
        raise damaged
    return outcomes


def _recorded(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a session keeps of its command: the words, and where they are said."""
    return {name: metadata.get(name) for name in (COMMAND, _DIRECTORY)}


def _shown(command: object) -> str:
    words = command if isinstance(command, list) else [command]
    return repr(shlex.join(map(str, words)))


def _with_secrets(session: Session, command: Sequence[str]) -> list[str]:
    """Return a kept command with the secrets that were taken out of it."""
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise NotResumable(f"session {session.id} keeps no command but {command!r:.80}")
    whole: list[str] = session.redaction.bringing_back(True).filled(list(command))
    if missing := sorted(set(placeholders_in(whole))):
        names = ", ".join(map(str, missing))
        session.pause("secrets are missing")
        raise NotResumable(
            f"the command of session {session.id} had secrets that are not in the environment: "
            f"{names}. Nothing was started: set the variables that hold them, and resume again"
        )
    return whole


def _find(command: Sequence[str], directory: Path) -> str:
    """Return the program of a command that is started in a directory, which its path may be relative to."""
    name = command[0] if command else ""
    path = os.path.join(directory, name) if os.path.dirname(name) else name
    program = shutil.which(path) if path else None
    if program is None:
        raise CommandNotFound(f"{name!r} is not a program that can be run; nothing was started")
    return program


@contextmanager
def _paused_unless_started(session: Session) -> Iterator[None]:
    """Leave a session for later whose program does not get to run."""
    try:
        yield
    except (CommandNotFound, WorkspaceRefused):
        session.pause("its command could not be started")
        raise


def _directory(manager: SessionManager) -> str:
    """Return where the command is started, relative to the project: the project may move."""
    here = os.path.relpath(Path.cwd(), manager.project_dir)
    return "." if Path(here).parts[:1] == (os.pardir,) else here


def brief_path(project_dir: Path, session_id: str) -> Path:
    """Return the file that a session's brief is written to for its command."""
    return project_dir / AGENTS_DIR / _BRIEFS / f"{file_name(session_id)}.md"


def forget_brief(project_dir: Path, session_id: str) -> None:
    """Remove the brief of a session that was erased."""
    path = brief_path(project_dir, session_id)
    if not _is_linked(path.parent):
        path.unlink(missing_ok=True)


def _is_linked(folder: Path) -> bool:
    return folder.is_symlink() or folder.parent.is_symlink()


def _write_brief(project_dir: Path, session: Session) -> Path:
    path = brief_path(project_dir, session.id)
    if path.is_symlink() or _is_linked(path.parent):
        raise WorkspaceRefused(
            f"{path} is reached through a link, and what is written there could land anywhere. "
            "Nothing was started; remove the link"
        )
    text = session.brief().text
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Always a new file: what is there may be a pipe, or another name of somebody's file.
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise WorkspaceRefused(
            f"the brief cannot be written to {path}: {error.strerror}. Nothing was started"
        ) from error
    return path


def _watch(
    session: Session,
    program: str,
    command: Sequence[str],
    directory: Path,
    interval: float | None,
    *,
    brief: Path | None,
) -> Outcome:
    work = _Work(session, command)
    session.save_checkpoint(
        state=work.state(), retention_class="session", description=f"before {shlex.join(command)}"
    )
    env = {**os.environ, RUN_SESSION: session.id}
    if brief is not None:
        env["HOLDFAST_BRIEF"] = str(brief)
    with (
        _paused_unless_started(session),
        session.autosave(lambda: work.holding(work.state), interval=interval, signals=False),
    ):
        exit_code = work.exit_code = _run(program, command, env, directory, work.began)
    problem: Exception | None = None
    try:
        work.holding(lambda: _conclude(session, work.state(), exit_code))
        session.close(release=True)
    except (HoldfastError, OSError) as error:
        problem = error
    return Outcome(session.id, exit_code, problem)


class _Work:
    """A session while its program works."""

    def __init__(self, session: Session, command: Sequence[str]) -> None:
        self.session = session
        self.command = command
        self.exit_code: int | None = None
        # What commands have saved, tasks for instance, and what an earlier run went on from.
        self._found = session.present_state()

    def began(self, pid: int) -> None:
        """Keep which process the program is, for whoever comes after us: it may outlive us."""
        process = str(process_at(pid))
        # Without it a second one is not refused; the first has to be watched in any case.
        with suppress(HoldfastError, OSError):
            self.holding(lambda: self.session.update_metadata({_PROGRAM_PROCESS: process}))

    def state(self) -> dict[str, Any]:
        """Return what to save: the state that was there, the command, and how it ended."""
        return {**self._found, COMMAND: list(self.command), "exit_code": self.exit_code}

    def holding(self, action: Callable[[], T]) -> T:
        """Do something for which the session has to be held; a command may have it for a moment."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                if self.session.rejoin():
                    self._found = self.session.present_state()
                return action()
            except (CheckpointBusy, LeaseLost):
                if time.monotonic() >= end:
                    raise
                time.sleep(_LOOK)


def _run(
    program: str,
    command: Sequence[str],
    env: Mapping[str, str],
    directory: Path,
    began: Callable[[int], None],
) -> int:
    with _signals() as hand_over:
        try:
            child = subprocess.Popen([program, *command[1:]], env=env, cwd=directory)
        except OSError as error:
            raise CommandNotFound(
                f"{command[0]!r} is not a program that can be run: {error.strerror}; nothing was started"
            ) from error
        hand_over(child)
        began(child.pid)
        return child.wait()


@contextmanager
def _signals() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Let the program have the signals that reach us, for as long as it runs.

    Yields what to call with it. Those that reach us while it is being started wait for that. What is ignored
    here, under `nohup` or in the background of a shell, stays so: the program inherits that, and no handler.
    """
    children: list[subprocess.Popen[bytes]] = []
    waiting: list[int] = []
    terminal = sys.stdin is not None and sys.stdin.isatty()

    def hand_over(child: subprocess.Popen[bytes]) -> None:
        children.append(child)
        for signum in waiting:
            child.send_signal(signum)

    def pass_on(signum: int, frame: FrameType | None) -> None:
        if not children:
            waiting.append(signum)
        for child in children:
            child.send_signal(signum)

    def leave_to_it(signum: int, frame: FrameType | None) -> None:
        """From a terminal the program has got it too."""
        if not terminal:
            pass_on(signum, frame)

    before = {}
    for names, handler in ((_PASSED_ON, pass_on), (_LEFT_TO_IT, leave_to_it)):
        for signum in (getattr(signal, name) for name in names if hasattr(signal, name)):
            # None was installed by a library in C: it could not be put back.
            if signal.getsignal(signum) not in (None, signal.SIG_IGN):
                before[signum] = signal.signal(signum, handler)
    try:
        yield hand_over
    finally:
        for signum, handler_before in before.items():
            signal.signal(signum, handler_before)


def _conclude(session: Session, state: dict[str, Any], exit_code: int) -> None:
    if session.status == "completed":
        # Somebody has said so; it takes no more checkpoints.
        return
    # Not by us: until when, and why, is for others to say.
    paused = session.status == "paused"
    interrupted = exit_code in (-signal.SIGINT, 128 + signal.SIGINT)
    if exit_code != 0 and not interrupted:
        error = _Ended(f"{shlex.join(state[COMMAND])} ended with {_in_words(exit_code)}")
        session.record_failure(error, state=state)
        if not paused:
            session.fail()
    elif paused:
        session.save_checkpoint(state=state, retention_class="automatic")
    elif interrupted:
        session.pause("interrupted", state=state)
    else:
        session.save_checkpoint(state=state, retention_class="automatic")
        session.complete()
        trust.forget(session.id, _recorded(session.metadata))


class _Ended(Exception):
    """What a failure checkpoint names as the error."""


def _in_words(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
