"""Looks for a text in everything that an object of ours holds in memory."""

from __future__ import annotations

import gc
from types import FrameType, FunctionType, ModuleType
from typing import Any

# From these on everything can be reached.
_BEYOND = (type, FrameType, FunctionType, ModuleType)


def holds(root: Any, text: str) -> bool:
    """Tell whether a text or some bytes with that in them can be reached from an object."""
    needle = text.encode()
    seen: dict[int, Any] = {}
    pending = [root]
    while pending:
        one = pending.pop()
        if id(one) in seen or isinstance(one, _BEYOND):
            continue
        seen[id(one)] = one
        if isinstance(one, str):
            if text in one:
                return True
        elif isinstance(one, (bytes, bytearray, memoryview)):
            if needle in bytes(one):
                return True
        else:
            pending += gc.get_referents(one)
    return False
