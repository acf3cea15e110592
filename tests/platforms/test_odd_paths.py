"""Paths with spaces, quotes and letters of any script, from the command line to the files that come back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

FOLDER = "Mein Projekt – ñandú 项目"
FILES = {
    "a file with spaces.txt": b"one",
    "über uns/naïve café.md": b"two",
    "日本語/ファイル.txt": "三".encode(),
    'it\'s "quoted" & $HOME `x`.txt': b"four",
    " leading and trailing ": b"five",
    "emoji 🦀/%41 #1?.txt": b"six",
    unicodedata.normalize("NFD", "é decomposed"): b"seven",
    "-dash --first": b"eight",
}


def holdfast(folder: Path, *arguments: str, stdin: str = "") -> Any:
    """Run a command in a process of its own and return its JSON."""
    name, *rest = arguments
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", name, "--json", *rest],
        cwd=folder,
        input=stdin.encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, b""), (arguments, done)
    return json.loads(done.stdout)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not {".agents", ".git"} & set(path.relative_to(folder).parts)
    }


@pytest.fixture(params=["with git", "without git"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "outer dir ü" / FOLDER
    folder.mkdir(parents=True)
    if request.param == "with git":
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.mark.row("S1-90")
def test_files_of_any_name_are_saved_and_come_back(project: Path, tmp_path: Path) -> None:
    holdfast(project, "init", "--no-gitignore")
    saved = holdfast(
        project, "save", "vor dem Umbau ✓", "--agent-type", "wörker", "--state", "-",
        stdin=json.dumps({"pfad": str(project)}),
    )["checkpoint"]  # fmt: skip
    before = contents(project)
    assert before == FILES

    for path in list(project.rglob("*.txt")):
        path.write_bytes(b"spoilt")
    (project / "über uns" / "naïve café.md").unlink()
    (project / "neu ✗.txt").write_bytes(b"new")
    spoilt = contents(project)

    # From a subdirectory, and a part only, named as it is typed there.
    inner = project / "über uns"
    holdfast(inner, "rollback", saved["name"], "--yes", "--path", "naïve café.md")
    assert (inner / "naïve café.md").read_bytes() == b"two"
    assert (project / "a file with spaces.txt").read_bytes() == b"spoilt"
    holdfast(project, "undo", "--yes")
    assert contents(project) == spoilt

    holdfast(project, "rollback", saved["name"], "--yes")
    assert contents(project) == FILES
    holdfast(project, "undo", "--yes")
    assert contents(project) == spoilt
    shown = subprocess.run(
        [sys.executable, "-m", "holdfast", "show", f"{saved['name']}:日本語/ファイル.txt"],
        cwd=project,
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert shown.stdout == "三".encode()

    # Away in a file, into another place that is no easier to spell.
    bundle = tmp_path / "bündel für später.tar"
    session = holdfast(project, "sessions")["sessions"][0]["id"]
    holdfast(project, "export", session, "-o", str(bundle))
    other = tmp_path / "другое место (2)"
    other.mkdir()
    holdfast(other, "init", "--no-gitignore")
    holdfast(other, "import", str(bundle))
    holdfast(other, "rollback", saved["name"], "--yes")
    assert contents(other) == FILES


@pytest.mark.row("S1-90")
def test_a_program_runs_and_a_database_lies_under_such_a_path(project: Path) -> None:
    database = project / "meine daten" / "sitzungen ü.db"
    program = "import pathlib; pathlib.Path('ergebnis ✓.txt').write_text('done')"
    ran = holdfast(
        project, "run", "--url", str(database), "--", sys.executable, "-c", program
    )["run"]  # fmt: skip
    assert ran["exit_code"] == 0
    assert database.is_file()
    assert (project / "ergebnis ✓.txt").read_text() == "done"
    found = holdfast(project, "log", "--url", str(database))["checkpoints"]
    assert found
    assert holdfast(project, "verify", "--url", str(database))["verify"]["damaged"] == []
    holdfast(project, "erase", "--all", "--yes", "--url", str(database))
    assert holdfast(project, "sessions", "--url", str(database))["sessions"] == []
