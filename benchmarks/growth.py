"""Conversations that grow by one message a step, saved by the peer and by us in turn.

They take turns by runs of steps rather than by single ones, and the disk takes everything in between: a
put that follows a megabyte of the other side's writes would wait for those too.

Several figures look at the result: what is stored, what a put at the end costs, what a get costs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
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
_RUN = 25


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

    def run(self, messages: list[Message]) -> None:
        """Let each side save a step for each of these messages."""
        steps = []
        for message in messages:
            self.messages = [*self.messages, message]
            steps.append(self.graph.checkpoint(self.messages))
        os.sync()
        self.peer_puts += [timed(partial(self.peer.put, *step)) for step in steps]
        os.sync()
        self.our_puts += [timed(partial(self.ours.put, *step[:2])) for step in steps]

    def save(self) -> None:
        """Hand the same checkpoint, of messages that were changed in place, to both."""
        checkpoint, metadata, versions = self.graph.checkpoint(self.messages)
        self.peer.put(checkpoint, metadata, versions)
        self.ours.put(checkpoint, metadata)

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
    while (step := len(growth.messages)) < run.steps:
        growth.run(writer.messages(min(_RUN, run.steps - step)))
        growth.peer_samples.append((len(growth.messages), sqlite_content_bytes(saver)))
    growth.peer_bytes = sqlite_file_bytes(saver, peer_path)
    growth.our_bytes = growth.file.file_bytes()
    return growth


def grow_postgres(run: Run) -> PostgresGrowth:
    peer_url, our_url = run.new_database(), run.new_database()
    growth = PostgresGrowth(PeerThread(open_postgres_saver(peer_url)), OurThread(our_url))
    writer = Writer()
    while (step := len(growth.messages)) < run.steps:
        growth.run(writer.messages(min(_RUN, run.steps - step)))
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
