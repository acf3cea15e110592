"""A glance at the project: is everything as the last capture left it?

For processes that have a moment only. `remember` writes down what the answer rests on besides the files that
git looks at: the files of the repository and of the private store that a capture depends on, and those of the
project that git cannot be asked about, each with what `lstat` says of it. `is_unchanged` compares, and has
git look at all known files and for unknown ones, all at once. Whatever it cannot tell for certain counts as
changed; a capture then finds out. Pipes, sockets and devices that come are no change: no capture holds them.
"""

from __future__ import annotations

import os
import select
import time

from holdfast.places import AGENTS_DIR
from holdfast.regular_files import read_small_file
from holdfast.workspace.environment import (
    DIRTY,
    STORE_CONFIG,
    STORE_CONFIG_SHA256,
    STORE_SETTINGS,
    inherited,
    variables_for,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

    from holdfast.workspace.details import Details

_STORE = f"{AGENTS_DIR}/workspace.git"
_OWN = (f"{AGENTS_DIR}/", ".claude/checkpoints/")
# What a capture goes by: its own notes, and where the user's repository stands.
_WATCHED = (
    f"{_STORE}/last.json", f"{_STORE}/index", f"{_STORE}/config", f"{_STORE}/info/exclude",
    f"{_STORE}/info/attributes", f"{_STORE}/commondir", f"{_STORE}/objects/info/alternates",
    ".git", ".git/HEAD", ".git/index", ".git/config", ".git/info/exclude", ".git/packed-refs",
    ".git/MERGE_HEAD", ".git/CHERRY_PICK_HEAD", ".git/REVERT_HEAD", ".git/BISECT_LOG",
    ".git/rebase-merge", ".git/rebase-apply",
)  # fmt: skip
_BLOCK = 1 << 16
# A pipe in the place of git's rules would hold it for ever.
_SECONDS = 5.0
_KILL = 9


def stamp(path: str) -> list[int]:
    """Return what tells one version of a file from another; empty when there is none.

    Of a directory the times do not count: files come and go in it.
    """
    try:
        looked = os.lstat(path)
    except OSError:
        return []
    if looked.st_mode & 0o170000 == 0o040000:
        return [looked.st_ino]
    return [looked.st_mtime_ns, looked.st_ctime_ns, looked.st_size, looked.st_ino]


def _mode(root: str, folder: str) -> int:
    try:
        return os.lstat(os.path.join(root, folder)).st_mode
    except OSError:
        return 0


def _is_same_folder(root: str, folder: str, mode: int, stamp: int) -> bool:
    """Whether a directory has the mode it had, and did not become a repository since ``stamp``."""
    place = os.path.join(root, folder)
    try:
        looked = os.lstat(place)
    except OSError:
        return not mode
    return looked.st_mode == mode and (
        not folder
        or looked.st_mtime_ns == stamp
        or not os.path.lexists(os.path.join(place, ".git"))
    )


def remember(root: str, note: dict[str, Any]) -> dict[str, Any] | None:
    """Return what to compare with later, after a capture whose ``note`` is its ``last.json``.

    None where the answer would rest on more than a glance can see: nested repositories, a repository
    around the project or elsewhere, empty directories. Nor is there one where something changed since.
    """
    if not note.get("tree") or any(note.get(key) for key in ("ahead", "nested", "tracks_own")):
        return None
    if os.path.lexists(os.path.join(root, ".git")):
        if not os.path.isdir(os.path.join(root, ".git", "objects")):
            return None
    elif _inside_repository(root):
        return None
    watched = list(_WATCHED)
    if branch := _branch(root):
        watched.append(branch)
    details = _details(note)
    # What the capture could not hold, git lists every time.
    left_out = (one.path for one in details.skipped)
    recent = note.get("changed_lately", {})
    looked_at = [*recent, *note.get("forced_absent", ()), *left_out]
    files = {path: stamp(os.path.join(root, path)) for path in looked_at}
    if any(files[path][1:2] != [changed_ns] for path, changed_ns in recent.items()):
        return None
    return {
        "watched": [[path, stamp(os.path.join(root, path))] for path in watched],
        "files": files,
        "folders": {
            path: [_mode(root, path), seen] for path, (seen, _) in note.get("folders", {}).items()
        },
        "included": details.included,
    }


def is_unchanged(root: str, known: dict[str, Any] | None) -> bool:
    """Tell whether a capture would surely find nothing new."""
    if not known or not hasattr(os, "posix_spawnp"):
        return False
    if any(stamp(os.path.join(root, path)) != before for path, before in known["watched"]):
        return False
    files = known["files"]
    if any(stamp(os.path.join(root, path)) != before for path, before in files.items()):
        return False
    if not all(_is_same_folder(root, path, *before) for path, before in known["folders"].items()):
        return False
    if not _is_harmless(root):
        return False
    others = ("ls-files", "-z", "-o", "--directory", "--exclude-standard")
    included = [("ls-files", "-z", "-o", "--", *known["included"])] if known["included"] else []
    dirty, *listed = _ask(root, DIRTY, others, *included)
    return dirty == b"" and all(
        answer is not None and _holds_no_other(answer, files) for answer in listed
    )


def _holds_no_other(answer: bytes, files: Container[str]) -> bool:
    """Whether git lists nothing but files that were left out, and our own."""
    paths = answer.decode("utf-8", "surrogateescape").split("\0")
    return all(path in files or path.startswith(_OWN) for path in paths if path)


def _is_harmless(root: str) -> bool:
    """Whether the private store has the settings that we gave it.

    A capture sees to that. Here nobody did yet, and who could change them could write ``known``, too.
    """
    try:
        config = read_small_file(os.path.join(root, _STORE, "config"), follow=False)
    except OSError:
        return False
    return config in (STORE_CONFIG, STORE_CONFIG_SHA256)


def _details(note: dict[str, Any]) -> Details:
    from holdfast.workspace.details import Details

    message = note.get("message")
    return Details.from_message(message.encode()) if isinstance(message, str) else Details()


def _inside_repository(root: str) -> bool:
    here = os.path.dirname(root)
    while here != os.path.dirname(here):
        if os.path.lexists(os.path.join(here, ".git")):
            return True
        here = os.path.dirname(here)
    return False


def _branch(root: str) -> str | None:
    """Return the file that says which commit HEAD is at, if HEAD is a branch."""
    try:
        text = read_small_file(os.path.join(root, ".git", "HEAD")).decode()
    except (OSError, ValueError):
        return None
    return f".git/{text[5:].strip()}" if text.startswith("ref: ") else None


def _ask(root: str, *questions: tuple[str, ...]) -> list[bytes | None]:
    """Ask the private store several things at once; None where git failed."""
    if not hasattr(os, "posix_spawnp"):
        return [None for _ in questions]
    home = os.path.join(root, _STORE)
    env = {
        **inherited(),
        **variables_for(home, settings=STORE_SETTINGS),
        "GIT_WORK_TREE": root,
        "GIT_INDEX_FILE": os.path.join(home, "index"),
    }
    here = os.getcwd()
    started = []
    # Git takes paths from the top of the work tree only if it is there.
    os.chdir(root)
    try:
        for question in questions:
            reading, writing = os.pipe()
            actions = (
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            )
            try:
                pid = os.posix_spawnp("git", ("git", *question), env, file_actions=actions)
            except OSError:
                os.close(reading)
                return [None for _ in questions]
            finally:
                os.close(writing)
            started.append((pid, reading))
    finally:
        end = time.monotonic() + _SECONDS
        answers = [_answer(pid, reading, end) for pid, reading in started]
        os.chdir(here)
    return answers


def _answer(pid: int, reading: int, end: float) -> bytes | None:
    parts = []
    while select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        if not (part := os.read(reading, _BLOCK)):
            break
        parts.append(part)
    else:
        os.kill(pid, _KILL)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    return b"".join(parts) if status == 0 else None
