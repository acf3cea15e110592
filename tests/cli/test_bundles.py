"""``holdfast export``, ``import`` and ``copy``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine, run_process

STATE = {"conversation_history": [{"role": "user", "content": "x" * 3000}], "n": 1}


def saved(cli: CommandLine) -> str:
    Path("code.py").write_text("print(1)\n")
    found = cli.save("one", STATE)
    Path("code.py").write_text("print(2)\n")
    cli.save("two", {**STATE, "n": 2})
    session_id = found["session_id"]
    assert isinstance(session_id, str)
    return session_id


def elsewhere(name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path.cwd().parent / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.row("T4")
def test_a_session_goes_from_one_directory_to_another(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = saved(cli)
    bundle = cli.json("export", session_id[:13], "-o", "../session.tar")["bundle"]
    states = {one["id"]: one["state"] for one in bundle["checkpoints"]}
    assert len(states) == 2
    folder = elsewhere("b", monkeypatch)
    imported = cli.json("import", "../session.tar", "--restore")["import"]
    assert (imported["outcome"], imported["session_id"]) == ("imported", session_id)
    assert imported["restored"] is True
    assert {one["id"]: one["state"] for one in imported["bundle"]["checkpoints"]} == states
    assert (folder / "code.py").read_text() == "print(2)\n"
    assert cli.json("show", "two")["checkpoint"]["state"] == {**STATE, "n": 2}
    cli.ok("rollback", "one", "--yes")
    assert (folder / "code.py").read_text() == "print(1)\n"


def test_people_are_told_what_was_done(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    session_id = saved(cli)
    out = cli.ok("export", session_id)
    assert f"{session_id}.holdfast.tar" in out
    assert "2 checkpoints" in out
    path = str(Path.cwd() / f"{session_id}.holdfast.tar")
    elsewhere("b", monkeypatch)
    assert "imported" in cli.ok("import", path)
    assert "nothing to do" in cli.ok("import", path)
    assert f"holdfast undo --session {session_id}" in cli.ok("import", path, "--restore")
    assert "nothing to do" not in (said := cli.ok("import", path, "--restore"))
    assert "files are back" in said
    assert "nothing to do" in cli.ok("import", path)
    cli.ok("save", "three")
    again = cli("import", path)
    assert (again.code, "--as" in again.err) == (4, True)
    assert "second" in cli.ok("import", path, "--as", "second")


def test_one_checkpoint_without_files(cli: CommandLine) -> None:
    session_id = saved(cli)
    latest = cli.json("export", session_id, "--latest", "--no-files", "-o", "l.tar")["bundle"]
    assert [one["tree"] for one in latest["checkpoints"]] == [None]
    named = cli.json("export", session_id, "--checkpoint", "one", "-o", "o.tar")["bundle"]
    assert [one["id"] for one in named["checkpoints"]] != [
        one["id"] for one in latest["checkpoints"]
    ]
    assert cli("export", session_id, "-o", "o.tar").code == 4
    cli.ok("export", session_id, "-o", "o.tar", "--overwrite")
    assert cli("export", session_id, "--latest", "--checkpoint", "one").code == 2
    assert cli("import", "o.tar", "--restore", "--no-files").code == 2


def test_bad_input_has_its_code_and_leaves_nothing(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = saved(cli)
    assert cli("export", "nobody", "-o", "x.tar").code == 3
    whole = Path(cli.json("export", session_id, "-o", "s.tar")["bundle"]["path"]).read_bytes()
    elsewhere("b", monkeypatch)
    os.mkdir("folder")
    Path("empty").write_bytes(b"")
    Path("cut").write_bytes(whole[: len(whole) // 2])
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    Path("damaged").write_bytes(damaged)
    for name, code, said in (
        ("folder", 2, "not_a_bundle"),
        ("empty", 2, "not_a_bundle"),
        ("nothing", 2, "not_a_bundle"),
        ("cut", 5, "bundle_corrupt"),
        ("damaged", 5, "bundle_corrupt"),
    ):
        answer = cli("import", name, "--json")
        assert (answer.code, answer.error["code"]) == (code, said)
    # Not even an empty database is made for a bad file.
    assert not Path(".agents").exists()


def test_copies_are_listed_and_repeated(cli: CommandLine, postgres_url: str) -> None:
    session_id = saved(cli)
    would = cli.json("copy", ".agents/sessions.db", postgres_url, "--dry-run")["copy"]["sessions"]
    assert [(one["session_id"], one["outcome"]) for one in would] == [(session_id, "copied")]
    assert "1 session copied" in cli.ok("copy", ".agents/sessions.db", postgres_url)
    assert "there already" in cli.ok("copy", ".agents/sessions.db", postgres_url)
    cli.ok("copy", postgres_url, "../back.db", session_id[:13])
    shown = [cli.json("log", "--url", url)["checkpoints"] for url in ("../back.db", postgres_url)]
    kept = [[(one["id"], one["name"], one["created_at"]) for one in found] for found in shown]
    assert kept[0] == kept[1]
    cli.ok("save", "three", "--session", session_id, "--url", "../back.db")
    differs = cli("copy", ".agents/sessions.db", "../back.db")
    assert (differs.code, "left alone" in differs.out) == (4, True)


def test_bad_stores_are_refused(cli: CommandLine) -> None:
    saved(cli)
    for arguments, code in (
        (("mysql://x", "t.db"), 2),
        ((".agents/sessions.db", "mysql://x"), 2),
        (("nowhere.db", "t.db"), 6),
        ((".agents/sessions.db", ".agents/sessions.db"), 2),
        ((".agents/sessions.db", "t.db", "nobody"), 3),
        ((".agents/sessions.db", "t.db", "--url", "u.db"), 2),
    ):
        assert cli("copy", *arguments).code == code, arguments
    SessionManager.open("new.db").close()
    with apsw.Connection("new.db") as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (99, 'later', 'now')")
    answer = cli("copy", ".agents/sessions.db", "new.db", "--json")
    assert (answer.code, answer.error["code"]) == (6, "schema_too_new")


def test_a_real_process_exports_from_a_subdirectory(cli: CommandLine) -> None:
    session_id = saved(cli)
    Path("below").mkdir()
    done = run_process("export", session_id, "--json", "-o", "s.tar", cwd=Path("below").absolute())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bundle"]["bytes"] == Path("below/s.tar").stat().st_size


def test_what_is_in_quarantine_is_left_out_as_the_refusal_says(cli: CommandLine) -> None:
    session_id = saved(cli)
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("UPDATE session_checkpoints SET label = 'altered' WHERE name = 'two'")
    database.close()
    assert cli("verify", "--deep").code == 5
    before = sorted(Path.cwd().iterdir())
    refused = cli("export", session_id)
    assert (refused.code, refused.out) == (5, "")
    assert "is in quarantine" in refused.err
    assert "Nothing was written" in refused.err
    assert "--latest" in refused.err
    assert sorted(Path.cwd().iterdir()) == before
    assert "1 checkpoint" in cli.ok("export", session_id, "--latest")


def test_a_damaged_session_is_left_out_of_a_copy_and_named(cli: CommandLine) -> None:
    session_id = saved(cli)
    with SessionManager.open() as manager:
        manager.create_session("tester", session_id="other").save_checkpoint("x", state={})
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("UPDATE session_checkpoints SET label = 'altered' WHERE name = 'two'")
    database.close()
    answer = cli("copy", ".agents/sessions.db", "other.db", "--json")
    assert answer.code == 5
    by_id = {one["session_id"]: one for one in json.loads(answer.out)["copy"]["sessions"]}
    assert {id_: one["outcome"] for id_, one in by_id.items()} == {
        session_id: "damaged",
        "other": "copied",
    }
    [found] = by_id[session_id]["damaged"]
    assert found["code"] == "checkpoint_altered"
    assert by_id["other"]["damaged"] == []
    [arrived] = cli.json("sessions", "--url", "other.db")["sessions"]
    assert arrived["id"] == "other"

    told = cli("copy", ".agents/sessions.db", "other.db")
    assert told.code == 5
    assert f"left out {session_id}  {found['checkpoint_id']}: {found['reason']}" in told.out
    assert "holdfast doctor --salvage NEW" in told.out
    # What the advice says: the rest of it is saved, and then copied whole.
    assert cli("doctor", "--salvage", "saved.db").code == 5
    cli.ok("copy", "saved.db", "third.db")
    names = cli.json("log", session_id, "--url", "third.db")["checkpoints"]
    assert [one["name"] for one in names] == ["one"]
