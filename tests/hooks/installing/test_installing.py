"""Hooks go into the agents' settings and out again; everything else in these stays as it was."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import AgentSettingsRefused
from holdfast.hooks.installing import hooks_status, install_hooks, uninstall_hooks
from holdfast.hooks.installing.agents import AGENTS, AgentName, Scope
from holdfast.hooks.installing.settings_file import read_settings

WITH_ENTRIES: list[AgentName] = ["claude-code", "codex", "gemini"]
ALL: list[AgentName] = [*WITH_ENTRIES, "opencode"]
SCOPES: list[Scope] = ["project", "user"]

LAYOUTS = {
    "empty object": "{}",
    "empty object over lines": "{\n}\n",
    "empty file": "",
    "blank file": " \n\n",
    "other settings": '{\n  "model": "x",\n  "permissions": {"allow": ["Bash"]}\n}\n',
    "four spaces": '{\n    "model": "x"\n}',
    "tabs": '{\n\t"model": "x"\n}\n',
    "windows": '{\r\n  "model": "x"\r\n}\r\n',
    "comments": '// mine\n{\n  "model": "x", // this one\n  /* more */\n}\n',
    "byte order mark": '\ufeff{"model": "x"}',
    "one line": '{"model":"x","hooks":{}}',
    "empty hooks over lines": '{\n  "hooks": {\n  }\n}\n',
    "empty event": '{\n  "hooks": {"SessionStart": [], "PreToolUse": []}\n}\n',
    "switches among the hooks": '{"hooks": {"enabled": true, "disabled": ["x"], "note": {}}}',
    "hooks of others": '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "x"}]}],\n'
    '  "Other": [ { "hooks" : [ ] } ] }, "z": [1,2 , 3]}',
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project and a home, both empty."""
    folder, home = tmp_path / "project", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    return folder


def settings_of(agent: AgentName, project: Path, scope: Scope = "project") -> Path:
    return AGENTS[agent].path(scope, project)


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def commands(document: Any, event: str) -> list[str]:
    return [one["command"] for group in document["hooks"][event] for one in group["hooks"]]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("agent", ALL)
def test_a_first_installation_makes_the_file_and_its_removal_leaves_nothing(
    project: Path, agent: AgentName, scope: Scope
) -> None:
    path = settings_of(agent, project, scope)
    assert hooks_status(agent, scope=scope).status == "absent"

    report = install_hooks(agent, scope=scope)

    assert (report.done, report.path, report.backup) == ("installed", path, None)
    assert hooks_status(agent, scope=scope).status == "installed"
    assert uninstall_hooks(agent, scope=scope).done == "removed"
    assert not path.parent.exists() or agent == "opencode"
    assert contents(project.parent) == {}
    assert hooks_status(agent, scope=scope).status == "absent"


@pytest.mark.parametrize("agent", WITH_ENTRIES)
def test_every_event_gets_one_hook_that_names_the_agent(project: Path, agent: AgentName) -> None:
    install_hooks(agent)

    document = json.loads(settings_of(agent, project).read_text())
    assert set(document) == {"hooks"}
    assert list(document["hooks"]) == list(AGENTS[agent].events)
    for event in document["hooks"]:
        (command,) = commands(document, event)
        assert command.endswith(f"hook --agent {agent}")


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("agent", WITH_ENTRIES)
def test_in_and_out_gives_the_same_bytes(project: Path, agent: AgentName, text: str) -> None:
    path = written(settings_of(agent, project), text)
    before = contents(project)

    installed = install_hooks(agent)
    once = contents(project)
    assert install_hooks(agent).done == "present"

    assert installed.done == "installed"
    assert installed.backup is not None
    assert installed.backup.read_bytes() == text.encode()
    assert contents(project) == once
    assert hooks_status(agent).status == "installed"
    assert path.read_bytes() != text.encode()
    uninstall_hooks(agent)
    assert contents(project) == before


@pytest.mark.parametrize("agent", WITH_ENTRIES)
def test_what_was_added_meanwhile_stays_byte_for_byte(project: Path, agent: AgentName) -> None:
    path = written(settings_of(agent, project), '{\n  "model": "x" // fast\n}\n')
    install_hooks(agent)
    text = path.read_text()
    theirs = '{"hooks": [{"type": "command", "command": "lint"}]}'
    at = text.index("[", text.index('"SessionStart"')) + 1
    path.write_text(text[:at] + f" {theirs}," + text[at:])

    uninstall_hooks(agent)

    assert path.read_text() == (
        '{\n  "model": "x", // fast\n  "hooks": {\n    "SessionStart": [ '
        + theirs
        + "\n    ]\n  }\n}\n"
    )


def test_a_handler_beside_ours_in_one_group_stays(project: Path) -> None:
    path = settings_of("claude-code", project)
    install_hooks("claude-code")
    document = json.loads(path.read_text())
    document["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "say done"})
    path.write_text(json.dumps(document))

    uninstall_hooks("claude-code")

    left = json.loads(path.read_text())
    assert left == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}


