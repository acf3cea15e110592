"""LangGraph's own savers, used the way LangGraph uses them.

A thread here is one conversation: `put` hands over a whole checkpoint with one channel, ``messages``,
whose version moves with every step, as a compiled graph does. Serialisation is their default.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
from langgraph.checkpoint.base import CheckpointTuple, create_checkpoint, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row

from benchmarks.content import Message

DEFAULT_THREAD = "thread"


def open_sqlite_saver(path: Path) -> SqliteSaver:
    """Open a SqliteSaver that acknowledges what is durable; it sets WAL by itself."""
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA synchronous=FULL")
    saver = SqliteSaver(connection)
    saver.setup()
    return saver


def sqlite_file_bytes(saver: SqliteSaver, path: Path) -> int:
    """Bring everything into the database file and return its size."""
    expected = sqlite_content_bytes(saver)
    saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    size = path.stat().st_size
    if size != expected:
        raise RuntimeError(f"{path} has {size} bytes and {expected} after a checkpoint")
    return size


def sqlite_content_bytes(saver: SqliteSaver) -> int:
    """Return the size that the file has, pages in the write-ahead log included."""
    (pages,) = saver.conn.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = saver.conn.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_bytes)


def open_postgres_saver(url: str) -> PostgresSaver:
    """Open a PostgresSaver with the connection settings that its own constructor uses."""
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver = PostgresSaver(connection)
    saver.setup()
    return saver


class Graph:
    """Makes the checkpoints of one conversation, as a compiled graph with one channel does."""

    def __init__(self) -> None:
        self.step = 0
        self._checkpoint = empty_checkpoint()

    def checkpoint(self, messages: list[Message]) -> tuple[Any, Any, Any]:
        """Return the next checkpoint, its metadata and the new channel versions."""
        self.step += 1
        version = f"{self.step:032}.0.{self.step / 1e6:.16f}"
        self._checkpoint["channel_values"] = {"messages": messages}
        self._checkpoint["channel_versions"] = {"messages": version}
        checkpoint = create_checkpoint(self._checkpoint, None, self.step)
        metadata = {"source": "loop", "step": self.step, "parents": {}}
        return checkpoint, metadata, {"messages": version}


class PeerThread:
    """One thread of a LangGraph saver."""

    def __init__(self, saver: SqliteSaver | PostgresSaver, name: str = DEFAULT_THREAD) -> None:
        self.saver = saver
        self.thread = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self.config: dict[str, Any] = self.thread

    def put(self, checkpoint: Any, metadata: Any, versions: Any) -> None:
        self.config = self.saver.put(self.config, checkpoint, metadata, versions)

    def put_writes(self, message: Message) -> None:
        """Store what one task wrote, as LangGraph does beside every put."""
        self.saver.put_writes(self.config, [("messages", [message])], "task")

    def get(self) -> list[Message]:
        found = self.saver.get_tuple(self.thread)
        assert found is not None
        messages: list[Message] = found.checkpoint["channel_values"]["messages"]
        return messages

    def list(self, limit: int) -> list[CheckpointTuple]:
        return list(self.saver.list(self.thread, limit=limit))
