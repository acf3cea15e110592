"""A small scripted agent, run as a process of its own: ``python -m holdfast.cli.demo.agent``.

It researches in steps. Each step adds a few kilobytes to a conversation and is followed by a save. Every
time a step runs, a line is appended to a journal outside of Holdfast: a step that ran twice shows there,
whatever the checkpoints say. The text is made up, but always the same for the same step, so that the
state in the end can be compared with the one of a run that nobody disturbed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from holdfast.sessions import Session, SessionManager

STEPS: Final = (
    "read the brief",
    "collect the sources",
    "sort out duplicates",
    "read the first half",
    "read the second half",
    "extract the claims",
    "check the numbers",
    "compare with last year",
    "ask for a second opinion",
    "draft the report",
    "review the draft",
    "write the summary",
)
_WORDS: Final = [
    "agent",
    "checkpoint",
    "durable",
    "evidence",
    "figure",
    "however",
    "latency",
    "measured",
    "method",
    "notes",
    "observed",
    "paper",
    "partial",
    "question",
    "recent",
    "reported",
    "result",
    "sample",
    "series",
    "several",
    "source",
    "study",
    "suggests",
    "support",
    "table",
    "therefore",
    "throughput",
    "trend",
    "under",
    "unclear",
    "update",
    "version",
    "which",
    "while",
    "within",
]
_WORDS_PER_STEP: Final = 480


@dataclass(frozen=True, slots=True)
class Orders:
    """What the parent tells the agent."""

    url: str
    tenant: str | None
    project_dir: str
    session_id: str
    journal: str
    pace: float
    resume: bool


def first_state() -> dict[str, Any]:
    """Return the state before the first step."""
    tasks = [
        {"id": f"step-{number:02}", "title": title, "status": "pending"}
        for number, title in enumerate(STEPS, 1)
    ]
    return {
        "variable_state": {"next_step": 1},
        "task_state": {"tasks": tasks},
        "conversation_history": [],
    }


def work(state: dict[str, Any], step: int) -> None:
    """Do one step: talk a few kilobytes and tick the task off."""
    title = STEPS[step - 1]
    words = _made_up(step)
    half = len(words) // 3
    state["conversation_history"] += [
        {"role": "user", "content": f"Step {step}: {title}."},
        {"role": "tool", "name": "search", "content": " ".join(words[:half])},
        {"role": "assistant", "content": " ".join(words[half:])},
    ]
    state["task_state"]["tasks"][step - 1]["status"] = "completed"
    state["variable_state"]["next_step"] = step + 1


def expected_state() -> dict[str, Any]:
    """Return the state after all steps of a run that nobody disturbed."""
    state = first_state()
    for step in range(1, len(STEPS) + 1):
        work(state, step)
    return state


def _made_up(step: int) -> list[str]:
    found = bytearray()
    while len(found) < _WORDS_PER_STEP:
        found += hashlib.sha256(f"{step}/{len(found)}".encode()).digest()
    return [_WORDS[byte % len(_WORDS)] for byte in found[:_WORDS_PER_STEP]]


def _journal(path: str) -> Callable[..., None]:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), **facts})
        os.write(descriptor, line.encode() + b"\n")

    return write


def _milliseconds(since: float) -> float:
    return round((time.perf_counter() - since) * 1000, 3)


def _begin(manager: SessionManager, orders: Orders) -> tuple[Session, dict[str, Any]]:
    if orders.resume:
        session = manager.resume_session(orders.session_id)
        return session, session.state
    session = manager.create_session(
        "researcher", task_description="Write a research report", session_id=orders.session_id
    )
    return session, first_state()


def main(orders: Orders) -> None:
    """Work until all steps are done, saving after each."""
    journal = _journal(orders.journal)
    since = time.perf_counter()
    with SessionManager.open(
        orders.url, tenant=orders.tenant, project_dir=orders.project_dir
    ) as manager:
        session, state = _begin(manager, orders)
        step = state["variable_state"]["next_step"]
        journal("began", step=step, ms=_milliseconds(since))
        while step <= len(STEPS):
            journal("ran", step=step)
            time.sleep(orders.pace)
            work(state, step)
            since = time.perf_counter()
            session.save_checkpoint(f"step-{step:02}", state=state, retention_class="step")
            journal("saved", step=step, ms=_milliseconds(since))
            step += 1
        session.complete()


def command_line(orders: Orders) -> list[str]:
    """Return the command that starts this program."""
    # -P: nothing in the working directory may pass for one of our modules.
    return [sys.executable, "-P", "-m", "holdfast.cli.demo.agent", json.dumps(asdict(orders))]


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
