"""Whoever reads the interfaces finds them described."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

import holdfast
from holdfast import checkpointers, savers


def public_names(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name in module.__all__:
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        yield name, value
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and (
                    inspect.isroutine(member) or isinstance(member, property)
                ):
                    yield f"{name}.{attribute}", getattr(value, attribute)


@pytest.mark.row("S2-19")
@pytest.mark.parametrize("module", [holdfast, savers, checkpointers], ids=lambda one: one.__name__)
def test_every_public_name_has_a_docstring(module: ModuleType) -> None:
    assert module.__doc__
    names = dict(public_names(module))
    assert names
    assert [name for name, value in names.items() if not inspect.getdoc(value)] == []
