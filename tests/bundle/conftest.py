"""A session with some of everything, and the means to look at it from outside."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from psycopg import sql

from holdfast import SessionManager
from holdfast.model import NewSession, NewWrite
from holdfast.sessions import Session
from holdfast.state.encoder import StateEncoder
from holdfast.state.tags import tagged
from tests.postgres_server import PostgresServer

Open: TypeAlias = Callable[..., SessionManager]

STATE: dict[str, Any] = {
    "conversation_history": [
        {"role": "user", "content": f"{number} " + "words " * 40} for number in range(400)
    ],
    "variable_state": {"exact": (1, 2.5, b"\x00\xff", {3, 4}), "big": 2**90},
    "task_state": {"tasks": [{"id": "one", "title": "First", "status": "completed"}]},
    "page": "ü" * 50_000,
}


def tree_digest(folder: Path) -> str:
    """Return a digest of all files below a directory: names, permissions, bytes and links."""
    summed = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if inside.parts[0] in (".agents", ".git"):
            continue
        what = os.readlink(path).encode() if path.is_symlink() else b""
        if path.is_file() and not path.is_symlink():
            what = path.read_bytes()
        mode = 0 if path.is_symlink() else path.stat().st_mode
        summed.update(f"{inside}\0{mode:o}\0{len(what)}\0".encode() + what)
    return summed.hexdigest()


def state_digest(state: dict[str, Any]) -> str:
    """Return a digest of a state that knows nothing of how it is stored."""
    return hashlib.sha256(json.dumps(tagged(state, "$"), sort_keys=True).encode()).hexdigest()


def write_files(folder: Path, round_: int) -> None:
    """Change a project: text, binary, executable, link, deep, deleted, empty."""
    (folder / "deep" / "er").mkdir(parents=True, exist_ok=True)
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "text.txt").write_text(f"round {round_}\n" * 500)
    (folder / "deep" / "er" / f"{round_}.bin").write_bytes(bytes(range(256)) * round_)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    if not (folder / "link").is_symlink():
        (folder / "link").symlink_to("text.txt")
    if round_ > 1:
        (folder / "deep" / "er" / f"{round_ - 1}.bin").unlink()


def work(manager: SessionManager, **options: Any) -> Session:
    """Do some work in a manager's project, and return its session."""
    before = manager.create_session("planner", session_id="the plan")
    before.complete()
    top = manager.create_agent("top", agent_type="lead")
    agent = manager.create_agent("worker", agent_type="implementer", parent_id=top.id)
    session = manager.create_session(
        "implementer",
        agent_id=agent.id,
        task_description="Move auth to OAuth",
        continues=before.id,
        metadata={"z": 1, "a": {"nested": [1.5, None]}},
        **options,
    )
    state = dict(STATE)
    for number in range(1, 4):
        write_files(manager.project_dir, number)
        state["conversation_history"] = [
            *state["conversation_history"], {"role": "user", "content": f"more {number}"}
        ]  # fmt: skip
        session.save_checkpoint(
            f"save {number}", state=state, description=f"number {number}", metadata={"n": number}
        )
    session.save_checkpoint("feature", state=state, retention_class="feature")
    session.decision("Use OAuth 2.1", rationale="the provider requires it")
    session.log("error", "it failed once")
    session.step("pay", lambda: {"paid": "x" * 40_000})
    encoded = StateEncoder().encode({"write": "y" * 40_000})
    write = NewWrite("task", 0, "channel", encoded.manifest, encoded.refs, encoded.chunks, ())
    owner = NewSession(session.id, session.agent_id, session.agent_type)
    fence = session.record.lease_token
    manager.store.put_writes(owner, "", "not there yet", [write], fence=fence)
    return session


@pytest.fixture
def other_postgres_url(postgres_server: PostgresServer, postgres_url: str) -> Iterator[str]:
    """A second store, in another schema of the same server."""
    before, _, schema = postgres_url.rpartition("=")
    yield f"{before}={schema}_b"
    drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(f"{schema}_b"))
    postgres_server.execute(drop, dbname="holdfast")


@pytest.fixture
def open_at(tmp_path: Path) -> Iterator[Open]:
    """Opens a project by its name, on its own database or the one given."""
    with ExitStack() as stack:

        def opened(name: str, url: str | None = None, **options: Any) -> SessionManager:
            folder = tmp_path / name
            folder.mkdir(parents=True, exist_ok=True)
            return stack.enter_context(SessionManager.open(url, project_dir=folder, **options))

        yield opened
