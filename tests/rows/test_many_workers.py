"""Many agents at once: nobody is turned away, nothing is lost, no id is given twice."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.sql import queries
from tests.rows.conftest import Database

# Each prints the state of every checkpoint that was acknowledged.
AGENT = """
    import sys
    from holdfast import SessionManager

    url, agent_type, saves = sys.argv[1:]
    with SessionManager.open(url, workspace=False) as manager:
        session = manager.create_session(agent_type, session_id=f"session of {agent_type}")
        for number in range(int(saves)):
            session.save_checkpoint(f"n{number}", state={"n": number, "by": agent_type * 100})
            session.log("info", f"saved {number}")
            print(number, flush=True)
"""
# The agents of the project that asked; any other text will do as well.
TYPES = [
    *("orchestrator", "analyst", "architect", "planner", "implementer", "critic", "qa", "roadmap"),
    *("memory", "devops", "security", "explainer", "high-level advisor", "independent thinker"),
    *("retrospective", "skillbook", "task generator", "PR-Kommentar 🦀"),
]


@pytest.mark.row("S1-31", "S1-92")
def test_eighteen_agents_save_to_one_database_at_once(database: Database) -> None:
    saves = 8
    assert len(set(TYPES)) == 18
    agents = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(AGENT), database.url, agent_type, str(saves)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for agent_type in TYPES
    ]
    for agent in agents:
        out, err = agent.communicate(timeout=120)
        assert (agent.returncode, err) == (0, "")
        assert out.split() == [str(number) for number in range(saves)]
    with database.open() as manager:
        assert {one.agent_type for one in manager.list_sessions()} == set(TYPES)
        for agent_type in TYPES:
            [record] = manager.list_sessions(agent_type=agent_type)
            session = manager.get_session(record.id)
            found = [one.state for one in reversed(session.list_checkpoints())]
            assert found == [{"n": n, "by": agent_type * 100} for n in range(saves)]
            assert [line.message for line in session.logs()] == [f"saved {n}" for n in range(saves)]
        assert manager.verify().checked == 18 * saves
        for wrong in ("", None):
            with pytest.raises(ValueError, match="agent_type"):
                manager.create_session(wrong)  # type: ignore[arg-type]


@pytest.mark.row("S1-92")
def test_a_file_is_shared_by_its_log_by_immediate_transactions_and_by_patience(
    tmp_path: Path,
) -> None:
    assert queries("sqlite")["sqlite.begin"].split() == ["BEGIN", "IMMEDIATE"]
    with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
        read = manager.store._file.read  # type: ignore[attr-defined]
        assert read(lambda connection: connection.pragma("journal_mode")) == "wal"
        assert manager.store._file._busy_timeout >= 10  # type: ignore[attr-defined]


@pytest.mark.row("S1-92")
def test_a_url_gives_every_session_a_database_of_its_own(tmp_path: Path) -> None:
    for number in range(3):
        url = f"sqlite:///{tmp_path}/session-{number}.db"
        with SessionManager.open(url, workspace=False) as manager:
            manager.create_session("a").save_checkpoint("one", state={"n": number})
    for number in range(3):
        url = f"sqlite:///{tmp_path}/session-{number}.db"
        with SessionManager.open(url, workspace=False) as manager:
            [record] = manager.list_sessions()
            assert manager.get_session(record.id).latest_checkpoint().state == {"n": number}


def create_sessions(count: int) -> list[str]:
    with SessionManager.open("memory:", workspace=False) as manager:
        return [manager.create_session("a").id for _ in range(count)]


@pytest.mark.row("S1-44")
def test_ten_thousand_sessions_of_eight_processes_have_ten_thousand_ids() -> None:
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        made = [one for ids in pool.map(create_sessions, [1250] * 8, chunksize=1) for one in ids]
    assert len(made) == len(set(made)) == 10_000
    assert all(str(uuid.UUID(one)) == one for one in made)
