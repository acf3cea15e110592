"""The hash chain notices whatever is altered, taken out or put in behind the library's back."""

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import CheckpointAltered
from holdfast.ids import new_id
from holdfast.model import (
    Chain,
    ChainLink,
    CheckpointQuery,
    NewCheckpoint,
    Payload,
    Tombstone,
    Trim,
)
from holdfast.stores.base import Store
from holdfast.stores.chain import breaks
from holdfast.stores.memory import MemoryStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.drafts import checkpoint, session
from tests.stores.postgres_drafts import connect

# For each column that never changes, another value that the database would take.
ALTERED: dict[str, str] = {
    "external_id": "'another'",
    "namespace": "'another'",
    "seq": "seq + 1000",
    "parent_id": "NULL",
    "name": "'another'",
    "label": "'another'",
    "description": "''",
    "checkpoint_type": "'failure'",
    "retention_class": "'feature'",
    "run_id": "'another'",
    "version": "version + 1",
    "size_bytes": "size_bytes + 1",
    "stored_bytes": "stored_bytes + 1",
    "git_branch": "'another'",
    "git_commit": "NULL",
    "git_uncommitted": "NOT git_uncommitted",
    "workspace_commit": "NULL",
    "resumable": "NOT resumable",
    "expires_at": "NULL",
    "metadata": "NULL",
    "chain_number": "chain_number + 1",
    "chain_previous": "NULL",
    "chain_hash": "NULL",
}


def full(session_id: str, **changes: Any) -> NewCheckpoint:
    values: dict[str, Any] = {
        "external_id": "external",
        "parent_id": new_id(),
        "label": "label",
        "description": "description",
        "run_id": "run",
        "git_branch": "main",
        "git_commit": "c" * 40,
        "workspace_commit": "a" * 40,
        "metadata": {"k": 1},
        "expires_at": datetime(2999, 1, 1, tzinfo=UTC),
        "contents": [b"content"],
    }
    return checkpoint(session_id, **(values | changes))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "sessions.db") as store:
        yield store


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_url) as store:
        yield store


def run_sqlite(store: SqliteStore, statement: str) -> None:
    connection = apsw.Connection(str(store.path))
    try:
        connection.execute(statement)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "change",
    [
        *(f"{column} = {value}" for column, value in ALTERED.items()),
        "created_at = '2000-01-01T00:00:00.000000Z'",
        "refs = CAST(refs || refs AS BLOB)",
        "state_snapshot = '{}'",
    ],
    ids=lambda change: change.partition(" ")[0],
)
def test_an_altered_column_of_sqlite_is_refused(store: SqliteStore, change: str) -> None:
    owner = store.create_session(session())
    good = store.put(checkpoint(owner.id)).record
    record = store.put(full(owner.id)).record
    assert store.read_payload(record.id) is not None
    run_sqlite(store, f"UPDATE session_checkpoints SET {change} WHERE id = '{record.id}'")
    with pytest.raises(CheckpointAltered, match=record.id):
        store.read_payload(record.id)
    with pytest.raises(CheckpointAltered):
        store.read_payloads([good.id, record.id])
    with pytest.raises(CheckpointAltered):
        store.read_newest(CheckpointQuery(id=record.id))
    assert store.read_payload(good.id) is not None
    with pytest.raises(CheckpointAltered):
        store.copy_session(owner.id, session())


@pytest.mark.parametrize(
    "change",
    [
        *(f"{column} = {value}" for column, value in ALTERED.items()),
        "created_at = created_at - interval '1 microsecond'",
        "refs = refs || refs",
        "manifest = '{}'",
    ],
    ids=lambda change: change.partition(" ")[0],
)
def test_an_altered_column_of_postgres_is_refused(
    postgres: PostgresStore, postgres_url: str, change: str
) -> None:
    owner = postgres.create_session(session())
    good = postgres.put(checkpoint(owner.id)).record
    record = postgres.put(full(owner.id)).record
    assert postgres.read_payload(record.id) is not None
    with connect(postgres_url) as connection:
        text = f"UPDATE session_checkpoints SET {change} WHERE id = %s"
        connection.execute(text.encode(), [record.id])
        connection.commit()
    with pytest.raises(CheckpointAltered, match=record.id):
        postgres.read_payload(record.id)
    with pytest.raises(CheckpointAltered):
        postgres.read_payloads([good.id, record.id])
    with pytest.raises(CheckpointAltered):
        postgres.read_newest(CheckpointQuery(id=record.id))
    assert postgres.read_payload(good.id) is not None
    with pytest.raises(CheckpointAltered):
        postgres.copy_session(owner.id, session())


