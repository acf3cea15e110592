"""Statements: how many there are, what SQL alone can read, and what a URL says."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from holdfast.errors import (
    CheckpointNotFound,
    ChunksMissing,
    DigestMismatch,
    InvalidUrl,
    StateCorrupt,
)
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, NewWrite, Trim
from holdfast.state import decode_state
from holdfast.state.refs import Ref, digest_of, pack_refs
from holdfast.state.tags import tagged
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres_connection import parse_url
from holdfast.stores.postgres_errors import translate
from holdfast.stores.postgres_listing import read_statement
from holdfast.stores.postgres_rows import StoredCheckpoint, parse_read
from holdfast.stores.postgres_statements import parse_put, put_statement
from tests.stores.postgres_drafts import (
    checkpoint_draft,
    connect,
    one_value,
    schema_of,
    session_draft,
    state_draft,
)

STATE: dict[str, Any] = {
    "conversation_history": [
        {"role": "user", "content": f"message {n} " + "word " * 40} for n in range(300)
    ],
    "variable_state": {
        "text": "naïve ☃ " * 2000,
        "with_nul": "a\0b" * 3000,
        "blob": bytes(range(256)) * 40,
        "nested": {f"key {n}": {"n": n, "more": "x" * 90} for n in range(200)},
        "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    },
    "typed_list": [{"day": date(2026, 1, 1), "cost": Decimal("1.10"), "n": n} for n in range(200)],
    "odd": {"$t": "ref", "v": 0},
    "execution_context": {"step": 7, "ratio": 0.1, "big": 2**63, "done": False, "none": None},
    "empty": {"list": [], "dict": {}, "text": ""},
}


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_url) as store:
        yield store


@pytest.fixture
def beside(store: PostgresStore, postgres_url: str) -> Iterator["psycopg.Connection[Any]"]:
    with connect(postgres_url) as connection:
        yield connection


class Counting:
    """Stands before a user's connection and counts what is sent through it."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection
        self.sent: list[str] = []

    def execute(self, query: str, params: Any) -> Any:
        self.sent.append(query)
        return self._connection.execute(query.encode(), params)


@pytest.mark.row("S3-18")
def test_a_put_with_its_trim_is_one_statement_through_any_connection(
    beside: "psycopg.Connection[Any]", postgres_url: str
) -> None:
    connection = Counting(beside)
    draft = checkpoint_draft(b"one")
    statement = put_statement(draft, "default", schema_of(postgres_url))
    [answer] = connection.execute(*statement).fetchone()
    result = parse_put(answer, draft)
    assert result.created
    assert result.record.id == draft.id
    assert len(connection.sent) == 1
    assert ";" not in connection.sent[0]
    assert one_value(beside, "SELECT count(*) FROM session_checkpoints") == 1


def test_what_a_put_answers_is_what_is_stored_whatever_its_texts_hold(store: PostgresStore) -> None:
    odd: dict[str, Any] = {
        "label": "first\nsecond",
        "metadata": {"a\nb": ["\n", 1e20, -0.0]},
        "parent_id": "p\nq",
    }
    for moment in (None, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)):
        draft = replace(checkpoint_draft(name="odd"), created_at=moment, replace=True, **odd)
        result = store.put(draft)
        [stored] = store.list_checkpoints(CheckpointQuery(session_id=draft.session_id))
        assert result.record == stored
        assert stored.label == "first\nsecond"
    assert len(result.removed) == 1
    newest = replace(checkpoint_draft(name="next"), parent_is_newest=True)
    assert store.put(newest).record.parent_id == stored.id
    first = replace(newest, id=new_id(), namespace="empty")
    assert store.put(first).record.parent_id is None


