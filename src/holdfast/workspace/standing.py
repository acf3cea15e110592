"""Where the user's repository stands, asked no more often than the answer can have changed.

``git status`` reads the whole project a second time, so its last answer is kept, with a mark of what it
rests on besides the files: HEAD and the commit behind it, the index, the settings and rules in the
repository's own directory. With the same mark it holds as long as a capture finds every file unchanged. It
is always asked after the contents were read, never before: what it did not see yet, the next capture finds.

A capture of told paths asks about those alone. What is staged depends on HEAD and the index only and stays
exact; the lists of other changed and untracked files are the ones from the last full capture.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from holdfast.regular_files import read_small_file
from holdfast.workspace.base import GitState
from holdfast.workspace.paths import within
from holdfast.workspace.process import Deadline, finish
from holdfast.workspace.repository import Repository, Status, stamp

_KEY: Final = "status"
# More told paths than this are not worth asking about one by one.
_MANY_TOLD: Final = 400


class Standing:
    """One capture's question to the repository: `ask`, go on with other work, then `answer`."""

    def __init__(self, repository: Repository, note: dict[str, Any], *, deadline: Deadline) -> None:
        self._repository = repository
        self._note = note
        self._deadline = deadline
        self._told: list[str] = []
        self._mark: list[Any] | None = None
        self._kept: Status | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, *, told: Collection[str] | None = None, unchanged: bool = False) -> None:
        """Start asking: about everything, about ``told`` paths, or not at all if nothing changed."""
        self.close()
        self._told = []
        self._mark = _mark(self._repository)
        self._kept = self._last() if unchanged or told is not None else None
        if unchanged and self._kept is not None:
            return
        if told is not None and self._kept is not None and len(told) <= _MANY_TOLD:
            self._told = [self._repository.below + path for path in told if path != "."]
            if len(self._told) < len(told):
                self._told = []
        self._process = self._repository.start_status(self._told, deadline=self._deadline)

    def answer(self) -> Status:
        """Return where it stands, and remember it for the next capture."""
        status = self._read()
        if status is None:
            # HEAD moved between the two looks at it.
            self._told = []
            self._process = self._repository.start_status((), deadline=self._deadline)
            status = self._finished(self._process)
        self._note[_KEY] = {"mark": self._mark, **asdict(status)} if self._mark else None
        return status

    def close(self) -> None:
        """End a question whose answer nobody wants any more."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _read(self) -> Status | None:
        if self._process is None:
            if self._kept is None:
                return None
            state = replace(self._kept.state, operation=self._repository.operation())
            return replace(self._kept, state=state)
        status = self._finished(self._process)
        if not self._told or self._kept is None:
            return status
        same = (status.state.branch, status.state.commit) == (
            self._kept.state.branch,
            self._kept.state.commit,
        )
        return _merged(self._kept, status, self._told) if same else None

    def _finished(self, process: subprocess.Popen[bytes]) -> Status:
        return self._repository.parse_status(finish(process, ("status",), deadline=self._deadline))

    def _last(self) -> Status | None:
        kept = self._note.get(_KEY)
        if self._mark is None or not kept or kept["mark"] != self._mark:
            return None
        state: dict[str, Any] = {
            key: tuple(tuple(one) if isinstance(one, list) else one for one in value)
            if isinstance(value, list)
            else value
            for key, value in kept["state"].items()
        }
        return Status(GitState(**state), kept["plain_index"], tuple(kept["blobs"]))


def _merged(old: Status, new: Status, told: Sequence[str]) -> Status:
    """Return an older answer with what a newer one says about ``told`` paths."""

    def kept(paths: Iterable[str]) -> list[str]:
        return [path for path in paths if not within(path, told)]

    before, now = old.state, new.state
    moved = {source for source, _ in before.renamed}
    lists: dict[str, Any] = {
        "unstaged": tuple(sorted({*kept(before.unstaged), *now.unstaged})),
        "untracked": tuple(sorted({*kept(before.untracked), *now.untracked})),
        # Asked about one side of a rename only, git sees a deletion.
        "deleted": tuple(sorted({*kept(before.deleted), *now.deleted} - moved)),
    }
    state = replace(
        before,
        **lists,
        uncommitted=bool(
            before.staged or before.unmerged or lists["unstaged"] or lists["untracked"]
        ),
        operation=now.operation,
    )
    return Status(state, old.plain_index and new.plain_index, old.blobs)


def _mark(repository: Repository) -> list[Any] | None:
    """Return what tells whether an answer still holds, None where that cannot be told."""
    head = repository.git_dir / "HEAD"
    settings = repository.settings_mark()
    if settings is None or head.is_symlink() or (repository.common_dir / "reftable").exists():
        return None
    text = repository.head()
    behind: Any = None
    if text.startswith("ref: "):
        behind = _reference(repository, text.removeprefix("ref: ").strip())
        if behind is None:
            return None
    extras = [
        stamp(folder / "info" / name)
        for folder in (repository.git_dir, repository.common_dir)
        for name in ("attributes", "exclude", "sparse-checkout")
    ]
    return [text, behind, stamp(repository.index), [list(one) for one in settings], extras]


def _reference(repository: Repository, name: str) -> list[Any] | None:
    """Return what a branch says, or the mark of the file that says it for many."""
    if ".." in Path(name).parts:
        return None
    try:
        text = (
            read_small_file(repository.common_dir / name).decode("utf-8", "surrogateescape").strip()
        )
    except OSError:
        return stamp(repository.common_dir / "packed-refs")
    return None if text.startswith("ref:") else [text]
