"""``holdfast recover``, and commands beside those who hold a session."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.processes import this_process
from holdfast.testing.drafts import session as draft
from tests.cli.conftest import CommandLine


@pytest.fixture
def stranger() -> Iterator[str]:
    """The owner that a program which runs beside us is."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        stat = Path(f"/proc/{process.pid}/stat").read_text()
        started = stat.rpartition(")")[2].split()[19]
        yield str(this_process()._replace(pid=process.pid, started=started))
        process.kill()


@pytest.fixture
def manager(cli: CommandLine) -> Iterator[SessionManager]:
    cli.ok("init")
    with SessionManager.open(project_dir=cli.project, workspace=False) as manager:
        yield manager


def dead() -> str:
    return str(this_process()._replace(started="1"))


@pytest.mark.row("S1-22")
def test_sessions_of_dead_workers_are_marked_and_live_ones_left_alone(
    cli: CommandLine, manager: SessionManager, stranger: str
) -> None:
    assert cli.ok("recover") == "no worker died\n"
    manager.store.create_session(draft(id="killed", lease_owner=dead(), task_description="Work"))
    manager.store.create_session(draft(id="alive", lease_owner=stranger))
    (found,) = cli.json("recover")["sessions"]
    assert (found["id"], found["status"], found["recoveries"]) == ("killed", "interrupted", 1)
    assert cli.json("recover") == {"sessions": []}
    assert manager.get_session("alive").status == "active"
    manager.store.update_session("killed", status="active")
    manager.store.acquire_lease("killed", dead())
    lines = cli.ok("recover", "--max-attempts", "1").splitlines()
    assert lines[0].split() == ["ID", "AGENT", "STATUS", "TIMES", "TASK"]
    assert lines[1].split() == ["killed", "implementer", "failed", "2", "Work"]


def test_a_command_leaves_a_session_alone_that_a_program_holds(
    cli: CommandLine, manager: SessionManager, stranger: str
) -> None:
    manager.store.create_session(draft(id="held", lease_owner=stranger))
    refused = cli("save", "--json", "-s", "held", "mine")
    assert (refused.code, refused.error["code"]) == (4, "checkpoint_busy")
    assert "process " in refused.error["message"]
    assert cli.json("log", "held")["checkpoints"] == []
    assert cli.json("save", "-s", "held", "--take-over", "mine")["checkpoint"]["name"] == "mine"
    # It was held for the command only.
    assert manager.store.list_leases() == []


@pytest.mark.parametrize("owner", [dead(), "agent:claude:7"], ids=["dead process", "agent"])
def test_a_command_comes_before_the_dead_and_before_agents(
    cli: CommandLine, manager: SessionManager, owner: str
) -> None:
    manager.store.create_session(draft(id="held", lease_owner=owner))
    assert cli.json("save", "-s", "held", "mine")["checkpoint"]["name"] == "mine"
    assert manager.store.list_leases() == []
