"""``holdfast schema``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer
from holdfast.config import load_config
from holdfast.sql import DEFAULT_SCHEMA, Dialect, role_sql, schema_in, schema_sql


@click.command("schema", short_help="Print the database schema as SQL.")
@click.option(
    "--dialect",
    type=click.Choice(("sqlite", "postgres")),
    help="Which database; that of the store in use by default.",
)
@click.option(
    "--schema",
    metavar="NAME",
    help=f"PostgreSQL's schema name; that of the store in use by default, else {DEFAULT_SCHEMA}.",
)
@click.option(
    "--role",
    metavar="NAME",
    help="Print instead what this PostgreSQL role may do; with --tenant for that one only.",
)
@common_options
def command(common: Common, dialect: Dialect | None, schema: str | None, role: str | None) -> None:
    """Print the database schema as SQL.

    For review, or for another migration tool. Holdfast creates its tables by itself.

    With --role it prints the rights of a role that does not own the tables and sees the rows of one
    tenant at a time.

    \b
    Examples:
      holdfast schema
      holdfast schema --dialect postgres --schema agents > schema.sql
      holdfast schema --role agents_app --tenant acme | psql
    """
    url = load_config(common.project_dir, url=common.url, tenant=common.tenant).stated_url
    on_server = url.startswith(("postgresql:", "postgres:"))
    if dialect is None:
        dialect = "postgres" if on_server or role is not None else "sqlite"
    if dialect == "sqlite" and (schema is not None or role is not None):
        raise click.UsageError(
            "--schema and --role are for --dialect postgres: SQLite has neither schemas nor roles"
        )
    name = schema or (schema_in(url) if on_server else DEFAULT_SCHEMA)
    text = schema_sql(dialect, name) if role is None else role_sql(role, name, tenant=common.tenant)
    if common.json:
        shown = None if dialect == "sqlite" else name
        answer({"schema": {"dialect": dialect, "schema": shown, "role": role, "sql": text}})
        return
    click.echo(text, nl=not text.endswith("\n"))
