"""The record of fuzzing adds up over runs, and says who is next."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.record import Record
from tests.fuzz.runs import Run


def test_runs_add_up_also_over_processes(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    Record(path).add(Run("state", 60, 1000, kept_promise=True))
    again = Record(path)
    again.add(Run("state", 30, 500, kept_promise=False))
    assert again.seconds("state") == 90
    assert "1,500  state" in Record(path).summary(["state"])
    assert '"findings": 1' in path.read_text()


def test_the_least_fuzzed_that_nobody_runs_comes_next(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json")
    record.add(Run("chunk", 10, 1, kept_promise=True))
    names = ["chunk", "state", "refs"]
    assert record.take_least(names, 60) == "state"
    assert record.take_least(names, 60) == "refs"
    record.add(Run("state", 60, 1, kept_promise=True))
    assert record.take_least(names, 60) == "chunk"
    assert record.take_least(names, 60) is None
