"""``holdfast doctor``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import CommandLine
from tests.doctor.test_salvage import fill, pages_of, ruin


def database(cli: CommandLine) -> Path:
    path = cli.project / ".agents" / "sessions.db"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fill(path)
    return path


def test_it_explains_a_sound_installation(cli: CommandLine) -> None:
    database(cli)
    answer = cli("doctor", "--json")
    assert answer.code == 0
    assert {one["name"] for one in answer.json["doctor"]} >= {"versions", "sqlite", "store"}
    assert "the database file is sound" in cli("doctor").out


def test_it_saves_what_still_verifies(cli: CommandLine) -> None:
    path = database(cli)
    ruin(path, pages_of(path, "chunks")[1])
    assert cli("doctor").code == 5
    answer = cli("doctor", "--salvage", "saved.db", "--json")
    assert answer.code == 5
    report = answer.json["salvage"]
    assert not report["complete"]
    assert report["lost"]
    assert report["checkpoints"] > 0
    assert cli("verify", "--url", "saved.db").code == 0
    again = cli("doctor", "--salvage", "saved.db")
    assert again.code == 2
    assert "exists already" in again.err
    told = cli("doctor", "--salvage", "more.db")
    assert "lost" in told.out
    assert "saved" in told.out


def test_a_server_is_not_salvaged(cli: CommandLine) -> None:
    answer = cli("doctor", "--salvage", "saved.db", "--url", "postgresql://localhost/x")
    assert answer.code == 2
    assert "only a SQLite file" in answer.err
