"""Driver errors never leave the store: each becomes one of ours, and says what to do."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool

from holdfast.errors import (
    AccessDenied,
    ConflictError,
    HoldfastError,
    InvalidConfiguration,
    SchemaMissing,
    StateCorrupt,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.model import CheckpointQuery
from holdfast.stores import postgres_connection
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres_connection import parse_url
from holdfast.stores.postgres_errors import BY_SQLSTATE, translate
from tests.postgres_server import PostgresServer
from tests.stores.postgres_drafts import checkpoint_draft, connect, schema_of


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_url) as store:
        yield store


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that asks for passwords."""
    with PostgresServer(tcp=True) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE ROLE keeper LOGIN PASSWORD 'right'")
            connection.execute("CREATE DATABASE kept OWNER keeper")
            connection.execute("CREATE ROLE stranger LOGIN PASSWORD 'right'")
            row = connection.execute("SHOW hba_file").fetchone()
            assert row is not None
            rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256"
            copy = sql.SQL("COPY (SELECT unnest(string_to_array({}, chr(10)))) TO {}")
            connection.execute(copy.format(sql.Literal(rules), sql.Literal(row[0])))
            connection.execute("SELECT pg_reload_conf()")
        yield server


def guarded_url(server: PostgresServer, user: str, password: str, dbname: str = "kept") -> str:
    return f"postgresql://{user}:{password}@127.0.0.1:{server.port}/{dbname}"


def test_the_right_password_opens_the_store(guarded: PostgresServer) -> None:
    with PostgresStore(guarded_url(guarded, "keeper", "right")) as store:
        assert store.put(checkpoint_draft()).created
        assert "right" not in store.url


@pytest.mark.parametrize(
    ("user", "password"), [("keeper", "wrong-secret"), ("nobody_here", "wrong-secret")]
)
def test_a_wrong_password_or_user_is_refused_and_not_repeated(
    guarded: PostgresServer, user: str, password: str
) -> None:
    with pytest.raises(AccessDenied, match="check the user") as raised:
        PostgresStore(guarded_url(guarded, user, password))
    assert "wrong-secret" not in str(raised.value)


def test_a_user_without_rights_is_refused(guarded: PostgresServer) -> None:
    PostgresStore(guarded_url(guarded, "keeper", "right")).close()
    with pytest.raises(AccessDenied, match="permission denied"):
        PostgresStore(guarded_url(guarded, "stranger", "right"))


def test_a_database_that_does_not_exist_is_unavailable(guarded: PostgresServer) -> None:
    with pytest.raises(StoreUnavailable, match=r"nowhere.*create the database") as raised:
        PostgresStore(guarded_url(guarded, "keeper", "right", "nowhere"))
    assert "server is back" not in str(raised.value)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="refused"):
        PostgresStore("postgresql://u:hidden@127.0.0.1:1/db")
    with pytest.raises(StoreUnavailable) as raised:
        PostgresStore("postgresql://u:hidden@host.invalid/db?connect_timeout=3")
    assert "hidden" not in str(raised.value)


