"""Tags: what JSON lacks, written with what it has.

A *tagged* object, ``{"$t": KIND, "v": …}``, stands for a value that JSON has no form for. A dict of
the user's that has the key ``$t`` is itself wrapped in a tag, so that data can never pose as one.
Reading builds only the fixed kinds below: nothing is imported, called or looked up by name.

Depth is counted in levels of JSON, tags included, on both sides: what can be written can be read.
"""

from __future__ import annotations

import dataclasses
import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
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


def member(path: str, key: str) -> str:
    """Return the path of a dict's item."""
    return path + _step(key)


def _step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{key!a}]"


def normalise(value: Any) -> Any:
    """Return what is stored in place of an enum member, a dataclass or a pydantic object.

    Subclasses of JSON's own types and of tuple become those types, and byte buffers become bytes.
    Anything else is returned as it is. Raises `StateNotSerializable` when the object's own code does
    not play along.
    """
    try:
        return _normalised(value)
    except Exception as error:
        reason = f"a {type(value).__name__} cannot be read: {type(error).__name__}: {error}"
        raise StateNotSerializable("", reason) from error


def _normalised(value: Any) -> Any:
    if isinstance(value, Enum):
        return _normalised(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "model_dump") and hasattr(type(value), "model_fields"):
        # Without it pydantic leaves out what a subclass adds to the type that a field declares.
        return value.model_dump(serialize_as_any=True)
    if isinstance(value, bool):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    for base, convert in _BASES:
        if isinstance(value, base):
            return value if type(value) is base else convert(value)
    return value


# A subclass may print or convert itself as something else: the base type says what it really is.
_BASES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, dict),
    (list, list),
    (tuple, tuple),
    (bytes, bytes),
)


def tagged(value: object, path: str, room: int = MAX_DEPTH, *, jsonb: bool = False) -> Json:
    """Return ``value`` as JSON types, with a tag where JSON has no form of its own.

    ``jsonb`` also tags the floats that PostgreSQL's JSONB would rewrite. Raises
    `StateNotSerializable`.
    """
    try:
        return _Tagging(jsonb).value(value, room)
    except _Refusal as refusal:
        steps = "".join(reversed(refusal.steps))
        raise StateNotSerializable(path + steps, refusal.reason) from refusal.__cause__


