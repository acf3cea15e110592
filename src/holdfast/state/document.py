"""The manifest: a small JSON document that describes a state.

What is small in a state stands in it; what is large is a *sequence* of chunks, for which a
placeholder stands in its place:

    {"v": 1,
     "seqs": [["list", 3], ["str", 1]],
     "state": {"messages": {"$t": "ref", "v": 0}, "page": {"$t": "ref", "v": 1}, "step": 7},
     "sum": "…"}

Each sequence says what it is and how many records of ``refs`` are its own, in order:

    list   JSON text of the elements, a comma before each, so that an append only adds bytes
    json   JSON text of a dict that stayed large after its own large parts were taken out
    str    UTF-8 text
    bytes  bytes

A trailing ``+`` on ``list`` or ``json`` says that tags or placeholders are inside; without it the text
needs no second look after parsing. Placeholders number the sequences in the order of the walk, so the
text around them stays the same while what they stand for grows. They stand in dicts only, never in a
list or inside a tag. ``context``, where there is one, is a second dict like ``state``.

``sum`` is the first half of the SHA-256 of the document before it was added and of ``refs``: a manifest
that was damaged or parted from its references is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from holdfast.errors import KeyRequired, StateCorrupt
from holdfast.model import Payload
from holdfast.state.codec import load_json
from holdfast.state.refs import Ref, pack_refs, unpack_refs

FORMAT: Final = 1
# How the manifests of a sealed store begin, each an envelope in a document of its own.
SEALED_START: Final = '{"sealed":"'
_SUM_BYTES: Final = 16
_SUM_START: Final = b',"sum":"'
_SUM_TEXT: Final = len(_SUM_START) + 2 * _SUM_BYTES + len(b'"}')


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that was read and fits its references. ``sequences`` have their kind and refs."""

    state: Any
    context: Any
    sequences: list[tuple[str, list[Ref]]]


def write_manifest(
    state: bytes, context: bytes, sequences: Sequence[tuple[str, int]], refs: Iterable[Ref]
) -> Payload:
    """Put the texts of state and context (empty if there is none) and their sequences together.

    Each sequence says what it is and how many of the references are its own.
    """
    packed = pack_refs(refs)
    around = b',"context":' + context if context else b""
    text = b'{"v":%d,"seqs":%s,"state":%s%s}' % (FORMAT, orjson.dumps(sequences), state, around)
    return Payload(_sealed(text, packed).decode(), packed)


def read_manifest(payload: Payload) -> Manifest:
    """Read a manifest. Raises `StateCorrupt` unless it is whole and fits its references."""
    # A database that is damaged may give a value another type.
    given: tuple[object, object] = (payload.manifest, payload.refs)
    if not isinstance(given[0], str) or not isinstance(given[1], bytes | memoryview):
        raise StateCorrupt("the manifest is damaged: it, or its references, are of another type")
    try:
        sealed = payload.manifest.encode()
    except UnicodeEncodeError:
        raise StateCorrupt("the manifest is damaged: it is not Unicode") from None
    text = sealed[:-_SUM_TEXT] + b"}"
    if _sealed(text, payload.refs) != sealed:
        if payload.manifest.startswith(SEALED_START):
            raise KeyRequired(
                "the state is sealed, and it was read without a key: set HOLDFAST_KEY or "
                "HOLDFAST_KEY_FILE and repeat this"
            )
        raise StateCorrupt("the manifest is damaged: its sum does not fit")
    document = load_json(text, "the manifest")
    if type(document) is not dict or type(document.get("v")) is not int:
        raise StateCorrupt("the manifest lacks what every manifest has")
    if document["v"] != FORMAT:
        reason = f"the manifest has format {document['v']}, this version reads {FORMAT}"
        raise StateCorrupt(reason)
    table = document.get("seqs")
    if type(table) is not list or "state" not in document:
        raise StateCorrupt("the manifest lacks what every manifest has")
    sequences = _sequences(table, unpack_refs(payload.refs))
    return Manifest(document["state"], document.get("context", {}), sequences)


def seal_of(manifest: str) -> str:
    """Return the sum at the end of a manifest: another one means another state or context."""
    return manifest[-2 * _SUM_BYTES - len('"}') : -len('"}')]


def _sequences(table: list[Any], refs: list[Ref]) -> list[tuple[str, list[Ref]]]:
    sequences: list[tuple[str, list[Ref]]] = []
    at = 0
    for entry in table:
        match entry:
            case [str(kind), int(count)] if 0 < count <= len(refs) - at:
                sequences.append((kind, refs[at : at + count]))
                at += count
            case _:
                raise StateCorrupt("the manifest and its references do not fit each other")
    if at != len(refs) or not all(ref.length for ref in refs):
        raise StateCorrupt("the manifest and its references do not fit each other")
    return sequences


def _sealed(text: bytes, refs: bytes) -> bytes:
    total = hashlib.sha256(text + refs).hexdigest()[: 2 * _SUM_BYTES]
    return text[:-1] + _SUM_START + total.encode() + b'"}'
