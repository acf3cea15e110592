"""Both dialects offer the same statements, so that a store never asks for one that is not there."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.sql import Dialect, queries, schema_objects
from holdfast.stores import open_store
from tests.stores.postgres_drafts import connect, schema_of

DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgres")


def test_both_dialects_define_the_same_names() -> None:
    shared = [
        {name for name in queries(dialect) if not name.startswith(f"{dialect}.")}
        for dialect in DIALECTS
    ]
    assert shared[0] == shared[1]
    assert shared[0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_name_is_defined_twice(dialect: Dialect) -> None:
    text = (files("holdfast.sql") / dialect / "queries.sql").read_text(encoding="utf-8")
    found = re.findall(r"^-- name: (\S+)$", text, re.MULTILINE)
    assert sorted(found) == sorted(queries(dialect))


@pytest.mark.parametrize(("dialect", "other"), [DIALECTS, DIALECTS[::-1]])
def test_no_dialect_has_a_name_of_the_other(dialect: Dialect, other: Dialect) -> None:
    assert not [name for name in queries(dialect) if name.startswith(f"{other}.")]


def test_what_a_schema_is_made_of_is_all_that_a_new_database_has(
    tmp_path: Path, postgres_url: str
) -> None:
    """But for the indexes of constraints and what SQLite makes for itself."""
    found: set[Any]
    for url in (str(tmp_path / "s.db"), postgres_url):
        open_store(url).close()
    file = apsw.Connection(str(tmp_path / "s.db"))
    found = set(file.execute(queries("sqlite")["sqlite.made"]).fetchall())
    file.close()
    made = set(schema_objects("sqlite"))
    assert made <= found
    assert all(name.startswith("sqlite_") for _, name in found - made)
    with connect(postgres_url) as connection:
        query = queries("postgres", schema_of(postgres_url))["postgres.made"]
        found = set(connection.execute(query.encode()).fetchall())
    made = set(schema_objects("postgres"))
    assert made <= found
    assert all(kind == "index" and name.endswith("key") for kind, name in found - made)
