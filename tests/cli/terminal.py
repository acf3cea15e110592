"""A real terminal for the commands under test: what they draw, and answers that are typed."""

import os
import pty
import subprocess
import sys
from pathlib import Path


def on_terminal(
    *arguments: str,
    cwd: Path,
    typed: str | None = None,
    code: int = 0,
    columns: int = 120,
    program: str | None = None,
    **environment: str,
) -> str:
    """Run ``holdfast`` with a terminal for stdout and stderr, and return what it drew.

    With ``typed`` it is a terminal for stdin too, on which that was typed. ``program`` is run instead.
    """
    ours, theirs = pty.openpty()
    settings = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50", **environment}
    command = ["-c", program] if program is not None else ["-m", "holdfast"]
    process = subprocess.Popen(
        [sys.executable, *command, *arguments],
        cwd=cwd,
        stdin=theirs if typed is not None else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **settings},
    )
    os.close(theirs)
    if typed:
        os.write(ours, typed.encode())
    drawn = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux reports the end of a terminal
            break
        if not part:
            break
        drawn += part
    os.close(ours)
    assert process.wait(60) == code, drawn.decode(errors="replace")
    return drawn.decode()
