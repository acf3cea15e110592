"""The project whose files are saved: a git repository like many, the same on every run.

Sizes spread as in real repositories: most files have a few kilobytes, some have a hundred. Lines are drawn
from one pool, so contents compress and resemble each other as source code does. A twentieth is ignored by
the project's own rules, and a few files are untracked, since a working project always has some.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.content import Writer

# What a save syncs, and how, asked of the peer too: it syncs nothing by itself.
DURABLE: Final = ("-c", "core.fsync=committed,reference", "-c", "core.fsyncMethod=batch")
_IGNORE: Final = "/.agents/\n*.log\n/build/\nnode_modules/\n__pycache__/\n"
_PER_FOLDER: Final = 20
_UNTRACKED: Final = 20
_KINDS: Final = (".py", ".py", ".ts", ".ts", ".go", ".md", ".json")
_WHO: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "bench"), ("EMAIL", "bench"), ("DATE", "@1700000000 +0000"))
}


class Project:
    """A repository of ``count`` committed files below ``root``, about ``size`` bytes each."""

    def __init__(self, root: Path, count: int, *, size: int = 5000, seed: int = 7) -> None:
        self.root = root
        self._random = random.Random(seed)
        writer = Writer(seed)
        self._lines = [f"    {writer.prose(self._random.randint(8, 90))}\n" for _ in range(4000)]
        self._folders = self._name_folders(count // _PER_FOLDER)
        self.files = [self._create(number, size) for number in range(count)]
        (root / ".gitignore").write_text(_IGNORE)
        for number in range(count // 20):
            self._write(f"node_modules/package{number // 50}/part{number}.js", 300)
        self.git("init", "-q", "-b", "main", "--template=", ".")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Start")
        self.git("repack", "-a", "-d", "-q")
        for number in range(_UNTRACKED):
            self._write(f"{self._folders[number]}/scratch{number}.txt", 2000)
        settle()
        self.git("status", "--porcelain")

    def git(self, *arguments: str, **variables: str) -> str:
        """Run git as a user would, without the settings of this machine."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        silent = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        return subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=inherited | silent | _WHO | variables,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def change(self, count: int) -> list[str]:
        """Edit ``count`` files, the same ones on every call, and return their paths.

        The user's repository then always finds so many changed ones, as the next save does.
        """
        paths = self.files[:: len(self.files) // count][:count]
        for path in paths:
            lines = (self.root / path).read_text().splitlines(keepends=True)
            lines[len(lines) // 2] = f"    edited = {self._random.getrandbits(60)}\n"
            (self.root / path).write_text("".join(lines))
        return paths

    def _name_folders(self, count: int) -> list[str]:
        """Return directories up to five deep, each within an earlier one or at the top."""
        folders = ["src", "tests", "docs"]
        while len(folders) < count:
            parent = self._random.choice(folders)
            if parent.count("/") < 4:
                folders.append(f"{parent}/part{len(folders)}")
        return folders

    def _create(self, number: int, size: int) -> str:
        folder = self._folders[number % len(self._folders)]
        path = f"{folder}/module{number}{_KINDS[number % len(_KINDS)]}"
        # Half of the files are smaller than a third of the mean.
        self._write(path, min(int(self._random.lognormvariate(0, 1.4) * size / 2.7), 60 * size))
        return path

    def _write(self, path: str, size: int) -> None:
        lines = self._random.choices(self._lines, k=max(2, size // 54))
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"# {path}\n{''.join(lines)}")


def settle() -> None:
    """Wait until git can tell by its time that a file was not changed since: it counts in seconds."""
    time.sleep(1.1)


def stored_bytes(folder: Path) -> int:
    """Return the bytes of all files below a directory."""
    return sum(
        os.lstat(os.path.join(where, name)).st_size
        for where, _, names in os.walk(folder)
        for name in names
    )
