"""What a checkpoint of a realistic session takes on average.

Five kinds of work, each a session with conversation, variables, tasks, open files and decisions that
change as they would: most steps add a message or two, some call a tool with a long answer, a
few rewrite what was there (a summary instead of the oldest messages).
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.content import Writer
from benchmarks.harness import Row, Run, show_bytes
from benchmarks.ours import SqliteFile
from holdfast import SessionManager

# Steps, and the size of a usual and of a long answer.
_KINDS = {
    "a short question": (8, 600, 1_500),
    "a code change": (80, 900, 6_000),
    "a long refactoring": (250, 1_200, 12_000),
    "research with pages read": (60, 1_500, 40_000),
    "a support conversation": (30, 400, 1_000),
}


def measure(run: Run) -> list[Row]:
    path = run.directory / "sessions.db"
    stored: list[int] = []
    sizes: list[int] = []
    with SessionManager.open(path, workspace=False) as manager:
        for number, (kind, (steps, usual, long)) in enumerate(_KINDS.items()):
            session = manager.create_session(agent_type="worker", task_description=kind)
            for state in _states(number, run.size(steps, min(steps, 20)), usual, long):
                record = session.save_checkpoint(state=state, retention_class="step")
                stored.append(record.stored_bytes)
                sizes.append(record.size_bytes)
    file = SqliteFile(path)
    whole = file.file_bytes()
    file.close()
    mean, count = sum(stored) / len(stored), len(stored)
    return [
        Row(
            figure=f"mean stored bytes of a checkpoint over {len(_KINDS)} realistic sessions",
            peer="–",
            ours=f"{show_bytes(mean)}, states of {show_bytes(sum(sizes) / count)} on average",
            target="< 100 KB",
            met=mean < 100_000,
            note=f"{count} checkpoints; the file with all of them takes {show_bytes(whole)}",
            values={"mean": mean, "largest": max(stored), "count": count, "file": whole},
        )
    ]


def _states(seed: int, steps: int, usual: int, long: int) -> list[dict[str, Any]]:
    """Return a session's states in order; each is a value of its own."""
    pick, writer = random.Random(seed), Writer(seed=seed)
    messages: list[dict[str, Any]] = []
    variables: dict[str, Any] = {"attempts": 0, "branch": "main"}
    tasks = [
        {"id": f"task-{number}", "title": writer.prose(60), "status": "pending"}
        for number in range(10)
    ]
    decisions: list[dict[str, Any]] = []
    states = []
    for step in range(steps):
        messages.append(writer.message(pick.randint(usual // 3, usual)))
        if pick.random() < 0.4:
            messages.append(writer.message(pick.randint(usual, long)))
        if pick.random() < 0.03 and len(messages) > 20:
            messages = [writer.message(2_000), *messages[10:]]
        variables["attempts"] += pick.random() < 0.2
        variables[f"found_{pick.randrange(12)}"] = writer.prose(pick.randint(20, 300))
        if step % max(1, steps // 10) == 0:
            tasks = [dict(task) for task in tasks]
            tasks[min(9, step * 10 // steps)]["status"] = "completed"
            decisions = [*decisions, {"text": writer.prose(50), "rationale": writer.prose(200)}]
        states.append(
            {
                "conversation_history": list(messages),
                "variable_state": dict(variables),
                "task_state": {"tasks": tasks},
                "open_files": [{"path": f"src/module_{number}.py"} for number in range(step % 7)],
                "decisions": decisions,
                "context": {"session_number": 1, "token_usage": 900 * step},
            }
        )
    return states
