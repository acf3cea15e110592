"""One checkpoint as a user sees it: its record, and its state once somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from holdfast.errors import CheckpointNotFound
from holdfast.model import CheckpointRecord, Payload
from holdfast.sessions.tasks import all_tasks, progress_of
from holdfast.state import DecodedState
from holdfast.stores.base import Store


class Content:
    """A checkpoint's content, read and verified on first use."""

    def __init__(self, store: Store, checkpoint_id: str) -> None:
        self._store = store
        self._checkpoint_id = checkpoint_id
        self._loaded: tuple[Payload, DecodedState] | None = None

    def read(self) -> DecodedState:
        """Return the content. Raises `CheckpointNotFound` when it was removed meanwhile."""
        return self._load()[1]

    @property
    def payload(self) -> Payload:
        """The manifest and references behind it."""
        return self._load()[0]

    def _load(self) -> tuple[Payload, DecodedState]:
        if self._loaded is None:
            self._loaded = self._store.load(self._checkpoint_id)
        if self._loaded is None:
            raise CheckpointNotFound(f"checkpoint {self._checkpoint_id} was removed meanwhile")
        return self._loaded


@dataclass(frozen=True, slots=True)
class Checkpoint(CheckpointRecord):
    """An immutable save point. Listing checkpoints reads no payload; ``state`` does, once."""

    content: Content = field(repr=False, compare=False)

    @classmethod
    def of(cls, record: CheckpointRecord, store: Store) -> Checkpoint:
        """Return the checkpoint for a store's record."""
        return cls(*(*_values(record), Content(store, record.id)))

    @property
    def state(self) -> dict[str, Any]:
        """The state as it was saved, verified by digest."""
        return self.content.read().state

    @property
    def task_state(self) -> dict[str, Any]:
        """All tasks, including completed ones that this state no longer mentions."""
        return {"tasks": all_tasks(self.state, self.content.read().context)}

    @property
    def progress(self) -> dict[str, Any]:
        """How many of the tasks are completed."""
        return progress_of(self.task_state["tasks"])


# By position: a listing makes thousands of these, and by name each takes twice as long.
_values: Callable[[CheckpointRecord], tuple[Any, ...]] = attrgetter(
    *(one.name for one in fields(CheckpointRecord))
)
