"""One line of a transcript as an item of the conversation, and back again, byte for byte.

An item has the ``role`` and the ``content`` of what was said. The rest of the line is its ``entry``, with
nothing where the content stood, and ``at`` says where that was. A line that would not come out the same is
kept as ``line`` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import orjson

Place: TypeAlias = Callable[[dict[str, Any]], tuple[str, Sequence[str]]]
"""Tells the role of an entry, and which keys lead to its content; none if it is no part of what was said."""

OTHER = "other"


def item_of(line: bytes, place: Place) -> dict[str, Any]:
    """Return the item for a line."""
    try:
        entry = orjson.loads(line)
        exact = orjson.dumps(entry) == line
    except (ValueError, TypeError):
        entry, exact = None, False
    if not isinstance(entry, dict):
        return {"role": OTHER, "content": None, "line": _storable(line)}
    role, at = place(entry)
    content = None
    if at:
        holder = entry
        for key in at[:-1]:
            holder = holder[key]
        content, holder[at[-1]] = holder[at[-1]], None
    item: dict[str, Any] = {"role": role, "content": content}
    if not exact:
        return {**item, "line": _storable(line)}
    return {**item, "at": list(at), "entry": entry} if at else {**item, "entry": entry}


def line_of(item: dict[str, Any]) -> bytes:
    """Return the line that an item was made of."""
    if "line" in item:
        line = item["line"]
        return line if isinstance(line, bytes) else line.encode()
    entry = orjson.loads(orjson.dumps(item["entry"]))
    if at := item.get("at"):
        holder = entry
        for key in at[:-1]:
            holder = holder[key]
        holder[at[-1]] = item["content"]
    return orjson.dumps(entry)


def inside(entry: dict[str, Any], *keys: str) -> bool:
    """Tell whether some keys lead to a value in an entry."""
    here: Any = entry
    for key in keys:
        if not isinstance(here, dict) or key not in here:
            return False
        here = here[key]
    return True


def entries_of(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return what lines say, those that are no objects left out."""
    found = []
    for line in lines:
        try:
            entry = orjson.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def up_to_open_calls(
    entries: list[dict[str, Any]],
    calls: Callable[[dict[str, Any]], Iterable[str]],
    results: Callable[[dict[str, Any]], Iterable[str]],
    asks: Callable[[dict[str, Any]], bool],
) -> list[dict[str, Any]]:
    """Return the entries before the first call of a tool whose result is still to come.

    A model takes no conversation that ends with a call which was never answered. One that the user has asked
    for something after, because the agent was killed during it, the agent itself has gone on from.
    """
    answered = {one for entry in entries for one in results(entry)}
    asked = max((number for number, entry in enumerate(entries) if asks(entry)), default=0)
    for number, entry in enumerate(entries[asked:], asked):
        if not answered.issuperset(calls(entry)):
            return entries[:number]
    return entries


def _storable(line: bytes) -> str | bytes:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line
