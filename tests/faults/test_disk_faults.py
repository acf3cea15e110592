"""The power goes, the disk fails: everything that was acknowledged is there and verifies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from tests.faults.work import missing

ROOT = Path(__file__).parents[2]


def run(program: str, directory: Path, *arguments: object) -> None:
    subprocess.run(
        [sys.executable, "-m", f"tests.faults.{program}", str(directory), *map(str, arguments)],
        cwd=ROOT,
        check=True,
        timeout=900,
    )


def lost(directory: Path) -> list[str]:
    ledger = json.loads((directory / "ledger.json").read_text(encoding="utf-8"))
    return missing(directory / "sessions.db", ledger)


def cut_the_power(directory: Path, cuts: int, seed: int, *options: str) -> list[Path]:
    """Run the workload; return what each cut has left."""
    run("power", directory, cuts, seed, *options)
    return [directory / str(number) for number in range(cuts)]


def test_what_was_acknowledged_survives_power_cuts(tmp_path: Path) -> None:
    for left in cut_the_power(tmp_path, cuts=60, seed=1):
        assert lost(left) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_what_was_acknowledged_survives_hundreds_of_power_cuts(tmp_path: Path, seed: int) -> None:
    for left in cut_the_power(tmp_path, cuts=100, seed=seed):
        assert lost(left) == []


def test_a_disk_that_ignores_syncs_is_caught(tmp_path: Path) -> None:
    """The drill can fail: without syncs acknowledged checkpoints are lost or damaged."""

    def harmed(left: Path) -> bool:
        try:
            return bool(lost(left))
        except HoldfastError:
            return True

    assert any(map(harmed, cut_the_power(tmp_path, 40, 1, "--lying-disk")))


def test_a_failing_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    run("failing", tmp_path, 60, 1)
    assert lost(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_hundreds_of_disk_failures_lose_nothing(tmp_path: Path, seed: int) -> None:
    run("failing", tmp_path, 300, seed)
    assert lost(tmp_path) == []
