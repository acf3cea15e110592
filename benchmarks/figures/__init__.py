"""One module per figure, in the order in which they are reported.

A figure is a module with ``measure(run)``, which returns its rows. To add one, write the module and
name it here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.harness import Row, Run

FIGURES = (
    "sqlite_size",
    "sqlite_long",
    "sqlite_put",
    "sqlite_get",
    "sqlite_edit",
    "postgres_growth",
    "langgraph",
    "listing",
    "sqlite_writers",
    "postgres_writers",
    "import_time",
    "memory_peak",
    "sessions",
    "small_states",
    "steps",
    "autosave",
    "resume",
    "workspace",
    "hook",
)


def measure(name: str, run: Run) -> list[Row]:
    """Measure one figure."""
    rows: list[Row] = import_module(f"benchmarks.figures.{name}").measure(run)
    return rows
