"""A database may come from strangers: nothing in it runs, and what it acknowledges is there.

Every file here is one of ours until somebody hostile has been at it. A tour does with it what people and
agents do; each step works or ends with a typed error, and leaves no mark.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import apsw
import pytest

from holdfast import SessionManager
from holdfast.doctor import salvage
from holdfast.errors import HoldfastError, NotADatabase, SchemaTooNew
from holdfast.state.refs import digest_of
from holdfast.stores.sqlite_damaged import TABLES

STATE: Final = {"page": "words " * 2000, "pair": (1, b"\0"), "step": 7}
Bait: TypeAlias = Callable[[apsw.Connection], object]
BAITS: Final[dict[str, Bait]] = {}


def bait(function: Bait) -> Bait:
    BAITS[function.__name__] = function
    return function


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """A file that a function leaves which every connection of this process knows."""
    left = tmp_path / "executed"

    def leave_a_mark(*_: object) -> int:
        left.touch()
        return 1

    def teach(connection: apsw.Connection) -> None:
        connection.create_scalar_function("leave_a_mark", leave_a_mark, deterministic=True)

    apsw.connection_hooks.append(teach)
    yield left
    apsw.connection_hooks.remove(teach)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of ours with some of everything."""
    found = tmp_path / "project" / ".agents" / "sessions.db"
    found.parents[1].mkdir()
    with SessionManager.open(project_dir=found.parents[1], workspace=False) as manager:
        session = manager.create_session("implementer", session_id="known", metadata={"a": 1})
        session.save_checkpoint("first", state=STATE)
        session.step("pay", lambda: {"paid": 1})
        session.log("info", "line", data={"k": 1})
        session.close()
    return found


def spoil(path: Path, lay: Bait) -> None:
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    lay(connection)
    connection.close()


def edit_schema(connection: apsw.Connection, name: str, old: str, new: str) -> None:
    connection.pragma("writable_schema", True)
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = ?", (old, new, name)
    )
    assert connection.changes() == 1
    connection.pragma("writable_schema", "RESET")


# What they do to it -------------------------------------------------------------------------------


@bait
def triggers_that_call(connection: apsw.Connection) -> None:
    for table in TABLES:
        for event in ("INSERT", "UPDATE", "DELETE"):
            connection.execute(
                f"CREATE TRIGGER evil_{table}_{event} AFTER {event} ON {table} "
                "BEGIN SELECT leave_a_mark(); END"
            )


@bait
def a_trigger_that_takes_back_what_was_stored(connection: apsw.Connection) -> None:
    connection.execute(
        "CREATE TRIGGER evil AFTER INSERT ON session_checkpoints "
        "BEGIN DELETE FROM session_checkpoints WHERE id = NEW.id; END"
    )


@bait
def a_trigger_that_changes_what_was_stored(connection: apsw.Connection) -> None:
    connection.execute(
        "CREATE TRIGGER evil AFTER INSERT ON chunks BEGIN UPDATE chunks SET data = x'00'; END"
    )


@bait
def a_trigger_without_a_text(connection: apsw.Connection) -> None:
    a_trigger_that_takes_back_what_was_stored(connection)
    connection.pragma("writable_schema", True)
    connection.execute("UPDATE sqlite_schema SET sql = NULL WHERE name = 'evil'")


@bait
def a_view_that_calls(connection: apsw.Connection) -> None:
    connection.execute("ALTER TABLE sessions RENAME TO hidden")
    connection.execute("CREATE VIEW sessions AS SELECT * FROM hidden WHERE leave_a_mark()")


@bait
def a_view_without_end(connection: apsw.Connection) -> None:
    connection.execute("ALTER TABLE schema_migrations RENAME TO hidden")
    connection.execute(
        "CREATE VIEW schema_migrations AS WITH RECURSIVE n(version) AS "
        "(SELECT 1 UNION ALL SELECT version + 1 FROM n) SELECT version, '' AS checksum FROM n"
    )


@bait
def a_view_that_is_written_to(connection: apsw.Connection) -> None:
    connection.execute("ALTER TABLE session_logs RENAME TO hidden")
    connection.execute("CREATE VIEW session_logs AS SELECT * FROM hidden")
    connection.execute(
        "CREATE TRIGGER evil INSTEAD OF INSERT ON session_logs BEGIN SELECT leave_a_mark(); END"
    )


@bait
def a_check_that_calls(connection: apsw.Connection) -> None:
    edit_schema(connection, "sessions", "task_description", "evil TEXT CHECK (leave_a_mark()), task_description")  # fmt: skip


@bait
def a_default_that_calls(connection: apsw.Connection) -> None:
    edit_schema(
        connection, "agents", "created_at", "evil TEXT DEFAULT (leave_a_mark()), created_at"
    )


@bait
def a_generated_column_that_calls(connection: apsw.Connection) -> None:
    edit_schema(connection, "session_checkpoints", "(state_snapshot)", "(leave_a_mark())")


