"""Cut the power between any two changes to files: ``python -m tests.faults.file_power [--cuts 60]``.

`tests.faults.file_work` runs once under ``strace``, which has to be installed. From what that saw, `traced_disk` makes
what a power cut would have left: after each acknowledgement, and after changes chosen at random. Another process
then uses it, and everything that had been acknowledged by then has to be there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.faults.file_work import ACKNOWLEDGED, Ledger
from tests.faults.traced_disk import OPTIONS, Call, TracedDisk, read_trace

_NOTHING: Final[Ledger] = {"saved": {}, "restored": {}, "bundle": None}


class Drill:
    """One piece of work, and the power cut in it at many moments."""

    def __init__(self, top: Path, coin: random.Random) -> None:
        self._coin = coin
        self._disk = top / "disk"
        self._project, home = self._disk / "project", self._disk / "home"
        self._trace, self._ledger = top / "trace", top / "ledger.json"
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GIT_", "XDG_"))
        }
        self._environment = {
            **kept, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        home.mkdir(parents=True)
        (self._project / "a" / "b").mkdir(parents=True)
        self._run("git", "-C", str(self._project), "init", "-q")
        for setting in (("user.name", "somebody"), ("user.email", "somebody@example.com")):
            self._run("git", "-C", str(self._project), "config", *setting)

    def run(self, steps: int, cuts: int) -> int:
        """Work, cut and check; return how many cuts lost something."""
        whole, disk = TracedDisk(self._disk), TracedDisk(self._disk)
        self._work(
            "do",
            str(self._coin.randrange(1 << 30)),
            str(steps),
            under=("strace", "-o", str(self._trace), *OPTIONS),
        )
        changes = sum(map(whole.follow, read_trace(self._trace)))
        assert whole.differs() == [], "the trace tells of another disk"
        chosen = set(self._coin.sample(range(changes), cuts))
        print(f"{steps} steps, {changes:,} changes to the disk")
        lost, number, ledger = 0, 0, _NOTHING
        for call in read_trace(self._trace):
            if (said := _acknowledgement(call)) is not None:
                ledger = said
                lost += self._cut(disk, ledger, f"change {number}: acknowledged")
            elif disk.follow(call):
                # What was put back may be changed again from here on, by somebody who does not sync it.
                ledger = {**ledger, "restored": {}}
                if number in chosen:
                    lost += self._cut(disk, ledger, f"change {number}: {call.name}")
                number += 1
        return lost

    def _cut(self, disk: TracedDisk, ledger: Ledger, moment: str) -> int:
        lost = 0
        self._ledger.write_text(json.dumps(ledger))
        for names_were_written in (False, True):
            disk.cut(names_were_written=names_were_written)
            done = self._work("check", str(self._ledger))
            lost += done.returncode != 0
            if done.returncode:
                print(f"{moment}, {names_were_written=}\n{done.stdout}{done.stderr}", flush=True)
        print(
            f"{moment}: {len(ledger['saved'])} checkpoints, {'lost' if lost else 'right'}",
            flush=True,
        )
        return lost

    def _work(
        self, what: str, *arguments: str, under: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        program = (
            sys.executable,
            "-m",
            "tests.faults.file_work",
            what,
            str(self._project),
            *arguments,
        )
        return self._run(*under, *program, ok=(0, 1) if what == "check" else (0,))

    def _run(self, *command: str, ok: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in ok, done.stderr
        return done


def _acknowledgement(call: Call) -> Ledger | None:
    said = call.arguments[1] if call.name == "write" else ""
    if isinstance(said, bytes) and said.startswith(ACKNOWLEDGED):
        return dict(json.loads(said.removeprefix(ACKNOWLEDGED)))
    return None


def main() -> int:
    given = argparse.ArgumentParser(prog="tests.faults.file_power", description=__doc__)
    given.add_argument("--cuts", type=int, default=60, help="besides those after acknowledgements")
    given.add_argument("--steps", type=int, default=20)
    given.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    options = given.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="holdfast-power-") as top:
        lost = Drill(Path(top), random.Random(options.seed)).run(options.steps, options.cuts)
    print(f"{lost} cuts lost something")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