@pytest.mark.parametrize(
    "older",
    [
        "holdfast hook",
        "/gone/bin/holdfast hook --agent claude-code",
        "'/a place/python' -m holdfast hook",
        "/gone/holdfast hook --agent codex --tenant 'my team'",
    ],
)
def test_an_older_installation_is_brought_up_to_date(project: Path, older: str) -> None:
    install_hooks("claude-code")
    path = settings_of("claude-code", project)
    current = json.loads(path.read_text())
    wanted = current["hooks"]["Stop"][0]["hooks"][0]["command"]
    text = path.read_text().replace(json.dumps(wanted), json.dumps(older))
    # An event that the older one did not know.
    document = json.loads(text)
    del document["hooks"]["SubagentStart"]
    path.write_text(json.dumps(document, indent=2))
    status = hooks_status("claude-code")
    assert (status.status, status.missing) == ("outdated", ("SubagentStart",))

    report = install_hooks("claude-code")

    assert report.done == "updated"
    tail = " --tenant 'my team'" if "tenant" in older else ""
    document = json.loads(path.read_text())
    assert {commands(document, event)[0] for event in document["hooks"]} == {wanted, wanted + tail}
    assert set(document["hooks"]) == set(AGENTS["claude-code"].events)
    assert install_hooks("claude-code").done == "present"


@pytest.mark.parametrize(
    "command",
    ["holdfast brief", "holdfast hook | tee log", "myholdfast hook", "echo holdfast hook", "x 'y"],
)
def test_commands_of_others_are_not_ours(project: Path, command: str) -> None:
    handler = {"hooks": [{"type": "command", "command": command}]}
    text = json.dumps({"hooks": {"Stop": [handler]}})
    path = written(settings_of("claude-code", project), text)

    assert hooks_status("claude-code").status == "absent"
    assert uninstall_hooks("claude-code").done == "absent"
    assert path.read_text() == text


BROKEN = {
    "broken": ('{"hooks": ', "line 1, column 11"),
    "list": ("[]", "something else than a JSON object"),
    "word": ('"text"', "something else than a JSON object"),
    "hooks is a list": ('{"hooks": []}', '"hooks" is not an object'),
    "hooks is null": ('{"hooks": null}', '"hooks" is not an object'),
    "event is an object": ('{"hooks": {"SessionStart": {}}}', '"hooks.SessionStart" is not a list'),
    "deep": ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", "too deeply"),
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("agent", WITH_ENTRIES)
def test_settings_that_cannot_be_understood_are_left_alone(
    project: Path, agent: AgentName, text: str, problem: str
) -> None:
    written(settings_of(agent, project), text)
    before = contents(project)

    with pytest.raises(AgentSettingsRefused, match=re.escape(problem)):
        install_hooks(agent)

    assert contents(project) == before


@pytest.mark.parametrize("agent", WITH_ENTRIES)
def test_what_is_no_text_no_file_or_no_end_is_refused(project: Path, agent: AgentName) -> None:
    path = settings_of(agent, project)
    path.parent.mkdir()
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(AgentSettingsRefused, match="UTF-8"):
        install_hooks(agent)
    path.unlink()
    path.mkdir()
    for act in (install_hooks, uninstall_hooks):
        with pytest.raises(AgentSettingsRefused, match="not a file"):
            act(agent)
    assert hooks_status(agent).status == "unreadable"
    path.rmdir()
    path.symlink_to(path.name)
    with pytest.raises(AgentSettingsRefused, match=r"circle|symbolic links"):
        install_hooks(agent)
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file where a directory should be")
    with pytest.raises(AgentSettingsRefused, match="was not changed"):
        install_hooks(agent)


def install_after(preparation: str, project: Path) -> str:
    """Install in a process of its own that does something first; return what it said."""
    script = (
        "import os, resource, sys\n"
        "from holdfast.hooks.installing import install_hooks\n"
        "from holdfast.errors import AgentSettingsRefused\n"
        f"{preparation}\n"
        "try: install_hooks('claude-code', project_dir=sys.argv[1])\n"
        "except AgentSettingsRefused as error: print(error)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, str(project)], capture_output=True, text=True, check=True
    ).stdout


def test_a_directory_that_may_not_be_written_is_refused(project: Path) -> None:
    path = written(settings_of("claude-code", project), '{"a": 1}')
    for folder in (project, path.parent):
        folder.chmod(0o555)
    for parent in project.parents:
        if parent.owner() == project.owner() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    try:
        said = install_after("if os.getuid() == 0: os.setgid(65534); os.setuid(65534)", project)
    finally:
        for folder in (project, path.parent):
            folder.chmod(0o755)

    assert "was not changed: Permission denied" in said
    assert contents(project) == {".claude/settings.json": b'{"a": 1}'}


@pytest.mark.parametrize("room", [0, 8, 500])
def test_a_disk_that_is_full_leaves_the_settings_as_they_were(project: Path, room: int) -> None:
    path = written(settings_of("claude-code", project), '{"a": 1}')

    said = install_after(f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))", project)

    assert "was not changed: File too large" in said
    assert path.read_text() == '{"a": 1}'
    assert set(contents(project)) <= {
        ".claude/settings.json",
        ".claude/settings.json.holdfast-backup",
    }
    assert install_hooks("claude-code").done == "installed"
    uninstall_hooks("claude-code")
    assert contents(project) == {".claude/settings.json": b'{"a": 1}'}


