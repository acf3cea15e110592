"""Settings files as text: JSON is edited where it stands, and every other byte stays.

Reading a settings file and writing it anew would lose its comments, its order and its layout. So a file
is parsed into values that know where they stand in the text, and a change is an insertion or a removal
there. Comments and trailing commas are understood, as agents write and accept them.

`insert_member` and `insert_item` put something at the end of an object or a list, `remove` takes it out
again; an insertion followed by its removal gives the same text. Nothing here touches a file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_INDENT: Final = re.compile(r"\n([ \t]*)$")
_DEEPEST: Final = 200


class NotJson(ValueError):
    """The text is not JSON; the message says where it stops being so."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string, number, boolean or null."""

    start: int
    end: int
    value: Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of an object or an item of a list, and the comma behind it if there is one."""

    start: int
    end: int
    comma: int | None
    key: str | None
    value: Value


@dataclass(frozen=True, slots=True)
class Container:
    """An object or a list."""

    start: int
    end: int
    entries: tuple[Entry, ...]
    is_object: bool

    def get(self, key: str) -> Value | None:
        """Return the value of a member; of several with one name the last counts, as in JSON."""
        found = self.find(key)
        return found.value if found is not None else None

    def find(self, key: str) -> Entry | None:
        """Return the member with this name."""
        return next((entry for entry in reversed(self.entries) if entry.key == key), None)


Value: TypeAlias = Scalar | Container


def parse(text: str) -> Value:
    """Return the value that a text holds. Raises `NotJson`."""
    reader = _Reader(text)
    value = reader.value(reader.skip(1 if text.startswith("\ufeff") else 0), 0)
    rest = reader.skip(value.end)
    if rest != len(text):
        raise reader.error(rest, "the end of the file is expected")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def error(self, at: int, problem: str) -> NotJson:
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        return NotJson(f"line {line}, column {column}: {problem}")

    def skip(self, at: int) -> int:
        """Return where the next thing stands that is neither blank nor a comment."""
        while True:
            blank = _BLANK.match(self.text, at)
            at = blank.end() if blank else at
            comment = _COMMENT.match(self.text, at)
            if comment is None:
                return at
            at = comment.end()

    def value(self, at: int, depth: int) -> Value:
        if depth > _DEEPEST:
            raise self.error(at, "it is nested too deeply")
        first = self.text[at : at + 1]
        if first == "{":
            return self._container(at, depth, is_object=True)
        if first == "[":
            return self._container(at, depth, is_object=False)
        if first == '"':
            return self._string(at)
        found = _SCALAR.match(self.text, at)
        if found is None:
            raise self.error(at, "a value is expected")
        try:
            return Scalar(at, found.end(), json.loads(found[0]))
        except ValueError:
            raise self.error(at, "the number has more digits than can be read") from None

    def _string(self, at: int) -> Scalar:
        found = _STRING.match(self.text, at)
        if found is None:
            raise self.error(at, "a string is expected, or it does not end")
        try:
            return Scalar(at, found.end(), json.loads(found[0]))
        except ValueError:
            raise self.error(at, "the string has an escape that JSON does not know") from None

    def _container(self, at: int, depth: int, *, is_object: bool) -> Container:
        closing = "}" if is_object else "]"
        entries: list[Entry] = []
        here = self.skip(at + 1)
        while self.text[here : here + 1] != closing:
            if entries and entries[-1].comma is None:
                raise self.error(here, f"a comma or {closing} is expected")
            entry = self._entry(here, depth, is_object=is_object)
            entries.append(entry)
            here = self.skip(entry.end if entry.comma is None else entry.comma + 1)
        return Container(at, here + 1, tuple(entries), is_object)

    def _entry(self, at: int, depth: int, *, is_object: bool) -> Entry:
        key, here = None, at
        if is_object:
            name = self._string(at)
            key, colon = name.value, self.skip(name.end)
            if self.text[colon : colon + 1] != ":":
                raise self.error(colon, "a colon is expected")
            here = self.skip(colon + 1)
        value = self.value(here, depth + 1)
        comma = self.skip(value.end)
        has_comma = self.text[comma : comma + 1] == ","
        return Entry(at, value.end, comma if has_comma else None, key, value)


# Changing -------------------------------------------------------------------------------------


def insert_member(text: str, inside: Container, key: str, value: Any) -> str:
    """Return the text with one more member at the end of an object."""
    return _insert(text, inside, f"{json.dumps(key)}: ", value)


def insert_item(text: str, inside: Container, value: Any) -> str:
    """Return the text with one more item at the end of a list."""
    return _insert(text, inside, "", value)


def replace(text: str, old: Value, new: Any) -> str:
    """Return the text with another value in the place of one."""
    return text[: old.start] + json.dumps(new, ensure_ascii=False) + text[old.end :]


def remove(text: str, inside: Container, entry: Entry) -> str:
    """Return the text without an entry of a container."""
    start = _line_start(text, entry.start)
    if entry.comma is not None:
        return text[:start] + text[entry.end : entry.comma] + text[entry.comma + 1 :]
    commas = [one.comma for one in inside.entries if one.comma is not None]
    if not commas:
        return text[:start] + text[entry.end :]
    return text[: commas[-1]] + text[commas[-1] + 1 : start] + text[entry.end :]


def _line_start(text: str, at: int) -> int:
    """Return where the blanks before a place begin, and the end of the line before them."""
    # Not by an expression: tried at every blank of a long run of them, it takes time without end.
    start = len(text[:at].rstrip(" \t"))
    for character in ("\n", "\r"):
        if not text.endswith(character, 0, start):
            break
        start -= 1
    return start


def _insert(text: str, inside: Container, name: str, value: Any) -> str:
    unit = indent_of(text)
    depth = _depth_text(text, inside, unit)
    ending = "\r\n" if "\r\n" in text else "\n"
    lines = (name + json.dumps(value, indent=unit, ensure_ascii=False)).split("\n")
    added = "".join(f"{ending}{depth}{line}" for line in lines)
    last = inside.entries[-1] if inside.entries else None
    if last is None:
        at = inside.start + 1
        return text[:at] + added + text[at:]
    if last.comma is not None:
        at = _after_comments(text, last.comma + 1, inside.end - 1)
        return text[:at] + added + "," + text[at:]
    at = _after_comments(text, last.end, inside.end - 1)
    return text[: last.end] + "," + text[last.end : at] + added + text[at:]


def _after_comments(text: str, at: int, end: int) -> int:
    """Return the end of the last comment between two places, or the first place."""
    found = [comment.end() for comment in _COMMENT.finditer(text, at, end)]
    return found[-1] if found else at


def indent_of(text: str) -> str:
    """Return how a document indents: two spaces, unless it shows something else."""
    found = re.search(r"[\[{][ \t]*\r?\n([ \t]+)\S", text)
    return found[1] if found else "  "


def _depth_text(text: str, inside: Container, unit: str) -> str:
    """Return the blanks before an entry of a container: as its siblings have, or one step more."""
    for entry in inside.entries:
        found = _INDENT.search(text[: entry.start])
        if found is not None:
            return found[1]
    line = text[text.rfind("\n", 0, inside.start) + 1 : inside.start]
    return line[: len(line) - len(line.lstrip(" \t"))] + unit


def plain(value: Value) -> Any:
    """Return a value as Python has it, comments and places forgotten."""
    if isinstance(value, Scalar):
        return value.value
    if value.is_object:
        return {entry.key: plain(entry.value) for entry in value.entries}
    return [plain(entry.value) for entry in value.entries]
