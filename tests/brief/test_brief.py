"""Briefs: what they tell, within their bounds, and what decisions become."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Session, SessionManager
from holdfast.aio import AsyncSessionManager
from holdfast.brief import LEAST_TOKENS, estimate_tokens, one_line
from holdfast.errors import InvalidFilter, InvalidIdentifier, InvalidState
from tests.brief.conftest import git, state


def section(text: str, title: str) -> list[str]:
    """The lines of one part of a brief."""
    _, _, rest = text.partition(f"## {title}\n")
    return rest.partition("\n\n")[0].strip().splitlines()


def follow(manager: SessionManager, before: Session, session_id: str) -> Session:
    """Create a session that continues another."""
    return manager.create_session(
        "reviewer", task_description="Review it", session_id=session_id, continues=before.id
    )


def test_a_brief_tells_where_things_stand(saved: Session) -> None:
    text = saved.brief().text
    assert text.startswith("# Resume: Move auth to OAuth\n")
    assert "Session session-1, agent implementer, active." in text
    assert "Last checkpoint: before-refactor, " in text
    assert f" on main at {git('rev-parse', 'HEAD')[:10]}." in text
    assert section(text, "Progress") == ["- 1 of 4 tasks completed"]
    assert section(text, "Next") == ["- [in progress] Write the client", "- [next] Describe it"]
    assert section(text, "Open items") == ["- [blocked] Get keys"]
    assert section(text, "Done") == ["- Read the code"]
    assert section(text, "Open files") == ["- a.py:3:7 (active)"]
    assert section(text, "Memory") == ["- notes (notes.md): present"]


@pytest.mark.row("S1-11")
def test_open_files_come_back_with_positions_and_missing_ones_are_flagged(
    saved: Session, manager: SessionManager
) -> None:
    selection = {"start": {"line": 3, "column": 1}, "end": {"line": 4, "character": 0}}
    files = [
        {"path": "a.py", "line": 3, "column": 7, "selection": selection, "active": True},
        {"path": "gone.py", "line": 1},
    ]
    saved.save_checkpoint("positions", state={"open_files": files})
    saved.close()
    resumed = manager.resume_session(saved.id)
    assert resumed.state["open_files"] == files
    brief = resumed.brief()
    assert section(brief.text, "Open files") == ["- a.py:3:7 (active)", "- gone.py:1 (MISSING)"]
    assert "open_file_missing" in brief.preflight.codes
    first, second = brief.to_document()["open_files"]
    assert first == {**files[0], "missing": False}
    assert second["missing"] is True


@pytest.mark.row("S1-11")
@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"line": 1}, "$.open_files[0]"),
        ({"path": "a.py", "line": -1}, "$.open_files[0].line"),
        ({"path": "a.py", "column": "7"}, "$.open_files[0].column"),
        ({"path": "a.py", "active": "yes"}, "$.open_files[0].active"),
        ({"path": "a.py", "selection": "1-2"}, "$.open_files[0].selection"),
        ({"path": "a.py", "selection": {"start": {"line": 1}}}, "$.open_files[0].selection"),
    ],
    ids=["no-path", "negative", "text-column", "text-flag", "text-selection", "half-selection"],
)
def test_open_files_of_another_shape_are_refused(
    saved: Session, entry: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidState, match=path.replace("$", r"\$").replace("[", r"\[")):
        saved.save_checkpoint(state={"open_files": [entry]})


# Decisions ------------------------------------------------------------------------------------


@pytest.mark.row("S1-30")
def test_a_decision_is_stored_with_its_reasons_and_stands_in_the_brief(saved: Session) -> None:
    line = saved.decision(
        "Keep SQLite", rationale="one file to move", alternatives=["PostgreSQL", "plain files"]
    )
    assert line.data == {
        "decision": {
            "text": "Keep SQLite",
            "rationale": "one file to move",
            "alternatives": ["PostgreSQL", "plain files"],
        }
    }
    brief = saved.brief()
    assert section(brief.text, "Decisions") == [
        "- Keep SQLite Because: one file to move Instead of: PostgreSQL; plain files",
        "- Use OAuth 2.1 Because: the provider requires it",
    ]
    assert [one.text for one in brief.decisions] == ["Keep SQLite", "Use OAuth 2.1"]


@pytest.mark.row("S1-30")
def test_a_decision_survives_saves_rollbacks_and_readers(
    saved: Session, manager: SessionManager
) -> None:
    saved.decision("Keep SQLite")
    saved.save_checkpoint("later", state={})
    saved.rollback("before-refactor")
    # Whoever only looks may record one too: nothing is taken from the worker.
    manager.get_session(saved.id).decision("Log it")
    decided = [one.text for one in saved.brief().decisions]
    assert decided == ["Log it", "Keep SQLite", "Use OAuth 2.1"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": ""},
        {"text": "a\0b"},
        {"text": "x" * 20_000},
        {"text": "x", "rationale": "\ud800"},
        {"text": "x", "alternatives": "one text"},
        {"text": "x", "alternatives": [""]},
        {"text": "x", "alternatives": 5},
    ],
    ids=["empty", "nul", "long", "surrogate", "text", "empty-alternative", "number"],
)
def test_a_decision_that_cannot_be_told_is_refused(
    saved: Session, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidIdentifier):
        saved.decision(**arguments)
    assert saved.logs(level="info") == []


def test_alternatives_may_be_drawn_once_only(saved: Session) -> None:
    saved.decision("Keep SQLite", alternatives=(one for one in ["PostgreSQL"]))  # type: ignore[arg-type]
    [decided] = [one for one in saved.brief().decisions if one.text == "Keep SQLite"]
    assert list(decided.alternatives) == ["PostgreSQL"]


@pytest.mark.row("S1-29")
def test_what_one_session_decided_and_learnt_is_in_the_brief_of_the_next(
    saved: Session, manager: SessionManager
) -> None:
    saved.decision("Keep SQLite", rationale="one file to move")
    saved.log("info", "The staging database is reset every night", data={"learning": True})
    saved.log("info", "x", data={"learning": {"text": "Tests need git"}})
    saved.complete()
    second = follow(manager, saved, "session-2")
    second.decision("Ship on Monday")
    third = follow(manager, second, "session-3")
    text = third.brief().text
    assert section(text, "Decisions") == [
        "- Ship on Monday",
        "- Keep SQLite Because: one file to move",
        "- Use OAuth 2.1 Because: the provider requires it",
    ]
    assert section(text, "Learned") == [
        "- Tests need git",
        "- The staging database is reset every night",
    ]


@pytest.mark.row("S1-21")
def test_a_chain_of_sessions_shows_its_lineage_and_carries_the_tasks_over(
    saved: Session, manager: SessionManager
) -> None:
    saved.complete()
    second = follow(manager, saved, "session-2")
    third = follow(manager, second, "session-3")
    brief = third.brief()
    assert [(one.relation, one.record.id) for one in brief.lineage] == [
        ("continues", "session-2"),
        ("continues", "session-1"),
    ]
    assert section(brief.text, "Earlier sessions") == [
        "- continues session-2, active: Review it",
        "- continues session-1, completed: Move auth to OAuth",
    ]
    # Nothing was saved since, so the work of the first session is what there is to go on from.
    assert "Last checkpoint: before-refactor of session session-1, " in brief.text
    assert section(brief.text, "Progress") == ["- 1 of 4 tasks completed"]
    assert section(brief.text, "Next")[0] == "- [in progress] Write the client"
    # And what was completed there stays completed when something is.
    third.save_checkpoint(state={"task_state": [{"id": "docs", "status": "completed"}]})
    assert section(third.brief().text, "Done") == ["- docs", "- Read the code"]


def test_a_fork_knows_what_was_decided_before_it_and_not_after(
    saved: Session, manager: SessionManager
) -> None:
    saved.decision("Before")
    fork = saved.fork(session_id="fork-1")
    saved.decision("After")
    assert [one.text for one in fork.brief().decisions][:1] == ["Before"]
    assert "After" not in fork.brief().text
    assert fork.brief().lineage[0].relation == "forked from"


# Bounds ---------------------------------------------------------------------------------------


def crowded(session: Session) -> None:
    """Fill everything that a brief may tell."""
    session.save_checkpoint(
        state={
            "task_state": [
                {"id": f"{status}-{n}", "title": f"Task {n} " + "words " * 50, "status": status}
                for n in range(60)
                for status in ("completed", "pending", "blocked")
            ],
            "open_files": [{"path": f"dir/file-{n}.py", "line": n} for n in range(200)],
            "memory_refs": [{"key": f"k{n}", "path": f"m{n}.md"} for n in range(50)],
            "decisions": [f"Decision {n}: " + "because " * 100 for n in range(50)],
        }
    )
    for number in range(5):
        session.log("error", f"error {number}\n" + "x" * 5000)


@pytest.mark.row("S1-25")
@pytest.mark.parametrize("room", [LEAST_TOKENS, 150, 300, 1000, 2000, 8000])
def test_the_text_keeps_to_its_tokens_and_to_what_matters_most(saved: Session, room: int) -> None:
    crowded(saved)
    text = saved.brief(max_tokens=room).text
    assert estimate_tokens(text) <= room
    assert text.startswith("# Resume: Move auth to OAuth\n")
    if room >= 300:
        assert section(text, "No longer true")[0].startswith("- memory_missing: ")
        assert "more" in text
    if room >= 1000:
        assert section(text, "Next")[0].startswith("- [next] Task 0 words")


def test_what_is_left_out_is_counted(saved: Session) -> None:
    crowded(saved)
    lines = section(saved.brief(max_tokens=2000).text, "No longer true")
    assert lines[-1] == f"- … and {250 - len(lines) + 1} more"
    assert saved.brief(max_tokens=100).text.count("Left out: ") == 1


def test_a_task_longer_than_the_room_is_cut(manager: SessionManager) -> None:
    session = manager.create_session("implementer", task_description="日本語 " * 2000)
    text = session.brief(max_tokens=LEAST_TOKENS).text
    assert estimate_tokens(text) <= LEAST_TOKENS
    assert text.endswith("…\n")


@pytest.mark.parametrize("room", [0, 99, -5, 2.5, "100", True])
def test_a_budget_in_which_nothing_can_be_said_is_refused(saved: Session, room: Any) -> None:
    with pytest.raises(InvalidFilter):
        saved.brief(max_tokens=room)


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("日本語", 3), ("a日", 2)]
)
def test_tokens_are_estimated_as_documented(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_stored_text_stays_on_its_line(saved: Session) -> None:
    saved.decision("One\n## Fake heading\x1b[31m\u202e")
    text = saved.brief().text
    assert "- One ## Fake heading [31m\n" in text
    assert one_line("x" * 300).endswith("…")


def test_the_document_is_plain_and_whole(saved: Session) -> None:
    odd = {"id": "odd", "due": datetime(2026, 1, 31, tzinfo=UTC), "tags": {"x"}}
    saved.save_checkpoint(state={**state(), "task_state": [odd], "progress": {"done": b"1"}})
    saved.log("error", "it broke")
    document = json.loads(json.dumps(saved.brief().to_document()))
    assert document["text"] == saved.brief().text
    assert document["tokens"] == estimate_tokens(document["text"])
    assert document["next"] == ["odd"]
    assert document["task_state"]["tasks"][-1]["due"]["$t"] == "datetime"
    assert document["errors"][0]["message"] == "it broke"
    assert document["preflight"]["verdict"] == "clean"
    assert document["checkpoint"]["git_branch"] == "main"


def test_a_session_that_saved_nothing_has_a_brief(manager: SessionManager) -> None:
    session = manager.create_session("implementer")
    brief = session.brief()
    assert brief.text == (
        f"# Resume: implementer\n\nSession {session.id}, agent implementer, active.\n"
        "There is no checkpoint to go on from.\n"
    )
    assert brief.to_document()["checkpoint"] is None


def test_a_brief_of_what_was_loaded_is_about_that(saved: Session) -> None:
    saved.save_checkpoint("second", state={})
    assert saved.brief().checkpoint is not None
    saved.load_checkpoint("before-refactor")
    checkpoint = saved.brief().checkpoint
    assert checkpoint is not None
    assert checkpoint.name == "before-refactor"


def test_without_files_the_project_is_not_read(saved: Session) -> None:
    Path("b.py").write_text("changed\n")
    assert saved.brief().preflight.codes == ()
    assert saved.brief(files=True).preflight.codes == ("uncommitted_changes", "file_changed")


def test_the_async_twin_tells_the_same(saved: Session, project: Path) -> None:
    expected = saved.brief().text

    async def look() -> tuple[str, str]:
        async with await AsyncSessionManager.open(project_dir=project) as manager:
            session = await manager.get_session(saved.id)
            await session.decision("In a loop")
            return (await session.brief()).text, (await session.preflight()).verdict

    text, verdict = asyncio.run(look())
    assert verdict == "clean"
    assert "- In a loop\n" in text
    assert text.replace("- In a loop\n", "") == expected


@pytest.mark.row("S1-29", "S1-30")
def test_decisions_are_found_on_postgresql_too(project: Path, postgres_url: str) -> None:
    with SessionManager.open(postgres_url, project_dir=project) as manager:
        session = manager.create_session("implementer")
        session.save_checkpoint(state={})
        session.decision("Keep it", rationale="works")
        session.log("info", "noise")
        assert [one.text for one in session.brief().decisions] == ["Keep it"]
        assert session.preflight().codes == ()
