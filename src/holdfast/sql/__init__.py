"""SQL lives in files; this loads it.

Each dialect has ``queries.sql``, statements and fragments that begin with ``-- name: NAME``, and
``migrations/NNN_*.sql``, whose part after ``-- DOWN`` takes the migration back. The PostgreSQL files
say ``holdfast.`` where the schema stands; the loader puts the chosen (validated) name there.
``postgres/role.sql`` is what a role of its own may do, with names in braces to be filled in.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qs

from holdfast.ids import check_sql_name, check_tenant

Dialect: TypeAlias = Literal["sqlite", "postgres"]
DEFAULT_SCHEMA: Final = "holdfast"
# The tables whose rows belong to a tenant each.
TENANT_TABLES: Final = (
    "agents",
    "sessions",
    "session_checkpoints",
    "chain_tombstones",
    "chunks",
    "checkpoint_writes",
    "effects",
    "session_logs",
    "workspace_packs",
    "sealing",
)

_MADE = re.compile(
    r'^CREATE (?:UNIQUE )?(TABLE|INDEX|TRIGGER|FUNCTION|DOMAIN) (?:"holdfast"\.)?(\w+)',
    re.MULTILINE,
)
# Each column begins a line of its table; what its table demands begins with a word in capitals.
_TABLE = re.compile(r'^CREATE TABLE "holdfast"\.(\w+) \((.*?)^\)', re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^    ([a-z]\w*) ", re.MULTILINE)
_NAME = re.compile(r"^-- name: (\S+)\s*$", re.MULTILINE)
_SCHEMA = re.compile(r"\bholdfast\.")
_DOWN = "\n-- DOWN\n"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema. ``checksum`` covers the file as shipped, whatever the schema name."""

    version: int
    name: str
    up: str
    down: str
    checksum: str


def schema_in(url: str) -> str:
    """Return the schema that the URL of a PostgreSQL store names, or the usual one."""
    _, mark, query = url.rpartition("?")
    named = parse_qs(query).get("schema") if mark else None
    return named[-1] if named else DEFAULT_SCHEMA


def in_schema(text: str, schema: str) -> str:
    """Return PostgreSQL text with every ``holdfast.`` standing for ``schema``."""
    return _SCHEMA.sub(f'"{check_sql_name(schema, "schema")}".', text)


@cache
def queries(dialect: Dialect, schema: str = DEFAULT_SCHEMA) -> dict[str, str]:
    """Return the named statements of a dialect."""
    text = (files(__name__) / dialect / "queries.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    named = {
        name: body.strip().removesuffix(";")
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
    return named if dialect == "sqlite" else {k: in_schema(v, schema) for k, v in named.items()}


@cache
def migrations(dialect: Dialect, schema: str = DEFAULT_SCHEMA) -> tuple[Migration, ...]:
    """Return the migrations of a dialect in order."""
    folder = files(__name__) / dialect / "migrations"
    found = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(".sql"):
            continue
        text = entry.read_text(encoding="utf-8")
        up, _, down = text.partition(_DOWN)
        if dialect == "postgres":
            up, down = in_schema(up, schema), in_schema(down, schema)
        checksum = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        found.append(Migration(int(entry.name[:3]), entry.name, up, down, checksum))
    return tuple(found)


def schema_sql(dialect: Dialect, schema: str = DEFAULT_SCHEMA) -> str:
    """Return the whole present schema of a dialect, ready for another migration tool."""
    text = (files(__name__) / dialect / "schema.sql").read_text(encoding="utf-8")
    return in_schema(text, schema) if dialect == "postgres" else text


@cache
def schema_objects(dialect: Dialect) -> tuple[tuple[str, str], ...]:
    """Return what the present schema is made of, in order: the kind of each, such as ``table``, and its name."""
    made = [(kind.lower(), name) for kind, name in _MADE.findall(schema_sql(dialect))]
    # A file whose tables have other columns is not opened at all.
    if dialect == "postgres":
        made += [
            ("column", f"{table}.{column}")
            for table, body in _TABLE.findall(schema_sql(dialect))
            for column in _COLUMN.findall(body)
        ]
        made += [("row-level security of", table) for table in TENANT_TABLES]
    return tuple(made)


def role_sql(role: str, schema: str = DEFAULT_SCHEMA, *, tenant: str | None = None) -> str:
    """Return the rights of a role that is not the owner and sees one tenant at a time.

    With ``tenant`` the role is bound to that one, whatever its connections say. Raises
    `InvalidIdentifier`.
    """
    check_sql_name(role, "role")
    text = (files(__name__) / "postgres" / "role.sql").read_text(encoding="utf-8")
    named = dict(zip(*[iter(_NAME.split(text)[1:])] * 2, strict=True))
    values = {
        "role": f'"{role}"',
        "role_text": f"'{role}'",
        "schema": f'"{check_sql_name(schema, "schema")}"',
        "setting": f"{DEFAULT_SCHEMA}.tenant",
    }
    parts = [in_schema(named["grants"], schema)]
    if tenant is not None:
        # A policy's name is cut off after 63 bytes, and two roles must not share one.
        check_sql_name(f"only_{role}", "the name of the role's policy, only_ and the role,")
        values |= {"policy": f'"only_{role}"', "tenant": literal(check_tenant(tenant))}
        parts.append(named["confined"])
        parts += [
            named["bound"].replace("{table}", f"{values['schema']}.{table}")
            for table in TENANT_TABLES
        ]
    script = "\n".join(part.strip() for part in [*parts, named["end"]])
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], script) + "\n"


def literal(text: str) -> str:
    """Quote text so that it is read the same whatever standard_conforming_strings says."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
