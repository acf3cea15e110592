"""Holdfast as the figures use it: its savers where a peer's saver is beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw

from benchmarks.content import Message
from holdfast.savers import CheckpointConfig, CheckpointTuple, open_saver

DEFAULT_THREAD = "thread"
# What no two checkpoints of a session have in common, for the n-th copy of one.
CHECKPOINT_COPY = {
    "id": "printf('01900000-0000-7000-8000-%012x', n)",
    "seq": "seq + n",
    "name": "'copy-' || n",
    "label": "label || '-' || (n + 1)",
}


class OurThread:
    """One thread of a Holdfast saver, handed the same checkpoints as the peer's."""

    def __init__(self, url: str | Path, name: str = DEFAULT_THREAD) -> None:
        self.saver = open_saver(url)
        self.thread = CheckpointConfig(name)
        self.config = self.thread

    def put(self, checkpoint: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        self.config = self.saver.put(self.config, checkpoint, metadata)

    def put_writes(self, message: Message) -> None:
        self.saver.put_writes(self.config, [("messages", [message])], "task")

    def get(self) -> list[Message]:
        found = self.saver.get_tuple(self.thread)
        assert found is not None
        messages: list[Message] = found.checkpoint["channel_values"]["messages"]
        return messages

    def list(self, limit: int) -> list[CheckpointTuple]:
        return list(self.saver.list(self.thread, limit=limit))

    def close(self) -> None:
        self.saver.close()


class SqliteFile:
    """A second look at our database file, through the same SQLite library.

    Another library in this process would drop our locks when it closes the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        self.connection.set_busy_timeout(10_000)

    def content_bytes(self) -> int:
        """Return the size that the file has, pages in the write-ahead log included."""
        pages = self.connection.pragma("page_count")
        return int(pages) * int(self.connection.pragma("page_size"))

    def file_bytes(self) -> int:
        """Bring everything into the database file and return its size."""
        expected = self.content_bytes()
        self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        size = self.path.stat().st_size
        if size != expected:
            raise RuntimeError(f"{self.path} has {size} bytes and {expected} after a checkpoint")
        return size

    def copy_row(self, table: str, count: int, made: Mapping[str, str]) -> None:
        """Make ``count`` rows of the first of a table; ``made`` has what differs, as SQL with a number n."""
        columns = [row[1] for row in self.connection.execute(f"PRAGMA table_info({table})")]
        chosen = ", ".join(made.get(column, column) for column in columns)
        self.connection.execute(
            f"WITH RECURSIVE numbers (n) AS"
            f" (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)"
            f" INSERT INTO {table} ({', '.join(columns)})"
            f" SELECT {chosen} FROM numbers, (SELECT * FROM {table} LIMIT 1)",
            {"last": count - 1},
        )

    def close(self) -> None:
        self.connection.close()
