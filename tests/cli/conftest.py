"""Run commands inside this process, in a project of their own; a few tests start real processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import SessionManager
from holdfast.cli import holdfast

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        found = json.loads(self.err)["error"]
        assert isinstance(found, dict)
        return found


class CommandLine:
    """``cli("log", "--limit", "1")``; ``cli.ok`` insists on success and ``cli.json`` parses."""

    def __init__(self, project: Path) -> None:
        self.project = project

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Answer:
        result = CliRunner().invoke(holdfast, arguments, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def ok(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        answer = self(*arguments, stdin=stdin)
        assert (answer.code, answer.err) == (0, "")
        return answer.out

    def json(self, *arguments: str, stdin: str | bytes | None = None) -> Any:
        name, *rest = arguments
        return json.loads(self.ok(name, "--json", *rest, stdin=stdin))

    def save(self, name: str, state: Any, *arguments: str) -> Any:
        options = ("--state", "-", "--agent-type", "tester", *arguments)
        return self.json("save", *options, "--", name, stdin=json.dumps(state))["checkpoint"]


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_URL", "HOLDFAST_TENANT", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    # For the processes that a test starts: the same sources, whatever their working directory.
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "src"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, which is the working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cli(project: Path) -> CommandLine:
    return CommandLine(project)


@pytest.fixture
def manager(project: Path) -> Iterator[SessionManager]:
    """The library on the same database as the commands."""
    with SessionManager.open(project_dir=project) as manager:
        yield manager


def run_process(
    *arguments: str, cwd: Path, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run ``holdfast`` as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )
