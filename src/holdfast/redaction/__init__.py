"""Redaction: secrets are taken out of what is saved, and come back when it is resumed.

`Redactor` replaces them by placeholders, on the way into the store; `Redaction` is what a session does
about it. All of it is imported when it is used: hooks start many times a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.redaction.kinds import ALPHABETS, KINDS, extra_rule
    from holdfast.redaction.placeholders import (
        Finding,
        Placeholder,
        Rehydrate,
        among,
        filled,
        placeholders_in,
    )
    from holdfast.redaction.redactor import Redactor
    from holdfast.redaction.settings import Redact, Redaction, Secrets

__all__ = [
    "ALPHABETS",
    "KINDS",
    "Finding",
    "Placeholder",
    "Redact",
    "Redaction",
    "Redactor",
    "Rehydrate",
    "Secrets",
    "among",
    "extra_rule",
    "filled",
    "placeholders_in",
]

_WHERE = {
    "ALPHABETS": "kinds",
    "KINDS": "kinds",
    "Finding": "placeholders",
    "Placeholder": "placeholders",
    "Redact": "settings",
    "Redaction": "settings",
    "Redactor": "redactor",
    "Rehydrate": "placeholders",
    "Secrets": "settings",
    "among": "placeholders",
    "extra_rule": "kinds",
    "filled": "placeholders",
    "placeholders_in": "placeholders",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
