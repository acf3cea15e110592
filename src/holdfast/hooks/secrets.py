"""Events without the secrets in them, before anything of them is written down.

The journal keeps the beginnings of commands and prompts. A secret that was cut in two would be found by
nobody, so secrets are taken out before anything is cut.
"""

from __future__ import annotations

import json
import os
from typing import Any

from holdfast.hooks.events import Event
from holdfast.places import AGENTS_DIR
from holdfast.redaction.glance import may_hold_secret
from holdfast.regular_files import read_small_file

_SETTINGS = "holdfast.toml"
# Of what a tool is called with, what may be written down: not the contents of files.
_WRITTEN = frozenset(
    {"command", "cmd", "description", "pattern", "query", "url", "prompt", "todos", "plan"}
    | {"input", "patch", "patchText"}
)


# What says who and where: ids look like tokens, and are none.
_IDENTITY = frozenset(
    {"session_id", "parent_session_id", "hook_event_name", "cwd", "transcript_path", "timestamp"}
    | {"agent", "agent_id", "agent_type", "agent_transcript_path", "model", "permission_mode"}
    | {"prompt_id", "tool_name", "tool_use_id", "turn_id", "source", "reason", "trigger"}
)


def without_secrets(event: Event, root: str) -> Event:
    """Return the event as it may be written down."""
    given = {
        key: value
        for key, value in event.given.items()
        if isinstance(value, str) and key not in _IDENTITY
    }
    tool = {key: value for key, value in event.tool_input.items() if key in _WRITTEN}
    if not may_hold_secret(json.dumps([given, tool])) and not _has_patterns(root):
        return event
    # Imported here: most events have nothing in them that could be a secret.
    from holdfast.config import load_config
    from holdfast.redaction import Redaction

    config = load_config(root)
    redactor = Redaction.of(config.project_dir, config.redaction, redact="unless off").redactor
    if redactor is None:
        return event
    clean: dict[str, Any] = {**event.given, **redactor.value(given)}
    if tool:
        clean["tool_input"] = {**event.tool_input, **redactor.value(tool)}
    return Event(
        agent=event.agent,
        kind=event.kind,
        name=event.name,
        session_id=event.session_id,
        cwd=event.cwd,
        given=clean,
        words=event.words,
    )


def _has_patterns(root: str) -> bool:
    """Tell whether the project has rules of its own, which a glance does not know."""
    try:
        return b"redaction" in read_small_file(os.path.join(root, AGENTS_DIR, _SETTINGS))
    except OSError:
        return False
