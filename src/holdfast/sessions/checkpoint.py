"""One checkpoint as a user sees it: its record, and its state once somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import CheckpointNotFound, IntegrityError, InvalidState, StateCorrupt
from holdfast.model import CheckpointRecord, Payload
from holdfast.sessions.tasks import all_tasks, progress_of
from holdfast.state import DecodedState, outline_state
from holdfast.state.documented import validate_context
from holdfast.stores.base import Store


class Content:
    """A checkpoint's content, read and verified on first use."""

    def __init__(
        self, store: Store, checkpoint_id: str, fill: Callable[[Any], Any] | None = None
    ) -> None:
        self._store = store
        self._fill = fill
        self._checkpoint_id = checkpoint_id
        self._loaded: tuple[Payload, DecodedState] | None = None

    def read(self) -> DecodedState:
        """Return the content. Raises `CheckpointNotFound` when it was removed meanwhile."""
        return self._load()[1]

    @property
    def payload(self) -> Payload:
        """The manifest and references behind it."""
        return self._load()[0]

    def outline(self) -> DecodedState:
        """Return the content with its large lists unread, apart from the tasks."""
        payload = self._loaded[0] if self._loaded is not None else None
        payload = payload or self._store.read_payload(self._checkpoint_id)
        if payload is None:
            raise CheckpointNotFound(f"checkpoint {self._checkpoint_id} was removed meanwhile")
        return self._checked(
            outline_state(
                payload, self._store.read_chunks, cache=self._store.cache, whole=("task_state",)
            )
        )

    def filled(self, fill: Callable[[Any], Any]) -> Content:
        """Return the same content, the state passed through ``fill``."""
        other = Content(self._store, self._checkpoint_id, fill)
        other._loaded = self._loaded
        return other

    def _load(self) -> tuple[Payload, DecodedState]:
        if self._loaded is None:
            self._loaded = self._store.load(self._checkpoint_id)
            if self._loaded is not None:
                self._checked(self._loaded[1])
        if self._loaded is not None and self._fill is not None:
            payload, decoded = self._loaded
            self._loaded = payload, replace(decoded, state=self._fill(decoded.state))
            self._fill = None
        if self._loaded is None:
            raise CheckpointNotFound(f"checkpoint {self._checkpoint_id} was removed meanwhile")
        return self._loaded

    def _checked(self, content: DecodedState) -> DecodedState:
        """Return content that came from a store, in which anybody may have put it."""
        try:
            validate_context(content.context)
        except InvalidState as error:
            raise StateCorrupt(
                f"checkpoint {self._checkpoint_id} has beside its state what Holdfast does not write: "
                f"{error}"
            ) from None
        return content


if TYPE_CHECKING:
    _Columns = CheckpointRecord
else:
    # A listing makes thousands of these. To hold the record, whose columns `__getattr__` offers, is
    # twenty times faster than to be a second one; type checkers see the columns all the same.
    _Columns = object


class Checkpoint(_Columns):
    """An immutable save point. Listing checkpoints reads no payload; ``state`` does, once.

    It has the attributes of its `CheckpointRecord`.
    """

    __slots__ = ("content", "record")

    def __init__(self, record: CheckpointRecord, content: Content) -> None:
        self.record = record
        self.content = content

    @classmethod
    def of(cls, record: CheckpointRecord, store: Store) -> Checkpoint:
        """Return the checkpoint for a store's record."""
        return cls(record, Content(store, record.id))

    def filled(self, fill: Callable[[Any], Any]) -> Checkpoint:
        """Return the same checkpoint, whose ``state`` is passed through ``fill`` when it is read."""
        return Checkpoint(self.record, self.content.filled(fill))

    def __getattr__(self, name: str) -> Any:
        if name in _COLUMNS:
            return getattr(self.record, name)
        raise AttributeError(f"a checkpoint has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.record == other.record

    def __hash__(self) -> int:
        return hash(self.record.id)

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name!r} of session {self.session_id}, {self.size_bytes} bytes>"

    @property
    def state(self) -> dict[str, Any]:
        """The state as it was saved, verified by digest."""
        return self.content.read().state

    @property
    def git(self) -> Mapping[str, Any] | None:
        """Where the user's repository stood: branch, commit, detached, and the lists of changed paths.

        None when there was none. ``staged``, ``unstaged``, ``untracked``, ``deleted``, ``unmerged`` are
        lists of paths, ``renamed`` one of pairs, ``operation`` a merge or rebase in progress.
        """
        found: Mapping[str, Any] | None = self.content.read().context.get("git")
        return found

    @property
    def files(self) -> Mapping[str, Any]:
        """What is known of the capture: paths ``skipped`` with reasons, or the ``problem`` with it."""
        found: Mapping[str, Any] = self.content.read().context.get("workspace", {})
        return found

    @property
    def files_problem(self) -> str | None:
        """Why files were wanted and could not be captured, None where that is not so.

        For lists: it reads no more of the state than it must, and what is damaged or gone meanwhile is
        left for those to tell who load it.
        """
        found: str | None = None
        if self.record.workspace_commit is None:
            with suppress(IntegrityError, CheckpointNotFound):
                found = self.content.outline().context.get("workspace", {}).get("problem")
        return found

    @property
    def task_state(self) -> dict[str, Any]:
        """All tasks, including completed ones that this state no longer mentions."""
        return {"tasks": all_tasks(self.state, self.content.read().context)}

    @property
    def progress(self) -> dict[str, Any]:
        """How many of the tasks are completed."""
        return progress_of(self.task_state["tasks"])


_COLUMNS: Final = frozenset(one.name for one in fields(CheckpointRecord))
