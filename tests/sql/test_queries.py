"""Both dialects offer the same statements, so that a store never asks for one that is not there."""

import re
from importlib.resources import files

import pytest

from holdfast.sql import Dialect, queries

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
