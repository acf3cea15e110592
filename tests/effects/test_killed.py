"""SIGKILL in every window of a step: each effect happened once or is reported unknown, never twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.effects import Effect, Verdict
from holdfast.errors import EffectUnknown

STEPS = 5
# Where the worker dies, and what the step that it dies in must be found as.
WINDOWS = {
    "before-started": "runs",
    "after-started": "unknown",
    "body-before-effect": "unknown",
    "body-after-effect": "unknown",
    "before-done": "unknown",
    "after-done": "replayed",
    "any-moment": None,
}

WORKER = """
import os, random, signal, sys, threading, time
from holdfast import SessionManager

url, session_id, world, window, at = sys.argv[1:]
at = int(at)
here = None

def die(now):
    if now == window and here == at:
        os.kill(os.getpid(), signal.SIGKILL)

manager = SessionManager.open(url, workspace=False)
session = manager.resume_session(session_id)
store = manager.store
begin, finish = store.begin_effect, store.finish_effect

def begin_effect(draft):
    die("before-started")
    found = begin(draft)
    die("after-started")
    return found

def finish_effect(*args, **kwargs):
    die("before-done")
    found = finish(*args, **kwargs)
    die("after-done")
    return found

store.begin_effect, store.finish_effect = begin_effect, finish_effect

def act(number):
    die("body-before-effect")
    descriptor = os.open(world, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{number}\\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)
    die("body-after-effect")
    return {"number": number}

if window == "any-moment":
    delay = random.Random(at).uniform(0, 0.03)
    def later():
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=later, daemon=True).start()

for here in range(5):
    session.step("act", act, here)
if window == "any-moment":
    signal.pause()
"""


def traces(world: Path) -> Counter[int]:
    return Counter(map(int, world.read_text().split())) if world.exists() else Counter()


def crash(url: str, session_id: str, world: Path, window: str, at: int) -> None:
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, url, session_id, str(world), window, str(at)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert worker.returncode == -signal.SIGKILL, worker.stderr


def recover(manager: SessionManager, session_id: str, world: Path, **options: Any) -> list[str]:
    """Go through the same steps in a new run and say what became of each."""
    found = []
    with manager.resume_session(session_id) as session:
        for number in range(STEPS):
            ran: list[int] = []

            def act(number: int, ran: list[int] = ran) -> dict[str, int]:
                with world.open("a") as file:
                    print(number, file=file)
                ran.append(number)
                return {"number": number}

            try:
                assert session.step("act", act, number, **options) == {"number": number}
                found.append("runs" if ran else "replayed")
            except EffectUnknown:
                assert not ran
                found.append("unknown")
    return found


def drill(manager: SessionManager, url: str, directory: Path, window: str, at: int) -> None:
    """One run: a worker dies, a second one goes on, a third one asks the world what is unknown."""
    world = directory / f"world-{window}-{at}"
    session = manager.create_session("worker")
    session.close()
    crash(url, session.id, world, window, at)
    before = traces(world)
    assert max(before.values(), default=1) == 1

    found = recover(manager, session.id, world)
    after = traces(world)
    expected = WINDOWS[window]
    if expected is not None:
        number = at % STEPS
        assert found == ["replayed"] * number + [expected] + ["runs"] * (STEPS - number - 1)
    assert found.count("unknown") <= 1
    for number, outcome in enumerate(found):
        wanted = {"unknown": (0, 1), "replayed": (1,), "runs": (1,)}[outcome]
        assert after[number] in wanted, (
            f"step {number} {outcome} and happened {after[number]} times"
        )
        assert outcome != "unknown" or after[number] == before[number]

    def look(effect: Effect) -> Verdict:
        number = found.index("unknown")
        return effect.happened({"number": number}) if after[number] else effect.did_not_happen()

    recover(manager, session.id, world, policy="ask", reconcile=look)
    assert traces(world) == dict.fromkeys(range(STEPS), 1)
    assert {one.status for one in manager.get_session(session.id).effects()} == {"done"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "sessions.db")


@pytest.mark.row("B1")
@pytest.mark.parametrize("window", WINDOWS)
def test_an_effect_happens_once_or_is_unknown(url: str, tmp_path: Path, window: str) -> None:
    with SessionManager.open(url, workspace=False) as manager:
        for at in (0, STEPS - 1):
            drill(manager, url, tmp_path, window, at)


@pytest.mark.slow
@pytest.mark.row("B1")
@pytest.mark.parametrize("window", WINDOWS)
def test_an_effect_happens_once_or_is_unknown_over_two_hundred_kills(
    url: str, tmp_path: Path, window: str
) -> None:
    """With fifteen runs for each of seven windows on two databases it is 210 kills in all."""
    with SessionManager.open(url, workspace=False) as manager:
        for run in range(15):
            at = run if window == "any-moment" else run % STEPS
            world = tmp_path / str(run)
            world.mkdir()
            drill(manager, url, world, window, at)


NODES = """
import os, signal, sys
from holdfast import CheckpointConfig, SessionManager
from holdfast.savers import open_saver

face, url, session_id, ledger, stop_after = sys.argv[1:]

def node(number):
    with open(ledger, "a") as file:
        print(number, file=file, flush=True)
    return f"result {number}"

def done(number):
    if number == int(stop_after):
        os.kill(os.getpid(), signal.SIGKILL)

if face == "steps":
    manager = SessionManager.open(url, workspace=False)
    session = manager.resume_session(session_id)
    results = []
    for number in range(1, 11):
        results.append(session.step("node", node, number))
        done(number)
    session.complete()
else:
    saver = open_saver(url)
    config = CheckpointConfig(session_id)
    found = saver.get_tuple(config)
    results = found.checkpoint["results"] if found else []
    for number in range(len(results) + 1, 11):
        results.append(node(number))
        saver.put(config, {"results": results}, {"step": number})
        done(number)
print(*results, sep=",")
"""


@pytest.mark.row("S2-13")
@pytest.mark.parametrize("face", ["steps", "savers"])
def test_a_run_killed_after_node_six_goes_on_with_node_seven(
    url: str, tmp_path: Path, face: str
) -> None:
    ledger = tmp_path / "ledger"
    with SessionManager.open(url, workspace=False) as manager:
        session_id = "thread" if face == "savers" else manager.create_session("graph").id

    def run(stop_after: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", NODES, face, url, session_id, str(ledger), str(stop_after)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    assert run(6).returncode == -signal.SIGKILL
    assert ledger.read_text().split() == ["1", "2", "3", "4", "5", "6"]
    second = run(0)
    assert second.returncode == 0, second.stderr
    assert second.stdout.strip().split(",") == [f"result {number}" for number in range(1, 11)]
    assert ledger.read_text().split() == [str(number) for number in range(1, 11)]


def test_the_drill_notices_a_ledger_that_forgets(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the drill would miss it could not prove: without the record of the start it fails."""
    with SessionManager.open(url, workspace=False) as manager:
        begin: Callable[..., Any] = manager.store.begin_effect

        def forget(draft: Any) -> Any:
            found = begin(draft)
            if found.status == "started" and found.attempt_id != draft.attempt_id:
                return begin(replace(draft, instead_of=found.attempt_id))
            return found

        monkeypatch.setattr(manager.store, "begin_effect", forget)
        with pytest.raises(AssertionError):
            drill(manager, url, tmp_path, "body-after-effect", 2)
