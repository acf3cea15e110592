"""Tools describe their arguments, and get only what fits the description."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal  # noqa: UP035

import pytest

from holdfast.agent import Tool, tool
from holdfast.agent.schema import check_arguments, check_schema
from holdfast.errors import InvalidArguments, InvalidConfiguration


def everything(
    text: str,
    count: int,
    price: float,
    sure: bool,
    tags: list[str],
    sizes: dict[str, int],
    mode: Literal["fast", "slow"],
    note: str | None = None,
    where: Annotated[str, "a city"] = "here",
    anything: Any = None,
    plain: list | dict = {},  # type: ignore[type-arg]  # noqa: B006
) -> str:
    """Take all kinds.

    And more.
    """
    return text


def test_a_signature_becomes_a_schema() -> None:
    spec = Tool(everything).spec
    assert (spec.name, spec.description) == ("everything", "Take all kinds.\n\nAnd more.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "price": {"type": "number"},
            "sure": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
            "mode": {"enum": ["fast", "slow"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "where": {"type": "string", "description": "a city"},
            "anything": {},
            "plain": {"anyOf": [{"type": "array"}, {"type": "object"}]},
        },
        "required": ["text", "count", "price", "sure", "tags", "sizes", "mode"],
        "additionalProperties": False,
    }


GOOD: dict[str, Any] = {
    "text": "", "count": 1, "price": 1, "sure": True, "tags": [], "sizes": {"a": 1}, "mode": "slow",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": 1}, r"\$.text must be string, not int"),
        ({"count": True}, r"\$.count must be integer, not bool"),
        ({"count": 1.5}, r"\$.count must be integer"),
        ({"price": float("nan")}, r"\$.price must be number"),
        ({"sure": 1}, r"\$.sure must be boolean"),
        ({"tags": ["a", 2]}, r"\$.tags\[1\] must be string"),
        ({"sizes": {"a": "b"}}, r"\$.sizes.a must be integer"),
        ({"mode": "medium"}, r"\$.mode must be one of \['fast', 'slow'\]"),
        ({"note": 1}, r"\$.note must be null, not int or \$.note must be string"),
        ({"unheard": 1}, r"\$.unheard is not expected"),
        ({"text": 1, "count": ""}, r"\$.text .*; \$.count "),
    ],
)
def test_each_argument_that_does_not_fit_is_named(change: dict[str, Any], said: str) -> None:
    Tool(everything).check(GOOD)
    with pytest.raises(InvalidArguments, match=said):
        Tool(everything).check(GOOD | change)
    assert Tool(everything).fits(GOOD)
    assert not Tool(everything).fits(GOOD | change)


RULES: dict[str, Any] = {
    "type": "object",
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
    "properties": {
        "short": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z]+$"},
        "low": {"minimum": 1, "maximum": 3},
        "open": {"exclusiveMinimum": 1, "exclusiveMaximum": 3},
        "few": {"type": "array", "minItems": 1, "maxItems": 2},
        "one": {"const": 1},
        "either": {"oneOf": [{"type": "string"}, {"enum": ["a", 1]}]},
        "both": {"allOf": [{"type": "integer"}, {"minimum": 5}]},
        "point": {"$ref": "#/$defs/point"},
        "some": {"type": ["string", "null"], "default": "x", "title": "ignored"},
        "never": False,
        "always": True,
    },
}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("short", ["ab", "abc"], ["a", "abcd", "A1", 1]),
        ("low", [1, 3, "no number"], [0, 4]),
        ("open", [2, 1.5], [1, 3]),
        ("few", [[1], [1, 2]], [[], [1, 2, 3], {}]),
        ("one", [1], [True, 2, "1"]),
        ("either", ["b", 1], ["a", None]),
        ("both", [5], [4, "5"]),
        ("point", [{"x": 1}, {}], [{"x": "1"}, []]),
        ("some", ["", None], [1]),
        ("never", [], [1, None]),
        ("always", [1, None], []),
    ],
)
def test_the_rules_of_a_schema_hold(name: str, good: list[Any], bad: list[Any]) -> None:
    check_schema(RULES, "t")
    for value in good:
        check_arguments({name: value}, RULES, "t")
    for value in bad:
        with pytest.raises(InvalidArguments, match=name):
            check_arguments({name: value}, RULES, "t")


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "string"},
        "text",
        {"type": "object", "properties": {"a": {"not": {}}}},
        {"type": "object", "properties": {"a": {"items": {"uniqueItems": True}}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"if": {}}]}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com"}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "properties": {"a": {"type": "text"}}},
        {"type": "object", "properties": [1]},
        {"type": "object", "properties": {"a": {"minimum": "5"}}},
        {"type": "object", "properties": {"a": {"exclusiveMaximum": True}}},
        {"type": "object", "properties": {"a": {"maxLength": "3"}}},
        {"type": "object", "properties": {"a": {"minItems": 1.5}}},
        {"type": "object", "properties": {"a": {"enum": 5}}},
        {"type": "object", "required": "a"},
        {"type": "object", "required": [1]},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$ref": "#/$defs/a"}},
        },
        {
            "type": "object",
            "properties": {"a": {"items": {"$ref": "#/$defs/a"}}},
            "$defs": {
                "a": {"anyOf": [True, {"allOf": [{"$ref": "#/$defs/b"}]}]},
                "b": {"oneOf": [{"$ref": "#/$defs/a"}]},
            },
        },
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(parameters: Any) -> None:
    with pytest.raises(InvalidConfiguration):
        Tool(everything, parameters=parameters)


def test_a_schema_may_hold_itself_where_a_value_ends() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/tree"}},
        "$defs": {
            "tree": {
                "anyOf": [{"type": "null"}, {"type": "object"}],
                "properties": {"left": {"$ref": "#/$defs/tree"}},
            }
        },
    }
    check_schema(tree, "t")
    check_arguments({"left": {"left": {"left": None}}}, tree, "t")
    with pytest.raises(InvalidArguments, match="left"):
        check_arguments({"left": {"left": 1}}, tree, "t")


def bare(a: List, b: Dict, c: List[int]) -> None: ...  # type: ignore[type-arg]  # noqa: UP006


def test_the_names_of_typing_mean_what_the_plain_ones_do() -> None:
    assert Tool(bare).spec.parameters["properties"] == {
        "a": {"type": "array"},
        "b": {"type": "object"},
        "c": {"type": "array", "items": {"type": "integer"}},
    }


async def scale(number: int, by: int) -> int:
    """Multiply."""
    return number * by


class Scale:
    """Multiplies."""

    def __init__(self, by: int) -> None:
        self.by = by

    async def __call__(self, number: int) -> int:
        return number * self.by


@pytest.mark.parametrize(
    ("function", "about"),
    [
        (partial(scale, by=3), "Multiply."),
        (partial(partial(scale), by=3), "Multiply."),
        (Scale(3), "Multiplies."),
    ],
    ids=["partial", "partial of a partial", "object"],
)
def test_whatever_can_be_called_by_name_is_a_tool(function: Any, about: str) -> None:
    made = Tool(function, name="scale")
    assert made.spec.parameters["properties"]["number"] == {"type": "integer"}
    assert made.spec.parameters["required"] == ["number"]
    assert made.spec.description == about
    assert asyncio.run(made({"number": 2})) == 6
    with pytest.raises(InvalidArguments, match="number"):
        made.check({"number": "2"})


def by_position(a: int, /) -> None: ...


def star(*a: int) -> None: ...


def a_path(a: Path) -> None: ...


def unreadable(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("function", [by_position, star, a_path, unreadable, dict, "text"])
def test_a_function_that_json_cannot_call_is_refused(function: Any) -> None:
    with pytest.raises(InvalidConfiguration):
        Tool(function)


def test_a_schema_of_ones_own_and_the_signature_both_count() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "integer"}}}

    def takes(a: int) -> int:
        return a

    made = Tool(takes, parameters=loose, name="take", description="Takes.")
    made.check({"a": 1})
    with pytest.raises(InvalidArguments, match="unexpected keyword"):
        made.check({"a": 1, "b": 2})
    with pytest.raises(InvalidArguments, match="missing a required argument"):
        made.check({})

    def all_of_them(**rest: int) -> int:
        return len(rest)

    assert Tool(all_of_them).fits({"x": 1, "y": "anything"})
    with pytest.raises(InvalidConfiguration, match="has no name"):
        Tool(Unnamed())
    with pytest.raises(InvalidConfiguration, match="has no name"):
        Tool(takes, name=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfiguration, match="does not tell what it takes"):
        Tool(min, parameters=loose)


class Unnamed:
    def __call__(self, a: int) -> int:
        return a


def test_a_tool_gets_a_copy_and_blocks_nobody() -> None:
    threads: list[str] = []

    @tool
    def eats(call: list[int]) -> int:
        threads.append(threading.current_thread().name)
        call.clear()
        return 0

    given = {"call": [1]}
    assert asyncio.run(eats(given)) == 0
    assert given == {"call": [1]}
    assert threads != [threading.current_thread().name]

    @tool
    def later(n: int) -> Any:
        async def work() -> int:
            return n

        return work()

    assert asyncio.run(later({"n": 3})) == 3
