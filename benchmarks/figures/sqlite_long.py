"""Whether growth stays linear: the file after 4,000 steps compared with the one after 1,000."""

from __future__ import annotations

from benchmarks.content import Writer
from benchmarks.harness import Row, Run, show_bytes, show_times
from benchmarks.ours import OurThread, SqliteFile
from benchmarks.peers import Graph

TARGET_RATIO = 4.5


def measure(run: Run) -> list[Row]:
    path = run.directory / "long.db"
    thread, writer = OurThread(path), Writer()
    file = SqliteFile(path)
    graph, messages, samples, short_bytes = Graph(), [], [], 0
    for step in range(1, 4 * run.steps + 1):
        messages.append(writer.message())
        checkpoint, metadata, _ = graph.checkpoint(messages)
        thread.put(checkpoint, metadata)
        if step % (run.steps // 50) == 0:
            samples.append((step, file.content_bytes()))
        if step == run.steps:
            short_bytes = file.file_bytes()
    long_bytes = file.file_bytes()
    file.close()
    thread.close()
    # The last term of a quadratic dominates: four times the steps, sixteen times the bytes.
    extrapolated = 16 * run.sqlite_growth.peer_bytes
    growth = long_bytes / short_bytes
    return [
        Row(
            figure=f"SQLite file after {4 * run.steps:,} such steps",
            peer=f"SqliteSaver ~{show_bytes(extrapolated)} (extrapolated)",
            ours=f"{show_bytes(long_bytes)}, {growth:.2f} × that of {run.steps:,}",
            ratio=f"{show_times(extrapolated / long_bytes)} smaller",
            target=f"≤ {TARGET_RATIO} × that of {run.steps:,}",
            met=growth <= TARGET_RATIO,
            note="the peer was not run that far: it grows with the square of the steps",
            values={
                "our_bytes": long_bytes,
                "our_short_bytes": short_bytes,
                "peer_extrapolated": extrapolated,
                "our_samples": samples,
            },
        )
    ]
