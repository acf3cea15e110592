"""What a saver remembers of a thread is what its store holds, whatever graphs and others do meanwhile."""

from __future__ import annotations

import copy
import random
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from pydantic import BaseModel

from holdfast.errors import CheckpointAltered, CheckpointQuarantined
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.model import CheckpointQuery
from holdfast.state.plain import COMPILED
from holdfast.stores import Store
from tests.state.plain import IMPLEMENTATIONS

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def put(saver: HoldfastSaver, channels: dict[str, Any], *, after: Any = THREAD) -> Any:
    checkpoint: Any = {**empty_checkpoint(), "channel_values": channels}
    return saver.put(after, checkpoint, {"step": 1}, {})


def get(saver: HoldfastSaver) -> Any:
    found = saver.get_tuple(THREAD)
    assert found is not None
    return found


def message(number: int) -> AnyMessage:
    if number % 3 == 0:
        return HumanMessage(f"{number} " * 40, id=f"h{number}", additional_kwargs={"a": [number]})
    if number % 3 == 1:
        call = {"name": "f", "args": {"x": [1, {"y": 2}]}, "id": str(number)}
        return AIMessage("", id=f"a{number}", tool_calls=[call], usage_metadata=None)
    return ToolMessage(["a", {"type": "text", "text": "b"}], tool_call_id=str(number))


def shape(value: Any) -> Any:
    """Return a value with all its types, and what pydantic keeps beside the fields."""
    if isinstance(value, list | tuple | deque):
        return type(value), [shape(item) for item in value]
    if isinstance(value, dict):
        return dict, [(shape(key), shape(item)) for key, item in value.items()]
    if hasattr(value, "__pydantic_fields_set__"):
        kept = (value.__dict__, value.__pydantic_extra__, value.__pydantic_private__)
        return type(value), shape(list(kept)), sorted(value.__pydantic_fields_set__)
    return type(value), value


