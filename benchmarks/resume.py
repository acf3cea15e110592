"""How long a new process takes from its start to the printed brief of a large session.

    python -m benchmarks.resume

A session with 1,000 checkpoints, the last of them with a state of 10 MB, in a git repository. Each round
starts ``holdfast brief`` as a process of its own, and one that only imports the package, to tell what of it
is Python itself. The processor time beside it tells what a busy machine added. Prints what it measured and
records nothing.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.content import Writer
from benchmarks.harness import (
    median,
    output_of,
    percentile,
    python,
    show_bytes,
    show_time,
    take_turns,
)
from holdfast import SessionManager

CHECKPOINTS = 1_000
STATE_BYTES = 10_000_000
FILES = 200
ROUNDS = 15
TARGET = 1.0


def state(writer: Writer, messages: int) -> dict[str, Any]:
    return {
        "conversation_history": writer.messages(messages),
        "task_state": [
            {"id": str(n), "title": f"task {n}", "status": "completed" if n < 40 else "pending"}
            for n in range(60)
        ],
        "open_files": [{"path": f"src/module_{n}.py", "line": n} for n in range(10)],
        "memory_refs": [{"key": f"m{n}", "path": f"src/module_{n}.py"} for n in range(10)],
    }


def prepare(project: Path) -> int:
    """Fill a project and return the size of its last state."""
    (project / "src").mkdir()
    for number in range(FILES):
        (project / "src" / f"module_{number}.py").write_text(f"value = {number}\n" * 50)
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *command], cwd=project, check=True)
    writer = Writer()
    large = state(writer, STATE_BYTES // 1000)
    with SessionManager.open(project_dir=project) as manager:
        session = manager.create_session("implementer", task_description="Move auth to OAuth")
        for number in range(CHECKPOINTS - 1):
            session.save_checkpoint(f"step-{number}", state={"n": number}, workspace=False)
            if number % 20 == 0:
                session.decision(f"decision {number}", rationale="it was the simplest")
        return session.save_checkpoint("last", state=large).size_bytes


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        project = Path(folder)
        size = prepare(project)

        brief = ("-m", "holdfast", "brief", "--project-dir", folder)
        programs = {
            "the interpreter alone": ("-c", "pass"),
            "and `SessionManager` imported": ("-c", "from holdfast import SessionManager"),
            "`holdfast brief`": brief,
            f"`holdfast brief --files`, {FILES} files": (*brief, "--files"),
        }
        spent: dict[str, list[float]] = {name: [] for name in programs}

        def start(name: str, arguments: Sequence[str]) -> None:
            before = os.times()
            output_of(python(*arguments))
            after = os.times()
            spent[name].append(
                after.children_user
                + after.children_system
                - before.children_user
                - before.children_system
            )

        contestants = [partial(start, name, program) for name, program in programs.items()]
        for contestant in contestants:
            contestant()  # writes the byte code, and warms what a second start finds warm
        times = take_turns(ROUNDS, *contestants)
    print(f"{CHECKPOINTS:,} checkpoints, the last with {show_bytes(size)}; medians of {ROUNDS}")
    for name, measured in zip(programs, times, strict=True):
        cpu = show_time(median(spent[name]))
        print(f"{name:<36} {show_time(median(measured)):>8}, processor time {cpu}")
    took = median(times[2])
    print(
        f"start to brief: {show_time(took)}, 95 % within {show_time(percentile(times[2], 95))}; "
        f"target less than {show_time(TARGET)}: {'met' if took < TARGET else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
