"""A workload during which the power is cut again and again: a program of its own.

    python -m tests.faults.power DIRECTORY CUTS SEED [--lying-disk]

The disk of `tests.faults.disk` becomes SQLite's default, which is why this is no part of a test process. At
random moments what a power cut would leave is written to ``DIRECTORY/<number>/``, with a ledger of what
had been acknowledged by then.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tests.faults.disk import Disk
from tests.faults.work import Ledger, Work


class Cuts:
    """Cuts the power at random changes to the disk, until there were enough."""

    def __init__(self, directory: Path, wanted: int, coin: random.Random) -> None:
        self.made = 0
        self.wanted = wanted
        self.ledger: Ledger = {}
        self.disk = Disk(self._changed)
        self._directory = directory
        self._coin = coin
        self._next = coin.randrange(40)

    def _changed(self) -> None:
        self._next -= 1
        if self._next > 0 or self.made == self.wanted:
            return
        # A commit makes about a dozen of changes: let cuts fall between any two of them.
        self._next = self._coin.randrange(1, 40)
        left = self._directory / str(self.made)
        left.mkdir()
        self.made += 1
        self.disk.crash(left, self._coin)
        (left / "ledger.json").write_text(json.dumps(self.ledger), encoding="utf-8")


def main() -> None:
    directory, wanted, seed, *options = sys.argv[1:]
    coin = random.Random(int(seed))
    cuts = Cuts(Path(directory), int(wanted), coin)
    if options:
        cuts.disk.ignore_syncs()
    place = Path(directory, "disk")
    place.mkdir()
    with Work(place / "sessions.db", coin) as work:
        cuts.ledger = work.ledger
        while cuts.made < cuts.wanted:
            work.step()


if __name__ == "__main__":
    main()
