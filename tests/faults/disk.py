"""A disk that forgets: an apsw VFS that knows what a power cut would leave of a database.

SQLite works on real files through it. Beside them it keeps what is certain to be on the platter: the
bytes as of each file's last sync. What was written since may have arrived or not, sector by sector and in
any order, as disks with a cache do it. `Disk.crash` writes one such outcome into a directory.

Sectors of 512 bytes are written whole or not at all; SQLite relies on that too.
"""

# ruff: noqa: N802, since SQLite names these methods

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw

SECTOR: Final = 512
# The one that SQLite would use without this module.
_REAL: Final = apsw.vfs_names()[0]


class _Content:
    """One file: what is certain, and what is not yet."""

    def __init__(self, durable: bytes | None) -> None:
        # None: nobody has synced it since it was made, so its name may be missing too.
        self.durable = None if durable is None else bytearray(durable)
        self.pending: list[tuple[int, bytes] | int] = []

    def write(self, data: bytes, offset: int) -> None:
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        self.pending.append(size)

    def sync(self) -> None:
        self.durable = self._applied(lambda: True)
        self.pending.clear()

    def after_crash(self, coin: random.Random) -> bytearray | None:
        if self.durable is None and coin.random() < 0.5:
            return None
        # Mostly a few are missing, sometimes nearly all.
        share = coin.choice((0.05, 0.5, 0.95))
        return self._applied(lambda: coin.random() < share)

    def _applied(self, arrived: Callable[[], bool]) -> bytearray:
        content = bytearray(self.durable or b"")
        for change in self.pending:
            if isinstance(change, int):
                if arrived():
                    del content[change:]
                continue
            start, data = change
            at = start
            while at < start + len(data):
                end = min((at // SECTOR + 1) * SECTOR, start + len(data))
                if arrived():
                    content.extend(bytes(max(0, end - len(content))))
                    content[at:end] = data[at - start : end - start]
                at = end
        return content


class Disk(apsw.VFS):
    """All files that SQLite opens while this is the default.

    ``on_change`` is called after each write, sync, truncation and deletion; ``before_change`` before
    each of them, and may raise what SQLite is to be told instead.
    """

    def __init__(
        self,
        on_change: Callable[[], None] = lambda: None,
        before_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_change = on_change
        self.about_to_change = before_change
        self._contents: dict[str, _Content] = {}
        self._syncs = True
        super().__init__("forgetful", _REAL, makedefault=True)

    def ignore_syncs(self) -> None:
        """Become a disk that says it has written and has not: what a test of the test needs."""
        self._syncs = False

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        content = None
        if path is not None and not flags[0] & apsw.SQLITE_OPEN_DELETEONCLOSE:
            content = self._contents.get(path)
            if content is None:
                there = Path(path)
                # One that is there before anything was written through us was made with care.
                content = _Content(there.read_bytes() if there.exists() else None)
                self._contents[path] = content
        return _File(self, name, flags, content)

    def xDelete(self, path: str, sync: bool) -> None:
        super().xDelete(path, sync)
        # SQLite deletes only what it no longer needs; that it comes back is no news to it.
        self._contents.pop(path, None)
        self.changed()

    def changed(self) -> None:
        self._on_change()

    def synced(self, content: _Content) -> None:
        if self._syncs:
            content.sync()

    def crash(self, directory: Path, coin: random.Random) -> None:
        """Write what a power cut at this moment could leave into an empty directory."""
        for path, content in self._contents.items():
            left = content.after_crash(coin)
            if left is not None:
                (directory / Path(path).name).write_bytes(left)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int], content: _Content | None) -> None:
        self._disk = disk
        self._content = content
        super().__init__(_REAL, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.about_to_change()
        super().xWrite(data, offset)
        if self._content is not None:
            self._content.write(bytes(data), offset)
            self._disk.changed()

    def xTruncate(self, size: int) -> None:
        self._disk.about_to_change()
        super().xTruncate(size)
        if self._content is not None:
            self._content.truncate(size)
            self._disk.changed()

    def xSync(self, flags: int) -> None:
        self._disk.about_to_change()
        super().xSync(flags)
        if self._content is not None:
            self._disk.synced(self._content)
            self._disk.changed()
