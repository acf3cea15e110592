"""What every decoder promises, whatever the bytes are: it returns, or raises an error of its own, soon.

A decoder is a function of bytes. Its `Target` says where mutation begins, and which errors it may raise
besides those of Holdfast. `hold_to` runs it; anything else that comes out is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from holdfast.errors import HoldfastError
from tests.fuzz.shapes import reshaped

CORPUS: Final = Path(__file__).with_name("corpus")
LARGEST_INPUT: Final = 64 << 10
# No decoder here may unpack more than this, and none may take more than twice as much memory.
MEMORY_LIMIT: Final = 64 << 20
# By the clock on the wall: where processors are short, an input of a third of a second took fourteen.
SECONDS_FOR_ONE: Final = 60


@dataclass(frozen=True, slots=True)
class Target:
    """One decoder. ``may_raise`` are its own errors where these are not Holdfast's.

    ``reshape`` gives the documents in an input another shape, and keeps what has to fit around them.
    """

    name: str
    decode: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    may_raise: tuple[type[Exception], ...] = ()
    reshape: Callable[[bytes, Random], bytes] = reshaped

    @property
    def kept(self) -> list[Path]:
        """The inputs that once broke the promise."""
        return sorted((CORPUS / self.name).glob("*"))


def hold_to(target: Target, data: bytes) -> None:
    """Decode ``data``; raises what the decoder may not raise."""
    try:
        target.decode(data)
    except HoldfastError:
        return
    except target.may_raise:
        return
