"""What an autosave costs while nothing changes: the share of a core that an idle agent pays.

A state is saved once; then the saver looks at it again and again, far more often than it would, and
finds it unchanged. The processor time of one look, divided by the interval of 30 seconds, is the share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.content import Writer
from benchmarks.harness import Row, Run, median, show_bytes, show_time
from holdfast import SessionManager
from holdfast.autosave import INTERVAL

TARGET = 0.01
_LOOKS = 20
_WAITED = 3.0


def measure(run: Run) -> list[Row]:
    waiting = _waiting_share(run.directory / "waiting.db")
    count = run.size(10_000, 1_000)
    return [
        _row(run, "a conversation", _conversation(count), waiting),
        _row(run, "tuples and bytes", _tagged(count), waiting),
    ]


def _row(run: Run, name: str, state: dict[str, Any], waiting: float) -> Row:
    spent, size = _look(run.directory / f"{name}.db", lambda: state)
    share = spent / INTERVAL + waiting
    return Row(
        figure=f"autosave with nothing changed, {name} of {show_bytes(size)}",
        peer="–",
        ours=f"{share:.2%} of one core",
        target=f"< {TARGET:.0%} of one core",
        met=share < TARGET,
        note=f"{show_time(spent)} of processor time for a look every {INTERVAL:g} s; "
        f"waiting alone {waiting:.3%}",
        values={"share": share, "look_seconds": spent, "size": size},
    )


def _conversation(count: int) -> dict[str, Any]:
    """A state as agents have them: one long list, and some of everything else."""
    return {
        "conversation_history": Writer().messages(count),
        "variable_state": {f"variable_{number}": number for number in range(500)},
        "task_state": {"tasks": [{"id": str(n), "status": "pending"} for n in range(100)]},
    }


def _tagged(count: int) -> dict[str, Any]:
    """One with values that JSON lacks, which are not recognised at memory speed."""
    return {"records": [(one, b"bytes") for one in Writer().messages(count)]}


def _look(path: Path, provider: Callable[[], dict[str, Any]]) -> tuple[float, int]:
    """Return the processor time of one look at an unchanged state, and the size of the state."""
    with SessionManager.open(path, project_dir=path.parent, workspace=False) as manager:
        session = manager.create_session("agent")
        with session.autosave(provider, interval=None, signals=False) as saver:
            saved = saver.flush()
            assert saved is not None
            times = []
            for _ in range(_LOOKS):
                before = time.process_time()
                unchanged = saver.flush() is None
                times.append(time.process_time() - before)
                assert unchanged
        return median(times), saved.size_bytes


def _waiting_share(path: Path) -> float:
    """Return the share of a core that the waiting threads take, without any look."""
    with (
        SessionManager.open(path, project_dir=path.parent, workspace=False) as manager,
        manager.create_session("agent").autosave(dict),
    ):
        before = time.process_time()
        time.sleep(_WAITED)
        return (time.process_time() - before) / _WAITED
