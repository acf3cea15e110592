"""``holdfast doctor``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import CommandLine
from tests.doctor.test_salvage import fill, pages_of, ruin
from tests.doctor.test_salvaged_logs import left_by_a_killed_writer, turn_bit


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


def test_it_names_sessions_that_their_checkpoints_brought_back(cli: CommandLine) -> None:
    path = database(cli)
    ruin(path, *pages_of(path, "sessions"))
    refused = cli("verify")
    assert refused.code == 6
    assert "holdfast doctor --salvage NEW" in refused.err
    told = cli("doctor", "--salvage", "saved.db")
    assert told.code == 5
    assert "lost    3 unreadable rows of sessions\n" in told.out
    assert "remade  session first from its checkpoints: its own row was lost\n" in told.out


def test_a_log_whose_database_is_empty_is_found_kept_and_saved(cli: CommandLine) -> None:
    path = cli.project / ".agents" / "sessions.db"
    path.parent.mkdir(mode=0o700)
    states = left_by_a_killed_writer(path)
    path.write_bytes(b"")
    log = Path(f"{path}-wal").read_bytes()
    told = cli("doctor")
    assert told.code == 5
    assert "its log is not" in told.out
    assert cli("verify").code == 6
    answer = cli("doctor", "--salvage", "saved.db", "--json")
    assert answer.code == 0
    assert answer.json["salvage"]["checkpoints"] == len(states)
    assert cli("verify", "--deep", "--url", "saved.db").code == 0
    assert Path(f"{path}-wal").read_bytes() == log
    assert path.stat().st_size == 0


def test_a_damaged_log_is_found_by_every_command(cli: CommandLine) -> None:
    path = cli.project / ".agents" / "sessions.db"
    path.parent.mkdir(mode=0o700)
    left_by_a_killed_writer(path)
    turn_bit(Path(f"{path}-wal"), 2)
    told = cli("doctor")
    assert told.code == 5
    assert "its log is damaged" in told.out
    assert cli("verify").code == 5
    assert cli("sessions").code == 5
    assert cli("doctor", "--salvage", "saved.db").code in (0, 5)
    assert cli("verify", "--deep", "--url", "saved.db").code == 0


def test_a_server_is_not_salvaged(cli: CommandLine) -> None:
    answer = cli("doctor", "--salvage", "saved.db", "--url", "postgresql://localhost/x")
    assert answer.code == 2
    assert "only a SQLite file" in answer.err


def test_a_target_that_cannot_be_made_is_refused(cli: CommandLine) -> None:
    database(cli)
    (cli.project / "file").touch()
    answer = cli("doctor", "--salvage", "file/saved.db")
    assert answer.code == 6
    assert "file/saved.db cannot be made" in answer.err
