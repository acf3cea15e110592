"""What saving a small state costs: 10 KB in SQLite, and a few hundred bytes in memory."""

from __future__ import annotations

from benchmarks.content import Writer
from benchmarks.harness import Row, Run, median, percentile, show_time, timed
from holdfast import CheckpointConfig, MemoryCheckpointSaver, SQLiteCheckpointSaver


def measure(run: Run) -> list[Row]:
    return [_sqlite(run), _memory(run)]


def _sqlite(run: Run) -> Row:
    writer = Writer()
    config = CheckpointConfig("thread")
    times = []
    with SQLiteCheckpointSaver(run.directory / "small.db") as saver:
        for step in range(run.size(1000, 100)):
            # New throughout: nothing is shared with the state before.
            state = {"messages": writer.messages(10, 950), "step": step}
            times.append(timed(lambda state=state: saver.put(config, state)))
    half, most = percentile(times, 50), percentile(times, 95)
    return Row(
        figure="SQLite: put of a 10 KB state that shares nothing",
        peer="–",
        ours=f"p50 {show_time(half)}, p95 {show_time(most)}",
        target="p95 < 10 ms",
        met=most < 0.010,
        values={"p50": half, "p95": most, "slowest": max(times)},
    )


def _memory(run: Run) -> Row:
    config = CheckpointConfig("thread")
    times = []
    with MemoryCheckpointSaver(max_checkpoints_per_thread=100) as saver:
        for step in range(run.size(5000, 500)):
            state = {"messages": [{"role": "user", "content": f"question {step}"}], "step": step}

            def put_and_get(state: dict[str, object] = state) -> None:
                saver.put(config, state)
                saver.get_tuple(config)

            times.append(timed(put_and_get))
    half = median(times)
    return Row(
        figure="memory: put and get of a small state",
        peer="–",
        ours=f"median {show_time(half)}",
        target="< 50 µs",
        met=half < 50e-6,
        values={"median": half, "p95": percentile(times, 95)},
    )
