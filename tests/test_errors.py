"""The error tree: drawn, documented, and stable in its codes."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"
TREE = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, HoldfastError)
]


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_every_error_is_drawn_and_documented(error: type[HoldfastError]) -> None:
    assert error.__name__ in (errors.__doc__ or "")
    assert inspect.getdoc(error)
    if error is not HoldfastError:
        page = PAGE.read_text(encoding="utf-8")
        assert f"`{error.__name__}`" in page
        assert f"| `{error.code}` | {error.exit_code} |" in page


def test_codes_are_unique_and_families_have_exit_codes() -> None:
    codes = [error.code for error in TREE]
    assert len(set(codes)) == len(codes)
    families = HoldfastError.__subclasses__()
    assert len({family.exit_code for family in families}) == len(families)
    for family in families:
        if family.__subclasses__():
            assert family.__name__.endswith("Error")
