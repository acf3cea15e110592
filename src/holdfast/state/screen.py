"""A last look at what is about to be written: what may not be stored is replaced on the way.

The encoder shows a screen only what it is about to serialise, so what did not change since the last
save is not looked at again. What a screen returns depends on what it is shown and on nothing else:
equal values stay equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Screen(Protocol):
    """Replaces parts of values. Where there is nothing to replace, the value itself comes back."""

    @property
    def key_mark(self) -> bytes:
        """What the same replacements have in common, and others have not: which key they depend on."""

    def value(self, value: Any, name: str = "") -> Any:
        """Look through a value of JSON types; ``name`` is the key that leads to it."""

    def items(self, values: list[Any], *, name: str, before: tuple[Any, ...]) -> list[Any]:
        """Look through elements of a list; ``before`` is the one in front of them, or nothing."""

    def reaches_back(self, before: list[Any], values: list[Any]) -> bool:
        """Tell whether new elements of a list change what is to be stored of those before them."""

    def fields(self, value: dict[str, Any], *, name: str, shorter_than: int) -> dict[str, Any]:
        """Look at the keys of a dict and at the short texts directly in it; ``name`` leads to it."""

    def text(self, text: str, name: str = "") -> str:
        """Look through a text."""

    def tail(self, text: str, known: int) -> str | None:
        """Look through a text that was seen up to ``known``, and return what comes after.

        None says that the place in between matters: the whole text is to be looked at.
        """

    def raw(self, data: bytes) -> bytes:
        """Look through bytes."""

    def document(self, document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Look through a small document of any types that can be stored."""
