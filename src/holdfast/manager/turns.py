"""Whose turn it is: in one process the managers of one session act one after the other.

Between processes the session's lease sees to that. Within one the lease is shared, since its owner is the
process, and what a manager finds out before it saves (which names are free, which features are new) has
to be true still when it saves.
"""

from __future__ import annotations

from threading import RLock
from typing import Any, Final
from weakref import WeakValueDictionary

from holdfast.locks import new_lock
from holdfast.stores.base import Store

_turns: Final[WeakValueDictionary[tuple[Any, ...], RLock]] = WeakValueDictionary()
_registry: Final = new_lock()


def turn_at(store: Store, session_id: str) -> RLock:
    """Return the lock of all managers of a session, whichever objects they reach its store by."""
    key = (store.identity, session_id)
    with _registry:
        found = _turns.get(key)
        if found is None:
            found = _turns[key] = new_lock()
        return found
