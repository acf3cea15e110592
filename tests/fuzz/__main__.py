"""Coverage-guided fuzzing of every decoder: ``python -m tests.fuzz [--seconds 60 | --until 3600] [NAME …]``.

Each decoder runs in a process of its own with a bound on memory and on the time for one input. An input that
breaks the promise is written to the corpus, where the tests find it from then on. Inputs that reached something
new stay in ``.fuzz``, so the next run begins where this one ended; `record` adds up what was run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Final

from tests.fuzz.contract import (
    CORPUS,
    LARGEST_INPUT,
    MEMORY_LIMIT,
    SECONDS_FOR_ONE,
    Target,
    hold_to,
)
from tests.fuzz.record import Record
from tests.fuzz.runs import FOUND, Runs

# What Python, the packages and the counters of coverage take before a decoder takes anything.
_RESTING_MEGABYTES: Final = 160
# This part of all inputs is made by giving documents another shape, the rest by changing bytes.
_RESHAPED: Final = 0.25
# With --until, so often another decoder gets its turn.
_SLOT: Final = 300


def main() -> int:
    given = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    given.add_argument("names", nargs="*", help="decoders; all by default")
    given.add_argument("--seconds", type=_seconds, default=60, help="for each decoder")
    given.add_argument(
        "--until",
        type=_seconds,
        metavar="SECONDS",
        help="go on until each has this much processor time on record, the least fuzzed first",
    )
    given.add_argument("--jobs", type=int, default=1, help="decoders at a time")
    given.add_argument("--one", help=argparse.SUPPRESS)
    options = given.parse_args()
    if options.one is not None:
        fuzz(options.one, options.seconds)
        return 0
    from tests.fuzz.targets import TARGETS

    chosen = options.names or list(TARGETS)
    if unknown := set(chosen) - set(TARGETS):
        given.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    record, runs = Record(), Runs()
    once = iter(chosen)

    def take() -> str | None:
        return (
            next(once, None) if options.until is None else record.take_least(chosen, options.until)
        )

    seconds = options.seconds if options.until is None else min(_SLOT, options.until)
    with runs.ended_by_signals(), ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda _: _share(record, runs, take, seconds), range(options.jobs)))
    print(f"{len(runs.kept)} of {len(chosen)} decoders were run and kept their promise")
    for name in runs.broken:
        print(f"  {name}: see {CORPUS / name}")
    print(record.summary(chosen))
    return 1 if runs.broken else 0


def _share(record: Record, runs: Runs, take: Callable[[], str | None], seconds: int) -> None:
    """Run one decoder after another, beside others who do so, until none is left or a signal came."""
    while not runs.ended and (name := take()) is not None:
        record.add(runs.run(name, seconds))


def _seconds(text: str) -> int:
    """Return a time to fuzz. With none the fuzzer would go on for ever."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return int(text)


def fuzz(name: str, seconds: int) -> None:
    """Mutate inputs of one decoder, guided by the branches that they reach. Ends the process."""
    import atheris

    with atheris.instrument_imports(include=["holdfast"]):
        from tests.fuzz.targets import TARGETS

    target: Target = TARGETS[name]
    found, kept = FOUND / name, CORPUS / name
    for folder in (found, kept):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (found / f"seed-{number:03}").write_bytes(seed)
    limits = (
        f"-max_total_time={seconds}",
        f"-max_len={LARGEST_INPUT}",
        f"-timeout={SECONDS_FOR_ONE}",
        f"-rss_limit_mb={_RESTING_MEGABYTES + 2 * (MEMORY_LIMIT >> 20)}",
        f"-artifact_prefix={kept}/",
        "-print_final_stats=1",
    )

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = Random(seed)
        if chance.random() < _RESHAPED:
            return target.reshape(data, chance)[:most]
        return bytes(atheris.Mutate(data, most))

    atheris.Setup(
        [name, *limits, str(found), str(kept)],
        lambda data: hold_to(target, data),
        custom_mutator=mutate,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
