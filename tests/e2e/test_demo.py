"""The demonstration is a real run: five processes, one SIGKILL, one git repository, one database."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.cli.demo.project import BROKEN_PRICES, PRICES, TAX_RATES, read_files
from holdfast.cli.demo.report import report_on
from holdfast.cli.demo.run import Event, Evidence, run_demo
from holdfast.cli.demo.script import GOOD, KILLED_IN_STEP, expected_names, expected_state
from holdfast.cli.demo.timeline import Entry, Mark, draw

SOURCE = Path(__file__).parents[2] / "src"


def _started(cwd: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(cwd), **environment},
    )


def _demo(cwd: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    with _started(cwd, *arguments, **environment) as process:
        out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.row("S0-01")
def test_a_killed_agent_continues_at_the_same_step_in_a_new_process(tmp_path: Path) -> None:
    code, out, err = _demo(tmp_path, "--json", "--keep")
    assert (code, err) == (0, "")
    report: dict[str, Any] = json.loads(out)["demo"]
    assert report["ok"] is True
    killed, resumed, approver, approved, finisher = report["workers"]
    assert killed["exit_status"] == -9
    assert len({one["pid"] for one in report["workers"]}) == 5

    # The evidence is read again here, from what the run left. The kill and the resume:
    directory = Path(report["directory"])
    journal = _lines(directory / "journal.jsonl")
    ran = {
        one["pid"]: [
            line["step"] for line in journal if (line["pid"], line["event"]) == (one["pid"], "ran")
        ]
        for one in report["workers"]
    }
    assert ran[killed["pid"]] == list(range(1, KILLED_IN_STEP + 1))
    assert killed["saved"] == list(range(KILLED_IN_STEP))
    assert ran[resumed["pid"]] == [6, 7, 8]
    assert (report["resumed_at_step"], report["in_flight"]) == (KILLED_IN_STEP, [KILLED_IN_STEP])

    # The effect, the approval:
    assert [one["pid"] for one in _lines(directory / "bank.jsonl")] == [killed["pid"]]
    assert [one["pid"] for one in _lines(directory / "outbox.jsonl")] == [approved["pid"]]
    told = [(one["pid"], one["event"]) for one in journal]
    assert told.index((resumed["pid"], "suspended")) < told.index((approver["pid"], "approved"))
    assert told.index((approver["pid"], "approved")) < told.index((approved["pid"], "began"))
    assert ran[approved["pid"]] == [9, 10, 10, 10, 11]
    assert ran[finisher["pid"]] == [10]

    # The files, now and in every checkpoint:
    project = directory / "project"
    files = read_files(project)
    assert files["shop/prices.py"] == PRICES.encode()
    assert files["shop/tax.json"] == TAX_RATES.encode()
    assert "shop/old.py" not in files
    with SessionManager.open(project_dir=project) as manager:
        session = manager.get_session(report["session_id"])
        assert session.status == "completed"
        assert session.latest_checkpoint().state == expected_state()
        kept = session.list_checkpoints()
        assert len(kept) == report["checkpoints"] == len(report["timeline"])
        assert [one.id for one in reversed(kept)] == [one["id"] for one in report["timeline"]]
        commits = {one.name: one.workspace_commit for one in kept}
        wrecked, good = commits["11-run_tests"], commits[GOOD]
        assert wrecked is not None
        assert good is not None
        assert manager.workspace.read(wrecked, "shop/prices.py") == BROKEN_PRICES.encode()
        assert manager.workspace.read(good, "shop/prices.py") == PRICES.encode()
        assert manager.verify().ok
    _check_timeline(report["timeline"], killed["pid"])
    assert report["stored_bytes"] < report["size_bytes"] / 4
    assert 0 < report["save_ms"] < 60_000
    assert 0 < report["resume_ms"] < 60_000
    assert report["file_bytes"] > 0


def _check_timeline(timeline: list[dict[str, Any]], killed: int) -> None:
    titles = [one["title"] for one in timeline]
    assert [title for title in titles if title in expected_names()] == expected_names()
    before_kill = timeline[titles.index(f"{KILLED_IN_STEP - 1:02}-run_tests")]
    kinds = [mark["kind"] for mark in before_kill["marks"]]
    assert kinds == ["effect", "killed", "resumed"]
    assert before_kill["marks"][1]["text"].endswith(str(killed))
    paused = timeline[titles.index("paused")]
    assert [mark["kind"] for mark in paused["marks"]] == ["approval", "resumed", "effect"]
    assert [one["went"] for one in timeline if one["went"]] == ["rollback", "undo", "redo"]
    aside = [one["title"] for one in timeline if one["lane"]]
    assert aside == ["10-write_file", "11-run_tests", "12-answered",
                     "before rollback", "undo", "before redo"]  # fmt: skip
    bad = {("modified", "shop/prices.py"), ("added", "shop/old.py"),
           ("deleted", "shop/tax.json")}  # fmt: skip
    assert {tuple(one) for one in timeline[titles.index("10-write_file")]["changes"]} == bad
    assert {tuple(one) for one in timeline[titles.index("undo")]["changes"]} == bad


def test_people_are_told_what_happened_and_nothing_is_left_behind(tmp_path: Path) -> None:
    # The user's own settings and project do not matter to it, and a poor output gets ASCII.
    mine, place = tmp_path / "mine", tmp_path / "tmp"
    mine.mkdir()
    place.mkdir()
    (mine / "work.txt").write_text("mine\n")
    code, out, err = _demo(
        mine,
        "--project-dir",
        str(mine),
        TMPDIR=str(place),
        HOLDFAST_URL="postgresql://nowhere.invalid/x",
        GIT_DIR=str(tmp_path / "nowhere"),
        PYTHONIOENCODING="ascii",
    )
    assert (code, err) == (0, "")
    assert out.isascii()
    assert "\x1b" not in out
    for part in (
        "x SIGKILL",
        "A new process",
        "paid before, receipt T-1; payments: 1",
        "+ approved  publish 1.1.0",
        "You run the tests: 1 of 1 tests failed.",
        "|-*  10-write_file",
        "# |  rollback",
        "|     x SIGKILL hit process",
        "Finished steps repeated:     0",
        "Open and resume:",
        "ok   rollback put every file back, byte for byte",
    ):
        assert part in out
    assert "FAIL" not in out
    assert list(place.iterdir()) == []
    assert [(one.name, one.read_text()) for one in mine.iterdir()] == [("work.txt", "mine\n")]


def test_a_claim_that_is_not_so_gives_exit_code_1(tmp_path: Path) -> None:
    with _started(tmp_path, "--json", "--url", str(tmp_path / "mine.db")) as process:
        # Somebody else pays as well, once the agent has: the bank then has two payments.
        while not (found := list(tmp_path.glob("holdfast-demo-*/bank.jsonl"))):
            with suppress(subprocess.TimeoutExpired):
                pytest.fail(f"it ended before it paid, with status {process.wait(0.02)}")
        with found[0].open("a") as bank:
            bank.write('{"pid": 0, "amount": 49, "receipt": "T-2"}\n')
        out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (1, "")
    report = json.loads(out)["demo"]
    assert report["ok"] is False
    assert [check for check, holds in report["checks"].items() if not holds] == [
        "it was paid once: by the first process, before it was killed"
    ]


def test_every_claim_can_fail(tmp_path: Path) -> None:
    url = str(tmp_path / "mine.db")
    seen = run_demo(tmp_path, lambda event: None, url=url)
    assert report_on(seen).ok
    assert seen.database_bytes is None
    with SessionManager.open(url, project_dir=tmp_path / "project") as manager:
        assert manager.get_session(seen.session_id).status == "completed"

    repeated = Event("ran", seen.approved.pid, 2, "write_file", "tests/test_prices.py")
    other = {**seen.good, "README.md": b"changed"}
    rollback, undo, redo = seen.went
    stored = seen.stored
    wrong: dict[str, Evidence] = {
        "the first process was killed": replace(seen, killed=replace(seen.killed, exit_status=0)),
        "every other process ended well, and the session is completed": replace(
            seen, stored=replace(stored, status="active")
        ),
        "a new process continued right after the last saved step": replace(
            seen,
            events=tuple(
                replace(one, step=5) if (one.event, one.pid) == ("began", seen.resumed.pid) else one
                for one in seen.events
            ),
        ),
        "no finished step was repeated": replace(seen, events=(*seen.events, repeated)),
        "it was paid once: by the first process, before it was killed": replace(
            seen, charged=(*seen.charged, seen.resumed.pid)
        ),
        "nothing was published before somebody agreed; the session was paused": replace(
            seen, published_unapproved=(1,)
        ),
        "another process agreed, and it was published once": replace(
            seen, published=seen.published * 2
        ),
        "the bad edit wrecked files, and the tests failed": replace(
            seen, tests_wrecked="3 tests passed"
        ),
        "rollback put every file back, byte for byte": replace(
            seen, went=(replace(rollback, files=other), undo, redo)
        ),
        "undo brought the bad edit back, byte for byte": replace(
            seen, went=(rollback, replace(undo, files=seen.good), redo)
        ),
        "redo took it away again, and the tests pass": replace(seen, files=other),
        "the project's own git repository was not touched": replace(
            seen, repository={**seen.repository, "index": b""}
        ),
        "every turn was saved": replace(seen, stored=replace(stored, names=stored.names[1:])),
        "the final state equals that of an undisturbed run": replace(
            seen, stored=replace(stored, final_state={**stored.final_state, "more": 1})
        ),
        "every checkpoint reads back exactly, with its files": replace(
            seen, stored=replace(stored, problems=("x",))
        ),
    }
    assert list(wrong) == list(report_on(seen).checks)
    for claim, evidence in wrong.items():
        checks = report_on(evidence).checks
        assert [check for check, holds in checks.items() if not holds] == [claim]


def test_the_readme_shows_a_part_of_what_is_drawn(tmp_path: Path) -> None:
    seen = run_demo(tmp_path, lambda event: None, url=str(tmp_path / "mine.db"))
    drawn = "\n".join(
        "".join(text for text, _ in line).rstrip() for line in draw(seen.stored.timeline, 120)
    )
    readme = (SOURCE.parent / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    ([●○◆│├].*)$", readme, re.MULTILINE)
    assert len(shown) > 10
    assert _without_processes("\n".join(shown)) in _without_processes(drawn)


def _without_processes(text: str) -> str:
    return re.sub(r"process \d+", "process", text)


def test_a_store_that_cannot_be_used_is_one_line_of_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    code, _, err = _demo(tmp_path, "--url", str(tmp_path / "notes.txt"))
    assert code == 1
    assert err.startswith("error: the agent's process failed: ")
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_a_store_that_is_given_empty_is_refused(tmp_path: Path) -> None:
    for option in ("--url", "--tenant"):
        code, out, err = _demo(tmp_path, option, "")
        assert (code, out) == (2, "")
        assert "is empty; name one" in err


def test_without_git_it_says_so(tmp_path: Path) -> None:
    code, out, err = _demo(tmp_path, PATH=str(tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith("error: git is not installed")


def test_the_tree_shows_what_was_rolled_back_beside_what_went_on() -> None:
    def entry(title: str, lane: int = 0, **facts: Any) -> Entry:
        return Entry(title, title, "step", "said so", lane, facts.pop("changes", ()),
                     facts.pop("marks", ()), **facts)  # fmt: skip

    tree = [
        entry("one", marks=(Mark("killed", "SIGKILL"),)),
        entry("bad", 1, changes=(("added", "a"), ("deleted", "b"))),
        entry("back", went="rollback", marks=(Mark("resumed", "again"),)),
        entry("before", 1, minor=True),
        entry("end"),
    ]
    drawn = ["".join(text for text, _ in line).rstrip() for line in draw(tree, 22)]
    assert drawn == [
        "●    one     step  sa…",
        "│     ✗ SIGKILL",
        "├─●  bad     step  + …",
        "◆ │  back    step  sa…",
        "│ │   ↻ again",
        "│ ○  before  step  sa…",
        "●    end     step  sa…",
    ]
    assert list(draw([], 80)) == []