@pytest.mark.parametrize("column", ["tenant", "session_id", "agent_id"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_row_that_was_given_to_another_is_refused(
    kind: str, column: str, request: pytest.FixtureRequest
) -> None:
    store: Store = request.getfixturevalue("store" if kind == "sqlite" else "postgres")
    owner, other = (store.create_session(session()) for _ in range(2))
    record = store.put(full(owner.id)).record
    assert owner.agent_id != other.agent_id
    given = {"tenant": "theirs", "session_id": other.id, "agent_id": other.agent_id}[column]
    change = f"UPDATE session_checkpoints SET {column} = '{given}' WHERE id = '{record.id}'"
    theirs: Store = store
    if isinstance(store, SqliteStore):
        run_sqlite(store, change)
        theirs = SqliteStore(store.path, tenant="theirs")
    else:
        url = request.getfixturevalue("postgres_url")
        with connect(url) as connection:
            # An agent is one tenant's, and so the foreign key would refuse it.
            connection.execute("SET session_replication_role = replica")
            connection.execute(change.encode())
            connection.commit()
        theirs = PostgresStore(url, tenant="theirs")
    with theirs, pytest.raises(CheckpointAltered, match=record.id):
        (theirs if column == "tenant" else store).read_payload(record.id)


def test_a_row_whose_id_was_altered_is_refused_and_not_looked_for_without_end(
    store: SqliteStore,
) -> None:
    owner = store.create_session(session())
    store.put(checkpoint(owner.id))
    record = store.put(checkpoint(owner.id)).record
    run_sqlite(
        store,
        "PRAGMA ignore_check_constraints = ON;"
        f"UPDATE session_checkpoints SET id = upper(id) WHERE id = '{record.id}'",
    )
    with pytest.raises(CheckpointAltered, match=record.id.upper()):
        store.load_newest(CheckpointQuery(session_id=owner.id))


def test_what_is_altered_in_memory_is_refused() -> None:
    store = MemoryStore()
    owner = store.create_session(session())
    record = store.put(full(owner.id)).record
    stored = store._checkpoints[record.id]
    for attribute, value in (
        ("record", replace(stored.record, name="another")),
        ("document", '{"k":2}'),
        ("payload", Payload("{}", stored.payload.refs)),
        ("link", None),
    ):
        before = getattr(stored, attribute)
        setattr(stored, attribute, value)
        with pytest.raises(CheckpointAltered):
            store.read_payload(record.id)
        with pytest.raises(CheckpointAltered):
            store.copy_session(owner.id, session())
        setattr(stored, attribute, before)
        assert store.read_payload(record.id) is not None


@pytest.mark.parametrize(
    "statement",
    [f"DELETE FROM session_checkpoints WHERE chain_number = {number}" for number in (4, 5, 6)]
    + [
        "DELETE FROM chain_tombstones",
        "UPDATE chain_tombstones SET chain_hash = x'00'",
        "UPDATE chain_tombstones SET last_number = last_number + 1",
        "UPDATE sessions SET chain_head = x'00'",
        "UPDATE sessions SET chain_length = chain_length + 1",
        "UPDATE sessions SET chain_length = chain_length - 1",
    ],
)
def test_what_is_taken_out_shows(store: SqliteStore, statement: str) -> None:
    owner = store.create_session(session())
    for _ in range(6):
        store.put(checkpoint(owner.id, trim=Trim(keep=3)))
    assert list(breaks(chain(store, owner.id))) == []
    run_sqlite(store, statement)
    assert list(breaks(chain(store, owner.id))) != []


@pytest.mark.parametrize(
    "links",
    [
        "chain_number = chain_number",
        "chain_number = NULL, chain_previous = NULL, chain_hash = NULL",
        "chain_number = chain_number + 1, chain_previous = chain_hash, chain_hash = x'00'",
    ],
    ids=["the same link", "no link", "the next link"],
)
def test_what_is_put_in_shows(store: SqliteStore, links: str) -> None:
    owner = store.create_session(session())
    store.put(checkpoint(owner.id))
    reader = apsw.Connection(str(store.path))
    columns = ", ".join(str(row[1]) for row in reader.pragma("table_info", "session_checkpoints"))
    reader.close()
    assert list(breaks(chain(store, owner.id))) == []
    run_sqlite(
        store,
        f"CREATE TEMP TABLE forged AS SELECT {columns} FROM session_checkpoints;"
        f"UPDATE forged SET id = '{new_id()}', seq = seq + 100, name = 'put in', {links};"
        f"INSERT INTO session_checkpoints ({columns}) SELECT {columns} FROM forged",
    )
    assert list(breaks(chain(store, owner.id))) != []


def chain(store: Store, session_id: str) -> Chain:
    found = store.read_chain(session_id)
    assert found is not None
    return found


def test_breaks_say_what_is_wrong() -> None:
    links = tuple(
        ChainLink(
            f"c{number}",
            number,
            number,
            bytes([number - 1]) if number > 1 else b"",
            bytes([number]),
        )
        for number in range(1, 6)
    )
    whole = Chain("s", 5, b"\5", links, ())
    assert list(breaks(whole)) == []
    without = replace(whole, links=(links[0], links[3], links[4]))
    assert list(breaks(without)) == [
        ("c4", "links 2 to 3 of the session were removed without a trace")
    ]
    buried = replace(without, tombstones=(Tombstone(2, 3, 3, b"\3"),))
    assert list(breaks(buried)) == []
    wrong = replace(without, tombstones=(Tombstone(2, 3, 3, b"\4"),))
    assert list(breaks(wrong)) == [("c4", "link 4 of the session does not follow link 3")]
    assert list(breaks(replace(whole, links=links[:4]))) == [
        (None, "link 5 of the session was removed without a trace")
    ]
    assert list(breaks(replace(whole, links=(*links, replace(links[4], checkpoint_id="c"))))) == [
        ("c", "link 5 of the session is there twice")
    ]
    assert list(breaks(replace(whole, head=b"?"))) == [
        (None, "the session's chain does not end with link 5")
    ]
    assert list(breaks(replace(whole, unlinked=("lost",)))) == [
        ("lost", "it has no link in the session's hash chain")
    ]


def test_a_keyed_row_digest_binds_the_chain_to_the_key(store: SqliteStore) -> None:
    def keyed(content: bytes) -> bytes:
        return hmac.digest(b"key", content, hashlib.sha256)

    store.row_digest = keyed
    owner = store.create_session(session())
    record = store.put(checkpoint(owner.id)).record
    assert store.read_payload(record.id) is not None
    with SqliteStore(store.path) as without_key, pytest.raises(CheckpointAltered):
        without_key.read_payload(record.id)


def test_a_keyed_row_digest_is_used_by_every_store(postgres: PostgresStore) -> None:
    def keyed(content: bytes) -> bytes:
        return hmac.digest(b"key", content, hashlib.sha256)

    for store in (postgres, MemoryStore()):
        store.row_digest = keyed
        owner = store.create_session(session())
        record = store.put(full(owner.id)).record
        copy = store.copy_session(owner.id, session())
        links = [*chain(store, owner.id).links, *chain(store, copy.id).links]
        assert len(links) == 2
        assert store.read_payloads([one.checkpoint_id for one in links]).keys() == {
            one.checkpoint_id for one in links
        }
        del store.row_digest
        with pytest.raises(CheckpointAltered):
            store.read_payload(record.id)
