"""Prints every acceptance row with its verdict and the tests that prove it.

    python -m tests.acceptance.report                      run all tests, then print
    python -m tests.acceptance.report --results PATH       print what an earlier run recorded
    python -m tests.acceptance.report -- -n 2 tests/state  pass arguments on to pytest

A row passes when every test marked with it passed. The exit status is 1 when a row failed or the
tests could not be run; a row without a test, or with a skipped one, is shown but is no failure.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.rows import load_rows

PASS, FAIL, SKIPPED, NO_TEST = "pass", "fail", "skipped", "no test"

_SECTIONS = {
    "S0": "Checkpoint table",
    "S1": "Sessions",
    "S2": "Savers",
    "S3": "Checkpointers and the agent loop",
    "S4": "Save points with rollback",
    "T": "Accidents of other systems",
    "B": "Beyond",
}


@dataclass(frozen=True)
class RowResult:
    row_id: str
    requirement: str
    verdict: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Results:
    """What one test run recorded: outcomes by row, and the files that could not be collected."""

    outcomes: Mapping[str, Mapping[str, str]]
    errors: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Results":
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        outcomes: dict[str, dict[str, str]] = {}
        for test in document["tests"]:
            for row_id in test["rows"]:
                outcomes.setdefault(row_id, {})[test["id"]] = test["outcome"]
        return cls(outcomes, tuple(document["errors"]))


def judge(rows: Mapping[str, str], results: Results) -> list[RowResult]:
    """Give each row its verdict, in the order of the rows."""
    return [
        RowResult(row_id, requirement, _verdict(tests.values()), _summarise(tests))
        for row_id, requirement in rows.items()
        for tests in [results.outcomes.get(row_id, {})]
    ]


def render(judged: Sequence[RowResult], errors: Sequence[str] = ()) -> str:
    """Lay the rows out as text: one line a row, its tests below, totals at the end."""
    lines: list[str] = []
    section = ""
    for row in judged:
        prefix = row.row_id.split("-")[0] if "-" in row.row_id else row.row_id[0]
        if prefix != section:
            section = prefix
            lines += ["", f"{_SECTIONS.get(section, section)} ({section})"]
        lines.append(f"  {row.row_id:<7} {row.verdict:<8} {row.requirement}")
        lines += [f"{'':19}{test}" for test in row.tests]
    counts = Counter(row.verdict for row in judged)
    totals = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (PASS, FAIL, SKIPPED, NO_TEST))
    lines += ["", f"{len(judged)} rows: {totals}"]
    lines += [f"could not be collected: {nodeid}" for nodeid in errors]
    return "\n".join(lines).lstrip("\n")


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.acceptance.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, metavar="PATH", help="an earlier run's results")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args(arguments)
    if options.results is not None:
        return _print(Results.read(options.results), broken=False)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "results.json")
        command = [sys.executable, "-m", "pytest", "-q", "--acceptance-report", str(path)]
        status = subprocess.run([*command, *options.pytest], check=False).returncode
        if not path.exists():
            print(f"pytest ended with status {status} and recorded nothing", file=sys.stderr)
            return 1
        print()
        return _print(Results.read(path), broken=status not in (0, 1))


def _print(results: Results, *, broken: bool) -> int:
    judged = judge(load_rows(), results)
    print(render(judged, results.errors))
    failed = any(row.verdict == FAIL for row in judged)
    return 1 if failed or results.errors or broken else 0


def _verdict(outcomes: Iterable[str]) -> str:
    seen = set(outcomes)
    if "failed" in seen:
        return FAIL
    if "skipped" in seen:
        return SKIPPED
    return PASS if seen else NO_TEST


def _summarise(tests: Mapping[str, str]) -> tuple[str, ...]:
    """Name each test once, with the number of its parameter sets, and what did not pass."""
    grouped: dict[str, list[str]] = {}
    for nodeid, outcome in tests.items():
        grouped.setdefault(re.sub(r"\[.*\]$", "", nodeid), []).append(outcome)
    lines = []
    for name, outcomes in sorted(grouped.items()):
        times = f" ({len(outcomes)} cases)" if len(outcomes) > 1 else ""
        others = Counter(outcome for outcome in outcomes if outcome != "passed")
        problems = "".join(f", {count} {outcome}" for outcome, count in sorted(others.items()))
        lines.append(f"{name}{times}{problems}")
    return tuple(lines)


if __name__ == "__main__":
    sys.exit(main())
