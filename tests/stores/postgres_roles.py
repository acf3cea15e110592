"""Roles that do not own the tables, as `holdfast schema --role` describes them."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from holdfast.sql import role_sql
from holdfast.stores.postgres import PostgresStore
from tests.stores.postgres_drafts import connect, schema_of


@contextmanager
def role_of(url: str, name: str, *, tenant: str | None = None) -> Iterator[str]:
    """Make a role in the database of a store and return the store's URL for it."""
    PostgresStore(url).close()
    role = f"{name}_{schema_of(url)}"
    with connect(url) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        owner.execute(role_sql(role, schema_of(url), tenant=tenant).encode())
        try:
            yield url.replace("//postgres@", f"//{role}@")
        finally:
            owner.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)))
