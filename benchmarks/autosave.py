"""What an autosave costs while nothing changes: the share of a core that an idle agent pays.

    python -m benchmarks.autosave

A large state is saved once; then the saver looks at it again and again, far more often than it would,
and finds it unchanged. The processor time of one look, divided by the interval of 30 seconds, is the
share. Prints what it measured and records nothing.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.content import Writer
from benchmarks.harness import median, show_bytes, show_time
from holdfast import SessionManager
from holdfast.autosave import INTERVAL

LOOKS = 20
TARGET = 0.01
MESSAGES = (1_000, 10_000, 50_000)


def conversation(count: int) -> dict[str, Any]:
    """A state as agents have them: one long list, and some of everything else."""
    return {
        "conversation_history": Writer().messages(count),
        "variable_state": {f"variable_{number}": number for number in range(500)},
        "task_state": {"tasks": [{"id": str(n), "status": "pending"} for n in range(100)]},
    }


def tagged(count: int) -> dict[str, Any]:
    """The same with values that JSON lacks, which are not recognised at memory speed."""
    return {"records": [(one, b"bytes") for one in Writer().messages(count)]}


def look_seconds(state: dict[str, Any]) -> tuple[float, int]:
    """Return the processor time of one look at an unchanged state, and the size of the state."""
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        SessionManager.open(Path(folder, "s.db"), project_dir=folder, workspace=False) as manager,
    ):
        session = manager.create_session("agent")
        with session.autosave(lambda: state, interval=None, signals=False) as saver:
            saved = saver.flush()
            assert saved is not None
            times = []
            for _ in range(LOOKS):
                before = time.process_time()
                unchanged = saver.flush() is None
                times.append(time.process_time() - before)
                assert unchanged
        return median(times), saved.size_bytes


def waiting_share(seconds: float = 3.0) -> float:
    """Return the share of a core that the waiting threads take, without any look."""
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        SessionManager.open(Path(folder, "s.db"), project_dir=folder, workspace=False) as manager,
        manager.create_session("agent").autosave(dict),
    ):
        before = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - before) / seconds


def main() -> None:
    print(f"waiting: {waiting_share():.4%} of a core")
    for name, make in (("conversation", conversation), ("with tags", tagged)):
        for count in MESSAGES:
            spent, size = look_seconds(make(count))
            share = spent / INTERVAL
            print(
                f"{name}, {show_bytes(size)}: {show_time(spent)} a look, {share:.3%} of a core at "
                f"one look in {INTERVAL:g} s; target less than {TARGET:.0%}: "
                f"{'met' if share < TARGET else 'MISSED'}"
            )


if __name__ == "__main__":
    main()
