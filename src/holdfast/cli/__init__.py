"""The command line: parses, calls one function of a layer below, and renders the answer.

Each command is a module in `holdfast.cli.commands`, imported when it is used; the list of them stands
in `holdfast.cli.group`, so that ``holdfast --help`` imports none. An answer goes to stdout, as text for
people or, with ``--json``, as one JSON object; everything else goes to stderr.
"""

from __future__ import annotations

from holdfast.cli.group import holdfast

__all__ = ["holdfast", "main"]


def main() -> None:
    """Run ``holdfast`` with the arguments of this process."""
    holdfast()
