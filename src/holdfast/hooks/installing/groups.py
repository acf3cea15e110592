"""The hooks of one agent inside its settings, in the form that Claude Code, Codex and Gemini CLI share:

    {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "…"}]}]}}

An event has a list of groups, a group a list of handlers. Ours are recognised by their command, so that
what other tools put beside them stays, and a handler of ours that somebody moved is still found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.hooks.installing import jsontext
from holdfast.hooks.installing.jsontext import Container, Entry, Scalar, Value
from holdfast.hooks.installing.program import is_ours, with_program


class Misshapen(ValueError):
    """The settings have something else where hooks would stand; the message says what and where."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler of ours: its event, its command, and the way to it, from the outermost inwards."""

    event: str
    command: Scalar
    way: tuple[tuple[Container, Entry], ...]


def add(text: str, groups: Mapping[str, Mapping[str, Any]], command: str) -> str:
    """Return the text with a group for each event; events that have one of ours keep it.

    Raises `jsontext.NotJson` and `Misshapen`.
    """
    _check(text, groups)
    if _root(text).get("hooks") is None:
        whole = {event: [group] for event, group in groups.items()}
        return jsontext.insert_member(text, _root(text), "hooks", whole)
    for event, group in groups.items():
        hooks = _root(text).get("hooks")
        listed = hooks.get(event) if isinstance(hooks, Container) else None
        if isinstance(listed, Container) and all(one.event != event for one in ours(text)):
            text = jsontext.insert_item(text, listed, group)
        elif isinstance(hooks, Container) and listed is None:
            text = jsontext.insert_member(text, hooks, event, [group])
    for number in range(len(list(ours(text)))):
        old = list(ours(text))[number].command
        new = with_program(old.value, command)
        if new != old.value:
            text = jsontext.replace(text, old, new)
    return text


def take_out(text: str) -> str:
    """Return the text without anything of ours, and without what is empty because of that."""
    while (handler := next(ours(text), None)) is not None:
        text = _without(text, handler)
    return text


def ours(text: str) -> Iterator[Handler]:
    """Yield the handlers of ours in the order in which they stand."""
    root = _root(text)
    for to_hooks in _inside(root, "hooks"):
        for to_event in _inside(to_hooks[1].value):
            for to_group in _inside(to_event[1].value):
                for to_list in _inside(to_group[1].value, "hooks"):
                    for to_handler in _inside(to_list[1].value):
                        for _, command in _inside(to_handler[1].value, "command"):
                            if isinstance(command.value, Scalar) and is_ours(command.value.value):
                                way = (to_hooks, to_event, to_group, to_handler)
                                yield Handler(str(to_event[1].key), command.value, way)


def _inside(value: Value, key: str | None = None) -> Iterator[tuple[Container, Entry]]:
    """Yield the entries of a container, or only the member that counts under a name."""
    if isinstance(value, Container):
        found = value.find(key) if key is not None else None
        for entry in value.entries if key is None else (found,) if found is not None else ():
            yield value, entry


def is_empty(text: str) -> bool:
    """Tell whether the settings hold nothing at all."""
    return not text.strip("\ufeff \t\r\n") or not _root(text).entries


def _without(text: str, handler: Handler) -> str:
    """Remove the outermost thing that holds nothing but this handler."""
    for inside, entry in reversed(handler.way):
        if len(inside.entries) > 1:
            return jsontext.remove(text, inside, entry)
    return jsontext.remove(text, *handler.way[0])


def _check(text: str, events: Iterable[str]) -> None:
    """Raise `Misshapen` unless everything stands where agents look for it."""
    hooks = _root(text).get("hooks")
    if hooks is None:
        return
    if not isinstance(hooks, Container) or not hooks.is_object:
        raise Misshapen('"hooks" is not an object')
    for event in events:
        listed = hooks.get(event)
        if listed is not None and (not isinstance(listed, Container) or listed.is_object):
            raise Misshapen(f'"hooks.{event}" is not a list')


def _root(text: str) -> Container:
    root = jsontext.parse(text)
    if not isinstance(root, Container) or not root.is_object:
        raise Misshapen("it holds something else than a JSON object")
    return root
