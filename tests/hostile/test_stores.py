"""A project may come with settings. Those do not choose whose server gets what is saved in it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.autosave.fallback import FallbackLog
from holdfast.config import load_config
from holdfast.errors import InvalidConfiguration, StoreNotTrusted
from holdfast.manager import SyncCheckpointManager
from holdfast.sessions.project import prepare_project
from tests.cli.conftest import CommandLine
from tests.hooks.conftest import run_hook
from tests.hostile.test_repositories import commands
from tests.workspace.pictures import commit_all, make_repository


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "clone"
    make_repository(root)
    (root / "secret.txt").write_text("mine\n")
    commit_all(root)
    monkeypatch.chdir(root)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    return root


def name_store(root: Path, url: str) -> None:
    (root / ".agents").mkdir(exist_ok=True)
    (root / ".agents" / "holdfast.toml").write_text(f"url = {json.dumps(url)}\n")


@pytest.fixture
def stranger(clone: Path) -> Iterator[socket.socket]:
    """A server that the project's settings name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        name_store(clone, f"postgresql://me:hunter2@127.0.0.1:{port}/loot?connect_timeout=2")
        yield server


def was_called(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_no_command_hook_or_program_calls_the_server_that_a_clone_names(
    clone: Path, stranger: socket.socket
) -> None:
    cli = CommandLine(clone)
    for words in commands(clone):
        if words[0] != "hook":
            cli(*words)
            assert not was_called(stranger), words
    event = {"hook_event_name": "SessionStart", "session_id": "a1", "cwd": str(clone)}
    done = run_hook("--agent", "claude-code", cwd=clone, stdin=json.dumps(event).encode())
    assert (done.returncode, done.stdout) == (0, b"")
    for open_it in (SessionManager.open, SyncCheckpointManager):
        with pytest.raises(StoreNotTrusted):
            open_it(project_dir=clone / ".agents")
    assert not was_called(stranger)
    # What the hook could not do is written down.
    assert FallbackLog(clone).entries()[-1].code == "store_not_trusted"


def test_the_server_is_a_live_one(clone: Path, stranger: socket.socket) -> None:
    cli = CommandLine(clone)
    assert cli("init", "--trust").code == 6
    assert was_called(stranger)


def test_people_are_told_which_server_that_is_and_what_to_do(
    clone: Path, stranger: socket.socket
) -> None:
    cli = CommandLine(clone)
    refused = cli("save", "one", "--agent-type", "x", "--json")
    assert (refused.code, refused.out) == (6, "")
    assert refused.error["code"] == "store_not_trusted"
    said = refused.error["message"]
    assert str(clone / ".agents" / "holdfast.toml") in said
    assert "postgresql://me@127.0.0.1:" in said
    assert "hunter2" not in said
    assert "Nothing was opened, sent or lost" in said
    assert "holdfast init --trust" in said
    found = {one["name"]: one for one in json.loads(cli("doctor", "--json").out)["doctor"]}
    assert "holdfast init --trust" in found["store"]["text"]
    assert cli("status").code == 6
    assert "hunter2" not in cli("doctor").out + cli("status").out + cli("status").err


def test_ones_own_store_is_confirmed_once_and_then_used_wherever_it_is_named(
    clone: Path, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_store(clone, postgres_url)
    cli = CommandLine(clone)
    assert cli("save", "one", "--agent-type", "x", "--state", "-", stdin="{}").code == 6
    assert cli.json("init", "--trust")["project"]["database"] == "prepared"
    cli.ok("save", "one", "--agent-type", "x", "--state", "-", stdin="{}")
    with SessionManager.open(postgres_url, workspace=False) as manager:
        [session] = manager.list_sessions()
    assert not (clone / ".agents" / "sessions.db").exists()

    other = tmp_path / "other"
    make_repository(other)
    name_store(other, postgres_url)
    monkeypatch.chdir(other)
    assert [one["id"] for one in cli.json("sessions")["sessions"]] == [session.id]
    # One letter more is another store.
    name_store(other, f"{postgres_url}x")
    assert cli("sessions").code == 6
    # So is what another user of the machine has confirmed.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert cli("sessions", "--project-dir", str(clone)).code == 6


def test_what_the_user_names_needs_no_confirmation(
    clone: Path, stranger: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine(clone)
    mine = str(tmp_path / "mine.db")
    cli.ok("save", "one", "--agent-type", "x", "--state", "-", "--url", mine, stdin="{}")
    monkeypatch.setenv("HOLDFAST_URL", mine)
    assert [one["name"] for one in cli.json("log")["checkpoints"]] == ["one"]
    assert not was_called(stranger)


@pytest.mark.parametrize(
    "url",
    [
        "../outside.db", "{outside}", "~/outside.db", "sqlite:///../outside.db", "sqlite:///{outside}",
        "sqlite:///%2e%2e/outside.db", "link/outside.db", "link.db", "postgres:///outside", "a\0b",
        "host=127.0.0.1 dbname=x:y",
    ],
)  # fmt: skip
def test_a_clone_names_no_file_outside_of_itself(clone: Path, tmp_path: Path, url: str) -> None:
    outside = tmp_path / "outside.db"
    (clone / "link").symlink_to(tmp_path)
    (clone / "link.db").symlink_to(outside)
    name_store(clone, url.format(outside=outside))
    with pytest.raises(StoreNotTrusted):
        SessionManager.open(project_dir=clone)
    assert not outside.exists()


@pytest.mark.parametrize(
    "url", ["data.db", "sqlite:///.agents/mine.db?compress=off", "{root}/data.db", "memory:"]
)
def test_a_file_inside_of_the_project_needs_no_confirmation(clone: Path, url: str) -> None:
    name_store(clone, url.format(root=clone))
    with SessionManager.open(project_dir=clone) as manager:
        assert manager.list_sessions() == []


def test_without_a_place_for_it_nothing_is_confirmed(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_store(clone, "../outside.db")
    (tmp_path / "state").write_text("no directory\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(InvalidConfiguration, match="name it with HOLDFAST_URL instead"):
        prepare_project(clone, trust=True)
    assert not load_config(clone).trusted
    assert not os.path.lexists(tmp_path / "outside.db")


@pytest.fixture
def private(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one's own beside the clone, with a checkpoint."""
    project = clone.with_name("private")
    project.mkdir()
    with monkeypatch.context() as there:
        there.chdir(project)
        cli = CommandLine(project)
        cli.ok("init")
        cli.ok("save", "secret plan", "--agent-type", "me", "--state", "-", stdin="{}")
    return project


def what_lies_in(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


@pytest.mark.parametrize("linked", [".agents", ".agents/sessions.db"])
def test_a_link_in_a_clone_does_not_lead_into_another_project(
    clone: Path, private: Path, linked: str
) -> None:
    link = clone / linked
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(private / linked)
    before = what_lies_in(private)
    cli = CommandLine(clone)
    for words in (["log"], ["status"], ["save", "one", "--agent-type", "x"], ["init"]):
        refused = cli(*words)
        assert refused.code == 6, words
        assert "secret plan" not in refused.out
    event = {"hook_event_name": "SessionStart", "session_id": "a1", "cwd": str(clone)}
    done = run_hook("--agent", "claude-code", cwd=clone, stdin=json.dumps(event).encode())
    assert (done.returncode, done.stdout) == (0, b"")
    assert what_lies_in(private) == before
    # Whose both are can say so.
    cli.ok("init", "--trust")
    assert "secret plan" in cli.ok("log")


def test_hooks_leave_nothing_where_a_link_leads(clone: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (clone / ".agents").mkdir(exist_ok=True)
    (clone / ".agents" / "hooks").symlink_to(other)
    for name in ("SessionStart", "UserPromptSubmit", "Stop"):
        event = {"hook_event_name": name, "session_id": "a1", "cwd": str(clone), "prompt": "mine"}
        done = run_hook("--agent", "claude-code", cwd=clone, stdin=json.dumps(event).encode())
        assert done.returncode == 0
    assert os.listdir(other) == []
    assert "is a link" in FallbackLog(clone).entries()[-1].message


@pytest.mark.parametrize("name", ["holdfast.toml", "holdfast-errors.log"])
@pytest.mark.parametrize("kind", ["endless", "pipe"])
def test_what_is_no_file_is_neither_read_nor_waited_for(clone: Path, name: str, kind: str) -> None:
    path = clone / ".agents" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    told = CommandLine(clone)("status")
    assert "not a regular file" in told.out + told.err


@pytest.mark.parametrize("ending", ["jsonl", "taken", "json", "lock"])
def test_a_hook_waits_for_no_pipe(clone: Path, ending: str) -> None:
    folder = clone / ".agents" / "hooks"
    folder.mkdir(parents=True)
    os.mkfifo(folder / f"claude-code-a1.{ending}")
    for name in ("UserPromptSubmit", "PostToolUse", "Stop"):
        event = {"hook_event_name": name, "session_id": "a1", "cwd": str(clone), "prompt": "mine"}
        given = json.dumps({**event, "tool_name": "Bash"}).encode()
        assert run_hook("--agent", "claude-code", cwd=clone, stdin=given).returncode == 0


def test_a_key_without_an_end_and_a_pipe_for_a_handoff_are_refused(clone: Path) -> None:
    cli = CommandLine(clone)
    cli.ok("init")
    key = clone / ".agents" / "redaction.key"
    key.unlink(missing_ok=True)
    key.symlink_to("/dev/zero")
    secret = json.dumps({"note": "ghp_" + "a1B2c3D4e5F6" * 3})
    refused = cli("save", "one", "--agent-type", "x", "--state", "-", stdin=secret)
    assert (refused.code, "not a regular file" in refused.err) == (2, True)
    key.unlink()
    cli.ok("save", "one", "--agent-type", "x", "--state", "-", stdin="{}")
    os.mkfifo(clone / "HANDOFF.md")
    refused = cli("handoff")
    assert refused.code != 0
    assert "not a regular file" in refused.err
