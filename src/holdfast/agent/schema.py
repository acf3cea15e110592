"""JSON Schema, as much of it as describes the arguments of a tool.

What a model wrote, or a person changed, is compared with the schema before a tool sees it. A keyword
that is not understood here is refused when the tool is declared: a rule that nobody checks is worse
than none. A function without a schema gets one from its signature.
"""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from holdfast.errors import InvalidArguments, InvalidConfiguration

Schema: TypeAlias = Mapping[str, Any]

_ANNOTATIONS: Final = frozenset(
    {"$comment", "$defs", "$id", "$schema", "default", "deprecated", "description", "examples"}
    | {"format", "readOnly", "title", "writeOnly"}
)
_LOCAL_REF: Final = re.compile(r"#/\$defs/([^/~]+)")
_SIMPLE: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}


def check_arguments(arguments: object, schema: Schema, tool: str) -> None:
    """Raise `InvalidArguments` naming all that is wrong, unless the arguments fit."""
    wrong = list(_problems(arguments, schema, schema, "$"))
    if wrong:
        raise InvalidArguments(f"arguments of the tool {tool!r}: {'; '.join(wrong)}")


def check_schema(schema: object, tool: str) -> None:
    """Raise `InvalidConfiguration` unless every keyword of the schema is understood."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise InvalidConfiguration(
            f"the parameters of the tool {tool!r} must be a JSON Schema of the type object"
        )
    try:
        for keyword, inner in _keywords(schema, schema):
            if keyword not in _RULES and keyword not in _ANNOTATIONS:
                raise InvalidConfiguration(
                    f"the parameters of the tool {tool!r} use the keyword {keyword!r}, which is not "
                    f"supported: it would not be checked"
                )
            if keyword in _VALUES and not _VALUES[keyword](inner):
                raise TypeError(f"{keyword} cannot be {inner!r:.80}")
            if keyword == "$ref":
                _check_end(inner, schema, ())
            elif keyword == "pattern":
                re.compile(inner)
            elif keyword == "type":
                _ = [_TYPES[one] for one in _listed(inner)]
    except (AttributeError, KeyError, TypeError, re.error) as error:
        raise InvalidConfiguration(
            f"the parameters of the tool {tool!r} are no schema: {error!r}"
        ) from None


def schema_of(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """Return the schema of what a function takes. Raises `InvalidConfiguration`."""
    annotated = unbound(function)
    if not inspect.isroutine(annotated) and not inspect.isclass(annotated):
        annotated = type(annotated).__call__
    try:
        hints = get_type_hints(annotated, include_extras=True)
        signature = inspect.signature(function)
    except (NameError, TypeError, ValueError, SyntaxError) as error:
        raise InvalidConfiguration(
            f"the annotations of the tool {tool!r} cannot be read ({error}): give it parameters="
        ) from None
    properties: dict[str, Any] = {}
    required: list[str] = []
    others = False
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            others = True
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidConfiguration(
                f"the tool {tool!r} takes {name!r} by position: arguments of tools have names"
            )
        properties[name] = _schema_of_type(hints.get(name, Any), f"{tool}({name})")
        if parameter.default is parameter.empty:
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": others,
    }


def unbound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function beneath those that bind some of its arguments."""
    while isinstance(function, partial):
        function = function.func
    return function


def _schema_of_type(hint: Any, where: str) -> dict[str, Any]:
    if hint is Any or (isinstance(hint, type) and hint in _SIMPLE):
        return dict(_SIMPLE[hint])
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        described = [{"description": note} for note in args[1:] if isinstance(note, str)]
        return _schema_of_type(args[0], where) | (described[0] if described else {})
    if origin is Literal and all(isinstance(one, str | int | bool | None) for one in args):
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of_type(one, where) for one in args]}
    if origin in _SIMPLE and not args:  # List and Dict of typing
        return dict(_SIMPLE[origin])
    if origin is list:
        return {"type": "array", "items": _schema_of_type(args[0], where)}
    if origin is dict and args[0] is str:
        return {"type": "object", "additionalProperties": _schema_of_type(args[1], where)}
    raise InvalidConfiguration(
        f"{where} is annotated with {hint!r}, which JSON does not have: annotate it with str, int, "
        f"float, bool, None, list, dict, Literal or a union of them, or give the tool parameters="
    )


def _keywords(schema: Any, root: Schema) -> Iterator[tuple[str, Any]]:
    """Yield every keyword of a schema and of those within it."""
    if isinstance(schema, bool):
        return
    for keyword, value in schema.items():
        yield keyword, value
        if keyword in ("properties", "$defs"):
            inner = list(value.values())
        elif keyword in ("anyOf", "oneOf", "allOf"):
            inner = list(value)
        elif keyword in ("items", "additionalProperties"):
            inner = [value]
        else:
            inner = []
        for one in inner:
            yield from _keywords(one, root)


def _check_end(ref: str, root: Schema, above: tuple[str, ...]) -> None:
    """Refuse a reference that leads back to itself, where a value would be compared without an end."""
    if ref in above:
        raise KeyError(f"$ref leads back to itself: {ref}")
    same = [_resolved(ref, root)]
    while same:
        schema = same.pop()
        if isinstance(schema, bool):
            continue
        if "$ref" in schema:
            _check_end(schema["$ref"], root, (*above, ref))
        for keyword in ("anyOf", "oneOf", "allOf"):
            same += schema.get(keyword, ())


