"""Tenants who share a database and a pool cannot reach each other, whatever they try."""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from holdfast import PostgresCheckpointer, ensure_checkpoints_schema
from holdfast.errors import AccessDenied, CheckpointExists, HoldfastError, InvalidIdentifier
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, EffectOutcome, EffectQuery, NewEffect
from holdfast.sql import TENANT_TABLES, role_sql
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres_connection import parse_url
from holdfast.stores.postgres_listing import list_statement, read_statement
from holdfast.testing.drafts import agent, checkpoint, session, write
from tests.postgres_server import PostgresServer
from tests.stores.postgres_drafts import connect, one_value, schema_of
from tests.stores.postgres_roles import role_of

Connection = psycopg.Connection[Any]
Attempt = Callable[[], object]

AGENT = "01900000-0000-7000-8000-0000000acce5"
CHECKPOINT = "01900000-0000-7000-8000-000000acce55"
COMMIT = "acce55" * 6 + "acce"
CONTENT = b"acme's own content " * 20
MARKS = ("acme", AGENT, CHECKPOINT, COMMIT)
ATTEMPTS = 1_000


def fill(store: Store) -> None:
    """Give the victim a row in every table."""
    owner = session(
        id="acme-1", agent_id=AGENT, agent=agent(id=AGENT, name="acme's"), lease_owner="acme"
    )
    store.put_pack(COMMIT, needs=[], data=b"acme's files")
    fence = store.create_session(owner).lease_token
    store.put(
        checkpoint(
            owner.id,
            "acme's first",
            id=CHECKPOINT,
            contents=[CONTENT],
            external_id="acme-e",
            fence=fence,
            workspace_commit=COMMIT,
        )
    )
    store.put_writes(owner, "", "acme-e", [write("acme-task", 0, contents=[b"acme"])], fence=fence)
    gone = store.put(checkpoint(owner.id, fence=fence)).record
    store.delete_checkpoints([gone.id], fence=fence)
    store.append_log(owner.id, "info", "acme's log")
    outcome = EffectOutcome("done", manifest='{"acme":1}', refs=b"")
    store.begin_effect(
        NewEffect(
            "acme-1", "acme-key", 0, "acme-step", b"acme", new_id(), outcome=outcome, fence=fence
        )
    )


@pytest.fixture
def victim(postgres_url: str) -> Iterator[Store]:
    with PostgresStore(postgres_url, tenant="acme") as store:
        fill(store)
        yield store


@pytest.fixture
def administrator(victim: Store, postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url) as connection:
        connection.execute("INSERT INTO sealing (tenant, seal) VALUES ('acme', 'acme''s seal')")
        yield connection


def rows_of(administrator: Connection, tenant: str) -> dict[str, list[dict[str, Any]]]:
    """All that a tenant has, as nobody but a superuser can see it."""
    found = {}
    for table in TENANT_TABLES:
        query = sql.SQL("SELECT to_jsonb(t) FROM {} AS t WHERE tenant = %s ORDER BY t::text")
        rows = administrator.execute(query.format(sql.Identifier(table)), [tenant])
        found[table] = [row[0] for row in rows]
    return found


def token_of(victim: Store) -> int:
    """The fence of the session that the victim holds."""
    (lease,) = victim.list_leases()
    return lease.token


