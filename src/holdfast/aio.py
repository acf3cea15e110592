"""The sessions API for asyncio: the same names, one line a method.

The core is synchronous; these twins run it in threads of their own. Context variables are those of the
caller. A cancelled call does not leave its write in doubt: the twin waits for the outcome and re-raises
only then, so that what comes next sees either the whole effect or none of it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from holdfast.autosave import INTERVAL, Clock
from holdfast.autosave.twin import AsyncAutosave, LoopProvider
from holdfast.brief import Brief
from holdfast.bundle import BundleReport
from holdfast.closing import AsyncClosing
from holdfast.config import RedactionSettings
from holdfast.effects import Call, Declaration, Effect, Verdict
from holdfast.errors import IntegrityError
from holdfast.model import (
    BRIEF_TOKENS,
    LEASE_TTL,
    AgentRecord,
    GcReport,
    KeyReport,
    LogRecord,
    SessionRecord,
    SessionStatus,
    SessionUsage,
)
from holdfast.preflight import MemoryRefReport, Preflight
from holdfast.redaction import Placeholder, Redact, Redaction, Secrets
from holdfast.retention import Decision, Policy
from holdfast.sessions import Checkpoint, Session, SessionManager
from holdfast.sessions.comparison import Comparison
from holdfast.sessions.erasing import Erasure
from holdfast.sessions.inspection import SecretsReport
from holdfast.sessions.passed_over import PassedOver
from holdfast.sessions.portable import CopyReport, ImportReport
from holdfast.sessions.rollback import RollbackReport
from holdfast.sessions.unfinished import MAX_RECOVERIES
from holdfast.sessions.upkeep import StorageReport
from holdfast.stores import Store
from holdfast.verification import VerifyReport
from holdfast.waiting import in_thread, run_in
from holdfast.workspace.base import Limits, Progress, SavedFile, Skipped, Usage
from holdfast.workspace.git import Workspace

if TYPE_CHECKING:
    from holdfast.crypto import GivenKeys

P = ParamSpec("P")
R = TypeVar("R")

_THREADS = 8
# Bodies of steps may wait for each other, and for steps of their own. A thread is started when none is idle.
_BODIES = 1000


class _Executor(ThreadPoolExecutor):
    """An executor that takes calls after its end as well: what was closed says so itself."""

    closed = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            if not self.closed:
                raise
        late = ThreadPoolExecutor(1, thread_name_prefix="holdfast")
        try:
            return late.submit(fn, *args, **kwargs)
        finally:
            late.shutdown(wait=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.closed = True
        super().shutdown(wait, cancel_futures=cancel_futures)


class Threads:
    """Runs blocking calls in threads and waits for each of them, come what may.

    Those of users' own code have threads of their own: however long they take, ours go on.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._executor = _Executor(_THREADS, thread_name_prefix="holdfast")
        self._bodies = _Executor(_BODIES, thread_name_prefix="holdfast-step")
        self._pid = os.getpid()

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run ``call`` in a thread; see `holdfast.waiting`."""
        self._start_again_in_a_fork()
        return await run_in(self._executor, call, *args, **kwargs)

    async def run_body(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a ``call`` that runs a user's own code, which may wait for other calls."""
        self._start_again_in_a_fork()
        return await run_in(self._bodies, call, *args, **kwargs)

    def _start_again_in_a_fork(self) -> None:
        if self._pid != os.getpid() and not self._executor.closed:
            # The threads have stayed with the parent of a fork, and nobody would take up the call.
            self._start()

    def shut_down(self) -> None:
        """Let running calls finish and end the threads. Doing so twice is fine."""
        self._bodies.shutdown(wait=True)
        self._executor.shutdown(wait=True)


def _loaded(checkpoint: Checkpoint) -> Checkpoint:
    """Read a checkpoint's content here, in a worker thread, so that ``.state`` blocks nobody."""
    checkpoint.content.read()
    return checkpoint


