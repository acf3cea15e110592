"""Adding to a stored list without reading it."""

import random
from collections.abc import Collection
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.errors import ChunksMissing, StateNotSerializable
from holdfast.model import Payload
from holdfast.recording import Recorder
from holdfast.state import StateEncoder, StoredList, decode_state, outline_state


class Chunks:
    """Chunks by digest, and which of them were read."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}
        self.read: list[bytes] = []

    def put(self, state: dict[str, Any], context: dict[str, Any] | None = None) -> Payload:
        encoded = StateEncoder().encode(state, context)
        missing = [one for one in encoded.expects if one not in self.stored]
        assert not missing
        self.stored |= {digest: bytes(data) for digest, data in encoded.chunks.items()}
        self.sent = sum(len(data) for data in encoded.chunks.values())
        self.size = encoded.size_bytes
        return Payload(encoded.manifest, encoded.refs)

    def __call__(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        self.read += digests
        return {digest: self.stored[digest] for digest in digests if digest in self.stored}


def message(number: int, size: int = 900) -> dict[str, Any]:
    return {
        "role": "user",
        "content": f"{number} " + random.Random(number).randbytes(size // 2).hex(),
    }


def test_a_list_grows_by_processes_that_never_read_it() -> None:
    chunks = Chunks()
    items = [message(number) for number in range(500)]
    payload = chunks.put({"conversation_history": items, "step": 0})
    whole = chunks.size
    for step in range(1, 200):
        state = outline_state(payload, chunks).state
        assert isinstance(state["conversation_history"], StoredList)
        new = [message(1000 + step)]
        items += new
        chunks.read.clear()
        payload = chunks.put(
            {"conversation_history": state["conversation_history"].plus(new), "step": step}
        )
        read = sum(len(chunks.stored[one]) for one in chunks.read)
        assert max(chunks.sent, read) < 40_000 < whole // 10
    decoded = decode_state(payload, chunks).state
    assert decoded == {"conversation_history": items, "step": 199}
    assert chunks.size == StateEncoder().encode(decoded).size_bytes


def test_the_same_item_can_be_added_again_and_again() -> None:
    chunks = Chunks()
    payload = chunks.put({"list": [message(1), message(2)]})
    for _ in range(40):
        state = outline_state(payload, chunks).state
        payload = chunks.put({"list": state["list"].plus([message(1)])})
    assert decode_state(payload, chunks).state["list"][2:] == [message(1)] * 40


@pytest.mark.parametrize("count", [1, 7, 16, 40])
def test_as_it_is_or_with_more_it_comes_back_the_same(count: int) -> None:
    chunks = Chunks()
    items: list[Any] = [message(number) for number in range(count)]
    payload = chunks.put({"list": items, "deep": {"list": items, "text": "x" * 5000}}, {"a": items})
    for new in ([], [{"b": b"\x00"}], [1, None, "ü\x00"], []):
        outline = outline_state(payload, chunks)
        assert outline.context == {"a": items}
        state = outline.state
        deep = {**state["deep"], "list": state["deep"]["list"].plus(new)}
        payload = chunks.put({"list": state["list"], "deep": deep}, outline.context)
        items = decode_state(payload, chunks).state["list"]
        assert (
            decode_state(payload, chunks).state["deep"]["list"][len(items) :][-len(new) or 99 :]
            == new
        )
    assert decode_state(payload, chunks).state["deep"]["text"] == "x" * 5000


def test_the_keys_that_are_asked_for_are_read() -> None:
    chunks = Chunks()
    tasks = [{"id": f"{number}", "title": "x" * 100} for number in range(100)]
    state = outline_state(
        chunks.put({"task_state": tasks, "other": tasks}), chunks, whole=["task_state"]
    )
    assert state.state["task_state"] == tasks
    assert isinstance(state.state["other"], StoredList)
    assert state.state["other"].whole() == tasks


def test_where_chunks_are_gone_the_second_attempt_sends_everything() -> None:
    chunks = Chunks()
    items = [message(number) for number in range(100)]
    outline = outline_state(chunks.put({"list": items}), chunks).state
    recorder = Recorder()
    sent = []
    for attempt in recorder.attempts({"list": outline["list"].plus([1])}):
        with attempt as encoded:
            sent.append(encoded)
            if len(sent) == 1:
                raise ChunksMissing("swept")
    first, second = sent
    assert sum(map(len, first.chunks.values())) < 10_000
    everything = Payload(second.manifest, second.refs)
    assert decode_state(
        everything, lambda _: {k: bytes(v) for k, v in second.chunks.items()}
    ).state == {"list": [*items, 1]}


def test_what_cannot_be_stored_is_refused_by_its_path() -> None:
    chunks = Chunks()
    outline = outline_state(chunks.put({"list": [message(1), message(2)]}), chunks).state
    with pytest.raises(StateNotSerializable, match=r"\$\.list\[0\]"):
        StateEncoder().encode({"list": outline["list"].plus([object()])})


def test_a_session_in_a_new_process_adds_to_its_latest_checkpoint() -> None:
    manager = SessionManager.open("memory:", workspace=False)
    session = manager.create_session("worker")
    assert session.outline() == {}
    items = [message(number) for number in range(200)]
    tasks = [{"id": "a", "status": "completed"}]
    session.save_checkpoint(state={"conversation_history": items, "task_state": tasks})
    again = manager.get_session(session.id)
    state = again.outline()
    session.close()
    again = manager.resume_session(session.id)
    state = again.outline()
    history = state["conversation_history"].plus([message(999)])
    saved = again.save_checkpoint(state={"conversation_history": history})
    assert saved.state == {"conversation_history": [*items, message(999)]}
    assert saved.parent_id is not None
    # What was completed stays completed, although this state says nothing of it.
    assert saved.task_state == {"tasks": tasks}
    manager.close()
