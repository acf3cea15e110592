"""``holdfast hooks``: what it does, says and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_hooks_are_installed_shown_and_removed(cli: CommandLine) -> None:
    said = cli.ok("hooks", "install", "claude-code")
    assert ".claude/settings.json: installed" in said
    assert "trust the folder" in said

    assert "there already" in cli.ok("hooks", "install", "claude-code")
    lines = cli.ok("hooks", "status").splitlines()
    assert len(lines) == 1 + 4 * 2
    assert lines[1].split()[:3] == ["claude-code", "project", "installed"]
    assert lines[2].split()[:3] == ["claude-code", "user", "absent"]

    assert "settings.json: removed" in cli.ok("hooks", "uninstall", "claude-code")
    assert list(cli.project.iterdir()) == []
    assert "nothing changed" in cli.ok("hooks", "uninstall", "claude-code")


def test_no_name_of_an_agent_is_broken_in_the_help(cli: CommandLine) -> None:
    out = cli.ok("hooks", "--help")
    assert "[AGENT]" in out.splitlines()[0]
    assert "claude-\n" not in out


def test_programs_get_the_same_as_json(cli: CommandLine) -> None:
    report = cli.json("hooks", "install", "codex", "--scope", "user")["hooks"]
    assert report["done"] == "installed"
    assert report["path"].endswith("/home/.codex/hooks.json")
    assert report["command"].endswith("hook --agent codex")
    assert "/hooks" in report["wants"]

    (status,) = cli.json("hooks", "status", "codex", "--scope", "user")["hooks"]
    assert (status["status"], status["missing"]) == ("installed", [])


def test_a_copy_is_kept_and_named(cli: CommandLine) -> None:
    folder = cli.project / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text('{"a": 1}')

    assert "settings.json.holdfast-backup: as it was before" in cli.ok("hooks", "install", "gemini")
    assert json.loads((folder / "settings.json.holdfast-backup").read_text()) == {"a": 1}


def test_the_project_is_found_from_inside(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("init")
    inside = cli.project / "src" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)

    cli.ok("hooks", "install", "opencode")

    assert (cli.project / ".opencode" / "plugin" / "holdfast.js").is_file()


def test_what_cannot_be_done_is_said(cli: CommandLine) -> None:
    assert "which agent?" in cli("hooks", "install").err
    assert cli("hooks", "install", "emacs").code == 2
    folder = cli.project / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text("[]")

    refused = cli("hooks", "--json", "install", "claude-code")

    assert refused.code == 2
    assert refused.error["code"] == "agent_settings_refused"
    assert (folder / "settings.json").read_text() == "[]"
    assert "unreadable" in cli.ok("hooks", "status", "claude-code")
