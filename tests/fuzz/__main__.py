"""Coverage-guided fuzzing of every decoder: ``python -m tests.fuzz --seconds 60 [NAME …]``.

Each decoder runs in a process of its own with a bound on memory and on the time for one input. An input that
breaks the promise is written to the corpus, where the tests find it from then on.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.fuzz.contract import (
    CORPUS,
    LARGEST_INPUT,
    MEMORY_LIMIT,
    SECONDS_FOR_ONE,
    Target,
    hold_to,
)

_PROGRESS: Final = re.compile(r"#\d+\s.*cov:|Done \d+ runs")
_FOUND: Final = Path(".fuzz")
# What Python, the packages and the counters of coverage take before a decoder takes anything.
_RESTING_MEGABYTES: Final = 400


def main() -> int:
    given = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    given.add_argument("names", nargs="*", help="decoders; all by default")
    given.add_argument("--seconds", type=int, default=60, help="for each decoder")
    given.add_argument("--one", help=argparse.SUPPRESS)
    options = given.parse_args()
    if options.one is not None:
        fuzz(options.one, options.seconds)
        return 0
    from tests.fuzz.targets import TARGETS

    chosen = options.names or list(TARGETS)
    if unknown := set(chosen) - set(TARGETS):
        given.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    broken = [name for name in chosen if not _run(name, options.seconds)]
    print(f"{len(chosen) - len(broken)} of {len(chosen)} decoders kept their promise", flush=True)
    for name in broken:
        print(f"  {name}: see {CORPUS / name}")
    return 1 if broken else 0


def _run(name: str, seconds: int) -> bool:
    print(f"== {name}, {seconds} s", flush=True)
    command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(seconds)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    lines = done.stderr.splitlines()
    # The last line about coverage says how far it came; behind a finding stands all there is to know.
    told = [line for line in lines if _PROGRESS.match(line)][-2:]
    print("\n".join(told if done.returncode == 0 else lines[-40:]), flush=True)
    return done.returncode == 0


def fuzz(name: str, seconds: int) -> None:
    """Mutate inputs of one decoder, guided by the branches that they reach. Ends the process."""
    import atheris

    with atheris.instrument_imports(include=["holdfast"]):
        from tests.fuzz.targets import TARGETS

    target: Target = TARGETS[name]
    found, kept = _FOUND / name, CORPUS / name
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
    atheris.Setup([name, *limits, str(found), str(kept)], lambda data: hold_to(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
