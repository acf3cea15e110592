"""Python values as JSON, exactly.

JSON knows seven kinds of values; agents use more. What JSON has is written as it is, and orjson does
that at memory speed. What JSON lacks becomes a *tagged* object, ``{"$t": KIND, "v": …}``, and a dict of
the user's that has the key ``$t`` is itself wrapped in a tag, so that data can never pose as one.
Reading builds only the fixed kinds below: nothing is imported, called or looked up by name.

orjson alone would turn tuples into lists and NaN into null without a word. So a strict walk looks at
every value first (`is_plain`); only what it finds harmless goes to orjson untouched, and all else is
rebuilt with tags (`tagged`), which is also where every error learns the path of the bad value.
"""

from __future__ import annotations

import dataclasses
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final, TypeAlias
from uuid import UUID

import orjson

from holdfast.errors import StateCorrupt, StateNotSerializable

MARK: Final = "$t"
MAX_DEPTH: Final = 200
_INT64_MIN: Final = -(1 << 63)
_UINT64_MAX: Final = (1 << 64) - 1
# From here on JSONB prints a float as an integer and it would come back as one.
_JSONB_FLOAT_LIMIT: Final = 1e15

Json: TypeAlias = Any


def is_plain(value: object, room: int = MAX_DEPTH) -> bool:
    """Tell whether ``value`` consists of exact JSON types only, nested no deeper than ``room``.

    Integers beyond 64 bits, lone surrogates and keys that are not text are left to orjson, which
    refuses them.
    """
    kind = type(value)
    if kind is dict:
        if room == 0 or MARK in value:  # type: ignore[operator]
            return False
        for key, item in value.items():  # type: ignore[attr-defined]
            kind = type(item)
            if kind is str:
                if "\0" in item:
                    return False
            elif kind is dict or kind is list:
                if not is_plain(item, room - 1):
                    return False
            elif kind is float:
                if item - item != 0.0:
                    return False
            elif kind is not int and kind is not bool and item is not None:
                return False
            if type(key) is not str or "\0" in key:
                return False
        return True
    if kind is list:
        if room == 0:
            return False
        for item in value:  # type: ignore[attr-defined]
            kind = type(item)
            if kind is str:
                if "\0" in item:
                    return False
            elif kind is dict or kind is list:
                if not is_plain(item, room - 1):
                    return False
            elif kind is float:
                if item - item != 0.0:
                    return False
            elif kind is not int and kind is not bool and item is not None:
                return False
        return True
    if kind is str:
        return "\0" not in value  # type: ignore[operator]
    if kind is float:
        return value - value == 0.0  # type: ignore[operator, no-any-return]
    return kind is int or kind is bool or value is None


def dump(value: object, path: str, room: int = MAX_DEPTH) -> tuple[bytes, bool]:
    """Return the JSON text of ``value`` and whether it contains tags.

    Raises `StateNotSerializable` with the path of the first value that has no exact form.
    """
    if is_plain(value, room):
        try:
            return orjson.dumps(value), False
        except TypeError:
            pass  # the walk below says what and where
    return orjson.dumps(tagged(value, path, room)), True


def member(path: str, key: str) -> str:
    """Return the path of a dict's item."""
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key!a}]"


def normalise(value: object) -> object:
    """Return what is stored in place of an enum member, a dataclass or a pydantic object.

    Subclasses of JSON's own types become those types. Anything else is returned as it is.
    """
    if isinstance(value, Enum):
        return normalise(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "model_dump") and hasattr(type(value), "model_fields"):
        return value.model_dump()  # type: ignore[attr-defined]
    for base in (str, int, float, dict, list, tuple):
        if type(value) is not base and type(value) is not bool and isinstance(value, base):
            return base(value)
    return value


def tagged(
    value: object,
    path: str,
    room: int = MAX_DEPTH,
    *,
    jsonb: bool = False,
    above: tuple[int, ...] = (),
) -> Json:
    """Return ``value`` as JSON types, with a tag where JSON has no form of its own.

    ``jsonb`` also tags the floats that PostgreSQL's JSONB would rewrite.
    """
    value = normalise(value)
    if value is None or value is True or value is False:
        return value
    if type(value) is str:
        return _text(value, path)
    if type(value) is int:
        return value if _INT64_MIN <= value <= _UINT64_MAX else {MARK: "int", "v": hex(value)}
    if type(value) is float:
        finite = value - value == 0.0
        negative_zero = value == 0.0 and str(value)[0] == "-"
        if finite and not (jsonb and (abs(value) >= _JSONB_FLOAT_LIMIT or negative_zero)):
            return value
        return {MARK: "float", "v": repr(value)}
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        if id(value) in above:
            raise StateNotSerializable(path, "the value contains itself")
        if room == 0:
            raise StateNotSerializable(path, f"nested deeper than {MAX_DEPTH} levels")
        above = (*above, id(value))

        def inner(item: object, at: str) -> Json:
            return tagged(item, at, room - 1, jsonb=jsonb, above=above)

        if isinstance(value, dict):
            return _dict(value, path, inner)
        if isinstance(value, (set, frozenset)):
            items = [inner(item, f"{path}{{…}}") for item in value]
            # Sets have no order; a fixed one makes equal sets equal bytes.
            return {MARK: type(value).__name__, "v": sorted(items, key=orjson.dumps)}
        items = [inner(item, f"{path}[{at}]") for at, item in enumerate(value)]
        return items if isinstance(value, list) else {MARK: "tuple", "v": items}
    return _scalar(value, path)


