"""Writing a bundle: its parts go into a file without a name first, and only a whole one gets its name.

With keys both files are sealed as they are written: nothing of a sealed store is on a disk in plain text.
Whatever was captured enters through `Source`: the one place at which something could be taken out of it on
its way.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, Any, Final, TypeAlias

import orjson

from holdfast.bundle import names, rows
from holdfast.bundle.container import Sink, blocks, write_end, write_member
from holdfast.bundle.content import Closure, packed, payload_digest, read_checked
from holdfast.crypto import KeyRing, Keys, keys_from
from holdfast.durable import sync_directory
from holdfast.errors import (
    BundleExists,
    CheckpointNotFound,
    DigestMismatch,
    InvalidIdentifier,
    SessionNotFound,
    StoreBusy,
)
from holdfast.model import CheckpointQuery, Payload, SessionCopy, SessionRecord
from holdfast.retention import Needs, has_delta_channels
from holdfast.stores.base import Store
from holdfast.stores.readable import read_checkpoints
from holdfast.stores.unwritable import writing

# A list of chunks is closed when it is as long as this.
_LIST: Final = 1 << 22
_ATTEMPTS: Final = 5


# Appends the files of snapshots as one git pack, and returns how many bytes they have unpacked.
WriteFiles: TypeAlias = Callable[[list[str], Sink], int]


@dataclass(frozen=True, slots=True)
class BundleReport:
    """What a bundle holds.

    ``states`` maps the ids of checkpoints, oldest first, to the digests of their states, and ``trees``
    those that have files to the commit that stands for all of them. ``file_bytes`` is what all the
    different files take unpacked.
    """

    path: Path
    session_id: str
    bytes: int
    states: dict[str, str]
    trees: dict[str, str]
    chunks: int
    logs: int
    effects: int
    file_bytes: int = 0
    sealed: bool = False


class _Changed(Exception):
    """Somebody removed what was being read: the next attempt sees the session as it is then."""


class Source:
    """One session of a store, and the only door through which its content enters a bundle."""

    def __init__(self, store: Store, session_id: str, chosen: str | None) -> None:
        self._store = store
        wanted = None if chosen is None else _wanted(store, session_id, chosen)
        found = store.read_session(session_id, checkpoint_ids=wanted)
        if found is None:
            raise SessionNotFound(f"no session {session_id!r}; nothing was written")
        self.copy = found if wanted is None else _with_writes_of(found, wanted)

    def payload(self, checkpoint_id: str) -> Payload:
        """Return the manifest and references of a checkpoint."""
        found = self._store.read_payload(checkpoint_id)
        if found is None:
            raise _Changed
        return found

    def chunks(self, references: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the chunks that references reach, each once."""
        closure = Closure(self._store.read_chunks)
        for refs in references:
            yield from read_checked(closure.add(refs), self._store.read_chunks)

    def is_whole(self) -> bool:
        """Tell whether all of its checkpoints are still there."""
        ids = [one.id for one in self.copy.checkpoints]
        return len(self._store.read_payloads(ids)) == len(ids)


def write_bundle(
    store: Store,
    session_id: str,
    target: Path,
    *,
    brief: str,
    checkpoint_id: str | None = None,
    files: WriteFiles | None = None,
    overwrite: bool = False,
    keys: Keys | None = None,
    open_source: Callable[[Store, str, str | None], Source] = Source,
) -> BundleReport:
    """Write a session, or one checkpoint of it and what it is computed from, to a file for its owner only.

    With ``keys`` it is sealed. ``open_source`` may give another door through which its content comes.

    Raises `SessionNotFound`, `CheckpointNotFound`, `BundleExists`, `StoreError` for a file that cannot be
    written, and `DigestMismatch` for content that is damaged; then nothing is written.
    """
    if not overwrite and os.path.lexists(target):
        raise BundleExists(
            f"{target} exists already; nothing was written. Overwrite it on purpose with overwrite=True (on "
            "the command line: --overwrite)"
        )
    with writing(target):
        possible = target.parent.is_dir() and not target.is_dir()
    if not possible:
        raise InvalidIdentifier(f"{target} is no place for a file; nothing was written")
    ring = None if keys is None else keys.ring
    for _ in range(_ATTEMPTS):
        try:
            source = open_source(store, session_id, checkpoint_id)
        except _Changed:
            continue
        try:
            with writing(target), TemporaryFile(dir=target.parent) as body:
                return _Writing(source, body, brief, files, ring).run(target)
        except _Changed:
            continue
        except DigestMismatch:
            if source.is_whole():
                raise
    raise StoreBusy(
        f"session {session_id} lost checkpoints to its rules faster than they could be read; nothing "
        f"was written. Pause it, or export one checkpoint"
    )


