"""Decoders of what a store or a bundle holds. Sums and digests are made to fit, or nothing gets past them.

A state is given as its manifest without a sum, then its chunks, each behind `PART`: one byte with level and
tier, one that says whether the manifest itself refers to it and how much its length lies, and its content. The
content of an index chunk is one byte for each chunk below it: its number.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson

from holdfast import SessionManager
from holdfast.bundle import names, open_bundle, rows
from holdfast.bundle.container import header, padding
from holdfast.bundle.content import payload_digest
from holdfast.bundle.sealed import SealedWriter
from holdfast.bundle.writing import canonical, opening
from holdfast.crypto.envelope import Envelopes, from_text, key_of
from holdfast.crypto.keys import KeyRing, keys_from
from holdfast.effects.result import recorded_result
from holdfast.errors import HoldfastError
from holdfast.model import EffectRecord, Payload, utc_now
from holdfast.state import StateEncoder, decode_state
from holdfast.state.codec import load_document
from holdfast.state.reader import decode_states, large_values, outline_state
from holdfast.state.refs import (
    RECORD_BYTES,
    ReadChunks,
    Ref,
    children,
    digest_of,
    digests_in,
    pack_refs,
    unpack_refs,
)
from holdfast.stores.compression import pack, unpack
from holdfast.stores.memory import MemoryStore
from tests.fuzz.contract import MEMORY_LIMIT, Target
from tests.fuzz.shapes import reshaped
from tests.state.test_hostile import TAGS

PART: Final = b"\n--\n"
_NAME: Final = digest_of(b"")
_SUM: Final = len(',"sum":""}') + 32

STATES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"step": 7, "tags": (1, {2}, b"\0", 2**70, float("inf"))},
    {"messages": [{"role": "user", "content": f"{n} " * 20} for n in range(40)], "page": "ü" * 900},
    {"mixed": [{"n": n, "pair": (n, n)} for n in range(60)], "table": {"inner": {"a": "x" * 900}}},
    {"blob": b"\x01" * 2000, "when": utc_now(), "text": "a\0b" * 400},
)


# States -------------------------------------------------------------------------------------------


def stored(data: bytes) -> tuple[Payload, ReadChunks]:
    """Return the payload and the chunks that an input stands for."""
    text, *parts = data.split(PART)
    made: list[Ref] = []
    chunks: dict[bytes, bytes] = {}
    top = []
    for part in parts:
        shape, flags, content = part[:1] or b"\0", part[1:2] or b"\1", part[2:]
        level, tier, lie = shape[0] >> 4, shape[0] & 0xF, flags[0] >> 1
        length = len(content)
        if level:
            below = [made[number % len(made)] for number in content if made]
            content, length = pack_refs(below), sum(ref.length for ref in below)
        chunks[digest_of(content)] = content
        made.append(Ref(digest_of(content), level, tier, min(length + lie, (1 << 48) - 1)))
        if flags[0] & 1:
            top.append(made[-1])
    refs = pack_refs(top)
    total = hashlib.sha256(text + refs).hexdigest()[:32]
    sealed = text[:-1] + f',"sum":"{total}"}}'.encode()

    def read(digests: Any) -> dict[bytes, bytes]:
        return {digest: chunks[digest] for digest in digests if digest in chunks}

    return Payload(sealed.decode("utf-8", "surrogateescape"), refs), read


def as_input(state: dict[str, Any]) -> bytes:
    """Return the input that stands for a state."""
    encoded = StateEncoder().encode(state, {"cwd": "/"})
    parts = [encoded.manifest.encode()[:-_SUM] + b"}"]
    numbers: dict[bytes, int] = {}

    def add(ref: Ref, flags: int) -> None:
        content = bytes(encoded.chunks[ref.digest])
        if ref.level:
            below = children(ref, content)
            for one in below:
                if one.digest not in numbers:
                    add(one, 0)
            content = bytes(numbers[one.digest] for one in below)
        numbers[ref.digest] = len(parts) - 1
        parts.append(bytes((ref.level << 4 | ref.tier, flags)) + content)

    for ref in unpack_refs(encoded.refs):
        add(ref, 1)
    return PART.join(parts)


def state_seeds() -> Iterator[bytes]:
    yield from (as_input(state) for state in STATES)
    yield b'{"v":1,"seqs":[["list",1]],"state":{"x":{"$t":"ref","v":0}}}--\n\x00\x01[1'
    yield from (orjson.dumps({"v": 1, "seqs": [], "state": {"x": tag}}) for tag in TAGS[::3])


def read_state(data: bytes) -> None:
    payload, read = stored(data)
    for way in (
        lambda: decode_state(payload, read, max_bytes=MEMORY_LIMIT),
        lambda: outline_state(payload, read, whole={"x"}, max_bytes=MEMORY_LIMIT),
        lambda: decode_states([payload, payload], read, max_bytes=MEMORY_LIMIT),
        lambda: list(large_values(payload, read, max_bytes=MEMORY_LIMIT)),
        lambda: StateEncoder(max_bytes=MEMORY_LIMIT).adopt(payload, read),
    ):
        with suppress(HoldfastError):
            way()


def read_result(data: bytes) -> None:
    payload, read = stored(data)
    now = utc_now()
    record = EffectRecord(
        session_id="s", key="k", occurrence=0, name="n", fingerprint=b"", status="done",
        attempt_id="a", attempts=1, payload=payload, error=None, started_at=now, finished_at=now,
    )  # fmt: skip
    store = MemoryStore()
    store.read_chunks = read  # type: ignore[assignment, method-assign]
    recorded_result(record, store)


def read_refs(data: bytes) -> None:
    list(digests_in(data))
    for ref in unpack_refs(data)[:1]:
        children(ref, data[RECORD_BYTES:])


def read_chunk(data: bytes) -> None:
    plain = unpack(data[0] if data else 0, data[1:])
    assert plain is None or len(plain) <= max(MEMORY_LIMIT, len(data))


def chunk_seeds() -> Iterator[bytes]:
    for content in (b"", b"x", b"abc " * 100, bytes(1 << 20)):
        codec, packed = pack(content)
        yield bytes((codec,)) + packed


# Sealed -------------------------------------------------------------------------------------------

_ring: Final = KeyRing.new()
_envelopes: Final = Envelopes(keys_from(_ring))


def read_envelope(data: bytes) -> None:
    with suppress(HoldfastError):
        key_of(data, "tenant", "place")
    with suppress(HoldfastError):
        from_text(data.decode("utf-8", "surrogateescape"), "tenant", "place")
    _envelopes.open(data, "tenant", "place")


def read_keys(data: bytes) -> None:
    KeyRing.parse(data.decode("utf-8", "replace"))


# Bundles ------------------------------------------------------------------------------------------


@cache
def small_bundle() -> bytes:
    with (
        tempfile.TemporaryDirectory() as folder,
        SessionManager.open(project_dir=folder, workspace=False) as manager,
    ):
        session = manager.create_session("implementer", metadata={"a": 1})
        session.save_checkpoint("one", state=STATES[2])
        session.step("pay", lambda: {"paid": 1})
        session.log("error", "it failed", data={"code": 1})
        session.decision("Use it", rationale="why not")
        return manager.export_session(session.id, Path(folder, "s.tar")).path.read_bytes()


def parts_of(data: bytes) -> dict[str, bytes]:
    """Return the files in an archive that could be ours, as far as it is one."""
    found = {}
    with (
        suppress(tarfile.TarError, ValueError, OSError),
        tarfile.open(fileobj=io.BytesIO(data)) as archive,
    ):
        for member in archive:
            # A link leads to what may not be there, and `header` writes plain names only.
            if member.isfile() and member.name.isascii():
                file = archive.extractfile(member)
                found[member.name] = file.read() if file is not None else b""
    return found


def _resealed(data: bytes) -> bytes:
    """Return a bundle with the same parts and digests that are right, or the input if it is none."""
    parts = parts_of(data)
    try:
        manifest = orjson.loads(parts[names.MANIFEST])
        manifest["members"] = [
            {"name": name, "bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
            for name, part in parts.items()
            if name not in (names.START, names.MANIFEST)
        ]
        lines = parts[names.CHECKPOINTS].splitlines()
        for said, line in zip(manifest["checkpoints"], lines, strict=False):
            row = rows.CHECKPOINTS.read(line, session_id="s", agent_id="a", seq=0)
            if isinstance(said, dict):
                said |= {"state": payload_digest(row[1]["payload"]), "name": row[0].name}
        text = canonical(manifest)
        return archive_of(parts | {names.START: opening(text), names.MANIFEST: text})
    except (KeyError, TypeError, ValueError, AttributeError, HoldfastError):
        return data


def archive_of(parts: Mapping[str, bytes]) -> bytes:
    """Return the archive that has these parts."""
    whole = (
        header(name, len(part)) + part + bytes(padding(len(part))) for name, part in parts.items()
    )
    return b"".join(whole) + bytes(1024)


def reshaped_bundle(data: bytes, chance: Random) -> bytes:
    """Return a bundle in one of whose documents one value is another."""
    parts = parts_of(data)
    texts = [name for name in (names.MANIFEST, *names.TEXTS) if parts.get(name)]
    if not texts:
        return data
    name = chance.choice(texts)
    return archive_of(parts | {name: reshaped(parts[name], chance)})


# In memory where that can be: nothing here has to outlast anything.
_memory: Final = Path("/dev/shm")
_folder = tempfile.TemporaryDirectory(prefix="fuzz-", dir=_memory if _memory.is_dir() else None)


def file_of(name: str, data: bytes) -> Path:
    """Write a file to be read, and return where it is."""
    path = Path(_folder.name, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read_bundle(data: bytes) -> None:
    for whole in (data, _resealed(data)):
        with suppress(HoldfastError), open_bundle(file_of("s.tar", whole)) as bundle:
            for record in bundle.copy.checkpoints:
                bundle.payload(record.id)
            bundle.read_chunks(bundle.leaves)
            bundle.brief()


def read_sealed_bundle(data: bytes) -> None:
    """As it is, and as the archive in a seal that is whole."""
    keys = keys_from(_ring)
    for whole in (data, _in_seals(data)):
        path = file_of("s.sealed", whole)
        with suppress(HoldfastError), open_bundle(path, keys=keys) as bundle:
            bundle.read_chunks(bundle.leaves)
            bundle.brief()


def _in_seals(archive: bytes) -> bytes:
    written = io.BytesIO()
    writer = SealedWriter(written, _ring)
    writer.write(archive)
    writer.finish()
    return written.getvalue()


def read_rows(data: bytes) -> None:
    given = {"session_id": "s", "agent_id": "a", "seq": 0}
    for kind, more in (
        (rows.AGENTS, {}),
        (rows.CHECKPOINTS, given),
        (rows.WRITES, {}),
        (rows.EFFECTS, {"session_id": "s"}),
        (rows.LOGS, {"session_id": "s", "id": 1}),
    ):
        with suppress(HoldfastError):
            kind.read(data, **more)
    rows.read_session_row(data)


def row_seeds() -> Iterator[bytes]:
    for name, part in parts_of(small_bundle()).items():
        if name in names.TEXTS:
            yield from part.splitlines()


TARGETS: Final = (
    Target("state", read_state, state_seeds),
    Target("effect-result", read_result, lambda: [as_input({"result": one}) for one in STATES]),
    Target("refs", read_refs, lambda: [pack_refs([Ref(_NAME, 1, 0, 30), Ref(_NAME, 0, 2, 30)])]),
    Target("chunk", read_chunk, chunk_seeds),
    Target("document", load_document, lambda: [b"{}", *(orjson.dumps({"x": tag}) for tag in TAGS)]),
    Target("envelope", read_envelope, lambda: [_envelopes.seal(b"content", "tenant", "place")]),
    Target("keys", read_keys, lambda: [_ring.text().encode(), _ring.rotated().text().encode()]),
    Target("bundle", read_bundle, lambda: [small_bundle()], reshape=reshaped_bundle),
    Target(
        "sealed-bundle",
        read_sealed_bundle,
        lambda: [_in_seals(small_bundle()), small_bundle()],
        reshape=reshaped_bundle,
    ),
    Target("bundle-rows", read_rows, row_seeds),
)
