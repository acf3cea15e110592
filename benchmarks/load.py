"""Puts under load: ``python -m benchmarks.load``.

Processes times threads, small and large states, threads of their own and one that all share; each also with a writer
killed in the middle (SQLite), or with the server killed and started again (PostgreSQL). LangGraph's savers go through
the same. Every put that was acknowledged is looked for afterwards; one that is not found again is a lost update.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import report
from benchmarks.harness import Row, Run, percentile, python, show_time
from benchmarks.loader import OPEN

STORES = ("sqlite", "postgres")
SHAPES = ((1, 1), (4, 2), (16, 1), (16, 4))
SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20}
# Until the last process has heard that it begins.
_GATHERING_SECONDS = 0.1
_BACK_WITHIN = 5.0
# The second half is long enough for a server to start again and for those who wait to notice.
_FAULT_SECONDS = {"sqlite": 2.0, "postgres": 12.0}
_READ_BACK = 4000
# What is judged by its slowest puts is measured so often, in turn with the peer: once is chance.
_ROUNDS = 15


@dataclass(frozen=True)
class Load:
    """One cell of the table."""

    store: str
    processes: int
    threads: int
    size: str
    shared: bool
    fault: bool

    def __str__(self) -> str:
        whose = "one shared thread" if self.shared else "own threads"
        fault = (
            ", server killed" if self.store == "postgres" else ", a writer killed"
        ) * self.fault
        return f"{self.store} {self.processes}×{self.threads} {self.size} {whose}{fault}"


@dataclass(frozen=True)
class Attempt:
    """One round of a load: how long each put took, and what became of them."""

    seconds: float
    times: list[float]
    errors: Counter[str]
    lost: int
    back: float | None


@dataclass(frozen=True)
class Outcome:
    """What became of one load. ``back`` is how long the first good put took after a restart."""

    puts: int
    rate: float
    p50: float | None
    p99: float | None
    errors: dict[str, int]
    lost: int
    back: float | None = None

    @classmethod
    def of(cls, attempts: list[Attempt]) -> Outcome:
        """Return what several rounds come to, as if they had been one."""
        times = [took for one in attempts for took in one.times]
        backs = [one.back for one in attempts if one.back is not None]
        return cls(
            puts=len(times),
            rate=len(times) / sum(one.seconds for one in attempts),
            p50=percentile(times, 50) if times else None,
            p99=percentile(times, 99) if times else None,
            errors=dict(sum((one.errors for one in attempts), Counter())),
            lost=sum(one.lost for one in attempts),
            back=max(backs) if len(backs) == len(attempts) else None,
        )

    def __str__(self) -> str:
        if self.p50 is None or self.p99 is None:
            return f"no puts, {sum(self.errors.values())} errors"
        text = (
            f"{self.rate:,.0f}/s p50 {show_time(self.p50)} p99 {show_time(self.p99)}"
            f" {sum(self.errors.values())} errors {self.lost} lost"
        )
        return text if self.back is None else f"{text}, back after {show_time(self.back)}"


def loads(*, quick: bool) -> Iterator[Load]:
    shapes = ((1, 1), (16, 1), (16, 4)) if quick else SHAPES
    sizes = ("4 KB",) if quick else SIZES
    for store, fault in product(STORES, (False, True)):
        for (processes, threads), size, shared in product(shapes, sizes, (False, True)):
            # Where the only writer is killed, nobody goes on.
            if not fault or store == "postgres" or processes > 1:
                yield Load(store, processes, threads, size, shared, fault)


class Pool:
    """Processes that wait for tasks, so that none is measured while it starts."""

    def __init__(self) -> None:
        self._workers: list[subprocess.Popen[str]] = []

    def take(self, count: int) -> list[subprocess.Popen[str]]:
        self._workers = [one for one in self._workers if one.poll() is None]
        fresh = [
            python("-m", "benchmarks.loader", stdin=subprocess.PIPE)
            for _ in range(count - len(self._workers))
        ]
        for one in fresh:
            assert one.stdout is not None
            if one.stdout.readline() != "ready\n":
                raise RuntimeError("a worker did not start")
        self._workers += fresh
        return self._workers[:count]

    def close(self) -> None:
        for one in self._workers:
            one.kill()
            one.communicate()


def measure(load: Load, run: Run, pool: Pool, seconds: float) -> dict[str, Outcome]:
    """Put ours and the peer under a load, in turn."""
    found: dict[str, list[Attempt]] = {who: [] for who in OPEN}
    for _ in range(_ROUNDS if load in map(_judged, STORES) else 1):
        for who, attempts in found.items():
            attempts.append(carry_out(load, who, run, pool, seconds))
    return {who: Outcome.of(attempts) for who, attempts in found.items()}


def _judged(store: str) -> Load:
    """Return the load whose slowest puts are compared."""
    return Load(store, 16, 1, "4 KB", shared=False, fault=False)


def carry_out(load: Load, who: str, run: Run, pool: Pool, seconds: float) -> Attempt:
    name = f"{who}-{time.monotonic_ns()}"
    url = run.new_database() if load.store == "postgres" else str(run.directory / f"{name}.db")
    with ExitStack() as stack:
        _prepare(who, url, stack)
    if load.fault and load.store == "postgres":
        # What loads before this one have left in the server's log is not a part of its restart.
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
    workers = pool.take(load.processes)
    task = {
        "who": who, "url": url, "threads": load.threads, "bytes": SIZES[load.size],
        "shared": load.shared,
    }  # fmt: skip
    ledgers = [run.directory / f"{name}.{number}.ledger" for number in range(load.processes)]
    for number, worker in enumerate(workers):
        _tell(worker, task | {"process": number, "ledger": str(ledgers[number])})
    for worker in workers:
        assert worker.stdout is not None
        if worker.stdout.readline() != "open\n":
            raise RuntimeError(f"a worker could not open {url}")
    start = time.monotonic() + _GATHERING_SECONDS
    for worker in workers:
        _tell(worker, {"start": start, "until": start + seconds})
    back = _fault(load, run, workers, start + seconds / 2) if load.fault else None
    puts: list[tuple[float, float]] = []
    errors: Counter[str] = Counter()
    for worker in workers:
        assert worker.stdout is not None
        if answer := worker.stdout.readline():
            found = json.loads(answer)
            puts += [(began, took) for began, took in found["puts"]]
            errors += Counter(found["errors"])
    ends = [began + took for began, took in puts if back is not None and began + took > back]
    return Attempt(
        seconds=seconds,
        times=[took for _, took in puts],
        errors=errors,
        lost=_lost(who, url, ledgers),
        back=min(ends) - back if back is not None and ends else None,
    )


def _tell(worker: subprocess.Popen[str], what: dict[str, Any]) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{json.dumps(what)}\n")
    worker.stdin.flush()


def _prepare(who: str, url: str, stack: ExitStack) -> None:
    """Make the tables, so that none of many has to."""
    if who == "peer" and url.startswith("postgresql:"):
        from benchmarks.peers import open_postgres_saver

        stack.callback(open_postgres_saver(url).conn.close)
    else:
        OPEN[who](url, 1, stack)


def _fault(load: Load, run: Run, workers: list[subprocess.Popen[str]], at: float) -> float:
    """Kill what is to be killed, in the middle; return when everything was there again."""
    time.sleep(max(0.0, at - time.monotonic()))
    if load.store == "postgres":
        run.server.kill()
        run.server.start()
    else:
        workers[0].send_signal(signal.SIGKILL)
        workers[0].wait()
    return time.monotonic()


def _lost(who: str, url: str, ledgers: list[Path]) -> int:
    """Return how many acknowledged puts are not there, or not as they were put."""
    lines = [
        line.split()
        for ledger in ledgers
        for part in ledger.parent.glob(f"{ledger.name}.*")
        for line in part.read_text().splitlines()
    ]
    # The newest are those that a fault takes; of very many the rest is sampled.
    every = -(-len(lines) // _READ_BACK)
    lost = 0
    with ExitStack() as stack:
        _, get = OPEN[who](url, 1, stack)
        for thread, checkpoint_id, token in lines[::-1][:: max(1, every)]:
            state = get(thread, checkpoint_id)
            lost += state is None or state["token"] != token
    return lost


def judge(found: dict[Load, dict[str, Outcome]]) -> list[Row]:
    rows = []
    for store in dict.fromkeys(load.store for load in found):
        ours, peer = (found[_judged(store)][who] for who in ("ours", "peer"))
        ratio = (ours.p99 or 0) / peer.p99 if peer.p99 else None
        rows.append(
            Row(
                figure=f"p99 of a put of 4 KB by 16 processes, {store}",
                peer=str(peer),
                ours=str(ours),
                ratio=f"{ratio:.2f} of the peer's" if ratio is not None else "–",
                target="below the peer's",
                met=ratio is None or ratio < 1,
            )
        )
        shared = [
            load for load in found if load.store == store and load.shared and load.threads == 4
        ]
        lost = sum(found[load]["ours"].lost for load in shared)
        rows.append(
            Row(
                figure=f"lost updates on one thread shared by 16×4 writers, {store}",
                peer=str(sum(found[load]["peer"].lost for load in shared)),
                ours=str(lost),
                target="0",
                met=lost == 0,
            )
        )
        faults = [load for load in found if load.store == store and load.fault]
        backs = [found[load]["ours"].back for load in faults]
        peers = [found[load]["peer"].back for load in faults]
        rows.append(
            Row(
                figure=f"first good put after {'a restart' if store == 'postgres' else 'a kill'}, {store}",
                peer=_longest(peers),
                ours=_longest(backs),
                target=f"within {_BACK_WITHIN:.0f} s",
                met=all(back is not None and back <= _BACK_WITHIN for back in backs),
            )
        )
    return rows


def _longest(times: list[float | None]) -> str:
    known = [one for one in times if one is not None]
    return show_time(max(known)) if len(known) == len(times) else "never, in the time that was left"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer loads, shorter")
    parser.add_argument("--store", choices=STORES, help="one of the two")
    parser.add_argument("--seconds", type=float, help="for each load; 1.2 by default")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    seconds = arguments.seconds or (0.7 if arguments.quick else 1.2)
    began = time.monotonic()
    found: dict[Load, dict[str, Outcome]] = {}
    run, pool = Run(quick=arguments.quick), Pool()
    try:
        for load in loads(quick=arguments.quick):
            if arguments.store in (None, load.store):
                length = _FAULT_SECONDS[load.store] if load.fault else seconds
                found[load] = measure(load, run, pool, length)
                print(
                    f"{load}\n    ours {found[load]['ours']}\n    peer {found[load]['peer']}",
                    flush=True,
                )
    finally:
        pool.close()
        run.close()
    rows = judge(found)
    for row in rows:
        print(report.line(row), flush=True)
    took = time.monotonic() - began
    print(report.verdict(rows, took, quick=arguments.quick))
    if not (arguments.quick or arguments.store):
        _record(found, rows, took)


def _record(found: dict[Load, dict[str, Outcome]], rows: list[Row], seconds: float) -> None:
    document = {
        "seconds": seconds,
        "rows": [row.as_dict() for row in rows],
        "loads": [
            {"load": asdict(load), **{who: asdict(one) for who, one in outcomes.items()}}
            for load, outcomes in found.items()
        ],
    }
    (report.RESULTS / "load.json").write_text(f"{json.dumps(document, indent=1)}\n")


if __name__ == "__main__":
    main()
