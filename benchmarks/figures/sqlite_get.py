"""What reading the latest state costs, when every byte of it is checked against its digest."""

from __future__ import annotations

from benchmarks.harness import Row, Run, median, show_time, show_times, take_turns
from benchmarks.ours import OurThread
from benchmarks.peers import PeerThread, open_sqlite_saver

TARGET_RATIO = 2.0


def measure(run: Run) -> list[Row]:
    growth = run.sqlite_growth
    # Readers of their own: what the writers remember of the conversation does not help them.
    saver = open_sqlite_saver(run.directory / "peer.db")
    peer, ours = PeerThread(saver), OurThread(growth.path)
    assert peer.get() == ours.get() == growth.messages
    times = take_turns(run.size(100, 30), peer.get, ours.get)
    ours.close()
    saver.conn.close()
    peer_time, our_time = map(median, times)
    return [
        Row(
            figure=f"SQLite: get of the latest at step {run.steps:,}",
            peer=f"SqliteSaver {show_time(peer_time)}",
            ours=f"{show_time(our_time)}, digests verified",
            ratio=f"{show_times(our_time / peer_time)} its time",
            target=f"≤ {TARGET_RATIO:g} × its time",
            met=our_time / peer_time <= TARGET_RATIO,
            note="median, in turn, both by a reader that has its database open",
            values={"peer_seconds": peer_time, "our_seconds": our_time},
        )
    ]
