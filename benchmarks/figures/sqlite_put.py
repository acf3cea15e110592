"""What one put costs at the end of a long conversation, both sides with synchronous=FULL."""

from __future__ import annotations

from benchmarks.content import Writer
from benchmarks.harness import Row, Run, median, show_time, show_times, timed

TARGET_RATIO = 4.0
_MORE = 50


def measure(run: Run) -> list[Row]:
    growth = run.sqlite_growth
    peer, ours = growth.last_puts()
    writer = Writer(seed=8)
    peer_writes, our_writes = [], []
    for _ in range(_MORE):
        growth.run([writer.message()])
        peer_writes.append(timed(lambda: growth.peer.put_writes(growth.messages[-1])))
        our_writes.append(timed(lambda: growth.ours.put_writes(growth.messages[-1])))
    peer_both, our_both = peer + median(peer_writes), ours + median(our_writes)
    return [
        Row(
            figure=f"SQLite: one put at step {run.steps:,}",
            peer=f"SqliteSaver {show_time(peer)}",
            ours=show_time(ours),
            ratio=f"{show_times(peer / ours)} faster",
            target=f"≥ {TARGET_RATIO:g} × faster",
            met=peer / ours >= TARGET_RATIO,
            note="median of the last 100 of each, in turn by 25; synchronous=FULL",
            values={"peer_seconds": peer, "our_seconds": ours},
        ),
        Row(
            figure=f"SQLite: put and put_writes at step {run.steps:,}",
            peer=f"SqliteSaver {show_time(peer_both)}",
            ours=show_time(our_both),
            ratio=f"{show_times(peer_both / our_both)} faster",
            note=f"with the median of {_MORE} put_writes, one write of one message each",
            values={"peer_seconds": peer_both, "our_seconds": our_both},
        ),
    ]
