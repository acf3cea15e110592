"""How large the SQLite file is after a conversation of 1,000 steps, as it lies on disk."""

from __future__ import annotations

from benchmarks.content import Writer
from benchmarks.harness import Row, Run, show_bytes, show_times
from benchmarks.ours import OurThread, SqliteFile
from benchmarks.peers import Graph

TARGET_BYTES = 4_000_000


def measure(run: Run) -> list[Row]:
    growth = run.sqlite_growth
    noise_bytes = _incompressible(run)
    return [
        Row(
            figure=f"SQLite file after {run.steps:,} steps, each appending a 1 KB message",
            peer=f"SqliteSaver {show_bytes(growth.peer_bytes)}",
            ours=show_bytes(growth.our_bytes),
            ratio=f"{show_times(growth.peer_bytes / growth.our_bytes)} smaller",
            target=f"≤ {show_bytes(TARGET_BYTES)}",
            met=growth.our_bytes <= TARGET_BYTES,
            note="put only on both sides; after wal_checkpoint(TRUNCATE)",
            values={
                "steps": run.steps,
                "peer_bytes": growth.peer_bytes,
                "our_bytes": growth.our_bytes,
                "peer_samples": growth.peer_samples,
            },
        ),
        Row(
            figure=f"the same, {run.steps:,} messages that cannot be compressed",
            peer=f"SqliteSaver {show_bytes(growth.peer_bytes)}",
            ours=show_bytes(noise_bytes),
            ratio=f"{show_times(growth.peer_bytes / noise_bytes)} smaller",
            note="random base64; the peer does not compress, its size is the one above",
            values={"our_bytes": noise_bytes},
        ),
    ]


def _incompressible(run: Run) -> int:
    path = run.directory / "noise.db"
    thread, writer = OurThread(path), Writer(compressible=False)
    graph, messages = Graph(), []
    for _ in range(run.steps):
        messages.append(writer.message())
        checkpoint, metadata, _ = graph.checkpoint(messages)
        thread.put(checkpoint, metadata)
    thread.close()
    file = SqliteFile(path)
    size = file.file_bytes()
    file.close()
    return size
