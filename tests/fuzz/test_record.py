"""The record of fuzzing adds up over runs, and says who is next; a signal ends all of it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.fuzz.__main__ import _seconds, _share
from tests.fuzz.record import Record
from tests.fuzz.runs import Run, Runs


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


def test_nothing_more_is_fuzzed_after_a_signal(tmp_path: Path) -> None:
    runs, waiting = Runs(), ["state", "refs"]

    def played(name: str, seconds: int) -> Run:
        runs.ended = True
        return Run(name, seconds, 1, kept_promise=True)

    runs.run = played  # type: ignore[method-assign]
    record = Record(tmp_path / "record.json")
    _share(record, runs, waiting.pop, 60)
    assert waiting == ["state"]
    assert record.seconds("refs") == 60


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "soon", ""])
def test_no_time_is_not_taken_for_all_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="number of seconds"):
        _seconds(text)
