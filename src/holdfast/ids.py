"""Identifiers: the ones we make and the rules for those that users choose.

We make monotonic UUIDv7s. The first 48 bits are milliseconds, the next 12 + 62 bits are random on
the first id of a millisecond and count upwards after that, and the clock may never move an id
backwards: within one process, id order is creation order, even when the wall clock is set back.
Order between processes is never taken from ids; stores draw a sequence number for that.

Users choose session ids, namespaces and names. One validator decides for every backend, so an id is
refused or accepted everywhere alike: text, not empty, bounded in bytes, valid Unicode, no NUL.
Nothing is normalised: two spellings of "é" are two ids. None of them ever becomes a path or SQL;
the name of a file only one of plain letters, digits, hyphens and underscores.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

from holdfast.errors import InvalidIdentifier
from holdfast.locks import new_lock

SESSION_ID_BYTES = 512
NAME_BYTES = 512
NAMESPACE_BYTES = 1024
EXTERNAL_ID_BYTES = 255

CHECKPOINTER = "checkpointer"
LANGGRAPH = "langgraph"
# Kinds of faces whose checkpoints have a shape of their own: no session that somebody opens goes on with them.
_SHAPED = frozenset({CHECKPOINTER, LANGGRAPH})
TENANT_BYTES = 64
MIN_PREFIX = 8

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LABEL = re.compile(r"checkpoint-[0-9]{8}-[0-9]{6}(-[0-9]+)?")
_SQL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# From here a step of at most 256 stays within 74 bits.
_LAST_START = (1 << 74) - 1 - 256


class IdFactory:
    """Makes monotonic UUIDv7s; ``now`` may replace the clock (seconds since the epoch)."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        # A forked child would repeat its parent's next ids.
        self._lock = new_lock(reset=self.restart)
        self.restart()

    def restart(self) -> None:
        """Forget the last id that was made, as a forked child has to."""
        self._millis = -1
        self._counter = 0

    def __call__(self) -> str:
        """Return the next id as text."""
        # A clock that was never set may stand before the epoch, which no id can say.
        millis = max(int(self._now() * 1000), 0)
        drawn = os.urandom(11)
        step = 1 + drawn[0]
        # The top bit of the 74 starts clear, which leaves 2**73 steps within one millisecond.
        start = int.from_bytes(drawn[1:], "big") >> 7
        # Nothing is called below: a signal's handler, which may want an id too, runs before or after it.
        with self._lock:
            if millis <= self._millis and self._counter <= _LAST_START:
                self._counter += step
            else:
                self._millis = millis if millis > self._millis else self._millis + 1
                self._counter = start
            millis, counter = self._millis, self._counter
        value = millis << 80 | 0x7 << 76 | (counter >> 62) << 64 | 0b10 << 62
        value |= counter & ((1 << 62) - 1)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


new_id = IdFactory()


def thread_agents(kind: str) -> str:
    """Return how the ids of all agents begin that threads of one kind of face belong to."""
    drawn = _digest(kind)
    # A UUID of version 8, in which everything else is for whoever makes it.
    return f"{drawn[:8]}-{drawn[8:12]}-8{drawn[12:15]}-"


def is_thread_agent(agent_id: str, kind: str) -> bool:
    """Whether an agent is that of a thread, rather than of a session that somebody opened."""
    return agent_id.startswith(thread_agents(kind))


def is_shaped_thread(agent_id: str, kind: str) -> bool:
    """Whether an agent is that of a thread whose checkpoints nobody else can go on from or store."""
    return kind in _SHAPED and is_thread_agent(agent_id, kind)


def thread_agent_id(tenant: str, kind: str, thread_id: str) -> str:
    """Return the id of the agent that a new thread belongs to: the same one for every put."""
    drawn = _digest(f"{kind}\0{tenant}\0{thread_id}")
    return f"{thread_agents(kind)}8{drawn[:3]}-{drawn[3:15]}"


def _digest(text: str) -> str:
    # Imported here: not every process has a thread.
    from hashlib import sha256

    # Whether a thread may be called so is decided where it is stored.
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_uuid(text: str) -> bool:
    """Tell whether ``text`` is a UUID in canonical form."""
    return _UUID.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Tell whether ``text`` has the form of a checkpoint's label."""
    return _LABEL.fullmatch(text) is not None


def label_for(moment: datetime) -> str:
    """Return the readable alias of a checkpoint made at ``moment``."""
    return moment.astimezone(UTC).strftime("checkpoint-%Y%m%d-%H%M%S")


def check_text(value: object, what: str, max_bytes: int, *, empty: bool = False) -> str:
    """Return ``value`` if it may be stored as ``what``; raise `InvalidIdentifier` otherwise."""
    if type(value) is str and value.isascii() and 0 < len(value) <= max_bytes and "\0" not in value:
        return value  # as nearly all are
    if type(value) is not str:
        raise InvalidIdentifier(f"{what} must be a str, not {type(value).__name__}")
    if not value and not empty:
        raise InvalidIdentifier(f"{what} must not be empty")
    if len(value) > max_bytes:
        raise InvalidIdentifier(f"{what} is longer than {max_bytes} bytes: {len(value)} characters")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidIdentifier(f"{what} contains a lone surrogate: {value!a}") from None
    if size > max_bytes:
        raise InvalidIdentifier(f"{what} is longer than {max_bytes} bytes: {size}")
    if "\0" in value:
        raise InvalidIdentifier(f"{what} contains a NUL character: {value!a}")
    return value


def check_session_id(value: object) -> str:
    """Validate the id of a session (a thread)."""
    return check_text(value, "session id", SESSION_ID_BYTES)


def check_namespace(value: object) -> str:
    """Validate a namespace; the empty one is the default."""
    return check_text(value, "namespace", NAMESPACE_BYTES, empty=True)


def check_name(value: object) -> str:
    """Validate a checkpoint's name."""
    return check_text(value, "checkpoint name", NAME_BYTES)


def check_external_id(value: object) -> str:
    """Validate another system's checkpoint id."""
    return check_text(value, "external id", EXTERNAL_ID_BYTES)


def check_tenant(value: object) -> str:
    """Validate a tenant."""
    return check_text(value, "tenant", TENANT_BYTES)


def check_uuid(value: object, what: str) -> str:
    """Validate an id that must be a UUID, and return its canonical text."""
    text = check_text(value, what, 64).lower()
    if not is_uuid(text):
        raise InvalidIdentifier(f"{what} must be a UUID: {value!r}")
    return text


def check_sql_name(value: object, what: str) -> str:
    """Validate a schema or table name, which becomes part of a statement (quoted)."""
    text = check_text(value, what, 63)
    if not _SQL_NAME.fullmatch(text):
        raise InvalidIdentifier(f"{what} must match [a-zA-Z_][a-zA-Z0-9_]*: {value!r}")
    return text
