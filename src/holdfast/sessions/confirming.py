"""Asking before going back: a rollback that was looked at can be carried out, and no other.

A token stands for what a preview showed: the checkpoint, the paths, the files as they are and the latest
checkpoint. If any of these is another by the time it comes back, it fits nothing any more. Tokens are made
with a secret of this process, so that nobody can have one without having looked.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence

from holdfast.errors import CheckpointNotFound, ConfirmationStale
from holdfast.sessions.rollback import RollbackReport
from holdfast.sessions.session import Session


class Confirmations:
    """Tokens of one process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def preview(
        self, session: Session, checkpoint: str | None, paths: Sequence[str] | None
    ) -> tuple[RollbackReport, str]:
        """Return what a rollback would do, and the token that stands for exactly that."""
        report = session.rollback(checkpoint, paths=paths, dry_run=True)
        return report, self._token(session, report, paths)

    def confirmed(
        self, session: Session, checkpoint: str | None, paths: Sequence[str] | None, token: str
    ) -> RollbackReport:
        """Return what a rollback would do if the token stands for it. Raises `ConfirmationStale`."""
        report, expected = self.preview(session, checkpoint, paths)
        if not hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode()):
            raise ConfirmationStale(
                "this is not what was looked at: the files, the checkpoint, the paths or the session are "
                "others now. Nothing was changed: look again, and confirm with the new token"
            )
        return report

    def _token(self, session: Session, report: RollbackReport, paths: Sequence[str] | None) -> str:
        try:
            latest = session.latest_checkpoint().id
        except CheckpointNotFound:
            latest = None
        facts = [
            session.id,
            report.checkpoint.id,
            None if paths is None else sorted(paths),
            None if report.files is None else report.files.safety,
            latest,
        ]
        return hmac.new(self._secret, json.dumps(facts).encode(), hashlib.sha256).hexdigest()
