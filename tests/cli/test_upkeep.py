"""`gc`, `prune` and `verify`."""

import sqlite3
from pathlib import Path

import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine

LARGE = {"conversation_history": [{"role": "user", "content": f"{n} " * 900} for n in range(50)]}


def _steps(manager: SessionManager, count: int) -> None:
    session = manager.create_session("x", session_id="session-1")
    for number in range(count):
        state = {"step": number, "text": f"{number} " * 3000}
        session.save_checkpoint(f"step-{number}", state=state, retention_class="step")


def test_prune_explains_before_it_removes(cli: CommandLine, manager: SessionManager) -> None:
    _steps(manager, 5)
    planned = cli.json("prune", "--keep", "2", "--dry-run")["prune"]
    assert (planned["dry_run"], planned["kept"], planned["removed"]) == (True, 2, 3)
    assert [one["keep"] for one in planned["checkpoints"]] == [True, True, False, False, False]
    assert all(one["reason"] for one in planned["checkpoints"])
    out = cli.ok("prune", "--keep", "2", "--dry-run")
    assert "number 3 of class step, which keeps 2" in out
    assert "would remove 3 checkpoints, keeping 2" in out
    assert len(cli.json("log")["checkpoints"]) == 5

    assert "removed 3 checkpoints, keeping 2" in cli.ok("prune", "--keep", "2")
    assert [one["name"] for one in cli.json("log")["checkpoints"]] == ["step-4", "step-3"]
    assert cli.json("prune", "--keep", "2")["prune"]["removed"] == 0


def test_prune_bounds_age_and_bytes(cli: CommandLine, manager: SessionManager) -> None:
    _steps(manager, 4)
    assert cli.json("prune", "--dry-run", "--max-age", "30d")["prune"]["removed"] == 0
    assert cli.json("prune", "--dry-run", "--max-bytes", "1GB")["prune"]["removed"] == 0
    assert cli.json("prune", "--dry-run", "--max-bytes", "0.1 KiB")["prune"]["removed"] == 3
    assert cli.json("prune", "--max-age", "0.000001s")["prune"]["removed"] == 3


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            ("--max-age", text)
            for text in ("30", "d", "-1d", "0d", "1y", "999999999999w", "1d2", "")
        ),
        *(("--max-bytes", text) for text in ("MB", "0", "-5MB", "5XB", "1e9", "٣MB")),
        *(("--keep", text) for text in ("0", "-1", "many")),
    ],
)
def test_amounts_that_mean_nothing_are_refused(cli: CommandLine, option: str, value: str) -> None:
    cli.ok("init")
    answer = cli("prune", f"{option}={value}", "--json")
    assert answer.code == 2
    assert answer.error["code"] == "usage"
    assert option in answer.error["message"]


def test_gc_frees_what_pruning_left(cli: CommandLine, manager: SessionManager) -> None:
    _steps(manager, 4)
    cli.ok("prune", "--keep", "1")
    planned = cli.json("gc", "--dry-run")["gc"]
    assert planned["dry_run"] is True
    assert planned["chunks"] > 0
    assert cli.ok("gc", "--dry-run").startswith(f"would free {planned['chunks']} chunk")
    assert cli.ok("gc").startswith(f"freed {planned['chunks']} chunk")
    assert cli.json("gc")["gc"]["chunks"] == 0
    assert cli.json("verify")["verify"]["ok"] is True


def test_verify_reads_everything_back(cli: CommandLine) -> None:
    cli.save("one", LARGE)
    cli.save("two", {"step": 2})
    assert cli.json("verify") == {"verify": {"ok": True, "checked": 2, "effects": 0, "damaged": []}}
    assert "2 checkpoints read back" in cli.ok("verify")


def test_verify_names_what_is_damaged_and_exits_with_5(cli: CommandLine) -> None:
    saved = cli.save("one", LARGE)
    cli.save("two", {"step": 2})
    _damage(cli.project / ".agents" / "sessions.db")
    answer = cli("verify", "--json")
    assert answer.code == 5
    report = answer.json["verify"]
    assert (report["ok"], report["checked"]) == (False, 2)
    assert [one["checkpoint_id"] for one in report["damaged"]] == [saved["id"]]
    human = cli("verify")
    assert human.code == 5
    assert f"damaged {saved['id']}" in human.out
    shown = cli("show", "one", "--json")
    assert shown.code == 5
    assert shown.out == ""


def _damage(path: Path) -> None:
    database = sqlite3.connect(path)
    try:
        database.execute("DELETE FROM chunks")
        database.commit()
    finally:
        database.close()