def through_the_store(thief: Store, token: int) -> list[Attempt]:
    """Every way that the package itself offers, to a thief who has seen the victim's fence."""
    session_id, digest = "acme-1", digest_of(CONTENT)
    other = session(id="acme-2", agent_id=AGENT)
    return [
        lambda: thief.find_session(session_id),
        lambda: thief.list_sessions(),
        lambda: thief.find_agent(AGENT),
        lambda: thief.list_agents(),
        lambda: thief.list_checkpoints(CheckpointQuery()),
        lambda: thief.list_checkpoints(CheckpointQuery(session_id=session_id)),
        lambda: thief.read_newest(CheckpointQuery(id=CHECKPOINT)),
        lambda: thief.load_newest(CheckpointQuery(session_id=session_id)),
        lambda: thief.latest_of_agent(AGENT),
        lambda: thief.read_payload(CHECKPOINT),
        lambda: thief.read_payloads([CHECKPOINT]),
        lambda: thief.read_chain(session_id),
        lambda: thief.read_chunks([digest]),
        lambda: thief.find_chunks([digest]),
        lambda: list(thief.iter_checkpoint_ids()),
        lambda: thief.list_expired(),
        lambda: thief.list_writes(session_id, "", ["acme-e"]),
        lambda: thief.list_effects(EffectQuery(session_id)),
        lambda: thief.list_logs(session_id),
        lambda: thief.list_leases(),
        lambda: thief.session_usage(),
        lambda: thief.read_session(session_id),
        lambda: thief.workspace_commits(),
        lambda: thief.find_packs([COMMIT]),
        lambda: [pack.data for pack in thief.read_packs(COMMIT)],
        lambda: thief.put(checkpoint(session_id, fence=token)),
        lambda: thief.put(checkpoint(session_id, id=CHECKPOINT, session=session(id="rival-2"))),
        lambda: thief.create_session(other),
        lambda: thief.create_agent(agent(parent_id=AGENT)),
        lambda: thief.update_agent(AGENT, status="failed"),
        lambda: thief.update_session(session_id, status="failed"),
        lambda: thief.acquire_lease(session_id, "rival", over=token),
        lambda: thief.renew_leases({session_id: token}),
        lambda: thief.interrupt_session(session_id, token, most=0, message="gone"),
        lambda: thief.append_log(session_id, "info", "rival was here"),
        lambda: thief.mark_restored(CHECKPOINT),
        lambda: thief.mark_restoring(CHECKPOINT, seconds=60.0),
        lambda: thief.copy_session(session_id, session(id="rival-3")),
        lambda: thief.begin_effect(
            NewEffect(session_id, "k", 0, "n", b"f", new_id(), outcome=EffectOutcome("started"))
        ),
        lambda: thief.delete_checkpoints([CHECKPOINT]),
        lambda: thief.delete_session(session_id),
        lambda: thief.release_lease(session_id, token),
        lambda: thief.erase_threads([session_id], namespace="", agent_prefix=AGENT),
        lambda: thief.delete_packs([COMMIT]).packs,
        lambda: thief.purge_expired(),
        lambda: thief.gc().chunks,
    ]


def with_plain_sql(
    pool: "ConnectionPool[Connection]",
    victims: Mapping[str, list[dict[str, Any]]],
    schema: str,
    settings: list[tuple[str, bool] | None],
) -> list[Attempt]:
    """Every table, read and written by hand, with each of the settings that the thief may choose."""

    def attempt(
        setting: tuple[str, bool] | None, statement: sql.Composed, params: list[Any]
    ) -> object:
        with pool.connection() as connection, connection.transaction():
            if setting is not None:
                connection.execute("SELECT set_config('holdfast.tenant', %s, %s)", [*setting])
            cursor = connection.execute(statement, params)
            return cursor.fetchall() if cursor.description else cursor.rowcount

    def bind(*arguments: Any) -> Attempt:
        return lambda: attempt(*arguments)

    found: list[Attempt] = []
    for setting, table in itertools.product(settings, TENANT_TABLES):
        name = sql.Identifier(schema, table)
        row = victims[table][0]
        copy = sql.SQL("INSERT INTO {0} SELECT (jsonb_populate_record(NULL::{0}, %s)).*")
        of_the_victim = sql.SQL(" WHERE tenant = 'acme'")
        plain = (
            sql.SQL("SELECT * FROM {}").format(name),
            sql.SQL("SELECT * FROM {}").format(name) + of_the_victim,
            sql.SQL("UPDATE {} SET tenant = tenant").format(name) + of_the_victim,
            sql.SQL("DELETE FROM {}").format(name) + of_the_victim,
        )
        found += [bind(setting, statement, []) for statement in plain]
        found.append(bind(setting, copy.format(name), [Jsonb(row)]))
        # Hung on what the victim has: only the foreign keys stand in its way.
        if {"session_id", "agent_id"} & row.keys():
            fresh = {"tenant": "rival"} | (
                {"id": new_id()} if table == "session_checkpoints" else {}
            )
            found.append(bind(setting, copy.format(name), [Jsonb(row | fresh)]))
        if table != "session_logs":
            moved = sql.SQL("UPDATE {} SET tenant = 'acme' WHERE tenant = 'rival'").format(name)
            found.append(bind(setting, moved, []))
    state = sql.SQL("SELECT {}.checkpoint_state(%s)").format(sql.Identifier(schema))
    found += [bind(setting, state, [CHECKPOINT]) for setting in settings]
    return found


