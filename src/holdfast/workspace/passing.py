"""Groups of snapshots that end with their process: those of a store that is in its memory only.

Nothing that such a store names can be asked for any more, and nobody else has the group for its own. So its name
says whose it is, and whoever sweeps lets go of those whose processes have ended.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from holdfast.processes import is_gone, process_in, this_process

_START: Final = "of-"


def passing_group(number: int) -> str:
    """Return a group for this process; ``number`` tells it from others of the same."""
    # Quoted, nothing is in it that no name of a reference may have.
    return f"{_START}{number}-{quote(str(this_process()), safe='').replace('~', '%7E')}"


def has_passed(group: str) -> bool:
    """Tell whether a group is one whose process has surely ended."""
    start, _, rest = group.partition("-")
    _, _, name = rest.partition("-")
    process = process_in(unquote(name)) if f"{start}-" == _START else None
    return process is not None and is_gone(process)
