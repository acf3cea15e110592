"""What savers take and hand out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.errors import InvalidIdentifier
from holdfast.ids import check_external_id, check_namespace, check_session_id


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Which thread, and optionally which of its checkpoints.

    Without ``checkpoint_id`` it means the latest one. ``namespace`` is part of the key: the same
    thread in another namespace is another line of checkpoints.
    """

    thread_id: str
    checkpoint_id: str | None = None
    namespace: str = ""

    def __post_init__(self) -> None:
        check_session_id(self.thread_id)
        if self.checkpoint_id is not None:
            check_external_id(self.checkpoint_id)
        if self.namespace != "":
            check_namespace(self.namespace)


def check_config(config: object) -> None:
    """Refuse what names no thread: most often its bare id."""
    if not isinstance(config, CheckpointConfig):
        raise InvalidIdentifier(
            f"a config must be a CheckpointConfig(thread_id), not {config!r:.80}"
        )


def check_writes(writes: object) -> list[tuple[str, Any]]:
    """Return what a task wrote as pairs of channel and value; refuse what is none."""
    if isinstance(writes, Iterable) and not isinstance(writes, (str, bytes)):
        pairs = list(writes)
        if all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
            return [(channel, value) for channel, value in pairs]
    raise InvalidIdentifier(f"writes must be pairs of channel and value: {writes!r:.80}")


class CheckpointMetadata(dict[str, Any]):
    """The metadata of a checkpoint: a dict, with properties for the keys that most agents use.

    ``source``, ``step``, ``node`` and ``tags`` are all optional and any other key is kept as it
    is. ``created_at`` is no key: it tells when the checkpoint was stored, and is None before.

        CheckpointMetadata(source="loop", step=3, node="plan", tags=("draft",), user="ada")
    """

    __slots__ = ("created_at",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.created_at: datetime | None = None

    @property
    def source(self) -> str | None:
        """Where the checkpoint came from: ``input``, ``loop``, ``update``, ``fork``, …"""
        return self.get("source")

    @property
    def step(self) -> int | None:
        """The number of the step that made the checkpoint."""
        step = self.get("step")
        return step if type(step) is int else None

    @property
    def node(self) -> str | None:
        """The part of the agent that made the checkpoint."""
        return self.get("node")

    @property
    def tags(self) -> tuple[str, ...]:
        """Labels of the checkpoint."""
        return tuple(self.get("tags") or ())


class CheckpointTuple(NamedTuple):
    """A checkpoint with all that belongs to it.

    ``pending_writes`` has an entry ``(task_id, channel, value)`` for each write that tasks left at
    this checkpoint, by task path, task and order.
    """

    config: CheckpointConfig
    checkpoint: dict[str, Any]
    metadata: CheckpointMetadata
    parent_config: CheckpointConfig | None
    pending_writes: list[tuple[str, str, Any]]


class CheckpointSummary(NamedTuple):
    """A checkpoint without its content."""

    config: CheckpointConfig
    metadata: CheckpointMetadata
    parent_config: CheckpointConfig | None


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """What one thread holds, over all its namespaces.

    ``size_bytes`` adds up the sizes of its states, ``stored_bytes`` what they added to the store.
    """

    thread_id: str
    checkpoints: int
    size_bytes: int
    stored_bytes: int
    latest_checkpoint_id: str | None
