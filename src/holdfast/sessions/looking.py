"""What a manager can do with checkpoints of whatever session: look at them, their files and differences.

Nothing here changes anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import WorkspaceRefused
from holdfast.model import CheckpointQuery
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.comparison import Comparison, compare, compare_rollback, count_changes
from holdfast.sessions.held import Surroundings
from holdfast.sessions.lookup import get_record_anywhere
from holdfast.sessions.rollback import RollbackReport
from holdfast.sessions.unfinished import of_here
from holdfast.stores import Store
from holdfast.stores.readable import list_readable_checkpoints
from holdfast.workspace.base import SavedFile, Skipped
from holdfast.workspace.git import Workspace

if TYPE_CHECKING:
    from holdfast.sessions.session import Session

_LOOKED_AT = 200
_LEFT_ALONE = "files are left alone here (workspace=False, or capture = false in the settings)"


class StoredCheckpoints(ABC):
    """Checkpoints to look at, and the project's files as they hold them."""

    _store: Store
    _around: Surroundings

    @abstractmethod
    def get_session(self, session_id: str) -> Session:
        """See `SessionManager.get_session`."""

    @property
    def workspace(self) -> Workspace:
        """The project's files. Raises `WorkspaceRefused` where they are left alone."""
        if self._around.files is None:
            raise WorkspaceRefused(_LEFT_ALONE)
        return self._around.files.workspace

    def get_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Look at a checkpoint of whatever session by its id or label, without restoring it."""
        return Checkpoint.of(get_record_anywhere(self._store, checkpoint_id), self._store)

    def sessions_with_checkpoint(self, name: str, *, limit: int = 3) -> list[str]:
        """Return the ids of this project's sessions that have a checkpoint of a name, the latest first."""
        listed = list_readable_checkpoints(self._store, CheckpointQuery(name=name, namespace=""))
        ids = list(dict.fromkeys(one.session_id for one in listed))[:_LOOKED_AT]
        records = filter(None, map(self._store.find_session, ids))
        return [one.id for one in of_here(self._store, self._around.place, list(records))[:limit]]

    def list_quarantined(self, session_id: str | None = None) -> list[Checkpoint]:
        """List checkpoints that failed verification and are not used, newest first.

        Those of one session, whose id must be given in full, or of all; in every namespace.
        """
        query = CheckpointQuery(session_id, quarantined=True)
        found = list_readable_checkpoints(self._store, query)
        return [Checkpoint.of(one, self._store) for one in found]

    def diff(
        self,
        before: Checkpoint | None = None,
        after: Checkpoint | None = None,
        *,
        state: bool = True,
        files: bool = True,
        text: bool = True,
        paths: Sequence[str] = (),
    ) -> Comparison:
        """Tell what differs between two checkpoints, or between one and the present.

        None is the present: the state that the session would go on from, and the project's files as
        they are. With ``paths`` (files or directories) only those are compared; without ``text`` no
        content is.
        """
        return compare(
            before,
            after,
            files=self._around.files,
            present_state=self._present_state,
            with_state=state,
            with_files=files,
            text=text,
            paths=paths,
        )

    def diff_of(self, report: RollbackReport, *, text: bool = True) -> Comparison:
        """Tell in full what a rollback that was only looked at (``dry_run``) would change."""
        return compare_rollback(
            report, files=self._around.files, present_state=self._present_state, text=text
        )

    def _present_state(self, session_id: str) -> dict[str, Any]:
        return self.get_session(session_id).present_state()

    def list_files(self, checkpoint: Checkpoint) -> list[SavedFile]:
        """List the files that a checkpoint holds. Raises `SnapshotNotFound` when it holds none."""
        return self.workspace.list_files(self._snapshot_of(checkpoint))

    def list_skipped(self, checkpoint: Checkpoint) -> list[Skipped]:
        """List what a checkpoint could not hold, with reasons."""
        return self.workspace.skipped(self._snapshot_of(checkpoint))

    def read_file(self, checkpoint: Checkpoint, path: str) -> bytes:
        """Return a file's bytes as a checkpoint holds them, verified; nothing is restored."""
        return self.workspace.read(self._snapshot_of(checkpoint), path)

    def count_changed_files(self, checkpoints: Sequence[Checkpoint]) -> dict[str, int]:
        """Count the files that changed before each checkpoint, by its id.

        ``checkpoints`` come newest first, as listed. One is left out if nothing before it is known, or
        its files are not on this machine, are damaged, or there is no git to compare them.
        """
        if self._around.files is None or not any(one.workspace_commit for one in checkpoints):
            return {}
        return count_changes(self._around.files, checkpoints)

    def _snapshot_of(self, checkpoint: Checkpoint) -> str:
        if self._around.files is None:
            raise WorkspaceRefused(_LEFT_ALONE)
        return self._around.files.of(checkpoint.record)
