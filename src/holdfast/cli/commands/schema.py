"""``holdfast schema``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer
from holdfast.config import load_config
from holdfast.sql import DEFAULT_SCHEMA, Dialect, schema_sql


@click.command("schema", short_help="Print the database schema as SQL.")
@click.option(
    "--dialect",
    type=click.Choice(("sqlite", "postgres")),
    help="Which database; that of the store in use by default.",
)
@click.option(
    "--schema", metavar="NAME", help=f"PostgreSQL's schema name; {DEFAULT_SCHEMA} by default."
)
@common_options
def command(common: Common, dialect: Dialect | None, schema: str | None) -> None:
    """Print the database schema as SQL.

    For review, or for another migration tool. Holdfast creates its tables by itself.

    \b
    Examples:
      holdfast schema
      holdfast schema --dialect postgres --schema agents > schema.sql
    """
    if dialect is None:
        url = load_config(common.project_dir, url=common.url, tenant=common.tenant).url
        dialect = "postgres" if url.startswith(("postgresql:", "postgres:")) else "sqlite"
    if dialect == "sqlite" and schema is not None:
        raise click.UsageError("--schema is for --dialect postgres: SQLite has no schemas")
    text = schema_sql(dialect, schema or DEFAULT_SCHEMA)
    if common.json:
        name = None if dialect == "sqlite" else schema or DEFAULT_SCHEMA
        answer({"schema": {"dialect": dialect, "schema": name, "sql": text}})
        return
    click.echo(text, nl=not text.endswith("\n"))
