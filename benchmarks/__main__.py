"""The command: measure, print a line per row, and write the results down."""

from __future__ import annotations

import argparse
import os
import time

from benchmarks import report
from benchmarks.figures import FIGURES, measure
from benchmarks.harness import Row, Run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Holdfast.")
    parser.add_argument("--only", metavar="NAME", choices=FIGURES, action="append")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes; the targets do not apply"
    )
    arguments = parser.parse_args()
    # What starts again and again finds its byte code, as an installed program does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    run = Run(quick=arguments.quick)
    start = time.monotonic()
    rows: list[Row] = []
    try:
        for name in arguments.only or FIGURES:
            # What the last figure left to be written would be waited for by the next one's commits.
            os.sync()
            began = time.monotonic()
            measured = measure(name, run)
            rows += measured
            for row in measured:
                print(report.line(row), flush=True)
                if row.note:
                    print(f"    {row.note}", flush=True)
            print(f"[{name}: {time.monotonic() - began:.1f} s]", flush=True)
    finally:
        run.close()
    seconds = time.monotonic() - start
    print(report.verdict(rows, seconds, quick=arguments.quick))
    if not (arguments.only or arguments.quick):
        report.write(rows, seconds)


if __name__ == "__main__":
    main()
