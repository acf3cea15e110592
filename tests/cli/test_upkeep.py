"""`gc`, `prune`, `usage` and `verify`."""

import os
import re
import shutil
import sqlite3
import zlib
from pathlib import Path

import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine, run_process
from tests.cli.terminal import on_terminal
from tests.workspace.pictures import git

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


def test_gc_says_which_snapshots_it_holds_again(cli: CommandLine, manager: SessionManager) -> None:
    _steps(manager, 1)
    shutil.rmtree(cli.project / ".agents" / "workspace.git" / "refs" / "snapshots")
    assert "would hold 1 snapshot of files again" in cli.ok("gc", "--dry-run")
    assert "\nheld 1 snapshot of files again" in cli.ok("gc")
    assert "again" not in cli.ok("gc")


def test_verify_reads_everything_back(cli: CommandLine) -> None:
    cli.save("one", LARGE)
    cli.save("two", {"step": 2})
    assert cli.json("verify")["verify"] == {
        "ok": True,
        "checked": 2,
        "effects": 0,
        "damaged_checkpoints": 0,
        "damaged_besides": {},
        "damaged": [],
        "notes": [],
    }
    assert "2 checkpoints read back" in cli.ok("verify")


def test_verify_without_git_tells_what_it_found_and_that_files_are_missing(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    saved = cli.save("one", LARGE)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    answer = cli("verify", "--json")
    report = answer.json["verify"]
    assert (answer.code, report["ok"], report["checked"], report["damaged"]) == (9, False, 1, [])
    assert "files were not looked at: git is not installed" in report["notes"][0]
    human = cli("verify")
    assert (human.code, human.out.splitlines()[-1].split()[0]) == (9, "incomplete")

    _damage(cli.project / ".agents" / "sessions.db")
    for deep in ((), ("--deep",)):
        answer = cli("verify", "--json", *deep)
        report = answer.json["verify"]
        assert (answer.code, len(report["notes"])) == (5, 1)
        assert saved["id"] in [one["checkpoint_id"] for one in report["damaged"]]


def test_gc_without_git_tells_what_it_freed_and_that_files_are_left(
    cli: CommandLine,
    manager: SessionManager,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _steps(manager, 4)
    cli.ok("prune", "--keep", "1")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    planned = cli("gc", "--dry-run", "--json").json["gc"]
    assert planned["chunks"] > 0
    answer = cli("gc")
    assert answer.code == 9
    assert answer.out.startswith(f"freed {planned['chunks']} chunk")
    assert "note: files were left alone: git is not installed" in answer.out


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


def test_verify_counts_checkpoints_and_says_apart_what_else_is_damaged(cli: CommandLine) -> None:
    for name in ("one", "two", "three"):
        cli.save(name, {"step": name})
    bad = cli.save("four", {"text": "only here " * 3000})
    database = sqlite3.connect(cli.project / ".agents" / "sessions.db")
    # Two bits turned in one chunk, which only one checkpoint needs.
    (stored,) = database.execute("SELECT data FROM chunks ORDER BY length(data) DESC").fetchone()
    turned = bytes([stored[0] ^ 3]) + stored[1:]
    database.execute("UPDATE chunks SET data = ? WHERE data = ?", (turned, stored))
    database.commit()
    database.close()

    answer = cli("verify", "--deep")
    assert answer.code == 5
    *findings, last = answer.out.splitlines()
    assert last.endswith("4 checkpoints read back; 1 checkpoint damaged. Damaged besides: 1 chunk")
    assert findings[0].startswith("damaged chunk sha256:")
    assert findings[1].startswith(f"damaged {bad['id']}: ")
    # The chunk has made room for the right one by now, and the checkpoint lacks it.
    report = cli("verify", "--deep", "--json").json["verify"]
    assert (report["checked"], report["damaged_checkpoints"]) == (4, 1)
    assert report["damaged_besides"] == {}
    assert [one["checkpoint_id"] for one in report["damaged"]] == [bad["id"]]


def test_deep_verification_names_a_table_that_is_not_there(cli: CommandLine) -> None:
    cli.save("one", {})
    database = sqlite3.connect(cli.project / ".agents" / "sessions.db")
    database.execute("DROP TABLE session_checkpoints")
    database.commit()
    database.close()
    answer = cli("verify", "--deep")
    assert answer.code == 5
    assert "damaged the database: the table session_checkpoints is missing" in answer.out
    assert "note: not everything was looked at" in answer.out
    drawn = on_terminal("verify", "--deep", cwd=cli.project, code=5)
    assert "the table session_checkpoints is missing" in drawn


def test_verify_counts_a_checkpoint_once_whatever_is_wrong_with_it(cli: CommandLine) -> None:
    Path("a").write_text("precious\n")
    cli.save("one", LARGE)
    _spoil(cli.project, b"precious\n")
    _damage(cli.project / ".agents" / "sessions.db")
    answer = cli("verify")
    assert answer.code == 5
    *findings, last = answer.out.splitlines()
    assert len(findings) == 2
    assert last == "damaged  1 checkpoint read back; 1 checkpoint damaged"


def test_verify_counts_checkpoints_whose_session_is_gone(cli: CommandLine) -> None:
    saved = cli.save("one", {"step": 1})
    database = sqlite3.connect(cli.project / ".agents" / "sessions.db")
    database.execute("DELETE FROM sessions")
    database.commit()
    database.close()
    answer = cli("verify", "--deep")
    assert answer.code == 5
    assert f"damaged {saved['id']}: its session" in answer.out
    assert "damaged  1 checkpoint read back; 1 checkpoint damaged" in answer.out


def _spoil(project: Path, content: bytes) -> None:
    """Give a captured file other bytes in the private store."""
    blob = git(project, "hash-object", "--stdin", stdin=content)
    stored = project / ".agents" / "workspace.git" / "objects" / blob[:2] / blob[2:]
    stored.chmod(0o600)
    stored.write_bytes(zlib.compress(b"blob 9\0tampered\n"))


def _damage(path: Path) -> None:
    database = sqlite3.connect(path)
    try:
        database.execute("DELETE FROM chunks")
        database.commit()
    finally:
        database.close()


def test_verify_reads_files_back_too(cli: CommandLine) -> None:
    Path("a").write_text("precious\n")
    saved = cli.save("one", {})
    _spoil(cli.project, b"precious\n")
    answer = cli("verify", "--json")
    assert answer.code == 5
    (damage,) = answer.json["verify"]["damaged"]
    assert (damage["checkpoint_id"], damage["code"]) == (saved["id"], "snapshot_corrupt")
    assert f"damaged {saved['id']}: " in cli("verify").out
    for command in (("rollback", "--yes"), ("show", "one:a")):
        Path("a").write_text("changed\n")
        refused = cli(*command)
        assert (refused.code, refused.out) == (5, "")
        assert Path("a").read_text() == "changed\n"


def test_gc_lets_go_of_the_files_of_removed_checkpoints(
    cli: CommandLine, manager: SessionManager
) -> None:
    session = manager.create_session("x")
    Path("a").write_bytes(os.urandom(100_000))
    session.save_checkpoint("one", state={})
    Path("a").write_bytes(os.urandom(100_000))
    session.save_checkpoint("two", state={})
    session.delete_checkpoint("one")
    before = cli.json("usage")["usage"]["files"]
    planned = cli.json("gc", "--dry-run")["gc"]
    assert (planned["snapshots"], planned["packs"]) == (1, 0)
    assert "would free 1 snapshot of files\n" in cli.ok("gc", "--dry-run")
    assert "freed 1 snapshot of files (" in cli.ok("gc")
    after = cli.json("usage")["usage"]["files"]
    assert (before["snapshots"], after["snapshots"]) == (2, 1)
    assert after["bytes"] < before["bytes"] - 90_000
    assert cli.json("verify")["verify"]["ok"] is True


def test_usage_counts_states_and_files(cli: CommandLine, manager: SessionManager) -> None:
    cli.ok("init")
    empty = cli.json("usage")["usage"]
    assert (empty["sessions"], empty["stored_bytes"], empty["files"]["bytes"]) == ([], 0, 0)
    Path("a").write_bytes(os.urandom(50_000))
    _steps(manager, 3)
    found = cli.json("usage")["usage"]
    (one,) = found["sessions"]
    assert (one["session_id"], one["checkpoints"]) == ("session-1", 3)
    assert found["stored_bytes"] == one["stored_bytes"] > 0
    assert found["files"]["bytes"] > 50_000
    assert found["files"]["quota_bytes"] == 10 * 1024**3
    assert found["packs"] == {"packs": 0, "bytes": 0}
    lines = cli.ok("usage").splitlines()
    assert lines[1].startswith("session-1            3  ")
    assert lines[2].startswith("States  ")
    assert re.fullmatch(r"Files   5\d\.\d KB in 1 snapshot, 3 objects; 0\.0% of 10\.7 GB", lines[3])


@pytest.mark.parametrize(
    "command", [("usage",), ("gc",), ("verify",), ("log",), ("diff", "step-1")]
)
def test_files_can_be_switched_off_for_a_project(
    cli: CommandLine, manager: SessionManager, command: tuple[str, ...]
) -> None:
    Path("a").write_text("a")
    _steps(manager, 2)
    Path(".agents/holdfast.toml").write_text("[workspace]\ncapture = false\n")
    cli.ok("save", "bare", "--take-over")
    assert cli(*command).code == 0
    if command == ("usage",):
        assert cli.json("usage")["usage"]["files"] is None
    answer = cli("rollback", "step-0", "--files-only", "--yes")
    assert (answer.code, "file snapshots are off" in answer.err) == (3, True)
    assert cli("show", "step-0", "--files").code == 2


def test_packs_are_counted_where_a_store_is_shared(cli: CommandLine, postgres_url: str) -> None:
    Path("a").write_bytes(os.urandom(20_000))
    cli.ok("init", "--url", postgres_url)
    cli.save("one", {}, "--url", postgres_url)
    found = cli.json("usage", "--url", postgres_url)["usage"]
    assert found["packs"]["packs"] == 1
    assert found["packs"]["bytes"] > 20_000
    assert re.search(r"Packs   2\d\.\d KB in 1 pack", cli.ok("usage", "--url", postgres_url))
    # On another machine the private store is missing, and every command fetches what it needs.
    content = Path("a").read_bytes()
    shutil.rmtree(".agents")
    Path("a").write_bytes(b"lost")
    assert run_process("show", "one:a", "--url", postgres_url, cwd=cli.project).stdout == content
    shutil.rmtree(".agents")
    cli.json("rollback", "--yes", "--url", postgres_url)
    assert Path("a").read_bytes() == content


@pytest.mark.row("B8")
def test_deep_verification_finds_what_was_altered_and_resuming_tells(cli: CommandLine) -> None:
    good = cli.save("one", {"step": 1})
    saved = cli.save("two", {"step": 2})
    report = cli.json("verify", "--deep")["verify"]
    assert report == {
        "ok": True,
        "checked": 2,
        "effects": 0,
        "damaged_checkpoints": 0,
        "damaged_besides": {},
        "sessions": 1,
        "chunks": 0,
        "quarantined": [],
        "released": [],
        "damaged": [],
        "notes": [],
    }
    assert "every digest is right, 1 chain whole" in cli.ok("verify", "--deep")
    database = sqlite3.connect(cli.project / ".agents" / "sessions.db")
    database.execute("UPDATE session_checkpoints SET label = 'x' WHERE name = 'two'")
    database.commit()
    database.close()
    answer = cli("verify", "--deep", "--json")
    assert answer.code == 5
    report = answer.json["verify"]
    assert [one["code"] for one in report["damaged"]] == ["checkpoint_altered"]
    assert report["quarantined"] == [saved["id"]]
    human = cli("verify", "--deep")
    assert human.code == 5
    assert f"damaged {saved['id']}: " in human.out
    shown = cli("show", "two")
    assert (shown.code, shown.out) == (5, "")
    assert good["id"] in shown.err
    resumed = cli("resume", "--json")
    assert resumed.json["checkpoint"]["id"] == good["id"]
    [notice] = resumed.json["session"]["notices"]
    assert "checkpoint 'two' failed verification earlier and was passed over" in notice
    assert resumed.err == f"notice  {notice}\n"
