"""Reading what was damaged, swapped or forged: a typed error every time, in bounded time and memory."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import DigestMismatch, IntegrityError, StateCorrupt, StateTooLarge
from holdfast.model import Payload
from holdfast.state import StateEncoder, decode_state, decode_states
from holdfast.state.cache import NO_CACHE
from holdfast.state.codec import load_document
from holdfast.state.refs import (
    RECORD_BYTES,
    Ref,
    check_chunk,
    children,
    digest_of,
    digests_in,
    expand_each,
    pack_refs,
    unpack_refs,
)
from tests.state.simulation import Chunks, exact, message

STATE: dict[str, Any] = {
    "messages": [message(n) for n in range(300)],
    "mixed": [{"n": n, "pair": (n, n)} for n in range(60)],
    "page": "text " * 400,
    "blob": b"\x00\x01" * 900,
    "table": {"inner": {"a": "x" * 700, "b": 1}},
    "step": 7,
}


def _stored() -> tuple[Chunks, Payload]:
    chunks = Chunks()
    encoded = StateEncoder().encode(STATE, {"cwd": "/tmp"})
    chunks.put(encoded)
    return chunks, Payload(encoded.manifest, encoded.refs)


def _sealed(document: Any, refs: bytes = b"") -> Payload:
    """Forge a manifest whose sum fits: whoever can write rows can do that."""
    text = document if isinstance(document, bytes) else orjson.dumps(document)
    total = hashlib.sha256(text + refs).hexdigest()[:32]
    return Payload((text[:-1] + f',"sum":"{total}"}}'.encode()).decode(), refs)


def _nothing(digests: Any) -> dict[bytes, bytes]:
    return {}


def _decode(payload: Payload, chunks: dict[bytes, bytes] | None = None) -> Any:
    stored = chunks or {}
    adopter = StateEncoder()

    def read(digests: Any) -> dict[bytes, bytes]:
        return {digest: stored[digest] for digest in digests if digest in stored}

    # Adopting reads less than decoding and may accept more, but it fails in the same way.
    with contextlib.suppress(IntegrityError):
        adopter.adopt(payload, read)
    return decode_state(payload, read).state


def test_any_damage_to_a_manifest_is_noticed() -> None:
    chunks, payload = _stored()
    text = payload.manifest
    for at in range(len(text)):
        for changed in (text[:at], text[:at] + text[at + 1 :], text[:at] + "☃" + text[at + 1 :]):
            with pytest.raises((StateCorrupt, DigestMismatch)):
                decode_state(Payload(changed, payload.refs), chunks.read)
    for at in range(len(payload.refs)):
        flipped = bytearray(payload.refs)
        flipped[at] ^= 1
        with pytest.raises((StateCorrupt, DigestMismatch)):
            decode_state(Payload(text, bytes(flipped)), chunks.read)
    with pytest.raises(StateCorrupt):
        decode_state(Payload(text + " ", payload.refs), chunks.read)
    with pytest.raises(StateCorrupt):
        decode_state(Payload("\ud800" + text, payload.refs), chunks.read)


def test_a_missing_or_changed_chunk_is_noticed() -> None:
    chunks, payload = _stored()
    whole = dict(chunks.stored)
    for digest, data in whole.items():
        others = (None, b"", data[:-1], data + b"x", bytes([data[0] ^ 1]) + data[1:])
        for other in (*others, next(bytes(x) for x in whole.values() if x != data)):
            chunks.stored = {**whole, digest: other} if other is not None else dict(whole)
            if other is None:
                del chunks.stored[digest]
            with pytest.raises(DigestMismatch):
                decode_state(payload, chunks.read)
    chunks.stored = whole
    assert exact(chunks.load(payload)) == exact(STATE)


def test_a_state_beyond_the_limit_is_refused_before_anything_is_read() -> None:
    chunks, payload = _stored()
    size = sum(ref.length for ref in unpack_refs(payload.refs))
    chunks.reads.clear()
    with pytest.raises(StateTooLarge):
        decode_state(payload, chunks.read, max_bytes=size - 1)
    assert chunks.reads == []
    assert decode_state(payload, chunks.read, max_bytes=size).state


CONTENT = b'[{"n":1}'
LEAF = Ref(digest_of(CONTENT), 0, 0, len(CONTENT))
REFS = pack_refs([LEAF])
CHUNKS = {LEAF.digest: CONTENT}


def _document(**changes: Any) -> dict[str, Any]:
    document = {"v": 1, "seqs": [["list", 1]], "state": {"x": {"$t": "ref", "v": 0}}}
    return {key: value for key, value in {**document, **changes}.items() if value is not ...}


def test_the_forged_manifest_of_these_tests_is_good_before_it_is_spoilt() -> None:
    assert _decode(_sealed(_document(), REFS), CHUNKS) == {"x": [{"n": 1}]}


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": "1"},
        {"v": None},
        {"v": ...},
        {"seqs": ...},
        {"seqs": None},
        {"seqs": 3},
        {"seqs": {"list": 1}},
        {"seqs": "list"},
        {"seqs": []},
        {"seqs": [["list"]]},
        {"seqs": [["list", 1, 1]]},
        {"seqs": [["list", "1"]]},
        {"seqs": [["list", -1]]},
        {"seqs": [["list", 0]]},
        {"seqs": [["list", 2]]},
        {"seqs": [["list", 1 << 60]]},
        {"seqs": [["list", None]]},
        {"seqs": [[["list"], 1]]},
        {"seqs": [{"list": 1}]},
        {"seqs": [["tape", 1]]},
        {"seqs": [["", 1]]},
        {"seqs": [["str++", 1]]},
        {"seqs": [["json", 1]]},
        {"seqs": [["json+", 1]]},
        {"state": ...},
        {"state": None},
        {"state": []},
        {"state": 7},
        {"state": "x"},
        {"state": {}},
        {"state": {"x": {"$t": "ref", "v": 1}}},
        {"state": {"x": {"$t": "ref", "v": -1}}},
        {"state": {"x": {"$t": "ref", "v": "0"}}},
        {"state": {"x": {"$t": "ref", "v": True}}},
        {"state": {"x": {"$t": "ref", "v": 0.0}}},
        {"state": {"x": {"$t": "ref"}}},
        {"state": {"x": {"$t": "ref", "v": 0}, "y": {"$t": "ref", "v": 0}}},
        {"state": {"x": [{"$t": "ref", "v": 0}]}},
        {"state": {"x": {"$t": "tuple", "v": [{"$t": "ref", "v": 0}]}}},
        {"state": {"$t": "ref", "v": 0}},
        {"context": None},
        {"context": [1]},
    ],
    ids=str,
)
def test_a_forged_manifest_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(StateCorrupt):
        _decode(_sealed(_document(**changes), REFS), CHUNKS)


@pytest.mark.parametrize(
    "text",
    [b"[]", b"7", b'"x"', b"null", b"{}", b'{"v":1}', b"nonsense}", b"[" * 5000 + b"}", b"}"],
)
def test_a_manifest_that_is_no_such_object_is_refused(text: bytes) -> None:
    with pytest.raises(StateCorrupt):
        _decode(_sealed(text), {})


@settings(deadline=None, max_examples=150)
@given(
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(-2, 3), st.text(max_size=3), st.just("list")
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["$t", "v", "x", "fold", "zone"]), inner, max_size=3),
        ),
        max_leaves=6,
    ),
    st.sampled_from(["seqs", "state", "context", "v"]),
)
def test_no_forgery_raises_anything_but_our_errors(value: Any, key: str) -> None:
    with contextlib.suppress(IntegrityError):
        _decode(_sealed(_document(**{key: value}), REFS), CHUNKS)


TAGS: list[Any] = [
    {"$t": "unknown", "v": 1},
    {"$t": None, "v": 1},
    {"$t": 5},
    {"$t": ["str"]},
    {"$t": {}},
    {"$t": "bytes", "v": "not base64!"},
    {"$t": "bytes", "v": "YQ"},
    {"$t": "bytes", "v": None},
    {"$t": "bytes"},
    {"$t": "str", "v": "/w=="},
    {"$t": "str", "v": 1},
    {"$t": "int", "v": "zz"},
    {"$t": "int", "v": 5},
    {"$t": "int", "v": [1]},
    {"$t": "float", "v": "one"},
    {"$t": "float", "v": []},
    {"$t": "datetime", "v": "yesterday"},
    {"$t": "datetime", "v": "2024-01-01T00:00:00", "fold": 7},
    {"$t": "datetime", "v": "2024-01-01T00:00:00", "fold": "x"},
    {"$t": "datetime", "v": 5},
    {"$t": "date", "v": "2024-13-01"},
    {"$t": "time", "v": "25:00"},
    {"$t": "time", "v": "12:00", "zone": "../../etc/passwd"},
    {"$t": "time", "v": "12:00", "zone": 7},
    {"$t": "timedelta", "v": [10**12, 0, 0]},
    {"$t": "timedelta", "v": [1, 2, 3, 4, 5, 6, 7, 8]},
    {"$t": "timedelta", "v": ["x"]},
    {"$t": "timedelta", "v": None},
    {"$t": "uuid", "v": "x"},
    {"$t": "uuid", "v": 5},
    {"$t": "decimal", "v": "x"},
    {"$t": "decimal", "v": {}},
    {"$t": "path", "v": 5},
    {"$t": "path", "v": []},
    {"$t": "path", "v": [5]},
    {"$t": "path", "v": ["a", "b"]},
    {"$t": "path", "v": "!"},
    {"$t": "tuple", "v": 5},
    {"$t": "tuple", "v": {"a": 1}},
    {"$t": "set", "v": [[1]]},
    {"$t": "set", "v": [{"a": 1}]},
    {"$t": "frozenset", "v": "abc"},
    {"$t": "dict", "v": [1]},
    {"$t": "dict", "v": [["a"]]},
    {"$t": "dict", "v": [[1, 2]]},
    {"$t": "dict", "v": [[["a"], 2]]},
    {"$t": "ref", "v": 0},
]


@pytest.mark.parametrize("tag", TAGS, ids=str)
def test_a_tag_that_makes_no_sense_is_refused(tag: Any) -> None:
    with pytest.raises(StateCorrupt):
        load_document(orjson.dumps({"x": tag}))
    content = orjson.dumps([tag])[:-1]
    leaf = Ref(digest_of(content), 0, 0, len(content))
    payload = _sealed(_document(seqs=[["list+", 1]]), pack_refs([leaf]))
    with pytest.raises(StateCorrupt):
        _decode(payload, {leaf.digest: content})


def test_a_huge_integer_in_a_tag_is_read_in_linear_time() -> None:
    assert (
        load_document(b'{"x":{"$t":"int","v":"0x%s"}}' % (b"f" * 1_000_000))["x"].bit_length()
        == 4_000_000
    )


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"$t":"tuple","v":['])
@pytest.mark.parametrize("depth", [250, 600, 5000, 100_000])
def test_deep_json_is_refused(opening: bytes, depth: int) -> None:
    closing = {b"[": b"]", b'{"a":': b"}", b'{"$t":"tuple","v":[': b"]}"}[opening]
    text = opening * depth + b"0" + closing * depth
    with pytest.raises(StateCorrupt):
        load_document(b'{"x":' + text + b"}")
    content = b"[" + text
    leaf = Ref(digest_of(content), 0, 0, len(content))
    with pytest.raises(StateCorrupt):
        _decode(_sealed(_document(seqs=[["list+", 1]]), pack_refs([leaf])), {leaf.digest: content})


def test_content_that_is_not_what_its_kind_says_is_refused() -> None:
    for kind, content in (
        ("str", b"\xff\xfe"),
        ("list", b"[1,"),
        ("list", b"nonsense"),
        ("json", b"{"),
        ("json+", b""" {"a": {"$t": "ref", "v": 0}}"""),
        ("json+", b"""{"$t": "ref", "v": 0}"""),
    ):
        leaf = Ref(digest_of(content), 0, 0, len(content))
        with pytest.raises(StateCorrupt):
            _decode(_sealed(_document(seqs=[[kind, 1]]), pack_refs([leaf])), {leaf.digest: content})


@pytest.mark.parametrize(
    ("good", "more"),
    [(b"[", b",1"), (b"[1", b","), (b"[1", b", "), (b"[1", b",2],[3"), (b"[1", b"0")],
    ids=["nothing before", "nothing behind", "a space behind", "two lists", "another number"],
)
def test_a_damaged_end_is_refused_also_after_a_beginning_that_was_read(
    good: bytes, more: bytes
) -> None:
    leaves = [Ref(digest_of(content), 0, 0, len(content)) for content in (good, more)]
    stored = {leaves[0].digest: good, leaves[1].digest: more}
    first, second = (
        _sealed(_document(seqs=[["list", count]]), pack_refs(leaves[:count])) for count in (1, 2)
    )
    outcomes: list[Any] = []
    for payloads in ([second], [first, second]):
        try:
            outcomes.append(decode_states(payloads, lambda _: stored)[-1].state)
        except StateCorrupt:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] == ({"x": [10]} if more == b"0" else None)


def test_a_list_is_as_deep_as_its_place_allows_also_when_another_place_had_it() -> None:
    content = b"[" + b"[" * 190 + b"0" + b"]" * 190
    leaf = Ref(digest_of(content), 0, 0, len(content))
    deep: Any = {"$t": "ref", "v": 1}
    for _ in range(100):
        deep = {"d": deep}
    document = _document(seqs=[["list+", 1], ["list+", 1]])
    document["state"]["deep"] = deep
    payload = _sealed(document, pack_refs([leaf, leaf]))
    for decode in (decode_state, lambda *given: decode_states([given[0]], given[1])):
        with pytest.raises(StateCorrupt, match="nested too deeply"):
            decode(payload, lambda _: {leaf.digest: content})


def test_a_chain_of_references_is_refused_however_long() -> None:
    chunks, refs = {}, []
    for number in range(3000):
        content = b'{"$t":"ref","v":%d}' % (number + 1)
        refs.append(Ref(digest_of(content), 0, 0, len(content)))
        chunks[refs[-1].digest] = content
    document = _document(seqs=[["json+", 1]] * 3000)
    with pytest.raises(StateCorrupt):
        _decode(_sealed(document, pack_refs(refs)), chunks)


def _index(below: list[Ref]) -> tuple[Ref, bytes]:
    data = pack_refs(below)
    return Ref(digest_of(data), below[0].level + 1, 0, sum(ref.length for ref in below)), data


@pytest.mark.parametrize(
    "lie",
    [
        lambda ref: ref._replace(length=ref.length + 1),
        lambda ref: ref._replace(length=ref.length - 1),
        lambda ref: ref._replace(level=2),
        lambda ref: ref._replace(level=9),
        lambda ref: ref._replace(level=15),
        lambda ref: ref._replace(level=0),
    ],
)
def test_an_index_that_lies_is_refused(lie: Callable[[Ref], Ref]) -> None:
    index, data = _index([LEAF, LEAF])
    assert expand_each([[index]], lambda digests: {index.digest: data}, NO_CACHE) == [[LEAF, LEAF]]
    lied = lie(index)
    with pytest.raises(StateCorrupt):
        _decode(_sealed(_document(), pack_refs([lied])), {**CHUNKS, index.digest: data})


def test_an_index_of_broken_records_is_refused() -> None:
    data = pack_refs([LEAF])[:-1]
    with pytest.raises(StateCorrupt):
        children(Ref(digest_of(data), 1, 0, LEAF.length), data)
    with pytest.raises(StateCorrupt):
        _decode(_sealed(_document(), REFS + b"x"), CHUNKS)
    assert list(digests_in(REFS + b"partial")) == [(LEAF.digest, False)]


def test_a_few_index_chunks_cannot_ask_for_endless_memory() -> None:
    """Eight levels of eight hundred references each would be a bomb of 10**23 leaves."""
    for length in (0, 1):
        content = b"x" * length
        ref = Ref(digest_of(content), 0, 0, length)
        chunks = {ref.digest: content}
        for _ in range(4):
            ref, data = _index([ref] * 800)
            chunks[ref.digest] = data
        payload = _sealed(_document(seqs=[["str", 1]]), pack_refs([ref]))
        with pytest.raises((StateCorrupt, StateTooLarge)):
            _decode(payload, chunks)


def test_sequences_that_nothing_refers_to_are_refused() -> None:
    with pytest.raises(StateCorrupt, match="does not refer to"):
        _decode(_sealed(_document(state={"x": 1}), REFS), CHUNKS)


def test_an_empty_reference_is_refused() -> None:
    empty = Ref(digest_of(b""), 0, 0, 0)
    with pytest.raises(StateCorrupt):
        _decode(_sealed(_document(seqs=[["str", 1]]), pack_refs([empty])), {empty.digest: b""})


def test_a_chunk_is_checked_for_bytes_and_length() -> None:
    assert check_chunk(LEAF, CONTENT) == CONTENT
    with pytest.raises(DigestMismatch, match="missing"):
        check_chunk(LEAF, None)
    with pytest.raises(DigestMismatch, match="other bytes"):
        check_chunk(LEAF, b"x" + CONTENT[1:])
    with pytest.raises(StateCorrupt, match="bytes long"):
        check_chunk(LEAF._replace(length=3), CONTENT)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.builds(
            Ref,
            st.binary(min_size=33, max_size=33),
            st.integers(0, 15),
            st.integers(0, 15),
            st.integers(0, (1 << 48) - 1),
        ),
        max_size=9,
    )
)
def test_records_round_trip(refs: list[Ref]) -> None:
    packed = pack_refs(refs)
    assert len(packed) == RECORD_BYTES * len(refs)
    assert unpack_refs(packed) == refs
    assert list(digests_in(packed)) == [(ref.digest, ref.level > 0) for ref in refs]
