"""A SQLite database of any age opens, or is refused with its bytes untouched."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from holdfast.errors import InvalidUrl, MigrationChanged, SchemaMissing, SchemaTooNew, StoreError
from holdfast.model import CheckpointQuery
from holdfast.sql import Migration, migrations
from holdfast.state.cache import NO_CACHE
from holdfast.state.refs import digest_of, expand_each, unpack_refs
from holdfast.stores import sqlite_schema
from holdfast.stores.migrate import pending, require_current
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.drafts import checkpoint, stored
from tests.migration import releases

RELEASES = sorted(releases.HERE.glob("sqlite_v*.sql"))
SECOND = Migration(
    version=len(migrations("sqlite")) + 1,
    name="002_next.sql",
    up="CREATE TABLE next (id INTEGER PRIMARY KEY) STRICT; INSERT INTO next VALUES (1);",
    down="DROP TABLE next;",
    checksum="sha256:two",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def filled(path: Path) -> Path:
    with SqliteStore(path) as store:
        releases.fill(store)
    return path


def ship(monkeypatch: pytest.MonkeyPatch, *found: Migration) -> None:
    """Let the package have these migrations."""
    monkeypatch.setattr(sqlite_schema, "migrations", lambda dialect: found)


def backup_of(path: Path, version: int) -> Path:
    return Path(f"{path}.backup-v{version}")


def check_contents(store: SqliteStore) -> None:
    owner = store.find_session(releases.SESSION)
    assert owner is not None
    assert (owner.task_description, owner.metadata) == (
        "Keep this readable",
        {"team": "core", "n": 1},
    )
    found = store.find_agent(releases.AGENT)
    assert found is not None
    assert found.name == "keeper"
    assert stored(store, releases.SESSION) == ["second", "first"]
    second, first = store.list_checkpoints(CheckpointQuery(session_id=releases.SESSION))
    assert (first.external_id, first.metadata) == ("1ef-1", {"step": 1})
    assert (second.parent_id, second.git_branch) == (first.id, "main")
    assert second.git_uncommitted is True
    payload = store.read_payload(releases.FIRST)
    assert payload is not None
    assert payload.manifest == releases.MANIFEST
    payload = store.read_payload(releases.SECOND)
    assert payload is not None
    (leaves,) = expand_each([unpack_refs(payload.refs)], store.read_chunks, NO_CACHE)
    assert [ref.digest for ref in leaves] == [digest_of(leaf) for leaf in releases.LEAVES]
    chunks = store.read_chunks([ref.digest for ref in leaves])
    assert [chunks[ref.digest] for ref in leaves] == releases.LEAVES
    (line,) = store.list_logs(releases.SESSION)
    assert (line.level, line.message, line.data) == ("warning", "careful", {"k": [1, 2]})
    (pending_write,) = store.list_writes(releases.SESSION, "", ["1ef-1"])
    assert pending_write.task_id == "task"


@pytest.mark.row("S1-40", "T24")
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.stem)
def test_a_database_of_every_release_opens_with_its_data(release: Path, path: Path) -> None:
    releases.build(release.read_text(encoding="utf-8"), path)
    with SqliteStore(path) as store:
        check_contents(store)
        assert store.put(checkpoint(releases.SESSION, "third")).created
        assert stored(store, releases.SESSION) == ["third", "second", "first"]
        assert store.gc().chunks == 0
        assert store._file.read(lambda connection: connection.pragma("journal_mode")) == "wal"


def test_every_schema_has_a_release() -> None:
    assert [int(release.stem[-3:]) for release in RELEASES] == [
        migration.version for migration in migrations("sqlite")
    ]


@pytest.mark.row("S0-17")
def test_migrations_are_recorded_with_version_and_checksum(filled: Path) -> None:
    found = apsw.Connection(str(filled)).execute("SELECT * FROM schema_migrations").fetchall()
    assert [(version, checksum) for version, checksum, _ in found] == [
        (migration.version, migration.checksum) for migration in migrations("sqlite")
    ]


@pytest.mark.row("S1-40")
def test_a_migration_keeps_the_data_and_takes_a_copy_first(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, *migrations("sqlite"), SECOND)
    with SqliteStore(filled) as store:
        check_contents(store)
    assert apsw.Connection(str(filled)).execute("SELECT id FROM next").fetchall() == [(1,)]
    backup = backup_of(filled, SECOND.version - 1)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert sorted(found.name for found in filled.parent.glob("*.backup*")) == [backup.name]
    monkeypatch.undo()
    with SqliteStore(backup) as store:
        check_contents(store)


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_no_copy_is_made_beside_the_log_of_another(
    filled: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """As somebody who looks at an earlier copy leaves it."""
    backup = backup_of(filled, SECOND.version - 1)
    beside = Path(f"{backup}{ending}")
    beside.write_bytes(b"theirs")
    ship(monkeypatch, *migrations("sqlite"), SECOND)
    with pytest.raises(InvalidUrl, match=f"{beside.name} exists already.* Move it away first"):
        SqliteStore(filled)
    assert (beside.read_bytes(), backup.exists()) == (b"theirs", False)
    beside.unlink()
    with SqliteStore(filled) as store:
        check_contents(store)
    assert backup.exists()


def test_what_a_killed_migration_has_left_of_its_copy_goes(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = backup_of(filled, SECOND.version - 1)
    for ending in (".part", ".part-journal"):
        Path(f"{backup}{ending}").write_bytes(b"half")
    ship(monkeypatch, *migrations("sqlite"), SECOND)
    with SqliteStore(filled) as store:
        check_contents(store)
    assert sorted(found.name for found in filled.parent.glob("*.backup*")) == [backup.name]


def test_the_copy_is_on_disk_before_the_migration_is_committed(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    sync = os.fsync

    def watch(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.append((found.st_dev, found.st_ino))
        sync(descriptor)

    ship(monkeypatch, *migrations("sqlite"), SECOND)
    monkeypatch.setattr(os, "fsync", watch)
    SqliteStore(filled).close()
    backup = backup_of(filled, SECOND.version - 1)
    wanted = [(found.st_dev, found.st_ino) for found in (backup.stat(), backup.parent.stat())]
    assert synced[-2:] == wanted


def test_a_new_database_needs_no_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, *migrations("sqlite"), SECOND)
    SqliteStore(path).close()
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.row("S1-40")
def test_an_interrupted_migration_rolls_back(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = replace(SECOND, up="CREATE TABLE half (id); DROP TABLE session_logs; SELECT nonsense;")
    ship(monkeypatch, *migrations("sqlite"), half)
    with pytest.raises(StoreError):
        SqliteStore(filled)
    monkeypatch.undo()
    with SqliteStore(filled) as store:
        check_contents(store)
    tables = apsw.Connection(str(filled)).execute("SELECT name FROM sqlite_schema").fetchall()
    assert ("half",) not in tables


def test_a_migration_that_breaks_references_rolls_back(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking = replace(SECOND, up="DELETE FROM agents;")
    ship(monkeypatch, *migrations("sqlite"), breaking)
    with pytest.raises(StoreError, match="refer to nothing"):
        SqliteStore(filled)
    monkeypatch.undo()
    with SqliteStore(filled) as store:
        check_contents(store)


@pytest.mark.row("S1-40")
@pytest.mark.parametrize("ensure", [True, False])
def test_a_newer_database_is_refused_and_left_alone(filled: Path, ensure: bool) -> None:
    connection = apsw.Connection(str(filled))
    connection.execute("INSERT INTO schema_migrations VALUES (999, 'sha256:x', 'later')")
    connection.close()
    before = filled.read_bytes()
    with pytest.raises(SchemaTooNew, match="999") as caught:
        SqliteStore(filled, ensure_schema=ensure)
    assert "pip install -U holdfast" in str(caught.value)
    assert filled.read_bytes() == before


@pytest.mark.row("S0-17")
def test_an_edited_migration_is_reported(filled: Path) -> None:
    connection = apsw.Connection(str(filled))
    connection.execute("UPDATE schema_migrations SET checksum = 'sha256:other'")
    connection.close()
    before = filled.read_bytes()
    with pytest.raises(MigrationChanged, match="001_initial_schema"):
        SqliteStore(filled)
    assert filled.read_bytes() == before


def test_an_older_database_is_not_migrated_unasked(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, *migrations("sqlite"), SECOND)
    with pytest.raises(SchemaMissing, match="002_next"):
        SqliteStore(filled, ensure_schema=False)


def test_what_is_pending_follows_from_what_was_applied() -> None:
    first = Migration(1, "001_a.sql", "", "", "sha256:1")
    second = Migration(2, "002_b.sql", "", "", "sha256:2")
    both = (first, second)
    assert pending(both, {}, "x") == [first, second]
    assert pending(both, {1: "sha256:1"}, "x") == [second]
    assert pending(both, {1: "sha256:1", 2: "sha256:2"}, "x") == []
    require_current(both, {1: "sha256:1", 2: "sha256:2"}, "x")
    with pytest.raises(SchemaMissing):
        require_current(both, {1: "sha256:1"}, "x")
    with pytest.raises(SchemaTooNew):
        pending(both, {1: "sha256:1", 3: "sha256:3"}, "x")
    with pytest.raises(MigrationChanged):
        pending(both, {1: "sha256:other"}, "x")
