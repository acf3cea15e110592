"""Asking before going back: a rollback that was looked at can be carried out, and no other.

A token stands for what a preview showed: the checkpoint, the paths, the files as they are, how HEAD would
move and the latest checkpoint. If any of these is another by the time it comes back, it fits nothing any more. Tokens are made
with a secret of this process, so that nobody can have one without having looked.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Sequence

from holdfast.errors import ConfirmationStale
from holdfast.sessions.rollback import RollbackReport
from holdfast.sessions.session import Session


class Confirmations:
    """Tokens of one process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def preview(
        self,
        session: Session,
        look: Callable[[], RollbackReport],
        *,
        paths: Sequence[str] | None = None,
    ) -> tuple[RollbackReport, str]:
        """Return what ``look`` says would be done, and the token that stands for exactly that."""
        report = look()
        return report, self._token(session, report, paths)

    def confirmed(
        self,
        session: Session,
        look: Callable[[], RollbackReport],
        token: str,
        *,
        paths: Sequence[str] | None = None,
    ) -> RollbackReport:
        """Return what would be done if the token stands for it. Raises `ConfirmationStale`."""
        report, expected = self.preview(session, look, paths=paths)
        if not hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode()):
            raise ConfirmationStale(
                "this is not what was looked at: the files, the checkpoint, the paths or the session are "
                "others now. Nothing was changed: look again, and confirm what is shown then"
            )
        return report

    def _token(self, session: Session, report: RollbackReport, paths: Sequence[str] | None) -> str:
        files = report.files
        facts = [
            session.id,
            report.checkpoint.id,
            None if paths is None else sorted(paths),
            None if files is None else [files.safety, files.head, files.commits],
            [one.id for one in session.list_checkpoints(limit=1)],
        ]
        return hmac.new(self._secret, json.dumps(facts).encode(), hashlib.sha256).hexdigest()
