"""A conversation of 250 turns with LangGraph: what its checkpointers store, and how long they take.

The same graph, with LangGraph's own checkpointers, with its delta channel, and with ours.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.content import Writer
from benchmarks.graphs import DeltaState, TalkApart, take_turns_talking
from benchmarks.growth import relations_bytes
from benchmarks.harness import Row, Run, median, show_bytes, show_time, show_times, take_turns
from benchmarks.ours import CHECKPOINT_COPY, SqliteFile
from benchmarks.peers import Graph, open_postgres_saver, open_sqlite_saver, sqlite_file_bytes
from holdfast.integrations.langgraph import HoldfastSaver

TARGET_SMALLER = 60
TARGET_FASTER = 2
TARGET_HISTORY = 5
_LISTED = 20
_PER_THREAD = 100
_DELTA_NOTE = "the delta channel changes the graph's schema; ours has the plain one"


def measure(run: Run) -> list[Row]:
    return [*_sqlite(run), *_postgres(run), _threads(run)]


def _sqlite(run: Run) -> list[Row]:
    turns, folder = run.size(250, 40), run.directory
    paths = [folder / f"langgraph-{name}.db" for name in ("peer", "delta", "ours")]
    with (
        TalkApart(partial(open_sqlite_saver, paths[0])) as peer,
        TalkApart(partial(open_sqlite_saver, paths[1]), schema=DeltaState) as delta,
        TalkApart(partial(HoldfastSaver, paths[2])) as ours,
    ):
        take_turns_talking(turns, peer, delta, ours)
        _same(peer, delta, ours)
        histories = _histories(run, peer, ours)
    peer_bytes, delta_bytes = map(_peer_bytes, paths[:2])
    file = SqliteFile(paths[2])
    our_bytes = file.file_bytes()
    file.close()
    what = f"LangGraph on SQLite, {turns} turns of two 1 KB messages"
    return [
        Row(
            figure=f"{what}: the file",
            peer=f"SqliteSaver {show_bytes(peer_bytes)}",
            ours=show_bytes(our_bytes),
            ratio=f"{show_times(peer_bytes / our_bytes)} smaller",
            target=f"≥ {TARGET_SMALLER} × smaller",
            met=peer_bytes >= TARGET_SMALLER * our_bytes,
            values={"peer_bytes": peer_bytes, "our_bytes": our_bytes, "turns": turns},
        ),
        Row(
            figure=f"{what}: the file, beside a delta channel",
            peer=f"SqliteSaver with DeltaChannel {show_bytes(delta_bytes)}",
            ours=show_bytes(our_bytes),
            ratio=f"{show_times(delta_bytes / our_bytes)} smaller",
            target="not larger",
            met=our_bytes <= delta_bytes,
            note=_DELTA_NOTE,
            values={"peer_bytes": delta_bytes, "our_bytes": our_bytes},
        ),
        _faster(f"{what}: a turn", "SqliteSaver", peer, ours, TARGET_FASTER),
        _faster(f"{what}: a turn, beside a delta channel", "SqliteSaver with DeltaChannel", delta, ours),
        _history(what, "SqliteSaver", histories),
    ]  # fmt: skip


def _postgres(run: Run) -> list[Row]:
    turns = run.size(250, 40)
    urls = [run.new_database() for _ in range(3)]
    with (
        TalkApart(partial(open_postgres_saver, urls[0])) as peer,
        TalkApart(partial(open_postgres_saver, urls[1]), schema=DeltaState) as delta,
        TalkApart(partial(HoldfastSaver, urls[2])) as ours,
    ):
        take_turns_talking(turns, peer, delta, ours)
        _same(peer, delta, ours)
        histories = _histories(run, peer, ours)
    peer_bytes, delta_bytes, our_bytes = map(relations_bytes, urls)
    what = f"LangGraph on PostgreSQL, {turns} turns of two 1 KB messages"
    return [
        Row(
            figure=f"{what}: all tables",
            peer=f"PostgresSaver {show_bytes(peer_bytes)}",
            ours=show_bytes(our_bytes),
            ratio=f"{show_times(peer_bytes / our_bytes)} smaller",
            values={"peer_bytes": peer_bytes, "our_bytes": our_bytes, "turns": turns},
        ),
        Row(
            figure=f"{what}: all tables, beside a delta channel",
            peer=f"PostgresSaver with DeltaChannel {show_bytes(delta_bytes)}",
            ours=show_bytes(our_bytes),
            ratio=f"{show_times(delta_bytes / our_bytes)} smaller",
            note=_DELTA_NOTE,
            values={"peer_bytes": delta_bytes, "our_bytes": our_bytes},
        ),
        _faster(f"{what}: a turn", "PostgresSaver", peer, ours),
        _faster(f"{what}: a turn, beside a delta channel", "PostgresSaver with DeltaChannel", delta, ours),
        _history(what, "PostgresSaver", histories, None),
    ]  # fmt: skip


def _threads(run: Run) -> Row:
    """List threads, and again after the manifests and chunks of all their checkpoints are gone."""
    path, count = run.directory / "langgraph-threads.db", run.size(1_000, 50)
    with HoldfastSaver(path) as saver:
        checkpoint, metadata, versions = Graph().checkpoint(Writer().messages(92))
        config: Any = {"configurable": {"thread_id": "talk-0", "checkpoint_ns": ""}}
        stored = saver.put(config, checkpoint, metadata, versions)
        saver.put_writes(stored, [("messages", Writer().messages(1))], "task")
        file = SqliteFile(path)
        _copy_thread(file, count)
        (times,) = take_turns(run.size(10, 3), saver.list_threads)
        before = list(saver.list_threads())
        _remove_payload(file)
        file.close()
        payload_free = list(saver.list_threads()) == before
    assert len(before) == count
    assert all(one.checkpoints == _PER_THREAD for one in before)
    size = sum(one.size_bytes for one in before)
    return Row(
        figure=f"LangGraph on SQLite: listing {count:,} threads of {_PER_THREAD} checkpoints of 100 KB",
        peer="–",
        ours=f"{show_time(median(times))}, {'no' if payload_free else 'with'} payload read",
        target="no payload read",
        met=payload_free,
        note=(
            f"{show_bytes(size)} of states, which are equal; the same answer comes with neither manifests"
            " nor chunks; LangGraph's checkpointers list threads by listing all their checkpoints"
        ),
        values={"our_seconds": median(times), "threads": count, "size_bytes": size},
    )


def _copy_thread(file: SqliteFile, count: int) -> None:
    """Make so many threads of the only one, each with copies of its only checkpoint."""
    with file.connection:
        file.copy_row("sessions", count, {"id": "'talk-' || n"})
        file.copy_row(
            "session_checkpoints",
            count * _PER_THREAD,
            CHECKPOINT_COPY
            | {
                "external_id": "external_id || '-' || n",
                "session_id": f"'talk-' || (n / {_PER_THREAD})",
            },
        )


def _remove_payload(file: SqliteFile) -> None:
    """Leave nothing of what a state is made of: other values stand for manifests and references."""
    with file.connection:
        file.connection.execute(
            "UPDATE session_checkpoints SET state_snapshot = '\"gone\"', refs = x'00'"
        )
        file.connection.execute("UPDATE checkpoint_writes SET manifest = '\"gone\"', refs = x'00'")
        file.connection.execute("DELETE FROM chunks")


def _peer_bytes(path: Path) -> int:
    saver = open_sqlite_saver(path)
    with closing(saver.conn):
        return sqlite_file_bytes(saver, path)


def _same(*talks: TalkApart) -> None:
    said = [talk.messages() for talk in talks]
    assert all(messages == said[0] for messages in said)


def _histories(run: Run, *talks: TalkApart) -> list[list[float]]:
    """List the newest states in turn, round after round; return the times of each."""
    rounds = range(run.size(10, 3))
    times = [[talk.time_of_history(_LISTED) for talk in talks] for _ in rounds]
    return [list(of_one) for of_one in zip(*times, strict=True)]


def _faster(
    figure: str, name: str, peer: TalkApart, ours: TalkApart, target: int | None = None
) -> Row:
    """Compare what a turn took over the whole conversation: short at first, long in the end."""
    peer_time, our_time = (sum(talk.times) / len(talk.times) for talk in (peer, ours))
    last = [median(talk.times[-25:]) for talk in (peer, ours)]
    return Row(
        figure=figure,
        peer=f"{name} {show_time(peer_time)}",
        ours=show_time(our_time),
        ratio=f"{show_times(peer_time / our_time)} faster",
        target="–" if target is None else f"≥ {target} × faster",
        met=None if target is None else peer_time >= target * our_time,
        note=f"at the end {show_time(last[0])} and {show_time(last[1])}; with LangGraph's own work",
        values={"peer_seconds": peer_time, "our_seconds": our_time, "last": last},
    )


def _history(
    what: str, name: str, times: list[list[float]], target: int | None = TARGET_HISTORY
) -> Row:
    peer_time, our_time = map(median, times)
    return Row(
        figure=f"{what}: get_state_history(limit={_LISTED})",
        peer=f"{name} {show_time(peer_time)}",
        ours=show_time(our_time),
        ratio=f"{show_times(peer_time / our_time)} faster",
        target="–" if target is None else f"≥ {target} × faster",
        met=None if target is None else peer_time >= target * our_time,
        values={"peer_seconds": peer_time, "our_seconds": our_time},
    )
