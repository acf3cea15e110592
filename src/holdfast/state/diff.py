"""What changed between two states, as a list a person can read.

Dicts are compared by key and lists by position after their common ends are set aside, so an insertion
into a long conversation shows as one line and not as a change of every message behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.state.codec import dump
from holdfast.state.tags import member

Kind: TypeAlias = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; ``before`` is None for what was added, ``after`` for what was removed."""

    kind: Kind
    path: str
    before: Any = None
    after: Any = None


def diff_states(before: Any, after: Any, path: str = "$") -> Iterator[Change]:
    """Yield the changes that lead from ``before`` to ``after``, in the order of the keys."""
    if type(before) is dict and type(after) is dict:
        for key, item in before.items():
            if key in after:
                yield from diff_states(item, after[key], member(path, key))
            else:
                yield Change("removed", member(path, key), before=item)
        for key, item in after.items():
            if key not in before:
                yield Change("added", member(path, key), after=item)
    elif type(before) is list and type(after) is list:
        yield from _diff_lists(before, after, path)
    elif not _same(before, after):
        yield Change("changed", path, before, after)


def _diff_lists(before: list[Any], after: list[Any], path: str) -> Iterator[Change]:
    shorter = min(len(before), len(after))
    front = 0
    while front < shorter and _same(before[front], after[front]):
        front += 1
    back = 0
    while back < shorter - front and _same(before[-1 - back], after[-1 - back]):
        back += 1
    old = before[front : len(before) - back]
    new = after[front : len(after) - back]
    for at, (one, other) in enumerate(zip(old, new, strict=False), front):
        yield from diff_states(one, other, f"{path}[{at}]")
    paired = min(len(old), len(new))
    for at, item in enumerate(old[paired:], front + paired):
        yield Change("removed", f"{path}[{at}]", before=item)
    for at, item in enumerate(new[paired:], front + paired):
        yield Change("added", f"{path}[{at}]", after=item)


def _same(one: Any, other: Any) -> bool:
    """Compare as the store does: 1, 1.0 and True are three values, NaN equals itself."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(_same, one, other))
    if kind is str or kind is int or kind is bool or one is None:
        return bool(one == other)
    # Zeros, decimals and times can be equal and yet differ in what is stored.
    return dump(one, "$") == dump(other, "$")
