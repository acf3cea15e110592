"""What the user's own git repository says: branch, commit, and whether anything is uncommitted.

Only read, and read with suspicion: a repository can name programs to run (hooks, file system monitors,
filters, external diffs, transports to fetch what is missing). One call lists the filters it defines;
the second asks for the status with every one of them switched off, no transport allowed, submodules left
alone and no lock taken. Settings are handed over in the environment, where a name may contain anything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SAFE: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.untrackedCache": "false",
}
_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class GitState:
    """Where the repository stands. ``branch`` is None when HEAD is detached."""

    branch: str | None
    commit: str | None
    uncommitted: bool


def read_git_state(project_dir: Path) -> GitState | None:
    """Return the state of the repository around ``project_dir``, or None when there is none.

    None also when git is not installed or does not answer in time: a checkpoint of the agent's state
    must not depend on it.
    """
    git = shutil.which("git")
    if git is None or not any((up / ".git").exists() for up in (project_dir, *project_dir.parents)):
        return None
    filters = _run(
        git, project_dir, {}, "config", "-z", "--name-only", "--get-regexp", "^filter[.]"
    )
    if filters is None:
        return None
    settings = dict(_SAFE)
    for setting in filters.split("\0"):
        if setting:
            driver = setting.rpartition(".")[0]
            settings |= {
                f"{driver}.clean": "",
                f"{driver}.process": "",
                f"{driver}.required": "false",
            }
    status = _run(
        git, project_dir, settings,
        "status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=all",
    )  # fmt: skip
    return _parse(status) if status is not None else None


def _run(git: str, project_dir: Path, settings: Mapping[str, str], *arguments: str) -> str | None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        # A partial clone would fetch what it lacks, with a program of the repository's choice.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
    }
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = subprocess.run(
            [git, "-C", str(project_dir), *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    # `git config` answers 1 when nothing matches.
    if done.returncode not in ((0, 1) if arguments[0] == "config" else (0,)):
        return None
    return done.stdout.decode("utf-8", "surrogateescape")


def _parse(status: str) -> GitState:
    branch = commit = None
    uncommitted = False
    for entry in status.split("\0"):
        if entry.startswith("# branch.oid "):
            commit = entry.removeprefix("# branch.oid ")
        elif entry.startswith("# branch.head "):
            branch = entry.removeprefix("# branch.head ")
        elif entry and not entry.startswith("#"):
            uncommitted = True
    return GitState(
        branch=None if branch == "(detached)" else branch,
        commit=None if commit == "(initial)" else commit,
        uncommitted=uncommitted,
    )