def test_a_database_of_another_encoding_is_refused(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        sql.SQL(
            "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    )
    try:
        with pytest.raises(InvalidConfiguration, match="LATIN1"):
            PostgresStore(postgres_server.url("latin"))
    finally:
        postgres_server.execute(sql.SQL("DROP DATABASE latin"))


def test_a_read_only_database_is_read_and_not_written(
    store: PostgresStore, postgres_url: str
) -> None:
    record = store.put(checkpoint_draft()).record
    option = "options=-c%20default_transaction_read_only%3Don"
    with PostgresStore(f"{postgres_url}&{option}") as frozen:
        assert frozen.list_checkpoints(CheckpointQuery()) == [record]
        with pytest.raises(StoreReadOnly, match="Nothing was written"):
            frozen.put(checkpoint_draft(b"more"))


@pytest.mark.parametrize("timeout", ["lock_timeout", "statement_timeout"])
def test_a_lock_that_others_keep_is_reported_as_busy(
    store: PostgresStore, postgres_url: str, timeout: str
) -> None:
    store.put(checkpoint_draft())
    with (
        PostgresStore(f"{postgres_url}&options=-c%20{timeout}%3D150ms") as waiting,
        connect(postgres_url) as other,
        other.transaction(),
    ):
        other.execute("SELECT FROM sessions FOR UPDATE")
        with pytest.raises(StoreBusy, match="a retry is safe"):
            waiting.put(checkpoint_draft(b"more"))
    assert len(store.list_checkpoints(CheckpointQuery())) == 1


def test_a_pool_without_a_free_connection_is_busy(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "WAIT_SECONDS", 0.2)
    conninfo = parse_url(postgres_url).conninfo
    with (
        ConnectionPool(conninfo, min_size=1, max_size=1, open=True) as pool,
        PostgresStore(postgres_url, pool=pool) as store,
    ):
        with pool.connection(), pytest.raises(StoreBusy):
            store.put(checkpoint_draft())
        assert store.put(checkpoint_draft()).created
        pool.close()
        with pytest.raises(StoreClosed):
            store.list_sessions()


def test_a_closed_store_says_so(store: PostgresStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.list_sessions()
    with pytest.raises(StoreClosed):
        store.put(checkpoint_draft())


def test_tables_that_vanish_are_missed(store: PostgresStore, postgres_url: str) -> None:
    with connect(postgres_url) as other:
        other.execute(f'DROP SCHEMA "{schema_of(postgres_url)}" CASCADE'.encode())
    with pytest.raises(SchemaMissing, match="ensure_schema=True"):
        store.put(checkpoint_draft())


@pytest.mark.parametrize("state", sorted(BY_SQLSTATE))
def test_every_state_in_the_map_reaches_the_caller_as_its_error(
    store: PostgresStore, postgres_url: str, state: str
) -> None:
    """A trigger raises the state in the middle of a put; nothing of the put remains."""
    full = state + {2: "000", 3: "01", 5: ""}[len(state)]
    full = {"XX000": "XX001", "40000": "40P01"}.get(full, full)
    with connect(postgres_url) as other:
        other.execute(
            f"""CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION 'as asked' USING ERRCODE = '{full}'; END $$;
                CREATE TRIGGER fail BEFORE INSERT ON chunks EXECUTE FUNCTION fail()""".encode()
        )
        with pytest.raises(BY_SQLSTATE[state], match="as asked") as raised:
            store.put(checkpoint_draft())
        assert isinstance(raised.value.__cause__, psycopg.Error)
        other.execute("DROP TRIGGER fail ON chunks; DROP FUNCTION fail()")
    assert store.list_sessions() == []


def test_a_full_disk_is_reported_as_such() -> None:
    error = translate(psycopg.errors.DiskFull("could not extend file"), "here")
    assert isinstance(error, StoreFull)
    assert "earlier checkpoints are intact" in str(error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.OperationalError('FATAL: no pg_hba.conf entry for host "h"'), AccessDenied),
        (psycopg.OperationalError("FATAL: sorry, too many clients already"), StoreBusy),
        (psycopg.OperationalError("consuming input failed: EOF"), StoreUnavailable),
        (psycopg.InterfaceError("the connection is closed"), StoreUnavailable),
        (psycopg.errors.UniqueViolation("duplicate key"), ConflictError),
        (psycopg.NotSupportedError("no"), StoreError),
        (RuntimeError("what"), StoreError),
    ],
)
def test_errors_without_a_state_are_told_apart_by_what_they_say(
    error: Exception, kind: type[HoldfastError]
) -> None:
    assert type(translate(error, "here")) is kind


def test_every_error_of_the_driver_has_one_of_ours() -> None:
    kinds: list[Any] = [value for value in vars(psycopg.errors).values() if isinstance(value, type)]
    for kind in kinds:
        if issubclass(kind, psycopg.Error):
            assert isinstance(translate(kind("said"), "here"), HoldfastError)


def test_without_the_driver_the_message_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "try:\n    import holdfast.stores.postgres\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    src = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(src)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.startswith("MissingExtra")
    assert "pip install 'holdfast[postgres]'" in done.stdout


@pytest.mark.parametrize("change", ["created_at = 'infinity'", "metadata = '[1]'"])
def test_a_row_that_cannot_be_understood_is_damage_and_no_bad_input(
    store: PostgresStore, postgres_url: str, change: str
) -> None:
    record = store.put(checkpoint_draft()).record
    with connect(postgres_url) as connection:
        connection.execute(f"UPDATE session_checkpoints SET {change}".encode())
        connection.commit()
    query = CheckpointQuery(id=record.id)
    for read in (store.list_checkpoints, store.read_newest, store.load_newest):
        with pytest.raises(StateCorrupt, match="cannot be understood"):
            read(query)
