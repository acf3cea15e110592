"""PostgreSQL's errors in our words: the only place that knows SQLSTATEs.

A statement's error carries a SQLSTATE, and its class decides. A failed connection carries none:
libpq keeps the server's message only, so that text is looked at for the one question that matters,
whether the server refused us or could not be reached.
"""

from __future__ import annotations

import re
from typing import Final

from psycopg import DataError, Error, InterfaceError, OperationalError, ProgrammingError
from psycopg.errors import UniqueViolation
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from holdfast.errors import (
    AccessDenied,
    AgentExists,
    AgentNotFound,
    AlreadyResumed,
    CheckpointBusy,
    CheckpointExists,
    CheckpointNotFound,
    ChunksMissing,
    ConflictError,
    DigestMismatch,
    ForeignSession,
    HoldfastError,
    IllegalTransition,
    InvalidConfiguration,
    InvalidIdentifier,
    KeyRequired,
    LeaseLost,
    PackMissing,
    SchemaMissing,
    SessionExists,
    SessionNotFound,
    StaleWriter,
    StateCorrupt,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreNotSealed,
    StoreReadOnly,
    StoreUnavailable,
)

# Five characters are one state, two are a class; the longer match decides.
BY_SQLSTATE: Final[dict[str, type[HoldfastError]]] = {
    "HF001": ChunksMissing,
    "HF002": SessionNotFound,
    "HF003": AgentNotFound,
    "HF004": CheckpointExists,
    "HF005": SessionExists,
    "HF006": AgentExists,
    "HF007": InvalidConfiguration,
    "HF008": DigestMismatch,
    "HF009": StateCorrupt,
    "HF010": PackMissing,
    "HF011": InvalidIdentifier,
    "HF012": AlreadyResumed,
    "HF013": CheckpointNotFound,
    "HF014": LeaseLost,
    "HF015": CheckpointBusy,
    "HF016": IllegalTransition,
    "HF017": StaleWriter,
    "HF018": ForeignSession,
    "HF020": KeyRequired,
    "HF021": StoreNotSealed,
    "08": StoreUnavailable,
    "0A": StoreError,
    "22": InvalidIdentifier,  # data that a column cannot hold
    "23": ConflictError,
    "23502": InvalidIdentifier,  # not null
    "23514": InvalidIdentifier,  # check
    "25006": StoreReadOnly,
    "28": AccessDenied,
    "3D000": StoreUnavailable,  # no such database
    "3F000": SchemaMissing,
    "40": StoreBusy,  # deadlock, serialisation
    "42501": AccessDenied,
    "42883": SchemaMissing,  # no such function
    "42P01": SchemaMissing,  # no such table
    "42703": SchemaMissing,  # no such column
    "53": StoreError,
    "53100": StoreFull,
    "53300": StoreBusy,  # too many connections
    "54": InvalidIdentifier,  # too long for an index
    "55P03": StoreBusy,  # lock timeout
    "57014": StoreBusy,  # statement timeout, cancelled
    "57P": StoreUnavailable,  # shutdown, crash, starting up, database dropped
    "58": StoreError,
    "XX": StoreError,
}
# A primary key that all tenants share: a role that sees one of them learns of a taken id only here.
_BY_CONSTRAINT: Final[dict[str, type[HoldfastError]]] = {
    "session_checkpoints_pkey": CheckpointExists
}
RETRYABLE: Final = frozenset({"40001", "40P01"})

_REFUSED: Final = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|permission denied|"
    r'role "[^"]*" does not exist|role "[^"]*" is not permitted|certificate|SCRAM|GSSAPI',
    re.IGNORECASE,
)
_NO_DATABASE: Final = re.compile(r'database "[^"]*" does not exist', re.IGNORECASE)
_TOO_MANY: Final = re.compile(r"too many (clients|connections)|remaining connection slots")
_ADVICE: Final[dict[type[HoldfastError], str]] = {
    StoreUnavailable: "What was acknowledged is stored; try again when the server is back.",
    StoreBusy: "Nothing was written; a retry is safe.",
    StoreFull: "Nothing was written and the earlier checkpoints are intact; make room and retry.",
    StoreReadOnly: "Nothing was written; connect to the primary or make the database writable.",
    AccessDenied: "Nothing was written; check the user, the password and its rights.",
    SchemaMissing: "Nothing was written; run holdfast init, or open the store with "
    "ensure_schema=True.",
    InvalidConfiguration: "Nothing was written; use a connection with that isolation level.",
}


def translate(error: Exception, url: str) -> HoldfastError:
    """Return what we raise instead of a driver's error."""
    kind = kind_of(error)
    said = _first_line(error)
    if isinstance(error, Error) and (error.sqlstate or "") in _OWN_WORDS:
        return kind(said)
    advice = _ADVICE.get(kind, "Nothing was written.")
    if kind is StoreUnavailable and _NO_DATABASE.search(said):
        advice = "Nothing was written; create the database, or correct its name in the URL."
    return kind(f"{url}: {said}. {advice}")


def kind_of(error: Exception) -> type[HoldfastError]:
    """Tell which of our errors a driver's error is."""
    if isinstance(error, PoolClosed):
        return StoreClosed
    if isinstance(error, (PoolTimeout, TooManyRequests)):
        return StoreBusy
    state = error.sqlstate if isinstance(error, Error) else None
    if isinstance(error, UniqueViolation) and error.diag.constraint_name in _BY_CONSTRAINT:
        return _BY_CONSTRAINT[error.diag.constraint_name]
    if state is not None:
        for size in (5, 3, 2):
            if found := BY_SQLSTATE.get(state[:size]):
                return found
        return StoreError
    if isinstance(error, Error):
        return _kind_without_state(error)
    return StoreError


def is_connection_lost(error: Exception) -> bool:
    """Tell whether the connection, not the statement, was at fault."""
    return isinstance(error, Error) and kind_of(error) is StoreUnavailable


def _kind_without_state(error: Error) -> type[HoldfastError]:
    text = str(error)
    if isinstance(error, (DataError, ProgrammingError)):
        return InvalidIdentifier
    if isinstance(error, OperationalError):
        if _REFUSED.search(text):
            return AccessDenied
        return StoreBusy if _TOO_MANY.search(text) else StoreUnavailable
    return StoreUnavailable if isinstance(error, InterfaceError) else StoreError


_OWN_WORDS: Final = frozenset(
    state for state in BY_SQLSTATE if state.startswith("HF") and state != "HF007"
)


def _first_line(error: Exception) -> str:
    primary = error.diag.message_primary if isinstance(error, Error) else None
    text = primary or str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
