"""One decoder after another in processes of their own, which can be ended at any time and still are counted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

FOUND: Final = Path(".fuzz")
_PROGRESS: Final = re.compile(r"#\d+\s.*cov:")
_INPUTS: Final = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a decoder came to."""

    name: str
    processor_seconds: float
    inputs: int
    kept_promise: bool


class Runs:
    """The runs under way, and the decoders that kept or broke their promise."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.ended = False
        self._run: set[str] = set()
        self._processes: set[int] = set()

    @property
    def kept(self) -> set[str]:
        """The decoders that were run, and kept their promise each time."""
        return self._run - {*self.broken}

    def run(self, name: str, seconds: int) -> Run:
        """Fuzz one decoder, tell how far it came, and return what it took."""
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(seconds)]
        FOUND.mkdir(exist_ok=True)
        log = FOUND / f"{name}.log"
        with log.open("wb") as file:
            # In a group of its own: a Ctrl-C is for this process, which knows how to end the others.
            process = subprocess.Popen(command, stderr=file, process_group=0)
            self._processes.add(process.pid)
            _, status, used = os.wait4(process.pid, 0)
            self._processes.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        text = log.read_text("utf-8", "replace")
        inputs = int(said[1]) if (said := _INPUTS.search(text)) else 0
        # An end before the first input, as when it was asked to while it loaded, shows nothing.
        kept_promise = process.returncode == 0 or process.returncode == -signal.SIGUSR1
        if inputs:
            self._run.add(name)
        if not kept_promise:
            self.broken.append(name)
        taken = used.ru_utime + used.ru_stime
        print(f"== {name}: {inputs:,} inputs, {taken:.0f} s of processor time", flush=True)
        # The last line about coverage says how far it came; behind a finding stands all there is to know.
        lines = text.splitlines()
        told = [line for line in lines if _PROGRESS.match(line)][-1:]
        print("\n".join(told if kept_promise else lines[-40:]), flush=True)
        return Run(name, taken, inputs, kept_promise)

    @contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """Let the decoders under way come to an end, and be counted, when this process is asked to end."""

        def end(_signal: int, _frame: FrameType | None) -> None:
            self.ended = True
            for process_id in list(self._processes):
                os.kill(process_id, signal.SIGUSR1)

        before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
