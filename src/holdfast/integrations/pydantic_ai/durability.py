"""Durable runs: every model request and tool call of an agent goes through the ledger of effects.

After a crash the same code in the same ``async with durable_run(url, run_id)`` goes on: what is recorded
as done is not done again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.tools import RunContext

from holdfast.aio import AsyncSession, AsyncSessionManager
from holdfast.errors import CheckpointBusy, SessionNotFound
from holdfast.ids import check_session_id

if TYPE_CHECKING:
    from pydantic_ai.durable_exec import ToolsetKind

_KIND: Final = "pydantic-ai"


@dataclass(frozen=True, slots=True)
class _Run:
    """A durable run: its session, and how often each operation came so far.

    What runs inside an operation, such as an agent that a tool asks, counts for itself: it does not run when
    that operation is replayed, and what comes after it has to have the same names nevertheless.
    """

    session: AsyncSession
    within: str = ""
    counts: Counter[str] = field(default_factory=Counter)

    def next(self, name: str) -> str:
        self.counts[name] += 1
        return f"{self.within}{name}#{self.counts[name]}"

    def inside(self, key: str) -> _Run:
        """Return the run as it is inside an operation, whose key would make longer and longer names."""
        return _Run(self.session, f"{sha256(key.encode()).hexdigest()[:16]}:")


_RUN: Final[ContextVar[_Run | None]] = ContextVar("holdfast_pydantic_ai_run", default=None)
_under_way: Final[dict[tuple[object, ...], object]] = {}


@asynccontextmanager
async def durable_run(where: AsyncSessionManager | str | Path, run_id: str) -> AsyncIterator[None]:
    """Make the runs of agents in this block durable, under the session ``run_id`` of a store.

    The session is held meanwhile: whoever else enters, another process or a task of this one, gets
    `CheckpointBusy`, or goes on where the first process stopped if that is dead. Entered again, finished operations return what they
    returned, so the same code comes to the same result without doing anything.
    """
    if isinstance(where, AsyncSessionManager):
        with _alone(where, run_id):
            async with await _session(where, run_id) as session:
                token = _RUN.set(_Run(session))
                try:
                    yield
                finally:
                    _RUN.reset(token)
        return
    manager = await AsyncSessionManager.open(where, workspace=False)
    try:
        async with durable_run(manager, run_id):
            yield
    finally:
        await manager.close()


@contextmanager
def _alone(manager: AsyncSessionManager, run_id: str) -> Iterator[None]:
    """Refuse a run that this process has under way: a lease does not, since all tasks share it."""
    # With the process id, since a forked child has none of its parent's runs under way.
    key = (os.getpid(), manager.store.identity, check_session_id(run_id))
    mark = object()
    if _under_way.setdefault(key, mark) is not mark:
        raise CheckpointBusy(
            f"this process has the durable run {run_id!r} under way already. Nothing was run: enter "
            f"it again when that one has ended, or give this one an id of its own"
        )
    try:
        yield
    finally:
        del _under_way[key]


async def _session(manager: AsyncSessionManager, run_id: str) -> AsyncSession:
    try:
        return await manager.resume_session(run_id)
    except SessionNotFound:
        return await manager.create_session(_KIND, session_id=run_id)


class HoldfastDurability(BaseDurabilityCapability[Any]):
    """A capability that records model requests and tool calls while a `durable_run` is open.

    Models are asked again when nobody saw the end of a request. A tool call that nobody saw the end
    of raises `EffectUnknown`, unless ``tool_policy`` or the tool's metadata, ``{"holdfast": {"policy":
    "retry"}}`` or ``{"holdfast": {"idempotent": True}}``, says that it may run again.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="durable run",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        # Which of several calls at once came first may differ from run to run.
        sequential_tools_in_durable_context=True,
        tool_config_key="holdfast",
    )

    def __init__(self, *, tool_policy: Literal["fail", "retry"] = "fail", **options: Any) -> None:
        super().__init__(**options)
        self._tool: Mapping[str, Any] = {"policy": tool_policy}

    @property
    def in_durable_context(self) -> bool:
        """Whether a `durable_run` is open."""
        return _RUN.get() is not None

    def get_default_run_id(self) -> str | None:
        """Return an id that is the same when the run is repeated."""
        run = _RUN.get()
        return None if run is None else f"{run.session.id}:{run.next('run')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return an id that is the same when the run is repeated."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Return when the run began first, for its timeout."""
        run = _RUN.get()
        if run is None:
            return None
        name = f"{self.name}__run_start_time"
        began: datetime = await run.session.step(
            name, lambda: datetime.now(UTC), key=run.next(name), idempotent=True
        )
        return began

    def get_durable_operation_backend(self) -> _LedgerBackend:
        """Return what runs the operations."""

        def for_tool(operation: DurableOperationId, tool: Any, name: str) -> Any:
            # Looking which tools there are may be done any number of times; calling one may not.
            base = self._tool if isinstance(operation, ToolsetCallToolId) else _AGAIN
            return self._build_resolve_tool_config(base)(tool, name)

        config = RoleBasedOperationConfig(
            model=_AGAIN, event=_AGAIN, capability=_AGAIN, tool=self._tool, resolve_tool=for_tool
        )
        return _LedgerBackend(agent_name=self.name, config=config)

    def _toolset_base_config(self, kind: ToolsetKind) -> Any:
        return self._tool


_AGAIN: Final[Mapping[str, Any]] = {"idempotent": True}


class _LedgerBackend(JournalCallableOperationBackend[Mapping[str, Any]]):
    """Runs operations as steps of the session."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Mapping[str, Any],
    ) -> object:
        run = _RUN.get()
        if run is None:
            return await body()
        # Several runs of agents at once count apart. That a call has other arguments than the recorded
        # one is noticed; the messages of a request have times of their own, and are not compared.
        ids = [one.run_id for one in cache_key if isinstance(one, RunContext)]
        said = cache_key[:2] if isinstance(operation_id, ToolsetCallToolId) else ()

        key = run.next(" ".join([*map(str, ids), name]))

        async def perform(*_: object) -> object:
            token = _RUN.set(run.inside(key))
            try:
                return await body()
            finally:
                _RUN.reset(token)

        return await run.session.step(name, perform, *said, key=key, **config)
