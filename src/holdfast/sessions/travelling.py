"""What a manager can do with sessions that travel."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.bundle import BundleReport
from holdfast.config import AGENTS_DIR, Config, load_config, project_of_database
from holdfast.errors import (
    ExportRefused,
    HoldfastError,
    IntegrityError,
    InvalidIdentifier,
    InvalidUrl,
    SchemaMissing,
    StoreUnavailable,
    WorkspaceRefused,
)
from holdfast.model import CheckpointQuery, SessionQuery
from holdfast.places import find_marked
from holdfast.sessions.files import Capture
from holdfast.sessions.held import Surroundings, place_of
from holdfast.sessions.lookup import get_session_record
from holdfast.sessions.portable import (
    Between,
    CopyReport,
    ImportReport,
    copy_sessions,
    export_session,
    import_bundle,
    refuse_lost_files,
)
from holdfast.stores import Store, file_of, open_store
from holdfast.stores.base import first
from holdfast.stores.readable import list_readable_checkpoints
from holdfast.workspace.base import path_of

if TYPE_CHECKING:
    from holdfast.crypto import GivenKeys
    from holdfast.sessions.session import Session

# So many steps of a bar are one session.
_STEPS = 1000


class TravellingSessions(ABC):
    """Sessions that leave for a file or another store, and those that arrive."""

    _store: Store
    _around: Surroundings
    _capture: Capture

    @abstractmethod
    def hold_session(
        self, session_id: str, *, take_over: bool = False, back_to: str | None = None
    ) -> Session:
        """See `SessionManager.hold_session`."""

    @abstractmethod
    def get_session(self, session_id: str) -> Session:
        """See `SessionManager.get_session`."""

    def export_session(
        self,
        session_id: str,
        path: str | Path,
        *,
        checkpoint: str | None = None,
        files: bool = True,
        overwrite: bool = False,
        unsealed: bool = False,
    ) -> BundleReport:
        """Write a session to one file that `import_bundle` reads elsewhere; nothing is changed here.

        It holds the states of all checkpoints, or of the one named, their files, the log with the
        decisions, recorded effects, and a brief to read. The session may be in use meanwhile. The
        file is whole or absent; one that exists is replaced with ``overwrite`` only. With
        ``files=False`` the files stay behind. Secrets are taken out of all but the files, unless the
        manager was opened with ``redact=False`` or the settings turn that off.

        The bundle of a sealed store is sealed with its current key; with ``unsealed`` it is plain text.
        """
        record = get_session_record(self._store, session_id)
        return export_session(
            self._store,
            record,
            self._around,
            path_of(path),
            checkpoint=checkpoint,
            files=files,
            overwrite=overwrite,
            keys=None if unsealed else self._store.keys,
        )

    def import_bundle(
        self,
        path: str | Path,
        *,
        session_id: str | None = None,
        files: bool = True,
        restore: bool = False,
        unsealed: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        """Take in a session that `export_session` wrote, whole or not at all.

        Every digest in the file is compared first. The session has its id, unless ``session_id``
        gives it another; where it is there already, the same as in the file, nothing happens and the
        report says so, and one with other content raises `SessionExists`. Its files are stored for a
        rollback; with ``restore`` the project's files become those of the latest checkpoint at once,
        with a safety checkpoint for an undo. Where they are that already, nothing is restored again.

        A sealed bundle goes into a store that is sealed, with the key of the bundle among its own. A
        sealed store takes one of plain text with ``unsealed`` only.
        """
        report = import_bundle(
            self._store,
            self._around,
            path_of(path),
            session_id=session_id,
            files=files,
            unsealed=unsealed,
            progress=progress,
        )
        if restore and files and report.bundle.trees:
            return replace(report, restored=self._put_files_back(report))
        return report

    def _put_files_back(self, report: ImportReport) -> bool:
        """Restore the files of what was imported, and finish an import that was to do so before."""
        query = CheckpointQuery(report.session_id, namespace="")
        ours = set(report.checkpoints.values())
        listed = list_readable_checkpoints(self._store, query)
        latest = first(one for one in listed if one.id in ours and one.workspace_commit is not None)
        if latest is None:
            return False
        session = self.get_session(report.session_id)
        if report.outcome == "present" and not _would_change(session, latest.name):
            return True
        session = self.hold_session(report.session_id, back_to=latest.name)
        try:
            session.settle()
            if report.outcome == "imported" or _would_change(session, latest.name):
                session.rollback(latest.name, state=False)
        finally:
            with suppress(HoldfastError):
                session.close()
        return True

    def copy_to(
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
        """Copy sessions, all by default, into another store, which is created where it is missing.

        Each arrives whole, with its files, and is read back and compared. A file in the ``.agents`` of
        a project is that project's database: the files go there, and the sessions are that project's
        from then on. Files with any other database are this project's. What is there already is
        not copied again, so that this can be repeated after it was killed. A session that the other
        store has with other content stays as it is there and is reported as ``different``. One that
        does not verify is reported as ``damaged``, with the findings, and nothing of it is copied.

        ``keys`` are those of the other store, as for `SessionManager.open`. What is sealed here is
        not copied into a store of plain text, unless ``unsealed`` asks for one.
        """
        wanted = self._wanted(session_ids)
        chosen = False if unsealed else keys
        config = load_config(self._around.project_dir, url=url, tenant=tenant)
        file = file_of(config.url)
        owner = None if file is None else project_of_database(file)
        ways = self._ways(file) if files else []
        if files:
            refuse_lost_files(self._store, wanted, [one.files(self._store) for one, _ in ways])
        with _open_target(config, create=not dry_run, keys=chosen) as target:
            if target.identity == self._store.identity:
                raise InvalidUrl(f"{target.url} is the store to copy from; nothing was copied")
            if not unsealed and self._store.read_seal() is not None and target.read_seal() is None:
                raise ExportRefused(
                    f"{self._store.url} is sealed and {target.url} is not; nothing was copied. Give a "
                    f"key for it, or ask for plain text with unsealed=True (--unsealed)"
                )
            between = [Between(one.files(self._store), other.files(target)) for one, other in ways]
            copied: list[CopyReport] = []

            def step(done: int, total: int) -> None:
                if progress is not None:
                    part = _STEPS * done // max(total, 1)
                    progress(_STEPS * len(copied) + part, _STEPS * len(wanted))

            reports = copy_sessions(
                self._store,
                target,
                wanted,
                between=between if files else None,
                place=None if owner is None else place_of(owner),
                dry_run=dry_run,
                progress=step,
            )
            for report in reports:
                copied.append(report)
                step(0, 1)
            return copied

    def _wanted(self, session_ids: Sequence[str] | None) -> list[str]:
        if session_ids is not None:
            if isinstance(session_ids, str) or not isinstance(session_ids, Iterable):
                raise InvalidIdentifier(f"session_ids must be a list of ids: {session_ids!r:.80}")
            return [get_session_record(self._store, one).id for one in session_ids]
        try:
            records = self._store.list_sessions(SessionQuery())
        except IntegrityError:
            # One of them cannot be opened. Which one shows when each is read by itself.
            return [one.session_id for one in self._store.session_usage()]
        # The oldest first: what a session continues is there before it.
        return [record.id for record in reversed(records)]

    def _project_for(self, file: Path) -> Path:
        """Return the project whose files go with a database. Raises `WorkspaceRefused` where none can be told."""
        owner = project_of_database(file)
        if owner is not None:
            return owner
        here = Path(os.path.realpath(self._around.project_dir))
        around = find_marked(os.path.realpath(file.parent))
        if around is not None and not here.is_relative_to(around):
            raise WorkspaceRefused(
                f"{file} lies in the project {around}, but not in its {AGENTS_DIR}: whose files go with it "
                f"cannot be told. Nothing was written; name the project (project_dir=, --project-dir), let "
                f"the sessions travel with export and import, or leave the files out on purpose "
                f"(files=False, --no-files)"
            )
        return here

    def _ways(self, target: Path | None) -> list[tuple[Capture, Capture]]:
        """Return the ways that files can take to a database: whose they may be, and whose they become.

        They may be this project's, or of the one whose database this is. A server has no project, and hands
        files on to whatever project they are for.
        """
        project = None
        if target is not None and self._store.workspace_commits():
            project = self._project_for(target)
        sources = [self._capture]
        if self._store.shared and self._capture.share and project is not None:
            sources = [self._capture.elsewhere(project)]
        path: Path | None = getattr(self._store, "path", None)
        owner = None if path is None else project_of_database(path)
        if owner is not None and (other := self._capture.elsewhere(owner)) is not self._capture:
            sources.append(other)
        goals = [one if project is None else self._capture.elsewhere(project) for one in sources]
        ways = zip(sources, goals, strict=True)
        return [(one, other) for one, other in ways if one.wanted and other.wanted]


def _would_change(session: Session, name: str) -> bool:
    """Tell whether the project's files are others than a checkpoint has."""
    found = session.rollback(name, state=False, dry_run=True).files
    return found is None or found.acts


def _open_target(config: Config, *, create: bool, keys: GivenKeys) -> Store:
    try:
        return open_store(config.url, tenant=config.tenant, create=create, keys=keys)
    except (SchemaMissing, StoreUnavailable) as error:
        elsewhere = str(config.url).startswith("postgres")
        if create or (elsewhere and isinstance(error, StoreUnavailable)):
            raise
        # Only looking: what is not there yet has no sessions.
        return open_store("memory:", keys=keys)
