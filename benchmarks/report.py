"""How results are told: lines on the screen, a JSON file, tables and a chart."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks import chart
from benchmarks.harness import ROOT, Row

RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
_MARKS = {True: "met", False: "MISSED", None: "–"}
_PACKAGES = (
    "holdfast",
    "apsw",
    "orjson",
    "psycopg",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "dbos",
)


def line(row: Row) -> str:
    cells = (row.figure, row.peer, row.ours, row.ratio, f"target {row.target}", _MARKS[row.met])
    return " | ".join(cells)


def verdict(rows: Sequence[Row], seconds: float, *, quick: bool) -> str:
    aimed = [row for row in rows if row.met is not None]
    missed = [row.figure for row in aimed if not row.met]
    text = f"{len(aimed) - len(missed)} of {len(aimed)} targets met in {seconds:.0f} s"
    if missed:
        text += "; missed: " + "; ".join(missed)
    if quick:
        text += " (quick sizes: read the targets with care, nothing was written)"
    return text


def write(rows: Sequence[Row], seconds: float) -> None:
    """Keep the results of a whole run."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    document = {
        "environment": _environment(),
        "seconds": round(seconds),
        "rows": [row.as_dict() for row in rows],
    }
    (RESULTS / "latest.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "results.md").write_text(_markdown(document))
    README.write_text(_with_figures(README.read_text(), document))
    if (samples := chart.collect(rows)) is not None:
        chart.write(samples)


def _with_figures(page: str, document: dict[str, Any]) -> str:
    """Return the page with the figures that have a peer between its two markers."""
    start, end = "<!-- figures:start -->\n", "<!-- figures:end -->"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    table = ["| | peer | Holdfast | |", "|---|---|---|---|"]
    for row in document["rows"]:
        if row["peer"] != "–":
            cells = (row["figure"], row["peer"], row["ours"], row["ratio"])
            table.append("| " + " | ".join(cells) + " |")
    environment = document["environment"]
    source = (
        f"Measured on {environment['measured_at']} with Python {environment['python']} on "
        f"{environment['system']}, each line side by side in one run of `make bench`. The rest, the "
        "conditions and what missed its target: [results](benchmarks/results/results.md)."
    )
    return before + start + "\n".join([*table, "", source, ""]) + end + after


def _environment() -> dict[str, Any]:
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "from source"
    return {
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "sqlite of the peer": sqlite3.sqlite_version,
        **packages,
    }


def _markdown(document: dict[str, Any]) -> str:
    lines = [
        "# Benchmark results",
        "",
        "Written by `python -m benchmarks`. What is measured and how: `docs/reference/benchmarks.md`.",
        "",
        "| figure | peer | Holdfast | ratio | target | |",
        "|---|---|---|---|---|---|",
    ]
    notes = []
    for row in document["rows"]:
        figure = row["figure"]
        if row["note"]:
            notes.append(row["note"])
            figure += f" [{len(notes)}]"
        cells = (figure, row["peer"], row["ours"], row["ratio"], row["target"], _MARKS[row["met"]])
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1)), ""]
    environment = "; ".join(f"{name} {value}" for name, value in document["environment"].items())
    return "\n".join([*lines, f"Environment: {environment}. Took {document['seconds']} s.", ""])
