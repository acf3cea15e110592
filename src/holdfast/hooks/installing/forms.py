"""The two forms that hooks have: entries in a settings file, or a plugin that is a file of its own.

Both say how a text looks with our hooks in it, without them, and which command it has an agent run.
Texts go in and come out; None stands for a file that is not there.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Protocol

from holdfast.hooks.installing import groups
from holdfast.hooks.installing.agents import HookingAgent
from holdfast.hooks.installing.jsontext import NotJson
from holdfast.hooks.installing.program import hook_command


class NotOurs(ValueError):
    """Our hooks cannot go into this text; the message says why."""


class Form(Protocol):
    """How the hooks of one agent are written down. Every method raises `NotOurs`."""

    def added(self, text: str | None, program: list[str]) -> str:
        """Return the text with our hooks, running this program."""

    def command(self, text: str | None) -> str | None:
        """Return the command that our hooks run, or None if there are none."""

    def missing(self, text: str | None) -> tuple[str, ...]:
        """Return the events that have no hook of ours."""

    def taken_out(self, text: str, original: str | None) -> str | None:
        """Return the text without our hooks; ``original`` is what it was before they came in."""


def form_of(agent: HookingAgent) -> Form:
    """Return the form that an agent's hooks have."""
    return Entries(agent) if agent.events else Plugin(agent)


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries under ``hooks`` in a JSON file that belongs to the agent."""

    agent: HookingAgent

    def added(self, text: str | None, program: list[str]) -> str:
        """See `Form`."""
        return self._added(text, hook_command(self.agent.name, program))

    def _added(self, text: str | None, command: str) -> str:
        start = "{\n}\n" if text is None or not text.strip() else text
        try:
            return groups.add(start, self.agent.groups(command), command)
        except (NotJson, groups.Misshapen) as error:
            raise NotOurs(str(error)) from None

    def command(self, text: str | None) -> str | None:
        """See `Form`."""
        found = next(iter(self._ours(text)), None)
        return str(found.command.value) if found is not None else None

    def missing(self, text: str | None) -> tuple[str, ...]:
        """See `Form`."""
        there = {handler.event for handler in self._ours(text)}
        return tuple(event for event in self.agent.events if event not in there)

    def taken_out(self, text: str, original: str | None) -> str | None:
        """See `Form`."""
        command = self.command(text)
        # What may have been an empty list or object before us cannot be told from the text alone.
        if command is not None and self._would_be(original, command) == text:
            return original
        left = groups.take_out(text)
        return (
            original if groups.is_empty(left) and not (original or "").strip(" \t\r\n{}") else left
        )

    def _would_be(self, original: str | None, command: str) -> str | None:
        try:
            return self._added(original, command)
        except NotOurs:
            return None

    def _ours(self, text: str | None) -> list[groups.Handler]:
        if text is None or not text.strip():
            return []
        try:
            return list(groups.ours(text))
        except (NotJson, groups.Misshapen) as error:
            raise NotOurs(str(error)) from None


_FIRST_LINE: Final = "// Holdfast's plugin for opencode."
_PROGRAM: Final = re.compile(r"^const PROGRAM = (\[.*\])$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A file of ours alone, which the agent loads."""

    agent: HookingAgent

    def added(self, text: str | None, program: list[str]) -> str:
        """See `Form`."""
        if text is not None and not text.startswith(_FIRST_LINE):
            raise NotOurs("another plugin has this name; move it away first")
        source = (files(__package__) / "opencode.js").read_text("utf-8")
        words = json.dumps([*program, "hook", "--agent", self.agent.name], ensure_ascii=False)
        return _PROGRAM.sub(lambda found: f"const PROGRAM = {words}", source, count=1)

    def command(self, text: str | None) -> str | None:
        """See `Form`."""
        if text is None or not text.startswith(_FIRST_LINE):
            return None
        found = _PROGRAM.search(text)
        try:
            return shlex.join(json.loads(found[1])) if found is not None else self.agent.name
        except (ValueError, TypeError, RecursionError):
            raise NotOurs("the program in it cannot be read; remove the file first") from None

    def missing(self, text: str | None) -> tuple[str, ...]:
        """See `Form`."""
        return ()

    def taken_out(self, text: str, original: str | None) -> str | None:
        """See `Form`."""
        return None
