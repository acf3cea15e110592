"""Claude Agent SDK: transcripts in a Holdfast store, so that a session goes on on another machine.

`HoldfastSessionStore` is what ``ClaudeAgentOptions(session_store=…)`` asks for. A session is a thread,
the transcript of a subagent a namespace of it. Summaries of sessions are kept as metadata of their
last version, so listing reads no transcript.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.conversations import DEFAULT_CAP, Conversations, Draft, Version, documents, joined
from holdfast.errors import InvalidIdentifier, MissingExtra
from holdfast.ids import SESSION_ID_BYTES, check_text
from holdfast.model import CheckpointRecord
from holdfast.stores import Store
from holdfast.waiting import in_thread

try:
    from claude_agent_sdk import fold_session_summary
except ModuleNotFoundError as error:
    raise MissingExtra("claude-agent-sdk", "An adapter for the Claude Agent SDK") from error

if TYPE_CHECKING:
    from claude_agent_sdk import SessionKey, SessionStoreEntry, SessionStoreListEntry
    from claude_agent_sdk.types import SessionListSubkeysKey, SessionSummaryEntry

_KIND: Final = "claude-agent-sdk"
_TEXT: Final = "$json"


class HoldfastSessionStore:
    """Keeps transcripts in a store, which is given, or opened from its URL and closed by `close`.

    An entry with a ``uuid`` is stored once, however often it is sent. Nothing that two processes
    append at once is lost.
    """

    def __init__(
        self, where: Store | str | Path, *, max_versions: float | None = DEFAULT_CAP
    ) -> None:
        self._conversations = Conversations(where, _KIND, max_versions=max_versions)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to a transcript. They are durable when this returns."""
        thread, subagent = _thread(key), _subagent(key)
        sent = documents(entries, "$.entries")

        def add(last: Version | None) -> Draft | None:
            state = {} if last is None else last.state
            before = state.get("entries", [])
            new = list(_unknown(sent, before))
            if not new:
                return None
            grown = {**state, "entries": [*before, *map(_stored, new)]}
            if subagent:
                return Draft(grown)
            known: Any = _live(deepcopy(state.get("summary")))
            summary = _stored(dict(fold_session_summary(known, key, new)))
            return Draft({**grown, "summary": summary}, {"summary": summary})

        await in_thread(
            self._conversations.change,
            thread,
            add,
            namespace=subagent,
            about={"project_key": key["project_key"], "session_id": key["session_id"]},
        )

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return a whole transcript, or None for one that was never written."""
        found = await in_thread(self._conversations.read, _thread(key), _subagent(key))
        return None if found is None else [_live(one) for one in found.state.get("entries", [])]

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project with the time of their last entry."""
        return [
            {"session_id": session_id, "mtime": _milliseconds(head)}
            for session_id, head in await in_thread(self._heads, project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the summaries of a project's sessions, as the SDK folded them."""
        return [
            {**_live(head.metadata["summary"]), "mtime": _milliseconds(head)}
            for _, head in await in_thread(self._heads, project_key)
            # The SDK makes one itself where there is none, after a rollback for example.
            if head.metadata and "summary" in head.metadata
        ]

    async def delete(self, key: SessionKey) -> None:
        """Erase a session with its subagents, or the transcript of one subagent."""
        await in_thread(self._conversations.erase, _thread(key), _subagent(key) or None)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subagents of a session that have a transcript."""
        found = await in_thread(self._conversations.namespaces, _thread(key))
        return [namespace for namespace in found if namespace]

    async def close(self) -> None:
        """Close the store if it was opened here."""
        await in_thread(self._conversations.close)

    def _heads(self, project_key: str) -> list[tuple[str, CheckpointRecord]]:
        """Return the sessions of a project that have a transcript, with its last version."""
        threads = self._conversations.threads({"project_key": _project(project_key)})
        heads = [(thread, self._conversations.head(thread.id)) for thread in threads]
        return [
            ((thread.metadata or {})["session_id"], head)
            for thread, head in heads
            if head is not None
        ]


def _thread(key: SessionKey | SessionListSubkeysKey) -> str:
    """Return the id of a session's thread, or raise `InvalidIdentifier` for a key that names none."""
    if not isinstance(key, Mapping) or not {"project_key", "session_id"} <= key.keys():
        raise InvalidIdentifier(
            f"a session's key is a dict with project_key and session_id, not {key!r:.80}"
        )
    session_id = check_text(key["session_id"], "the session_id of a key", SESSION_ID_BYTES)
    return joined(_project(key["project_key"]), session_id)


def _project(project_key: object) -> str:
    # An empty one is a scope like any other: the SDK leaves them to the caller.
    return check_text(project_key, "a project_key", SESSION_ID_BYTES, empty=True)


def _subagent(key: SessionKey) -> str:
    """Return the namespace of a subagent's transcript; the session's own has none."""
    return key.get("subpath") or ""


def _unknown(sent: list[Any], before: list[Any]) -> Iterator[Any]:
    """Yield the entries that are not stored yet; those without a uuid are always new."""
    known = {_uuid(_live(entry)) for entry in before} - {None}
    for entry in sent:
        uuid = _uuid(entry)
        if uuid not in known:
            yield entry
            known |= {uuid} - {None}


def _uuid(entry: dict[str, Any]) -> str | None:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) else None


def _stored(document: dict[str, Any]) -> dict[str, Any]:
    """Return what is stored for a document: itself, or its text where it has half a character.

    The program cuts texts where it likes, also between the surrogates of one character, which JSON can
    say and a state cannot.
    """
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return {_TEXT: json.dumps(document)}
    except (TypeError, ValueError, RecursionError):
        return document  # no JSON at all: the store says where
    return {_TEXT: json.dumps(document)} if _TEXT in document else document


def _live(stored: Any) -> Any:
    return json.loads(stored[_TEXT]) if stored is not None and _TEXT in stored else stored


def _milliseconds(head: CheckpointRecord) -> int:
    return int(head.created_at.timestamp() * 1000)