def edited(messages: list[Any], chance: random.Random, number: int) -> list[Any]:
    kind = chance.randrange(12)
    if kind == 0:
        return messages[: chance.randrange(len(messages) + 1)]
    if kind == 1 and messages:
        at = chance.randrange(len(messages))
        return [*messages[:at], message(number), *messages[at + 1 :]]
    if kind == 2:
        return list(messages)
    if kind == 3 and messages:
        changed = copy.deepcopy(messages)
        if hasattr(changed[0], "content"):
            changed[0].content = f"changed {number}"
        return changed
    if kind == 4:
        odd = (("a tuple", number), {1, 2}, datetime(2026, 1, 1, tzinfo=UTC), deque([1], 2), 2**70)
        return [*messages, chance.choice(odd)]
    return [*messages, message(number)]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_remembered_is_what_another_saver_reads(
    url: str, seed: int, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("built", "fits", "outline"):
        function = getattr(IMPLEMENTATIONS[implementation], name)
        monkeypatch.setattr(f"holdfast.state.known.{name}", function)
    chance = random.Random(seed)
    messages: list[Any] = []
    with HoldfastSaver(url) as saver:
        at = THREAD
        for number in range(25):
            messages = edited(messages, chance, number)
            channels = {
                "messages": messages,
                "same": messages[:2],
                "n": number,
                "d": {"a": [number]},
            }
            at = put(saver, channels, after=at)
            if number % 7 == 6:
                at = put(saver, {**channels, "d": {"s": {1, 2}}}, after=at)
            remembered = get(saver)
            # One with the same store and without a memory.
            read = get(HoldfastSaver(saver.store))
            assert shape(remembered.checkpoint) == shape(read.checkpoint)
            assert remembered == read
            # A graph goes on with the messages that it was given.
            if chance.random() < 0.7:
                messages = remembered.checkpoint["channel_values"]["messages"]


def test_of_what_was_put_only_the_row_is_read_again(
    saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [message(number) for number in range(60)]
    at = put(saver, {"messages": messages})
    put(saver, {"messages": [*messages, message(61)]}, after=at)

    def refuse(*_: object) -> Any:
        raise AssertionError("chunks were read")

    monkeypatch.setattr(saver.store, "read_chunks", refuse)
    assert get(saver).checkpoint["channel_values"]["messages"] == [*messages, message(61)]


def test_what_is_handed_out_is_the_graphs_own(saver: HoldfastSaver) -> None:
    messages = [message(number) for number in range(6)]
    before = copy.deepcopy(messages)
    put(saver, {"messages": messages})
    messages[0].content = "changed after it was put"
    messages[0].additional_kwargs["a"].append(9)
    messages.append(message(7))
    for _ in range(2):
        values = get(saver).checkpoint["channel_values"]
        assert values["messages"] == before
        values["messages"][0].content = "changed after it was read"
        values["messages"][0].additional_kwargs["a"].append(9)
        values["messages"][1].tool_calls[0]["args"]["x"][1]["y"] = 3
        values["messages"].pop()


def test_a_turn_after_a_turn_is_handed_the_same_messages(saver: HoldfastSaver) -> None:
    """Which nobody can notice but by their addresses: each turn has dropped them before the next one."""
    messages = [message(number) for number in range(6)]
    put(saver, {"messages": messages})

    def addresses() -> list[int]:
        return [id(one) for one in get(saver).checkpoint["channel_values"]["messages"]]

    first = addresses()
    assert (addresses() == first) == COMPILED
    kept = get(saver).checkpoint["channel_values"]["messages"]
    kept[0].content = "mine"
    assert set(addresses()).isdisjoint(id(one) for one in kept)
    assert get(saver).checkpoint["channel_values"]["messages"] == messages


class Slotted(BaseModel):
    __slots__ = ("_seen",)

    number: int


def test_what_a_graph_put_into_a_slot_is_not_handed_on(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "agent.db", types=[Slotted]) as saver:
        put(saver, {"messages": [Slotted(number=3)]})
        (mine,) = get(saver).checkpoint["channel_values"]["messages"]
        object.__setattr__(mine, "_seen", "by me")
        del mine
        (again,) = get(saver).checkpoint["channel_values"]["messages"]
        assert again == Slotted(number=3)
        with pytest.raises(AttributeError):
            object.__getattribute__(again, "_seen")


def test_what_others_put_is_read(url: str, saver: HoldfastSaver) -> None:
    at = put(saver, {"messages": [message(0)]})
    other = HoldfastSaver(saver.store)
    at = put(other, {"messages": [message(0), message(1)]}, after=at)
    assert get(saver).checkpoint["channel_values"]["messages"] == [message(0), message(1)]
    # Whose own put goes on from what the other one stored.
    put(saver, {"messages": [message(0), message(1), message(2)]}, after=at)
    assert len(get(saver).checkpoint["channel_values"]["messages"]) == 3
    assert len(get(other).checkpoint["channel_values"]["messages"]) == 3


def test_two_branches_of_one_thread_are_not_mixed(saver: HoldfastSaver) -> None:
    messages = [message(number) for number in range(30)]
    root = put(saver, {"messages": messages})
    left = put(saver, {"messages": [*messages, message(31)]}, after=root)
    right = put(saver, {"messages": [*messages, message(32)]}, after=root)
    for at, last in ((left, 31), (right, 32), (left, 31)):
        found = saver.get_tuple(at)
        assert found is not None
        values = found.checkpoint["channel_values"]["messages"]
        assert values == [*messages, message(last)]
        put(saver, {"messages": [*values, message(33)]}, after=at)
        assert get(saver).checkpoint["channel_values"]["messages"][-2:] == [
            message(last),
            message(33),
        ]


def test_what_was_set_aside_is_not_handed_out_from_memory(saver: HoldfastSaver) -> None:
    put(saver, {"messages": [message(0)]})
    put(saver, {"messages": [message(0), message(1)]})
    get(saver)
    newest, before = saver.store.list_checkpoints(CheckpointQuery())
    saver.store.quarantine([newest.id])
    with pytest.raises(CheckpointQuarantined, match=f"checkpoint '{newest.external_id}'") as raised:
        get(saver)
    assert raised.value.last_good == before.id


def test_a_row_that_was_altered_is_refused_whatever_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with HoldfastSaver(path) as saver:
        put(saver, {"messages": [message(0)]})
        get(saver)
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE session_checkpoints SET metadata = '{\"step\": 2}'")
        connection.close()
        with pytest.raises(CheckpointAltered):
            get(saver)


def test_a_store_says_when_the_content_is_known(saver: HoldfastSaver) -> None:
    put(saver, {"n": 1})
    put(saver, {"n": 2})
    store: Store = saver.store
    new, old = store.list_checkpoints(CheckpointQuery())
    payload = store.read_payload(new.id)
    newest = CheckpointQuery(session_id=new.session_id)
    assert store.load_newest_unless(payload, newest) == (new, payload, None)
    other = store.load_newest_unless(payload, CheckpointQuery(id=old.id))
    assert other is not None
    assert other[2] is not None
    assert store.load_newest_unless(payload, CheckpointQuery(id="0" * 36)) is None
