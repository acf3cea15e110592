"""Programs in processes of their own: the examples, and workers that race or are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.pages import ROOT


def run_example(name: str, folder: Path, *arguments: str, status: int = 0) -> str:
    """Run an example as its first lines say, and return what it printed."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name, *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout.strip()


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a module of the tests as a program, with pipes to talk to it."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def race(programs: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Let programs that have said "ready" go on at once; return what each of them says then."""
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    said = [program.communicate(timeout=120)[0].strip() for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs)
    return said