def test_what_another_program_writes_meanwhile_is_not_replaced(project: Path) -> None:
    path = written(settings_of("claude-code", project), '{"a": 1}')
    stale = read_settings(path)
    path.write_text('{"a": 2}')

    with pytest.raises(AgentSettingsRefused, match="another program"):
        stale.write("{}", keep=False)
    with pytest.raises(AgentSettingsRefused, match="another program"):
        stale.put_back(None)

    assert path.read_text() == '{"a": 2}'


def test_links_permissions_and_names_stay(project: Path, tmp_path: Path) -> None:
    real = written(tmp_path / "dotfiles" / "claude.json", '{"a": 1}')
    real.chmod(0o600)
    path = settings_of("claude-code", project, "user")
    path.parent.mkdir(parents=True)
    path.symlink_to(real)

    report = install_hooks("claude-code", scope="user")

    assert path.is_symlink()
    assert report.path == real
    assert real.stat().st_mode & 0o777 == 0o600
    assert report.backup is not None
    assert report.backup.stat().st_mode & 0o777 == 0o600
    uninstall_hooks("claude-code", scope="user")
    assert path.is_symlink()
    assert real.read_text() == '{"a": 1}'
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_plugin_of_somebody_else_is_not_replaced(project: Path) -> None:
    path = written(settings_of("opencode", project), "export const Mine = async () => ({})\n")

    with pytest.raises(AgentSettingsRefused, match="another plugin"):
        install_hooks("opencode")

    assert uninstall_hooks("opencode").done == "absent"
    assert path.read_text() == "export const Mine = async () => ({})\n"


def test_an_older_plugin_of_ours_is_replaced(project: Path) -> None:
    install_hooks("opencode")
    path = settings_of("opencode", project)
    current = path.read_text()
    path.write_text(current.replace("PATIENCE = 30_000", "PATIENCE = 1"))

    assert hooks_status("opencode").status == "outdated"
    assert install_hooks("opencode").done == "updated"
    assert path.read_text() == current
    assert install_hooks("opencode").done == "present"


def test_the_homes_that_agents_are_told_of_are_used(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {
        "CLAUDE_CONFIG_DIR": "settings.json",
        "CODEX_HOME": "hooks.json",
        "GEMINI_CLI_HOME": ".gemini/settings.json",
        "XDG_CONFIG_HOME": "opencode/plugin/holdfast.js",
    }
    for agent, (variable, inside) in zip(ALL, wanted.items(), strict=True):
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert install_hooks(agent, scope="user").path == tmp_path / variable / inside


def test_the_command_runs_without_a_path(project: Path) -> None:
    install_hooks("claude-code")
    document = json.loads(settings_of("claude-code", project).read_text())
    (command,) = commands(document, "Stop")
    words = shlex.split(command)
    assert os.path.isabs(words[0])

    said = subprocess.run(
        [*words[: words.index("hook")], "--version"],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.startswith("holdfast")


def test_the_plain_name_is_used_where_the_path_leads_to_this_program(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path(sys.executable).parent / "holdfast"
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "holdfast").symlink_to(script)
    monkeypatch.setenv("PATH", str(bin_dir))
    install_hooks("claude-code")
    document = json.loads(settings_of("claude-code", project).read_text())
    assert commands(document, "Stop") == ["holdfast hook --agent claude-code"]

    (bin_dir / "holdfast").unlink()
    written(bin_dir / "holdfast", "#!/bin/sh\n").chmod(0o755)
    assert install_hooks("claude-code").done == "updated"
    document = json.loads(settings_of("claude-code", project).read_text())
    assert commands(document, "Stop") == [f"{shlex.quote(str(script))} hook --agent claude-code"]


def test_a_program_that_is_gone_shows_in_the_status(project: Path) -> None:
    install_hooks("gemini")
    path = settings_of("gemini", project)
    document = json.loads(path.read_text())
    for groups in document["hooks"].values():
        groups[0]["hooks"][0]["command"] = "/gone/holdfast hook --agent gemini"
    path.write_text(json.dumps(document))

    status = hooks_status("gemini")

    assert status.status == "outdated"
    assert status.problem is not None
    assert "/gone/holdfast" in status.problem
