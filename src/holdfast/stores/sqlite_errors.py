"""What the errors of SQLite and of the system mean: the one place where they are translated.

Nobody above a store knows its driver, so each error becomes a member of the tree in
`holdfast.errors` and says what was not lost and what to do next.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import apsw

from holdfast.errors import (
    AccessDenied,
    ConflictError,
    HoldfastError,
    InputError,
    KeyRequired,
    LookupFailedError,
    NotADatabase,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.stores import unwritable

ERRORS: Final[dict[type[apsw.Error], type[HoldfastError]]] = {
    apsw.AbortError: StoreUnavailable,
    apsw.AuthError: AccessDenied,
    apsw.BindingsError: StoreError,
    apsw.BusyError: StoreBusy,
    apsw.CantOpenError: StoreUnavailable,
    apsw.ConnectionClosedError: StoreClosed,
    apsw.ConnectionNotClosedError: StoreError,
    apsw.ConstraintError: ConflictError,
    apsw.CorruptError: NotADatabase,
    apsw.CursorClosedError: StoreError,
    apsw.EmptyError: StoreError,
    apsw.Error: StoreError,
    apsw.ExecTraceAbort: StoreError,
    apsw.ExecutionCompleteError: StoreError,
    apsw.ExtensionLoadingError: StoreError,
    apsw.ForkingViolationError: StoreError,
    apsw.FormatError: NotADatabase,
    apsw.FullError: StoreFull,
    apsw.IOError: StoreUnavailable,
    apsw.IncompleteExecutionError: StoreError,
    apsw.InternalError: StoreError,
    apsw.InterruptError: StoreUnavailable,
    apsw.InvalidContextError: StoreError,
    apsw.LockedError: StoreBusy,
    apsw.MismatchError: InputError,
    apsw.MisuseError: StoreError,
    apsw.NoFTS5Error: StoreError,
    apsw.NoLFSError: StoreFull,
    apsw.NoMemError: StoreUnavailable,
    apsw.NotADBError: NotADatabase,
    apsw.NotFoundError: StoreError,
    apsw.PermissionsError: StoreReadOnly,
    apsw.ProtocolError: StoreBusy,
    apsw.RangeError: StoreError,
    apsw.ReadOnlyError: StoreReadOnly,
    apsw.SQLError: StoreError,
    apsw.SchemaChangeError: StoreBusy,
    apsw.ThreadingViolationError: StoreError,
    apsw.TooBigError: InputError,
    apsw.VFSFileClosedError: StoreError,
    apsw.VFSNotImplementedError: StoreError,
}

_CONSTRAINTS: Final[dict[int, type[HoldfastError]]] = {
    apsw.SQLITE_CONSTRAINT_CHECK: InputError,
    apsw.SQLITE_CONSTRAINT_DATATYPE: InputError,
    apsw.SQLITE_CONSTRAINT_FOREIGNKEY: LookupFailedError,
    apsw.SQLITE_CONSTRAINT_NOTNULL: InputError,
    # There is one trigger that refuses: the one of sealed stores.
    apsw.SQLITE_CONSTRAINT_TRIGGER: KeyRequired,
}

ADVICE: Final[dict[type[HoldfastError], str]] = {
    StoreBusy: "Other writers held the file for too long. Nothing was stored; a retry is safe.",
    **unwritable.ADVICE,
    NotADatabase: "This is no Holdfast database, or it is damaged. Nothing was changed: give "
    "another path, save what still verifies (holdfast doctor --salvage NEW), or restore the file from a "
    "copy.",
    KeyRequired: "Nothing was stored: set HOLDFAST_KEY or HOLDFAST_KEY_FILE and repeat.",
}


def translated(
    error: apsw.Error | OSError, path: Path, url: str, system_errno: int = 0
) -> HoldfastError:
    """Return the Holdfast error that a driver's or the system's error means."""
    if isinstance(error, OSError):
        return unwritable.refusal(error, url)
    kind: type[HoldfastError] = ERRORS.get(type(error), StoreError)
    if isinstance(error, apsw.ConstraintError):
        kind = _CONSTRAINTS.get(extended_code(error), ConflictError)
    if kind is StoreUnavailable:
        kind = unwritable.kind_of(system_errno)
        if kind is StoreUnavailable and isinstance(error, apsw.CantOpenError) and _unwritable(path):
            kind = StoreReadOnly
    return kind(f"{url}: {error}. {ADVICE.get(kind, 'Nothing was stored.')}")


def extended_code(error: apsw.Error) -> int:
    """Return SQLite's extended result code, which says which kind of constraint was broken."""
    return int(getattr(error, "extendedresult", 0))


def _unwritable(path: Path) -> bool:
    if path.is_dir():
        return False
    return path.parent.is_dir() and not (
        os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    )
