"""HANDOFF.md, handoffs of issues, session logs: what is left behind, and what is left alone."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Checkpoint, Session, SessionManager
from holdfast.brief import estimate_tokens
from holdfast.errors import HandoffRefused, InvalidIdentifier
from holdfast.handoff import (
    export_session_log,
    read_handoff,
    update_handoff,
    write_issue_handoff,
)
from holdfast.handoff.files import create_new, replace_file
from holdfast.handoff.section import END, START

ROOT = Path(__file__).parents[2]

FILES = {
    "plain": b"# Handoff\n\nread me\n",
    "crlf": b"# Handoff\r\n\r\nread me\r\n",
    "no-final-newline": b"# Handoff\n\nread me",
    "bom": b"\xef\xbb\xbf# Handoff\n\nread me\n",
    "bom-crlf-no-end": b"\xef\xbb\xbf# Handoff\r\nread me",
    "mixed-ends": b"one\r\ntwo\nthree\r\n\n\n  \n",
    "empty": b"",
    "unicode": "# Übergabe\n\n日本語 🎉\n".encode(),
    "markers": f"# Mine\n\n{START}\nold\n{END}\n\nafter\n".encode(),
    "markers-crlf": f"# Mine\r\n{START}\r\nold\r\n{END}\r\nafter".encode(),
    "markers-inline": f"before {START}{END} after".encode(),
}


def around(data: bytes) -> tuple[bytes, bytes]:
    """What stands before and after our section."""
    head, _, rest = data.partition(START.encode())
    return head, rest.partition(END.encode())[2]


def write(manager: SessionManager, **options: Any) -> bytes:
    report = update_handoff(manager, write=True, **options)
    return report.path.read_bytes()


def target(project: Path) -> Path:
    path = project / ".agents" / "HANDOFF.md"
    path.parent.mkdir(exist_ok=True)
    return path


def configure(project: Path, text: str) -> None:
    (project / ".agents" / "holdfast.toml").write_text(text)


# The section ----------------------------------------------------------------------------------


@pytest.mark.row("S1-56", "S1-93")
@pytest.mark.parametrize("name", FILES)
def test_the_rest_of_the_file_is_the_same_bytes(
    saved: Session, manager: SessionManager, project: Path, name: str
) -> None:
    before = FILES[name]
    target(project).write_bytes(before)
    after = write(manager)
    head, tail = around(after)
    if START.encode() in before:
        assert (head, tail) == around(before)
    else:
        assert head + tail == before
    ours = after[len(head) : len(after) - len(tail)]
    assert b"before-refactor" in ours
    end = b"\r\n" if b"\r\n" in before else b"\n"
    assert ours.count(b"\n") == ours.count(end)
    assert write(manager) == after
    assert update_handoff(manager, write=True).action == "unchanged"


@pytest.mark.row("S1-56")
def test_the_table_names_each_checkpoint_and_how_to_resume_it(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    (project / "b.py").write_text("changed\n")
    latest = saved.save_checkpoint("second", state={})
    text = write(manager).decode()
    first = saved.get_checkpoint("before-refactor")

    def row(name: str, branch: str, one: Checkpoint) -> str:
        resume = f"`holdfast resume session-1 --checkpoint {one.id}`"
        return f"| {name} | {one.id} | {one.created_at:%Y-%m-%d %H:%M} UTC | {branch} | {resume} |"

    assert [line for line in text.splitlines() if line.startswith("| ")] == [
        "| name | id | saved | branch | resume |",
        row("second", "main*", latest),
        row("before-refactor", "main", first),
    ]
    assert text.startswith("# Handoff\n\n")
    assert text.endswith(f"{END}\n")
    rows = read_handoff(target(project)).checkpoints
    assert [row["id"] for row in rows] == [latest.id, first.id]


@pytest.mark.row("S1-56")
def test_only_the_last_rows_are_kept_and_automatic_saves_are_not_listed(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    for number in range(15):
        saved.save_checkpoint(f"step-{number}", state={}, workspace=False)
        saved.save_checkpoint(state={}, retention_class="automatic", workspace=False)
    manager.create_session("other").save_checkpoint("elsewhere", state={}, workspace=False)
    write(manager)
    names = [row["name"] for row in read_handoff(target(project)).checkpoints]
    assert names == ["elsewhere", *(f"step-{number}" for number in range(14, 5, -1))]
    write(manager, rows=2, session=saved)
    names = [row["name"] for row in read_handoff(target(project)).checkpoints]
    assert names == ["step-14", "step-13"]
    configure(project, "[handoff]\nrows = 3\n")
    write(manager)
    assert len(read_handoff(target(project)).checkpoints) == 3


@pytest.mark.row("S1-56")
def test_what_a_rollback_saves_for_itself_takes_no_row_from_the_others(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    for number in range(3):
        saved.save_checkpoint(f"by-hand-{number}", state={"number": number})
        saved.rollback("before-refactor")
        saved.undo()
    write(manager, rows=4)
    names = [row["name"] for row in read_handoff(target(project)).checkpoints]
    assert names == ["by-hand-2", "by-hand-1", "by-hand-0", "before-refactor"]


@pytest.mark.row("S1-56")
@pytest.mark.parametrize("words", [0, 12_000, 18_500, 19_000, 30_000])
def test_the_file_stays_within_its_tokens_or_our_section_gives_way(
    saved: Session, manager: SessionManager, project: Path, words: int
) -> None:
    for number in range(10):
        saved.save_checkpoint(f"step-{number}", state={}, workspace=False)
        saved.decision(f"Decision {number} " + "with many words " * 12)
    target(project).write_bytes(b"x" * words)
    report = update_handoff(manager, write=True)
    after = report.path.read_bytes()
    assert report.tokens == estimate_tokens(after.decode())
    assert around(after)[0] == b"x" * words
    if words <= 19_000:
        assert report.tokens <= 5000
    else:
        assert after == b"x" * words + f"{START}\n{END}".encode()
    if words == 0:
        assert (report.rows, after.count(b"\n- Decision")) == (10, 5)
    if words == 19_000:
        assert 0 < report.rows < 10


@pytest.mark.row("S1-30")
def test_decisions_are_in_the_handoff(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    saved.decision("Keep SQLite", rationale="one file")
    assert b"\n- Keep SQLite (because: one file)\n" in write(manager)
    path = write_issue_handoff(manager, saved, issue="42")
    assert "- **Keep SQLite**: one file\n" in path.read_text(encoding="utf-8")


@pytest.mark.row("S1-56")
def test_writing_is_asked_for_and_can_be_forbidden(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    report = update_handoff(manager)
    assert (report.action, report.path.exists()) == ("shown", False)
    configure(project, "[handoff]\nenabled = false\n")
    report = update_handoff(manager, write=True)
    assert (report.action, report.path.exists()) == ("left_alone", False)
    target(project).write_bytes(b"mine")
    assert update_handoff(manager, write=True).action == "left_alone"
    assert target(project).read_bytes() == b"mine"


@pytest.mark.row("S1-93")
@pytest.mark.parametrize(
    "text",
    [
        f"only {START}",
        f"only {END}",
        f"{END} wrong way {START}",
        f"{START} {END} {START} {END}",
        f"```\n{START}\n```\n{START}\n{END}\n",
    ],
    ids=["no-end", "no-start", "reversed", "twice", "quoted"],
)
def test_a_file_in_which_ours_cannot_be_told_is_refused_and_not_touched(
    saved: Session, manager: SessionManager, project: Path, text: str
) -> None:
    target(project).write_text(text)
    with pytest.raises(HandoffRefused, match="Nothing was written"):
        update_handoff(manager, write=True)
    assert target(project).read_text() == text
    assert sorted(path.name for path in target(project).parent.glob(".holdfast-*")) == []


@pytest.mark.parametrize(
    "name", [".git/config", ".GIT/config", ".agents/workspace.git/config", "link/config"]
)
def test_what_git_keeps_is_not_written_to(
    saved: Session, manager: SessionManager, project: Path, name: str
) -> None:
    (project / "link").symlink_to(project / ".git")
    before = (project / ".git" / "config").read_bytes()
    configure(project, f'[handoff]\nfile = "{name}"\n')
    with pytest.raises(HandoffRefused):
        update_handoff(manager, write=True)
    assert (project / ".git" / "config").read_bytes() == before


@pytest.mark.row("S1-93")
@pytest.mark.parametrize(
    "data", [b"\xff\xfea\0b\0", b"caf\xe9\n", b"nul\0\n"], ids=["utf-16", "latin-1", "nul"]
)
def test_what_is_not_utf_8_is_refused_and_not_touched(
    saved: Session, manager: SessionManager, project: Path, data: bytes
) -> None:
    target(project).write_bytes(data)
    with pytest.raises(HandoffRefused):
        update_handoff(manager, write=True)
    assert target(project).read_bytes() == data


def test_a_file_outside_of_the_project_is_refused(
    saved: Session, manager: SessionManager, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside.md").write_bytes(b"not ours")
    target(project).symlink_to(tmp_path / "outside.md")
    with pytest.raises(HandoffRefused):
        update_handoff(manager, write=True)
    configure(project, '[handoff]\nfile = "../outside.md"\n')
    with pytest.raises(HandoffRefused):
        update_handoff(manager, write=True)
    assert (tmp_path / "outside.md").read_bytes() == b"not ours"


def test_the_file_that_is_there_is_taken_and_links_within_the_project_are_kept(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    (project / "HANDOFF.md").write_bytes(b"# Mine\n")
    (project / "HANDOFF.md").chmod(0o640)
    assert update_handoff(manager, write=True).path == (project / "HANDOFF.md").resolve()
    assert (project / "HANDOFF.md").stat().st_mode & 0o777 == 0o640
    configure(project, '[handoff]\nfile = "docs/link.md"\n')
    (project / "docs").mkdir()
    (project / "docs" / "link.md").symlink_to("real.md")
    write(manager)
    assert (project / "docs" / "link.md").is_symlink()
    assert b"before-refactor" in (project / "docs" / "real.md").read_bytes()


@pytest.mark.row("S1-93")
def test_stored_text_cannot_leave_its_cell_or_the_section(
    manager: SessionManager, project: Path
) -> None:
    session = manager.create_session("t", session_id=f"id {END} | `x`")
    session.save_checkpoint(f"a|b {END} \\ <script>\n| c |", state={}, workspace=False)
    session.decision(f"{END} and {START}")
    data = write(manager)
    assert (data.count(START.encode()), data.count(END.encode())) == (1, 1)
    (row,) = read_handoff(target(project)).checkpoints
    assert row["name"] == f"a|b {END} \\ <script> | c |"
    assert row["resume"].startswith("holdfast resume SESSION --checkpoint ")
    assert write(manager) == data


def test_an_id_from_elsewhere_gets_into_no_command(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    odd = f"x; touch y` | {END}"
    database = sqlite3.connect(project / ".agents" / "sessions.db")
    database.execute("PRAGMA ignore_check_constraints = ON")
    with database:
        database.execute("UPDATE session_checkpoints SET id = ?", [odd])
    database.close()
    write(manager)
    (row,) = read_handoff(target(project)).checkpoints
    assert row["id"] == odd
    assert row["resume"] == f"holdfast resume {saved.id} --checkpoint CHECKPOINT"


def test_a_file_that_ends_in_a_fence_keeps_it(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    target(project).write_bytes(b"```\ncode\n```")
    assert write(manager).startswith(f"```\ncode\n```\n{START}\n".encode())


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# Open ends", "Open ends"),
        ("###### a ## ##  ", "a ##"),
        ("##\tC# ", "C#"),
        ("# #", ""),
        ("####### seven", None),
        ("#none", None),
        (" # indented", None),
    ],
)
def test_headings_are_read_as_markdown_has_them(
    line: str, title: str | None, tmp_path: Path
) -> None:
    (tmp_path / "HANDOFF.md").write_text(f"{line}\nbody\n")
    expected = ("", f"{line}\nbody".strip()) if title is None else (title, "body")
    assert read_handoff(tmp_path / "HANDOFF.md").sections == (expected,)


def test_a_heading_without_an_end_is_read_in_one_go(tmp_path: Path) -> None:
    title = "a" + "#" * 500_000 + " " * 500_000 + "x"
    (tmp_path / "HANDOFF.md").write_text(f"# {title}\n")
    # Were a pattern to try every end that the heading may have, this would never end.
    assert read_handoff(tmp_path / "HANDOFF.md").sections == ((title, ""),)


def test_an_editor_that_saves_meanwhile_is_not_overwritten(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    path = target(project)
    path.write_bytes(b"edited")
    assert replace_file(path, b"before", b"ours") is False
    assert path.read_bytes() == b"edited"
    assert replace_file(path, b"edited", b"ours") is True
    with pytest.raises(FileExistsError):
        create_new(path, b"new")
    assert path.read_bytes() == b"ours"


@pytest.mark.row("S1-56")
def test_an_old_handoff_can_be_read(project: Path) -> None:
    old = (
        "\ufeffintro\r\n# Project Handoff\r\n\r\n## Current Branch\r\n\r\n`feat/x`\r\n\r\n"
        "```\r\n## not a heading\r\n```\r\n## Next ##\r\n- one\r\n"
    )
    path = target(project)
    path.write_bytes(old.encode())
    found = read_handoff(path)
    assert [title for title, _ in found.sections] == [
        "",
        "Project Handoff",
        "Current Branch",
        "Next",
    ]
    assert dict(found.sections)["Next"] == "- one"
    assert dict(found.sections)["Current Branch"].startswith("`feat/x`")
    assert found.checkpoints == ()
    path.write_bytes("# Alt\n".encode("utf-16"))
    assert read_handoff(path).sections == (("Alt", ""),)
    with pytest.raises(HandoffRefused):
        read_handoff(project / "none.md")


# Issues ---------------------------------------------------------------------------------------


@pytest.mark.row("S1-56")
def test_a_handoff_of_an_issue_has_the_parts_of_the_template(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    (project / "b.py").write_text("changed\n")
    saved.save_checkpoint("work", state=saved.state)
    saved.decision("Keep SQLite", rationale="one file", alternatives=["PostgreSQL"])
    path = write_issue_handoff(manager, saved, issue="#42", title="OAuth")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert path == project.resolve() / f".agents/sessions/handoffs/{today}-42-handoff.md"
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Status",
        "Files Modified",
        "Decisions Made",
        "Blocked Items",
        "Next Steps",
        "Context for Next Session",
        "Verification on Resume",
        "Related",
    ]
    for line in (
        "- **Issue**: #42 — OAuth",
        "- **Branch**: main",
        "- **Task**: Move auth to OAuth",
        "- **Phase**: implementing",
        "- **Progress**: 1 of 4 tasks completed",
        "- `b.py`",
        "- **Keep SQLite**: one file",
        "  - Alternatives considered: PostgreSQL",
        "- **Get keys**: blocked",
        "1. Write the client",
        "- [ ] the branch is `main`",
    ):
        assert line in text.splitlines()


@pytest.mark.row("S1-93")
def test_a_second_handoff_of_a_day_does_not_overwrite_the_first(
    saved: Session, manager: SessionManager
) -> None:
    first = write_issue_handoff(manager, saved, issue="42")
    before = first.read_bytes()
    second = write_issue_handoff(manager, saved, issue="42", title="again")
    assert second.name == first.name.replace("handoff.md", "handoff-2.md")
    assert first.read_bytes() == before


def test_another_template_can_be_used(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    (project / "mine.md").write_text("Issue $issue on $branch\n")
    path = write_issue_handoff(manager, saved, issue="ABC-1", template="mine.md")
    assert path.read_text() == "Issue ABC-1 on main\n"
    configure(project, '[handoff]\ntemplate = "mine.md"\n')
    assert write_issue_handoff(manager, saved, issue="7").read_text() == "Issue #7 on main\n"
    for text in ("$nothing", "$"):
        (project / "mine.md").write_text(text)
        with pytest.raises(HandoffRefused, match="it may use"):
            write_issue_handoff(manager, saved, issue="8")
    with pytest.raises(HandoffRefused):
        write_issue_handoff(manager, saved, issue="8", template="missing.md")
    with pytest.raises(InvalidIdentifier):
        write_issue_handoff(manager, saved, issue="../../etc")


# Session logs ---------------------------------------------------------------------------------


@pytest.mark.row("S1-32")
def test_a_session_log_has_the_name_and_shape_that_readers_expect(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    saved.decision("Keep SQLite", rationale="one file")
    saved.log("info", "Tests need git", data={"learning": True})
    log = export_session_log(manager, saved)
    assert log.number == 1
    stem = f"{saved.created_at:%Y-%m-%d}-session-01"
    assert (log.json.name, log.markdown.name) == (f"{stem}.json", f"{stem}.md")
    assert log.json.parent == project.resolve() / ".agents" / "sessions"
    document = json.loads(log.json.read_bytes())
    check_shape(document)
    assert document["session"]["objective"] == "Move auth to OAuth"
    assert document["session"]["branch"] == "main"
    assert document["nextSteps"] == ["Write the client", "Describe it"]
    text = log.markdown.read_text(encoding="utf-8")
    assert text.startswith(f"# {stem}\n")
    assert "- **Keep SQLite**: one file\n" in text
    assert "1. Write the client\n" in text


def check_shape(document: dict[str, Any]) -> None:
    """What the schema of such logs asks for, in our words."""
    assert set(document) >= {
        "schemaVersion",
        "session",
        "protocolCompliance",
        "workLog",
        "endingCommit",
        "nextSteps",
    }
    assert re.fullmatch(r"[0-9]+\.[0-9]+", document["schemaVersion"])
    about = document["session"]
    assert type(about["number"]) is int
    assert about["number"] >= 1
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", about["date"])
    assert isinstance(about["branch"], str)
    assert about["objective"]
    for commit in (about["startingCommit"], document["endingCommit"]):
        assert re.fullmatch(r"([0-9a-f]{7,40})?", commit)
    uuid = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    assert re.fullmatch(uuid, about.get("traceId", "0" * 8 + "-0000" * 3 + "-" + "0" * 12))
    assert set(document["protocolCompliance"]) == {"sessionStart", "sessionEnd"}
    for items in document["protocolCompliance"].values():
        for name, item in items.items():
            assert re.fullmatch(r"[a-zA-Z]+", name)
            assert type(item["complete"]) is bool
            assert item["level"] in ("MUST", "SHOULD", "MUST NOT")
            assert isinstance(item["evidence"], str)
    assert all(isinstance(entry["action"], str) for entry in document["workLog"])
    assert all(isinstance(step, str) for step in document["nextSteps"])
    for one in document["outcomes"]["decisions"]:
        assert all(isinstance(one[key], str) for key in ("decision", "rationale", "impact"))
    assert all(isinstance(one["pattern"], str) for one in document["learnings"]["patterns"])


@pytest.mark.row("S1-32")
def test_a_session_without_anything_is_logged_in_shape_too(manager: SessionManager) -> None:
    session = manager.create_session("reviewer", task_description="")
    check_shape(json.loads(export_session_log(manager, session).json.read_bytes()))


@pytest.mark.row("S1-32")
@pytest.mark.parametrize(
    ("existing", "number"),
    [
        ([], 1),
        (["2020-01-01-session-07.md"], 8),
        (["2020-01-01-session-07.json", "2031-12-31-session-384.json"], 385),
        (["2020-01-01-session-09-with-a-title.md"], 10),
        (["notes.md", "session-99.md", "2020-01-01-session-x.md"], 1),
    ],
    ids=["none", "other-day", "large", "titled", "strangers"],
)
def test_the_number_is_the_next_free_one(
    saved: Session, manager: SessionManager, project: Path, existing: list[str], number: int
) -> None:
    folder = project / ".agents" / "sessions"
    folder.mkdir(parents=True)
    for name in existing:
        (folder / name).write_text("theirs")
    assert export_session_log(manager, saved).number == number
    assert export_session_log(manager, saved).number == number + 1
    assert all((folder / name).read_text() == "theirs" for name in existing)


@pytest.mark.row("S1-32")
def test_of_many_who_export_at_once_each_gets_its_own_number(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    found: list[int] = []
    ready = threading.Barrier(6)

    def export() -> None:
        ready.wait(30)
        found.append(export_session_log(manager, saved).number)

    threads = [threading.Thread(target=export) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    folder = project / ".agents" / "sessions"
    for number in found:
        (path,) = folder.glob(f"*-session-{number:02}.json")
        assert json.loads(path.read_bytes())["session"]["number"] == number
        assert len(list(folder.glob(f"*-session-{number:02}.md"))) == 1
    assert list(folder.glob(".holdfast-*")) == []


@pytest.mark.row("S1-32")
def test_a_markdown_file_that_is_there_already_is_not_overwritten(
    saved: Session, manager: SessionManager, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / ".agents" / "sessions"
    folder.mkdir(parents=True)
    taken = folder / f"{saved.created_at:%Y-%m-%d}-session-01.md"

    def late(_: Path) -> list[Path]:
        # Somebody writes it between our look and our own files.
        taken.write_text("theirs")
        return []

    listing: Callable[[Path], Any] = Path.iterdir
    monkeypatch.setattr(
        Path, "iterdir", lambda at: late(at) if at.name == "sessions" else listing(at)
    )
    assert export_session_log(manager, saved).number == 2
    assert taken.read_text() == "theirs"
    assert not taken.with_suffix(".json").exists()


# Templates in the documentation ---------------------------------------------------------------


@pytest.mark.row("S1-43")
def test_the_template_of_the_documentation_takes_the_table(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    template = (ROOT / "docs/templates/HANDOFF.md").read_bytes()
    target(project).write_bytes(template)
    after = write(manager)
    assert around(after) == around(template)
    assert b"before-refactor" in after
