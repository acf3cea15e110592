"""A rollback of a session in memory that kills itself: `python -m tests.faults.in_memory PROJECT STEP`.

Just before its n-th step that could change something it ends by SIGKILL. See `tests.workspace.killing` for the steps.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from holdfast import SessionManager
from tests.workspace.killing import arm

# What is nowhere else: changed, new, and ignored in the end although the checkpoint has such a file.
WORK: Final = {
    "changed": "hours of work",
    "new": "more work",
    "ignored.log": "work that nobody captures",
    "last": "the last of it",
}


def roll_back(project: Path, step: int) -> None:
    """Save, work, and go back behind all of that work."""
    manager = SessionManager.open("memory:", project_dir=project)
    session = manager.create_session("worker")
    for name in WORK.keys() - {"new"}:
        (project / name).write_text("as it was")
    session.save_checkpoint("old", state={})
    (project / ".gitignore").write_text("*.log\n")
    for name, content in WORK.items():
        (project / name).write_text(content)
    arm(step)
    session.rollback("old")
    # No checkpoint of this session is needed any more.
    os._exit(0)


if __name__ == "__main__":
    roll_back(Path(sys.argv[1]), int(sys.argv[2]))
