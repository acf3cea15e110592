"""Microsoft Agent Framework: checkpoints of workflows in a Holdfast store.

A workflow's name is a thread, its checkpoints are that thread's. What stands in messages and state is
stored as plain values. An object is stored with the name of its class, and only if the class is on a
list: the framework's own and those that the caller hands over. Reading looks the name up in that
list, so nothing is imported, and no code of an object runs that is not on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, Final

from holdfast.errors import MissingExtra, StateNotSerializable
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, CheckpointRecord, NewCheckpoint, SessionQuery, Trim
from holdfast.stores import Store, open_store
from holdfast.threads import ThreadRecorders, check_cap, thread_agent, thread_session
from holdfast.waiting import in_thread

try:
    from agent_framework import (
        AgentExecutorRequest,
        AgentExecutorResponse,
        AgentResponse,
        Content,
        Message,
        WorkflowCheckpoint,
        WorkflowCheckpointException,
        WorkflowEvent,
        WorkflowMessage,
    )
except ModuleNotFoundError as error:
    raise MissingExtra("agent-framework", "An adapter for Microsoft Agent Framework") from error

_KIND: Final = "agent-framework"
_CLASS: Final = "$class"
_PLAIN: Final = (bool, int, float, str, bytes, list, tuple, set, frozenset, dict, NoneType)
_OWN: Final = (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Content,
    Message,
    WorkflowCheckpoint,
    WorkflowMessage,
    type(WorkflowMessage(data=None, source_id="").type),
)


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
        self._forms = _Forms([*_OWN, *types])
        self._trim = Trim(keep=check_cap(max_checkpoints))
        self._recorders = ThreadRecorders()

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint and return its id. It is durable then; an equal id is replaced.

        Raises `StateNotSerializable` for an object of a class that is not allowed, naming its place.
        """
        state = {
            name: self._forms.stored(value, f"$.{name}")
            for name, value in checkpoint.to_dict().items()
        }
        await in_thread(self._put, checkpoint.checkpoint_id, checkpoint.workflow_name, state)
        return str(checkpoint.checkpoint_id)

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
            while records := self._records(workflow_name, limit=1):
                if (found := self._read(records[0])) is not None:
                    return found
            return None

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
        row_id = new_id()
        session = thread_session(self._store.tenant, _KIND, workflow_name)
        for attempt in self._recorders.attempts((workflow_name, ""), state):
            with attempt as encoded:
                self._store.put(
                    NewCheckpoint(
                        id=row_id,
                        external_id=checkpoint_id,
                        session_id=workflow_name,
                        name=checkpoint_id,
                        replace=True,
                        manifest=encoded.manifest,
                        refs=encoded.refs,
                        chunks=encoded.chunks,
                        expects=encoded.expects,
                        size_bytes=encoded.size_bytes,
                        checkpoint_type="auto",
                        retention_class="step",
                        trim=self._trim,
                        session=session,
                    )
                )

    def _find(self, checkpoint_id: str) -> CheckpointRecord | None:
        agent = thread_agent(self._store.tenant, _KIND)
        for session in self._store.list_sessions(SessionQuery(agent_id=agent.id)):
            query = CheckpointQuery(session_id=session.id, namespace="", external_id=checkpoint_id)
            for record in self._store.list_checkpoints(query):
                return record
        return None

    def _records(self, workflow_name: str, limit: int | None = None) -> list[CheckpointRecord]:
        query = CheckpointQuery(session_id=workflow_name, namespace="", limit=limit)
        return self._store.list_checkpoints(query)[::-1]

    def _read(self, record: CheckpointRecord) -> WorkflowCheckpoint | None:
        loaded = self._store.load(record.id)
        if loaded is None:
            return None
        payload, content = loaded
        key = (record.session_id, record.namespace)
        self._recorders.adopt(key, payload, self._store.read_chunks, self._store.cache)
        state = {name: self._forms.live(value) for name, value in content.state.items()}
        return WorkflowCheckpoint.from_dict(state)


