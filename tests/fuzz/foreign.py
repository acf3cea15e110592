"""Decoders of what others write: agents, people, frameworks, and whoever made the project's private files."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import orjson
import ormsgpack
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from holdfast.agent.approvals import apply_decisions
from holdfast.agent.messages import Usage
from holdfast.agent.snapshot import Call, RunState, read_snapshot
from holdfast.autosave.fallback import FallbackLog
from holdfast.cli.documents import read_state
from holdfast.config import AGENTS_DIR, CONFIG_FILE, load_config
from holdfast.handoff.section import read_handoff
from holdfast.hooks.desk import Desk, paths_in
from holdfast.hooks.events import AGENTS as HOOKED
from holdfast.hooks.events import NotAnEvent, read_event
from holdfast.hooks.installing.agents import AGENTS
from holdfast.hooks.installing.forms import NotOurs, form_of
from holdfast.hooks.quick import line_of, needs_nothing, prompt_of
from holdfast.hooks.tools import planned_tasks, use_of
from holdfast.hooks.transcripts import Unsuitable, forms, read_addition
from holdfast.hooks.transcripts.items import item_of
from holdfast.hooks.transcripts.items import line_of as line_again
from holdfast.integrations.langgraph.classes import Classes
from holdfast.integrations.langgraph.peer_values import PeerValues
from holdfast.integrations.langgraph.sources import SqliteSource
from holdfast.integrations.langgraph.values import Values
from holdfast.manager.features import read_features
from holdfast.state.tags import tagged, untagged
from holdfast.workspace.journal import Journal
from tests.fuzz.contract import Target
from tests.fuzz.snapshots import detail_seeds, restore_details
from tests.fuzz.stored import file_of
from tests.hooks.installing.test_jsontext import LAYOUTS

RECORDED: Final = Path(__file__).parent.parent / "hooks" / "recorded"


# LangGraph ----------------------------------------------------------------------------------------

_classes: Final = Classes()
_values: Final = Values(_classes)
_peer: Final = PeerValues(_classes)

MESSAGES: Final = [
    HumanMessage("hi", id="1"),
    AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "2"}]),
]
OBJECTS: Final = (
    {"$o": "pattern", "v": ["a{3}", 32]},
    {"$o": "zone", "v": "Europe/Paris"},
    {"$o": "timezone", "v": "7200000000 here"},
    {"$o": "deque", "v": [3, [1, 2]]},
    {"$o": "bytearray", "v": "00ff"},
    {"$o": "IPv4Network", "v": "10.0.0.0/8"},
    {"$o": "dict", "v": [[1, 2], ["a", {"$o": "set", "v": [[1]]}]]},
    {"$o": "Send", "v": {"node": "n", "arg": {"$t": "tuple", "v": [1]}}},
    {"$o": "Command", "v": {"goto": "x"}},
    {"$o": "Send", "v": [{"node": "n"}, {"more": [1]}, ["arg"]]},
    {"$o": "Document", "v": {"page_content": "x"}},
    {"$o": "Document", "v": [{"page_content": "x"}, None, None, ["page_content"]]},
    {"$o": "DeltaSnapshot", "v": [1]},
)  # fmt: skip


def read_value(data: bytes) -> None:
    try:
        document = untagged(orjson.loads(data))
    except orjson.JSONDecodeError:
        return
    _values.thawed(document, "thread", "channel")


def value_seeds() -> Iterator[bytes]:
    yield orjson.dumps(tagged(_values.frozen(MESSAGES, "t", "c"), "$"))
    yield from (orjson.dumps(one) for one in OBJECTS)


_KINDS: Final = ("msgpack", "json", "bytes", "null", "pickle", None)


def read_peer_value(data: bytes) -> None:
    kind = _KINDS[data[0] % len(_KINDS)] if data else None
    _peer.read(kind, data[1:], "thread", "channel")


def peer_value_seeds() -> Iterator[bytes]:
    yield (
        b"\1"
        + json.dumps(
            {"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "args": ["x"]}
        ).encode()
    )
    for code, parts in (
        (0, ("builtins", "set", [1])),
        (0, ("builtins", "frozenset", [[1, [2]]])),
        (2, ("langgraph.types", "Interrupt", {"value": 1, "id": "i"})),
        (1, ("datetime", "timedelta", [1, 2])),
        (0, ("re", "compile", "a*")),
        (0, ("zoneinfo", "ZoneInfo", "UTC")),
        (3, ("datetime", "datetime", "2026-01-01T00:00:00", "fromisoformat")),
        (5, ("langchain_core.messages.human", "HumanMessage", {"content": "hi"})),
        (7, [1]),
    ):
        yield b"\0" + ormsgpack.packb([ormsgpack.Ext(code, ormsgpack.packb(parts))])


@cache
def peer_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "peer.sqlite")
        connection = sqlite3.connect(path, check_same_thread=False)
        connection.execute("PRAGMA page_size = 512")
        saver = SqliteSaver(connection)
        saver.setup()
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        at = saver.put(
            config, {**empty_checkpoint(), "channel_values": {"m": MESSAGES}}, {"step": 1}, {}
        )
        saver.put_writes(at, [("m", MESSAGES)], "task")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        return path.read_bytes()


def read_peer_database(data: bytes) -> None:
    with SqliteSource(file_of("peer.sqlite", data), _peer) as source:
        for thread_id in source.threads():
            for namespace, checkpoint_id in source.ids(thread_id):
                source.read(thread_id, namespace, checkpoint_id)


# Agents -------------------------------------------------------------------------------------------


def read_hook(data: bytes) -> None:
    for agent in (None, *HOOKED, "mine"):
        try:
            event = read_event(data, agent=agent)
        except NotAnEvent:
            continue
        prompt_of(event)
        planned_tasks(event)
        needs_nothing(event)
        line = line_of(event, use_of(event, ["mcp__*"]))
        if line is not None:
            # As the journal has it.
            again = json.loads(json.dumps(line))
            assert all(os.fsencode(path) for path in paths_in(again))


def hook_seeds() -> Iterator[bytes]:
    for path in sorted(RECORDED.glob("*/events.jsonl")):
        yield from path.read_bytes().splitlines()


def read_transcript(data: bytes) -> None:
    path = file_of("t.jsonl", data)
    lines = read_addition(str(path), None).lines
    for form in ("claude", "codex", "gemini", "opencode"):
        module = forms(form)
        for line in lines:
            item = item_of(line, module.place)
            tagged(item, "$")
            assert line_again(item) == line
        if hasattr(module, "fork"):
            module.fork(lines, "old", "new")


def transcript_seeds() -> Iterator[bytes]:
    for path in sorted(RECORDED.glob("*/*ed.jsonl")):
        lines = path.read_bytes().splitlines(keepends=True)
        yield from (b"".join(lines[at : at + 6]) for at in range(0, len(lines), 6))


def read_settings(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for name in ("gemini", "opencode"):
        form = form_of(AGENTS[name])
        with suppress(NotOurs):
            added = form.added(text, ["holdfast"])
            assert form.command(added)
            assert not form.missing(added)
            form.taken_out(added, None)


def settings_seeds() -> Iterator[bytes]:
    yield from (text.encode() for text in LAYOUTS.values())
    for agent in AGENTS.values():
        yield form_of(agent).added(None, ["holdfast"]).encode()


RUN: Final = RunState(
    "r", 1, [{"role": "user", "content": "x"}], status="suspended",
    calls=[Call("1", "f", {"a": 1}, state="pending", reason="approval", parameters={})],
)  # fmt: skip


def read_run(data: bytes) -> None:
    """Read the snapshot of a run, and what is asked of it before it goes on."""
    try:
        document = untagged(orjson.loads(data))
    except orjson.JSONDecodeError:
        return
    if isinstance(document, dict):
        run = read_snapshot(document, agent_version=1)
        apply_decisions(run, {call.id: "suspend" for call in run.pending}, {})
        run.usage += Usage(model_calls=1)
        run.document()


# The project's own files --------------------------------------------------------------------------

CONFIG: Final = b"""
url = "sqlite:///x.db"
tenant = "t"
[retention]
automatic = 5
[workspace]
include = ["a"]
[gates.start]
must = ["x"]
[redaction]
kinds = []
[[redaction.patterns]]
kind = "mine"
prefix = "x"
length = [16, 32]
"""


def read_config(data: bytes) -> None:
    path = file_of(f"project/{AGENTS_DIR}/{CONFIG_FILE}", data)
    load_config(path.parents[1])


JOURNAL: Final = {
    "mark": "m", "safety": "0" * 40, "target": "0" * 40, "tip": None,
    "old": None, "new": {"head": "ref: refs/heads/main", "commit": None, "extra": None},
    "purpose": {"id": "x"},
    "plan": {
        "changes": [{"path": "a", "kind": "added", "old": None, "new": {"mode": "100644", "blob": "0" * 40}}],
        "modes": {"a": [420, 493]}, "folder_modes": {"b": [493, 511]}, "empty_old": [], "empty_new": ["c"],
    },
}  # fmt: skip


def read_journal(data: bytes) -> None:
    Journal.read(file_of("store/journal.json", data).parent)


def read_desk(data: bytes) -> None:
    desk = Desk(str(file_of("desk/.agents/hooks/codex-s.json", data).parents[2]), "codex", "s")
    file_of("desk/.agents/hooks/codex-s.jsonl", data)
    desk.read_note()
    for line in desk.peek():
        assert all(os.fsencode(path) for path in paths_in(line))


HANDOFF: Final = b"""# Handoff\r
<!-- checkpoints:start -->
| name | id | saved | branch | resume |
|---|---|---|---|---|
| a \\| b | x | now | main | `holdfast resume x` |
<!-- checkpoints:end -->
## Next
"""


def read_any_handoff(data: bytes) -> None:
    read_handoff(file_of("HANDOFF.md", data))


def read_fallback(data: bytes) -> None:
    FallbackLog(file_of("log/.agents/holdfast-errors.log", data).parents[1]).entries()


TARGETS: Final = (
    Target("langgraph-values", read_value, value_seeds),
    Target("langgraph-peer-values", read_peer_value, peer_value_seeds),
    Target("langgraph-peer-database", read_peer_database, lambda: [peer_database()]),
    Target("hook-events", read_hook, hook_seeds),
    Target("transcripts", read_transcript, transcript_seeds, (Unsuitable,)),
    Target("agent-settings", read_settings, settings_seeds),
    Target("agent-runs", read_run, lambda: [orjson.dumps(RUN.document())]),
    Target("config", read_config, lambda: [CONFIG]),
    Target("journal", read_journal, lambda: [json.dumps(JOURNAL).encode()]),
    Target("details", restore_details, detail_seeds),
    Target("hook-notes", read_desk, lambda: [b'{"read_only": [], "paths": ["/a"]}\n']),
    Target("error-log", read_fallback, lambda: [b'{"at": "x", "message": "y", "after_seq": 1}\n']),
    Target("handoff", read_any_handoff, lambda: [HANDOFF, HANDOFF.decode().encode("utf-16")]),
    Target("features", read_features, lambda: [b'{"features": [{"id": 1, "status": "done"}]}']),
    Target(
        "given-state",
        lambda data: read_state(BytesIO(data)),
        lambda: [b'{"a": {"$t": "set", "v": [1]}}'],
    ),
)