def _problems(value: object, schema: Any, root: Schema, path: str) -> Iterator[str]:
    if schema is False:
        yield f"{path} is not expected"
    if isinstance(schema, bool):
        return
    for keyword, rule in schema.items():
        if keyword in _RULES:
            yield from _RULES[keyword](value, rule, schema, root, path)


Rule: TypeAlias = Callable[[Any, Any, Schema, Schema, str], Iterator[str]]


def _is_number(value: object) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


_TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int,
    "number": _is_number,
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}


def _listed(types_: str | list[str]) -> list[str]:
    return [types_] if isinstance(types_, str) else types_


def _type(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    wanted = _listed(rule)
    if not any(_TYPES[one](value) for one in wanted):
        yield f"{path} must be {' or '.join(wanted)}, not {type(value).__name__}"


def _same(one: object, other: object) -> bool:
    """Compare as JSON does: true is not 1."""
    return (type(one) is bool) == (type(other) is bool) and one == other


def _enum(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    if not any(_same(value, one) for one in rule):
        yield f"{path} must be one of {list(rule)}, not {value!r:.80}"


def _const(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    yield from _enum(value, [rule], schema, root, path)


def _properties(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    if type(value) is dict:
        for name, inner in rule.items():
            if name in value:
                yield from _problems(value[name], inner, root, f"{path}.{name}")


def _required(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    if type(value) is dict:
        yield from (f"{path}.{name} is missing" for name in rule if name not in value)


def _additional(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    if type(value) is dict:
        for name in value.keys() - schema.get("properties", {}).keys():
            yield from _problems(value[name], rule, root, f"{path}.{name}")


def _items(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    if type(value) is list:
        for at, item in enumerate(value):
            yield from _problems(item, rule, root, f"{path}[{at}]")


def _pattern(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    if type(value) is str and not re.search(rule, value):
        yield f"{path} must match {rule!r}"


def _bound(kind: type, says: str, fits: Callable[[Any, Any], bool]) -> Rule:
    def rule(value: Any, bound: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
        applies = _is_number(value) if kind is float else type(value) is kind
        if applies and not fits(value, bound):
            yield f"{path} must {says.format(bound)}"

    return rule


def _matching(value: Any, rule: Any, root: Schema, path: str) -> int:
    return sum(not any(True for _ in _problems(value, one, root, path)) for one in rule)


def _any_of(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    if not _matching(value, rule, root, path):
        tried = " or ".join(
            sorted({problem for one in rule for problem in _problems(value, one, root, path)})
        )
        yield f"({tried})"


def _one_of(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    if (found := _matching(value, rule, root, path)) != 1:
        yield f"{path} must fit exactly one of {len(rule)} alternatives and fits {found}"


def _all_of(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    for one in rule:
        yield from _problems(value, one, root, path)


def _ref(value: Any, rule: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    yield from _problems(value, _resolved(rule, root), root, path)


def _resolved(ref: str, root: Schema) -> Any:
    found = _LOCAL_REF.fullmatch(ref)
    if found is None:
        raise KeyError(f"$ref must point to #/$defs/…: {ref}")
    return root["$defs"][found[1]]


def _is_count(value: object) -> bool:
    return type(value) is int


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


# What the values of keywords have to be, where nothing else looks at them before a call does.
_VALUES: Final[Mapping[str, Callable[[object], bool]]] = {
    "enum": lambda value: isinstance(value, list | tuple),
    "exclusiveMaximum": _is_number,
    "exclusiveMinimum": _is_number,
    "maxItems": _is_count,
    "maxLength": _is_count,
    "maximum": _is_number,
    "minItems": _is_count,
    "minLength": _is_count,
    "minimum": _is_number,
    "required": _are_names,
}
_RULES: Final[Mapping[str, Rule]] = {
    "$ref": _ref,
    "additionalProperties": _additional,
    "allOf": _all_of,
    "anyOf": _any_of,
    "const": _const,
    "enum": _enum,
    "exclusiveMaximum": _bound(float, "be below {}", lambda value, bound: value < bound),
    "exclusiveMinimum": _bound(float, "be above {}", lambda value, bound: value > bound),
    "items": _items,
    "maxItems": _bound(list, "have at most {} items", lambda value, bound: len(value) <= bound),
    "maxLength": _bound(
        str, "have at most {} characters", lambda value, bound: len(value) <= bound
    ),
    "maximum": _bound(float, "be at most {}", lambda value, bound: value <= bound),
    "minItems": _bound(list, "have at least {} items", lambda value, bound: len(value) >= bound),
    "minLength": _bound(
        str, "have at least {} characters", lambda value, bound: len(value) >= bound
    ),
    "minimum": _bound(float, "be at least {}", lambda value, bound: value >= bound),
    "oneOf": _one_of,
    "pattern": _pattern,
    "properties": _properties,
    "required": _required,
    "type": _type,
}
