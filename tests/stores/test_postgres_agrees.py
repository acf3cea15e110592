"""PostgreSQL and plain Python give the same answers to the same calls, whatever the calls are."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.model import (
    AgentRecord,
    CheckpointRecord,
    EffectRecord,
    GcReport,
    LogRecord,
    PutResult,
    SessionRecord,
    SessionUsage,
)
from holdfast.stores import memory_sessions, postgres_sessions
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.postgres import PostgresStore
from tests.stores.postgres_drafts import connect
from tests.stores.test_stores_agree import Operation, everything, operations


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_url) as store:
        yield store


def comparable(answer: Any) -> Any:
    """Return an answer without what a server decides alone: its clock, its sequence, its pages, its draws."""
    match answer:
        case CheckpointRecord():
            return replace(answer, seq=0, stored_bytes=0, created_at=None)  # type: ignore[arg-type]
        case PutResult():
            return comparable((answer.record, answer.created, answer.removed))
        case AgentRecord():
            return replace(answer, created_at=None, updated_at=None)  # type: ignore[arg-type]
        case SessionRecord():
            times = dict.fromkeys(("created_at", "updated_at", "paused_at"))
            return replace(answer, lease_token=0, **times)  # type: ignore[arg-type]
        case LogRecord():
            return replace(answer, id=0, created_at=None)  # type: ignore[arg-type]
        case EffectRecord():
            ended = answer.finished_at is not None
            return replace(answer, started_at=None, finished_at=ended)  # type: ignore[arg-type]
        case SessionUsage():
            return replace(answer, stored_bytes=0)
        case GcReport():
            return replace(answer, bytes=0)
        case list() | tuple():
            return [comparable(one) for one in answer]
        case _:
            return answer


def answer(store: Store, operation: Operation, count: int) -> Any:
    drawn = iter(range(1000))
    modules: list[Any] = [memory_sessions, postgres_sessions]
    saved = [module.new_id for module in modules]
    for module in modules:
        module.new_id = lambda: f"cccccccc-0000-7000-{count:04x}-{next(drawn):012x}"
    try:
        return comparable(operation(store))
    except HoldfastError:
        return "refused"  # a call can be wrong in two ways; which is named first is free
    finally:
        for module, original in zip(modules, saved, strict=True):
            module.new_id = original


def without_sizes(found: list[Any]) -> list[Any]:
    """Return what `everything` saw; how many bytes chunks take is the server's business."""
    return [comparable(one) for one in found if not isinstance(one, int)]


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(chosen=st.lists(operations, min_size=5, max_size=25))
def test_memory_and_postgres_agree(
    store: PostgresStore, postgres_url: str, chosen: list[Operation]
) -> None:
    with connect(postgres_url) as connection:
        connection.execute("TRUNCATE agents, chunks CASCADE")
    plain = MemoryStore()
    for count, operation in enumerate(chosen):
        if "before_seq=" in operation.__qualname__ and "before_seq=None" not in (
            operation.__qualname__
        ):
            continue  # a sequence leaves gaps where a put was refused
        expected = answer(plain, operation, count)
        assert answer(store, operation, count) == expected, operation.__qualname__
    assert without_sizes(everything(store)) == without_sizes(everything(plain))
