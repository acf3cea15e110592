"""Files that cannot be written: what the system says against it, as an error that says what to do.

For databases and for all else that somebody asks for by its path, so that one cause has one answer.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

# Quotas and size limits are reported as failed writes; for the user the disk is full.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_PERMISSION: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

ADVICE: Final[Mapping[type[HoldfastError], str]] = {
    StoreFull: "No room is left. Nothing was stored, earlier checkpoints are intact: free some "
    "space and repeat.",
    StoreReadOnly: "The file or its directory cannot be written. Nothing was changed: check the "
    "permissions.",
    StoreUnavailable: "The file cannot be used. Nothing was changed: check the path and the disk.",
}


def kind_of(number: int) -> type[StoreError]:
    """Return the error that an error number of the system means."""
    if number in _NO_ROOM:
        return StoreFull
    return StoreReadOnly if number in _NO_PERMISSION else StoreUnavailable


def refusal(error: OSError, name: str) -> StoreError:
    """Return what keeps a file from being written as an error that names this file.

    The system may name another: the one beside it that was to get its name.
    """
    kind = kind_of(error.errno or 0)
    return kind(f"{name}: {error.strerror or error}. {ADVICE[kind]}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Have a block that writes a file raise no `OSError`, but that somebody was faster with a new one."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise refusal(error, str(path)) from error
