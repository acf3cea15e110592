"""What may stand in a graph's state comes back as it was; everything else is refused, both ways."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic.dataclasses
import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator

from holdfast.errors import (
    ClassNotAllowed,
    InvalidConfiguration,
    StateCorrupt,
    StateNotSerializable,
)
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph.classes import Classes
from holdfast.integrations.langgraph.values import Values
from tests.integrations.langgraph.graphs import at, checkpoint


class Colour(Enum):
    RED = "red"


class Right(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: Any


@dataclass(frozen=True)
class Order:
    number: int
    lines: list[Any] = field(default_factory=list)


class Plan(BaseModel):
    model_config = ConfigDict(extra="allow")
    title: str
    steps: list[Any] = Field(default_factory=list, alias="Steps")
    _seen: int = PrivateAttr(default=0)

    @field_validator("title")
    @classmethod
    def shout(cls, value: str) -> str:
        return value + "!"


@dataclass
class Invoice:
    net: int

    def __post_init__(self) -> None:
        self.gross = self.net * 2

    @cached_property
    def words(self) -> Any:
        return print


@dataclass(frozen=True)
class Sealed:
    number: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "checks", [self.number])


@dataclass(slots=True)
class Narrow:
    number: int


class Wide(Narrow):
    """A subclass that is no dataclass by itself, whose objects take any attribute."""


@dataclass
class Drawer:
    __slots__ = ("__lock", "number", "shelf")
    number: int

    def __post_init__(self) -> None:
        self.__lock = self.number

    def lock(self) -> int:
        return self.__lock


@dataclass
class Draft:
    number: int
    seen: int = field(init=False)


@pydantic.dataclasses.dataclass
class Checked:
    number: int


class Stranger:
    pass


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError


@dataclass(frozen=True)
class Known:
    """A class that one process allows and another one does not."""


TYPES = (Colour, Right, Point, Order, Plan)
TOOL_CALL = {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
BACK = {
    "scalars": [None, True, 1, 2**80, -0.0, 1e300, "text", "nul\0", "\N{SNOWMAN}", b"bytes"],
    "tuples": ((1, (2, [3])), ()),
    "keys": {1: "a", (2, "b"): [HumanMessage("c", id="1")], None: {}, 2.5: 0},
    "marks": {"$o": "HumanMessage", "v": {"content": "x"}, "$t": "tuple", "more": {"$o": 1}},
    "sets": [{1, "a"}, frozenset({b"x"}), {(1, 2), Colour.RED}, frozenset({Point(1, 2)}), set()],
    "times": [datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Paris")), date(2026, 1, 1), timedelta(1)],
    "zones": (UTC, timezone(timedelta(hours=-5, microseconds=1)), timezone(timedelta(0), "Z 0")),
    "others": [Decimal("1.10"), UUID(int=7), Path("/x"), ip_address("::1"), ip_network("10.0.0.0/8")],
    "more": [deque([1, Colour.RED], maxlen=3), bytearray(b"x"), re.compile("a+", re.I), ZoneInfo("UTC")],
    "human": HumanMessage("hello", id="1"),
    "without an id": HumanMessage("hello"),
    "blocks": HumanMessage([{"type": "text", "text": "a"}, "b"], name="ada", id="2"),
    "kwargs": AIMessage("x", additional_kwargs={"k": [1]}, response_metadata={"m": {"n": None}}),
    "calls": AIMessage("", tool_calls=[TOOL_CALL], usage_metadata=USAGE, id="3"),
    "extra": HumanMessage("x", id="4", whatever={"nested": (1,)}),
    "tool": ToolMessage("out", tool_call_id="c1", artifact={"rows": (1, 2)}, status="error"),
    "tool that went well": ToolMessage("out", tool_call_id="c1", id="5"),
    "system": SystemMessage("be kind"),
    "chat": ChatMessage(content="x", role="judge"),
    "function": FunctionMessage(content="x", name="f"),
    "chunk": AIMessageChunk(content="x", id="6", tool_call_chunks=[], chunk_position="last"),
    "chunks": [HumanMessageChunk(content="x")],
    "remove": RemoveMessage(id="7"),
    "document": Document("text", metadata={"page": 1}, id="8"),
    "send": Send("node", {"messages": [HumanMessage("x", id="9")]}),
    "interrupt": (Interrupt(value={"question": "ok?"}, id="i1"),),
    "command": Command(goto=[Send("a", 1), "b"], update={"x": Colour.RED}, resume={"i1": True}),
    "overwrite": Overwrite([1]),
    "delta": _DeltaSnapshot([HumanMessage("x", id="10")]),
    "enum": [Colour.RED, Right.READ | Right.WRITE],
    "named tuple": Point(1, Point(2, "three")),
    "dataclass": Order(1, [Order(2)]),
    "model": Plan.model_validate({"title": "p", "Steps": [Colour.RED], "further": Order(3)}),
}  # fmt: skip


def test_every_allowed_value_comes_back_as_it_was(url: str) -> None:
    with HoldfastSaver(url, types=TYPES) as saver:
        stored = saver.put(at(), checkpoint(BACK), {"source": "loop"}, {})
        found = saver.get_tuple(stored)
        assert found is not None
        for name, value in BACK.items():
            back = found.checkpoint["channel_values"][name]
            assert back == value, name
            assert repr(back) == repr(value) or isinstance(value, (list, dict)), name
            assert type(back) is type(value), name
        saver.put_writes(stored, list(BACK.items()), "task")
        found = saver.get_tuple(stored)
        assert found is not None
        assert found.pending_writes == [("task", name, value) for name, value in BACK.items()]
    message = found.checkpoint["channel_values"]["human"]
    assert message.model_copy(update={"content": "b"}).content == "b"
    assert message.pretty_repr()


def test_no_code_of_a_class_runs_when_it_is_read(saver: HoldfastSaver) -> None:
    values = Values(Classes(TYPES))
    plan = Plan(title="p", Steps=[1])
    plan._seen = 5
    assert plan.title == "p!"
    back = values.thawed(values.frozen(plan, "t", "c"), "t", "c")
    assert (back.title, back._seen, back.steps) == ("p!", 5, [1])


def test_what_is_handed_out_belongs_to_the_caller(saver: HoldfastSaver) -> None:
    mine = {"messages": [HumanMessage("a", id="1")], "tags": {"x"}, "deep": {"list": [1]}}
    saver.put(at(), checkpoint(mine), {}, {})
    mine["messages"][0].content = "changed"  # type: ignore[index]
    for _ in range(2):
        found = saver.get_tuple(at())
        assert found is not None
        values = found.checkpoint["channel_values"]
        assert values["messages"] == [HumanMessage("a", id="1")]
        assert (values["tags"], values["deep"]) == ({"x"}, {"list": [1]})
        values["messages"][0].content = "changed"
        values["tags"].add("y")
        values["deep"]["list"].append(2)
    first, second = (next(iter(saver.list(at()))).checkpoint["channel_values"] for _ in range(2))
    assert first["messages"][0] is not second["messages"][0]


def test_two_listed_checkpoints_share_nothing_that_can_change(saver: HoldfastSaver) -> None:
    messages = [HumanMessage("x" * 600, id=str(n), additional_kwargs={"n": [n]}) for n in range(4)]
    for count in (2, 4):
        saver.put(at(), checkpoint({"messages": messages[:count]}), {}, {})
    new, old = (found.checkpoint["channel_values"]["messages"] for found in saver.list(at()))
    assert new[:2] == old
    new[0].additional_kwargs["n"].append("changed")
    assert old[0].additional_kwargs == {"n": [0]}


def test_subclasses_of_plain_types_become_those() -> None:
    class Text(str):
        __slots__ = ()

    values = Values(Classes())
    plain = values.frozen([Text("a"), defaultdict(int, {"k": 1})], "t", "c")
    assert plain == ["a", {"k": 1}]
    assert [type(one) for one in plain] == [str, dict]


def test_an_error_is_kept_as_text(saver: HoldfastSaver) -> None:
    stored = saver.put(at(), checkpoint(), {}, {})
    saver.put_writes(stored, [("__error__", ValueError("broken"))], "task")
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.pending_writes == [("task", "__error__", "ValueError('broken')")]


@pytest.mark.parametrize(
    ("value", "name", "path"),
    [
        ([1, {"deep": Stranger()}], "Stranger", "$[1]['deep']"),
        (HumanMessage("x", additional_kwargs={"o": Stranger()}), "Stranger", "$.additional_kwargs['o']"),
        (Colour.RED, "Colour", "$"),
        (SecretStr("s"), "SecretStr", "$"),
        (Point(1, 2), "Point", "$"),
        ({1: Stranger}, "type", "$[1]"),
        ({1: 1, Unspeakable(): 2}, "Unspeakable", "$[Unspeakable()]"),
        (print, "builtin_function_or_method", "$"),
    ],
    ids=["nested", "in a message", "enum", "secret", "named tuple", "class", "key", "function"],
)  # fmt: skip
def test_a_forbidden_class_is_refused_with_thread_channel_and_path(
    saver: HoldfastSaver, value: Any, name: str, path: str
) -> None:
    stored = saver.put(at("thread-7"), checkpoint({"a": 1}), {}, {})
    with pytest.raises(ClassNotAllowed, match=re.escape(name)) as refused:
        saver.put(stored, checkpoint({"fine": 1, "bad": value}), {}, {})
    error = refused.value
    assert (error.thread_id, error.channel, error.path) == ("thread-7", "bad", path)
    with pytest.raises(ClassNotAllowed, match="thread 'thread-7', channel 'bad'"):
        saver.put_writes(stored, [("fine", 1), ("bad", value)], "task")
    found = saver.get_tuple(at("thread-7"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": 1}
    assert found.pending_writes == []


KNOWN = Known()
WAYS: dict[str, Any] = {
    "$[1].additional_kwargs['a'][0]": ["", HumanMessage("x", additional_kwargs={"a": [KNOWN]})],
    "$.tool_calls[0]['args']['a']": AIMessage("", tool_calls=[{**TOOL_CALL, "args": {"a": KNOWN}}]),
    "$.artifact": ToolMessage("out", tool_call_id="c1", artifact=KNOWN),
    "$.__pydantic_extra__['more']": HumanMessage("x", more=KNOWN),
    "$.__pydantic_private__['_seen']": Plan(title="p"),
    "$.steps[0].lines[1]": Plan.model_validate({"title": "p", "Steps": [Order(1, [0, KNOWN])]}),
    "$.metadata['page']": Document("text", metadata={"page": KNOWN}),
    "$.arg['messages'][0].content[0]['b']": Send("node", {"messages": [HumanMessage([{"b": KNOWN}])]}),
    "$[0].value": (Interrupt(value=KNOWN, id="i"),),
    "$.goto[0].arg": Command(goto=[Send("a", KNOWN)]),
    "$[0]": _DeltaSnapshot(KNOWN),
    "$[1][1]": Point(1, Point(2, KNOWN)),
    "$[2]": deque([1, 2, KNOWN]),
    "$[(1, 2)]['deep']": {(1, 2): {"deep": KNOWN}},
    "$['$o'][0]": {"$o": [KNOWN]},
    "$['set'][0]": {"set": {KNOWN}},
}  # fmt: skip
object.__setattr__(
    WAYS["$.__pydantic_private__['_seen']"], "__pydantic_private__", {"_seen": KNOWN}
)


@pytest.mark.parametrize("path", WAYS)
def test_the_path_names_the_whole_way_when_it_is_stored_and_when_it_is_read(path: str) -> None:
    free, strict = Values(Classes([*TYPES, Known])), Values(Classes(TYPES))
    with pytest.raises(ClassNotAllowed) as refused:
        strict.frozen(WAYS[path], "t", "c")
    assert refused.value.path == path
    with pytest.raises(ClassNotAllowed) as refused:
        strict.thawed(free.frozen(WAYS[path], "t", "c"), "t", "c")
    assert refused.value.path == path


def test_the_path_names_the_whole_way_to_what_is_damaged() -> None:
    broken = {"$o": "zone", "v": "nowhere"}
    message = {"$o": "AIMessage", "v": {"content": "", "response_metadata": {"where": [broken]}}}
    with pytest.raises(
        StateCorrupt, match=r"\$\[1\]\.response_metadata\['where'\]\[0\]: the stored"
    ):
        Values(Classes()).thawed(["", message], "t", "c")


RECORDS = (Invoice, Sealed, Narrow, Wide, Drawer, Draft, Checked)


def records() -> list[Any]:
    """Return objects with more than the fields of their classes, or less."""
    made: list[Any] = [Invoice(1), Wide(2), Drawer(3), Checked(number=4)]
    invoice, wide, drawer, checked = made
    assert invoice.words
    for one in (invoice, wide, checked):
        one.note = {"by": [HumanMessage("hand", id="1")]}
    drawer.shelf = "top"
    return [invoice, Invoice(5), Sealed(6), wide, drawer, Drawer(7), Draft(8), checked]


def insides(value: Any) -> dict[str, Any]:
    names = {name for name in dir(value) if name not in ("words", "__dict__", "__weakref__")}
    found = {name: getattr(value, name, "empty") for name in names}
    return {name: one for name, one in found.items() if not callable(one)}


def test_what_a_dataclass_has_beside_its_fields_comes_back(url: str) -> None:
    with HoldfastSaver(url, types=RECORDS) as saver:
        stored = saver.put(at(), checkpoint({"one": records()[0], "all": records()}), {}, {})
        saver.put_writes(stored, [("all", records())], "task")
        for reader in (saver, saver, HoldfastSaver(saver.store, types=RECORDS)):
            found = reader.get_tuple(at())
            assert found is not None
            values = found.checkpoint["channel_values"]
            [(_, _, written)] = found.pending_writes or []
            for back in (values["all"], written, [values["one"], *values["all"][1:]]):
                assert [insides(one) for one in back] == [insides(one) for one in records()]
                assert "words" not in vars(back[0])
                assert back[5].lock() == 7
                assert not hasattr(back[5], "shelf")
                assert not hasattr(back[6], "seen")
            # What a graph does with its own reaches nobody else.
            values["all"][0].note["by"].clear()
            values["all"][1].more = "mine"
            values["all"][5].shelf = "mine"


@pytest.mark.parametrize(
    ("at_place", "change"),
    [
        (0, lambda one: setattr(one, "net", 9)),
        (0, lambda one: setattr(one, "gross", 9)),
        (0, lambda one: one.note["by"].append(9)),
        (1, lambda one: setattr(one, "more", 9)),
        (1, lambda one: delattr(one, "gross")),
        (2, lambda one: one.checks.append(9)),
        (3, lambda one: setattr(one, "number", 9)),
        (3, lambda one: setattr(one, "note", 9)),
        (4, lambda one: setattr(one, "shelf", 9)),
        (4, lambda one: delattr(one, "shelf")),
        (5, lambda one: setattr(one, "number", 9)),
        (6, lambda one: setattr(one, "seen", 9)),
    ],
)
def test_a_dataclass_that_a_node_changed_in_place_is_stored_as_it_is(
    at_place: int, change: Any
) -> None:
    with HoldfastSaver("memory:", types=RECORDS) as saver:
        # By itself, for what is known of a list is known of all of it or of nothing.
        mine = [records()[at_place]]
        config = saver.put(at(), checkpoint({"all": mine}), {}, {})
        change(mine[0])
        saver.put(config, checkpoint({"all": mine}), {}, {})
        for reader in (saver, HoldfastSaver(saver.store, types=RECORDS)):
            found = reader.get_tuple(at())
            assert found is not None
            (back,) = found.checkpoint["channel_values"]["all"]
            assert insides(back) == insides(mine[0])


def test_what_is_beside_a_field_is_refused_by_its_path() -> None:
    invoice: Any = Invoice(1)
    invoice.client = [Stranger()]
    with pytest.raises(ClassNotAllowed) as refused:
        Values(Classes(RECORDS)).frozen({"a": invoice}, "t", "c")
    assert refused.value.path == "$['a'].client[0]"


class Wish(BaseModel):
    model_config = ConfigDict(extra="allow")
    title: str = "any"
    much: int | None = None


WISHES = [
    Wish(),
    Wish(title="a"),
    Wish(title="any", much=None),
    Wish(title="b", more=1),  # type: ignore[call-arg]
    Wish.model_construct({"title", "odd"}, title="c"),
]


def test_a_model_comes_back_with_what_it_was_given(url: str) -> None:
    with HoldfastSaver(url, types=[Wish]) as saver:
        wishes = [one.model_copy() for one in WISHES]
        stored = saver.put(at(), checkpoint({"all": wishes}), {}, {})
        # Nothing but that this was given has changed.
        wishes[0].much = None
        saver.put(stored, checkpoint({"all": wishes}), {}, {})
        for reader in (saver, HoldfastSaver(saver.store, types=[Wish])):
            found = reader.get_tuple(at())
            assert found is not None
            back = found.checkpoint["channel_values"]["all"]
            assert back == wishes
            for mine, its in zip(wishes, back, strict=True):
                assert its.model_fields_set == mine.model_fields_set
                assert its.model_dump(exclude_unset=True) == mine.model_dump(exclude_unset=True)


def test_only_what_is_unusual_is_said_of_what_a_model_was_given() -> None:
    values, tag = Values(Classes([Wish])), f"{__name__}:Wish"
    whole = {"title": "any", "much": None}
    assert values.frozen(Wish(**whole), "t", "c") == {"$o": tag, "v": whole}  # type: ignore[arg-type]
    part = values.frozen(Wish(title="any"), "t", "c")
    assert part == {"$o": tag, "v": [whole, {}, None, ["title"]]}
    # As it was stored before: all that is there was given.
    for before, given in ((whole, {*whole}), ([whole, {"more": 1}, None], {*whole, "more"})):
        assert values.thawed({"$o": tag, "v": before}, "t", "c").model_fields_set == given


@pytest.mark.parametrize("given", [7, [[]], [7], "title"])
def test_forged_names_of_what_was_given_make_nothing(given: Any) -> None:
    with pytest.raises(StateCorrupt, match="cannot be made again"):
        Values(Classes([Wish])).thawed(
            {"$o": f"{__name__}:Wish", "v": [{}, None, None, given]}, "t", "c"
        )


@pytest.mark.parametrize("parts", [[{"net": 1}], [{}, {}, []], [{"net": 1}, 7, []], [{}, {}, 7]])
def test_forged_parts_of_a_dataclass_make_nothing(parts: Any) -> None:
    with pytest.raises(StateCorrupt, match="cannot be made again"):
        Values(Classes(RECORDS)).thawed({"$o": f"{__name__}:Invoice", "v": parts}, "t", "c")


def test_a_dataclass_from_before_is_read() -> None:
    """When the fields were all that was stored."""
    values = Values(Classes(RECORDS))
    for name, parts in (("Invoice", {"net": 1}), ("Drawer", {"number": 1})):
        back = values.thawed({"$o": f"{__name__}:{name}", "v": parts}, "t", "c")
        assert back == {"Invoice": Invoice, "Drawer": Drawer}[name](1)
        assert not hasattr(back, "gross")


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_class_that_this_process_does_not_allow_is_not_made(url: str) -> None:
    with HoldfastSaver(url, types=TYPES) as saver:
        stored = saver.put(at(), checkpoint({"plan": [Order(1)]}), {}, {})
        saver.put_writes(stored, [("result", Colour.RED)], "task")
    with HoldfastSaver(url, types=[Colour]) as strict:
        with pytest.raises(ClassNotAllowed, match=r"channel 'plan', \$\[0\].*Order.*still stored"):
            strict.get_tuple(at())
        with pytest.raises(ClassNotAllowed):
            list(strict.list(at()))
    with HoldfastSaver(url, types=TYPES) as saver:
        found = saver.get_tuple(at())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"plan": [Order(1)]}


FORGED = [
    {"$o": "os:system", "v": "touch /tmp/x"},
    {"$o": "builtins:eval", "v": "1"},
    {"$o": ["HumanMessage"], "v": {}},
    {"$o": "HumanMessage", "v": "no parts"},
    {"$o": "Send", "v": {"node": 1}},
    {"$o": "Send", "v": 3},
    {"$o": "pattern", "v": ["(", 0]},
    {"$o": "deque", "v": [3]},
    {"$o": "dict", "v": [[[], 1]]},
    {"$o": "dict", "v": 7},
    {"$o": "set", "v": [[1]]},
    {"$o": "DeltaSnapshot", "v": [1, 2]},
    {"$o": "zone", "v": "../../etc/passwd"},
    {"$o": "timezone", "v": "UTC"},
    {"$o": "timezone", "v": f"{10**30} X"},
    {"$o": "IPv4Address", "v": {"x": 1}},
    {"$o": "bytearray", "v": "zz"},
    {"$o": f"{__name__}:Colour", "v": "BLUE"},
    {"$o": f"{__name__}:Plan", "v": {"steps": []}},
    {"$o": None},
]


@pytest.mark.parametrize("forged", FORGED, ids=[str(n) for n in range(len(FORGED))])
def test_forged_data_makes_nothing(forged: Any) -> None:
    values = Values(Classes(TYPES))
    with pytest.raises(
        (ClassNotAllowed, StateCorrupt), match="thread 't', channel 'c', \\$\\[0\\]"
    ):
        values.thawed([forged], "t", "c")


def test_a_value_in_itself_and_one_too_deep_are_refused(saver: HoldfastSaver) -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    for value in (circle, deep):
        with pytest.raises(StateNotSerializable, match="thread 't'"):
            saver.put(at(), checkpoint({"bad": value}), {}, {})
    assert saver.get_tuple(at()) is None


def test_a_newer_class_fills_in_its_defaults_and_a_missing_part_is_named() -> None:
    values = Values(Classes(TYPES))
    tag = f"{__name__}:Order"
    assert values.thawed({"$o": tag, "v": {"number": 1, "gone": 2}}, "t", "c") == Order(1)
    with pytest.raises(StateCorrupt, match="'number' is missing"):
        values.thawed({"$o": tag, "v": {}}, "t", "c")


@pytest.mark.parametrize("wrong", [Stranger, int, "Order"], ids=["class", "int", "text"])
def test_only_classes_of_known_shape_can_be_registered(wrong: Any) -> None:
    with pytest.raises(InvalidConfiguration):
        HoldfastSaver("memory:", types=[wrong])


@pytest.mark.parametrize("wrong", [Order, Colour, None, 7], ids=repr)
def test_classes_are_registered_as_a_list(wrong: Any) -> None:
    with pytest.raises(InvalidConfiguration, match=r"types=\[Order, …\]"):
        HoldfastSaver("memory:", types=wrong)


@pytest.mark.parametrize(
    "change",
    [
        lambda message: setattr(message, "content", "changed"),
        lambda message: message.additional_kwargs.update(new=1),
        lambda message: message.response_metadata["usage"].append(2),
        lambda message: message.tool_calls.append(
            {"name": "look", "args": {}, "id": "1", "type": "tool_call"}
        ),
        lambda message: object.__setattr__(message, "__pydantic_extra__", {"more": 1}),
    ],
    ids=["content", "added", "nested", "call", "extra"],
)
def test_a_message_that_a_node_changed_in_place_is_stored_as_it_is(change: Any) -> None:
    messages: list[Any] = [
        AIMessage("as long as it takes " * 40, id=f"m{n}", response_metadata={"usage": [1]})
        for n in range(20)
    ]
    with HoldfastSaver("memory:") as saver:
        config = at("t")
        for number in range(3):
            config = saver.put(config, checkpoint({"messages": messages}, f"c{number}"), {}, {})
            change(messages[7])
            messages.append(HumanMessage("next", id=f"h{number}"))
        saver.put(config, checkpoint({"messages": messages}, "c3"), {}, {})
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == messages


def test_a_class_that_is_refused_in_a_list_that_grew_is_named_by_its_place() -> None:
    messages: list[Any] = [HumanMessage("a long one " * 90, id=f"m{n}") for n in range(9)]
    with HoldfastSaver("memory:") as saver:
        config = saver.put(at("t"), checkpoint({"messages": messages}, "c0"), {}, {})
        messages += [
            HumanMessage("fine"),
            AIMessage("not fine", additional_kwargs={"a": Stranger()}),
        ]
        with pytest.raises(ClassNotAllowed) as refused:
            saver.put(config, checkpoint({"messages": messages}, "c1"), {}, {})
        assert refused.value.path == "$[10].additional_kwargs['a']"
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["id"] == "c0"
