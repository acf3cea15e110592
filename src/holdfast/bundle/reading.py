"""Reading a bundle: all of it is looked at, and every digest derived again, before anybody uses any of it.

A bundle may come from strangers, unless it is sealed. Its parts must be those that the manifest names, in that order and with those
digests; a row must be one that a store could have; a state must decode. What is large stays in the file and
is read, and compared, again when it is needed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import orjson

from holdfast.bundle import names, rows
from holdfast.bundle.container import Reader, blocks, is_archive
from holdfast.bundle.content import ChunkIndex, Closure, payload_digest
from holdfast.bundle.writing import BundleReport, canonical, described, opening
from holdfast.crypto import Keys
from holdfast.errors import (
    BundleCorrupt,
    BundleNotSealed,
    BundleRefused,
    BundleTooNew,
    InputError,
    IntegrityError,
    KeyRequired,
    NotABundle,
)
from holdfast.model import (
    CheckpointRecord,
    Payload,
    SessionCopy,
    SessionRecord,
    WriteCopy,
)
from holdfast.regular_files import open_regular_file
from holdfast.state import decode_state
from holdfast.state.cache import ChunkCache
from holdfast.stores.checks import check_commit
from holdfast.stores.copy_checks import check_copied, check_copy

_START_BYTES: Final = 1024
_MANIFEST_BYTES: Final = 1 << 26
_LIST_BYTES: Final = 1 << 27
_LINE_BYTES: Final = 1 << 28
_OPENING: Final = re.compile(rb"holdfast-bundle ([1-9][0-9]{0,8})\n")
_MEMBER: Final = {"name": str, "bytes": int, "sha256": str}
_CHECKPOINT: Final = {"id": str, "name": str, "state": str, "tree": str}


@contextmanager
def open_bundle(
    path: Path, *, keys: Keys | None = None, unsealed: bool = False
) -> Iterator[Bundle]:
    """Open a bundle, verified from the first byte to the last.

    Raises `NotABundle`, `BundleTooNew`, `BundleRefused` for what no bundle may hold, and
    `BundleCorrupt` for one that is cut off or damaged.

    ``keys`` open one that is sealed: without them `KeyRequired` is raised, with others `WrongKey`, and
    `SealBroken` or `PlaintextRefused` for a part that is not what was sealed. Who has keys gets one
    of plain text, which anybody may have made, with ``unsealed`` only, and else `BundleNotSealed`.
    """
    try:
        file = open_regular_file(path)
    except FileNotFoundError:
        raise NotABundle(f"there is no file {path}; nothing was changed") from None
    except OSError as error:
        raise NotABundle(f"{path} cannot be read: {error.strerror}; nothing was changed") from error
    with file:
        archive = _archive(path, file, keys, unsealed=unsealed)
        yield Bundle(path, archive, os.fstat(file.fileno()).st_size, sealed=archive is not file)


def _archive(path: Path, file: IO[bytes], keys: Keys | None, *, unsealed: bool) -> IO[bytes]:
    """Return the file, or what is sealed in it."""
    if file.read(len(names.SEALED)) != names.SEALED.encode():
        if keys is not None and not unsealed and is_archive(file):
            raise BundleNotSealed(
                f"{path} is plain text, and this store is sealed: nobody needed a key to write it. "
                f"Nothing was changed; take it in on purpose with unsealed=True (--unsealed)"
            )
        return file
    if keys is None:
        raise KeyRequired(
            f"{path} is a sealed bundle. Nothing was changed: import it into a store that is sealed "
            f"with its keys (HOLDFAST_KEY_FILE, HOLDFAST_KEY or keys=…)"
        )
    from holdfast.bundle.sealed import open_sealed

    return open_sealed(file, keys)


class Bundle:
    """A bundle that was verified, and its file. ``copy`` has the rows as they were exported."""

    def __init__(self, path: Path, file: IO[bytes], size: int, *, sealed: bool) -> None:
        self._file = file
        reader = Reader(file)
        self._manifest = _read_manifest(reader)
        self._chunks = ChunkIndex(file)
        self._places: dict[str, tuple[int, int]] = {}
        for member in self._manifest.members:
            self._enter(reader, member)
        reader.finish()
        self._payloads: dict[str, tuple[int, int]] = {}
        self.copy = self._read_rows()
        self._closure = Closure(self._chunks.read)
        try:
            self._verify()
        except (InputError, IntegrityError) as error:
            raise BundleRefused(
                f"the bundle holds what no session can: {error}. Nothing was changed"
            ) from error
        self.report = BundleReport(
            path=path,
            session_id=self.copy.session.id,
            bytes=size,
            states={one["id"]: one["state"] for one in self._manifest.checkpoints},
            trees={one["id"]: one["tree"] for one in self._manifest.checkpoints if one["tree"]},
            chunks=len(self._chunks),
            logs=len(self.copy.logs),
            effects=len(self.copy.effects),
            file_bytes=self._manifest.file_bytes,
            sealed=sealed,
        )

    # What it holds ---------------------------------------------------------------------------

    def payload(self, checkpoint_id: str) -> Payload:
        """Return the manifest and references of a checkpoint, read again and compared."""
        payload: Payload = self._read_checkpoint(*self._payloads[checkpoint_id])[1]["payload"]
        if payload_digest(payload) != self.report.states[checkpoint_id]:
            raise BundleCorrupt("the bundle was changed while it was being read")
        return payload

    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Return chunks; whoever asks compares the digests."""
        return self._chunks.read(digests)

    @property
    def indexes(self) -> Mapping[bytes, bytes]:
        """The index chunks that its states need."""
        return self._closure.indexes

    @property
    def leaves(self) -> Collection[bytes]:
        """The digests of all other chunks that its states need."""
        return self._closure.leaves.keys()

    def files(self) -> Iterator[bytes]:
        """Yield the git pack with its files."""
        return blocks(self._file, *self._places[names.FILES])

    def brief(self) -> str:
        """Return what the bundle says to whoever opens it."""
        text = b"".join(blocks(self._file, *self._places[names.BRIEF]))
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise BundleRefused(f"{names.BRIEF} of the bundle is not UTF-8 text") from None

    # Reading ---------------------------------------------------------------------------------

    def _enter(self, reader: Reader, member: Mapping[str, Any]) -> None:
        """Compare a part with what the manifest says of it, and note where it is."""
        name, start, size = reader.next()
        if (name, size) != (member["name"], member["bytes"]):
            raise BundleRefused(
                f"the bundle has {name!r:.120} where its manifest has {member['name']!r:.120}, or of "
                "another size. Nothing was changed"
            )
        listed = name.startswith(names.CHUNKS)
        if listed and size > _LIST_BYTES:
            raise BundleRefused(f"{name} of the bundle is too large")
        summed = hashlib.sha256()
        kept = bytearray()
        for part in blocks(reader.file, start, size):
            summed.update(part)
            if listed:
                kept += part
        if summed.hexdigest() != member["sha256"]:
            raise BundleCorrupt(
                f"{name} of the bundle is not what was written: its digest is another. Nothing was "
                "changed"
            )
        if listed:
            self._chunks.enter(start, bytes(kept))
        self._places[name] = (start, size)

    def _read_rows(self) -> SessionCopy:
        lines = [line for _, _, line in self._each_line(names.SESSION)]
        if not lines:
            raise BundleRefused("the bundle has no session in it. Nothing was changed")
        session = rows.read_session_row(lines[0])
        checkpoints: list[CheckpointRecord] = []
        consumed: dict[str, datetime] = {}
        for start, size, _ in self._each_line(names.CHECKPOINTS):
            record, more = self._read_checkpoint(start, size, session)
            checkpoints.append(record)
            self._payloads[record.id] = (start, size)
            if more["consumed_at"] is not None:
                consumed[record.id] = more["consumed_at"]
        named = {"session_id": session.id}
        return SessionCopy(
            session=session,
            agents=tuple(rows.AGENTS.read(line)[0] for line in lines[1:]),
            checkpoints=tuple(checkpoints),
            consumed=consumed,
            writes=tuple(
                WriteCopy(more["namespace"], record, more["created_at"])
                for record, more in (
                    rows.WRITES.read(line) for _, _, line in self._each_line(names.WRITES)
                )
            ),
            effects=tuple(
                rows.EFFECTS.read(line, **named)[0] for _, _, line in self._each_line(names.EFFECTS)
            ),
            logs=tuple(
                rows.LOGS.read(line, id=number, **named)[0]
                for number, (_, _, line) in enumerate(self._each_line(names.LOGS))
            ),
        )

    def _read_checkpoint(
        self, start: int, size: int, session: SessionRecord | None = None
    ) -> tuple[CheckpointRecord, dict[str, Any]]:
        owner = session or self.copy.session
        self._file.seek(start)
        line = self._file.read(size)
        return rows.CHECKPOINTS.read(line, session_id=owner.id, agent_id=owner.agent_id, seq=0)

    def _each_line(self, name: str) -> Iterator[tuple[int, int, bytes]]:
        """Yield the lines of a part: where each begins, its size, and its bytes."""
        start, left = self._places[name]
        while left:
            self._file.seek(start)
            line = self._file.readline(min(left, _LINE_BYTES))
            if not line.endswith(b"\n"):
                raise BundleRefused(f"{name} of the bundle has a line that does not end")
            yield start, len(line), line
            start += len(line)
            left -= len(line)

    def _verify(self) -> None:
        """Raise unless it could have come from a store, and all of it can be restored."""
        copy = self.copy
        check_copy(copy)
        named = [one["id"] for one in self._manifest.checkpoints]
        if self._manifest.session != described(copy.session) or named != list(self._payloads):
            raise BundleRefused("the manifest names another session, or other checkpoints")
        cache = ChunkCache()
        for record, said in zip(copy.checkpoints, self._manifest.checkpoints, strict=True):
            payload = self._read_checkpoint(*self._payloads[record.id])[1]["payload"]
            check_copied(copy, record, payload)
            if said["state"] != payload_digest(payload) or said["name"] != record.name:
                raise BundleRefused(f"the manifest says something else of checkpoint {record.id}")
            if said["tree"] not in (None, record.workspace_commit):
                raise BundleRefused(f"the manifest has other files for checkpoint {record.id}")
            self._check_content(payload, cache)
        for write in copy.writes:
            self._check_content(write.record.payload, cache)
        for effect in copy.effects:
            if effect.payload is not None:
                self._check_content(effect.payload, cache)
        packed = names.FILES in self._places
        if packed != any(one["tree"] for one in self._manifest.checkpoints):
            raise BundleRefused("the bundle has files that no checkpoint names, or lacks some")

    def _check_content(self, payload: Payload, cache: ChunkCache) -> None:
        decode_state(payload, self._chunks.read, cache=cache)
        self._closure.add(payload.refs)


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What a manifest says, each value of the type that it must have."""

    session: Mapping[str, Any]
    checkpoints: list[Mapping[str, Any]]
    file_bytes: int
    members: list[Mapping[str, Any]]


def _read_manifest(reader: Reader) -> _Manifest:
    name, start, size = reader.next()
    if name != names.START or size > _START_BYTES:
        raise NotABundle("this is an archive, but no bundle of Holdfast; nothing was changed")
    begun = b"".join(blocks(reader.file, start, size))
    found = _OPENING.match(begun)
    if found is None:
        raise NotABundle("this is an archive, but no bundle of Holdfast; nothing was changed")
    if int(found[1]) > names.FORMAT:
        raise BundleTooNew(
            f"the bundle has the format {int(found[1])}, and this Holdfast knows {names.FORMAT}. "
            "Nothing was changed: import it with a newer version"
        )
    name, start, size = reader.next()
    if name != names.MANIFEST or size > _MANIFEST_BYTES:
        raise BundleRefused("the bundle does not begin with a manifest. Nothing was changed")
    text = b"".join(blocks(reader.file, start, size))
    if opening(text) != begun:
        raise BundleCorrupt("the manifest of the bundle is damaged. Nothing was changed")
    try:
        document = orjson.loads(text)
        if canonical(document) != text:
            raise ValueError("it is written in another way")
        return _checked(_Manifest(**document))
    except (ValueError, TypeError) as error:
        raise BundleRefused(
            f"the manifest of the bundle cannot be read: {error}. Nothing was changed"
        ) from None


def _checked(manifest: _Manifest) -> _Manifest:
    """Return a manifest whose lists have what they must have. Raises `TypeError`, `ValueError`."""
    if type(manifest.file_bytes) is not int or manifest.file_bytes < 0:
        raise ValueError("the size of files is no number")
    for one in manifest.members:
        if _kinds(one) != _MEMBER:
            raise ValueError("a part is not described as parts are")
    parts = [one["name"] for one in manifest.members]
    ends = [names.FILES] if parts[-1:] == [names.FILES] else []
    lists = len(parts) - len(names.TEXTS) - len(ends)
    if parts != [*names.TEXTS, *map(names.chunks_name, range(1, lists + 1)), *ends]:
        raise ValueError("it has a part that no bundle has, or lacks one that every bundle has")
    for one in manifest.checkpoints:
        if _kinds(one) not in (_CHECKPOINT, _CHECKPOINT | {"tree": type(None)}):
            raise ValueError("a checkpoint is not described as checkpoints are")
        if one["tree"] is not None:
            check_commit(one["tree"], "tree")
    return manifest


def _kinds(given: object) -> dict[str, type]:
    """Return the types of what an object has by name; of anything else, that it has nothing."""
    return {key: type(value) for key, value in given.items()} if isinstance(given, dict) else {}