class AsyncSession(AsyncClosing):
    """The twin of `Session`."""

    def __init__(self, session: Session, threads: Threads) -> None:
        self._session = session
        self._run = threads.run
        self._threads = threads

    @property
    def record(self) -> SessionRecord:
        """See `Session.record`."""
        return self._session.record

    @property
    def id(self) -> str:
        """See `Session.id`."""
        return self._session.id

    @property
    def agent_id(self) -> str:
        """See `Session.agent_id`."""
        return self._session.agent_id

    @property
    def agent_type(self) -> str:
        """See `Session.agent_type`."""
        return self._session.agent_type

    @property
    def task_description(self) -> str | None:
        """See `Session.task_description`."""
        return self._session.task_description

    @property
    def status(self) -> SessionStatus:
        """See `Session.status`."""
        return self._session.status

    @property
    def metadata(self) -> Mapping[str, Any]:
        """See `Session.metadata`."""
        return self._session.metadata

    @property
    def created_at(self) -> datetime:
        """See `Session.created_at`."""
        return self._session.created_at

    @property
    def state(self) -> Awaitable[dict[str, Any]]:
        """See `Session.state`: ``await session.state``."""
        return self.get_state()

    @property
    def redaction(self) -> Redaction:
        """See `Session.redaction`."""
        return self._session.redaction

    @property
    def is_held(self) -> bool:
        """See `Session.is_held`."""
        return self._session.is_held

    @property
    def notices(self) -> tuple[str, ...]:
        """See `Session.notices`."""
        return self._session.notices

    @property
    def paused_for(self) -> timedelta | None:
        """See `Session.paused_for`."""
        return self._session.paused_for

    async def close(self, *, release: bool | None = None) -> None:
        """See `Session.close`."""
        # Not in our own threads, which may have ended with the manager.
        await in_thread(self._session.close, release=release)

    async def get_state(self) -> dict[str, Any]:
        """See `Session.get_state`."""
        return await self._run(self._session.get_state)

    async def present_state(self) -> dict[str, Any]:
        """See `Session.present_state`."""
        return await self._run(self._session.present_state)

    async def outline(self) -> dict[str, Any]:
        """See `Session.outline`."""
        return await self._run(self._session.outline)

    async def look_at_files(self) -> tuple[bool, str | None]:
        """See `Session.look_at_files`."""
        return await self._run(self._session.look_at_files)

    async def describe_task(self, task_description: str) -> None:
        """See `Session.describe_task`."""
        await self._run(self._session.describe_task, task_description)

    async def missing_secrets(self) -> list[Placeholder]:
        """See `Session.missing_secrets`."""
        return await self._run(self._session.missing_secrets)

    async def refresh(self) -> AsyncSession:
        """See `Session.refresh`."""
        return AsyncSession(await self._run(self._session.refresh), self._threads)

    async def save_checkpoint(
        self,
        name: str | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        description: str | None = None,
        checkpoint_type: str | None = None,
        retention_class: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        resumable: bool = True,
        pinned: bool = False,
        expires_in: timedelta | None = None,
        checkpoint_id: str | None = None,
        workspace: bool = True,
        paths: Sequence[str | PathLike[str]] | None = None,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """See `Session.save_checkpoint`."""
        return await self._run(
            self._session.save_checkpoint,
            name,
            state=state,
            description=description,
            checkpoint_type=checkpoint_type,
            retention_class=retention_class,
            metadata=metadata,
            overwrite=overwrite,
            resumable=resumable,
            pinned=pinned,
            expires_in=expires_in,
            checkpoint_id=checkpoint_id,
            workspace=workspace,
            paths=paths,
            progress=progress,
        )

    async def wrote(self, *paths: str | PathLike[str]) -> None:
        """See `Session.wrote`."""
        await self._run(self._session.wrote, *paths)

    async def rollback(
        self,
        reference: str | None = None,
        *,
        paths: Sequence[str] | None = None,
        dry_run: bool = False,
        move_head: bool = False,
        only_mine: bool = False,
        state: bool | None = None,
        files: bool = True,
    ) -> RollbackReport:
        """See `Session.rollback`."""
        return await self._run(
            self._session.rollback,
            reference,
            paths=paths,
            dry_run=dry_run,
            move_head=move_head,
            only_mine=only_mine,
            state=state,
            files=files,
        )

    async def go_on_from(self, reference: str) -> RollbackReport | None:
        """See `Session.go_on_from`."""
        return await self._run(self._session.go_on_from, reference)

    async def undo(self, *, dry_run: bool = False) -> RollbackReport:
        """See `Session.undo`."""
        return await self._run(self._session.undo, dry_run=dry_run)

    async def redo(self, *, dry_run: bool = False) -> RollbackReport:
        """See `Session.redo`."""
        return await self._run(self._session.redo, dry_run=dry_run)

    async def record_failure(
        self, error: BaseException, *, state: Mapping[str, Any] | None = None
    ) -> Checkpoint:
        """See `Session.record_failure`."""
        return await self._run(self._session.record_failure, error, state=state)

    async def fall_back(
        self, checkpoint: Checkpoint, error: BaseException, *, move_head: bool = False
    ) -> RollbackReport | None:
        """See `Session.fall_back`."""
        return await self._run(self._session.fall_back, checkpoint, error, move_head=move_head)

    async def begin_guard(self, checkpoint: Checkpoint) -> Checkpoint:
        """See `Session.begin_guard`."""
        return await self._run(self._session.begin_guard, checkpoint)

    async def end_guard(self, checkpoint: Checkpoint) -> None:
        """See `Session.end_guard`."""
        await self._run(self._session.end_guard, checkpoint)

    @asynccontextmanager
    async def guard(
        self, name: str, *, state: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None
    ) -> AsyncIterator[Checkpoint]:
        """See `Session.guard`."""
        guard = self._session.guard(name, state=state)
        saved: list[Checkpoint] = []
        try:
            await self._run(lambda: saved.append(guard.__enter__()))
            yield saved[0]
        except BaseException as error:
            # The sync guard records the failure and re-raises: the same exception goes on. Who was cancelled
            # while it saved has entered it all the same.
            if saved:
                await self._run(guard.__exit__, type(error), error, error.__traceback__)
            raise
        await self._run(guard.__exit__, None, None, None)

    def autosave(
        self,
        provider: Callable[[], Any],
        *,
        interval: float | None = INTERVAL,
        critical: Collection[str] = (),
        timeout: float = 10.0,
        child_grace: float = 5.0,
        signals: bool = True,
        clock: Clock | None = None,
    ) -> AsyncAutosave[Checkpoint]:
        """See `Session.autosave`; the provider is called in the event loop and may be a coroutine."""
        in_loop = LoopProvider(provider)
        saver = self._session.autosave(
            in_loop,
            interval=interval,
            critical=critical,
            timeout=timeout,
            child_grace=child_grace,
            signals=signals,
            clock=clock,
        )
        return AsyncAutosave(saver, in_loop)

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        key: str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
        **kwargs: Any,
    ) -> R: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., R],
        /,
        *args: Any,
        key: str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
        **kwargs: Any,
    ) -> R: ...
    async def step(
        self,
        name: str,
        function: Callable[..., R],
        /,
        *args: Any,
        key: str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
        **kwargs: Any,
    ) -> Any:
        """See `Session.step`; the function and ``reconcile`` may be async.

        A body that is cancelled may have happened or not: it is recorded as unknown. One that blocks
        is waited for; a call that was cancelled meanwhile, by a timeout too, is made again to get
        what it returned.
        """
        call = Call(name, function, args, kwargs, key, policy, reconcile, idempotent)
        return await self._session.open_ledger().run_async(call, self._threads)

    def effect(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., str] | str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
    ) -> Callable[..., Any]:
        """See `Session.effect`; what it makes is awaited."""

        declared = Declaration(name, key, policy, reconcile, idempotent)

        def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(body)
            async def recorded(*args: Any, **kwargs: Any) -> Any:
                call = declared.call(body, args, kwargs)
                return await self._session.open_ledger().run_async(call, self._threads)

            return recorded

        return decorate if function is None else decorate(function)

    async def effects(self, *, status: str | None = None, limit: int | None = None) -> list[Effect]:
        """See `Session.effects`; their results are read already."""
        return await self._run(
            lambda: [one.loaded() for one in self._session.effects(status=status, limit=limit)]
        )

    async def load_checkpoint(self, reference: str, *, force: bool = False) -> Checkpoint:
        """See `Session.load_checkpoint`."""
        return await self._run(self._session.load_checkpoint, reference, force=force)

    async def get_checkpoint(self, reference: str) -> Checkpoint:
        """See `Session.get_checkpoint`; its state is read already."""
        return await self._run(lambda: _loaded(self._session.get_checkpoint(reference)))

    async def latest_checkpoint(self, *, resumable: bool | None = None) -> Checkpoint:
        """See `Session.latest_checkpoint`; its state is read already."""
        return await self._run(
            lambda: _loaded(self._session.latest_checkpoint(resumable=resumable))
        )

    async def list_checkpoints(
        self,
        *,
        limit: int | None = None,
        checkpoint_type: str | None = None,
        retention_class: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Checkpoint]:
        """See `Session.list_checkpoints`; to read a state, get the checkpoint by its id."""
        return await self._run(
            self._session.list_checkpoints,
            limit=limit,
            checkpoint_type=checkpoint_type,
            retention_class=retention_class,
            metadata=metadata,
        )

    async def unreadable_checkpoints(
        self, reference: str | None = None, *, limit: int | None = None
    ) -> dict[str, IntegrityError]:
        """See `Session.unreadable_checkpoints`."""
        return await self._run(self._session.unreadable_checkpoints, reference, limit=limit)

    async def passed_over(self) -> list[PassedOver]:
        """See `Session.passed_over`."""
        return await self._run(self._session.passed_over)

    async def check_paths(self, *paths: str | PathLike[str]) -> None:
        """See `Session.check_paths`."""
        await self._run(self._session.check_paths, *paths)

    async def check_memory_refs(self) -> list[MemoryRefReport]:
        """See `Session.check_memory_refs`."""
        return await self._run(self._session.check_memory_refs)

    async def brief(
        self,
        *,
        max_tokens: int = BRIEF_TOKENS,
        tools: Collection[Any] | Mapping[str, Any] | None = None,
        files: bool = False,
    ) -> Brief:
        """See `Session.brief`."""
        return await self._run(self._session.brief, max_tokens=max_tokens, tools=tools, files=files)

    async def preflight(
        self,
        *,
        tools: Collection[Any] | Mapping[str, Any] | None = None,
        files: bool = True,
    ) -> Preflight:
        """See `Session.preflight`."""
        return await self._run(self._session.preflight, tools=tools, files=files)

    async def decision(
        self, text: str, *, rationale: str | None = None, alternatives: Sequence[str] = ()
    ) -> LogRecord:
        """See `Session.decision`."""
        return await self._run(
            self._session.decision, text, rationale=rationale, alternatives=alternatives
        )

    async def delete_checkpoint(self, reference: str, *, force: bool = False) -> None:
        """See `Session.delete_checkpoint`."""
        await self._run(self._session.delete_checkpoint, reference, force=force)

    async def fork(
        self,
        reference: str | None = None,
        *,
        session_id: str | None = None,
        task_description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        with_latest: bool = False,
    ) -> AsyncSession:
        """See `Session.fork`."""
        forked = await self._run(
            self._session.fork,
            reference,
            session_id=session_id,
            task_description=task_description,
            metadata=metadata,
            with_latest=with_latest,
        )
        return AsyncSession(forked, self._threads)

    async def pause(
        self,
        reason: str | None = None,
        *,
        until: datetime | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """See `Session.pause`."""
        return await self._run(self._session.pause, reason, until=until, state=state)

    async def lineage(self) -> list[SessionRecord]:
        """See `Session.lineage`."""
        return await self._run(self._session.lineage)

    async def complete(self) -> None:
        """See `Session.complete`."""
        await self._run(self._session.complete)

    async def fail(self, error: BaseException | str | None = None) -> None:
        """See `Session.fail`."""
        await self._run(self._session.fail, error)

    async def update_metadata(self, changes: Mapping[str, Any]) -> None:
        """See `Session.update_metadata`."""
        await self._run(self._session.update_metadata, changes)

    async def log(
        self, level: str, message: str, *, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        """See `Session.log`."""
        return await self._run(self._session.log, level, message, data=data)

    async def logs(
        self, *, level: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[LogRecord]:
        """See `Session.logs`."""
        return await self._run(self._session.logs, level=level, limit=limit, offset=offset)


class AsyncSessionManager(AsyncClosing):
    """The twin of `SessionManager`.

    async with await AsyncSessionManager.open() as manager:
        session = await manager.create_session("implementer")
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy | None = None,
        project_dir: str | Path | None = None,
        workspace: bool = True,
        limits: Limits | None = None,
        share: bool = True,
        owner: str | None = None,
        lease_ttl: timedelta = LEASE_TTL,
        redact: Redact = None,
        rehydrate: Secrets = None,
        redaction: RedactionSettings | None = None,
    ) -> None:
        """See `SessionManager`."""
        manager = SessionManager(
            store,
            policy=policy,
            project_dir=project_dir,
            workspace=workspace,
            limits=limits,
            share=share,
            owner=owner,
            lease_ttl=lease_ttl,
            redact=redact,
            rehydrate=rehydrate,
            redaction=redaction,
        )
        self._adopt(manager, Threads())

    def _adopt(self, manager: SessionManager, threads: Threads) -> None:
        self._manager = manager
        self._threads = threads
        self._run = threads.run

    @classmethod
    async def open(
        cls,
        url: str | Path | None = None,
        *,
        project_dir: str | Path | None = None,
        workspace: bool = True,
        tenant: str | None = None,
        create: bool = True,
        owner: str | None = None,
        lease_ttl: timedelta = LEASE_TTL,
        include: Sequence[str] = (),
        busy_timeout: float | None = None,
        redact: Redact = None,
        rehydrate: Secrets = None,
        keys: GivenKeys = None,
        as_it_is: bool = False,
    ) -> AsyncSessionManager:
        """See `SessionManager.open`."""
        threads = Threads()
        manager = await threads.run(
            SessionManager.open,
            url,
            project_dir=project_dir,
            workspace=workspace,
            tenant=tenant,
            create=create,
            owner=owner,
            lease_ttl=lease_ttl,
            include=include,
            busy_timeout=busy_timeout,
            redact=redact,
            rehydrate=rehydrate,
            keys=keys,
            as_it_is=as_it_is,
        )
        twin = cls.__new__(cls)
        twin._adopt(manager, threads)
        return twin

    @property
    def store(self) -> Store:
        """See `SessionManager.store`."""
        return self._manager.store

    @property
    def sealed(self) -> bool:
        """See `SessionManager.sealed`."""
        return self._manager.sealed

    @property
    def project_dir(self) -> Path:
        """See `SessionManager.project_dir`."""
        return self._manager.project_dir

    @property
    def place(self) -> str:
        """See `SessionManager.place`."""
        return self._manager.place

    @property
    def workspace(self) -> Workspace:
        """See `SessionManager.workspace`."""
        return self._manager.workspace

    async def include(self, paths: Sequence[str], *, patterns: Sequence[str] = ()) -> None:
        """See `SessionManager.include`."""
        await self._run(self._manager.include, paths, patterns=patterns)

    async def close(self) -> None:
        """See `SessionManager.close`; ends the threads too."""
        # Not in our own threads: they may have ended, and they cannot wait for themselves.
        await in_thread(self._manager.close)
        await in_thread(self._threads.shut_down)

    async def create_agent(
        self,
        name: str,
        *,
        agent_type: str,
        parent_id: str | None = None,
        status: str = "idle",
        metadata: Mapping[str, Any] | None = None,
        agent_id: str | None = None,
    ) -> AgentRecord:
        """See `SessionManager.create_agent`."""
        return await self._run(
            self._manager.create_agent,
            name,
            agent_type=agent_type,
            parent_id=parent_id,
            status=status,
            metadata=metadata,
            agent_id=agent_id,
        )

    async def get_agent(self, agent_id: str) -> AgentRecord:
        """See `SessionManager.get_agent`."""
        return await self._run(self._manager.get_agent, agent_id)

    async def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        """See `SessionManager.list_agents`."""
        return await self._run(
            self._manager.list_agents, status=status, parent_id=parent_id, limit=limit
        )

    async def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        """See `SessionManager.update_agent`."""
        return await self._run(
            self._manager.update_agent, agent_id, status=status, metadata=metadata
        )

    async def latest_checkpoint(self, agent_id: str) -> Checkpoint | None:
        """See `SessionManager.latest_checkpoint`; its state is read already."""

        def read() -> Checkpoint | None:
            found = self._manager.latest_checkpoint(agent_id)
            return _loaded(found) if found is not None else None

        return await self._run(read)

    async def get_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """See `SessionManager.get_checkpoint`; its state is read already."""
        return await self._run(lambda: _loaded(self._manager.get_checkpoint(checkpoint_id)))

    async def sessions_with_checkpoint(self, name: str, *, limit: int = 3) -> list[str]:
        """See `SessionManager.sessions_with_checkpoint`."""
        return await self._run(self._manager.sessions_with_checkpoint, name, limit=limit)

    async def create_session(
        self,
        agent_type: str,
        *,
        task_description: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        agent_name: str | None = None,
        parent_agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        continues: str | None = None,
    ) -> AsyncSession:
        """See `SessionManager.create_session`."""
        session = await self._run(
            self._manager.create_session,
            agent_type,
            task_description=task_description,
            session_id=session_id,
            agent_id=agent_id,
            agent_name=agent_name,
            parent_agent_id=parent_agent_id,
            metadata=metadata,
            continues=continues,
        )
        return AsyncSession(session, self._threads)

    async def get_session(self, session_id: str) -> AsyncSession:
        """See `SessionManager.get_session`."""
        return AsyncSession(await self._run(self._manager.get_session, session_id), self._threads)

    async def resume_session(
        self,
        session_id: str | None = None,
        *,
        checkpoint: str | None = None,
        force: bool = False,
        take_over: bool = False,
        fork: bool = False,
        rehydrate: Secrets = None,
    ) -> AsyncSession:
        """See `SessionManager.resume_session`."""
        session = await self._run(
            self._manager.resume_session,
            session_id,
            checkpoint=checkpoint,
            force=force,
            take_over=take_over,
            fork=fork,
            rehydrate=rehydrate,
        )
        return AsyncSession(session, self._threads)

    async def hold_session(
        self, session_id: str, *, take_over: bool = False, back_to: str | None = None
    ) -> AsyncSession:
        """See `SessionManager.hold_session`."""
        session = await self._run(
            self._manager.hold_session, session_id, take_over=take_over, back_to=back_to
        )
        return AsyncSession(session, self._threads)

    async def join_session(self, session_id: str) -> AsyncSession:
        """See `SessionManager.join_session`."""
        session = await self._run(self._manager.join_session, session_id)
        return AsyncSession(session, self._threads)

    async def interrupt_session(self, session_id: str, *, message: str) -> SessionRecord | None:
        """See `SessionManager.interrupt_session`."""
        return await self._run(self._manager.interrupt_session, session_id, message=message)

    async def recover(self, *, max_attempts: int = MAX_RECOVERIES) -> list[SessionRecord]:
        """See `SessionManager.recover`."""
        return await self._run(self._manager.recover, max_attempts=max_attempts)

    async def latest_unfinished_session(
        self, *, agent_type: str | None = None, parked: bool = False
    ) -> SessionRecord:
        """See `SessionManager.latest_unfinished_session`."""
        return await self._run(
            self._manager.latest_unfinished_session, agent_type=agent_type, parked=parked
        )

    async def list_sessions(
        self,
        *,
        status: str | None = None,
        agent_type: str | None = None,
        agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> list[SessionRecord]:
        """See `SessionManager.list_sessions`."""
        return await self._run(
            self._manager.list_sessions,
            status=status,
            agent_type=agent_type,
            agent_id=agent_id,
            metadata=metadata,
            limit=limit,
        )

    async def unreadable_sessions(self, *, limit: int | None = None) -> dict[str, IntegrityError]:
        """See `SessionManager.unreadable_sessions`."""
        return await self._run(self._manager.unreadable_sessions, limit=limit)

    async def diff(
        self,
        before: Checkpoint | None = None,
        after: Checkpoint | None = None,
        *,
        state: bool = True,
        files: bool = True,
        text: bool = True,
        paths: Sequence[str] = (),
    ) -> Comparison:
        """See `SessionManager.diff`."""
        return await self._run(
            self._manager.diff, before, after, state=state, files=files, text=text, paths=paths
        )

    async def diff_of(self, report: RollbackReport, *, text: bool = True) -> Comparison:
        """See `SessionManager.diff_of`."""
        return await self._run(self._manager.diff_of, report, text=text)

    async def list_files(self, checkpoint: Checkpoint) -> list[SavedFile]:
        """See `SessionManager.list_files`."""
        return await self._run(self._manager.list_files, checkpoint)

    async def list_skipped(self, checkpoint: Checkpoint) -> list[Skipped]:
        """See `SessionManager.list_skipped`."""
        return await self._run(self._manager.list_skipped, checkpoint)

    async def read_file(self, checkpoint: Checkpoint, path: str) -> bytes:
        """See `SessionManager.read_file`."""
        return await self._run(self._manager.read_file, checkpoint, path)

    async def count_changed_files(self, checkpoints: Sequence[Checkpoint]) -> dict[str, int]:
        """See `SessionManager.count_changed_files`."""
        return await self._run(self._manager.count_changed_files, checkpoints)

    async def delete_session(self, session_id: str) -> Erasure:
        """See `SessionManager.delete_session`."""
        return await self._run(self._manager.delete_session, session_id)

    async def erase_tenant(self) -> Erasure:
        """See `SessionManager.erase_tenant`."""
        return await self._run(self._manager.erase_tenant)

    async def usage(self) -> list[SessionUsage]:
        """See `SessionManager.usage`."""
        return await self._run(self._manager.usage)

    async def back_up(self, target: str | os.PathLike[str]) -> None:
        """See `SessionManager.back_up`."""
        await self._run(self._manager.back_up, target)

    async def file_usage(self) -> Usage:
        """See `SessionManager.file_usage`."""
        return await self._run(self._manager.file_usage)

    async def count_absent(self) -> int:
        """See `SessionManager.count_absent`."""
        return await self._run(self._manager.count_absent)

    async def count_unheld(self) -> int:
        """See `SessionManager.count_unheld`."""
        return await self._run(self._manager.count_unheld)

    async def storage(self) -> StorageReport:
        """See `SessionManager.storage`."""
        return await self._run(self._manager.storage)

    async def gc(self, *, dry_run: bool = False) -> GcReport:
        """See `SessionManager.gc`."""
        return await self._run(self._manager.gc, dry_run=dry_run)

    async def count_keys(self, *, progress: Callable[[int], None] | None = None) -> KeyReport:
        """See `SessionManager.count_keys`."""
        return await self._run(self._manager.count_keys, progress=progress)

    async def rotate_keys(self, *, progress: Callable[[int], None] | None = None) -> KeyReport:
        """See `SessionManager.rotate_keys`."""
        return await self._run(self._manager.rotate_keys, progress=progress)

    async def prune(
        self,
        *,
        dry_run: bool = False,
        keep: int | None = None,
        max_age: timedelta | None = None,
        max_bytes: int | None = None,
    ) -> list[Decision]:
        """See `SessionManager.prune`."""
        return await self._run(
            self._manager.prune, dry_run=dry_run, keep=keep, max_age=max_age, max_bytes=max_bytes
        )

    async def export_session(
        self,
        session_id: str,
        path: str | Path,
        *,
        checkpoint: str | None = None,
        files: bool = True,
        overwrite: bool = False,
        unsealed: bool = False,
    ) -> BundleReport:
        """See `SessionManager.export_session`."""
        return await self._run(
            self._manager.export_session,
            session_id,
            path,
            checkpoint=checkpoint,
            files=files,
            overwrite=overwrite,
            unsealed=unsealed,
        )

    async def import_bundle(
        self,
        path: str | Path,
        *,
        session_id: str | None = None,
        files: bool = True,
        restore: bool = False,
        unsealed: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        """See `SessionManager.import_bundle`."""
        return await self._run(
            self._manager.import_bundle,
            path,
            session_id=session_id,
            files=files,
            restore=restore,
            unsealed=unsealed,
            progress=progress,
        )

    async def copy_to(
        self,
        url: str | Path,
        session_ids: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        files: bool = True,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        keys: GivenKeys = None,
        unsealed: bool = False,
    ) -> list[CopyReport]:
        """See `SessionManager.copy_to`."""
        return await self._run(
            self._manager.copy_to,
            url,
            session_ids,
            tenant=tenant,
            files=files,
            dry_run=dry_run,
            progress=progress,
            keys=keys,
            unsealed=unsealed,
        )

    async def list_quarantined(self, session_id: str | None = None) -> list[Checkpoint]:
        """See `SessionManager.list_quarantined`."""
        return await self._run(self._manager.list_quarantined, session_id)

    async def verify(
        self, *, deep: bool = False, progress: Callable[[int], None] | None = None
    ) -> VerifyReport:
        """See `SessionManager.verify`."""
        return await self._run(self._manager.verify, deep=deep, progress=progress)

    async def find_secrets(
        self, *, files: bool = False, progress: Callable[[int], None] | None = None
    ) -> SecretsReport:
        """See `SessionManager.find_secrets`."""
        return await self._run(self._manager.find_secrets, files=files, progress=progress)
