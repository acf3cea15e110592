"""Conversations that grow by one message a step, saved by the peer and by us in turn.

Several figures look at the result: what is stored, what a put at the end costs, what a get costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from benchmarks.content import Message, Writer
from benchmarks.harness import Run, median, timed
from benchmarks.ours import OurThread, SqliteFile
from benchmarks.peers import (
    Graph,
    PeerThread,
    open_postgres_saver,
    open_sqlite_saver,
    sqlite_content_bytes,
    sqlite_file_bytes,
)

_COUNTED = 100


@dataclass
class Growth:
    """Both threads after the last step, what every put took, and the conversation itself."""

    peer: PeerThread
    ours: OurThread
    graph: Graph = field(default_factory=Graph)
    messages: list[Message] = field(default_factory=list)
    peer_puts: list[float] = field(default_factory=list)
    our_puts: list[float] = field(default_factory=list)
    peer_bytes: int = 0
    our_bytes: int = 0

    def step(self, message: Message) -> None:
        self.messages.append(message)
        self.save()

    def save(self) -> None:
        """Hand the same checkpoint to both."""
        checkpoint, metadata, versions = self.graph.checkpoint(self.messages)
        self.peer_puts.append(timed(lambda: self.peer.put(checkpoint, metadata, versions)))
        self.our_puts.append(timed(lambda: self.ours.put(checkpoint, metadata)))

    def last_puts(self) -> tuple[float, float]:
        """Return the medians of the last puts, the peer's and ours."""
        return median(self.peer_puts[-_COUNTED:]), median(self.our_puts[-_COUNTED:])


@dataclass
class SqliteGrowth(Growth):
    """Our file, too, and the size of the peer's along the way."""

    path: Path = Path()
    file: SqliteFile | None = None
    peer_samples: list[tuple[int, int]] = field(default_factory=list)

    def close(self) -> None:
        assert self.file is not None
        self.file.close()
        self.ours.close()
        self.peer.saver.conn.close()


@dataclass
class PostgresGrowth(Growth):
    def close(self) -> None:
        self.ours.close()
        self.peer.saver.conn.close()


def grow_sqlite(run: Run) -> SqliteGrowth:
    peer_path, our_path = run.directory / "peer.db", run.directory / "ours.db"
    saver = open_sqlite_saver(peer_path)
    growth = SqliteGrowth(PeerThread(saver), OurThread(our_path), path=our_path)
    growth.file = SqliteFile(our_path)
    writer = Writer()
    for step in range(1, run.steps + 1):
        growth.step(writer.message())
        if step % (run.steps // 50) == 0:
            growth.peer_samples.append((step, sqlite_content_bytes(saver)))
    growth.peer_bytes = sqlite_file_bytes(saver, peer_path)
    growth.our_bytes = growth.file.file_bytes()
    return growth


def grow_postgres(run: Run) -> PostgresGrowth:
    peer_url, our_url = run.new_database(), run.new_database()
    growth = PostgresGrowth(PeerThread(open_postgres_saver(peer_url)), OurThread(our_url))
    writer = Writer()
    for _ in range(run.steps):
        growth.step(writer.message())
    growth.peer_bytes = relations_bytes(peer_url)
    growth.our_bytes = relations_bytes(our_url)
    return growth


def relations_bytes(url: str) -> int:
    """Return what all tables of a database take, with their indexes and TOAST."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'm') AND n.nspname !~ '^(pg_|information_schema)'"
        ).fetchone()
    assert row is not None
    return int(row[0])
