"""A list that is stored as something else than it is: as plain data, element by element.

A framework's messages are objects of its own classes. To translate all of them on every save would cost more
than the save. Given as this, a list is recognised by the attributes of its objects, and only what is
new in it is translated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.state.plain import Attributes


@dataclass(slots=True)
class TranslatedList:
    """A list of objects and how they are stored.

    ``translate`` gets a run of elements and the place of the first, and returns what is stored for them; it
    must depend on nothing but the ``attributes`` of the objects in them, and on plain data. ``translated`` is
    where the last run began and what was stored for it, or None when all was known.
    """

    values: list[Any]
    translate: Callable[[list[Any], int], list[Any]]
    attributes: Attributes
    translated: tuple[int, list[Any]] | None = None

    def run(self, values: list[Any], start: int) -> list[Any]:
        """Translate a run of elements."""
        plain = self.translate(values, start)
        self.translated = (start, plain)
        return plain

    def whole(self) -> list[Any]:
        """Translate all of it."""
        return self.run(self.values, 0)
