"""A process that runs a graph is killed at any write; another one goes on and repeats nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.integrations.langgraph import HoldfastSaver
from tests.integrations.langgraph.killed import NODES, acknowledgements_of

ROOT = Path(__file__).parents[3]
NEVER = 10_000


def run(url: str, thread_id: str, log: Path, at: int) -> int:
    command = [sys.executable, "-m", "tests.integrations.langgraph.killed"]
    return subprocess.run(
        [*command, url, thread_id, str(log), str(at)], cwd=ROOT, timeout=120, check=False
    ).returncode


def finished_nodes(url: str, thread_id: str) -> set[int]:
    """Return the nodes whose results are stored: in the newest checkpoint, or written at it."""
    thread: Any = {"configurable": {"thread_id": thread_id}}
    with HoldfastSaver(url) as saver:
        found = saver.get_tuple(thread)
        if found is None:
            return set()
        stored = list(found.checkpoint["channel_values"].get("done", []))
        for _, channel, value in found.pending_writes or ():
            stored += value if channel == "done" else []
    return set(stored)


def numbers_in(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def drill(url: str, log: Path, thread_id: str, at: int) -> None:
    assert run(url, thread_id, log, at) == -signal.SIGKILL
    before, acknowledged = numbers_in(log), set(numbers_in(acknowledgements_of(log)))
    stored = finished_nodes(url, thread_id)
    # Only the node that was at work may be without an answer: all before it have one, which holds.
    assert set(before[:-1]) <= acknowledged
    assert acknowledged <= stored, f"killed at write {at}: acknowledged results are lost"
    assert run(url, thread_id, log, NEVER) == 0
    ran = numbers_in(log)
    again = acknowledged.intersection(ran[len(before) :])
    assert again == set(), f"killed at write {at}: finished nodes ran again"
    assert sorted(set(ran)) == list(range(1, NODES + 1))
    assert finished_nodes(url, thread_id) == set(range(1, NODES + 1))


@pytest.mark.row("S2-13")
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_run_killed_after_node_6_goes_on_at_7(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "a.db") if backend == "sqlite" else request.getfixturevalue("postgres_url")
    log = tmp_path / "ran"
    # The input, the start and its checkpoint are three writes; every node is one write and one put.
    # So this is right before the put that follows the writes of node 6.
    at = 3 + 2 * 6
    assert run(url, "t", log, at) == -signal.SIGKILL
    assert log.read_text().split() == ["1", "2", "3", "4", "5", "6"]
    assert finished_nodes(url, "t") == {1, 2, 3, 4, 5, 6}
    assert run(url, "t", log, NEVER) == 0
    assert log.read_text().split() == [str(number) for number in range(1, NODES + 1)]


# Before the writes of the start, before those of node 3, and between those and the put that follows.
@pytest.mark.parametrize("at", [2, 8, 9])
def test_killed_at_a_write_no_finished_node_runs_again(tmp_path: Path, at: int) -> None:
    drill(str(tmp_path / "a.db"), tmp_path / "ran", "t", at)


@pytest.mark.slow
def test_killed_a_hundred_times_no_finished_node_runs_again(tmp_path: Path) -> None:
    random = Random(7)
    for number in range(100):
        at = random.randrange(2, 3 + 2 * NODES + 1)
        drill(str(tmp_path / "a.db"), tmp_path / f"ran{number}", f"t{number}", at)
