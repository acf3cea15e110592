"""Drafts and connections that the PostgreSQL tests share."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from holdfast.ids import new_id
from holdfast.model import NewAgent, NewCheckpoint, NewSession
from holdfast.state import StateEncoder
from holdfast.state.refs import Ref, digest_of, pack_refs
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres_connection import parse_url
from holdfast.stores.postgres_pool import Connections

AGENT = "01900000-0000-7000-8000-000000000001"


def session_draft(session_id: str = "thread") -> NewSession:
    agent = NewAgent(id=AGENT, name="worker", agent_type="tester")
    return NewSession(id=session_id, agent_id=AGENT, agent_type="tester", agent=agent)


def checkpoint_draft(
    content: bytes = b"content", session_id: str = "thread", **fields: Any
) -> NewCheckpoint:
    """A checkpoint whose state is one text, kept in one chunk."""
    digest = digest_of(content)
    checkpoint_id = fields.pop("id", None) or new_id()
    values: dict[str, Any] = {
        "id": checkpoint_id,
        "session_id": session_id,
        "name": checkpoint_id,
        "manifest": '{"v":1,"seqs":[["str",1]],"state":{"text":{"$t":"ref","v":0}}}',
        "refs": pack_refs([Ref(digest, 0, 0, len(content))]),
        "chunks": {digest: content},
        "expects": (),
        "size_bytes": len(content),
        "session": session_draft(session_id),
    }
    return NewCheckpoint(**(values | fields))


def state_draft(state: Mapping[str, Any], **fields: Any) -> NewCheckpoint:
    """A checkpoint of a state, encoded as the package does it."""
    encoded = StateEncoder().encode(dict(state))
    return checkpoint_draft(
        manifest=encoded.manifest,
        refs=encoded.refs,
        chunks=encoded.chunks,
        expects=encoded.expects,
        size_bytes=encoded.size_bytes,
        **fields,
    )


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["schema"][0]


def connect(url: str) -> "psycopg.Connection[Any]":
    """A connection beside the store, whose search path is the store's schema."""
    connection = psycopg.connect(parse_url(url).conninfo, autocommit=True)
    connection.execute("SELECT set_config('search_path', %s, false)", [schema_of(url)])
    return connection


def one_value(connection: "psycopg.Connection[Any]", query: str, *params: object) -> Any:
    row = connection.execute(query.encode(), params or None).fetchone()
    assert row is not None
    return row[0]


def own_connections(store: PostgresStore) -> Connections:
    """The pool of a store that was handed none."""
    pool = store._link._pool()
    assert isinstance(pool, Connections)
    return pool
