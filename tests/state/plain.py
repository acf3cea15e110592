"""The implementations of `holdfast.state.plain`: the one in Python, and the one in C where it was compiled."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from unittest.mock import patch

from holdfast.state import plain


def _without_c() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_in_python", plain.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {"holdfast.state._plain": None}):
        spec.loader.exec_module(module)
    return module


IMPLEMENTATIONS: dict[str, ModuleType] = {"python": _without_c()}
if plain.COMPILED:
    IMPLEMENTATIONS["c"] = plain
