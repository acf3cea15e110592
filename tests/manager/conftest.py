"""A small repository with a feature list and a progress file, and its manager."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.manager import SyncCheckpointManager
from tests.workspace.pictures import Picture, commit_all, make_repository, picture

FEATURES: list[dict[str, Any]] = [
    {"id": "auth-001", "passes": True},
    {"id": "auth-002", "passes": True},
    {"id": "auth-003", "passes": False},
    {"id": "auth-004", "passes": False},
]


@pytest.fixture(autouse=True)
def _nothing_known_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "TENANT", "SESSION_NUMBER", "TOKEN_USAGE"):
        monkeypatch.delenv(f"HOLDFAST_{name}", raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    make_repository(root)
    (root / "src").mkdir()
    (root / "src" / "app.ts").write_text("export {}\n")
    (root / "tool.sh").write_text("#!/bin/sh\n")
    (root / ".gitignore").write_text("*.log\n.env\n")
    (root / "feature_list.json").write_text(json.dumps({"features": FEATURES}, indent=1))
    (root / "claude-progress.txt").write_text("session 5\n")
    commit_all(root, "first")
    return root


@pytest.fixture
def manager(project: Path) -> Iterator[SyncCheckpointManager]:
    with SyncCheckpointManager(project) as opened:
        yield opened


def complete(project: Path, feature: str) -> None:
    """Mark a feature as complete, as an agent does."""
    path = project / "feature_list.json"
    document = json.loads(path.read_text())
    for one in document["features"]:
        one["passes"] = one["passes"] or one["id"] == feature
    path.write_text(json.dumps(document, indent=1))


def files_of(project: Path) -> Picture:
    """Everything that belongs to the user."""
    return {
        name: seen
        for name, seen in picture(project).items()
        if not name.startswith((".claude/checkpoints", ".claude/skills")) and name != ".claude"
    }


def folders(project: Path) -> set[str]:
    """The checkpoints that a reader finds."""
    path = project / ".claude" / "checkpoints"
    return {one.name for one in path.iterdir() if one.is_dir()} if path.exists() else set()
