"""How much memory saving a large state takes, and how long saving and loading it take."""

from __future__ import annotations

import json

from benchmarks.harness import Row, Run, output_of, python, show_bytes, show_time

TARGET_RATIO = 4.0
_KINDS = {"messages": "messages of 1 KB", "text": "one text"}


def measure(run: Run) -> list[Row]:
    size = run.size(50_000_000, 5_000_000)
    rows = []
    for kind, words in _KINDS.items():
        path = run.directory / f"memory-{kind}.db"
        command = ("-m", "benchmarks.worker", "memory-peak", str(path), kind, str(size))
        found = json.loads(output_of(python(*command)))
        ratio = found["peak"] / found["size"]
        rows.append(
            Row(
                figure=f"peak memory saving a state of {show_bytes(found['size'])}, {words}",
                peer="–",
                ours=f"{show_bytes(found['peak'])}, {ratio:.2f} × its size",
                target=f"≤ {TARGET_RATIO:g} × its size",
                met=ratio <= TARGET_RATIO,
                note=(
                    "growth of the process from before the state was made to its peak (VmHWM),"
                    f" the state's own {show_bytes(found['held'])} included"
                ),
                values=found,
            )
        )
        rows.append(
            Row(
                figure=f"saving and loading that state of {words}, SQLite",
                peer="–",
                ours=f"save {show_time(found['saving'])}, load {show_time(found['loading'])}",
            )
        )
    return rows
