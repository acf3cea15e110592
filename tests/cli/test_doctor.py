"""``holdfast doctor``."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.stores.sqlite import SqliteStore
from tests.cli.conftest import CommandLine
from tests.doctor.test_salvage import fill, pages_of, ruin
from tests.doctor.test_salvaged_logs import left_by_a_killed_writer, overwrite, stored, turn_bit


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


def test_a_log_that_has_lost_its_database_is_named_by_every_command(cli: CommandLine) -> None:
    path = cli.project / ".agents" / "sessions.db"
    path.parent.mkdir(mode=0o700)
    states = left_by_a_killed_writer(path)
    path.unlink()
    log = Path(f"{path}-wal").read_bytes()
    told = cli("doctor")
    assert told.code == 5
    assert "its log" in told.out
    for command in ("status", "verify", "sessions", "init"):
        answer = cli(command)
        assert answer.code == 6
        assert "make an empty one there, and save what the log has" in answer.err
    assert not path.exists()
    path.touch()
    assert cli("doctor", "--salvage", "saved.db").code == 0
    assert stored(cli.project / "saved.db") == states
    assert Path(f"{path}-wal").read_bytes() == log


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


def left_with_a_log(path: Path, damage: str) -> None:
    """Leave a database of which something has to be salvaged, and a log that is not in it yet."""
    path.parent.mkdir(mode=0o700)
    left_by_a_killed_writer(path, 30, before=0 if damage == "a new file" else 10)
    log = Path(f"{path}-wal")
    if damage == "an emptied file":
        path.write_bytes(b"")
    elif damage == "a damaged log":
        turn_bit(log, 15)
    elif damage == "a damaged header":
        overwrite(log, 32)


DAMAGES = ["a new file", "an old file", "an emptied file", "a damaged log", "a damaged header"]


@pytest.mark.parametrize("used", ["at once", "after it was used"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_salvage_prints_puts_the_new_file_in_the_place_of_the_old_one(
    cli: CommandLine, damage: str, used: str
) -> None:
    path = cli.project / ".agents" / "sessions.db"
    left_with_a_log(path, damage)
    before = {one.name: one.read_bytes() for one in path.parent.glob("sessions.db*")}
    look, *moves = cli("doctor", "--salvage", "saved.db", "--json").json["salvage"]["next"]
    assert cli(*shlex.split(look)[1:]).code == 0
    saved = stored(cli.project / "saved.db")
    assert len(saved) > 10
    if used == "after it was used":
        with SessionManager.open("saved.db", project_dir=cli.project, workspace=False) as manager:
            session = manager.resume_session("other")
            saved[session.save_checkpoint("more", state={"more": 1}).id] = {"more": 1}
    for one in moves:
        subprocess.run(one, shell=True, check=True, cwd=cli.project)
    assert cli("verify", "--deep").code == 0
    assert stored(path) == saved
    aside = {
        one.name.replace(".damaged-1", ""): one.read_bytes()
        for one in path.parent.glob("sessions.db.damaged-1*")
    }
    assert (
        aside.items()
        >= {name: content for name, content in before.items() if not name.endswith("-shm")}.items()
    )
    with SqliteStore(path) as store:
        assert any("sessions.db.damaged-1-wal: moved away" in one for one in store.leftovers())
    told = cli("doctor", "--salvage", "again.db").out
    assert f"mv {path} {path}.damaged-2\n" in told


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_salvaged_file_beside_the_log_of_another_is_refused_and_left_alone(
    cli: CommandLine, damage: str
) -> None:
    path = cli.project / ".agents" / "sessions.db"
    left_with_a_log(path, damage)
    assert cli("doctor", "--salvage", "saved.db").code in (0, 5)
    saved = stored(cli.project / "saved.db")
    shutil.move(cli.project / "saved.db", path)
    before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    for command in ("status", "sessions", "verify", "doctor"):
        answer = cli(command)
        assert answer.code in (5, 6)
        assert ".db-wal" in answer.err + answer.out
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").rename(cli.project / f"aside{ending}")
    assert cli("verify", "--deep").code == 0
    assert stored(path) == saved


def test_it_makes_no_file_with_the_name_of_an_option(cli: CommandLine) -> None:
    database(cli)
    answer = cli("doctor", "--salvage", "--json")
    assert answer.code == 2
    assert "--json" in answer.err
    assert not (cli.project / "--json").exists()


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


def in_the_way(project: Path) -> None:
    (project / ".agents").write_text("")


def broken(project: Path) -> None:
    (project / ".agents").mkdir(mode=0o700)
    (project / ".agents" / "holdfast.toml").write_text("workspace = [")


@pytest.mark.parametrize(
    ("spoil", "blamed"), [(in_the_way, ".agents cannot be used"), (broken, "holdfast.toml cannot")]
)
def test_settings_that_cannot_be_read_are_a_finding_and_the_rest_is_looked_at(
    cli: CommandLine, spoil: Callable[[Path], None], blamed: str
) -> None:
    spoil(cli.project)
    answer = cli("doctor", "--json")
    assert answer.code == 5
    *others, settings = answer.json["doctor"]
    assert {one["name"] for one in others} == {"versions", "sqlite", "git", "extras"}
    assert (settings["name"], settings["level"]) == ("settings", "bad")
    assert blamed in settings["text"]
    assert blamed in cli("status").err


def test_it_looks_at_nothing_where_the_store_is_named_emptily(cli: CommandLine) -> None:
    refused = cli("doctor", "--url", "")
    assert (refused.code, "is empty" in refused.err) == (2, True)
