"""What is wrong inside a value, and the way to it.

    $['plan'][10].additional_kwargs['key']

Whoever goes through a value catches these errors, adds the step that led there and raises them again, so
that the way costs nothing until something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class Misplaced(Exception):
    """Something wrong inside a value. Each level that it passes adds its step to the path."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._steps: list[str] = []

    def inside(self, step: str) -> None:
        """Say that it was found behind this step: ``.field``, ``[3]`` or ``['key']``."""
        self._steps.append(step)

    @property
    def path(self) -> str:
        """The way from the whole value to it."""
        return "$" + "".join(reversed(self._steps))


class Refused(Misplaced):
    """An object of a class that is not allowed."""

    @property
    def name(self) -> str:
        """The class."""
        return str(self)


class Damaged(Misplaced):
    """Parts from which no object of the class can be made."""


def walked(items: Iterable[Any], walk: Callable[[Any], Any]) -> list[Any]:
    """Return what `walk` makes of each item; an error says at which place."""
    done: list[Any] = []
    add = done.append
    try:
        for item in items:
            add(walk(item))
    except Misplaced as wrong:
        wrong.inside(f"[{len(done)}]")
        raise
    return done


def walked_field(name: str, item: Any, walk: Callable[[Any], Any]) -> Any:
    """Return what `walk` makes of an object's field; an error says in which."""
    try:
        return walk(item)
    except Misplaced as wrong:
        wrong.inside(f".{name}")
        raise


def key_step(key: Any) -> str:
    """Return the step to what stands under a key of a dict."""
    try:
        return f"[{key!a:.80}]"
    except Exception:
        # The key of a stranger's class is whatever that class makes of it.
        return f"[{type(key).__name__}()]"
