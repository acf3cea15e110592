"""Ties tests to acceptance rows: checks `@pytest.mark.row(...)` and records how each test ended.

The rows travel in a test's user properties, so that they reach the controlling process when the
tests run in several. `--acceptance-report PATH` writes what `tests.acceptance.report` reads.
"""

import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.rows import load_rows

_PROPERTY = "row"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--acceptance-report",
        metavar="PATH",
        help="write which acceptance rows were proven by which tests, as JSON",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Rows(), "acceptance-rows")
    path: str | None = config.getoption("--acceptance-report")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(Path(path)), "acceptance-recorder")


class _Rows:
    """Refuses a row id that does not exist, where the test is collected."""

    def __init__(self) -> None:
        self._known = load_rows()

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Collector
    ) -> Generator[None, object, object]:
        made = yield
        for item in made if isinstance(made, list) else [made]:
            if isinstance(item, pytest.Item):
                self._attach(item, collector)
        return made

    def _attach(self, item: pytest.Item, collector: pytest.Collector) -> None:
        for marker in item.iter_markers("row"):
            unknown = [row for row in marker.args if row not in self._known]
            if unknown or not marker.args or marker.kwargs:
                named = ", ".join(map(repr, unknown)) or "none"
                raise collector.CollectError(
                    f"{item.name}: the row marker takes ids of tests/acceptance/rows.tsv, not {named}"
                )
            item.user_properties += [(_PROPERTY, row) for row in marker.args]


class _Recorder:
    """Collects one outcome per marked test and writes them when the session ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, dict[str, Any]] = {}
        self._errors: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and report.nodeid not in self._errors:
            self._errors.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = _rows_of(report.user_properties)
        if not rows:
            return
        test = self._tests.setdefault(report.nodeid, {"rows": rows, "outcome": "passed"})
        # Of set-up, call and teardown the worst counts.
        if report.failed or (report.skipped and test["outcome"] != "failed"):
            test["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        tests = [{"id": nodeid, **test} for nodeid, test in self._tests.items()]
        document = {"tests": tests, "errors": self._errors}
        self._path.write_text(json.dumps(document, indent=1), encoding="utf-8")


def _rows_of(properties: Sequence[tuple[str, object]]) -> list[str]:
    return list(dict.fromkeys(str(value) for name, value in properties if name == _PROPERTY))
