"""Steps with side effects: how many a second are recorded, beside DBOS on the same PostgreSQL.

A DBOS step looks whether it was recorded and records its end: it cannot tell one that was cut short
from one that never began. Ours records its start and its end; a step that is declared idempotent records
its end only, which is what DBOS promises for every step. The bodies do nothing. DBOS is timed inside one
workflow, so that starting and ending workflows costs it nothing here.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from benchmarks.harness import Row, Run, median, show_times, take_turns
from holdfast import Session, SessionManager

_STEPS = 25


def body(number: int) -> int:
    return number


def measure(run: Run) -> list[Row]:
    url = run.new_database()
    with (
        SessionManager.open(url, workspace=False) as postgres,
        SessionManager.open(run.directory / "steps.db", workspace=False) as sqlite,
        _Dbos(run.new_database()) as peer,
    ):
        names = ("peer", "postgres", "postgres_idempotent", "sqlite", "sqlite_idempotent")
        contestants: list[Callable[[], object]] = [peer.steps]
        for manager in (postgres, sqlite):
            contestants += [
                _steps(manager.create_session("steps")),
                _steps(manager.create_session("steps"), idempotent=True),
            ]
        # Connections, prepared statements and caches are the same for both sides, and warm.
        take_turns(2, *contestants)
        peer.seconds.clear()
        timed = take_turns(run.size(40, 6), *contestants)
    rates = {
        name: _STEPS / median(peer.seconds if name == "peer" else times)
        for name, times in zip(names, timed, strict=True)
    }
    return [
        _row(run, rates, "postgres", "PostgreSQL: steps, started and done recorded", 2.5),
        _row(run, rates, "postgres_idempotent", "PostgreSQL: steps declared idempotent", 5),
        _alone(rates, "sqlite", "SQLite: steps, started and done recorded"),
        _alone(rates, "sqlite_idempotent", "SQLite: steps declared idempotent"),
    ]


def _row(run: Run, rates: dict[str, float], name: str, figure: str, target: float) -> Row:
    ratio = rates[name] / rates["peer"]
    return Row(
        figure=figure,
        peer=f"DBOS {rates['peer']:,.0f} a second",
        ours=f"{rates[name]:,.0f} a second",
        ratio=f"{show_times(ratio)} more",
        target=f"≥ {target:g} × more",
        met=ratio >= target,
        note=(
            f"median of {run.size(40, 6)} rounds of {_STEPS} steps of each, in turn; one thread; fsync"
            " and synchronous_commit on"
        ),
        values={"steps_per_second": rates[name], "peer_steps_per_second": rates["peer"]},
    )


def _alone(rates: dict[str, float], name: str, figure: str) -> Row:
    return Row(
        figure=figure,
        peer="–",
        ours=f"{rates[name]:,.0f} a second",
        values={"steps_per_second": rates[name]},
    )


def _steps(session: Session, *, idempotent: bool = False) -> Callable[[], None]:
    numbers = itertools.count()

    def run() -> None:
        for _ in range(_STEPS):
            session.step("step", body, next(numbers), idempotent=idempotent)

    return run


class _Dbos:
    """DBOS as it comes, on a database of its own."""

    def __init__(self, url: str) -> None:
        from dbos import DBOS

        self.seconds: list[float] = []
        self._dbos = DBOS
        DBOS(
            config={
                "name": "steps",
                "system_database_url": url.replace("postgresql://", "postgresql+psycopg://", 1),
                "console_log_level": "ERROR",
                "log_level": "ERROR",
            }
        )
        step = DBOS.step()(body)

        @DBOS.workflow()
        def workflow(count: int) -> float:
            start = time.perf_counter()
            for number in range(count):
                step(number)
            return time.perf_counter() - start

        self._workflow = workflow
        DBOS.launch()

    def steps(self) -> None:
        self.seconds.append(self._workflow(_STEPS))

    def __enter__(self) -> _Dbos:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._dbos.destroy()
