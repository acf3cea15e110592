"""A worker that is killed at random moments loses nothing that was acknowledged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import SessionManager
from holdfast.cli.group import holdfast
from holdfast.drill import DrillReport, run_drill
from holdfast.stores.sqlite import SqliteStore


def check(report: DrillReport, kills: int) -> None:
    assert report.problems == []
    assert (report.kills, report.recovered) == (kills, kills)
    assert (report.lost, report.repeated_effects, report.damaged) == (0, 0, 0)
    assert report.acknowledged > 0


def test_some_kills_on_an_embedded_store() -> None:
    check(run_drill(kills=8, seed=1), 8)


def test_a_worker_that_fails_and_a_structure_that_is_damaged_are_no_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SqliteStore, "check_structure", lambda _: ["an index is damaged"])
    report = run_drill(kills=2, seed=1)
    assert (report.recovered, report.damaged) == (0, 1)
    assert report.problems == [f"kill {number}: an index is damaged" for number in (1, 2)]
    monkeypatch.undo()
    monkeypatch.setattr("holdfast.drill.sys.executable", shutil.which("true"))
    report = run_drill(kills=2, seed=1)
    assert report.recovered == 0
    assert report.problems == [f"kill {number}: the worker ended with 0" for number in (1, 2)]


def test_some_kills_on_postgresql_leave_nothing_behind(postgres_url: str) -> None:
    check(run_drill(postgres_url, kills=6, seed=2), 6)
    with SessionManager.open(postgres_url, workspace=False) as manager:
        assert manager.list_sessions() == []


@pytest.mark.slow
@pytest.mark.row("S1-96", "B10")
def test_two_hundred_kills_on_an_embedded_store() -> None:
    check(run_drill(kills=200, seed=3), 200)


@pytest.mark.slow
@pytest.mark.row("S1-96", "B10")
def test_two_hundred_kills_on_postgresql(postgres_url: str) -> None:
    check(run_drill(postgres_url, kills=200, seed=4), 200)


@pytest.mark.row("B10")
def test_the_command_prints_the_figures_and_fails_below_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answered = CliRunner().invoke(holdfast, ["drill", "--kills", "2", "--seed", "5", "--json"])
    assert answered.exit_code == 0, answered.output
    figures = json.loads(answered.stdout)["drill"]
    assert figures["recovery_rate"] == 1.0
    assert figures["seconds_to_context"] > 0
    assert figures["mean_checkpoint_bytes"] > 0

    def half(*_: object, **__: object) -> DrillReport:
        return DrillReport(kills=2, recovered=1, context_seconds=[0.1], problems=["kill 2: lost"])

    monkeypatch.setattr("holdfast.cli.commands.drill.run_drill", half)
    failed = CliRunner().invoke(holdfast, ["drill"])
    assert failed.exit_code == 1
    assert "50.0%" in failed.output
    assert CliRunner().invoke(holdfast, ["drill", "--target", "50"]).exit_code == 0
    for none in ("nan", "101", "-1", "most"):
        assert CliRunner().invoke(holdfast, ["drill", "--target", none]).exit_code == 2

    def nothing(*_: object, **__: object) -> DrillReport:
        return DrillReport(kills=1, problems=["kill 1: lost"])

    monkeypatch.setattr("holdfast.cli.commands.drill.run_drill", nothing)
    failed = CliRunner().invoke(holdfast, ["drill"])
    assert failed.exit_code == 1
    assert "0.0%" in failed.output
    assert "kill 1: lost" in failed.output
    answered = CliRunner().invoke(holdfast, ["drill", "--json"])
    assert json.loads(answered.stdout)["drill"]["seconds_to_context"] is None
