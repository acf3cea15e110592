"""Every decoder by its name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import foreign, stored
from tests.fuzz.contract import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target for target in (*stored.TARGETS, *foreign.TARGETS)
}
