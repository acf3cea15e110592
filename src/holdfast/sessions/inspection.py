"""Which secrets are in a store already? Found by looking at everything; said without saying them.

A value is redacted and compared with itself: where the two differ, there was a secret. So what is found
here is exactly what redaction would have taken out.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import IntegrityError, WorkspaceError
from holdfast.model import CheckpointQuery, Payload, SessionCopy, SessionQuery
from holdfast.redaction import placeholders_in
from holdfast.sessions.files import ProjectFiles
from holdfast.state import decode_state
from holdfast.state.tags import MARK, member, tagged
from holdfast.stores.base import Store, first
from holdfast.stores.readable import list_readable

if TYPE_CHECKING:
    from holdfast.redaction import Redactor

_LARGEST_FILE: Final = 10 * 1024 * 1024
_NUL_WITHIN: Final = 8192


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret that is stored: of which kind, and where; not what it is.

    ``where`` is state, context, checkpoint, description, metadata, session, agent, log, effect, write or
    file. Names and keys are looked at too: they are stored as given, redaction or not.
    """

    kind: str
    session_id: str
    where: str
    path: str
    checkpoint_id: str | None = None
    checkpoint: str | None = None


def find_stored_secrets(
    store: Store,
    redactor: Redactor,
    files: ProjectFiles | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> Iterator[StoredSecret]:
    """Yield the secrets in all sessions of a store; with ``files``, in their latest files too.

    What is damaged or removed meanwhile is passed over. ``progress`` is called with the number of
    checkpoints looked through.
    """
    looked = count(1)
    seen = (lambda: None) if progress is None else (lambda: progress(next(looked)))
    for session in list_readable(store, SessionQuery()):
        copy = store.read_session(session.id)
        if copy is not None:
            yield from _Inspection(store, redactor, copy).run(seen)
        if copy is not None and files is not None:
            yield from _in_files(store, redactor, files, session.id)


class _Inspection:
    """One session, looked at."""

    def __init__(self, store: Store, redactor: Redactor, copy: SessionCopy) -> None:
        self.store = store
        self.redactor = redactor
        self.copy = copy

    def run(self, seen: Callable[[], None]) -> Iterator[StoredSecret]:
        """Look; ``seen`` is called after each checkpoint."""
        session = self.copy.session
        about: dict[str, Any] = {
            "agent_type": session.agent_type,
            "task_description": session.task_description,
            "pause_reason": session.pause_reason,
            "metadata": session.metadata,
        }
        yield from self.found(about, "session")
        for agent in self.copy.agents:
            who = {"name": agent.name, "agent_type": agent.agent_type, "metadata": agent.metadata}
            yield from self.found(who, "agent")
        for one in self.copy.checkpoints:
            names = {"checkpoint_id": one.id, "checkpoint": self.redactor.text(one.name)}
            called = {"name": one.name, "label": one.label, "external_id": one.external_id}
            yield from self.found(called, "checkpoint", **names)
            yield from self.found(one.description, "description", **names)
            yield from self.found(one.metadata, "metadata", **names)
            payload = self.store.read_payload(one.id)
            if payload is not None:
                yield from self.found_in_payload(payload, "state", **names)
            seen()
        for write in self.copy.writes:
            record = write.record
            about = {"task_path": record.task_path, "channel": record.channel}
            yield from self.found(about, "write")
            yield from self.found_in_payload(record.payload, "write")
        for effect in self.copy.effects:
            yield from self.found({"name": effect.name, "key": effect.key}, "effect")
            yield from self.found(effect.error, "effect")
            if effect.payload is not None:
                yield from self.found_in_payload(effect.payload, "effect")
        for line in self.copy.logs:
            yield from self.found({"message": line.message, "data": line.data}, "log")

    def found_in_payload(
        self, payload: Payload, where: str, **names: str
    ) -> Iterator[StoredSecret]:
        try:
            content = decode_state(payload, self.store.read_chunks, cache=self.store.cache)
        except IntegrityError:
            return
        yield from self.found(content.state, where, **names)
        yield from self.found(content.context, "context", **names)

    def found(self, value: Any, where: str, **names: str) -> Iterator[StoredSecret]:
        before = tagged(value, "$")
        after = self.redactor.value(before)
        for path, kind in _differences(before, after, "$"):
            yield StoredSecret(kind, self.copy.session.id, where, path, **names)


def _differences(before: Any, after: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the paths at which something was taken out, with the kinds."""
    if before is after:
        return
    if isinstance(before, str):
        there = set(placeholders_in(before))
        yield from ((path, one.kind) for one in placeholders_in(after) if one not in there)
    elif isinstance(before, list):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{path}[{at}]")
    elif before.get(MARK) in ("bytes", "str"):
        old, new = (b64decode(one["v"]).decode("latin-1") for one in (before, after))
        yield from _differences(old, new, path)
    elif MARK in before:
        yield from _differences(before["v"], after["v"], path)
    else:
        for (key, old), (new_key, new) in zip(before.items(), after.items(), strict=True):
            yield from _differences(key, new_key, path)
            yield from _differences(old, new, member(path, new_key))


def _in_files(
    store: Store, redactor: Redactor, files: ProjectFiles, session_id: str
) -> Iterator[StoredSecret]:
    query = CheckpointQuery(session_id, namespace="", limit=1)
    latest = first(store.list_checkpoints(query))
    if latest is None or latest.workspace_commit is None:
        return
    try:
        commit = files.of(latest)
        for one in files.workspace.list_files(commit):
            if one.link or one.bytes > _LARGEST_FILE:
                continue
            data = files.workspace.read(commit, one.path)
            if b"\0" in data[:_NUL_WITHIN]:
                continue
            for found in redactor.find(data.decode("utf-8", "replace")):
                yield StoredSecret(
                    found.kind, session_id, "file", one.path, latest.id, redactor.text(latest.name)
                )
    except (WorkspaceError, IntegrityError):
        return
