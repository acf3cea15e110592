"""The project's ignore rules, as far as they do not stand in its own ``.gitignore`` files.

Those git reads by itself. Added here: the repository's ``info/exclude``, and where the project is a part of
a larger repository, the rules of the directories above it, rewritten to be read from the project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Final

from holdfast.config import AGENTS_DIR, DATABASE
from holdfast.regular_files import read_small_file
from holdfast.workspace.base import NEVER_CAPTURED, STORE
from holdfast.workspace.paths import join, split
from holdfast.workspace.process import Deadline, Git
from holdfast.workspace.repository import Repository

# The stores of projects that lie in this one. A capture leaves them out whatever the rules say; with these
# git need not even list them.
_STORES: Final = (f"**/{AGENTS_DIR}/{DATABASE}*", f"**/{AGENTS_DIR}/{STORE}/")

_HERE: Final = "./"
_ANY_DEPTH: Final = "**"
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def excludes_for(root: Path, repository: Repository | None) -> str:
    """Return the rules that are to stand in the private store's own ``info/exclude``."""
    lines = [*(f"/{path}/" for path in NEVER_CAPTURED), *_STORES]
    if repository is not None:
        above = root.relative_to(repository.top).parts if root != repository.top else ()
        exclude = repository.common_dir / "info" / "exclude"
        lines += _seen_from(above, _rules(exclude))
        for depth in range(len(above)):
            ignore = repository.top.joinpath(*above[:depth], ".gitignore")
            lines += _seen_from(above[depth:], _rules(ignore))
    return "\n".join(lines) + "\n"


def ignored_among(git: Git, paths: Iterable[str], *, deadline: Deadline | None = None) -> list[str]:
    """Return those paths that the rules which ``git`` reads ignore, whether it knows them or not."""
    out = git.run(
        "check-ignore", "--no-index", "-z", "--stdin",
        # This command refuses to be told how to read names that begin as a pathspec does.
        stdin=join(f"{_HERE}{path}" for path in paths), variables={"GIT_LITERAL_PATHSPECS": "0"},
        ok=(0, 1), deadline=deadline,
    )  # fmt: skip
    return [path.removeprefix(_HERE) for path in split(out)]


def _rules(path: Path) -> list[str]:
    try:
        if path.is_symlink():
            return []
        text = read_small_file(path).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return []
    return [line.rstrip("\r") for line in text.split("\n") if line and not line.startswith("#")]


def _seen_from(below: tuple[str, ...], rules: list[str]) -> Iterator[str]:
    """Yield rules of a directory as they read ``below`` it.

    A rule that is tied to its directory keeps its meaning only if it leads into ``below``; others of
    that kind are dropped, so at worst a file too many is captured.
    """
    for rule in rules:
        bare = rule.removeprefix("!")
        sign = "!" if bare != rule else ""
        names = bare.rstrip("/")
        if "/" not in names or not below:
            yield rule
            continue
        for rest in _rests(_parts(names), below):
            yield f"{sign}/{'/'.join(rest)}{bare[len(names) :]}"


def _parts(names: str) -> list[str]:
    """Return the parts of a rule. Of ``**`` in a row, which mean what one does, one is left."""
    parts = ["", *names.removeprefix("/").split("/")]
    return [part for before, part in pairwise(parts) if not before == part == _ANY_DEPTH]


def _rests(parts: Sequence[str], below: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield what is left of a rule's parts where it leads through the directories ``below``."""
    reached = {0}
    for name in below:
        # Two stars stand for any number of directories, none too.
        for place, part in enumerate(parts):
            if part == _ANY_DEPTH and place in reached:
                reached.add(place + 1)
        reached = {
            place if parts[place] == _ANY_DEPTH else place + 1
            for place in reached
            if place < len(parts) and (parts[place] == _ANY_DEPTH or _matches(parts[place], name))
        }
    for place in sorted(reached):
        if place < len(parts):
            yield parts[place:]


def _matches(part: str, name: str) -> bool:
    """Whether a directory's name is one that a part of a rule stands for."""
    plain = _ESCAPED.sub(lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], part)
    return fnmatchcase(name, plain.replace("[^", "[!"))
