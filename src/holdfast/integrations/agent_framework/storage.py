"""Checkpoints by workflow: its name is a thread, and they are that thread's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException

from holdfast.errors import StateNotSerializable
from holdfast.ids import check_external_id, check_session_id, new_id, thread_agents
from holdfast.integrations.agent_framework.forms import Forms
from holdfast.model import CheckpointQuery, CheckpointRecord, Payload, SessionQuery, Trim
from holdfast.state import DecodedState
from holdfast.stores import Store, open_store
from holdfast.threads import (
    ThreadRecorders,
    check_cap,
    refuse_foreign,
    thread_checkpoint,
    thread_session,
)
from holdfast.waiting import in_thread

_KIND: Final = "agent-framework"


class HoldfastCheckpointStorage:
    """Keeps checkpoints in a store, which is given, or opened from its URL and closed by `close`.

    ``types`` are classes of your own whose objects stand in messages or state: dataclasses, enums,
    pydantic models, and classes with ``to_dict`` and ``from_dict``. Everything is kept, unless
    ``max_checkpoints`` bounds each workflow.
    """

    def __init__(
        self,
        where: Store | str | Path,
        *,
        types: Iterable[type[Any]] = (),
        max_checkpoints: float | None = None,
    ) -> None:
        self._owned = not isinstance(where, Store)
        self._store = where if isinstance(where, Store) else open_store(where)
        self._forms = Forms(types)
        self._trim = Trim(keep=check_cap(max_checkpoints))
        self._recorders = ThreadRecorders()

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint and return its id. It is durable then; an equal id is replaced.

        Raises `StateNotSerializable` for an object of a class that is not allowed, naming its place, and
        `InvalidIdentifier` for an id or a name that nothing can have.
        """
        try:
            state = {
                name: self._forms.stored(value, f"$.{name}")
                for name, value in checkpoint.to_dict().items()
            }
        except RecursionError:
            raise StateNotSerializable("$", "it holds itself, or is nested too deeply") from None
        checkpoint_id = check_external_id(checkpoint.checkpoint_id)
        await in_thread(self._put, checkpoint_id, checkpoint.workflow_name, state)
        return checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint. Raises ``WorkflowCheckpointException``, also for unknown classes."""
        record = await in_thread(self._find, checkpoint_id)
        found = None if record is None else await in_thread(self._read, record)
        if found is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return found

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, oldest first."""

        def read() -> list[WorkflowCheckpoint | None]:
            return [self._read(record) for record in self._records(workflow_name)]

        return [found for found in await in_thread(read) if found is not None]

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; tell whether there was one."""

        def delete() -> bool:
            record = self._find(checkpoint_id)
            return record is not None and self._store.delete_checkpoints([record.id]) > 0

        return await in_thread(delete)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint of a workflow that was stored last, or None. No clock decides."""

        def read() -> WorkflowCheckpoint | None:
            loaded = self._store.load_newest(_line(workflow_name))
            return None if loaded is None else self._opened(*loaded)

        return await in_thread(read)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of a workflow's checkpoints, oldest first; nothing else is read."""
        records = await in_thread(self._records, workflow_name)
        return [record.external_id for record in records if record.external_id is not None]

    async def close(self) -> None:
        """Close the store if it was opened here."""
        if self._owned:
            await in_thread(self._store.close)

    def _put(self, checkpoint_id: str, workflow_name: str, state: dict[str, Any]) -> None:
        # Asked every time: once it was erased, another may have taken its name.
        refuse_foreign(self._store, _KIND, check_session_id(workflow_name))
        row_id = new_id()
        session = thread_session(self._store.tenant, _KIND, workflow_name)
        for attempt in self._recorders.attempts((workflow_name, ""), state):
            with attempt as encoded:
                self._store.put(
                    thread_checkpoint(
                        session,
                        encoded,
                        row_id,
                        external_id=checkpoint_id,
                        replace=True,
                        trim=self._trim,
                    )
                )

    def _find(self, checkpoint_id: object) -> CheckpointRecord | None:
        if type(checkpoint_id) is not str:
            return None  # what a first one says came before it, say
        agents = thread_agents(_KIND)
        for session in self._store.list_sessions(SessionQuery(agent_prefix=agents)):
            query = CheckpointQuery(session_id=session.id, namespace="", external_id=checkpoint_id)
            for record in self._store.list_checkpoints(query):
                return record
        return None

    def _records(self, workflow_name: str) -> list[CheckpointRecord]:
        records = self._store.list_checkpoints(_line(workflow_name))[::-1]
        if records:
            refuse_foreign(self._store, _KIND, workflow_name, records[0])
        return records

    def _read(self, record: CheckpointRecord) -> WorkflowCheckpoint | None:
        loaded = self._store.load(record.id)
        return None if loaded is None else self._opened(record, *loaded)

    def _opened(
        self, record: CheckpointRecord, payload: Payload, content: DecodedState
    ) -> WorkflowCheckpoint:
        refuse_foreign(self._store, _KIND, record.session_id, record)
        key = (record.session_id, record.namespace)
        self._recorders.adopt(key, payload, self._store.read_chunks, self._store.cache)
        try:
            state = {name: self._forms.live(value) for name, value in content.state.items()}
        except WorkflowCheckpointException:
            raise
        except Exception as error:
            raise WorkflowCheckpointException(
                f"The checkpoint {record.external_id} holds an object that cannot be made again, as its class is "
                f"now; it is stored as it was: {error!r}"
            ) from error
        return WorkflowCheckpoint.from_dict(state)


def _line(workflow_name: str) -> CheckpointQuery:
    return CheckpointQuery(session_id=check_session_id(workflow_name), namespace="")
