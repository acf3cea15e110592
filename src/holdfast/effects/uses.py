"""Which use of a step a call is: what a run counts, and what it is in the middle of."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from holdfast.effects.call import Call, without_mark
from holdfast.model import EffectRecord, NewEffect

if TYPE_CHECKING:
    from holdfast.effects.ledger import Ledger

_KEY_DIGITS: Final = 32


@dataclass(slots=True, eq=False)
class Counts:
    """By key: the next occurrence, and those whose use raised and that come again first."""

    epoch: int
    next: dict[str, int] = field(default_factory=dict)
    again: dict[str, set[int]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Scope:
    """Where steps are counted: a run, or one attempt at a step that has steps of its own."""

    inside: bytes = b""
    counts: Counts | None = None

    def key_for(self, call: Call, digest: bytes) -> str:
        """Return what a step without a key of its own is called here."""
        digest = without_mark(digest)
        if self.inside:
            digest = b" " + hashlib.sha256(self.inside + digest).digest()
        return f"{call.name}#{digest[1:].hex()[:_KEY_DIGITS]}"


@dataclass(slots=True, eq=False)
class Use:
    """A call until its caller has what it returns, and the effect that it turned out to be."""

    call: Call
    counts: Counts | None = None
    draft: NewEffect | None = None
    over: bool = False


# What is being run around a call, by the session whose step it is.
AROUND: ContextVar[Mapping[Ledger, Scope]] = ContextVar(
    "holdfast_step", default=MappingProxyType({})
)

# The attempts that are made in this process. A forked child makes none of its parent's.
HERE: Final[set[tuple[int, str]]] = set()


def is_running_here(effect: EffectRecord | NewEffect) -> bool:
    """Tell whether this process is at work on an effect, and will say how it ended."""
    return (os.getpid(), effect.attempt_id) in HERE
