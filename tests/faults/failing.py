"""A workload on a disk that fails now and then: a program of its own.

    python -m tests.faults.failing DIRECTORY FAILURES SEED

Writes and syncs fail at random with what SQLite makes of EIO, ENOSPC and EROFS. What was acknowledged
nevertheless is written to ``DIRECTORY/ledger.json``, beside the database. An error that is not of our tree
ends the program, and so does one on the disk that has recovered.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import apsw

from holdfast.errors import StoreError
from tests.faults.disk import Disk
from tests.faults.work import Work

_ERRORS = (apsw.IOError, apsw.FullError, apsw.ReadOnlyError)


class Failures:
    """Lets the disk fail at random changes, sometimes several times in a row."""

    def __init__(self, coin: random.Random) -> None:
        self.made = 0
        self.active = False
        self._coin = coin
        self._row = 0
        # SQLite forgets a disk that nobody refers to.
        self._disk = Disk(before_change=self._about_to_change)

    def _about_to_change(self) -> None:
        if not self.active:
            return
        if not self._row and self._coin.random() < 0.02:
            self._row = self._coin.choice((1, 1, 1, 3, 10))
        if self._row:
            self._row -= 1
            self.made += 1
            raise self._coin.choice(_ERRORS)("the disk says no")


def main() -> None:
    directory, wanted, seed = sys.argv[1:]
    coin = random.Random(int(seed))
    failures = Failures(coin)
    refused = 0
    with Work(Path(directory, "sessions.db"), coin) as work:
        failures.active = True
        while failures.made < int(wanted):
            try:
                work.step()
            except StoreError:
                refused += 1
        failures.active = False
        for _ in range(10):
            work.step()
    assert refused, "no failure was noticed"
    Path(directory, "ledger.json").write_text(json.dumps(work.ledger), encoding="utf-8")


if __name__ == "__main__":
    main()
