"""Redaction: secrets are taken out of what is saved, and come back when it is resumed.

`Redactor` replaces them by placeholders, on the way into the store; `filled` puts them back from what
the environment or the caller knows.
"""

from holdfast.redaction.kinds import ALPHABETS, KINDS, extra_rule
from holdfast.redaction.placeholders import Placeholder, Rehydrate, among, filled, placeholders_in
from holdfast.redaction.redactor import Redactor
from holdfast.redaction.scanner import Finding

__all__ = [
    "ALPHABETS",
    "KINDS",
    "Finding",
    "Placeholder",
    "Redactor",
    "Rehydrate",
    "among",
    "extra_rule",
    "filled",
    "placeholders_in",
]
