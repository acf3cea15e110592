"""What a stranger's snapshot says of modes, empty directories and skipped files, up to the files themselves.

A store that is played by a few values stands for git, which is too slow to be asked a thousand times a second.
The details are read, a plan is made of them, carried out on a small real directory and taken back. The
directory then is as it was, whatever they say.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from holdfast.workspace.apply import Applier
from holdfast.workspace.base import Entry, Skipped, is_own
from holdfast.workspace.details import Details
from holdfast.workspace.plan import Side, make_plan
from holdfast.workspace.private_store import PrivateStore

_TREE: Final = "0" * 40
# The two files that the project has, and that the snapshot has as well.
_FILES: Final = {
    "a": Entry("100644", "1" * 40),
    "d/run": Entry("100755", "2" * 40),
}


class _PlayedStore:
    """A store whose only tree is that of the small directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def is_own(path: str) -> bool:
        return is_own(path)

    @staticmethod
    def entries(_: str) -> dict[str, Entry]:
        return _FILES

    @staticmethod
    def entries_of(_: str, paths: Sequence[str]) -> dict[str, Entry]:
        return {path: _FILES[path] for path in paths if path in _FILES}

    @staticmethod
    def folders(_: str, paths: Sequence[str] | None = None) -> set[str]:
        return {"d"} & set(paths if paths is not None else ("d",))

    @staticmethod
    def each_object(_: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        return iter(())


@cache
def _project() -> Path:
    root = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    (root / "d").mkdir()
    for path, entry in _FILES.items():
        (root / path).write_text(path)
        (root / path).chmod(int(entry.mode[3:], 8))
    (root / "d").chmod(0o755)
    return root


def restore_details(data: bytes) -> None:
    """Do with a commit's message what a restore does with it."""
    root = _project()
    store = cast("PrivateStore", _PlayedStore(root))
    now = Side("3" * 40, _TREE, Details())
    plan = make_plan(store, now, Side("4" * 40, _TREE, Details.from_message(data)))
    before = _look(root)
    applier = Applier(store, "mark")
    try:
        applier.carry_out(plan)
    except OSError:
        # As a restore has it: the plan is taken back, and the caller told.
        pass
    finally:
        applier.take_back(plan)
    if _look(root) != before:
        raise AssertionError(f"{root} is not as it was")


def _look(root: Path) -> dict[str, int]:
    return {
        os.path.join(where, name): os.lstat(os.path.join(where, name)).st_mode
        for where, folders, files in os.walk(root)
        for name in (*folders, *files)
    }


def detail_seeds() -> Iterator[bytes]:
    """Yield messages that have something in each place."""
    yield Details(empty=["e"]).to_message()
    every: dict[str, Any] = {
        "modes": {"a": 0o600, "d/run": 0o4711},
        "directories": {"d": 0o500},
        "empty": ["d/new/deep", "a/b"],
        "skipped": [Skipped("d/x", "a pipe")],
        "head": "ref: refs/heads/main",
        "excludes": "*.o\n",
        "included": ["d"],
    }
    yield Details(**every).to_message()
    yield Details(defaults=(0o600, 0o700, 0o700)).to_message()
