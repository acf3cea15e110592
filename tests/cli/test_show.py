import json
import sqlite3
from datetime import UTC, datetime

import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine

TASKS = [{"id": "a", "status": "completed"}, {"id": "b", "status": "pending"}]


def test_show_prints_columns_state_tasks_and_progress(cli: CommandLine) -> None:
    cli.save("first", {"task_state": {"tasks": TASKS}, "step": 1}, "-m", "half way")
    found = cli.json("show", "first")["checkpoint"]
    assert found["state"]["step"] == 1
    assert found["task_state"] == {"tasks": TASKS}
    assert found["progress"] == {"completed": 1, "total": 2, "percent": 50.0}
    assert found["description"] == "half way"
    assert found["restored_at"] is None


def test_people_see_the_facts_and_then_the_state(cli: CommandLine) -> None:
    cli.save("first", {"step": 1, "task_state": TASKS}, "-m", "half way", "--metadata", "k=v")
    facts, _, state = cli.ok("show").partition("\n\n")
    assert json.loads(state)["step"] == 1
    for line in ("Checkpoint  first", "About       half way", "Metadata    k=v"):
        assert line in facts
    assert "1 of 2 tasks completed" in facts


def test_a_checkpoint_is_found_by_name_id_label_and_beginning(cli: CommandLine) -> None:
    saved = cli.save("first", {"step": 1})
    for reference in ("first", saved["id"], saved["label"], saved["id"][:20]):
        assert cli.json("show", reference)["checkpoint"]["id"] == saved["id"]


def test_values_that_json_lacks_are_printed_with_tags(
    cli: CommandLine, manager: SessionManager
) -> None:
    session = manager.create_session("x", metadata={"at": datetime(2026, 1, 1, tzinfo=UTC)})
    session.save_checkpoint("a", state={"pair": (1, 2), "nan": float("nan"), "raw": b"\0"})
    assert cli.json("show")["checkpoint"]["state"] == {
        "pair": {"$t": "tuple", "v": [1, 2]},
        "nan": {"$t": "float", "v": "nan"},
        "raw": {"$t": "bytes", "v": "AA=="},
    }
    assert cli.json("sessions")["sessions"][0]["metadata"]["at"]["$t"] == "datetime"


@pytest.mark.row("S1-68")
def test_a_document_is_json_in_plain_sqlite_and_whole_in_show(cli: CommandLine) -> None:
    small = {"step": 1, "note": "é", "list": [1, 2.5, None]}
    large = {
        "conversation_history": [{"role": "user", "content": f"{n} " * 500} for n in range(99)]
    }
    cli.save("small", small)
    cli.save("large", large)
    assert cli.json("show", "large")["checkpoint"]["state"] == large
    database = sqlite3.connect(cli.project / ".agents" / "sessions.db")
    try:
        rows = dict(database.execute("SELECT name, state_snapshot FROM session_checkpoints"))
        step = database.execute(
            "SELECT state_snapshot ->> '$.state.step' FROM session_checkpoints WHERE name = 'small'"
        ).fetchone()
    finally:
        database.close()
    assert json.loads(rows["large"])
    assert json.loads(rows["small"])["state"] == small
    assert step == (1,)


def test_an_unknown_checkpoint_is_not_found_and_near_ones_are_named(cli: CommandLine) -> None:
    cli.save("before-refactor", {})
    answer = cli("show", "before-refacto", "--json")
    assert answer.code == 3
    assert answer.error["code"] == "checkpoint_not_found"
    assert "near matches: 'before-refactor'" in answer.error["message"]


def test_a_session_without_checkpoints_has_nothing_to_show(
    cli: CommandLine, manager: SessionManager
) -> None:
    manager.create_session("x")
    assert cli("show").code == 3