def succeeded(attempt: Attempt) -> bool:
    """Whether something of the victim's came back, or something was done."""
    try:
        outcome = attempt()
    except (HoldfastError, psycopg.Error):
        return False
    if isinstance(outcome, int):
        return outcome > 0
    return any(mark in repr(outcome) for mark in MARKS)


def rounds(attempts: list[Attempt]) -> Iterator[Attempt]:
    """All attempts again and again in an order of chance, a thousand or more in whole rounds."""
    chance = random.Random(90)
    for _ in range(-(-ATTEMPTS // len(attempts))):
        yield from chance.sample(attempts, len(attempts))


def test_a_thousand_attempts_on_a_shared_pool_reach_nothing(
    victim: Store, administrator: Connection, postgres_url: str
) -> None:
    """One role serves both tenants, on connections that the victim used a moment ago."""
    schema = schema_of(postgres_url)
    with role_of(postgres_url, "app") as url, pool_of(url) as pool:
        served = PostgresStore(postgres_url, tenant="acme", pool=pool, sealed=True)
        thief = PostgresStore(postgres_url, tenant="rival", pool=pool)
        thief.put(checkpoint("rival-1", session=session(id="rival-1"), contents=[b"own"]))
        before = rows_of(administrator, "acme")
        tried = 0
        attempts = through_the_store(thief, token_of(victim)) + with_plain_sql(
            pool, before, schema, [None, ("rival", True), ("", True)]
        )
        for attempt in rounds(attempts):
            assert served.find_session("acme-1") is not None
            assert not succeeded(attempt)
            tried += 1
        assert tried >= ATTEMPTS
        assert rows_of(administrator, "acme") == before


def test_a_thousand_attempts_of_a_bound_role_reach_nothing(
    victim: Store, administrator: Connection, postgres_url: str
) -> None:
    """The role of one tenant says that it is another's, in every way that it can."""
    schema = schema_of(postgres_url)
    with role_of(postgres_url, "rival", tenant="rival") as url, pool_of(url) as pool:
        own = PostgresStore(postgres_url, tenant="rival", pool=pool)
        own.put(checkpoint("rival-1", session=session(id="rival-1"), contents=[b"own"]))
        thief = PostgresStore(postgres_url, tenant="acme", pool=pool)
        before = rows_of(administrator, "acme")
        tried = 0
        attempts = through_the_store(thief, token_of(victim)) + with_plain_sql(
            pool, before, schema, [None, ("rival", False), ("acme", True), ("acme", False)]
        )
        for attempt in rounds(attempts):
            assert own.find_session("rival-1") is not None
            assert not succeeded(attempt)
            tried += 1
        assert tried >= ATTEMPTS
        assert rows_of(administrator, "acme") == before
        with pytest.raises(AccessDenied):
            thief.create_session(session(id="acme-3"))


def pool_of(url: str) -> "ConnectionPool[Connection]":
    """Two connections, so that every one of them has served everybody."""
    return ConnectionPool(
        parse_url(url).conninfo, kwargs={"autocommit": True}, min_size=2, max_size=2, open=True
    )


def test_the_attempts_do_succeed_without_policies(
    victim: Store, administrator: Connection, postgres_url: str
) -> None:
    """What is tried above is worth trying: a superuser, whom no policy binds, gets through."""
    with pool_of(postgres_url) as pool:
        attempts = with_plain_sql(
            pool, rows_of(administrator, "acme"), schema_of(postgres_url), [None]
        )
        assert succeeded(attempts[0])
        assert sum(map(succeeded, attempts)) >= 2 * len(TENANT_TABLES)


def test_no_setting_stays_on_a_connection(victim: Store, postgres_url: str) -> None:
    with role_of(postgres_url, "app") as url, pool_of(url) as pool:
        store = PostgresStore(postgres_url, tenant="acme", pool=pool)
        store.put(checkpoint("acme-1", fence=token_of(victim)))
        store.list_checkpoints(CheckpointQuery())
        store.gc()
        for _ in range(4):
            with pool.connection() as connection:
                said = one_value(connection, "SELECT current_setting('holdfast.tenant', true)")
                assert not said
                count = sql.SQL("SELECT count(*) FROM {}.sessions")
                row = connection.execute(count.format(sql.Identifier(schema_of(url)))).fetchone()
                assert row == (0,)


def test_every_table_of_a_tenant_has_the_policy(administrator: Connection) -> None:
    with_tenant = administrator.execute(
        "SELECT c.relname, c.relrowsecurity FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' "
        "WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1"
    ).fetchall()
    assert with_tenant == [(table, True) for table in sorted(TENANT_TABLES)]
    policies = administrator.execute(
        "SELECT tablename, policyname FROM pg_policies WHERE schemaname = current_schema() "
        "ORDER BY 1"
    ).fetchall()
    assert policies == [(table, "of_tenant") for table in sorted(TENANT_TABLES)]


def test_a_taken_id_of_another_tenant_is_named_as_such(victim: Store, postgres_url: str) -> None:
    with role_of(postgres_url, "app") as url, PostgresStore(url, tenant="rival") as rival:
        owner = session(id="rival-1")
        with pytest.raises(CheckpointExists):
            rival.put(checkpoint(owner.id, id=CHECKPOINT, session=owner))
        assert rival.find_session(owner.id) is None


@pytest.mark.parametrize("tenant", [None, "acme"], ids=["shared", "bound"])
def test_listing_and_reading_use_the_indexes(
    victim: Store, administrator: Connection, postgres_url: str, tenant: str | None
) -> None:
    schema = schema_of(postgres_url)
    administrator.execute(
        "INSERT INTO session_checkpoints (tenant, session_id, agent_id, name, state_snapshot, "
        "manifest) SELECT 'acme', 'acme-1', %s, 'n' || i, '{}', '{}' FROM generate_series(1, 3000) i",
        [AGENT],
    )
    administrator.execute("ANALYZE session_checkpoints")
    query = CheckpointQuery(session_id="acme-1", namespace="", limit=10)
    with role_of(postgres_url, "app", tenant=tenant) as url, connect(url) as connection:
        for statement in (
            list_statement(query, "acme", schema),
            read_statement(query, "acme", schema),
        ):
            text = f"EXPLAIN {statement.sql}"
            rows = connection.execute(text.encode(), statement.params).fetchall()
            plan = "\n".join(row[0] for row in rows)
            assert "Index Scan Backward using checkpoints_by_seq" in plan
            assert "Sort" not in plan
            assert "Seq Scan" not in plan


class Queryable:
    """An object of the user's own, which knows nothing of tenants."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def query(self, text: str, params: Mapping[str, Any] | None) -> Any:
        return self.connection.execute(text.encode(), params).fetchall()


def test_a_checkpointer_works_on_a_roles_own_connection(postgres_url: str) -> None:
    schema = schema_of(postgres_url)
    view = f"v_{schema}"
    with connect(postgres_url) as owner:
        asyncio.run(
            ensure_checkpoints_schema(
                owner, schema=schema, table=view, tenant="acme", holdfast_schema=schema
            )
        )
        with role_of(postgres_url, "app") as url, connect(url) as connection:
            name = sql.Identifier(view)
            role = sql.Identifier(connection.info.user)
            owner.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(name, role))
            kept, other = (
                PostgresCheckpointer(
                    Queryable(connection),
                    schema=schema,
                    table=view,
                    tenant=tenant,
                    holdfast_schema=schema,
                    ttl_seconds=3600,
                )
                for tenant in ("acme", "rival")
            )

            async def scenario() -> None:
                made = await kept.put("t", {"n": 1, "text": "x" * 9_000})
                assert await kept.get("t") == {"n": 1, "text": "x" * 9_000}
                assert await other.get("t") is None
                assert [one.id for one in await kept.list("t")] == [made]
                assert await other.list("t") == []
                seen = connection.execute(sql.SQL("SELECT snapshot FROM {}").format(name))
                assert [row[0]["n"] for row in seen.fetchall()] == [1]
                await other.delete("t", made)
                assert await kept.get("t") is not None
                await kept.delete("t", made)
                assert await kept.get("t") is None

            asyncio.run(scenario())


def test_the_owner_can_be_bound_as_well(postgres_server: PostgresServer) -> None:
    """With FORCE the policies hold for an owner that is no superuser, and the store works on."""
    url = postgres_server.create_database("owned")
    owner = url.replace("//postgres@", "//landlord@")
    postgres_server.execute(sql.SQL("CREATE ROLE landlord LOGIN"))
    postgres_server.execute(sql.SQL("ALTER DATABASE owned OWNER TO landlord"))
    with (
        PostgresStore(owner, tenant="acme") as store,
        connect(f"{owner}&schema=holdfast") as direct,
    ):
        fill(store)
        assert one_value(direct, "SELECT count(*) FROM sessions") == 1
        for table in TENANT_TABLES:
            statement = sql.SQL("ALTER TABLE {} FORCE ROW LEVEL SECURITY")
            direct.execute(statement.format(sql.Identifier(table)))
        assert one_value(direct, "SELECT count(*) FROM sessions") == 0
        assert store.read_payload(CHECKPOINT) is not None
        assert store.gc().chunks == 0
        assert store.delete_session("acme-1")
        assert store.total_bytes() == 0


def test_rights_are_refused_to_those_whom_no_policy_binds(
    administrator: Connection, postgres_url: str
) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match="superuser"):
        administrator.execute(role_sql("postgres", schema_of(postgres_url)).encode())
    administrator.execute("ROLLBACK")


@pytest.mark.parametrize("place", ["SCHEMA public", "DATABASE holdfast"])
def test_no_bound_role_can_put_functions_in_the_way_of_others(
    administrator: Connection, postgres_url: str, place: str
) -> None:
    name = f"putter_{schema_of(postgres_url)}"
    bound = role_sql(name, schema_of(postgres_url), tenant="other").encode()
    given = sql.SQL(place), sql.Identifier(name)
    with role_of(postgres_url, "putter"):
        administrator.execute(sql.SQL("GRANT CREATE ON {} TO {}").format(*given))
        with pytest.raises(psycopg.errors.RaiseException, match="in the way of other roles"):
            administrator.execute(bound)
        administrator.execute("ROLLBACK")
        administrator.execute(sql.SQL("REVOKE CREATE ON {} FROM {}").format(*given))
        administrator.execute(bound)


@pytest.mark.parametrize("tenant", ["it's", "back\\slash", "{role}", "$$", "ü 🦀"])
def test_a_role_is_bound_to_a_tenant_of_any_name(tenant: str, postgres_url: str) -> None:
    with role_of(postgres_url, "app", tenant=tenant) as url:
        with PostgresStore(url, tenant=tenant) as store:
            assert store.create_session(session(id="s")).id == "s"
        with PostgresStore(url, tenant="other") as store, pytest.raises(AccessDenied):
            store.create_session(session(id="s"))


@pytest.mark.parametrize(
    "name", ["", 'a"b', "a b", "x" * 64], ids=["empty", "quote", "space", "long"]
)
def test_a_roles_name_must_be_one(name: str) -> None:
    with pytest.raises(InvalidIdentifier):
        role_sql(name)
    with pytest.raises(InvalidIdentifier):
        role_sql("x" * 60, tenant="acme")
