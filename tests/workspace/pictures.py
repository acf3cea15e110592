"""What a directory and a repository look like, to be compared before and after."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

Picture = dict[str, tuple[int, bytes]]

ENVIRONMENT: Final = {
    **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_EDITOR": "true",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (
            ("NAME", "t"),
            ("EMAIL", "t@example.org"),
            ("DATE", "@1700000000 +0000"),
        )
    },
}


def git(
    where: Path,
    *arguments: str,
    ok: tuple[int, ...] = (0,),
    stdin: bytes | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run git as a user would."""
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=where, capture_output=True, input=stdin, env={**ENVIRONMENT, **(variables or {})},
        check=False,
    )  # fmt: skip
    assert done.returncode in ok, done.stderr.decode(errors="replace")
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def make_repository(root: Path, *arguments: str) -> None:
    """Start a repository without hooks and samples."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main", "--template=", *arguments)


def commit_all(root: Path, message: str = "more") -> str:
    """Commit everything that is there."""
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)
    return git(root, "rev-parse", "HEAD")


def picture(root: Path) -> Picture:
    """Everything below a directory but its own ``.git`` and ``.agents``: mode and content by path."""
    return _picture(root, leave_out=(".git", ".agents"))


def picture_of_git(root: Path) -> Picture:
    """Every file of the repository's own directory, byte for byte."""
    return _picture(root / ".git", leave_out=())


def _picture(root: Path, *, leave_out: tuple[str, ...]) -> Picture:
    seen: Picture = {}

    def look(folder: str, inside: str) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{inside}{entry.name}"
                if name in leave_out:
                    continue
                mode = entry.stat(follow_symlinks=False).st_mode
                content = b""
                if stat.S_ISLNK(mode):
                    content = os.fsencode(os.readlink(entry.path))
                elif stat.S_ISREG(mode):
                    content = Path(entry.path).read_bytes()
                elif stat.S_ISDIR(mode):
                    look(entry.path, f"{name}/")
                seen[name] = (mode, content)

    look(str(root), "")
    return seen


def repository_view(root: Path) -> dict[str, Any]:
    """Where a repository stands, as git itself tells it."""

    def ask(*arguments: str) -> str:
        quiet = {"GIT_OPTIONAL_LOCKS": "0"}
        return git(root, *arguments, ok=(0, 1, 128), variables=quiet)

    inside = Path(root, ask("rev-parse", "--git-dir"))
    notes = ("MERGE_HEAD", "MERGE_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")
    return {
        "head": (inside / "HEAD").read_text(),
        "refs": [
            line
            for line in ask("for-each-ref").splitlines()
            if not line.endswith("\trefs/stash") and "refs/holdfast/" not in line
        ],
        "stash": ask("stash", "list", "--format=%H"),
        "status": ask("status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z")
        .replace("? .agents/", "\0? .agents/")
        .split("\0? .agents/")[0],
        "index": ask("ls-files", "-s", "-v", "-z"),
        "problems": ask("fsck", "--no-dangling", "--no-progress"),
        "notes": {name: (inside / name).read_bytes() for name in notes if (inside / name).exists()},
        "rebase": {
            name: _picture(inside / name, leave_out=())
            for name in ("rebase-merge", "rebase-apply", "sequencer")
            if (inside / name).is_dir()
        },
    }
