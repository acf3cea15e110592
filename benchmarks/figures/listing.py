"""Listing 50 of 100,000 checkpoints: metadata is read, the 100 KB behind each of them is not.

The rows are made with SQL from one real checkpoint, so all states share their chunks: building the
store takes seconds, and what a listing looks at is as large as it would be. That no payload is read
is shown by removing all of it: the listing still answers, and answers the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg

from benchmarks.content import Writer
from benchmarks.growth import relations_bytes
from benchmarks.harness import (
    Row,
    Run,
    median,
    output_of,
    python,
    show_bytes,
    show_time,
    show_times,
    take_turns,
)
from benchmarks.ours import CHECKPOINT_COPY, SqliteFile
from benchmarks.peers import Graph, PeerThread, open_postgres_saver, open_sqlite_saver
from holdfast import SessionManager

TARGET_SECONDS = 0.010
TARGET_WHOLE_SECONDS = 0.100
_LISTED = 50
_PEER_CHECKPOINTS = 200
_TABLE = "session_checkpoints"


def measure(run: Run) -> list[Row]:
    # The server is busy for a while with the rows that it was given.
    return [_sqlite(run), _whole(run), _postgres(run)]


def _whole(run: Run) -> Row:
    """List everything there is: what a person who forgets the limit waits for."""
    path, count = run.directory / "listing-all.db", run.size(10_000, 1_000)
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session(agent_type="lister")
        first = session.save_checkpoint("first", state={"messages": Writer().messages(920)})
        file = SqliteFile(path)
        _copy_in_sqlite(file, count)
        command = ("list-all", str(path), session.id, str(run.size(10, 3)))
        # Here the collector would also look at what earlier figures have left.
        times = json.loads(output_of(python("-m", "benchmarks.worker", *command)))["times"]
        before = [one.id for one in session.list_checkpoints()]
        file.connection.execute("DELETE FROM chunks")
        payload_free = [one.id for one in session.list_checkpoints()] == before
        file.close()
    assert len(before) == count
    our_time = median(times)
    return Row(
        figure=f"SQLite: listing all {count:,} checkpoints of 1 MB",
        peer="–",
        ours=f"{show_time(our_time)}, {'no' if payload_free else 'with'} payload read",
        target=f"< {show_time(TARGET_WHOLE_SECONDS)}, no payload read",
        met=our_time < TARGET_WHOLE_SECONDS and payload_free,
        note=f"states of {show_bytes(first.size_bytes)}; the peer would read 10 GB",
        values={"our_seconds": our_time},
    )


def _sqlite(run: Run) -> Row:
    path, count = run.directory / "listing.db", run.size(100_000, 5_000)
    peer = PeerThread(open_sqlite_saver(run.directory / "listing-peer.db"))
    _fill_peer(peer)

    def copy(checkpoint_id: str) -> int:
        file = SqliteFile(path)
        _copy_in_sqlite(file, count)
        size = file.file_bytes()
        file.close()
        return size

    def empty() -> None:
        file = SqliteFile(path)
        file.connection.execute("DELETE FROM chunks")
        file.close()

    try:
        return _compare(run, "SQLite", path, peer, count, copy, empty)
    finally:
        peer.saver.conn.close()


def _postgres(run: Run) -> Row:
    url, count = run.new_database(), run.size(100_000, 5_000)
    peer = PeerThread(open_postgres_saver(run.new_database()))
    _fill_peer(peer)

    def copy(checkpoint_id: str) -> int:
        with psycopg.connect(url) as connection:
            _copy_in_postgres(connection, checkpoint_id, count)
        return relations_bytes(url)

    def empty() -> None:
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM holdfast.chunks")

    try:
        return _compare(run, "PostgreSQL", url, peer, count, copy, empty)
    finally:
        peer.saver.conn.close()


def _compare(
    run: Run,
    backend: str,
    url: str | Path,
    peer: PeerThread,
    count: int,
    copy: Callable[[str], int],
    empty: Callable[[], None],
) -> Row:
    with SessionManager.open(url, workspace=False) as manager:
        session = manager.create_session(agent_type="lister")
        first = session.save_checkpoint("first", state={"messages": Writer().messages(92)})
        stored = copy(first.id)

        def listed() -> Sequence[object]:
            return session.list_checkpoints(limit=_LISTED)

        assert len(listed()) == len(peer.list(_LISTED)) == _LISTED
        peer_times, our_times = take_turns(run.size(30, 8), lambda: peer.list(_LISTED), listed)
        before = [one.id for one in session.list_checkpoints(limit=_LISTED)]
        empty()
        payload_free = [one.id for one in session.list_checkpoints(limit=_LISTED)] == before
    peer_time, our_time = median(peer_times), median(our_times)
    return Row(
        figure=f"{backend}: listing {_LISTED} of {count:,} checkpoints of 100 KB",
        peer=f"{type(peer.saver).__name__} {show_time(peer_time)}, reads payload",
        ours=f"{show_time(our_time)}, {'no' if payload_free else 'with'} payload read",
        ratio=f"{show_times(peer_time / our_time)} faster",
        target=f"< {show_time(TARGET_SECONDS)}, no payload read",
        met=our_time < TARGET_SECONDS and payload_free,
        note=(
            f"our store of {count:,} takes {show_bytes(stored)}, its states being equal; the peer was"
            f" given {_PEER_CHECKPOINTS} checkpoints only, {count:,} would take"
            f" {show_bytes(count * first.size_bytes)}"
        ),
        values={"peer_seconds": peer_time, "our_seconds": our_time, "our_bytes": stored},
    )


def _fill_peer(peer: PeerThread) -> None:
    graph, messages = Graph(), Writer().messages(92)
    for _ in range(_PEER_CHECKPOINTS):
        peer.put(*graph.checkpoint(messages))


def _copy_in_sqlite(file: SqliteFile, count: int) -> None:
    with file.connection:
        file.copy_row(_TABLE, count, CHECKPOINT_COPY)
        file.connection.execute("UPDATE sequences SET value = value + ?", (count,))


def _copy_in_postgres(
    connection: psycopg.Connection[tuple[object, ...]], checkpoint_id: str, count: int
) -> None:
    found = connection.execute(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'holdfast' AND table_name = %s",
        (_TABLE,),
    )
    columns = [str(row[0]) for row in found]
    made = {
        "id": "('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
        "seq": "seq + n",
        "name": "'copy-' || n",
        "label": "label || '-' || (n + 1)",
    }
    chosen = ", ".join(made.get(column, column) for column in columns)
    connection.execute(
        f"INSERT INTO holdfast.{_TABLE} ({', '.join(columns)})"
        f" SELECT {chosen} FROM holdfast.{_TABLE}, generate_series(1, %s) AS numbers (n)"
        f" WHERE id = %s",
        (count - 1, checkpoint_id),
    )
