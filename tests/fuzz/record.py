"""How long each decoder was fuzzed in all: hours come together from many runs.

The record stands beside the tests and is committed with them. Time is the processor's, so a run on a busy machine
counts for what it did. It says how much was tried since the record began, not with which source: who changes a
decoder's ways takes its entry out.
"""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock
from typing import Any, Final

from tests.fuzz.runs import Run

_FILE: Final = Path(__file__).with_name("record.json")


class Record:
    """Seconds, inputs and findings by decoder."""

    def __init__(self, path: Path = _FILE) -> None:
        self._path = path
        self._entries: dict[str, dict[str, Any]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )
        self._taken: set[str] = set()
        self._lock = Lock()

    def seconds(self, name: str) -> float:
        return float(self._entries.get(name, {}).get("processor_seconds", 0))

    def take_least(self, names: list[str], until: float) -> str | None:
        """Return who was fuzzed least among those that nobody runs now, or `None` if all have enough."""
        with self._lock:
            short = [
                name for name in names if self.seconds(name) < until and name not in self._taken
            ]
            if not short:
                return None
            self._taken.add(name := min(short, key=self.seconds))
            return name

    def add(self, run: Run) -> None:
        with self._lock:
            self._taken.discard(run.name)
            entry = self._entries.setdefault(
                run.name, {"processor_seconds": 0, "inputs": 0, "findings": 0}
            )
            entry["processor_seconds"] = round(entry["processor_seconds"] + run.processor_seconds)
            entry["inputs"] += run.inputs
            entry["findings"] += not run.kept_promise
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self._entries, indent=1, sort_keys=True) + "\n")
            new.replace(self._path)

    def summary(self, names: list[str]) -> str:
        """Return a line for each decoder, the least fuzzed first."""
        rows = [(self.seconds(name), name) for name in names]
        return "\n".join(
            f"{seconds / 60:6.1f} min  {self._entries.get(name, {}).get('inputs', 0):>13,}  {name}"
            for seconds, name in sorted(rows)
        )
