"""The project directory that an agent works in: its files, captured and put back."""

from __future__ import annotations

from holdfast.workspace.git import Workspace

__all__ = ["Workspace"]