def test_the_newest_is_the_parent_whatever_came_in_between(store: PostgresStore) -> None:
    """A session remembers its newest checkpoint, and must forget it whenever it may be another."""

    def put(name: str, **said: Any) -> str:
        return store.put(replace(checkpoint_draft(name=name), **said)).record.id

    def next_parent(namespace: str = "") -> str | None:
        draft = checkpoint_draft(name=new_id())
        draft = replace(draft, parent_is_newest=True, namespace=namespace)
        parent = store.put(draft).record.parent_id
        store.delete_checkpoints([draft.id])
        return parent

    assert next_parent() is None
    first, second = put("first"), put("second", external_id="e")
    assert next_parent() == second
    other = put("other", namespace="else")
    assert (next_parent(), next_parent("else"), next_parent("new")) == (second, other, None)
    third = put("third")
    put("aside", namespace="else")
    again = put("again", external_id="e", replace=True)
    assert next_parent() == third, "a replaced external id keeps its place"
    fourth = put("fourth")
    put("far", namespace="else")
    assert next_parent() == fourth
    fifth = put("fifth")
    store.delete_checkpoints([third, fourth, fifth])
    assert next_parent() == again
    past = datetime(2020, 1, 1, tzinfo=UTC)
    put("gone", expires_at=past)
    assert next_parent() == again
    later = put("later", expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    assert next_parent() == later
    trim = Trim(max_age={"manual": timedelta(days=1)})
    put("old", created_at=past, resumable=False, trim=trim)
    assert next_parent() == later, "a put may trim its own checkpoint"
    named = put("named")
    renewed = put("named", replace=True)
    assert named != renewed
    assert next_parent() == renewed
    capped = put("capped", trim=Trim(keep=1))
    assert next_parent() == capped
    assert first not in store.iter_checkpoint_ids()


def test_a_whole_checkpoint_is_read_with_one_statement(
    store: PostgresStore, beside: "psycopg.Connection[Any]", postgres_url: str
) -> None:
    store.put(state_draft(STATE, namespace="a"))
    latest = store.put(state_draft(STATE | {"extra": 1}, namespace="a"))
    store.put(state_draft({"other": 1}, namespace="b"))
    query = CheckpointQuery(session_id="thread", namespace="a")
    found = read_whole(beside, query, postgres_url)
    assert found is not None
    assert found.record == latest.record
    decoded = decode_state(found.payload, lambda _: found.chunks)
    assert decoded.state == STATE | {"extra": 1}
    assert read_whole(beside, CheckpointQuery(id=new_id()), postgres_url) is None


def _bytes(statement: Any) -> tuple[bytes, dict[str, Any]]:
    return statement.sql.encode(), statement.params


def read_whole(
    beside: "psycopg.Connection[Any]", query: CheckpointQuery, url: str
) -> StoredCheckpoint | None:
    row = beside.execute(*_bytes(read_statement(query, "default", schema_of(url)))).fetchone()
    return None if row is None else parse_read(row, "default")


@pytest.mark.row("S0-06")
def test_sql_alone_returns_the_whole_state(
    store: PostgresStore, beside: "psycopg.Connection[Any]"
) -> None:
    record = store.put(state_draft(STATE)).record
    found = one_value(beside, "SELECT checkpoint_state(%s)", record.id)
    assert found == tagged(STATE, "$")
    payload = store.read_payload(record.id)
    assert payload is not None
    assert decode_state(payload, store.read_chunks).state == STATE


def test_sql_follows_index_chunks(
    store: PostgresStore, beside: "psycopg.Connection[Any]", postgres_url: str
) -> None:
    leaves = [f"{n:06d} ".encode() * 100 for n in range(30)]
    refs = [Ref(digest_of(data), 0, 0, len(data)) for data in leaves]
    chunks = {digest_of(data): data for data in leaves}
    for level in (1, 2):
        above = []
        for at in range(0, len(refs), 5):
            run = pack_refs(refs[at : at + 5])
            chunks[digest_of(run)] = run
            length = sum(ref.length for ref in refs[at : at + 5])
            above.append(Ref(digest_of(run), level, 0, length))
        refs = above
    packed = pack_refs(refs)
    seqs = f'[["str",{len(refs)}]]'
    manifest = '{"v":1,"seqs":' + seqs + ',"state":{"t":{"$t":"ref","v":0}}}'
    draft = checkpoint_draft(manifest=manifest, refs=packed, chunks=chunks)
    store.put(draft)
    state = one_value(beside, "SELECT checkpoint_state(%s)", draft.id)
    assert state == {"t": b"".join(leaves).decode()}
    found = read_whole(beside, CheckpointQuery(id=draft.id), postgres_url)
    assert found is not None
    assert found.chunks == chunks
    assert store.gc().chunks == 0

    # What lies below an index that is gone is unknown: nothing may be removed by guessing.
    top = refs[0].digest
    beside.execute("DELETE FROM chunks WHERE digest = %s", [top])
    with pytest.raises(StateCorrupt, match="index chunk"):
        store.gc()
    assert set(store.read_chunks(list(chunks))) == chunks.keys() - {top}
    with pytest.raises(psycopg.Error) as raised:
        beside.execute("SELECT checkpoint_state(%s)", [draft.id])
    assert isinstance(translate(raised.value, ""), DigestMismatch)


def test_a_state_that_is_not_there_is_null(
    store: PostgresStore, beside: "psycopg.Connection[Any]"
) -> None:
    assert one_value(beside, "SELECT checkpoint_state(gen_random_uuid())") is None


def test_what_a_put_relies_on_must_be_stored(
    store: PostgresStore, beside: "psycopg.Connection[Any]"
) -> None:
    missing = digest_of(b"nowhere")
    with pytest.raises(ChunksMissing, match="1 of 1"):
        store.put(checkpoint_draft(b"new", expects=(missing,)))
    write = NewWrite("task", 0, "c", "{}", b"", {}, expects=(missing,))
    with pytest.raises(ChunksMissing):
        store.put_writes(session_draft(), "", "x", [write])
    for table in ("session_checkpoints", "checkpoint_writes", "chunks", "sessions", "agents"):
        assert one_value(beside, f"SELECT count(*) FROM {table}") == 0


@pytest.mark.parametrize("setting", ["off", "local", "on"])
def test_asynchronous_commit_is_overridden(
    beside: "psycopg.Connection[Any]", postgres_url: str, setting: str
) -> None:
    beside.execute("SELECT set_config('synchronous_commit', %s, false)", [setting])
    statement = put_statement(checkpoint_draft(), "default", schema_of(postgres_url))
    with beside.transaction():
        beside.execute(*_bytes(statement))
        during = one_value(beside, "SHOW synchronous_commit")
    assert during == ("on" if setting == "off" else setting)
    assert one_value(beside, "SHOW synchronous_commit") == setting


def test_a_transaction_with_one_snapshot_is_refused(
    beside: "psycopg.Connection[Any]", postgres_url: str
) -> None:
    statement = put_statement(checkpoint_draft(), "default", schema_of(postgres_url))
    beside.execute("SET default_transaction_isolation = 'repeatable read'")
    with pytest.raises(psycopg.Error) as raised:
        beside.execute(*_bytes(statement))
    assert "READ COMMITTED" in str(translate(raised.value, "here"))


def test_the_store_works_where_another_isolation_is_the_default(
    store: PostgresStore, postgres_url: str
) -> None:
    option = "options=-c%20default_transaction_isolation%3Dserializable"
    with PostgresStore(f"{postgres_url}&{option}") as other:
        assert other.put(checkpoint_draft()).created


def test_a_pool_of_the_users_is_used_and_left_open(postgres_url: str) -> None:
    conninfo = parse_url(postgres_url).conninfo
    kwargs = {"row_factory": psycopg.rows.dict_row}  # neither autocommit nor tuples
    with ConnectionPool(conninfo, kwargs=kwargs, min_size=1, max_size=2, open=True) as pool:
        with PostgresStore(postgres_url, pool=pool) as store:
            record = store.put(checkpoint_draft()).record
            store.copy_session("thread", session_draft("copy"))
        assert not pool.closed
        with PostgresStore(postgres_url) as other:
            assert other.list_checkpoints(CheckpointQuery(session_id="thread")) == [record]
            assert len(other.list_checkpoints(CheckpointQuery(session_id="copy"))) == 1


def test_tenants_do_not_see_each_other(store: PostgresStore, postgres_url: str) -> None:
    record = store.put(checkpoint_draft(b"mine")).record
    with PostgresStore(f"{postgres_url}&tenant=other") as other:
        assert other.tenant == "other"
        assert other.list_checkpoints(CheckpointQuery()) == []
        assert other.read_payload(record.id) is None
        assert other.read_chunks([digest_of(b"mine")]) == {}
        assert other.total_bytes() == 0
        with pytest.raises(CheckpointNotFound):
            other.mark_restored(record.id)
        assert other.delete_checkpoints([record.id]) == 0
        other.gc()
    assert store.read_chunks([digest_of(b"mine")]) == {digest_of(b"mine"): b"mine"}


@pytest.mark.parametrize(
    ("url", "conninfo", "schema", "tenant", "shown"),
    [
        (
            "postgresql://me:secret@h:5433/db?schema=s&tenant=a%20b&sslmode=require",
            "postgresql://me:secret@h:5433/db?sslmode=require",
            "s",
            "a b",
            "postgresql://me@h:5433/db?sslmode=require&schema=s&tenant=a b",
        ),
        (
            "postgres://h1,h2:2/db?password=secret&user=me",
            "postgresql://h1,h2:2/db?password=secret&user=me",
            None,
            None,
            "postgresql://h1,h2:2/db?user=me",
        ),
        ("postgresql://", "postgresql://", None, None, "postgresql://"),
    ],
)
def test_a_url_has_our_parameters_and_libpqs(
    url: str, conninfo: str, schema: str | None, tenant: str | None, shown: str
) -> None:
    target = parse_url(url)
    assert (target.conninfo, target.schema, target.tenant) == (conninfo, schema, tenant)
    assert target.shown == shown


@pytest.mark.parametrize(
    "url", ["mysql://u:secret@h/db", "nonsense", "postgresql://u:secret@h/db?no_such_option=1"]
)
def test_a_bad_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidUrl) as raised:
        parse_url(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:me:SECRET@host/x",
        "postgresql:/me:SECRET@host/x",
        "postgresql://me:SEC@RET@host/x",
        "postgresql://me:SEC/RET@host/x",
        "postgresql://me:SEC%/RET@host/x",
        "postgresql://host:SECRET/x",
        "postgresql://host:70000/x?password=SECRET",
        "postgresql://me:SECRET@host/x?port=none",
        "mysql://me:SECRET@host/x",
    ],
)
def test_a_url_that_cannot_be_used_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidUrl) as raised:
        parse_url(url)
    assert "SEC" not in str(raised.value)
    assert "RET" not in str(raised.value)
    assert "server is back" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:SE?CRET@host/x", "postgresql://me@host/x"),
        ("postgresql://me:SE:&CRET=@host:5/x?tenant=a", "postgresql://me@host:5/x?tenant=a"),
        ("postgresql://me:CRET@a:1,b:2/x", "postgresql://me@a:1,b:2/x"),
        ("postgresql://host/x?user=me&password=CRET", "postgresql://host/x?user=me"),
        ("postgresql://host/x?pass%77ord=CRET", "postgresql://host/x"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    target = parse_url(url)
    assert target.shown == shown
    assert "CRET" in target.conninfo
