"""What a capture starts from: the project, its bounds, and what the last capture noted.

The note stands beside the private index and says what the index cannot: the last commit and its message,
marks of what was looked at besides files, the room that is taken. A capture changes its copy as it learns,
and writes it when the snapshot is durable.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.workspace.base import Limits
from holdfast.workspace.files import lstat
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline
from holdfast.workspace.repository import Repository

NOTE: Final = "last.json"
# In the note: files that the last tree has and the index does not know of yet, with their stamps.
AHEAD: Final = "ahead"
# In the note: files to be captured although a rule ignores them, which the index lacks so far.
FORCED_ABSENT: Final = "forced_absent"
# In the note: files that changed just before the index was made, each with the time of that change.
RECENT: Final = "changed_lately"
# What changed within this time may change again without its time stamp telling.
RACY_NS: Final = 2_000_000_000
_OBJECT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Basis:
    """What every part of one capture shares. Only ``note`` changes."""

    store: PrivateStore
    limits: Limits
    repository: Repository | None
    note: dict[str, Any]
    deadline: Deadline
    started: int = field(default_factory=time.time_ns)

    @property
    def is_first(self) -> bool:
        """Whether no earlier capture is there to build on."""
        return self.note.get("tree") is None


def read_cache(store: PrivateStore) -> dict[str, Any]:
    """Return what the last capture noted, empty when it is not to be relied on.

    An index says which files need not be read again. One that came with a project from elsewhere is
    worth nothing here, and could have been made to hide changes. Nor is a note that was edited: what it
    names is told to git.
    """
    note = store.notes.read(NOTE)
    own = store.index.exists() and note.get("made_in") == made_in(store)
    named = all(_is_object(note.get(key)) for key in ("commit", "tree", "position"))
    return note if own and named and not store.index.is_symlink() else {}


def _is_object(name: Any) -> bool:
    return name is None or (isinstance(name, str) and _OBJECT.fullmatch(name) is not None)


def forget_cache(store: PrivateStore) -> None:
    """Have the next capture begin anew, with nothing that the last one left."""
    # In this order: an index without its note counts for nothing.
    store.notes.remove(NOTE)
    store.index.unlink(missing_ok=True)
    store.references.release_last()


def made_in(store: PrivateStore) -> list[int]:
    """Return what tells this store from a copy, and the index that a note is about from others.

    The two are replaced one after the other. After a kill in between, neither is worth anything
    without the other.
    """
    looked = lstat(store.index)
    index = [looked.st_ino, looked.st_size, looked.st_mtime_ns] if looked else []
    return [store.home.stat().st_ino, *index]
