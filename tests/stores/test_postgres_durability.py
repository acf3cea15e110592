"""What the store acknowledges is on disk, also for a role that has synchronous_commit off."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool

from holdfast.checkpointers import PostgresCheckpointer, ensure_checkpoints_schema
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.checkpointers import run
from holdfast.testing.drafts import agent, checkpoint, session, write
from holdfast.testing.effects import done, effect, place
from tests.postgres_server import PostgresServer
from tests.stores.postgres_drafts import schema_of

TABLES = (
    "agents",
    "sessions",
    "session_checkpoints",
    "chunks",
    "checkpoint_writes",
    "effects",
    "session_logs",
    "schema_migrations",
)
# Runs when a transaction commits, which is the moment that the setting is about.
REFUSE = """
CREATE FUNCTION refuse_careless() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        RAISE EXCEPTION '% of % would not be durable', TG_OP, TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$
"""


@contextmanager
def careless(server: PostgresServer) -> Iterator[None]:
    """Make asynchronous commits the default of the role that tests connect as."""
    server.execute(sql.SQL("ALTER ROLE CURRENT_USER SET synchronous_commit = off"))
    try:
        yield
    finally:
        server.execute(sql.SQL("ALTER ROLE CURRENT_USER RESET synchronous_commit"))


@pytest.fixture(params=["own pool", "foreign pool"])
def store(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, postgres_url: str
) -> Iterator[PostgresStore]:
    plain = postgres_server.url("holdfast")
    with careless(postgres_server):
        with psycopg.connect(plain, autocommit=True) as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
            with PostgresStore(postgres_url):
                pass
            connection.execute(f"SET search_path = {schema_of(postgres_url)}".encode())
            connection.execute(REFUSE)
            for table in TABLES:
                connection.execute(
                    (
                        f"CREATE CONSTRAINT TRIGGER careless AFTER INSERT OR UPDATE OR DELETE "
                        f"ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
                        f"EXECUTE FUNCTION refuse_careless()"
                    ).encode()
                )
            with pytest.raises(psycopg.Error, match="would not be durable"):
                connection.execute("UPDATE schema_migrations SET applied_at = now()")
        if request.param == "own pool":
            with PostgresStore(postgres_url) as store:
                yield store
        else:
            pool: ConnectionPool[Any]
            with (
                ConnectionPool(plain, kwargs={"autocommit": True}, open=True) as pool,
                PostgresStore(postgres_url, pool=pool) as store,
            ):
                yield store


def test_every_change_is_durable(store: PostgresStore) -> None:
    worker = store.create_agent(agent())
    store.update_agent(worker.id, status="running")
    owner = store.create_session(session(agent_id=worker.id))
    store.update_session(owner.id, status="paused")
    store.update_session(owner.id, merge_metadata={"key": 1})
    record = store.put(checkpoint(owner.id, contents=[b"content" * 99])).record
    store.mark_restored(record.id)
    store.put_writes(session(id=owner.id), "", "e", [write()])
    for begun in (effect(owner.id), effect(owner.id, "large", outcome=done(b"returned" * 99))):
        store.begin_effect(begun)
        store.finish_effect(*place(begun), done())
        store.finish_effect(*place(begun), done(b"other" * 99))
    store.append_log(owner.id, "info", "said")
    copy = store.copy_session(owner.id, session())
    past = datetime.now(UTC) - timedelta(seconds=5)
    store.put(checkpoint(owner.id, expires_at=past))
    assert store.purge_expired() == 1
    assert store.delete_checkpoints([record.id]) == 1
    assert store.delete_session(copy.id) is True
    store.put(checkpoint(owner.id, namespace="n"))
    assert store.erase_threads([owner.id], namespace="n", agent_prefix=worker.id) == 1
    swept = store.put(checkpoint(owner.id, contents=[b"swept" * 99])).record
    store.delete_checkpoints([swept.id])
    assert store.gc().chunks == 1


def test_what_a_checkpointer_deletes_is_durable(
    store: PostgresStore, postgres_server: PostgresServer
) -> None:
    pool: ConnectionPool[Any]
    plain = postgres_server.url("holdfast")

    async def use() -> None:
        await ensure_checkpoints_schema(pool, store.schema, holdfast_schema=store.schema)
        keeper = PostgresCheckpointer(pool, store.schema, holdfast_schema=store.schema)
        saved = await keeper.put("thread", {"step": 1})
        await keeper.delete("thread", saved)
        await keeper.put("thread", {"step": 2})
        await keeper.delete_threads(["thread"])
        await keeper.purge_expired()

    with ConnectionPool(plain, kwargs={"autocommit": True}, open=True) as pool:
        run(use())
