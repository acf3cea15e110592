"""A disk as the calls of programs tell of it: what stands on it, and what a power cut would leave.

The calls are those that ``strace`` saw. The file system is one with a journal, as most are: changes to names are
written down in their order, and a sync of anything writes down all that came before it. What a file contains is
safe once the file itself was synced, or was sent to the drive and something else was synced later. Everything
else is gone with the power: a file that was never synced is there with nothing in it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

# What has to be watched, and how it has to be printed: every byte in hexadecimal, every handle with its path.
CALLS: Final = (
    "openat", "open", "creat", "write", "pwrite64", "lseek", "sendfile", "copy_file_range", "ftruncate", "truncate",
    "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "symlink",
    "symlinkat", "chmod", "fchmod", "fchmodat", "fsync", "fdatasync", "sync_file_range", "chdir", "fork", "vfork",
    "clone", "clone3", "writev", "pwritev", "fallocate", "syncfs", "sync",
)  # fmt: skip
OPTIONS: Final = (
    "-f",
    "-y",
    "-xx",
    "-s",
    "16777216",
    "--seccomp-bpf",
    "-e",
    f"trace={','.join(CALLS)}",
)

_LINE: Final = re.compile(
    rb"(\d+) +(?:<\.\.\. \w+ resumed>)?(.*?)(<unfinished \.\.\.>)?\n", re.DOTALL
)
_CALL: Final = re.compile(rb"(\w+)\((.*)\) += (-?\d+)", re.DOTALL)
_ARGUMENT: Final = re.compile(
    rb'"((?:\\x[0-9a-f]{2})*)"|(?:-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2}|[^>\\])*)>|([^,\s"]+)'
)
_APPENDS: Final = -1


class Text(bytes):
    """An argument that is a name or some content."""


class Handle(bytes):
    """An argument that is an open file or directory: its path."""


Argument: TypeAlias = Text | Handle | str


class Call(NamedTuple):
    """A call that succeeded."""

    process: int
    name: str
    arguments: Sequence[Argument]
    result: int


def read_trace(path: Path) -> Iterator[Call]:
    """Yield the calls that succeeded, each at the moment of its return."""
    begun: dict[bytes, bytes] = {}
    with path.open("rb") as lines:
        for line in lines:
            found = _LINE.fullmatch(line)
            assert found is not None, line[:200]
            process, text, unfinished = found.groups()
            text = begun.pop(process, b"") + text
            if unfinished:
                begun[process] = text
            elif (call := _CALL.match(text)) is not None and not call[3].startswith(b"-"):
                yield Call(int(process), call[1].decode(), list(_arguments(call[2])), int(call[3]))


def _arguments(text: bytes) -> Iterator[Argument]:
    for quoted, handle, other in _ARGUMENT.findall(text):
        if other:
            yield other.decode()
        else:
            kind = Handle if handle else Text
            yield kind(bytes.fromhex((handle or quoted).replace(b"\\x", b"").decode()))


@dataclass(eq=False)
class Node:
    """A file, a directory or a link, however many names it has. ``sent`` is safe with the next sync of anything."""

    mode: int
    target: str | None = None
    content: bytearray = field(default_factory=bytearray)
    sent: bytes = b""
    safe: bytes = b""
    # Where the next write goes, and the next copy reads.
    place: int = 0
    read: int = 0
    resized: bool = True


Names: TypeAlias = dict[str, Node]


class TracedDisk:
    """What is below one directory, call by call, from what stands there when the trace begins."""

    def __init__(self, top: Path) -> None:
        self._top = str(top)
        self._names: Names = {}
        self._safe_names: Names = {}
        self._unwritten: list[Callable[[Names], object]] = []
        # Where each process is; the first one was started here.
        self._directories: defaultdict[int, str] = defaultdict(os.getcwd)
        self._handlers = {
            name: getattr(self, f"_{name}") for name in CALLS if hasattr(self, f"_{name}")
        }
        for path in (top, *top.rglob("*")):
            looked = path.lstat()
            node = Node(looked.st_mode)
            if stat.S_ISLNK(looked.st_mode):
                node.target = os.readlink(path)
            elif stat.S_ISREG(looked.st_mode):
                node.content[:] = node.sent = node.safe = path.read_bytes()
            self._names[str(path)] = self._safe_names[str(path)] = node

    def follow(self, call: Call) -> bool:
        """Do what a call did; return whether anything on this disk changed."""
        if call.name in self._handlers:
            return bool(self._handlers[call.name](call))
        paths = (os.fsdecode(one) for one in call.arguments if isinstance(one, Handle | Text))
        assert not any(map(self._is_here, paths)), f"{call.name} is not known here"
        return False

    def differs(self) -> list[str]:
        """Return where the real directory is not what the calls make of it."""
        real = {str(path) for path in (Path(self._top), *Path(self._top).rglob("*"))}
        found = real ^ self._names.keys()
        for path in real & self._names.keys():
            node = self._names[path]
            if stat.S_ISREG(node.mode) and Path(path).read_bytes() != node.content:
                found.add(path)
        return sorted(found)

    def cut(self, *, names_were_written: bool) -> None:
        """Make of the real directory what a power cut at this moment leaves of it.

        Changes to names since the last sync are lost, or they were just written down: both can be.
        """
        shutil.rmtree(self._top)
        names = self._names if names_were_written else self._safe_names
        made: dict[Node, str] = {}
        for path in sorted(names):
            node = names[path]
            if not os.path.isdir(os.path.dirname(path)):
                continue
            if stat.S_ISDIR(node.mode):
                os.mkdir(path)
            elif node.target is not None:
                os.symlink(node.target, path)
            elif node in made:
                os.link(made[node], path)
            else:
                made[node] = path
                Path(path).write_bytes(node.safe)
                os.chmod(path, stat.S_IMODE(node.mode))

    # Paths ---------------------------------------------------------------------------------------------

    def _path(self, call: Call, first: int = 0) -> str:
        """Return the path that a call names, with or without the directory that it counts from."""
        above = call.arguments[first]
        if isinstance(above, Text):
            base, name = self._directories[call.process], above
        else:
            name = call.arguments[first + 1]  # type: ignore[assignment]
            base = os.fsdecode(above) if isinstance(above, Handle) else ""
        return os.path.normpath(os.path.join(base, os.fsdecode(name)))

    def _two_paths(self, call: Call) -> tuple[str, str]:
        plain = isinstance(call.arguments[0], Text)
        return self._path(call), self._path(call, 1 if plain else 2)

    def _is_here(self, path: str) -> bool:
        return path == self._top or path.startswith(f"{self._top}/")

    def _of_handle(self, call: Call, number: int = 0) -> Node | None:
        handle = call.arguments[number]
        return self._names.get(os.fsdecode(handle)) if isinstance(handle, Handle) else None

    def _rename_all(self, change: Callable[[Names], object]) -> bool:
        change(self._names)
        self._unwritten.append(change)
        return True

    # Programs ------------------------------------------------------------------------------------------

    def _chdir(self, call: Call) -> None:
        self._directories[call.process] = self._path(call)

    def _fork(self, call: Call) -> None:
        self._directories[call.result] = self._directories[call.process]

    _vfork = _clone = _clone3 = _fork

    # Content -------------------------------------------------------------------------------------------

    def _openat(self, call: Call) -> bool:
        path = self._path(call)
        how = next(one for one in call.arguments if isinstance(one, str) and "O_" in one)
        if not self._is_here(path) or "O_TMPFILE" in how:
            return False
        node = self._names.get(path)
        while node is not None and node.target is not None:
            path = os.path.normpath(os.path.join(os.path.dirname(path), node.target))
            node = self._names.get(path)
        changed = False
        if node is None:
            if "O_CREAT" not in how:
                return False
            made = node = Node(stat.S_IFREG | int(str(call.arguments[-1]), 8) & ~0o022)
            changed = self._rename_all(lambda names: names.update({path: made}))
        elif "O_TRUNC" in how and node.content:
            node.content.clear()
            node.resized = changed = True
        if "O_WRONLY" in how or "O_RDWR" in how:
            node.place = _APPENDS if "O_APPEND" in how else 0
        return changed

    _open = _openat

    def _write(self, call: Call) -> bool:
        node = self._of_handle(call)
        if node is None:
            return False
        place = len(node.content) if node.place == _APPENDS else node.place
        self._put(node, place, call.arguments[1][: call.result])  # type: ignore[arg-type]
        if node.place != _APPENDS:
            node.place += call.result
        return True

    def _pwrite64(self, call: Call) -> bool:
        node = self._of_handle(call)
        if node is None:
            return False
        self._put(node, int(call.arguments[3]), call.arguments[1][: call.result])  # type: ignore[arg-type]
        return True

    def _sendfile(self, call: Call) -> bool:
        node, source = self._of_handle(call), self._of_handle(call, 1)
        if node is None or source is None or not call.result:
            return False
        self._put(node, node.place, source.content[node.read : node.read + call.result])
        node.place += call.result
        node.read += call.result
        return True

    @staticmethod
    def _put(node: Node, place: int, data: bytes | bytearray) -> None:
        node.content.extend(bytes(max(0, place - len(node.content))))
        node.resized |= place + len(data) > len(node.content)
        node.content[place : place + len(data)] = data

    def _lseek(self, call: Call) -> None:
        node = self._of_handle(call)
        if node is not None and node.place != _APPENDS:
            node.place = call.result

    def _ftruncate(self, call: Call) -> bool:
        by_handle = isinstance(call.arguments[0], Handle)
        node = self._of_handle(call) if by_handle else self._names.get(self._path(call))
        if node is None:
            return False
        size = int(call.arguments[1])
        del node.content[size:]
        node.content.extend(bytes(size - len(node.content)))
        node.resized = True
        return True

    _truncate = _ftruncate

    # Names ---------------------------------------------------------------------------------------------

    def _rename(self, call: Call) -> bool:
        old, new = self._two_paths(call)
        if not self._is_here(new):
            return False
        if any("EXCHANGE" in one for one in call.arguments if isinstance(one, str)):
            return self._rename_all(lambda names: names.update({old: names[new], new: names[old]}))

        def move(names: Names) -> None:
            for path in [path for path in names if path == new or path.startswith(f"{new}/")]:
                del names[path]
            for path in [path for path in names if path == old or path.startswith(f"{old}/")]:
                names[new + path.removeprefix(old)] = names.pop(path)

        return self._rename_all(move)

    _renameat = _renameat2 = _rename

    def _link(self, call: Call) -> bool:
        old, new = self._two_paths(call)
        return self._is_here(new) and self._rename_all(
            lambda names: names.update({new: names[old]})
        )

    _linkat = _link

    def _unlink(self, call: Call) -> bool:
        path = self._path(call)
        return self._is_here(path) and self._rename_all(lambda names: names.pop(path))

    _unlinkat = _rmdir = _unlink

    def _mkdir(self, call: Call) -> bool:
        path = self._path(call)
        node = Node(stat.S_IFDIR | 0o755)
        return self._is_here(path) and self._rename_all(lambda names: names.update({path: node}))

    _mkdirat = _mkdir

    def _symlink(self, call: Call) -> bool:
        path = self._path(call, 1)
        node = Node(stat.S_IFLNK, os.fsdecode(call.arguments[0]))
        return self._is_here(path) and self._rename_all(lambda names: names.update({path: node}))

    _symlinkat = _symlink

    def _chmod(self, call: Call) -> bool:
        by_handle = call.name == "fchmod"
        node = self._of_handle(call) if by_handle else self._names.get(self._path(call))
        if node is None:
            return False
        mode = next(one for one in call.arguments if isinstance(one, str) and one.isdecimal())
        node.mode = stat.S_IFMT(node.mode) | int(mode, 8)
        return True

    _fchmod = _fchmodat = _chmod

    # Syncs ---------------------------------------------------------------------------------------------

    def _sync_file_range(self, call: Call) -> bool:
        node = self._of_handle(call)
        if node is None:
            return False
        node.sent = bytes(node.content)
        return True

    def _fsync(self, call: Call) -> bool:
        node = self._of_handle(call)
        if node is None:
            return False
        node.sent = bytes(node.content)
        for one in (*self._names.values(), *self._safe_names.values()):
            one.safe = one.sent
        # The times of a file are no reason to wait for the journal.
        if call.name == "fsync" or node.resized:
            for change in self._unwritten:
                change(self._safe_names)
            self._unwritten.clear()
        node.resized = False
        return True

    _fdatasync = _fsync
