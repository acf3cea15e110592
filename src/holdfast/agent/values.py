"""Values as they are once they have been stored, so that a run sees the same before and after a pause."""

from __future__ import annotations

from typing import Any

from holdfast.effects import error_message
from holdfast.state.codec import dump_document, load_document


def stored_form(value: Any, what: str) -> Any:
    """Return a copy of a value as it comes back from a store. Raises `StateNotSerializable`."""
    return load_document(dump_document({"value": value}, what))["value"]


def is_amount(value: object) -> bool:
    """Tell whether a value can be added up and compared with a cap; NaN would be below every cap."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def error_text(error: BaseException) -> str:
    """Return what a snapshot and a model are told of an error, whatever is in its message."""
    return f"{type(error).__name__}: {error_message(error)}"
