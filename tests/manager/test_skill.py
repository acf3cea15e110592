"""The skill as an agent gets it: installed, importable, and every command in it works."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.manager.skill import SKILL_DIR, install_skill, skill_files
from tests.cli.conftest import REPOSITORY, CommandLine
from tests.manager.conftest import files_of

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ("references/CHECKPOINT-STRATEGY.md", "references/ROLLBACK-PROCEDURES.md", "SKILL.md")


@pytest.fixture
def skill(project: Path) -> Path:
    return install_skill(project_dir=project / "src").directory


def environment() -> dict[str, str]:
    """The surroundings of an agent whose Python has Holdfast."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY / "src")}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Shell:
    """Runs commands of the skill in this process, which is quicker than one process each."""

    def __init__(self, skill: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.chdir(skill)
        monkeypatch.setenv("PATH", environment()["PATH"])

    def __call__(self, command: str) -> int:
        program, *arguments = shlex.split(command)
        if program == "holdfast":
            return CommandLine(Path.cwd())(*arguments).code
        if program != "python":
            return subprocess.run(
                [program, *arguments], check=False, capture_output=True
            ).returncode
        self._monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(arguments[0], run_name="__main__")
        assert isinstance(ended.value.code, int)
        return ended.value.code


def blocks(skill: Path, page: str, language: str) -> list[str]:
    text = (skill / page).read_text(encoding="utf-8")
    return [block for found, block in BLOCK.findall(text) if found == language]


@pytest.mark.row("S4-31", "S4-33")
@pytest.mark.parametrize("page", PAGES)
def test_every_command_works(
    project: Path, skill: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [line for block in blocks(skill, page, "bash") for line in block.splitlines()]
    assert len(commands) >= 8
    before = files_of(project)
    shell = Shell(skill, monkeypatch)
    failed = [line for line in commands if not line.startswith("cd ") and shell(line) != 0]
    assert failed == []
    assert files_of(project) == before, "whoever follows a page finds the project as it was"
    names = {script.name for script in (skill / "scripts").glob("[a-z]*.py")}
    assert all(name in (skill / "SKILL.md").read_text() for name in names)


@pytest.mark.row("S4-31", "S4-33")
@pytest.mark.parametrize("page", ["references/CHECKPOINT-STRATEGY.md", "SKILL.md"])
def test_the_python_works(project: Path, skill: Path, page: str) -> None:
    lines = "".join(blocks(skill, page, "python")).splitlines()
    body = "".join(f"    {line}\n" for line in lines if not line.startswith("from "))
    program = (
        "import asyncio, sys\n"
        "from scripts.checkpoint_manager import CheckpointManager\n"
        "async def main(project_dir):\n"
        "    manager = CheckpointManager(project_dir)\n"
        f"{body}\n"
        "    print(len(await manager.list_checkpoints()))\n"
        "asyncio.run(main(sys.argv[1]))\n"
    )
    done = run(skill, "-c", program, str(project))
    assert done.stderr == ""
    assert int(done.stdout) >= 1


@pytest.mark.row("S4-32")
def test_the_four_scripts_import_in_the_layout_of_the_skill(project: Path, skill: Path) -> None:
    program = (
        "from scripts.checkpoint_manager import CheckpointManager\n"
        "from scripts.git_snapshot import capture_git_state\n"
        "from scripts.state_snapshot import capture_state\n"
        "from scripts.rollback_handler import Guard, Rollback\n"
        "import holdfast, json\n"
        "assert CheckpointManager is holdfast.CheckpointManager\n"
        "print(json.dumps([capture_git_state(), capture_state()]))\n"
    )
    done = run(skill, "-c", program)
    assert done.stderr == ""
    git_state, state = json.loads(done.stdout)
    assert git_state["branch"] == "main"
    assert state["feature_state"]["completed"] == ["auth-001", "auth-002"]
    assert state["progress_files"] == {"claude-progress.txt": "session 5\n"}


@pytest.mark.row("S4-27")
def test_a_script_that_escalates_rolls_back_reports_and_fails(
    project: Path, skill: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_of(project)
    spoil = "open('../../../rubbish', 'w').close(); raise SystemExit(3)"
    handler = ("scripts/rollback_handler.py", "run", "hard")
    done = run(skill, *handler, "--on-failure", "escalate", "--", sys.executable, "-c", spoil)
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, done.stdout, error["code"]) == (10, "", "escalated")
    assert [one["path"] for one in error["report"]["rollback"]["changes"]] == ["rubbish"]
    assert files_of(project) == before
    shell = Shell(skill, monkeypatch)
    for command, status, code in (
        (shlex.join(["python", *handler, "--", sys.executable, "-c", spoil]), 3, "command_failed"),
        ("python scripts/rollback_handler.py to nothing", 3, "checkpoint_not_found"),
        ("python scripts/rollback_handler.py run x -- /no/such/program", 1, "system"),
        ("python scripts/checkpoint_manager.py create x --type weekly", 2, "usage"),
    ):
        assert shell(command) == status
        assert json.loads(capsys.readouterr().err)["error"]["code"] == code
    assert files_of(project) == before


@pytest.mark.row("S4-33")
def test_the_front_matter_says_what_the_skill_is() -> None:
    text = dict(skill_files())["SKILL.md"].decode()
    front = text.split("---\n")[1]
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert fields.keys() == {"name", "description", "version", "category", "layer"}
    assert fields["name"] == "checkpoint-manager"
    assert re.fullmatch(r"[a-z0-9-]{1,64}", fields["name"])
    assert 0 < len(fields["description"]) <= 1024
    assert re.fullmatch(r"\d+\.\d+\.\d+", fields["version"])
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target in dict(skill_files())


@pytest.mark.row("S4-33")
def test_installing_again_changes_nothing_and_edits_are_kept(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "src")
    cli = CommandLine(project)

    def install(*options: str) -> dict[str, str]:
        report = cli.json("skill", "install", *options)["skill"]
        assert report["directory"] == str(project / SKILL_DIR)
        return {one["path"]: one["status"] for one in report["files"]}

    assert set(install().values()) == {"created"}
    assert set(install().values()) == {"present"}
    page = project / SKILL_DIR / "SKILL.md"
    shipped = page.read_bytes()
    page.write_text("mine\n")
    (project / SKILL_DIR / "references/CHECKPOINT-STRATEGY.md").unlink()
    assert {name: done for name, done in install().items() if done != "present"} == {
        "SKILL.md": "kept",
        "references/CHECKPOINT-STRATEGY.md": "created",
    }
    assert page.read_text() == "mine\n"
    assert "SKILL.md was edited; --force" in cli.ok("skill", "install")
    assert install("--force")["SKILL.md"] == "updated"
    assert page.read_bytes() == shipped


def test_what_nobody_edited_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "skills" / "mine"
    install_skill(target)
    older = {**dict(skill_files()), "SKILL.md": b"an older page\n"}
    monkeypatch.setattr("holdfast.manager.skill.skill_files", lambda: iter(older.items()))
    assert install_skill(target).files["SKILL.md"] == "updated"
    monkeypatch.undo()
    assert install_skill(target).files["SKILL.md"] == "updated"


def test_a_link_in_the_place_of_a_file_is_not_written_through(tmp_path: Path) -> None:
    dear = tmp_path / "dear.md"
    dear.write_text("dear\n")
    target = tmp_path / "skill"
    target.mkdir()
    (target / "SKILL.md").symlink_to(dear)
    assert install_skill(target).files["SKILL.md"] == "kept"
    assert install_skill(target, force=True).files["SKILL.md"] == "updated"
    assert dear.read_text() == "dear\n"
    assert not (target / "SKILL.md").is_symlink()


def test_a_place_that_cannot_be_written_is_an_input_error(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "file").write_text("x")
    answer: Any = CommandLine(project)("skill", "install", "--dir", "file/below", "--json")
    assert answer.code == 2
    assert answer.error["code"] == "invalid_configuration"