def _text(value: str, path: str) -> Json:
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        reason = f"text with a lone surrogate at {error.start} has no stored form"
        raise StateNotSerializable(path, reason) from None
    return {MARK: "str", "v": b64encode(encoded).decode()} if "\0" in value else value


def _dict(value: dict[Any, Any], path: str, inner: Callable[[object, str], Json]) -> Json:
    odd = MARK in value
    items = {}
    for key, item in value.items():
        key = key.value if isinstance(key, Enum) else key
        if not isinstance(key, str):
            reason = f"a key must be a str, not {type(key).__name__}: {key!r:.80}"
            raise StateNotSerializable(path, reason)
        _text(key, f"{path} key")
        odd = odd or "\0" in key
        items[str(key)] = inner(item, member(path, key))
    if not odd:
        return items
    return {MARK: "dict", "v": [[_text(key, path), item] for key, item in items.items()]}


def _scalar(value: object, path: str) -> Json:
    kind: str
    text: Any
    match value:
        case bytes() | bytearray() | memoryview():
            kind, text = "bytes", b64encode(bytes(value)).decode()
        case datetime():
            kind, text = "datetime", value.isoformat()
        case date():
            kind, text = "date", value.isoformat()
        case time():
            kind, text = "time", value.isoformat()
        case timedelta():
            kind, text = "timedelta", [value.days, value.seconds, value.microseconds]
        case UUID():
            kind, text = "uuid", str(value)
        case Decimal():
            kind, text = "decimal", str(value)
        case PurePath():
            kind, text = _path_kind(value), b64encode(os.fsencode(value)).decode()
            if text == b64encode(str(value).encode("utf-8", "replace")).decode():
                text = [str(value)]
        case _:
            reason = f"a value of type {type(value).__name__} has no stored form"
            raise StateNotSerializable(path, reason)
    document = {MARK: kind, "v": text}
    if isinstance(value, (datetime, time)) and value.fold:
        document["fold"] = 1
    return document


def _path_kind(value: PurePath) -> str:
    if isinstance(value, Path):
        return "path"
    return "posixpath" if isinstance(value, PurePosixPath) else "windowspath"


def untagged(value: Json, room: int = MAX_DEPTH + 8) -> Any:
    """Return the Python value that a tagged document stands for. Raises `StateCorrupt`."""
    if room == 0:
        raise StateCorrupt("a stored document is nested too deeply")
    if type(value) is dict:
        kind = value.get(MARK)
        if kind is None:
            return {key: untagged(item, room - 1) for key, item in value.items()}
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise StateCorrupt(f"a stored document has the unknown tag {kind!r:.80}")
        try:
            return reader(value, room - 1)
        except StateCorrupt:
            raise
        except (ArithmeticError, KeyError, LookupError, TypeError, ValueError) as error:
            raise StateCorrupt(f"a stored value tagged {kind!r} cannot be read: {error}") from None
    if type(value) is list:
        return [untagged(item, room - 1) for item in value]
    return value


def _read_datetime(document: Json, room: int) -> datetime:
    return datetime.fromisoformat(document["v"]).replace(fold=document.get("fold", 0))


def _read_time(document: Json, room: int) -> time:
    return time.fromisoformat(document["v"]).replace(fold=document.get("fold", 0))


def _read_items(document: Json, room: int) -> list[Any]:
    if type(document["v"]) is not list:
        raise StateCorrupt("a stored collection is not a list")
    return [untagged(item, room - 1) for item in document["v"]]


def _path_text(document: Json) -> str:
    stored = document["v"]
    return str(stored[0]) if isinstance(stored, list) else os.fsdecode(b64decode(stored))


_READERS: Final[dict[str, Callable[[Json, int], Any]]] = {
    "str": lambda document, room: b64decode(document["v"], validate=True).decode(),
    "bytes": lambda document, room: b64decode(document["v"], validate=True),
    "int": lambda document, room: int(document["v"], 16),
    "float": lambda document, room: float(document["v"]),
    "datetime": _read_datetime,
    "date": lambda document, room: date.fromisoformat(document["v"]),
    "time": _read_time,
    "timedelta": lambda document, room: timedelta(*document["v"]),
    "uuid": lambda document, room: UUID(document["v"]),
    "decimal": lambda document, room: Decimal(document["v"]),
    "path": lambda document, room: Path(_path_text(document)),
    "posixpath": lambda document, room: PurePosixPath(_path_text(document)),
    "windowspath": lambda document, room: PureWindowsPath(_path_text(document)),
    "tuple": lambda document, room: tuple(_read_items(document, room)),
    "set": lambda document, room: set(_read_items(document, room)),
    "frozenset": lambda document, room: frozenset(_read_items(document, room)),
    "dict": lambda document, room: dict(_read_items(document, room)),
}


def load_json(text: bytes | str, what: str) -> Json:
    """Parse stored JSON. Raises `StateCorrupt`; depth is bounded by the parser."""
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise StateCorrupt(f"{what} is not JSON: {error}") from None


def dump_document(document: Mapping[str, Any], what: str) -> str:
    """Return a small document (metadata, log data) as tagged JSON that JSONB keeps exactly."""
    if not isinstance(document, Mapping):
        raise StateNotSerializable(what, f"must be a dict, not {type(document).__name__}")
    return orjson.dumps(tagged(dict(document), what, jsonb=True)).decode()


def load_document(text: bytes | str) -> dict[str, Any]:
    """Return what `dump_document` stored."""
    document = untagged(load_json(text, "a stored document"))
    if not isinstance(document, dict):
        raise StateCorrupt("a stored document is not an object")
    return document
