"""Checkpointing for an agent that is a class: mix it in, name a saver, save and restore."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import CheckpointNotFound, InvalidIdentifier, NotInitialised
from holdfast.savers.base import BaseCheckpointSaver
from holdfast.savers.values import CheckpointConfig, CheckpointMetadata, CheckpointSummary


class CheckpointableMixin:
    """Gives an agent save points in one thread of a saver.

        class Planner(CheckpointableMixin):
            ...

        planner = Planner()
        planner.init_checkpointing(SQLiteCheckpointSaver("checkpoints.db"), "job-7")
        state = planner.restore_checkpoint() or {"todo": []}
        planner.save_checkpoint("plan", state, tags=("draft",))

    Steps are numbered through, over restarts too. Each checkpoint's parent is the one before it, or
    the one that was restored last.
    """

    _checkpoint_saver: BaseCheckpointSaver | None = None
    _checkpoint_config: CheckpointConfig | None = None
    _checkpoint_step: int = 0

    def init_checkpointing(
        self, saver: BaseCheckpointSaver, thread_id: str, *, namespace: str = ""
    ) -> None:
        """Work in this thread from now on, and continue its count of steps."""
        config = CheckpointConfig(thread_id, namespace=namespace)
        # Two agents may have worked in the thread, so the latest step need not be the highest.
        steps = [found.metadata.step for found in saver.list_summaries(config)]
        self._checkpoint_step = max((step for step in steps if step is not None), default=0)
        self._checkpoint_saver = saver
        self._checkpoint_config = config

    def save_checkpoint(self, node: str, state: Mapping[str, Any], tags: Iterable[str] = ()) -> str:
        """Save a state and return the id of its checkpoint."""
        if isinstance(tags, str):
            raise InvalidIdentifier(f"tags are a list, and not one text: [{tags!r:.80}]")
        saver, config = self._checkpointing()
        step = self._checkpoint_step + 1
        metadata = CheckpointMetadata(source="loop", step=step, node=node, tags=list(tags))
        saved = saver.put(config, state, metadata)
        self._checkpoint_step = step
        self._checkpoint_config = saved
        return str(saved.checkpoint_id)

    def restore_checkpoint(self, id: str | None = None) -> dict[str, Any] | None:  # noqa: A002
        """Return the state of a checkpoint, the thread's latest without an id, and go on from there.

        None means that the thread has no checkpoint yet. Raises `CheckpointNotFound` for an id that
        the thread does not have.
        """
        saver, config = self._checkpointing()
        found = saver.get_tuple(CheckpointConfig(config.thread_id, id, config.namespace))
        if found is None:
            if id is not None:
                raise CheckpointNotFound(f"thread {config.thread_id!r} has no checkpoint {id!r}")
            return None
        self._checkpoint_config = found.config
        return found.checkpoint

    def get_checkpoint_history(self, limit: int | None = None) -> Sequence[CheckpointSummary]:
        """List the thread's checkpoints without their states, newest first."""
        saver, config = self._checkpointing()
        thread = CheckpointConfig(config.thread_id, namespace=config.namespace)
        return [*saver.list_summaries(thread, limit=limit)]

    def _checkpointing(self) -> tuple[BaseCheckpointSaver, CheckpointConfig]:
        if self._checkpoint_saver is None or self._checkpoint_config is None:
            raise NotInitialised(
                f"{type(self).__name__} has no saver yet; call init_checkpointing(saver, thread_id) first"
            )
        return self._checkpoint_saver, self._checkpoint_config
