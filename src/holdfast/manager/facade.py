"""`CheckpointManager`: the save points of a project for asyncio, one line a method.

Its blocking twin does the work; calls run in threads, and one that is cancelled is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.closing import AsyncClosing
from holdfast.manager.blocking import SyncCheckpointManager
from holdfast.manager.documents import CheckpointKind, SavePoint
from holdfast.manager.guards import Guard, OnFailure, Verdict
from holdfast.manager.reports import Rollback, SessionStart
from holdfast.waiting import in_thread


class CheckpointManager(AsyncClosing):
    """Save points with rollback for the project that ``project_dir`` lies in.

        manager = CheckpointManager(project_dir)
        checkpoint = await manager.create_checkpoint(name="before-refactor")
        await manager.rollback(checkpoint.id)

    ``manager.sync`` has the same methods without ``await``. ``project_dir`` may be any directory of the
    project. ``feature_list`` and ``progress`` name files within it, the latter maybe a pattern;
    ``on_failure`` is what guards ask when nothing else was given. ``url``, ``tenant`` and ``session_id``
    choose where save points are kept; by default in the project itself.
    """

    def __init__(
        self,
        project_dir: str | Path | None = None,
        *,
        url: str | Path | None = None,
        tenant: str | None = None,
        session_id: str | None = None,
        feature_list: str | None = None,
        progress: str | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """Nothing is opened or created before the first call."""
        self._sync = SyncCheckpointManager(
            project_dir,
            url=url,
            tenant=tenant,
            session_id=session_id,
            feature_list=feature_list,
            progress=progress,
            on_failure=on_failure,
        )

    @property
    def sync(self) -> SyncCheckpointManager:
        """The twin without ``await``."""
        return self._sync

    @property
    def project_dir(self) -> Path:
        """See `SyncCheckpointManager.project_dir`."""
        return self._sync.project_dir

    @property
    def session_id(self) -> str:
        """See `SyncCheckpointManager.session_id`."""
        return self._sync.session_id

    async def create_checkpoint(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        type: CheckpointKind = "manual",
        session_number: int | None = None,
        token_usage: int | None = None,
    ) -> SavePoint:
        """See `SyncCheckpointManager.create_checkpoint`."""
        return await in_thread(
            self._sync.create_checkpoint,
            name,
            description=description,
            type=type,
            session_number=session_number,
            token_usage=token_usage,
        )

    async def feature_complete(
        self,
        feature: str | None = None,
        *,
        description: str | None = None,
        session_number: int | None = None,
        token_usage: int | None = None,
    ) -> SavePoint:
        """See `SyncCheckpointManager.feature_complete`."""
        return await in_thread(
            self._sync.feature_complete,
            feature,
            description=description,
            session_number=session_number,
            token_usage=token_usage,
        )

    async def start_session(
        self, *, session_number: int | None = None, token_usage: int | None = None
    ) -> SessionStart:
        """See `SyncCheckpointManager.start_session`."""
        return await in_thread(
            self._sync.start_session, session_number=session_number, token_usage=token_usage
        )

    async def end_session(
        self,
        *,
        description: str | None = None,
        session_number: int | None = None,
        token_usage: int | None = None,
    ) -> SavePoint:
        """See `SyncCheckpointManager.end_session`."""
        return await in_thread(
            self._sync.end_session,
            description=description,
            session_number=session_number,
            token_usage=token_usage,
        )

    def add_provider(self, name: str, provider: Callable[[], Any]) -> None:
        """See `SyncCheckpointManager.add_provider`; it is called in another thread."""
        self._sync.add_provider(name, provider)

    def remove_provider(self, name: str) -> None:
        """See `SyncCheckpointManager.remove_provider`."""
        self._sync.remove_provider(name)

    async def list_checkpoints(self, *, type: CheckpointKind | None = None) -> list[SavePoint]:
        """See `SyncCheckpointManager.list_checkpoints`."""
        return await in_thread(self._sync.list_checkpoints, type=type)

    async def get_checkpoint(self, reference: str) -> SavePoint:
        """See `SyncCheckpointManager.get_checkpoint`."""
        return await in_thread(self._sync.get_checkpoint, reference)

    async def get_state(self, reference: str) -> dict[str, Any]:
        """See `SyncCheckpointManager.get_state`."""
        return await in_thread(self._sync.get_state, reference)

    async def rollback(self, reference: str, *, dry_run: bool = False) -> Rollback:
        """See `SyncCheckpointManager.rollback`."""
        return await in_thread(self._sync.rollback, reference, dry_run=dry_run)

    async def rollback_to_latest(self, *, dry_run: bool = False) -> Rollback:
        """See `SyncCheckpointManager.rollback_to_latest`."""
        return await in_thread(self._sync.rollback_to_latest, dry_run=dry_run)

    async def undo(self, *, dry_run: bool = False) -> Rollback:
        """See `SyncCheckpointManager.undo`."""
        return await in_thread(self._sync.undo, dry_run=dry_run)

    async def delete(self, reference: str, *, force: bool = False) -> None:
        """See `SyncCheckpointManager.delete`."""
        await in_thread(self._sync.delete, reference, force=force)

    def guard(
        self,
        name: str,
        *,
        description: str | None = None,
        verdict: Verdict | None = None,
        on_failure: OnFailure | None = None,
        attempts: int = 3,
    ) -> Guard:
        """See `SyncCheckpointManager.guard`."""
        return self._sync.guard(
            name,
            description=description,
            verdict=verdict,
            on_failure=on_failure,
            attempts=attempts,
        )

    async def close(self) -> None:
        """See `SyncCheckpointManager.close`."""
        await in_thread(self._sync.close)
