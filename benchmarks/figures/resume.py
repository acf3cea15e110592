"""How long a new process takes from its start to the printed brief of a large session.

A session with 1,000 checkpoints, the last of them with a state of 10 MB, in a git repository. Each round
starts ``holdfast brief`` as a process of its own, and others that tell what of it is Python itself.
"""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.content import Writer
from benchmarks.harness import (
    Row,
    Run,
    median,
    output_of,
    percentile,
    python,
    show_bytes,
    show_time,
    take_turns,
)
from holdfast import SessionManager

TARGET = 1.0
_FILES = 200


def measure(run: Run) -> list[Row]:
    project = run.directory / "resumed"
    checkpoints = run.size(1_000, 100)
    size = _prepare(project, checkpoints, run.size(10_000_000, 1_000_000))
    brief = ("-m", "holdfast", "brief", "--project-dir", str(project))
    programs = [
        partial(_start, "-c", "pass"),
        partial(_start, "-c", "from holdfast import SessionManager"),
        partial(_start, *brief),
        partial(_start, *brief, "--files"),
    ]
    for program in programs:
        program()  # writes the byte code, and warms what a second start finds warm
    rounds = run.size(15, 3)
    times = take_turns(rounds, *programs)
    bare, imported, took, with_files = map(median, times)
    return [
        Row(
            figure=f"cold resume: start to brief, {checkpoints:,} checkpoints, a state of "
            f"{show_bytes(size)}",
            peer="–",
            ours=f"{show_time(took)}, 95 % within {show_time(percentile(times[2], 95))}",
            target=f"< {show_time(TARGET)}",
            met=took < TARGET,
            note=f"`holdfast brief`, whole processes, median of {rounds}; the bare interpreter "
            f"{show_time(bare)}, `SessionManager` imported {show_time(imported)}, with `--files` "
            f"{show_time(with_files)}",
            values={"our_seconds": took, "import_seconds": imported, "with_files": with_files},
        )
    ]


def _start(*arguments: str) -> None:
    output_of(python(*arguments))


def _prepare(project: Path, checkpoints: int, state_bytes: int) -> int:
    """Fill a project and return the size of its last state."""
    (project / "src").mkdir(parents=True)
    for number in range(_FILES):
        (project / "src" / f"module_{number}.py").write_text(f"value = {number}\n" * 50)
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *command], cwd=project, check=True)
    large = _state(Writer(), state_bytes // 1000)
    with SessionManager.open(project_dir=project) as manager:
        session = manager.create_session("implementer", task_description="Move auth to OAuth")
        for number in range(checkpoints - 1):
            session.save_checkpoint(f"step-{number}", state={"n": number}, workspace=False)
            if number % 20 == 0:
                session.decision(f"decision {number}", rationale="it was the simplest")
        return session.save_checkpoint("last", state=large).size_bytes


def _state(writer: Writer, messages: int) -> dict[str, Any]:
    return {
        "conversation_history": writer.messages(messages),
        "task_state": [
            {"id": str(n), "title": f"task {n}", "status": "completed" if n < 40 else "pending"}
            for n in range(60)
        ],
        "open_files": [{"path": f"src/module_{n}.py", "line": n} for n in range(10)],
        "memory_refs": [{"key": f"m{n}", "path": f"src/module_{n}.py"} for n in range(10)],
    }
