"""Preflight: each way in which a checkpoint can be out of date is named."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Session, SessionManager
from holdfast.errors import InvalidFilter, StoreBusy
from holdfast.preflight import REASONS, Preflight, Reason, store_reason
from holdfast.sessions.briefing import preflight_of_project
from tests.brief.conftest import NOTES, git, state

ROOT = Path(__file__).parents[2]
TOOLS = {"bash": "5.2", "edit": None}


def write(path: str, text: str = "other\n") -> int:
    return Path(path).write_text(text)


def commit() -> None:
    git("commit", "-q", "--allow-empty", "-m", "second")


def conflict() -> None:
    """Leave a merge that a person has to finish."""
    git("checkout", "-q", "-b", "side")
    write("a.py", "theirs\n")
    git("commit", "-q", "-am", "theirs")
    git("checkout", "-q", "main")
    write("a.py", "ours\n")
    git("commit", "-q", "-am", "ours")
    git("merge", "side")


def remove_repository() -> None:
    Path(".git").rename("../elsewhere")


def lose_snapshots() -> None:
    Path(".agents/workspace.git").rename("../snapshots")


def damage_snapshots() -> None:
    for path in Path(".agents/workspace.git/objects").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")


def damage_state() -> None:
    database = sqlite3.connect(".agents/sessions.db")
    try:
        changed = database.execute(
            "UPDATE session_checkpoints "
            "SET state_snapshot = replace(state_snapshot, 'OAuth', 'OAutx')"
        )
        assert changed.rowcount == 1
        database.commit()
    finally:
        database.close()


FIXTURES: dict[str, tuple[Callable[[], object], set[str]]] = {
    "head_moved": (commit, {"head_moved"}),
    "branch_switched": (lambda: git("checkout", "-q", "-b", "side"), {"branch_switched"}),
    "head_detached": (lambda: git("checkout", "-q", "--detach"), {"head_detached"}),
    "repository_missing": (remove_repository, {"repository_missing"}),
    "uncommitted_changes": (
        lambda: write("b.py"),
        {"uncommitted_changes", "file_changed"},
    ),
    "file_changed": (
        lambda: (write("b.py"), git("commit", "-q", "-am", "x")),
        {"file_changed", "head_moved"},
    ),
    "file_deleted": (
        lambda: Path("b.py").unlink(),
        {"file_deleted", "uncommitted_changes"},
    ),
    "file_added": (lambda: write("c.py"), {"file_added", "uncommitted_changes"}),
    "operation_in_progress": (
        conflict,
        {"operation_in_progress", "head_moved", "file_changed", "uncommitted_changes"},
    ),
    "memory_missing": (
        lambda: Path("notes.md").unlink(),
        {"memory_missing", "file_deleted", "uncommitted_changes"},
    ),
    "memory_changed": (
        lambda: write("notes.md"),
        {"memory_changed", "file_changed", "uncommitted_changes"},
    ),
    "open_file_missing": (
        lambda: Path("a.py").rename("../a.py"),
        {"open_file_missing", "file_deleted", "uncommitted_changes"},
    ),
    "snapshot_missing": (lose_snapshots, {"snapshot_missing"}),
    "snapshot_damaged": (damage_snapshots, {"snapshot_damaged"}),
    "checkpoint_unreadable": (damage_state, {"checkpoint_unreadable"}),
}


def test_right_after_a_save_all_is_clean(saved: Session) -> None:
    found = saved.preflight(tools=TOOLS)
    assert (found.verdict, found.reasons, found.unchecked) == ("clean", (), {})
    assert found.checkpoint == "before-refactor"


def test_files_that_a_snapshot_leaves_out_are_named_as_not_compared(
    saved: Session,
) -> None:
    os.mkfifo("pipe")
    saved.save_checkpoint("with-a-pipe", state={})
    found = saved.preflight(tools=[])
    assert (found.verdict, set(found.unchecked)) == ("clean", {"skipped_files"})
    assert "pipe (" in found.unchecked["skipped_files"]
    # Gone or come since: either way it is in one of the two only.
    Path("pipe").unlink()
    assert "pipe (" in saved.preflight().unchecked["skipped_files"]
    for number in range(7):
        os.mkfifo(f"later-{number}")
    said = saved.preflight().unchecked["skipped_files"]
    assert "later-4 (" in said
    assert said.endswith("and 3 more")


@pytest.mark.row("B3")
@pytest.mark.parametrize("name", FIXTURES)
def test_each_drift_is_named_in_the_verdict(
    saved: Session, manager: SessionManager, name: str
) -> None:
    cause, expected = FIXTURES[name]
    cause()
    found = manager.get_session(saved.id).preflight(tools=TOOLS)
    assert set(found.codes) == expected
    assert name in found.codes
    unsafe = any(REASONS[code] == "unsafe" for code in expected)
    assert found.verdict == ("unsafe" if unsafe else "drifted")
    document = json.loads(json.dumps(found.to_document()))
    assert document["verdict"] == found.verdict
    reason = next(one for one in document["reasons"] if one["code"] == name)
    assert (reason["severity"], bool(reason["message"])) == (REASONS[name], True)
    # And the agent is told.
    assert f"- {name}: " in manager.get_session(saved.id).brief(files=True, tools=TOOLS).text


@pytest.mark.row("B3")
def test_paths_are_listed_with_their_number(saved: Session) -> None:
    for number in range(120):
        write(f"new-{number:03}.py")
    (reason,) = (one for one in saved.preflight().reasons if one.code == "file_added")
    assert (reason.count, len(reason.paths)) == (120, 100)
    assert reason.message.endswith("new-004.py and 115 more")


@pytest.mark.row("B3")
def test_what_was_uncommitted_then_is_no_news(manager: SessionManager, project: Path) -> None:
    write("b.py")
    session = manager.create_session("implementer")
    session.save_checkpoint(state={})
    assert session.preflight().codes == ()
    write("c.py")
    assert session.preflight().codes == ("uncommitted_changes", "file_added")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    assert session.preflight().codes == ("head_moved", "uncommitted_gone", "file_added")


@pytest.mark.row("B3")
def test_an_operation_that_was_there_already_is_no_news_but_its_end_is(
    manager: SessionManager, project: Path
) -> None:
    conflict()
    session = manager.create_session("implementer")
    session.save_checkpoint(state={})
    assert session.preflight().codes == ()
    git("merge", "--abort")
    assert "operation_ended" in session.preflight().codes
    assert session.preflight().verdict == "drifted"


@pytest.mark.row("B3")
def test_a_repository_that_was_not_there_is_news(tmp_path: Path) -> None:
    project = tmp_path / "plain"
    project.mkdir()
    with SessionManager.open(tmp_path / "s.db", project_dir=project) as manager:
        session = manager.create_session("implementer")
        session.save_checkpoint(state={})
        assert session.preflight().codes == ()
        git("init", "-q", cwd=project)
        assert session.preflight().codes == ("repository_appeared",)


@pytest.mark.row("B3")
@pytest.mark.parametrize(
    ("tools", "codes"),
    [
        (["bash", "edit", "more"], []),
        ([{"name": "bash", "version": "5.2"}, {"name": "edit"}], []),
        (["bash"], ["tool_missing"]),
        ([], ["tool_missing", "tool_missing"]),
        ({"bash": "6.0", "edit": "1"}, ["tool_changed"]),
        ("bash", ["tool_missing"]),
    ],
    ids=["names", "dicts", "one-missing", "none", "other-version", "one-text"],
)
def test_tools_are_compared_with_those_that_the_state_relies_on(
    saved: Session, tools: Any, codes: list[str]
) -> None:
    found = saved.preflight(tools=tools)
    assert list(found.codes) == codes
    assert found.verdict == (
        "unsafe" if "tool_missing" in codes else "drifted" if codes else "clean"
    )


def test_tools_that_are_no_names_are_refused(saved: Session) -> None:
    for ask in (saved.preflight, saved.brief):
        with pytest.raises(InvalidFilter, match="tools"):
            ask(tools=5)  # type: ignore[arg-type]


@pytest.mark.row("B3")
def test_a_session_that_another_worker_holds_is_unsafe_for_this_one(
    saved: Session, manager: SessionManager, other: Callable[[], SessionManager]
) -> None:
    found = other().get_session(saved.id).preflight()
    assert (found.codes, found.verdict) == (("session_held",), "unsafe")
    assert "process " in found.reasons[0].message
    assert saved.preflight().codes == ()
    saved.close()
    assert other().get_session(saved.id).preflight().codes == ()


@pytest.mark.row("B3")
def test_a_completed_session_is_unsafe_to_go_on_with(saved: Session) -> None:
    saved.complete()
    found = saved.preflight()
    assert (found.codes, found.verdict) == (("session_completed",), "unsafe")


@pytest.mark.row("B3")
def test_a_step_whose_end_nobody_recorded_is_unsafe(
    saved: Session, manager: SessionManager
) -> None:
    def cut_off() -> Iterator[None]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        saved.step("charge-card", cut_off)
    found = manager.get_session(saved.id).preflight()
    assert (found.codes, found.verdict) == (("effect_unknown",), "unsafe")
    assert "charge-card" in found.reasons[0].message


def test_a_step_that_runs_in_this_process_is_not_unknown() -> None:
    with SessionManager.open("memory:", workspace=False) as manager:
        session = manager.create_session("a")
        session.save_checkpoint("one", state={})

        def codes() -> list[str]:
            looks = (session.preflight(), manager.get_session(session.id).brief().preflight)
            return [code for look in looks for code in look.codes]

        assert session.step("pay", codes) == []

        def lost() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            session.step("lose", lost)
        assert codes() == ["effect_unknown"] * 2


@pytest.mark.row("B3")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("INSERT INTO schema_migrations VALUES (999, 'sha256:x', '2099-01-01')", "schema_newer"),
        ("DELETE FROM schema_migrations", "schema_older"),
        ("UPDATE schema_migrations SET checksum = 'sha256:other'", "schema_changed"),
    ],
    ids=["newer", "older", "changed"],
)
def test_a_database_of_another_schema_is_a_reason(
    saved: Session, manager: SessionManager, project: Path, change: str, code: str
) -> None:
    manager.close()
    database = sqlite3.connect(".agents/sessions.db")
    try:
        database.execute(change)
        database.commit()
    finally:
        database.close()
    found = preflight_of_project(lambda: SessionManager.open(project_dir=project, create=False))
    assert (found.codes, found.verdict) == ((code,), "unsafe")
    assert "everything" in found.unchecked


def test_a_database_out_of_reach_is_a_reason() -> None:
    assert store_reason(StoreBusy("busy")).code == "store_unavailable"


@pytest.mark.row("B3")
def test_what_was_not_compared_is_said(manager: SessionManager, project: Path) -> None:
    session = manager.create_session("implementer")
    assert session.preflight(tools=[]).unchecked == {"checkpoint": "nothing was saved yet"}
    session.save_checkpoint(state={}, workspace=False)
    assert set(session.preflight().unchecked) == {"tools", "git", "files"}
    session.save_checkpoint(state={})
    assert set(session.preflight(files=False).unchecked) == {"tools", "files"}
    with SessionManager(manager.store, project_dir=project, workspace=False) as blind:
        found = blind.get_session(session.id).preflight()
    assert set(found.unchecked) == {"tools", "git", "files"}
    assert found.verdict == "clean"


def test_files_that_cannot_be_compared_are_not_clean(
    saved: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = saved.preflight()
    assert found.verdict != "clean"
    assert set(found.codes) & {"git_unchecked", "files_unchecked"}


def test_looking_changes_nothing_of_the_users(saved: Session, project: Path) -> None:
    write("b.py")
    before = git("status", "--porcelain"), git("rev-parse", "HEAD"), git("stash", "list")
    saved.preflight()
    assert (git("status", "--porcelain"), git("rev-parse", "HEAD"), git("stash", "list")) == before


def test_a_memory_reference_is_said_to_differ_only_where_that_is_known(
    saved: Session, project: Path
) -> None:
    (project / "memories").mkdir()
    digest = hashlib.sha256(NOTES).hexdigest()
    expected = {
        digest: "present",
        digest.upper(): "present",
        f"sha256:{digest}": "present",
        f"SHA256:{digest.upper()}": "present",
        "SHA256:ABCD": "changed",
        "0" * 64: "changed",
        f"sha1:{digest}": "unverified",
        f"sha512:{'0' * 128}": "unverified",
        "abcd": "unverified",
    }
    refs = [{"key": one, "path": "notes.md", "hash": one} for one in expected]
    refs.append({"key": "folder", "path": "memories"})
    refs.append({"key": "folder with a hash", "path": "memories", "hash": digest})
    saved.save_checkpoint(state={"memory_refs": refs})
    found = {one.key: one.status for one in saved.check_memory_refs()}
    assert found == expected | {"folder": "unverified", "folder with a hash": "unverified"}
    told = {one.subject for one in saved.preflight().reasons}
    assert told == {"SHA256:ABCD", "0" * 64}


@pytest.mark.row("S1-09")
def test_each_memory_reference_is_present_missing_or_changed(saved: Session) -> None:
    refs = [
        {"key": "kept", "path": "a.py"},
        {"key": "gone", "path": "gone.md", "hash": "sha256:00"},
        {"key": "other", "path": "notes.md", "hash": "sha256:00"},
        {"key": "far", "uri": "https://example.org/memory"},
    ]
    saved.save_checkpoint(state={"memory_refs": refs})
    brief = saved.brief()
    assert [(one.key, one.status) for one in brief.memory] == [
        ("kept", "present"),
        ("gone", "missing"),
        ("other", "changed"),
        ("far", "unverified"),
    ]
    for line in ("kept (a.py): present", "gone (gone.md): missing", "other (notes.md): changed"):
        assert line in brief.text


def test_the_worst_reason_decides() -> None:
    drifted, unsafe = Reason("head_moved", "x"), Reason("tool_missing", "y")
    assert Preflight(()).verdict == "clean"
    assert Preflight((drifted,)).verdict == "drifted"
    assert Preflight((drifted, unsafe)).verdict == "unsafe"


def test_every_code_is_documented_and_no_other() -> None:
    text = (ROOT / "docs/reference/preflight.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", text, re.MULTILINE))
    assert listed == dict(REASONS)


def test_the_state_of_these_tests_is_one_that_can_be_saved(saved: Session) -> None:
    assert saved.state == state()
