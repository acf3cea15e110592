"""Finding out what is in the project now, at the cost of what changed.

The private index remembers every captured file with its size, times and blob, as git's own does. A capture
looks for what differs from it (`scan`), decides what to take (`findings`, `quota`), has git read that
(`private_index`), and adds by hand what git leaves out (`folders`, `position`): permissions, empty
directories, the list of what was skipped, and where the user's repository stands. A few told files go into
the last tree without the index (`graft`).

New objects wait in `incoming` until all are on the disk, and the index and the note beside it are replaced
when the snapshot is durable. A capture that is killed leaves nothing that counts.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.errors import SnapshotCorrupt, WorkspaceUnavailable
from holdfast.workspace.base import Limits, Progress, Skipped, Snapshot
from holdfast.workspace.basis import AHEAD, NOTE, RACY_NS, RECENT, Basis, made_in, read_cache
from holdfast.workspace.details import Details, learn_defaults
from holdfast.workspace.files import LINK, Files, git_mode, lstat
from holdfast.workspace.findings import Findings
from holdfast.workspace.folders import Folders
from holdfast.workspace.graft import Graft
from holdfast.workspace.ignores import excludes_for
from holdfast.workspace.paths import folders_of
from holdfast.workspace.pipes import ATTRIBUTES, refuse_special, refuse_waiting
from holdfast.workspace.position import capture_position
from holdfast.workspace.private_index import PrivateIndex
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline
from holdfast.workspace.quota import fit_quota
from holdfast.workspace.repository import Repository, Status, stamp
from holdfast.workspace.scan import Scan
from holdfast.workspace.standing import Standing


class Capture:
    """One capture of a project. Needs the store's work lock."""

    def __init__(
        self,
        store: PrivateStore,
        limits: Limits,
        *,
        repository: Repository | None,
        progress: Progress | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._repository = repository
        self._progress = progress
        top = repository.top if repository is not None else store.root
        self._deadline = Deadline(limits.seconds, doubt=partial(refuse_waiting, top))
        self._note, self._details = _last_time(store)
        self._taken_before = self._note.get("bytes")
        self._basis = Basis(store, limits, repository, self._note, self._deadline)
        self._files = Files(store.root)
        self._findings = Findings(store, limits, self._files)
        self._folders = Folders(self._basis, self._files, self._findings)
        self._index = PrivateIndex(store, reliable=bool(self._note), deadline=self._deadline)
        self._scan = Scan(
            self._basis, self._details, self._findings,
            files=self._files, folders=self._folders, index=self._index,
        )  # fmt: skip
        self._standing = (
            Standing(repository, self._note, deadline=self._deadline) if repository else None
        )
        # The tree, where it was made without the index.
        self._grafted: str | None = None

    def run(
        self,
        told: Sequence[str] | None = None,
        *,
        group: str,
        rescue: Sequence[str] = (),
        held: Sequence[str] = (),
    ) -> Snapshot:
        """Capture the project, or only the ``told`` paths of it on top of the last snapshot.

        ``rescue`` names paths to be held whatever the rules and caps say: a restore is about to
        overwrite them. ``held`` names paths that were just written from the store, so they need no
        room there. The snapshot is kept for ``group``.
        """
        try:
            return self._run(told, group=group, rescue=rescue, held=held)
        except WorkspaceUnavailable:
            if not self._note or not (self._index.is_damaged() or self._lacks_last()):
                raise
        # They only say what need not be read again.
        self._store.index.unlink()
        self._store.notes.remove(NOTE)
        again = Capture(
            self._store, self._limits, repository=self._repository, progress=self._progress
        )
        return again._run(None, group=group, rescue=rescue, held=held)

    def _run(
        self,
        told: Sequence[str] | None,
        *,
        group: str,
        rescue: Sequence[str],
        held: Sequence[str],
    ) -> Snapshot:
        if self._basis.is_first:
            told = None
        self._index.discard()
        try:
            if told is not None and any(map(self._files.passes_link, told)):
                told = None
            if told is not None:
                if self._graft(told):
                    return self._finish(told, group)
                self._findings.clear()
                # The index knows nothing of what was grafted before.
                if self._note.get(AHEAD) or self._scan.needs_everything(told):
                    told = None
            self._look(told, rescue=rescue, held=held)
            self._update_index(rescue)
            self._ask(told)
            if told is None:
                self._folders.find_empty(self._scan.untracked_directories())
            self._folders.note_unopened(self._index.unopened)
            self._scan.note_absent()
            return self._finish(told, group)
        finally:
            if self._standing is not None:
                self._standing.close()
            self._store.incoming.close()
            self._index.discard()

    def _lacks_last(self) -> bool:
        """Whether the store has lost the snapshot that the note is about."""
        commit = self._note.get("commit")
        return commit is not None and not self._store.present([commit])

    # Told files ------------------------------------------------------------------------------

    def _graft(self, told: Sequence[str]) -> bool:
        """Put told files into the last tree, if that is all that there is to do."""
        excludes = excludes_for(self._store.root, self._repository)
        graft = Graft(self._store, self._note["tree"], deadline=self._deadline)
        if excludes != self._details.excludes or not graft.open(told):
            return False
        self._store.write_excludes(excludes)
        unknown = [path for path in told if not graft.holds(path)]
        # What the tree lacks may be ignored, or a directory: the index and the rules tell.
        if unknown and sorted(self._scan.listed(unknown)) != sorted(set(unknown)):
            return False
        found = self._findings
        found.consider(told, known=True)
        modes = {path: git_mode(one.st_mode) for path, one in found.add.items()}
        if not found.skipped:
            fit_quota(self._basis, found)
        if found.skipped or LINK in modes.values() or any(map(self._files.is_folder, found.drop)):
            return False
        if not graft.read(modes):
            return False
        self._ask(told)
        self._grafted = graft.write({**dict.fromkeys(found.drop), **modes})
        if self._grafted is None:
            return False
        ahead = {path: stamp(self._store.root / path) for path in told}
        self._note[AHEAD] = {**self._note.get(AHEAD, {}), **ahead}
        return True

    # All files -------------------------------------------------------------------------------

    def _look(
        self, told: Sequence[str] | None, *, rescue: Sequence[str], held: Sequence[str]
    ) -> None:
        if told is None:
            self._scan.look()
        else:
            self._scan.look_at(told)
        self._findings.rescue((*rescue, *held))
        fit_quota(self._basis, self._findings, rescue=rescue, held=held)
        if self._basis.is_first:
            self._details.defaults = self._learn_defaults()

    def _learn_defaults(self) -> tuple[int, int, int]:
        added = self._findings.add
        files = [one.st_mode for one in added.values() if stat.S_ISREG(one.st_mode)]
        folders = [lstat(self._store.root / path) for path in folders_of(added)]
        return learn_defaults(files, [one.st_mode for one in folders if one is not None])

    def _update_index(self, rescue: Sequence[str]) -> None:
        found = self._findings
        gone = found.drop - found.add.keys()
        if gone and self._index.exists():
            self._index.forget(gone)
        above = ("", *folders_of(found.add))
        refuse_special((self._store.root / one / ATTRIBUTES for one in above), follow=False)
        left = self._index.add(list(found.add), rescue=rescue, progress=self._progress)
        for path, reason in left.items():
            found.leave_out(path, reason)

    def _ask(self, told: Sequence[str] | None) -> None:
        if self._standing is not None:
            self._standing.ask(told=told, unchanged=told is None and self._is_unchanged())

    def _is_unchanged(self) -> bool:
        """Whether everything that ``git status`` looks at is as the last capture left it."""
        found, note = self._findings, self._note
        return not (
            self._repository is None
            or self._repository.below
            or self._basis.is_first
            or note.get("tracks_own")
            or note.get("nested")
            or note.get(AHEAD)
            or found.rules_changed
            or found.add
            or found.drop
            or found.skipped
        )

    # Recording -------------------------------------------------------------------------------

    def _finish(self, told: Sequence[str] | None, group: str) -> Snapshot:
        touched = self._touched()
        tree = self._grafted or self._tree_of_index()
        status = self._standing.answer() if self._standing is not None else None
        folders = self._complete_details(full=told is None)
        position = self._take_position(status)
        before = self._note.get("commit")
        message = self._details.to_message()
        text = message.decode()
        same = (tree, text, position) == tuple(
            self._note.get(key) for key in ("tree", "message", "position")
        )
        commit = before if same and before is not None else None
        if commit is not None:
            # Nothing was added after all.
            self._note["bytes"] = self._taken_before
        else:
            parents = [position] if position else []
            commit = self._store.commit(tree, message, parents, deadline=self._deadline)
        self._store.incoming.deliver()
        self._store.references.keep(group, commit, deadline=self._deadline)
        self._index.put_in_place(started=self._basis.started)
        self._note |= {
            "commit": commit, "tree": tree, "message": text, "position": position,
            "folders": folders, "made_in": made_in(self._store),
        }  # fmt: skip
        self._store.notes.write(NOTE, self._note)
        return Snapshot(
            commit=commit,
            tree=tree,
            before=before,
            touched=touched if before else (),
            skipped=tuple(self._details.skipped),
            git=status.state if status else None,
        )

    def _touched(self) -> tuple[str, ...]:
        """Return the paths that look different from the last snapshot."""
        found = self._findings.drop | self._findings.add.keys()
        for path, mark in self._note.get(AHEAD, {}).items() if self._grafted is None else ():
            # The index still has it as it was before it was grafted.
            same = stamp(self._store.root / path) == mark
            found = found - {path} if same else found | {path}
        return tuple(sorted(found))

    def _tree_of_index(self) -> str:
        ahead = self._note.pop(AHEAD, None)
        last: str | None = self._note.get("tree")
        if last is not None and not (self._findings.add or self._findings.drop or ahead):
            return last
        return self._index.write_tree()

    def _complete_details(self, *, full: bool) -> dict[str, list[Any]]:
        """Note what git does not keep; return what to remember of the directories."""
        found, details = self._findings, self._details
        for path in found.drop:
            details.modes.pop(path, None)
        self._note_permissions()
        folders = self._folders.note_permissions(details, full=full)
        skipped = {path: Skipped(path, why) for path, why in found.skipped.items()}
        if full:
            details.empty = sorted(found.empty)
        else:
            before = {one.path: one for one in details.skipped if one.path not in found.add}
            skipped = {**before, **skipped}
        details.skipped = [skipped[path] for path in sorted(skipped)]
        return folders

    def _note_permissions(self) -> None:
        """Note the permissions of what was added, and look again at what changed just before.

        Git compares times by the second only, and would not see them change within the second of its
        last look.
        """
        changed_ns: dict[str, int] = self._note.get(RECENT, {})
        looked = dict(self._findings.add)
        for path in changed_ns:
            if path not in looked and path not in self._findings.drop:
                again = self._files.lstat(path)
                if again is not None:
                    looked[path] = again
        for path, one in looked.items():
            if stat.S_ISREG(one.st_mode):
                self._details.note_file(path, one.st_mode)
            else:
                self._details.modes.pop(path, None)
        since = self._basis.started - RACY_NS
        # What was grafted the index has as it was before.
        read = self._findings.add if self._grafted is None else {}
        recent = {path: one.st_ctime_ns for path, one in looked.items() if one.st_ctime_ns > since}
        self._note[RECENT] = recent | {
            path: seen
            for path, seen in changed_ns.items()
            if path in looked and path not in read and looked[path].st_ctime_ns != seen
        }

    def _take_position(self, status: Status | None) -> str | None:
        """Take in where the user's repository stands; return the commit that holds the rest of it."""
        if self._repository is None or status is None:
            self._details.head = self._details.head_commit = None
            self._details.below = ""
            return None
        position = capture_position(
            self._store, self._repository, status, self._note,
            limits=self._limits, deadline=self._deadline,
        )  # fmt: skip
        self._details.head = self._repository.head()
        self._details.head_commit = status.state.commit
        self._details.below = self._repository.below
        return position


def _last_time(store: PrivateStore) -> tuple[dict[str, Any], Details]:
    """Return what the last capture noted and knew of the files; nothing where that cannot be read."""
    note = read_cache(store)
    message = note.get("message")
    if not isinstance(message, str):
        return note, Details()
    try:
        return note, Details.from_message(message.encode())
    except (SnapshotCorrupt, UnicodeEncodeError):
        return {}, Details()
