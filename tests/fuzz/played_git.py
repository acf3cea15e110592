"""What git answers, read without git: an input stands for what it prints.

The first byte chooses who asks. Names, modes and contents in an answer are those of a stranger; that an answer is
cut off, or of another form, shows that git is broken, and has to be told as such. Objects come with the names that
fit them, or nothing would get past that check.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from holdfast.errors import HoldfastError
from holdfast.workspace.compare import count_between, raw_changes, text_between
from holdfast.workspace.details import Details
from holdfast.workspace.mover import Mover
from holdfast.workspace.packs import _objects
from holdfast.workspace.position import Position, read_extra
from holdfast.workspace.private_index import PrivateIndex
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline, Git
from holdfast.workspace.repository import Repository, _filters
from holdfast.workspace.trees import check_path, checked_difference
from tests.fuzz.contract import Target

_NOWHERE: Final = Path("/nonexistent/holdfast-fuzz")
_REPOSITORY: Final = Repository(_NOWHERE, _NOWHERE / ".git", _NOWHERE / ".git", "below/")
_ONE: Final = "1" * 40
_NAME_DIGITS: Final = frozenset("0123456789abcdef")


class _Process:
    """A git that has printed something and ended."""

    returncode = 0
    stderr = None

    def __init__(self, said: bytes) -> None:
        self.stdout = io.BytesIO(said)

    def communicate(self, *_: object, **__: object) -> tuple[bytes, bytes]:
        return self.stdout.getvalue(), self.stdout.getvalue()

    def kill(self) -> None:
        """It has ended already."""

    wait = kill


class _PlayedGit:
    """A git that answers ``said`` to every question, or the object that was asked for."""

    def __init__(self, said: bytes, objects: dict[str, bytes] | None = None) -> None:
        self._said = said
        self._objects = objects

    def run(self, *_: object, **__: object) -> bytes:
        return self._said

    listed = run

    def start(self, *_: str, stdin: Any = None, **__: object) -> _Process:
        if self._objects is None or stdin is None:
            return _Process(self._said)
        wanted = stdin.read().splitlines()
        found = (self._objects.get(one.decode("utf-8", "replace")) for one in wanted)
        return _Process(b"".join(one or b"x missing\n" for one in found))


def _store(said: bytes, objects: dict[str, bytes] | None = None) -> PrivateStore:
    store = PrivateStore(_NOWHERE, _NOWHERE / "store.git")
    store.git = cast("Git", _PlayedGit(said, objects))
    store.references._git = store.git
    return store


def _stored(kind: str, content: bytes) -> tuple[str, bytes]:
    """Return the name of an object, and what git prints of it."""
    whole = f"{kind} {len(content)}\0".encode() + content
    name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    return name, f"{name} {kind} {len(content)}\n".encode() + content + b"\n"


# Who asks -----------------------------------------------------------------------------------------


def _commit(data: bytes) -> None:
    name, printed = _stored("commit", data)
    store = _store(b"", {name: printed})
    tree, parents, message = store.read_commit(name)
    for one in (tree, *parents):
        # What is no name would be an option of the next command.
        assert len(one) == 40
        assert set(one) <= _NAME_DIGITS
    Position.of(Details.from_message(message), parents)
    count_between(store, [(name, name)])


def _tree(data: bytes) -> None:
    name, printed = _stored("tree", data)
    with suppress(HoldfastError):
        _store(printed).read_folders(name, [""])
    changes = b":000000 100644 %s %s A\0a\0" % (b"0" * 40, _ONE.encode())
    for one in checked_difference(_store(changes, {name: printed}), _ONE, name).files:
        check_path(one.path)


def _notes(data: bytes) -> None:
    """Read the second commit of a snapshot, whose tree git lists as it is told here."""
    commit, printed = _stored("commit", f"tree {_ONE}\n\n".encode())
    blob, content = _stored("blob", b"content")
    read_extra(
        _store(data, {commit: printed, blob: content}), Position(_ONE, None, commit).checked()
    )


def _references(data: bytes) -> None:
    store = _store(data)
    store.references.all_kept()
    store.references.misleading()


def _index(data: bytes) -> None:
    index = PrivateIndex(_store(data), reliable=True, deadline=Deadline())
    index._entries(["a"])


def _worktrees(data: bytes) -> None:
    repository = SimpleNamespace(
        top=_NOWHERE, git_dir=_NOWHERE, common_dir=None, git=lambda: _PlayedGit(data)
    )
    mover = Mover(_store(data), cast("Repository", repository), Position(_ONE, None, None))
    mover._branches_elsewhere()


_ASKERS: Final[tuple[tuple[Callable[[bytes], object], bytes], ...]] = (
    (
        _commit,
        b"tree %s\nparent %s\nauthor a <a> 0 +0000\n\n" % ((_ONE.encode(),) * 2)
        + Details(head=_ONE, head_commit=_ONE).to_message(),
    ),
    (_tree, b"100644 a\0" + bytes(20) + b"40000 b\0" + bytes(20)),
    (_notes, b"100644 blob %s\tindex\0" % _stored("blob", b"content")[0].encode()),
    (_references, b"refs/snapshots/local/%s %s\n" % ((_ONE.encode(),) * 2)),
    (_index, b"100644 %s 0\ta\0" % _ONE.encode()),
    (_worktrees, b"worktree /x\0HEAD %s\0branch refs/heads/main\0\0" % _ONE.encode()),
    (lambda data: _store(data).sized_entries(_ONE), b"100644 blob %s      12\ta\0" % _ONE.encode()),
    (lambda data: _store(data).read_folders(_ONE, ["", "a"]), b"x missing\n"),
    (lambda data: _store(data).read_objects([_ONE]), b"%s blob 1\nx\n" % _ONE.encode()),
    (
        lambda data: raw_changes(_store(data), _ONE, _ONE),
        b":100644 000000 %s %s D\0a\0" % (_ONE.encode(), b"0" * 40),
    ),
    (
        lambda data: text_between(_store(data), _ONE, _ONE),
        b":100644 120000 %s %s T\0a\0" % ((_ONE.encode(),) * 2),
    ),
    (lambda data: list(_objects(cast("Git", _PlayedGit(data)), [_ONE])), b"%s blob 7 9\n" % _ONE.encode()),
    (lambda data: _filters(cast("Git", _PlayedGit(data)), None), b"filter.lfs.clean\0"),
    (
        _REPOSITORY.parse_status,
        b"# branch.oid (initial)\0# branch.head main\0? x\0"
        b"1 .M N... 100644 100644 100644 %(x)s %(x)s a b\0"
        b"2 R. N... 100644 100644 100644 %(x)s %(x)s R100 new\0old\0"
        b"u UU N... 100644 100644 100644 100644 %(x)s %(x)s %(x)s both\0" % {b"x": _ONE.encode()},
    ),
)  # fmt: skip


def read_answer(data: bytes) -> None:
    ask, _ = _ASKERS[(data[0] if data else 0) % len(_ASKERS)]
    ask(data[1:])


def answer_seeds() -> Iterator[bytes]:
    for number, (_, answer) in enumerate(_ASKERS):
        yield bytes((number,)) + answer


TARGETS: Final = (Target("git-answers", read_answer, answer_seeds),)
