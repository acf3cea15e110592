"""Every decoder by its name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import foreign, own_files, played_git, played_postgres, stored
from tests.fuzz.contract import Target

_MODULES: Final = (stored, foreign, own_files, played_git, played_postgres)
TARGETS: Final[dict[str, Target]] = {
    target.name: target for module in _MODULES for target in module.TARGETS
}
