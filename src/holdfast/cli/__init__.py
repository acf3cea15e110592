"""The command line: parses, calls one function of a layer below, and renders the answer.

Each command is a module in `holdfast.cli.commands`, imported when it is used; the list of them stands
in `holdfast.cli.group`, so that ``holdfast --help`` imports none. An answer goes to stdout, as text for
people or, with ``--json``, as one JSON object; everything else goes to stderr.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.cli.group import holdfast

__all__ = ["holdfast", "main"]


def main() -> None:
    """Run ``holdfast`` with the arguments of this process."""
    fill_streams()
    if sys.argv[1:2] == ["hook"]:
        # Agents call this one all the time: the rest of the command line is not even imported.
        from holdfast.hooks.command import main as hook

        code = hook(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    from holdfast.cli.group import holdfast
    from holdfast.processes import be_command

    be_command()
    holdfast()


def fill_streams() -> None:
    """Put nothing to read, and nowhere to write, where a standard stream was closed by the caller.

    Otherwise the next file that is opened, a database for instance, would have the number that programs
    read from or print to.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            # Whatever program is started gets it too.
            os.set_inheritable(number, True)
            mode = "w" if number else "r"
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
            setattr(sys, name, stream)


def __getattr__(name: str) -> Any:
    if name != "holdfast":
        raise AttributeError(f"module 'holdfast.cli' has no attribute {name!r}")
    from holdfast.cli.group import holdfast

    return holdfast