@bait
def a_generated_column_without_measure(connection: apsw.Connection) -> None:
    edit_schema(connection, "session_checkpoints", "(state_snapshot)", "(hex(zeroblob(1000000)))")


@bait
def an_index_that_calls(connection: apsw.Connection) -> None:
    connection.execute("CREATE INDEX evil ON sessions (leave_a_mark(id))")
    connection.execute("CREATE INDEX worse ON session_checkpoints (id) WHERE leave_a_mark(id)")


@bait
def virtual_tables_with_our_names(connection: apsw.Connection) -> None:
    for table in ("chunks", "session_logs", "effects"):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        connection.execute(f"ALTER TABLE {table} RENAME TO hidden_{table}")
        connection.execute(f"CREATE VIRTUAL TABLE {table} USING fts5({', '.join(columns)})")


@bait
def a_table_of_other_columns(connection: apsw.Connection) -> None:
    connection.execute("ALTER TABLE session_logs RENAME TO hidden")
    connection.execute("CREATE TABLE session_logs (x)")


@bait
def a_schema_that_is_no_sql(connection: apsw.Connection) -> None:
    edit_schema(connection, "chunks", "CREATE TABLE", "CREATE TABLE TABLE '); DROP TABLE sessions")


@bait
def a_root_page_that_another_table_has(connection: apsw.Connection) -> None:
    connection.pragma("writable_schema", True)
    connection.execute(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema "
        "WHERE name = 'sessions') WHERE name = 'chunks'"
    )


@bait
def a_missing_table(connection: apsw.Connection) -> None:
    connection.pragma("foreign_keys", False)
    connection.execute("DROP TABLE effects")


@bait
def a_list_of_versions_that_is_none(connection: apsw.Connection) -> None:
    connection.execute("UPDATE schema_migrations SET checksum = '; DROP TABLE sessions'")


@bait
def times_that_are_none(connection: apsw.Connection) -> None:
    connection.execute("UPDATE sessions SET created_at = 'yesterday'")
    connection.execute("UPDATE session_checkpoints SET created_at = ''")


@bait
def documents_that_are_none(connection: apsw.Connection) -> None:
    connection.pragma("ignore_check_constraints", True)
    connection.execute('UPDATE sessions SET metadata = \'{"$t":"os.system","v":"x"}\'')
    connection.execute("UPDATE session_logs SET data = '[[[['")
    connection.execute("UPDATE session_checkpoints SET metadata = CAST(x'00ff' AS TEXT)")


@bait
def a_state_of_somebody_else(connection: apsw.Connection) -> None:
    connection.pragma("ignore_check_constraints", True)
    connection.execute("UPDATE session_checkpoints SET state_snapshot = '{\"v\":1}', refs = x'00'")
    connection.execute("UPDATE effects SET result = 'nothing', refs = x'01'")


@bait
def chunks_that_say_they_are_huge(connection: apsw.Connection) -> None:
    # A frame that announces 2 ** 60 bytes.
    frame = bytes.fromhex("28b52ffd e0") + (1 << 60).to_bytes(8, "little") + bytes(3)
    connection.execute("UPDATE chunks SET codec = 1, data = ?", (frame,))


@bait
def chunks_in_each_others_place(connection: apsw.Connection) -> None:
    for refused in (b"one thing " * 9, b"another one " * 7):
        connection.execute(
            "INSERT INTO chunks (tenant, digest, codec, data) VALUES ('default', ?, 0, ?)",
            (digest_of(refused[::-1]), refused),
        )
    connection.execute(
        "UPDATE chunks SET (codec, data) = (SELECT codec, data FROM chunks AS other "
        "WHERE other.digest <> chunks.digest LIMIT 1)"
    )


@bait
def an_unknown_codec(connection: apsw.Connection) -> None:
    connection.pragma("ignore_check_constraints", True)
    connection.execute("UPDATE chunks SET codec = 77")


@bait
def ids_of_another_kind(connection: apsw.Connection) -> None:
    connection.pragma("foreign_keys", False)
    connection.pragma("ignore_check_constraints", True)
    for table in ("sessions", "agents"):
        edit_schema(connection, table, "STRICT", "")
    connection.execute("UPDATE sessions SET lease_owner = x'00', created_at = 7, metadata = 7")
    connection.execute("UPDATE agents SET name = x'ff', depth_level = 'deep', updated_at = x'00'")


@bait
def ids_that_lead_elsewhere(connection: apsw.Connection) -> None:
    connection.pragma("ignore_check_constraints", True)
    connection.execute("UPDATE session_checkpoints SET id = 'x/../../../../; touch ' || id")


# The tour -----------------------------------------------------------------------------------------


def steps(manager: SessionManager, folder: Path) -> Iterator[Callable[[], Any]]:
    yield manager.list_sessions
    yield manager.list_agents
    yield lambda: manager.get_session("known").latest_checkpoint().state
    yield lambda: manager.get_session("known").logs()
    yield lambda: manager.get_session("known").brief()
    yield lambda: manager.resume_session("known").step("pay", lambda: {"paid": 2})
    yield manager.recover
    yield manager.verify
    yield manager.usage
    yield manager.gc
    yield lambda: manager.export_session("known", folder / "known.tar")
    yield lambda: manager.delete_session("known")


