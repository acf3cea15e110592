"""Which public names of a module nobody has described."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType


def undescribed(module: ModuleType) -> list[str]:
    """Return the names of a module, its functions, classes and their members without a docstring."""
    bare = [] if module.__doc__ else [module.__name__]
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) and not inspect.getdoc(value):
            bare.append(f"{module.__name__}.{name}")
        if inspect.isclass(value):
            bare += [f"{module.__name__}.{name}"] * (not value.__doc__)
            # Of the shipped contracts the names of tests are sentences.
            if not module.__name__.startswith("holdfast.testing"):
                bare += [f"{module.__name__}.{name}.{member}" for member in _members(value)]
    return bare


def _members(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        shown = inspect.isfunction(member) or isinstance(
            member, (property, classmethod, staticmethod)
        )
        if shown and not name.startswith("_") and not inspect.getdoc(getattr(value, name)):
            yield name
