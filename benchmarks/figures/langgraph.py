"""A conversation of 250 turns with LangGraph: what its checkpointers store, and how long they take.

The same graph, with LangGraph's own checkpointers, with its delta channel, and with ours. Each holds the same
conversation several times, in turn with the others, on a fresh store.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.content import Writer
from benchmarks.graphs import DeltaState, TalkApart, talk_in_turn
from benchmarks.growth import relations_bytes
from benchmarks.harness import Row, Run, median, show_bytes, show_time, show_times, take_turns
from benchmarks.ours import CHECKPOINT_COPY, SqliteFile
from benchmarks.peers import Graph, open_postgres_saver, open_sqlite_saver, sqlite_file_bytes
from holdfast.integrations.langgraph import HoldfastSaver

TARGET_SMALLER = 60
TARGET_FASTER = 2
TARGET_HISTORY = 5
_LISTED = 20
_LAST = 25
_PER_THREAD = 100
_DELTA_NOTE = "the delta channel changes the graph's schema; ours has the plain one"


def measure(run: Run) -> list[Row]:
    return [*_sqlite(run), *_postgres(run), _threads(run)]


@dataclass
class _Side:
    """What one checkpointer needs: its turns, those at the end of a conversation, and listing the newest states."""

    turns: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    listings: list[float] = field(default_factory=list)


def _talk(run: Run, turns: int, open_talks: Callable[[int], list[TalkApart]]) -> list[_Side]:
    """Hold the conversation in several rounds, whose number the stores get; return what each side took."""
    sides: list[_Side] = []
    for number in range(run.size(3, 1)):
        with ExitStack() as stack:
            talks = [stack.enter_context(talk) for talk in open_talks(number)]
            sides = sides or [_Side() for _ in talks]
            talk_in_turn(turns, talks, first=number % len(talks))
            said = [talk.messages() for talk in talks]
            assert all(messages == said[0] for messages in said)
            for _ in range(run.size(4, 3)):
                for side, talk in zip(sides, talks, strict=True):
                    side.listings.append(talk.time_of_history(_LISTED))
            for side, talk in zip(sides, talks, strict=True):
                side.turns += talk.times
                side.last += talk.times[-_LAST:]
    return sides


def _sqlite(run: Run) -> list[Row]:
    turns = run.size(250, 40)

    def paths(number: int) -> list[Path]:
        return [
            run.directory / f"langgraph-{name}-{number}.db" for name in ("peer", "delta", "ours")
        ]

    def talks(number: int) -> list[TalkApart]:
        peer, delta, ours = paths(number)
        return [
            TalkApart(partial(open_sqlite_saver, peer)),
            TalkApart(partial(open_sqlite_saver, delta), schema=DeltaState),
            TalkApart(partial(HoldfastSaver, ours)),
        ]

    peer, delta, ours = _talk(run, turns, talks)
    peer_bytes, delta_bytes = map(_peer_bytes, paths(0)[:2])
    file = SqliteFile(paths(0)[2])
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
        _history(what, "SqliteSaver", peer, ours, TARGET_HISTORY),
    ]  # fmt: skip


def _postgres(run: Run) -> list[Row]:
    turns = run.size(250, 40)
    urls: list[str] = []

    def talks(_number: int) -> list[TalkApart]:
        urls[:] = [run.new_database() for _ in range(3)]
        return [
            TalkApart(partial(open_postgres_saver, urls[0])),
            TalkApart(partial(open_postgres_saver, urls[1]), schema=DeltaState),
            TalkApart(partial(HoldfastSaver, urls[2])),
        ]

    peer, delta, ours = _talk(run, turns, talks)
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
        _history(what, "PostgresSaver", peer, ours),
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


def _faster(figure: str, name: str, peer: _Side, ours: _Side, target: int | None = None) -> Row:
    """Compare what a turn took over whole conversations: short at first, long in the end."""
    peer_time, our_time = (sum(side.turns) / len(side.turns) for side in (peer, ours))
    last = [median(side.last) for side in (peer, ours)]
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


def _history(what: str, name: str, peer: _Side, ours: _Side, target: int | None = None) -> Row:
    peer_time, our_time = median(peer.listings), median(ours.listings)
    return Row(
        figure=f"{what}: get_state_history(limit={_LISTED})",
        peer=f"{name} {show_time(peer_time)}",
        ours=show_time(our_time),
        ratio=f"{show_times(peer_time / our_time)} faster",
        target="–" if target is None else f"≥ {target} × faster",
        met=None if target is None else peer_time >= target * our_time,
        values={"peer_seconds": peer_time, "our_seconds": our_time},
    )
