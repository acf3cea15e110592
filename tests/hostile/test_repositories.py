"""A cloned project, and every command that people and agents use there: nothing of the project runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from click.testing import CliRunner

from holdfast.cli import holdfast
from tests.workspace.pictures import commit_all, git, make_repository
from tests.workspace.test_hostile import HOOKS, hostile_config, make_hostile

Bait: TypeAlias = Callable[[Path, Path], None]
BAITS: Final[dict[str, Bait]] = {}


def bait(function: Bait) -> Bait:
    BAITS[function.__name__] = function
    return function


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program that leaves a mark when it is run."""
    path = tmp_path / "trap.sh"
    path.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{tmp_path}/executed'\nexec cat\n")
    path.chmod(0o755)
    return path


def executed(trap: Path) -> str:
    trace = trap.with_name("executed")
    return trace.read_text() if trace.exists() else ""


@bait
def settings_hooks_and_filters(root: Path, trap: Path) -> None:
    make_hostile(root / ".git", trap)
    (root / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")


@bait
def settings_that_are_included(root: Path, trap: Path) -> None:
    (root / "evil.cfg").write_text(hostile_config(trap))
    with (root / ".git" / "config").open("a") as config:
        config.write(f'[includeIf "gitdir:{root}/"]\n\tpath = {root}/evil.cfg\n')
        config.write(f'[includeIf "onbranch:**"]\n\tpath = {root}/evil.cfg\n')
    (root / ".gitattributes").write_text("* filter=evil diff=evil\n")


@bait
def hooks_elsewhere(root: Path, trap: Path) -> None:
    (root / "hooks").mkdir()
    for name in HOOKS:
        (root / "hooks" / name).write_bytes(trap.read_bytes())
        (root / "hooks" / name).chmod(0o755)
    git(root, "config", "core.hooksPath", str(root / "hooks"))


@bait
def a_repository_that_is_elsewhere(root: Path, trap: Path) -> None:
    elsewhere = trap.parent / "elsewhere.git"
    (root / ".git").rename(elsewhere)
    make_hostile(elsewhere, trap)
    (root / ".git").write_text(f"gitdir: {elsewhere}\n")


@bait
def a_worktree_whose_settings_are_its_own(root: Path, trap: Path) -> None:
    git(root, "config", "extensions.worktreeConfig", "true")
    (root / ".git" / "config.worktree").write_text(hostile_config(trap))
    (root / ".gitattributes").write_text("* filter=evil\n")


@bait
def objects_elsewhere(root: Path, trap: Path) -> None:
    other = trap.parent / "other"
    make_repository(other)
    make_hostile(other / ".git", trap)
    info = root / ".git" / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(f"{other}/.git/objects\n")
    git(root, "config", "core.alternateRefsCommand", str(trap))


@bait
def modules_from_anywhere(root: Path, trap: Path) -> None:
    (root / ".gitmodules").write_text(
        f'[submodule "x"]\n\tpath = x\n\turl = ext::{trap}\n\tupdate = !{trap}\n'
    )
    inside = root / "x"
    make_repository(inside)
    (inside / "n.txt").write_text("nested\n")
    commit_all(inside)
    make_hostile(inside / ".git", trap)
    (inside / ".gitattributes").write_text("* filter=evil\n")
    git(root, "config", "submodule.recurse", "true")
    git(root, "config", "submodule.x.update", f"!{trap}")


@bait
def a_watcher_of_files(root: Path, trap: Path) -> None:
    git(root, "config", "core.fsmonitor", str(trap))
    git(root, "config", "core.sshCommand", str(trap))
    git(root, "config", "core.untrackedCache", "true")


@bait
def settings_of_ours_and_of_agents(root: Path, trap: Path) -> None:
    """Whatever a project says about programs in places that we read."""
    folder = root / ".agents"
    folder.mkdir(exist_ok=True)
    (folder / "holdfast.toml").write_text(
        "[hooks]\nread_only = ['*']\n[handoff]\ntemplate = 't.md'\n"
    )
    (root / "t.md").write_text("{issue.__class__.__init__.__globals__}\n")
    (root / ".claude").mkdir()
    hook = {"hooks": [{"type": "command", "command": f"{trap} holdfast hook"}]}
    (root / ".claude" / "settings.json").write_text(json.dumps({"hooks": {"Stop": [hook]}}))
    for name in ("sitecustomize.py", "holdfast.py", "orjson.py", "apsw.py"):
        (root / name).write_text(f"import os\nos.system('{trap} < /dev/null')\n")


def commands(root: Path) -> list[list[str]]:
    event = {
        "hook_event_name": "PreToolUse",
        "session_id": "s",
        "cwd": str(root),
        "tool_name": "Bash",
    }
    return [
        ["init"], ["save", "one", "--agent-type", "tester"], ["status"], ["log"], ["show", "one"],
        ["diff", "one"], ["save", "two"], ["diff", "one", "two"], ["brief"], ["gate"], ["usage"],
        ["rollback", "one", "--yes"], ["undo", "--yes"], ["rollback", "one", "--yes", "--move-head"],
        ["verify"], ["gc"], ["doctor"], ["pause"], ["resume"], ["handoff", "--write"],
        ["hooks", "install", "claude-code"], ["hooks", "status", "claude-code"], ["recover"],
        ["hook", "--agent", "claude-code", json.dumps(event)], ["export", "-o", str(root / "s.tar")],
    ]  # fmt: skip


Run: TypeAlias = Callable[[list[str], str], int]


def in_this_process(words: list[str], given: str) -> int:
    done = CliRunner().invoke(holdfast, words, input=given)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code


def in_a_process_of_its_own(words: list[str], given: str) -> int:
    # As the installed program starts: without the working directory among its modules.
    start = [sys.executable, "-P", "-m", "holdfast", *words]
    done = subprocess.run(
        start, input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode


def tour(name: str, run: Run, tmp_path: Path, trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "project"
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n")
    (root / "a.txt").write_text("one\n")
    commit_all(root)
    BAITS[name](root, trap)
    (root / "a.txt").write_text("two\n")
    monkeypatch.chdir(root)
    ended = {}
    for words in commands(root):
        if words[0] == "diff" or words[:2] == ["save", "two"]:
            (root / "b.txt").write_text(f"{words}\n")
        given = words.pop() if words[0] == "hook" else ""
        ended[" ".join(words)] = run(words, given)
    assert executed(trap) == ""
    # Most of it works all the same.
    assert [ended[one] for one in ("save one --agent-type tester", "save two", "log")] == [0, 0, 0]
    assert sum(code == 0 for code in ended.values()) > len(ended) // 2


@pytest.mark.parametrize("name", BAITS)
def test_no_command_runs_anything_of_a_hostile_repository(
    name: str, tmp_path: Path, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tour(name, in_this_process, tmp_path, trap, monkeypatch)


@pytest.mark.slow
def test_no_process_finds_modules_of_a_hostile_repository(
    tmp_path: Path, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tour("settings_of_ours_and_of_agents", in_a_process_of_its_own, tmp_path, trap, monkeypatch)


def test_the_trap_is_a_live_one(tmp_path: Path, trap: Path) -> None:
    root = tmp_path / "project"
    make_repository(root)
    settings_hooks_and_filters(root, trap)
    (root / "a.txt").write_text("one\n")
    git(root, "add", "a.txt", ok=(0, 1, 128))
    assert executed(trap) != ""
