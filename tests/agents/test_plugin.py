"""What the plugin for opencode tells of, run by Node with a client that knows of no messages."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import holdfast.hooks.installing

PLUGIN = Path(holdfast.hooks.installing.__file__).with_name("opencode.js")
HOST = """
import { Holdfast } from "./plugin.mjs"
const client = { session: { messages: async () => ({ data: [] }) } }
const plugin = await Holdfast({ client, directory: process.cwd() })
for (const event of JSON.parse(process.argv[2])) await plugin.event({ event })
await plugin.dispose()
"""
LISTENER = "import sys; open('told.jsonl', 'a').write(sys.stdin.read() + chr(10))"


def told(tmp_path: Path, *events: dict[str, Any]) -> list[tuple[str, str]]:
    """Let a plugin hear of events; return what it told of, and in which session."""
    program = json.dumps([sys.executable, "-c", LISTENER])
    lines = PLUGIN.read_text().splitlines()
    lines = [f"const PROGRAM = {program}" if "const PROGRAM" in one else one for one in lines]
    (tmp_path / "plugin.mjs").write_text("\n".join(lines))
    (tmp_path / "host.mjs").write_text(HOST)
    subprocess.run(["node", "host.mjs", json.dumps(events)], cwd=tmp_path, check=True, timeout=60)
    found = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    return [(one["hook_event_name"], one["session_id"]) for one in found]


def created(session: str, **more: str) -> dict[str, Any]:
    return {"type": "session.created", "properties": {"info": {"id": session, **more}}}


def idle(session: str) -> dict[str, Any]:
    return {"type": "session.idle", "properties": {"sessionID": session}}


def deleted(session: str) -> dict[str, Any]:
    return {"type": "session.deleted", "properties": {"info": {"id": session}}}


def test_a_subagent_that_is_deleted_does_not_end_the_session_it_worked_in(tmp_path: Path) -> None:
    heard = told(
        tmp_path,
        created("above"),
        created("below", parentID="above"),
        idle("below"),
        deleted("below"),
        idle("below"),
        idle("above"),
    )
    assert heard == [
        ("SessionStart", "above"),
        ("SubagentStart", "above"),
        ("SubagentStop", "above"),
        ("Stop", "above"),
        ("SessionEnd", "above"),
    ]


def test_a_session_that_is_deleted_ends_once_and_does_not_begin_again(tmp_path: Path) -> None:
    heard = told(tmp_path, created("one"), idle("one"), deleted("one"), idle("one"), deleted("one"))
    assert [event for event, _ in heard] == ["SessionStart", "Stop", "SessionEnd"]
