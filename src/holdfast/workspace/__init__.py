"""The project directory that an agent works in: its files, captured and put back."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.workspace.git import Workspace

__all__ = ["Workspace"]


def __getattr__(name: str) -> Any:
    # On use: whoever only glances at the files does without most of this package.
    if name != "Workspace":
        raise AttributeError(f"module 'holdfast.workspace' has no attribute {name!r}")
    from holdfast.workspace.git import Workspace

    return Workspace
