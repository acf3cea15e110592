"""The notes that a snapshot leaves for the next one come with the project: whatever they say, the files are captured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast import Workspace
from tests.workspace.pictures import commit_all, make_repository


def test_no_note_makes_a_snapshot_fail_or_lie(tmp_path: Path) -> None:
    root = tmp_path / "project"
    make_repository(root)
    (root / "a.txt").write_text("one\n")
    commit_all(root)
    workspace = Workspace(root)
    workspace.snapshot()
    (root / "a.txt").write_text("two\n")
    workspace.snapshot(["a.txt"])
    path = workspace.store_dir / "last.json"
    note: dict[str, Any] = json.loads(path.read_text())
    assert {"tree", "commit", "status", "folders"} <= note.keys()
    for key in note:
        for odd in (7, {"a": 1}, [["x"]]):
            path.write_text(json.dumps({**note, key: odd}))
            (root / "a.txt").write_text(f"{key} {odd}\n")
            saved = Workspace(root).snapshot(["a.txt"] if odd == 7 else None)
            assert workspace.read(saved.commit, "a.txt") == (root / "a.txt").read_bytes()
