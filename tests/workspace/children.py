"""Runs a piece of Python in a process of its own, as a user without rights where that is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NOBODY: Final = 65534
_ROOT: Final = Path(__file__).parents[2]
_DROP: Final = f"""
import os
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""
_BEGIN: Final = """
import ctypes, os, signal, sys
from pathlib import Path
import holdfast, holdfast.errors
from holdfast import Workspace
from holdfast.workspace.base import Limits
from tests.workspace import pictures
from tests.workspace.pictures import picture
root = Path(sys.argv[1])
"""


def run_python(code: str, root: Path, *, unprivileged: bool = False) -> str:
    """Run ``code`` with ``root`` and the usual names; return what it printed. It must succeed."""
    # Imported first: the code may lie where that user cannot go.
    text = _BEGIN + (_DROP if unprivileged else "") + code
    done = subprocess.run(
        [sys.executable, "-c", text, str(root)],
        cwd=_ROOT if not unprivileged else "/",
        env={**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'src'}", "HOME": "/nowhere"},
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def project_of_nobody() -> Iterator[Path]:
    """Give a directory that a user without rights owns and can reach."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "project")
        root.mkdir()
        if os.geteuid() == 0:
            os.chmod(folder, 0o755)
            os.chown(root, NOBODY, NOBODY)
        try:
            yield root
        finally:
            for where, folders, _ in os.walk(root):
                for name in folders:
                    if not Path(where, name).is_symlink():
                        os.chmod(os.path.join(where, name), 0o700)