class _Refusal(Exception):
    """A value without a stored form. Each level that it passes adds its step to the path."""

    def __init__(self, reason: str, *steps: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps = list(steps)


class _Tagging:
    """One walk over a value, with what it is inside of, to notice a value that contains itself."""

    def __init__(self, jsonb: bool) -> None:
        self.jsonb = jsonb
        self.above: list[int] = []

    def value(self, value: Any, room: int) -> Json:
        kind = type(value)
        if kind is str:
            return _text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if _INT64_MIN <= value <= _UINT64_MAX else {MARK: "int", "v": hex(value)}
        if kind is float:
            return {MARK: "float", "v": repr(value)} if self.odd_float(value) else value
        if id(value) in self.above:
            raise _Refusal("the value contains itself")
        self.above.append(id(value))
        result: Json
        if kind is dict:
            result = self.dict_(value, room)
        elif kind is list:
            result = self.items(value, room - 1)
        elif kind is tuple:
            result = {MARK: "tuple", "v": self.items(value, room - 2)}
        elif kind is set or kind is frozenset:
            result = {MARK: kind.__name__, "v": self.set_(value, room - 2)}
        else:
            result = self.other(value, room)
        self.above.pop()
        return result

    def odd_float(self, value: float) -> bool:
        if value - value != 0.0:
            return True
        negative_zero = value == 0.0 and repr(value)[0] == "-"
        return self.jsonb and (abs(value) >= _JSONB_FLOAT_LIMIT or negative_zero)

    def items(self, value: list[Any] | tuple[Any, ...], room: int) -> list[Json]:
        if room < 0:
            raise _Refusal(_TOO_DEEP)
        items: list[Json] = []
        for item in value:
            try:
                items.append(self.value(item, room))
            except _Refusal as refusal:
                refusal.steps.append(f"[{len(items)}]")
                raise
        return items

    def dict_(self, value: dict[Any, Any], room: int) -> Json:
        names = list(map(_key, value))
        odd = MARK in names or any("\0" in name for name in names)
        room -= 3 if odd else 1
        if room < 0:
            raise _Refusal(_TOO_DEEP)
        items: dict[str, Json] = {}
        for name, item in zip(names, value.values(), strict=True):
            if name in items:
                raise _Refusal(f"two keys are stored as {name!a:.80}")
            try:
                items[name] = self.value(item, room)
            except _Refusal as refusal:
                refusal.steps.append(_step(name))
                raise
        if not odd:
            return items
        return {MARK: "dict", "v": [[_text(name), item] for name, item in items.items()]}

    def set_(self, value: set[Any] | frozenset[Any], room: int) -> list[Json]:
        if room < 0:
            raise _Refusal(_TOO_DEEP)
        items = []
        for item in value:
            try:
                items.append(self.value(item, room))
            except _Refusal as refusal:
                refusal.steps.append("{…}")
                raise
        # Normalising may make elements equal or unhashable (a frozen dataclass becomes a dict).
        try:
            alike = len({untagged(item) for item in items}) != len(value)
        except TypeError:
            raise _Refusal("a set with elements that are stored as dict or list", "{…}") from None
        if alike:
            raise _Refusal("a set with elements that are stored alike", "{…}")
        # Sets have no order; a fixed one makes equal sets equal bytes.
        return sorted(items, key=orjson.dumps)

    def other(self, value: Any, room: int) -> Json:
        try:
            plain = normalise(value)
        except StateNotSerializable as error:
            raise _Refusal(error.reason) from error.__cause__
        if plain is not value:
            return self.value(plain, room)
        document = _scalar(value)
        if type(value) not in _EXACT_SCALARS:
            same = untagged(document) == value
            if not same:
                name = type(value).__name__
                raise _Refusal(f"a value of type {name} says more than its stored form can")
        return document


_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"


def _text(value: str) -> Json:
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        reason = f"text with a lone surrogate at {error.start} has no stored form"
        raise _Refusal(reason) from None
    return {MARK: "str", "v": b64encode(encoded).decode()} if "\0" in value else value


def _key(key: object) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if not isinstance(plain, str):
        raise _Refusal(f"a key must be a str, not {type(key).__name__}: {shown(key)}")
    name = str.__str__(plain)
    if not is_unicode(name):
        raise _Refusal(f"a key has a lone surrogate: {name!a:.80}")
    return name


def shown(value: object) -> str:
    """Return a short form for messages; an object's own repr may be long or fail."""
    try:
        return f"{value!a:.80}"
    except Exception:
        return f"<{type(value).__name__}>"


def is_unicode(text: str) -> bool:
    """Tell whether ``text`` has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scalar(value: object) -> dict[str, Any]:
    match value:
        case bytes():
            return {MARK: "bytes", "v": b64encode(value).decode()}
        case datetime():
            more = _zone_and_fold(value)
            return {MARK: "datetime", "v": value.isoformat(), **more}
        case date():
            return {MARK: "date", "v": value.isoformat()}
        case time():
            more = _zone_and_fold(value)
            return {MARK: "time", "v": value.isoformat(), **more}
        case timedelta():
            return {MARK: "timedelta", "v": [value.days, value.seconds, value.microseconds]}
        case UUID():
            return {MARK: "uuid", "v": str(value)}
        case Decimal():
            return {MARK: "decimal", "v": str(value)}
        case PurePath():
            return {MARK: _path_kind(value), "v": _path_form(value)}
    raise _Refusal(f"a value of type {type(value).__name__} has no stored form")


_EXACT_SCALARS: Final = frozenset(
    {
        *(bytes, datetime, date, time, timedelta, UUID, Decimal),
        *(type(Path()), PurePosixPath, PureWindowsPath),
    }
)


def _zone_and_fold(value: datetime | time) -> dict[str, Any]:
    more: dict[str, Any] = {"fold": 1} if value.fold else {}
    if value.tzinfo is not None and type(value.tzinfo) is not timezone:
        from zoneinfo import ZoneInfo

        if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
            more["zone"] = value.tzinfo.key
        elif not _has_fixed_offset(value):
            # Its offset at this moment would come back, and with it other sums and differences.
            kind = type(value.tzinfo).__name__
            raise _Refusal(f"a time zone of type {kind} has no stored form; ZoneInfo has one")
    return more


def _has_fixed_offset(value: datetime | time) -> bool:
    """Tell whether the zone has the same offset always: such a zone knows it without a date."""
    try:
        offset = value.tzinfo.utcoffset(None) if value.tzinfo is not None else None
        return offset is not None and offset == value.utcoffset()
    except Exception:
        return False


def _path_kind(value: PurePath) -> str:
    if isinstance(value, Path):
        return "path"
    return "posixpath" if isinstance(value, PurePosixPath) else "windowspath"


def _path_form(value: PurePath) -> Json:
    """Return a path as text in a list, or in base64 if its name is no text that JSONB can hold."""
    text = str(value)
    if "\0" not in text and is_unicode(text):
        return [text]
    try:
        return b64encode(os.fsencode(text)).decode()
    except UnicodeEncodeError:
        raise _Refusal("a path with a lone surrogate has no stored form") from None


def untagged(value: Json, room: int = MAX_DEPTH + 8) -> Any:
    """Return the Python value that a tagged document stands for. Raises `StateCorrupt`."""
    if type(value) is dict:
        if room <= 0:
            raise StateCorrupt("a stored document is nested too deeply")
        if MARK in value:
            return _read_tag(value, room)
        plain = {}
        for key, item in value.items():
            kind = type(item)
            plain[key] = untagged(item, room - 1) if kind is dict or kind is list else item
        return plain
    if type(value) is list:
        if room <= 0:
            raise StateCorrupt("a stored document is nested too deeply")
        items = []
        for item in value:
            kind = type(item)
            items.append(untagged(item, room - 1) if kind is dict or kind is list else item)
        return items
    return value


def _read_tag(document: dict[str, Any], room: int) -> Any:
    kind = document[MARK]
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is None:
        raise StateCorrupt(f"a stored document has the unknown tag {kind!r:.80}")
    try:
        return reader(document, room - 1)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StateCorrupt(f"a stored value tagged {kind!r} cannot be read: {error}") from None


def _read_datetime(document: Json, room: int) -> datetime:
    moment = datetime.fromisoformat(document["v"]).replace(fold=document.get("fold", 0))
    if "zone" not in document:
        return moment
    zone = _find_zone(document["zone"])
    there = moment.replace(tzinfo=zone)
    # Where the zone is unknown or has new rules, the fixed offset still names the same moment.
    return there if zone and there.utcoffset() == moment.utcoffset() else moment


def _read_time(document: Json, room: int) -> time:
    moment = time.fromisoformat(document["v"]).replace(fold=document.get("fold", 0))
    if "zone" not in document:
        return moment
    zone = _find_zone(document["zone"])
    if zone is None:
        raise StateCorrupt(f"the time zone {document['zone']!r:.80} is not known here")
    return moment.replace(tzinfo=zone)


def _find_zone(key: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(key)
    except (LookupError, OSError, TypeError, ValueError):
        return None


def _read_items(document: Json, room: int) -> list[Any]:
    items = document["v"]
    if type(items) is not list:
        raise StateCorrupt("a stored collection is not a list")
    return [untagged(item, room - 1) for item in items]


def _read_dict(document: Json, room: int) -> dict[str, Any]:
    plain = dict(_read_items(document, room))
    if not all(type(key) is str for key in plain):
        raise StateCorrupt("a stored dict has a key that is not text")
    return plain


def _path_text(document: Json) -> str:
    stored = document["v"]
    if type(stored) is not list:
        return os.fsdecode(b64decode(stored, validate=True))
    (text,) = stored
    if type(text) is not str:
        raise StateCorrupt("a stored path is not text")
    return text


_READERS: Final[dict[str, Callable[[Json, int], Any]]] = {
    "str": lambda document, room: b64decode(document["v"], validate=True).decode(),
    "bytes": lambda document, room: b64decode(document["v"], validate=True),
    "int": lambda document, room: int(document["v"], 16),
    "float": lambda document, room: float(document["v"]),
    "datetime": _read_datetime,
    "date": lambda document, room: date.fromisoformat(document["v"]),
    "time": _read_time,
    "timedelta": lambda document, room: timedelta(*map(int, document["v"])),
    "uuid": lambda document, room: UUID(document["v"]),
    "decimal": lambda document, room: Decimal(document["v"]),
    "path": lambda document, room: Path(_path_text(document)),
    "posixpath": lambda document, room: PurePosixPath(_path_text(document)),
    "windowspath": lambda document, room: PureWindowsPath(_path_text(document)),
    "tuple": lambda document, room: tuple(_read_items(document, room)),
    "set": lambda document, room: set(_read_items(document, room)),
    "frozenset": lambda document, room: frozenset(_read_items(document, room)),
    "dict": _read_dict,
}
