"""The same conversation in PostgreSQL: what its tables take, and what a put costs at the end."""

from __future__ import annotations

from benchmarks.harness import Row, Run, median, show_bytes, show_time, show_times, take_turns

TARGET_BYTES = 7_000_000
TARGET_RATIO = 5.0


def measure(run: Run) -> list[Row]:
    growth = run.postgres_growth
    peer, ours = growth.last_puts()
    assert growth.peer.get() == growth.ours.get() == growth.messages
    peer_get, our_get = map(median, take_turns(run.size(50, 10), growth.peer.get, growth.ours.get))
    return [
        Row(
            figure=f"PostgreSQL: all tables after {run.steps:,} steps",
            peer=f"PostgresSaver {show_bytes(growth.peer_bytes)}",
            ours=show_bytes(growth.our_bytes),
            ratio=f"{show_times(growth.peer_bytes / growth.our_bytes)} smaller",
            target=f"≤ {show_bytes(TARGET_BYTES)}",
            met=growth.our_bytes <= TARGET_BYTES,
            note="pg_total_relation_size of all tables, no VACUUM beforehand",
            values={"peer_bytes": growth.peer_bytes, "our_bytes": growth.our_bytes},
        ),
        Row(
            figure=f"PostgreSQL: one put at step {run.steps:,}",
            peer=f"PostgresSaver {show_time(peer)}",
            ours=show_time(ours),
            ratio=f"{show_times(peer / ours)} faster",
            target=f"≥ {TARGET_RATIO:g} × faster",
            met=peer / ours >= TARGET_RATIO,
            note="median of the last 100 of each, in turn by 25; fsync and synchronous_commit on",
            values={"peer_seconds": peer, "our_seconds": ours},
        ),
        Row(
            figure=f"PostgreSQL: get of the latest at step {run.steps:,}",
            peer=f"PostgresSaver {show_time(peer_get)}",
            ours=f"{show_time(our_get)}, digests verified",
            ratio=f"{show_times(our_get / peer_get)} its time",
            values={"peer_seconds": peer_get, "our_seconds": our_get},
        ),
    ]
