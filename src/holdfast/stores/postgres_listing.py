"""What is asked of PostgreSQL: the statements that list and read, each put together from its filters.

Pure functions, as those of `postgres_statements`, and checked like them before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.model import CheckpointQuery, SessionQuery
from holdfast.sql import DEFAULT_SCHEMA, queries
from holdfast.stores.checks import check_agent_filters, check_filter, check_limit, metadata_filter
from holdfast.stores.postgres_statements import Statement, uuid_or_none

_CHECKPOINT_FILTERS: Final[Mapping[str, type]] = {
    "session_id": str,
    "namespace": str,
    "agent_id": str,
    "agent_prefix": str,
    "id": str,
    "id_prefix": str,
    "name": str,
    "label": str,
    "external_id": str,
    "checkpoint_type": str,
    "retention_class": str,
    "run_id": str,
    "version": int,
    "resumable": bool,
    "quarantined": bool,
    "before_seq": int,
}
_SESSION_FILTERS: Final[Mapping[str, type]] = {
    "status": str,
    "agent_type": str,
    "agent_id": str,
    "agent_prefix": str,
    "id_prefix": str,
    "continued": bool,
}
_UUID_FILTERS: Final = frozenset({"id", "agent_id", "parent_id"})
_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST: Final = _FIRST.replace("0", "f")


def read_statement(query: CheckpointQuery, tenant: str, schema: str = DEFAULT_SCHEMA) -> Statement:
    """Return the one statement that reads the newest checkpoint of a query, chunks and all.

    `parse_read` reads its row; no row means that there is no such checkpoint.
    """
    named = queries("postgres", schema)
    parts, params = _checkpoint_filters(query, named)
    text = "\n".join([named["postgres.read"], *parts, named["postgres.read.end"]])
    return Statement(text, {"tenant": tenant, **params})


def list_statement(query: CheckpointQuery, tenant: str, schema: str = DEFAULT_SCHEMA) -> Statement:
    """Return the statement that lists checkpoints; `parse_checkpoint` reads each row."""
    named = queries("postgres", schema)
    parts, params = _checkpoint_filters(query, named)
    text = "\n".join([named["checkpoints.list"], *parts, named["checkpoints.order"]])
    return Statement(text, {"tenant": tenant, "limit": check_limit(query.limit), **params})


def newest_statement(
    query: CheckpointQuery, tenant: str, schema: str = DEFAULT_SCHEMA
) -> Statement:
    """Return the statement that reads the newest checkpoint of a query; `verified` reads its row."""
    named = queries("postgres", schema)
    parts, params = _checkpoint_filters(query, named)
    text = "\n".join([named["checkpoints.newest"], *parts, named["checkpoints.order"]])
    return Statement(text, {"tenant": tenant, "limit": 1, **params})


def list_sessions_statement(
    query: SessionQuery, tenant: str, schema: str = DEFAULT_SCHEMA
) -> Statement:
    """Return the statement that lists sessions; `parse_session` reads each row."""
    named = queries("postgres", schema)
    wanted = {name: getattr(query, name) for name in _SESSION_FILTERS}
    parts, params = _filters("sessions", wanted, _SESSION_FILTERS, query.metadata, named)
    text = "\n".join([named["sessions.list"], *parts, named["sessions.order"]])
    return Statement(text, {"tenant": tenant, "limit": check_limit(query.limit), **params})


def list_agents_statement(
    status: str | None,
    parent_id: str | None,
    limit: int | None,
    tenant: str,
    schema: str = DEFAULT_SCHEMA,
) -> Statement:
    """Return the statement that lists agents; `parse_agent` reads each row."""
    check_agent_filters(status, parent_id)
    named = queries("postgres", schema)
    kinds = {"status": str, "parent_id": str}
    parts, params = _filters("agents", {"status": status, "parent_id": parent_id}, kinds, {}, named)
    text = "\n".join([named["agents.list"], *parts, named["agents.order"]])
    return Statement(text, {"tenant": tenant, "limit": check_limit(limit), **params})


def _checkpoint_filters(
    query: CheckpointQuery, named: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]]:
    wanted = {name: getattr(query, name) for name in _CHECKPOINT_FILTERS}
    return _filters("checkpoints", wanted, _CHECKPOINT_FILTERS, query.metadata, named)


def _filters(
    table: str,
    wanted: Mapping[str, Any],
    kinds: Mapping[str, type],
    metadata: Mapping[str, Any],
    named: Mapping[str, str],
) -> tuple[list[str], dict[str, Any]]:
    parts, params = [], {}
    for name, value in wanted.items():
        if value is None:
            continue
        check_filter(value, name, kinds[name])
        if kinds[name] is bool:
            # A condition without a parameter, so that an index on what fulfils it can be used.
            parts.append(named[f"{table}.where.{name}.{'yes' if value else 'no'}"])
            continue
        parts.append(named[f"{table}.where.{name}"])
        # NULL equals nothing, and neither does what is no UUID.
        if name == "agent_prefix":
            # From the first to the last that begins so: an index on the ids finds them.
            params["first_agent"] = uuid_or_none(value + _FIRST[len(value) :], name)
            params["last_agent"] = uuid_or_none(value + _LAST[len(value) :], name)
        else:
            params[name] = uuid_or_none(value, name) if name in _UUID_FILTERS else value
    if metadata:
        params["metadata"] = metadata_filter(metadata)
        parts.append(named[f"{table}.where.metadata"])
    return parts, params
