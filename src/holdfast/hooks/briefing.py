"""What an agent is told when its session starts: the brief, and what was under way when the work stopped."""

from __future__ import annotations

from typing import Any, Final

from holdfast.hooks.authorship import HOOK
from holdfast.hooks.desk import Desk
from holdfast.hooks.events import clean
from holdfast.leases import AGENT_SESSION
from holdfast.sessions import Session, SessionManager

_STEPS: Final = 5
_CHARACTERS: Final = 1200
_TOKENS: Final = 400


def brief_of(manager: SessionManager, session_id: str, root: str, max_tokens: int) -> str:
    """Return what to know of a session, in about so many tokens."""
    session = manager.get_session(session_id)
    brief = session.brief(max_tokens=max(max_tokens - _TOKENS, _TOKENS)).text.rstrip()
    more = _under_way(session, root)
    return f"{brief}\n\n{more}\n" if more else f"{brief}\n"


def _under_way(session: Session, root: str) -> str:
    """Say what was asked for last and done since, from the checkpoints and the journal of the hooks."""
    prompt = ""
    steps: list[dict[str, Any]] = []
    for checkpoint in session.list_checkpoints(limit=_STEPS):
        done = (checkpoint.metadata or {}).get(HOOK)
        if isinstance(done, dict):
            prompt = prompt or _text(done.get("prompt"))
            steps = [*_steps(done.get("steps")), *steps]
    agent, _, session_id = str(session.metadata.get(AGENT_SESSION, "")).partition(":")
    if session_id:
        for line in Desk(root, agent, session_id).peek():
            prompt = _text(line.get("prompt")) or prompt
            steps += _steps([line])
    lines = [f"The last request was: “{clean(prompt, 300)}”"] if prompt else []
    if steps:
        lines += ["The last steps were:", *(f"- {_step(one)}" for one in steps[-_STEPS:])]
    return clean("\n".join(lines), _CHARACTERS)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _steps(given: object) -> list[dict[str, Any]]:
    """Return what can be told of; metadata may come from elsewhere, in a bundle."""
    listed = given if isinstance(given, list) else []
    return [one for one in listed if isinstance(one, dict) and one.get("tool")]


def _step(step: dict[str, Any]) -> str:
    detail = clean(str(step.get("detail", "")), 160)
    return f"{clean(str(step['tool']), 100)} {detail}".rstrip()
