import json
from pathlib import Path

import pytest

from tests.acceptance.report import FAIL, NO_TEST, PASS, SKIPPED, Results, judge, main, render
from tests.acceptance.rows import load_rows

PLUGIN = "tests.acceptance.plugin"


def write_results(path: Path, *tests: tuple[str, list[str], str]) -> Path:
    document = {
        "tests": [
            {"id": nodeid, "rows": rows, "outcome": outcome} for nodeid, rows, outcome in tests
        ],
        "errors": [],
    }
    path.write_text(json.dumps(document))
    return path


def test_rows_have_unique_ids_and_one_line_each(tmp_path: Path) -> None:
    rows = load_rows()
    assert {"S0-01", "S1-103", "S4-35", "T24", "B10"} <= rows.keys()
    assert len(rows) == 229
    assert all(requirement.strip() for requirement in rows.values())

    twice = tmp_path / "rows.tsv"
    twice.write_text("id\trequirement\nT1\tone\nT1\tone again\n")
    with pytest.raises(ValueError, match="T1"):
        load_rows(twice)


def test_a_row_passes_only_if_all_its_tests_passed(tmp_path: Path) -> None:
    results = Results.read(
        write_results(
            tmp_path / "results.json",
            ("t.py::one[memory]", ["T1", "T2"], "passed"),
            ("t.py::one[sqlite]", ["T1", "T2"], "passed"),
            ("t.py::two", ["T2", "T3"], "failed"),
            ("t.py::three", ["T4"], "skipped"),
        )
    )
    rows = {f"T{n}": f"requirement {n}" for n in range(1, 6)}
    judged = judge(rows, results)
    assert [row.verdict for row in judged] == [PASS, FAIL, FAIL, SKIPPED, NO_TEST]
    text = render(judged)
    assert "T1      pass     requirement 1" in text
    assert "t.py::one (2 cases)" in text
    assert "t.py::two, 1 failed" in text
    assert text.endswith("5 rows: 1 pass, 2 fail, 1 skipped, 1 no test")


@pytest.mark.parametrize(("outcome", "status"), [("passed", 0), ("skipped", 0), ("failed", 1)])
def test_only_a_failed_row_fails_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: str, status: int
) -> None:
    path = write_results(tmp_path / "results.json", ("t.py::one", ["B1"], outcome))
    assert main(["--results", str(path)]) == status
    assert "229 rows" in capsys.readouterr().out


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmarkers = row(ids): rows")
    return pytester


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_plugin_records_marked_tests(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    project.makepyfile(
        """
        import pytest

        @pytest.mark.row("T1", "T2")
        def test_good(): pass

        @pytest.mark.row("T2")
        class TestClass:
            @pytest.mark.row("T3")
            @pytest.mark.parametrize("n", [1, 2])
            def test_bad(self, n): assert n == 1

        @pytest.fixture
        def broken():
            yield
            raise RuntimeError

        @pytest.mark.row("T4")
        def test_teardown(broken): pass

        @pytest.mark.row("T5")
        def test_skipped(): pytest.skip("not today")

        def test_unmarked(): pass
        """
    )
    project.runpytest_subprocess(
        "-p", PLUGIN, "-n", processes, "--acceptance-report", "results.json"
    )
    results = Results.read(project.path / "results.json")
    name = "test_the_plugin_records_marked_tests.py"
    assert results.outcomes == {
        "T1": {f"{name}::test_good": "passed"},
        "T2": {
            f"{name}::test_good": "passed",
            f"{name}::TestClass::test_bad[1]": "passed",
            f"{name}::TestClass::test_bad[2]": "failed",
        },
        "T3": {
            f"{name}::TestClass::test_bad[1]": "passed",
            f"{name}::TestClass::test_bad[2]": "failed",
        },
        "T4": {f"{name}::test_teardown": "failed"},
        "T5": {f"{name}::test_skipped": "skipped"},
    }


@pytest.mark.parametrize("marker", ["'S9-99'", "'T1', 'X1'", "", "rows=['T1']"])
def test_an_unknown_row_is_an_error_at_collection(project: pytest.Pytester, marker: str) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.row({marker})
        def test_one(): pass
        """
    )
    result = project.runpytest_inprocess("-p", PLUGIN, "--acceptance-report", "results.json")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_one: the row marker takes ids of*"])
    assert Results.read(project.path / "results.json").errors
