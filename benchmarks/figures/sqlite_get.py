"""What reading the latest state costs, when every byte of it is checked against its digest."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import Row, Run, median, show_time, show_times, take_turns, timed
from benchmarks.ours import OurThread
from benchmarks.peers import PeerThread, open_sqlite_saver

TARGET_RATIO = 2.0


def measure(run: Run) -> list[Row]:
    growth = run.sqlite_growth
    peer_path = run.directory / "peer.db"
    # Readers of their own: what the writers remember of the conversation does not help them.
    saver = open_sqlite_saver(peer_path)
    peer, ours = PeerThread(saver), OurThread(growth.path)
    assert peer.get() == ours.get() == growth.messages
    times = take_turns(run.size(100, 30), peer.get, ours.get)
    ours.close()
    saver.conn.close()
    peer_time, our_time = map(median, times)
    first_times = [_first_gets(peer_path, growth.path) for _ in range(run.size(20, 5))]
    peer_first, our_first = map(median, zip(*first_times, strict=True))
    return [
        Row(
            figure=f"SQLite: get of the latest at step {run.steps:,}",
            peer=f"SqliteSaver {show_time(peer_time)}",
            ours=f"{show_time(our_time)}, digests verified",
            ratio=f"{show_times(our_time / peer_time)} its time",
            target=f"≤ {TARGET_RATIO:g} × its time",
            met=our_time / peer_time <= TARGET_RATIO,
            note=(
                "median, in turn, each by one reader that has its database open and has read"
                " before: chunks that it verified then it may have kept"
            ),
            values={"peer_seconds": peer_time, "our_seconds": our_time},
        ),
        Row(
            figure="SQLite: the first such get of a reader",
            peer=f"SqliteSaver {show_time(peer_first)}",
            ours=f"{show_time(our_first)}, digests verified",
            ratio=f"{show_times(our_first / peer_first)} its time",
            note="median, in turn; a new reader for each get: nothing was read or verified before",
            values={"peer_seconds": peer_first, "our_seconds": our_first},
        ),
    ]


def _first_gets(peer_path: Path, our_path: Path) -> tuple[float, float]:
    saver = open_sqlite_saver(peer_path)
    peer_time = timed(PeerThread(saver).get)
    saver.conn.close()
    ours = OurThread(our_path)
    our_time = timed(ours.get)
    ours.close()
    return peer_time, our_time
