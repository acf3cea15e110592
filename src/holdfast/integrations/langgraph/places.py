"""Where a config points: LangGraph's thread, namespace and checkpoint id, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from langchain_core.runnables import RunnableConfig

from holdfast.errors import InvalidIdentifier
from holdfast.ids import check_external_id, check_namespace, check_session_id

# A dict is told at once; what else is a mapping takes a while to find out.
_MAPPINGS: Final = (dict, Mapping)
# A number beyond this is no id, and Python would not even write it down.
_ID_BITS: Final = 1024


class Place(NamedTuple):
    """A thread, a namespace (None where the config names none) and a checkpoint, or its latest."""

    thread_id: str
    namespace: str | None
    checkpoint_id: str | None

    @property
    def line(self) -> tuple[str, str]:
        """The line of checkpoints: thread and namespace."""
        return (self.thread_id, self.namespace or "")


def place_of(config: RunnableConfig) -> Place:
    """Return where a config points. Raises `InvalidIdentifier` for what names no place."""
    names = _configurable(config)
    if "thread_id" not in names:
        raise InvalidIdentifier(
            'the config names no thread: pass {"configurable": {"thread_id": "…"}}'
        )
    thread_id = thread_of(names["thread_id"])
    namespace = names.get("checkpoint_ns")
    if namespace is not None:
        check_namespace(namespace)
    return Place(thread_id, namespace, _checkpoint_in(names))


def thread_of(value: object) -> str:
    """Return a thread id; numbers and UUIDs are taken as their text, as LangGraph does."""
    if isinstance(value, UUID) or (type(value) is int and value.bit_length() <= _ID_BITS):
        value = str(value)
    return check_session_id(value)


def checkpoint_of(config: RunnableConfig) -> str | None:
    """Return the checkpoint id that a config names, or None."""
    return _checkpoint_in(_configurable(config))


def _checkpoint_in(names: Mapping[str, Any]) -> str | None:
    checkpoint_id = names.get("checkpoint_id")
    return check_external_id(checkpoint_id) if checkpoint_id else None


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def _configurable(config: RunnableConfig) -> Mapping[str, Any]:
    given: Any = config
    names = given.get("configurable") if isinstance(given, _MAPPINGS) else None
    if not isinstance(names, _MAPPINGS):
        raise InvalidIdentifier("a config is a dict with the key 'configurable'")
    return names
