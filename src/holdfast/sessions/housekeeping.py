"""What a manager can do for a store as a whole: measure, free, prune, verify, seal anew, erase."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta

from holdfast.errors import SessionNotFound
from holdfast.ids import check_session_id
from holdfast.model import GcReport, KeyReport, SessionUsage
from holdfast.retention import Decision
from holdfast.sessions import erasing, upkeep
from holdfast.sessions.erasing import Erasure
from holdfast.sessions.held import Surroundings
from holdfast.sessions.inspection import SecretsReport, find_stored_secrets
from holdfast.sessions.lookup import no_session
from holdfast.sessions.upkeep import StorageReport
from holdfast.stores import Store
from holdfast.verification import VerifyReport
from holdfast.workspace.base import Usage, path_of
from holdfast.workspace.git import Workspace


class KeptStore(ABC):
    """A store, and the snapshots of files that belong to it, to be kept in order."""

    _store: Store
    _around: Surroundings

    @property
    @abstractmethod
    def workspace(self) -> Workspace:
        """See `SessionManager.workspace`."""

    def usage(self) -> list[SessionUsage]:
        """Return counts and sizes per session."""
        return self._store.session_usage()

    def gc(self, *, dry_run: bool = False) -> GcReport:
        """Free chunks and file snapshots that nothing refers to; safe beside running saves.

        Snapshots that are needed and whose references are lost are held again first; the next call frees
        the others then. As long as a checkpoint is in quarantine, nothing is freed: its row may not say any
        more what it needs. Those whose rows do not fit their links are put there first.
        """
        return upkeep.collect(self._store, self._around.files, dry_run=dry_run)

    def count_keys(self, *, progress: Callable[[int], None] | None = None) -> KeyReport:
        """Count the values that each key of a sealed store has sealed; nothing is changed.

        ``progress`` is called with the number of values looked at.
        """
        from holdfast.rotation import count_keys

        return count_keys(self._store, progress=progress)

    def rotate_keys(self, *, progress: Callable[[int], None] | None = None) -> KeyReport:
        """Seal everything again that an older key than the current one has sealed.

        Safe beside running work; each batch is one transaction. What was done when it is interrupted
        stays done, and it can be repeated: a note of the error says so. Who may not change all the tables is refused
        before anything is. A row that is damaged stays as it is, and is named in the
        report. ``progress`` is called with the number of values looked at.
        """
        from holdfast.rotation import rotate

        return rotate(self._store, progress=progress)

    def back_up(self, target: str | os.PathLike[str]) -> None:
        """Write a consistent copy of an embedded database to a new file, beside running saves.

        Use this rather than copying the file: what is in its log only would be missing. The snapshots
        of files are in the project's ``.agents/workspace.git`` and are not in the copy. Raises
        `InvalidIdentifier` for a path that no file can have, and as `Store.back_up` does.
        """
        self._store.back_up(path_of(target))

    def file_usage(self) -> Usage:
        """Return what the snapshots of the project's files take on disk."""
        return self.workspace.usage()

    def count_unheld(self) -> int:
        """Count the snapshots that checkpoints name and that git is free to remove; `gc` mends that."""
        return 0 if self._around.files is None else len(self._around.files.unheld())

    def count_absent(self) -> int:
        """Count the snapshots that checkpoints name and that the project's private store does not have.

        None where the store is a server, which names those of other machines too.
        """
        return 0 if self._around.files is None else len(self._around.files.absent())

    def storage(self) -> StorageReport:
        """Return what all of it takes: states, file snapshots, packs for other machines."""
        return upkeep.measure(self._store, self._around.files)

    def prune(
        self,
        *,
        dry_run: bool = False,
        keep: int | None = None,
        max_age: timedelta | None = None,
        max_bytes: int | None = None,
    ) -> list[Decision]:
        """Apply the retention rules everywhere and return each decision with its reason.

        ``keep`` bounds the checkpoints of class step per session; ``max_age`` and ``max_bytes``
        apply to all that is neither kept until deleted nor protected. With ``dry_run`` nothing is removed.
        """
        return upkeep.prune(
            self._store,
            self._around.policy,
            dry_run=dry_run,
            keep=keep,
            max_age=max_age,
            max_bytes=max_bytes,
        )

    def verify(
        self, *, deep: bool = False, progress: Callable[[int], None] | None = None
    ) -> VerifyReport:
        """Read every checkpoint, its files too, and re-derive every digest; nothing is changed.

        With ``deep`` every hash chain, every chunk and pending write and the structures of the database
        too. A checkpoint that fails is in quarantine then until it verifies again, and one that does is
        released; nothing good is removed. What is damaged of content and files makes room, so that the
        next save stores it again. Of files that a server has for other machines, what is damaged or gone
        there and whole here is sent again.
        """
        return upkeep.verify(self._store, self._around.files, deep=deep, progress=progress)

    def find_secrets(
        self, *, files: bool = False, progress: Callable[[int], None] | None = None
    ) -> SecretsReport:
        """Find secrets that are stored, by the rules of redaction; nothing is changed.

        With ``files`` also in the files of each session's latest checkpoint. What is damaged is named in
        the report, and the rest is looked at. ``progress`` is called with the number of checkpoints looked
        through.
        """
        redactor = self._around.redaction.looking()
        chosen = self._around.files if files else None
        return find_stored_secrets(self._store, redactor, chosen, progress=progress)

    # Erasing ----------------------------------------------------------------------------------

    def delete_session(self, session_id: str) -> Erasure:
        """Erase a session with its checkpoints, logs, effects, and all content that nothing else shares.

        Its snapshots of files go from this project too. The id must be given in full. Where there is no such
        session, what an interrupted erasure has left of it is removed before `SessionNotFound` is raised.
        """
        done = erasing.erase_session(
            self._store,
            self._around.files,
            self._around.project_dir,
            check_session_id(session_id),
        )
        if not done.sessions:
            left = f", but for {'; '.join(done.left)}" if done.left else ""
            raise SessionNotFound(
                f"{no_session(self._store, session_id)} Had erasing it been interrupted, what was left is "
                f"gone now{left}"
            )
        return done

    def erase_tenant(self) -> Erasure:
        """Erase all that this tenant has in the store: sessions, agents, content, snapshots of files.

        Other tenants keep what is theirs, also where it is the same.
        """
        return erasing.erase_tenant(self._store, self._around.files, self._around.project_dir)
