"""What a save point would say of a project right now, without saving anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.config import load_config
from holdfast.manager.documents import GitDocument, git_document
from holdfast.manager.observation import Observer
from holdfast.workspace.base import as_document
from holdfast.workspace.repository import read_git_state


def capture_git_state(project_dir: str | Path | None = None) -> GitDocument:
    """Return commit, branch and dirty files; nulls and no files where there is no repository."""
    state = read_git_state(load_config(project_dir).project_dir)
    return git_document(as_document(state) if state is not None else {})


def capture_state(project_dir: str | Path | None = None) -> dict[str, Any]:
    """Return features, progress files and context as they are now; contents as text."""
    config = load_config(project_dir)
    seen = Observer(config.project_dir, config.manager).look()
    return {
        "feature_state": {
            "current": seen.features.current,
            "completed": list(seen.features.completed),
            "feature_list": _text(seen.feature_list),
        },
        "progress_files": {path: _text(data) for path, data in seen.progress.items()},
        "context": dict(seen.context),
    }


def _text(data: bytes | None) -> str | None:
    return data.decode("utf-8", "backslashreplace") if data is not None else None
