"""The SQL of checkpointers, and the one call that applies it.

Checkpoints live in Holdfast's own tables. What the outside knows as the table
``public.ziro_checkpoints`` is a view of one namespace of them, so any number of such "tables" share
migrations, content and upkeep.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from holdfast.checkpointers.base import DEFAULT_SCHEMA, DEFAULT_TABLE
from holdfast.checkpointers.queryable import Connector, Poolable
from holdfast.ids import check_sql_name, check_tenant
from holdfast.sql import DEFAULT_SCHEMA as HOLDFAST
from holdfast.sql import in_schema, literal, migrations

_NAME: Final = re.compile(r"^-- name: (\S+)\s*$", re.MULTILINE)


@cache
def statements(holdfast_schema: str = HOLDFAST) -> dict[str, str]:
    """Return the named parts of ``postgres.sql``."""
    text = (files(__package__) / "postgres.sql").read_text(encoding="utf-8")
    parts = _NAME.split(in_schema(text, holdfast_schema))[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def namespace_of(schema: str, table: str) -> str:
    """Return the namespace that stands for a table. Raises `InvalidIdentifier`."""
    return f"{check_sql_name(schema, 'schema')}.{check_sql_name(table, 'table')}"


def schema_sql(
    schema: str = DEFAULT_SCHEMA,
    table: str = DEFAULT_TABLE,
    *,
    tenant: str = "default",
    holdfast_schema: str = HOLDFAST,
) -> str:
    """Return all that `ensure_checkpoints_schema` runs, ready for another migration tool.

    It may be run again and again, in one transaction each time.
    """
    namespace = namespace_of(schema, table)
    named = statements(check_sql_name(holdfast_schema, "Holdfast's schema"))
    steps = migrations("postgres", holdfast_schema)
    values = {
        "schema": f'"{schema}"',
        "schema_text": literal(f'"{schema}"'),
        "table": f'"{table}"',
        "tenant": literal(check_tenant(tenant)),
        "namespace": literal(namespace),
        "newest": str(steps[-1].version),
    }
    parts = [_filled(named["prepare"], values)]
    for step in steps:
        own = {
            "version": str(step.version),
            "name": step.name,
            "checksum": literal(step.checksum),
            "up": step.up,
        }
        parts.append(_filled(named["migration"], own))
    parts.append(_filled(named["view"], values))
    return "\n\n".join(parts) + "\n"


async def ensure_checkpoints_schema(
    pool: Poolable,
    schema: str = DEFAULT_SCHEMA,
    table: str = DEFAULT_TABLE,
    *,
    tenant: str = "default",
    holdfast_schema: str = HOLDFAST,
) -> None:
    """Create what `PostgresCheckpointer` needs, or do nothing where it is there already.

    Any number of processes may call it at once. ``pool`` is whatever `PostgresCheckpointer` takes;
    on a single connection it runs in the caller's transaction. Raises `SchemaTooNew` and
    `MigrationChanged` and changes nothing when the database is not one that this package knows.
    """
    script = schema_sql(schema, table, tenant=tenant, holdfast_schema=holdfast_schema)
    await Connector(pool).script(script)


def _filled(text: str, values: dict[str, str]) -> str:
    """Put values where their names stand in braces; braces around anything else stay."""
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), text)