class _Writing:
    """One bundle, put together from the parts in ``body``."""

    def __init__(
        self,
        source: Source,
        body: IO[bytes],
        brief: str,
        files: WriteFiles | None,
        ring: KeyRing | None,
    ) -> None:
        self._source = source
        self._body = body
        self._sink: Sink = body
        self._brief = brief
        self._files = files
        self._ring = ring
        self._members: list[dict[str, Any]] = []
        self._summed = hashlib.sha256()
        self._begun = self._end_of_body = 0
        self._states: dict[str, str] = {}
        self._references: list[bytes] = []

    def run(self, target: Path) -> BundleReport:
        """Write all parts, then the file."""
        with _into(self._body, self._ring) as self._sink:
            report = self._write_parts(target)
        return replace(report, bytes=self._assemble(report, target))

    def _write_parts(self, target: Path) -> BundleReport:
        copy = self._source.copy
        self.write(self._brief.encode())
        self._end(names.BRIEF)
        agents = map(rows.AGENTS.write, copy.agents)
        self._lines(names.SESSION, [rows.SESSIONS.write(copy.session), *agents])
        self._lines(names.CHECKPOINTS, self._checkpoints(copy))
        self._lines(
            names.WRITES,
            (
                rows.WRITES.write(one.record, namespace=one.namespace, created_at=one.created_at)
                for one in copy.writes
            ),
        )
        self._lines(names.EFFECTS, map(rows.EFFECTS.write, copy.effects))
        self._lines(names.LOGS, map(rows.LOGS.write, copy.logs))
        chunks = self._chunks(copy)
        trees = {
            one.id: one.workspace_commit
            for one in copy.checkpoints
            if self._files is not None and one.workspace_commit is not None
        }
        file_bytes = 0
        if self._files is not None and trees:
            file_bytes = self._files(sorted(set(trees.values())), self)
            self._end(names.FILES)
        return BundleReport(
            path=target,
            session_id=copy.session.id,
            bytes=0,
            states=self._states,
            trees=trees,
            chunks=chunks,
            logs=len(copy.logs),
            effects=len(copy.effects),
            file_bytes=file_bytes,
            sealed=self._ring is not None,
        )

    def write(self, data: bytes, /) -> None:
        """Add to the part that is being written."""
        self._summed.update(data)
        self._sink.write(data)
        self._end_of_body += len(data)

    def _end(self, name: str) -> None:
        """End a part, and begin the next."""
        end = self._end_of_body
        size, summed = end - self._begun, self._summed.hexdigest()
        self._members.append({"name": name, "bytes": size, "sha256": summed})
        self._begun, self._summed = end, hashlib.sha256()

    def _lines(self, name: str, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line + b"\n")
        self._end(name)

    def _checkpoints(self, copy: SessionCopy) -> Iterator[bytes]:
        for record in copy.checkpoints:
            payload = self._source.payload(record.id)
            self._states[record.id] = payload_digest(payload)
            self._references.append(payload.refs)
            consumed_at = copy.consumed.get(record.id)
            yield rows.CHECKPOINTS.write(record, consumed_at=consumed_at, payload=payload)

    def _chunks(self, copy: SessionCopy) -> int:
        """Write all chunks in lists, and return how many there are."""
        count = lists = 0
        others = [one.record.payload for one in copy.writes]
        others += [one.payload for one in copy.effects if one.payload is not None]
        references = [*self._references, *(payload.refs for payload in others)]
        for digest, data in self._source.chunks(references):
            count += 1
            self.write(packed(digest, data))
            if self._end_of_body - self._begun >= _LIST:
                lists += 1
                self._end(names.chunks_name(lists))
        if self._end_of_body > self._begun:
            self._end(names.chunks_name(lists + 1))
        return count

    def _assemble(self, report: BundleReport, target: Path) -> int:
        manifest = canonical(self._manifest(report))
        start = opening(manifest)
        body = _read_again(self._body, self._ring)
        part = NamedTemporaryFile(  # noqa: SIM115 - it gets its name below
            dir=target.parent, prefix=f".{target.name[:80]}.", suffix=".part", delete=False
        )
        try:
            with part as file:
                with _into(file, self._ring) as sink:
                    write_member(sink, names.START, len(start), iter([start]))
                    write_member(sink, names.MANIFEST, len(manifest), iter([manifest]))
                    offset = 0
                    for member in self._members:
                        size = member["bytes"]
                        write_member(sink, member["name"], size, blocks(body, offset, size))
                        offset += size
                    write_end(sink)
                os.fsync(file.fileno())
                written = file.tell()
            os.replace(part.name, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part.name)
            raise
        sync_directory(target.parent)
        return written

    def _manifest(self, report: BundleReport) -> dict[str, Any]:
        return {
            "session": described(self._source.copy.session),
            "checkpoints": [
                {
                    "id": one.id,
                    "name": one.name,
                    "state": self._states[one.id],
                    "tree": report.trees.get(one.id),
                }
                for one in self._source.copy.checkpoints
            ],
            "file_bytes": report.file_bytes,
            "members": self._members,
        }


