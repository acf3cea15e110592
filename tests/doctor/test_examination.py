"""What the doctor says of an installation and a project; it changes nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from holdfast.config import load_config
from holdfast.crypto.files import new_key_file
from holdfast.doctor import Finding, examine
from holdfast.errors import SnapshotNotFound
from holdfast.state.plain import COMPILED
from holdfast.stores.sqlite import SqliteStore
from tests.doctor.test_salvage import fill, pages_of, ruin
from tests.stores.postgres_drafts import connect, schema_of


def look(project: Path) -> dict[str, Finding]:
    opening = partial(SessionManager.open, project_dir=project, create=False)
    return {one.name: one for one in examine(load_config(project), opening)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".agents").mkdir(mode=0o700)
    fill(tmp_path / ".agents" / "sessions.db")
    return tmp_path


def test_a_sound_project_has_no_bad_finding(project: Path) -> None:
    found = look(project)
    assert {one.level for one in found.values()} == {"ok"}
    assert "3 sessions" in found["store"].text
    assert found["structure"].text == "the database file is sound"
    assert f"{'with' if COMPILED else 'without'} its compiled part" in found["versions"].text


def test_files_of_checkpoints_that_are_gone_are_counted(tmp_path: Path) -> None:
    with SessionManager.open(project_dir=tmp_path) as manager:
        session = manager.create_session("x")
        for number in range(2):
            (tmp_path / "a").write_text(f"{number}")
            session.save_checkpoint(f"n{number}", state={})
        assert manager.count_absent() == 0
        assert "snapshots" not in look(tmp_path)
        shutil.rmtree(manager.workspace.store_dir)
        found = look(tmp_path)["snapshots"]
        assert (found.level, found.text.startswith("2 of the snapshots")) == ("bad", True)
        # A store that is made anew has none of them either.
        (tmp_path / "a").write_text("later")
        session.save_checkpoint("later", state={})
        assert look(tmp_path)["snapshots"].text.startswith("2 of the snapshots")
        with pytest.raises(SnapshotNotFound, match="or the private store was removed"):
            session.rollback("n0")


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("DROP TABLE workspace_packs", "table workspace_packs"),
        ("DROP TABLE effects", "table effects"),
        ("DROP TABLE chunks", "table chunks"),
        ("DROP TABLE sessions", "table sessions"),
        ("DROP TABLE session_checkpoints", "table session_checkpoints"),
        ("DROP INDEX checkpoints_by_class", "index checkpoints_by_class"),
        ("DROP TRIGGER sessions_are_sealed", "trigger sessions_are_sealed"),
    ],
)
def test_what_the_schema_of_a_file_lacks_is_named(project: Path, change: str, missing: str) -> None:
    assert "schema" not in look(project)
    connection = apsw.Connection(str(project / ".agents" / "sessions.db"))
    connection.pragma("foreign_keys", False)
    connection.execute(change)
    connection.close()
    found = look(project)["schema"]
    assert (found.level, missing in found.text) == ("bad", True)
    with SessionManager.open(project_dir=project, workspace=False) as manager:
        report = manager.verify(deep=True)
    assert f"the {missing} is missing" in [one.reason for one in report.damaged]
    assert report.quarantined == ()


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("DROP TABLE {}.workspace_packs CASCADE", "table workspace_packs"),
        ("DROP TABLE {}.effects", "table effects"),
        ("DROP TABLE {}.chunks CASCADE", "table chunks"),
        ("DROP TABLE {}.sessions CASCADE", "table sessions"),
        ("DROP TABLE {}.session_checkpoints CASCADE", "table session_checkpoints"),
        ("ALTER TABLE {}.sessions DROP COLUMN pause_reason", "column sessions.pause_reason"),
        ("ALTER TABLE {}.effects RENAME result TO other", "column effects.result"),
        ("DROP INDEX {}.checkpoints_by_class", "index checkpoints_by_class"),
        ("DROP FUNCTION {}.sweep", "function sweep"),
        ("ALTER TABLE {}.sessions DISABLE TRIGGER ALL", "trigger sessions_are_sealed"),
        ("ALTER TABLE {}.chunks DISABLE ROW LEVEL SECURITY", "row-level security of chunks"),
        ("DROP POLICY of_tenant ON {}.chunks", "row-level security of chunks"),
    ],
)
def test_what_the_schema_at_a_server_lacks_is_named(
    postgres_url: str, tmp_path: Path, change: str, missing: str
) -> None:
    def look() -> dict[str, Finding]:
        opening = partial(SessionManager.open, postgres_url, workspace=False)
        return {one.name: one for one in examine(load_config(tmp_path), opening)}

    (tmp_path / "file").write_text("as it was")
    with SessionManager.open(postgres_url, project_dir=tmp_path) as manager:
        manager.create_session("worker").save_checkpoint("one", state={})
    # What only the server has is looked at too.
    shutil.rmtree(tmp_path / ".agents")
    assert "schema" not in look()
    with connect(postgres_url) as connection:
        connection.execute(change.format(schema_of(postgres_url)).encode())
    found = look()["schema"]
    assert (found.level, missing in found.text) == ("bad", True)
    assert found.advice is not None
    assert "holdfast schema" in found.advice
    with SessionManager.open(postgres_url, project_dir=tmp_path) as manager:
        report = manager.verify(deep=True)
    reasons = [one.reason for one in report.damaged]
    assert reasons.count(f"the {missing} is missing") == 1
    assert report.ok is False


def test_a_directory_without_a_database_is_told_what_to_do(tmp_path: Path) -> None:
    found = look(tmp_path)["store"]
    assert found.level == "warning"
    assert "holdfast init" in found.text


def test_damage_is_found_and_salvage_advised(project: Path) -> None:
    path = project / ".agents" / "sessions.db"
    ruin(path, pages_of(path, "chunks")[0])
    found = look(project)["structure"]
    assert found.level == "bad"
    assert found.advice is not None
    assert "--salvage" in found.advice


def test_a_file_that_is_no_database_is_found(project: Path) -> None:
    (project / ".agents" / "sessions.db").write_bytes(b"not a database, though long enough" * 99)
    found = look(project)["store"]
    assert found.level == "bad"


def test_what_others_may_read_is_named(project: Path) -> None:
    path = project / ".agents" / "sessions.db"
    path.chmod(0o644)
    found = look(project)["permissions"]
    assert found.level == "warning"
    assert "sessions.db" in found.text


@pytest.mark.parametrize(("mode", "level"), [(0o600, "ok"), (0o644, "warning"), (0o602, "warning")])
def test_keys_that_others_may_get_at_are_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, mode: int, level: str
) -> None:
    file = project / "holdfast.keys"
    new_key_file(file)
    file.chmod(mode)
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(file))
    found = look(project)["permissions"]
    assert (found.level, str(file) in found.text) == (level, level == "warning")
    assert found.advice == (None if level == "ok" else f"chmod go= {file}")


def test_a_sealed_store_is_called_so_and_keys_inside_of_the_project_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, inside, outside = (tmp_path / name for name in ("p", "p/mine.keys", "mine.keys"))
    project.mkdir()
    new_key_file(outside)
    inside.symlink_to(outside)
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(inside))
    SessionManager.open(project_dir=project).close()
    found = look(project)
    assert found["store"].text.endswith("0 sessions, sealed")
    assert "keys" not in found
    inside.unlink()
    outside.rename(inside)
    found = look(project)
    assert found["keys"].level == "warning"
    assert found["keys"].text.startswith(f"{inside} lies in the project")


def test_what_is_in_quarantine_is_counted(project: Path) -> None:
    path = project / ".agents" / "sessions.db"
    assert "quarantine" not in look(project)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE session_checkpoints SET label = 'x' WHERE name = 'step-1'")
    connection.close()
    with SessionManager.open(project_dir=project, workspace=False) as manager:
        assert len(manager.verify(deep=True).quarantined) == 3
    found = look(project)["quarantine"]
    assert found.level == "warning"
    assert found.text.startswith("3 checkpoints failed verification")


def test_a_key_file_that_is_not_there_is_told_by_the_store(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("", "none.keys", "~nobody-of-that-name/keys"):
        monkeypatch.setenv("HOLDFAST_KEY_FILE", path)
        found = look(project)
        assert (found["permissions"].level, found["store"].level) == ("ok", "warning")


def test_a_dead_worker_is_named(project: Path) -> None:
    program = (
        "import sys, time; from holdfast import SessionManager;"
        f"m = SessionManager.open(project_dir={str(project)!r}, workspace=False);"
        "m.resume_session('second'); print('held', flush=True); time.sleep(60)"
    )
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        assert f"process {worker.pid}" in look(project)["leases"].text
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.communicate()
    found = look(project)["leases"]
    assert (found.level, found.advice) == ("warning", "holdfast recover")
    assert "second" in found.text


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    config = load_config(tmp_path, url="postgresql://user:secret@localhost:1/db")

    def refuse() -> SessionManager:
        return SessionManager.open(config.url, project_dir=tmp_path, create=False)

    findings = examine(config, refuse)
    text = " ".join(f"{one.text} {one.advice}" for one in findings)
    assert "postgresql://user@localhost:1/db" in text
    assert "secret" not in text
    (store,) = (one for one in findings if one.name == "store")
    assert store.level == "warning"
    assert store.advice is not None
    assert "server runs" in store.advice


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("3.7.0", "warning"),
        ("3.44.5", "warning"),
        ("3.44.6", "ok"),
        ("3.45.1", "warning"),
        ("3.50.6", "warning"),
        ("3.50.7", "ok"),
        ("3.51.2", "warning"),
        ("3.51.3", "ok"),
        ("3.53.0", "ok"),
    ],
)
def test_a_sqlite_that_can_damage_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, level: str
) -> None:
    monkeypatch.setattr(apsw, "sqlitelibversion", lambda: version)
    found = look(tmp_path)["sqlite"]
    assert found.level == level
    assert f"SQLite {version}" in found.text
    assert (found.advice is None) == (level == "ok")


def test_a_lease_that_has_expired_is_named_although_its_holder_is_elsewhere(project: Path) -> None:
    path = project / ".agents" / "sessions.db"
    elsewhere = "process:another-machine:place:1:1"
    with SqliteStore(path, ensure_schema=False) as store:
        held = store.acquire_lease("second", elsewhere, ttl=timedelta(hours=1))
        found = look(project)["leases"]
        assert (found.level, found.text) == ("ok", "held: second by process 1 on another-machine")
        store.release_lease("second", held.token)
        store.acquire_lease("second", elsewhere, ttl=timedelta(milliseconds=1))
        time.sleep(0.05)
    found = look(project)["leases"]
    assert (found.level, found.advice) == ("warning", "holdfast recover")
    assert found.text.startswith("second: process 1 on another-machine held this session since")
    assert found.text.endswith("its lease has expired")
