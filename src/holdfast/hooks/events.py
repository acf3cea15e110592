"""What agents report, in one vocabulary. Whatever they send, reading it ends with an `Event` or `NotAnEvent`.

Only texts are believed to be texts: a field of another type counts as absent, and the agent's own names for
events and tools are translated by the module of that agent in `holdfast.hooks.agents`.
"""

from __future__ import annotations

from holdfast.hooks.reading import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SESSION_START = "session_start"
PROMPT = "prompt"
BEFORE_TOOL = "before_tool"
AFTER_TOOL = "after_tool"
SUBAGENT_START = "subagent_start"
SUBAGENT_STOP = "subagent_stop"
TASK_COMPLETED = "task_completed"
BEFORE_COMPACTION = "before_compaction"
STOP = "stop"
SESSION_END = "session_end"
IGNORED = "ignored"

AGENTS = ("claude-code", "codex", "gemini", "opencode")
GENERIC = "generic"

MAX_BYTES = 64 * 1024 * 1024
_ID_CHARACTERS = 200
_NAME_CHARACTERS = 100


class NotAnEvent(Exception):
    """What came in cannot be understood; the message says why."""


class Event:
    """One event. ``given`` is what the agent sent, and ``kind`` what it means."""

    __slots__ = ("agent", "cwd", "given", "kind", "name", "session_id", "words")

    def __init__(
        self,
        *,
        agent: str,
        kind: str,
        name: str,
        session_id: str,
        cwd: str,
        given: dict[str, Any],
        words: Any,
    ) -> None:
        self.agent = agent
        self.kind = kind
        self.name = name
        self.session_id = session_id
        self.cwd = cwd
        self.given = given
        self.words = words

    @property
    def owner(self) -> str:
        """Who holds the session of this agent: all of its hooks together."""
        return f"agent:{self.agent}:{self.session_id}"

    @property
    def tool(self) -> str:
        """The tool's name as the agent calls it."""
        return clean(self.text("tool_name"), _NAME_CHARACTERS)

    @property
    def tool_input(self) -> dict[str, Any]:
        """What the tool was called with."""
        return self.mapping("tool_input")

    def text(self, *names: str) -> str:
        """Return the first of these fields that is a text, empty if none is."""
        for name in names:
            value = self.given.get(name)
            if isinstance(value, str) and value:
                return value
        return ""

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a field that is an object, empty if it is none."""
        value = self.given.get(name)
        return value if isinstance(value, dict) else {}


def read_event(data: bytes, *, agent: str | None = None, name: str | None = None) -> Event:
    """Read what an agent sent. ``agent`` and ``name`` are what the command line says of it."""
    given = _parse(data, empty=name is not None)
    name = name or _text(given, "hook_event_name")
    if not name:
        raise NotAnEvent("the field hook_event_name is missing")
    kind_of_agent = _agent(given, name, agent)
    module = kind_of_agent if kind_of_agent in AGENTS else GENERIC
    words = words_of(module)
    kind = words.EVENTS.get(name)
    if kind is None:
        raise NotAnEvent(f"the event {name[:_NAME_CHARACTERS]!r} of {kind_of_agent} is not known")
    session_id = _text(given, "session_id") or ("default" if module == GENERIC else "")
    if not session_id or len(session_id) > _ID_CHARACTERS or not session_id.isprintable():
        raise NotAnEvent("the field session_id is missing, or no name for a session")
    return Event(
        agent=kind_of_agent,
        kind=kind,
        name=name,
        session_id=session_id,
        cwd=_text(given, "cwd"),
        given=given,
        words=words,
    )


def words_of(agent: str) -> Any:
    """Return the module that knows an agent's words; the others are not imported."""
    if agent == "claude-code":
        from holdfast.hooks.agents import claude_code

        return claude_code
    if agent == "codex":
        from holdfast.hooks.agents import codex

        return codex
    if agent == "gemini":
        from holdfast.hooks.agents import gemini

        return gemini
    if agent == "opencode":
        from holdfast.hooks.agents import opencode

        return opencode
    from holdfast.hooks.agents import generic

    return generic


def clean(text: str, limit: int) -> str:
    """Return a text as it can be stored, cut to ``limit`` characters."""
    text = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _parse(data: bytes, *, empty: bool) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise NotAnEvent(f"more than {MAX_BYTES:,} bytes came in")
    if not data.strip():
        if empty:
            return {}
        raise NotAnEvent("nothing came in on standard input")
    try:
        given = loads(data)
    except (ValueError, RecursionError) as error:
        raise NotAnEvent(f"what came in is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise NotAnEvent(f"what came in is no JSON object but {type(given).__name__}")
    return given


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) else ""


def _agent(given: dict[str, Any], name: str, said: str | None) -> str:
    """Find out who sent it: by what the command line or the event says, else by its looks."""
    stated = said or _text(given, "agent")
    if stated:
        plain = stated.replace("-", "").replace("_", "")
        if len(stated) > _NAME_CHARACTERS or not (plain.isascii() and plain.isalnum()):
            raise NotAnEvent(f"no name for an agent: {stated[:_NAME_CHARACTERS]!r}")
        return stated
    transcript = _text(given, "transcript_path")
    if name.startswith(("Before", "After", "PreCompress")) or "/chats/session-" in transcript:
        return "gemini"
    if "turn_id" in given or "/rollout-" in transcript:
        return "codex"
    if name[:1].isupper():
        return "claude-code"
    return GENERIC
