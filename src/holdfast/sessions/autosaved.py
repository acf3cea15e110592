"""A session as autosave sees it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.autosave import Target
from holdfast.errors import IllegalTransition, SessionPaused
from holdfast.model import LogRecord
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.stores.base import Store

if TYPE_CHECKING:
    from holdfast.sessions.session import Session


class AutosavedSession(Target[Checkpoint]):
    """What an `Autosave` saves to."""

    def __init__(self, session: Session, store: Store, project_dir: Path) -> None:
        self._session = session
        self._store = store
        self._project_dir = project_dir
        self._known_seq: int | None = None

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def tenant(self) -> str:
        return self._store.tenant

    @property
    def project_dir(self) -> Path:
        return self._project_dir

    @property
    def known_seq(self) -> int | None:
        return self._known_seq

    @property
    def is_final(self) -> bool:
        try:
            self._session._check_open()
        except (IllegalTransition, SessionPaused):
            return True
        return False

    def latest_seq(self) -> int:
        found = self._session.list_checkpoints(limit=1)
        self._known_seq = found[0].seq if found else 0
        return self._known_seq

    def differs(self, state: Mapping[str, Any]) -> bool:
        return self._session._differs(state)

    def save(self, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> Checkpoint:
        saved = self._session.save_checkpoint(
            state=state, retention_class="automatic", metadata=metadata
        )
        self._known_seq = saved.seq
        return saved

    @property
    def paused_by(self) -> str | None:
        return self._session._paused_by

    def pause(self, reason: str) -> None:
        self._session._pause_by(reason)

    def release(self) -> None:
        self._session.close()

    def storable(self, text: str) -> str:
        return self._session.redaction.text(text)

    def log(self, level: str, message: str, *, data: Mapping[str, Any] | None = None) -> LogRecord:
        # Texts of errors may hold what no database takes.
        text = message.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        return self._session.log(level, text, data=data)