@contextmanager
def _into(file: IO[bytes], ring: KeyRing | None) -> Iterator[Sink]:
    """Yield where bytes go on their way into a file, with a ring sealed; all are in it then."""
    if ring is None:
        yield file
    else:
        # It takes an extra that only those have who have keys.
        from holdfast.bundle.sealed import SealedWriter

        writer = SealedWriter(file, ring)
        yield writer
        writer.finish()
    file.flush()


def _read_again(file: IO[bytes], ring: KeyRing | None) -> IO[bytes]:
    """Return what went into a file through `_into`."""
    if ring is None:
        return file
    from holdfast.bundle.sealed import open_sealed

    return open_sealed(file, keys_from(ring))


def described(session: SessionRecord) -> dict[str, Any]:
    """Return what a manifest says of the session."""
    return {
        "id": session.id,
        "agent_type": session.agent_type,
        "task_description": session.task_description,
        "status": session.status,
    }


def canonical(document: dict[str, Any]) -> bytes:
    """Return a document in the one form that a manifest has."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2) + b"\n"


def opening(manifest: bytes, version: int = names.FORMAT) -> bytes:
    """Return what a bundle begins with."""
    summed = hashlib.sha256(manifest).hexdigest()
    return f"holdfast-bundle {version}\nmanifest sha256:{summed}\n".encode()


def _wanted(store: Store, session_id: str, checkpoint_id: str) -> set[str]:
    """Return the ids of a checkpoint and of the ancestors that it is computed from."""
    listed, unreadable = read_checkpoints(store, CheckpointQuery(session_id))
    chosen = next((one for one in listed if one.id == checkpoint_id), None)
    if chosen is None:
        if checkpoint_id in unreadable:
            raise unreadable[checkpoint_id]
        raise CheckpointNotFound(
            f"session {session_id} has no checkpoint {checkpoint_id}; nothing was written"
        )
    if unreadable and has_delta_channels(chosen):
        # What it is computed from may be among them.
        raise next(iter(unreadable.values()))
    return {checkpoint_id, *(one.id for one in Needs(listed).of(chosen))}


def _with_writes_of(copy: SessionCopy, ids: set[str]) -> SessionCopy:
    """Return a copy of these checkpoints without the writes at others."""
    if len(copy.checkpoints) < len(ids):
        raise _Changed
    places = {(one.namespace, one.external_id) for one in copy.checkpoints}
    return replace(
        copy,
        writes=tuple(
            one for one in copy.writes if (one.namespace, one.record.external_id) in places
        ),
    )