class _Forms:
    """From objects of allowed classes to plain values and back."""

    def __init__(self, allowed: Iterable[type[Any]]) -> None:
        self._allowed: Mapping[str, type[Any]] = {_name(one): one for one in [*_PLAIN, *allowed]}

    def stored(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind is dict:
            plain = {key: self.stored(item, f"{path}.{key}") for key, item in value.items()}
            return {_CLASS: "dict", "items": plain} if _CLASS in plain else plain
        if kind in (list, tuple, set, frozenset):
            return kind(self.stored(item, f"{path}[{at}]") for at, item in enumerate(value))
        if isinstance(value, WorkflowEvent):
            return {_CLASS: "event", **self._event(value, path)}
        if kind in _PLAIN:
            return value
        if self._allowed.get(_name(kind)) is not kind:
            if _would_change(value):
                raise StateNotSerializable(
                    path, f"a {_name(kind)}: hand its class over with types=[…] to have it stored"
                )
            return value  # a date, say; what no state can hold is refused there
        form: Any
        if isinstance(value, Enum):
            form = value.value
        elif hasattr(value, "model_dump"):
            form = value.model_dump(mode="json")
        elif hasattr(kind, "from_dict") and not is_dataclass(kind):
            form = value.to_dict()
        elif is_dataclass(kind):
            form = {one.name: getattr(value, one.name) for one in fields(kind)}
        else:
            raise StateNotSerializable(path, f"a {_name(kind)} has no form in which it is stored")
        return {_CLASS: _name(kind), "value": self.stored(form, path)}

    def live(self, value: Any) -> Any:
        kind = type(value)
        if kind in (list, tuple, set, frozenset):
            return kind(self.live(item) for item in value)
        if kind is not dict:
            return value
        if _CLASS not in value:
            return {key: self.live(item) for key, item in value.items()}
        if value[_CLASS] == "dict":
            return {key: self.live(item) for key, item in value["items"].items()}
        if value[_CLASS] == "event":
            return WorkflowEvent.request_info(
                request_id=value["request_id"],
                source_executor_id=value["source_executor_id"],
                request_data=self.live(value["data"]),
                response_type=self._class(value["response_type"]),
            )
        return _made(self._class(value[_CLASS]), self.live(value["value"]))

    def _event(self, event: WorkflowEvent[Any], path: str) -> dict[str, Any]:
        document = event.to_dict()
        answer = event.response_type
        if answer is not None and self._allowed.get(_name(answer)) is not answer:
            raise StateNotSerializable(
                path, f"asks for a {_name(answer)}: hand that class over with types=[…]"
            )
        return {
            "request_id": document["request_id"],
            "source_executor_id": document["source_executor_id"],
            "data": self.stored(document["data"], f"{path}.data"),
            "response_type": None if answer is None else _name(answer),
        }

    def _class(self, name: str | None) -> Any:
        if name is not None and name not in self._allowed:
            raise WorkflowCheckpointException(
                f"The checkpoint holds a {name}, a class that is not allowed; nothing was made of it. "
                f"Hand the class over with types=[…] if it is yours."
            )
        return None if name is None else self._allowed[name]


def _name(kind: Any) -> str:
    return f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', kind)}"


def _would_change(value: Any) -> bool:
    """Tell whether a state would take a value for something simpler than it is."""
    return isinstance(value, (Enum, *_PLAIN)) or is_dataclass(value) or hasattr(value, "model_dump")


def _made(kind: type[Any], form: Any) -> Any:
    if issubclass(kind, Enum):
        return kind(form)
    if hasattr(kind, "model_validate"):
        return kind.model_validate(form)
    if not is_dataclass(kind):
        return kind.from_dict(form)
    # Its fields are set as they were; no code of the class runs.
    made = object.__new__(kind)
    for one in fields(kind):
        object.__setattr__(made, one.name, form[one.name])
    return made
