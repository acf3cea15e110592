"""JSON that is read without importing `json`, whose regular expressions cost more than the reading itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from _json import make_scanner
except ImportError:  # another Python than CPython
    make_scanner = None  # type: ignore[assignment,misc]


class _Plain:
    """How the scanner is to read: as `json.loads` does."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012


def loads(data: bytes) -> Any:
    """Return what JSON text in UTF-8 says. Raises `ValueError`."""
    text = data.decode("utf-8-sig").strip(" \t\r\n")
    if make_scanner is not None:
        try:
            value, end = make_scanner(_Plain)(text, 0)  # type: ignore[arg-type]
        except (StopIteration, SystemError):
            end = -1  # it can say what is wrong only where `json` is imported
        if end == len(text):
            return value
    import json

    return json.loads(text)