def tour(path: Path, folder: Path) -> list[type[HoldfastError]]:
    """Return the errors; what was acknowledged must be there."""
    errors: list[type[HoldfastError]] = []
    saved = None
    try:
        with SessionManager.open(path, project_dir=path.parents[1], workspace=False) as manager:
            try:
                session = manager.create_session("implementer")
                saved = session.save_checkpoint("mine", state=STATE)
                session.log("info", "mine")
            except HoldfastError as error:
                errors.append(type(error))
            if saved is not None:
                with SessionManager.open(
                    path, project_dir=path.parents[1], workspace=False
                ) as other:
                    assert other.get_session(saved.session_id).latest_checkpoint().state == STATE
            for step in steps(manager, folder):
                try:
                    step()
                except HoldfastError as error:
                    errors.append(type(error))
    except HoldfastError as error:
        errors.append(type(error))
    try:
        salvage(path, folder / "salvaged.db")
    except HoldfastError as error:
        errors.append(type(error))
    return errors


@pytest.mark.parametrize("name", BAITS)
def test_nothing_in_a_hostile_database_runs(
    name: str, path: Path, mark: Path, tmp_path: Path
) -> None:
    spoil(path, BAITS[name])
    mark.unlink(missing_ok=True)
    tour(path, tmp_path)
    assert not mark.exists()


def test_a_sound_database_survives_the_same_tour(path: Path, mark: Path, tmp_path: Path) -> None:
    assert tour(path, tmp_path) == []


def test_the_function_of_these_tests_would_be_called(path: Path, mark: Path) -> None:
    spoil(path, triggers_that_call)
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 1)
    connection.execute("UPDATE sessions SET task_description = 'x'")
    connection.close()
    assert mark.exists()


@pytest.mark.parametrize(
    "lay", [triggers_that_call, a_trigger_that_takes_back_what_was_stored, a_trigger_without_a_text]
)
def test_a_trigger_that_is_not_ours_is_named_and_nothing_is_written(lay: Bait, path: Path) -> None:
    spoil(path, lay)
    before = path.read_bytes()
    with pytest.raises(NotADatabase, match=r"has the trigger|malformed"):
        SessionManager.open(path, workspace=False)
    assert path.read_bytes() == before


def test_a_view_of_somebody_who_asks_questions_does_no_harm(path: Path) -> None:
    spoil(path, lambda connection: connection.execute("CREATE VIEW mine AS SELECT * FROM sessions"))
    with SessionManager.open(path, workspace=False) as manager:
        assert manager.get_session("known").latest_checkpoint().state == STATE


@pytest.mark.parametrize("number", [0, 1, 252006674, -1])
def test_a_file_of_another_application_is_left_alone(number: int, path: Path) -> None:
    spoil(path, lambda connection: connection.pragma("application_id", number))
    before = path.read_bytes()
    with pytest.raises(NotADatabase):
        SessionManager.open(path, workspace=False)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_whatever_else_stands_there(path: Path, mark: Path) -> None:
    spoil(path, triggers_that_call)
    spoil(path, lambda connection: connection.execute(
        "INSERT INTO schema_migrations (version, checksum, applied_at) VALUES (999, 'x', 'x')"
    ))  # fmt: skip
    mark.unlink(missing_ok=True)
    with pytest.raises(SchemaTooNew):
        SessionManager.open(path, workspace=False)
    assert not mark.exists()


@pytest.mark.parametrize("page", range(1, 12))
def test_pages_of_rubbish_end_in_a_typed_error_or_the_truth(
    page: int, path: Path, tmp_path: Path
) -> None:
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    data[page * size : (page + 1) * size] = bytes(range(256)) * (size // 256)
    path.write_bytes(data)
    tour(path, tmp_path)


@pytest.mark.parametrize("field", [16, 18, 20, 24, 28, 32, 36, 44, 48, 52, 56, 60, 96])
@pytest.mark.parametrize("value", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_a_header_that_lies_ends_in_a_typed_error_or_the_truth(
    field: int, value: bytes, path: Path, tmp_path: Path
) -> None:
    data = bytearray(path.read_bytes())
    data[field : field + 4] = value
    path.write_bytes(data)
    tour(path, tmp_path)


def test_a_log_of_somebody_else_is_not_taken_for_ours(path: Path, tmp_path: Path) -> None:
    Path(f"{path}-wal").write_bytes(bytes.fromhex("377f0682002de218") + bytes(40_000))
    tour(path, tmp_path)


def test_every_bait_is_a_database_that_sqlite_itself_opens(path: Path, mark: Path) -> None:
    """Or nothing of this would get past the first page."""
    for lay in (an_index_that_calls, a_default_that_calls, a_view_that_calls):
        spoil(path, lay)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM hidden").fetchone() == (1,)
    connection.close()
