"""Whatever is done in whatever order, what was there at a save or before a rollback can be had again."""

from __future__ import annotations

import os
import random
import shutil
import stat
from pathlib import Path

import pytest

from holdfast import Workspace
from tests.workspace.pictures import Picture, git, make_repository, picture

_NAMES = ("a", "b", "-c", "d e", "sub/f", "sub/g", "sub/deep/h", "other/i", "sub", "other", "link")


class Work:
    """One project and a random sequence of what people and agents do to it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.dice = random.Random(seed)
        self.seen: dict[str, Picture] = {}
        self.saved: list[str] = []
        self.safeties: list[str] = []
        make_repository(root)
        (root / ".gitignore").write_text(".agents/\n*.o\n")
        (root / "a").write_text("first")
        (root / "kept.o").write_text("ignored")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "first")
        self.workspace = Workspace(root)

    def step(self) -> None:
        kinds = (
            "edit",
            "edit",
            "edit",
            "commit",
            "switch",
            "stage",
            "save",
            "save",
            "rollback",
            "undo",
        )
        getattr(self, f"_{self.dice.choice(kinds)}")()

    def _edit(self) -> None:
        for _ in range(self.dice.randrange(1, 4)):
            path = self.root / self.dice.choice(_NAMES)
            kind = self.dice.choice(
                ("write", "write", "write", "remove", "chmod", "link", "folder")
            )
            if kind == "remove":
                self._remove(path)
            elif kind == "chmod" and path.is_file() and not path.is_symlink():
                path.chmod(self.dice.choice((0o644, 0o755, 0o600)))
            elif kind in ("write", "link", "folder"):
                self._make(path, kind)

    def _make(self, path: Path, kind: str) -> None:
        for parent in reversed(path.relative_to(self.root).parents[:-1]):
            folder = self.root / parent
            if folder.is_symlink() or not folder.is_dir():
                self._remove(folder)
                folder.mkdir()
        if path.is_dir() and not path.is_symlink():
            return
        self._remove(path)
        if kind == "write":
            path.write_bytes(self.dice.randbytes(self.dice.choice((0, 3, 5, 2000))))
        elif kind == "link":
            path.symlink_to(self.dice.choice(("a", "sub", "nowhere", "..")))
        else:
            path.mkdir()

    def _remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()

    def _commit(self) -> None:
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "--allow-empty", "-m", "more")

    def _stage(self) -> None:
        git(self.root, "add", "-A")

    def _switch(self) -> None:
        name = self.dice.choice(("main", "one", "two"))
        git(self.root, "checkout", "-q", "-B", name)

    def _save(self) -> None:
        now = picture(self.root)
        commit = self.workspace.snapshot().commit
        self.seen[commit] = now
        self.saved.append(commit)

    def _rollback(self) -> None:
        if self.saved:
            self._restore(self.dice.choice(self.saved))

    def _undo(self) -> None:
        if self.safeties:
            self._restore(self.safeties.pop())

    def _restore(self, commit: str) -> None:
        now = picture(self.root)
        report = self.workspace.restore(commit, move_head=self.dice.random() < 0.4)
        assert picture(self.root) == self.seen[commit]
        self.seen[report.safety] = now
        self.safeties.append(report.safety)

    def check(self) -> None:
        """Every byte that was there at a save or before a rollback is held, and one comes back."""
        for commit, then in self.seen.items():
            self._check_held(commit, then)
        assert self.workspace.verify(self.seen) == []
        if self.seen:
            commit = self.dice.choice(sorted(self.seen))
            self.workspace.restore(commit)
            assert picture(self.root) == self.seen[commit]
        assert git(self.root, "fsck", "--no-dangling", "--no-progress") == ""
        assert not list(self.root.rglob(".holdfast-*"))

    def _check_held(self, commit: str, then: Picture) -> None:
        details = self.workspace.details(commit)
        listed = git(self.workspace.store_dir, "ls-tree", "-r", "-z", commit).split("\0")
        found = {}
        for line in filter(None, listed):
            about, _, name = line.partition("\t")
            found[name] = (about.split()[0], about.split()[2])
        files = {name: one for name, one in then.items() if not stat.S_ISDIR(one[0])}
        assert found.keys() == files.keys() - {"kept.o"}
        for name, (git_mode, blob) in found.items():
            mode, content = files[name]
            assert self._content(blob) == content
            if git_mode != "120000":
                assert details.mode_of(name, git_mode) == stat.S_IMODE(mode)

    def _content(self, blob: str) -> bytes:
        return self.workspace._store.read_objects([blob])[blob]


def run(folder: Path, seed: int, *, steps: int) -> None:
    work = Work(folder / f"project{seed}", seed)
    for _ in range(steps):
        work.step()
    work.check()
    shutil.rmtree(work.root)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_work_loses_nothing(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        run(tmp_path, seed, steps=10)


@pytest.mark.slow
@pytest.mark.row("S4-35")
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_much_random_work_loses_nothing(first: int, tmp_path: Path) -> None:
    for seed in range(1000 + first, 1050 + first):
        run(tmp_path, seed, steps=20)
