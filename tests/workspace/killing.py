"""A process that kills itself with SIGKILL just before its n-th step that could change something.

Started once, it forks for every order it reads, so that an attempt costs no new interpreter. A step is
whatever Python announces to its audit hooks: a file opened for writing, renamed, removed, a directory made,
permissions set, a git command started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_STEPS: Final = frozenset({
    "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink",
    "os.truncate", "subprocess.Popen",
})  # fmt: skip


class Killer:
    """Hands out orders to a `killing` process; see `attempt`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def attempt(self, root: Path, call: str, *arguments: Any, at: int, **options: Any) -> bool:
        """Call a method of the `Workspace` at ``root``, killed at step ``at``; whether it was."""
        order = {
            "root": str(root),
            "call": call,
            "arguments": arguments,
            "options": options,
            "at": at,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer in ("killed", "done"), answer
        return answer == "killed"


@contextmanager
def killer() -> Iterator[Killer]:
    """Give a process that can be told to try things and die."""
    top = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.workspace.killing"],
        cwd=top, env={**os.environ, "PYTHONPATH": f"{top}{os.pathsep}{top / 'src'}"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        yield Killer(process)
        assert process.stdin is not None
        process.stdin.close()


def is_step(event: str, arguments: tuple[Any, ...]) -> bool:
    """Tell whether what Python announces could change something."""
    return event in _STEPS or (event == "open" and bool((arguments[2] or 0) & _WRITES))


def arm(at: int) -> None:
    """Have this process end just before a step, counted from here."""
    left = at

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if is_step(event, arguments):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)


def _serve() -> None:
    from holdfast import Workspace

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            workspace = Workspace(order["root"])
            call = getattr(workspace, order["call"])
            arguments = order["arguments"]
            if order["call"] == "gc":
                # What is needed is asked for by a call.
                arguments = [partial(list, arguments[0])]
            arm(order["at"])
            call(*arguments, **order["options"])
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            print("killed", flush=True)
        else:
            print("done" if status == 0 else f"failed: {status}", flush=True)


if __name__ == "__main__":
    _serve()
