"""Which secrets are in a store already? Found by looking at everything; said without saying them.

A value is redacted and compared with itself: where the two differ, there was a secret. So what is found
here is exactly what redaction would have taken out. What is damaged cannot be looked at: it is named beside
what was found, and hides nothing of the rest.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import IntegrityError, SnapshotNotFound, WorkspaceError
from holdfast.model import CheckpointQuery, DamagedRow, Payload, SessionQuery
from holdfast.redaction import placeholders_in
from holdfast.sessions.files import ProjectFiles
from holdfast.state import decode_state
from holdfast.state.tags import MARK, member, tagged
from holdfast.stores.base import Store, first
from holdfast.stores.readable import (
    SessionRows,
    list_readable_checkpoints,
    read_rows,
    read_sessions,
)
from holdfast.verification import Damage, verify_session

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


@dataclass(frozen=True, slots=True)
class SecretsReport:
    """The secrets that are stored, and in ``damaged`` what could not be looked at, with the reason."""

    secrets: tuple[StoredSecret, ...]
    damaged: tuple[Damage, ...] = ()

    @property
    def ok(self) -> bool:
        """True when everything was looked at and nothing was found."""
        return not (self.secrets or self.damaged)


def find_stored_secrets(
    store: Store,
    redactor: Redactor,
    files: ProjectFiles | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> SecretsReport:
    """Find the secrets in all sessions of a store; with ``files``, in their latest files too.

    What is removed meanwhile is passed over. ``progress`` is called with the number of checkpoints
    looked through.
    """
    looked = count(1)
    seen = (lambda: None) if progress is None else (lambda: progress(next(looked)))
    sessions, unreadable = read_sessions(store, SessionQuery())
    secrets: list[StoredSecret] = []
    damaged: list[Damage] = []
    for session_id in (*(one.id for one in sessions), *unreadable):
        inspection = _Inspection(store, redactor, session_id)
        secrets += inspection.run(seen)
        if files is not None:
            secrets += inspection.in_files(files)
        damaged += map(inspection.screened, inspection.damaged)
    return SecretsReport(tuple(secrets), tuple(damaged))


@dataclass(slots=True)
class _Inspection:
    """One session, looked at. ``damaged`` is what could not be."""

    store: Store
    redactor: Redactor
    session_id: str
    damaged: list[Damage] = field(default_factory=list)
    complete: bool = True

    def run(self, seen: Callable[[], None]) -> Iterator[StoredSecret]:
        """Look; ``seen`` is called after each checkpoint."""
        rows = read_rows(self.store, self.session_id)
        if rows is None:
            return
        self.damaged += [self.named(one) for one in rows.damaged]
        yield from self.found_in_rows(rows, seen)
        if not self.complete:
            # Verification tells what is damaged from what was removed meanwhile.
            self.damaged += verify_session(self.store, rows)

    def named(self, one: DamagedRow) -> Damage:
        """Return what is not looked at since its row cannot be read."""
        damage = Damage(None, one.code, one.reason, self.session_id)
        if one.table == "session_checkpoints":
            return replace(damage, checkpoint_id=str(one.row["id"]))
        if one.table == "effects" and one.row:
            occurrence = int(one.row["occurrence"])
            return replace(damage, effect_key=str(one.row["key"]), occurrence=occurrence)
        return damage

    def screened(self, one: Damage) -> Damage:
        """Return damage without what redaction would have taken out of its key, or of what it quotes."""
        reason, key = one.reason, one.effect_key
        if key is not None:
            shown = self.redactor.value({"key": key})["key"]
            reason, key = reason.replace(key, shown), shown
        return replace(one, reason=self.redactor.text(reason), effect_key=key)

    def found_in_rows(self, rows: SessionRows, seen: Callable[[], None]) -> Iterator[StoredSecret]:
        if (session := rows.session) is not None:
            about: dict[str, Any] = {
                "agent_type": session.agent_type,
                "task_description": session.task_description,
                "pause_reason": session.pause_reason,
                "metadata": session.metadata,
            }
            yield from self.found(about, "session")
        for agent in rows.agents:
            who = {"name": agent.name, "agent_type": agent.agent_type, "metadata": agent.metadata}
            yield from self.found(who, "agent")
        for one in rows.checkpoints:
            names = {"checkpoint_id": one.id, "checkpoint": self.redactor.text(one.name)}
            called = {"name": one.name, "label": one.label, "external_id": one.external_id}
            yield from self.found(called, "checkpoint", **names)
            yield from self.found(one.description, "description", **names)
            yield from self.found(one.metadata, "metadata", **names)
            yield from self.found_in_payload(self.payload_of(one.id), "state", **names)
            seen()
        for _, record in rows.writes:
            about = {"task_path": record.task_path, "channel": record.channel}
            yield from self.found(about, "write")
            yield from self.found_in_payload(record.payload, "write")
        for effect in rows.effects:
            yield from self.found({"name": effect.name, "key": effect.key}, "effect")
            yield from self.found(effect.error, "effect")
            yield from self.found_in_payload(effect.payload, "effect")
        for line in rows.logs:
            yield from self.found({"message": line.message, "data": line.data}, "log")

    def payload_of(self, checkpoint_id: str) -> Payload | None:
        try:
            # What is in quarantine may be whole again.
            return self.store.read_payload(checkpoint_id, anyway=True)
        except IntegrityError:
            self.complete = False
            return None

    def found_in_payload(
        self, payload: Payload | None, where: str, **names: str
    ) -> Iterator[StoredSecret]:
        if payload is None:
            return
        try:
            content = decode_state(payload, self.store.read_chunks, cache=self.store.cache)
        except IntegrityError:
            self.complete = False
            return
        yield from self.found(content.state, where, **names)
        yield from self.found(content.context, "context", **names)

    def found(self, value: Any, where: str, **names: str) -> Iterator[StoredSecret]:
        before = tagged(value, "$")
        after = self.redactor.value(before)
        for path, kind in _differences(before, after, "$"):
            yield StoredSecret(kind, self.session_id, where, path, **names)

    def in_files(self, files: ProjectFiles) -> Iterator[StoredSecret]:
        """Look into the files of the latest checkpoint."""
        query = CheckpointQuery(self.session_id, namespace="", limit=1)
        latest = first(list_readable_checkpoints(self.store, query))
        if latest is None or latest.workspace_commit is None:
            return
        name = self.redactor.text(latest.name)
        try:
            commit = files.of(latest)
            for one in files.workspace.list_files(commit):
                if one.link or one.bytes > _LARGEST_FILE:
                    continue
                data = files.workspace.read(commit, one.path)
                if b"\0" in data[:_NUL_WITHIN]:
                    continue
                for found in self.redactor.find(data.decode("utf-8", "replace")):
                    yield StoredSecret(
                        found.kind, self.session_id, "file", one.path, latest.id, name
                    )
        except (IntegrityError, SnapshotNotFound, WorkspaceError) as error:
            reason = f"its files: {error}"
            self.damaged.append(Damage(latest.id, error.code, reason, self.session_id))


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
