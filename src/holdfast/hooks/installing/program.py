"""The command that an agent runs for each event, and how one of ours is recognised.

An agent is started from a desktop, an editor or another shell, where ``holdfast`` need not be on the
path. The plain name is written only if the path leads to this very program from outside a virtual
environment; otherwise the absolute path is.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

NAME: Final = "holdfast"
_OPERATORS: Final = frozenset("|&;<>()")


def program() -> list[str]:
    """Return the words that start this program from anywhere."""
    script = Path(sys.executable).parent / NAME
    found = shutil.which(NAME)
    if found is not None and _leads_to(Path(found), script) and not _in_environment(Path(found)):
        return [NAME]
    if script.is_file():
        return [str(script)]
    return [sys.executable, "-m", NAME]


def hook_command(agent: str, words: list[str]) -> str:
    """Return the command line that an agent's shell runs for an event."""
    return shlex.join([*words, "hook", "--agent", agent])


def is_ours(command: object) -> bool:
    """Tell whether a command of a hook is one that we wrote, of this version or an older one."""
    return isinstance(command, str) and _split(command) is not None


def with_program(command: str, wanted: str) -> str:
    """Return a command of ours as it is wanted, with the further options that somebody gave it."""
    found = _split(command)
    options = found[1] if found is not None else []
    if "--agent" in options:
        at = options.index("--agent")
        options = options[:at] + options[at + 2 :]
    return " ".join([wanted, *(shlex.quote(word) for word in options)])


def missing_program(command: str) -> str | None:
    """Return the program of a command of ours if there is no such program any more."""
    found = _split(command)
    if found is None:
        return None
    first = found[0][0]
    return None if shutil.which(first) is not None else first


def _split(command: str) -> tuple[list[str], list[str]] | None:
    """Return the program and the options of a plain ``holdfast hook``, nothing of anything else."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    if any(set(word) <= _OPERATORS for word in words):
        return None
    if len(words) > 3 and words[1:4] == ["-m", NAME, "hook"]:
        return words[:3], words[4:]
    if len(words) > 1 and Path(words[0]).stem == NAME and words[1] == "hook":
        return words[:1], words[2:]
    return None


def _leads_to(found: Path, script: Path) -> bool:
    try:
        return found.samefile(script)
    except OSError:
        return False


def _in_environment(found: Path) -> bool:
    """Tell whether a program is inside the virtual environment, on the path only while it is active."""
    return sys.prefix != sys.base_prefix and Path(sys.prefix) in found.parents
