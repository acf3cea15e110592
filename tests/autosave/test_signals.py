"""Real signals to real processes: everything is saved, and then happens what would have happened."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from types import FrameType

import pytest

from holdfast.sessions import Session
from tests.autosave.conftest import RunAgent, events, reopened

ENDING = [signal.SIGTERM, signal.SIGHUP]

COUNTING = """
with session.autosave(lambda: dict(state)) as saver:
    say("ready")
    while True:
        state["n"] += 1
        say(state["n"])
"""

WAITING = """
with session.autosave(lambda: dict(state)) as saver:
    state["n"] = 1
    say("ready")
    wait()
"""


@pytest.mark.row("S1-15")
@pytest.mark.parametrize("signum", ENDING, ids=lambda one: one.name)
def test_a_signal_saves_what_the_program_had_come_to_and_ends_it(
    run_agent: RunAgent, project: Path, database: Path, signum: signal.Signals
) -> None:
    agent = run_agent(COUNTING)
    agent.expect("ready")
    for _ in range(100):
        last = agent.line()
    agent.signal(signum)
    status, rest, errors = agent.end()
    assert (status, errors) == (-signum, "")
    last = (rest or [last])[-1]
    with reopened(project, database) as session:
        saved = session.latest_checkpoint()
        assert saved.metadata == {"event": "signal", "signal": signum.name}
        # A number is counted before it is said, and the signal may come in between.
        assert saved.state["n"] - int(last) in (0, 1)
        assert session.status == "paused"
        assert session.record.pause_reason == signum.name
        # Another machine need not wait until a lease expires.
        assert session.record.lease_owner is None


@pytest.mark.row("S1-15")
def test_ctrl_c_saves_and_is_still_a_keyboard_interrupt(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        "try:\n    with session.autosave(lambda: dict(state)):\n"
        "        state['n'] = 1\n        say('ready')\n        wait()\n"
        "except KeyboardInterrupt:\n    say('interrupted')\n    sys.exit(7)\n"
    )
    agent.expect("ready")
    agent.signal(signal.SIGINT)
    assert agent.end() == (7, ["interrupted"], "")
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 1}
        assert session.status == "paused"


@pytest.mark.row("S1-15")
def test_an_unhandled_ctrl_c_ends_the_process_as_it_would_have(run_agent: RunAgent) -> None:
    agent = run_agent(WAITING)
    agent.expect("ready")
    agent.signal(signal.SIGINT)
    status, _, errors = agent.end()
    assert status == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.row("T6")
def test_ctrl_c_leaves_the_session_paused_with_two_handlers(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
def theirs(signum, frame):
    say("theirs")
    signal.default_int_handler(signum, frame)

signal.signal(signal.SIGINT, theirs)
try:
    with session.autosave(lambda: dict(state)):
        with session.autosave(lambda: dict(state)):
            state["n"] = 1
            say("ready")
            wait()
finally:
    say(session.status)
    assert signal.getsignal(signal.SIGINT) is theirs
"""
    )
    agent.expect("ready")
    agent.signal(signal.SIGINT)
    status, rest, _ = agent.end()
    assert (status, rest) == (-signal.SIGINT, ["theirs", "paused"])
    with reopened(project, database) as session:
        assert session.status == "paused"
        assert session.latest_checkpoint().state == {"n": 1}


@pytest.mark.row("S1-15")
@pytest.mark.parametrize("signum", [signal.SIGINT, *ENDING], ids=lambda one: one.name)
def test_a_handler_that_was_there_is_called_once_and_decides(
    run_agent: RunAgent, project: Path, database: Path, signum: signal.Signals
) -> None:
    agent = run_agent(
        f"""
def theirs(received, frame):
    # What they see is stored already.
    say(signal.Signals(received).name, session.latest_checkpoint().state["n"])
    sys.exit(3)

signal.signal({int(signum)}, theirs)
{WAITING}
"""
    )
    agent.expect("ready")
    agent.signal(signum)
    assert agent.end() == (3, [f"{signum.name} 1"], "")
    with reopened(project, database) as session:
        assert events(session) == ["signal"]


def test_a_program_that_survives_the_signal_goes_on(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
with session.autosave(lambda: dict(state)) as saver:
    for n in (1, 2):
        state["n"] = n
        try:
            say("ready")
            wait()
        except KeyboardInterrupt:
            say(session.refresh().status)
    state["n"] = 3
    saver.flush()
    say(session.refresh().status)
    signal.raise_signal(signal.SIGTERM)
"""
    )
    for _ in range(2):
        agent.expect("ready")
        agent.signal(signal.SIGINT)
        agent.expect("paused")
    agent.expect("active")
    assert agent.end()[0] == -signal.SIGTERM
    with reopened(project, database) as session:
        assert [one.state["n"] for one in reversed(session.list_checkpoints())] == [1, 2, 3]
        assert session.status == "paused"


def test_a_program_pauses_its_session_when_it_is_interrupted(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
with session.autosave(lambda: dict(state)):
    state["n"] = 1
    try:
        say("ready")
        wait()
    except KeyboardInterrupt:
        session.pause("the user has to approve")
        say(session.is_held)
        sys.exit(4)
"""
    )
    agent.expect("ready")
    agent.signal(signal.SIGINT)
    assert agent.end() == (4, ["False"], "")
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 1}
        assert (session.status, session.record.pause_reason) == (
            "paused",
            "the user has to approve",
        )
        assert session.record.lease_owner is None


def test_an_interrupt_that_goes_on_from_a_session_given_back_is_no_failure(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
try:
    with session.autosave(lambda: dict(state)):
        try:
            say("ready")
            wait()
        finally:
            session.pause("lunch")
except KeyboardInterrupt:
    sys.exit(4)
"""
    )
    agent.expect("ready")
    agent.signal(signal.SIGINT)
    assert agent.end() == (4, [], "")
    with reopened(project, database) as session:
        assert (session.status, session.record.pause_reason) == ("paused", "lunch")
        assert [one.level for one in session.logs()] == ["info"] * len(session.logs())


def test_a_save_by_hand_after_the_signal_makes_the_session_active(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
with session.autosave(lambda: dict(state)):
    try:
        say("ready")
        wait()
    except KeyboardInterrupt:
        say(session.refresh().status)
    session.save_checkpoint("by hand", state=state)
    say(session.refresh().status)
"""
    )
    agent.expect("ready")
    agent.signal(signal.SIGINT)
    assert agent.end() == (0, ["paused", "active"], "")
    with reopened(project, database) as session:
        assert session.status == "active"


def test_a_signal_during_a_save_of_the_program_itself_waits_for_it(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
with session.autosave(lambda: dict(state), interval=None):
    say("ready")
    while True:
        # The main thread holds the session's lock much of the time.
        state["n"] += 1
        session.save_checkpoint(state=state, retention_class="step")
        say(state["n"])
        time.sleep(0.01)
"""
    )
    agent.expect("ready")
    for _ in range(3):
        last = agent.line()
    agent.signal(signal.SIGTERM)
    status, rest, errors = agent.end()
    assert (status, errors) == (-signal.SIGTERM, "")
    last = (rest or [last])[-1]
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state["n"] - int(last) in (0, 1)
        assert session.status == "paused"


def test_a_provider_that_needs_a_lock_of_the_main_thread_is_not_waited_for_in_vain(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
lock = threading.Lock()

def get_state():
    with lock:
        return dict(state)

with session.autosave(get_state, interval=None):
    with lock:
        state["n"] = 1
        say("ready")
        sys.stdin.readline()
        state["n"] = 2
    wait()
"""
    )
    agent.expect("ready")
    agent.signal(signal.SIGTERM)
    assert agent.process.stdin is not None
    agent.process.stdin.write("go on\n")
    agent.process.stdin.flush()
    assert agent.end()[0] == -signal.SIGTERM
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 2}


def test_a_provider_that_hangs_does_not_hold_up_the_end(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
session.save_checkpoint("by-hand", state={"n": 1})

def get_state():
    say("asked")
    threading.Event().wait()

with session.autosave(get_state, timeout=0.5):
    say("ready")
    wait()
"""
    )
    agent.expect("ready")
    agent.signal(signal.SIGTERM)
    agent.expect("asked")
    status, _, errors = agent.end()
    assert status == -signal.SIGTERM
    assert "the provider has not ended after 0.5 s" in errors
    with reopened(project, database) as session:
        assert session.latest_checkpoint().name == "by-hand"
        assert [one.level for one in session.logs()] == ["error"]


@pytest.mark.row("S1-15")
def test_children_are_ended_gently_then_for_good(run_agent: RunAgent) -> None:
    agent = run_agent(
        """
gentle = subprocess.Popen(["sleep", "600"])
stubborn = subprocess.Popen(
    [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); "
     "print('deaf', flush=True); time.sleep(600)"], stdout=subprocess.PIPE)
stubborn.stdout.readline()
with session.autosave(lambda: dict(state), child_grace=0.2) as saver:
    saver.register_child(gentle)
    saver.register_child(stubborn.pid)
    say(gentle.pid, stubborn.pid)
    wait()
"""
    )
    pids = [int(word) for word in agent.line().split()]
    agent.signal(signal.SIGTERM)
    assert agent.end()[0] == -signal.SIGTERM
    for pid in pids:
        assert not is_running(pid)


@pytest.mark.row("S1-15")
def test_a_normal_end_without_leaving_the_block_saves_too(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
saver = session.autosave(lambda: dict(state)).start()
state["n"] = 5
sys.exit(4)
"""
    )
    assert agent.end() == (4, [], "")
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 5}
        assert session.status == "active"


@pytest.mark.row("S1-15")
@pytest.mark.parametrize(
    ("leaving", "status"), [("sys.exit(9)", 9), ("raise ValueError", 1), ("pass", 0)]
)
def test_the_exit_code_is_kept(
    run_agent: RunAgent, project: Path, database: Path, leaving: str, status: int
) -> None:
    agent = run_agent(f"with session.autosave(lambda: dict(state)):\n    {leaving}\n")
    assert agent.end()[0] == status
    with reopened(project, database) as session:
        assert events(session) == ["exit"]


def test_what_was_saved_by_itself_survives_sigkill(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
with session.autosave(lambda: dict(state), interval=0.05) as saver:
    state["n"] = 1
    while saver.last_checkpoint is None:
        time.sleep(0.01)
    say("saved")
    wait()
"""
    )
    agent.expect("saved")
    agent.signal(signal.SIGKILL)
    agent.end()
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 1}
        assert session.latest_checkpoint().metadata == {"event": "interval"}


def test_a_forked_child_neither_saves_nor_ends_anything(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    agent = run_agent(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
sleeper = subprocess.Popen(["sleep", "600"])
with session.autosave(lambda: dict(state), interval=None) as saver:
    saver.register_child(sleeper)
    for ending in ("sys.exit", "notify", "signal"):
        child = os.fork()
        if child == 0:
            state["n"] = 100
            if ending == "notify":
                assert saver.notify("task_completed") is None
                os._exit(0)
            if ending == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
                wait()
            sys.exit(0)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    say(sleeper.poll())
    state["n"] = 1
say(sleeper.poll())
"""
    )
    status, said, errors = agent.end()
    assert (status, said) == (0, ["0", "0", "-15", "None", "-15"])
    assert "not in a forked child" in errors
    with reopened(project, database) as session:
        assert [one.state for one in session.list_checkpoints()] == [{"n": 1}]


@pytest.mark.row("S1-15")
def test_handlers_are_as_they_were_after_the_block(session: Session) -> None:
    before = [signal.getsignal(signum) for signum in (signal.SIGINT, *ENDING)]
    first, second = session.autosave(dict), session.autosave(dict)
    first.start()
    inside = [signal.getsignal(signum) for signum in (signal.SIGINT, *ENDING)]
    second.start()
    first.stop()
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, *ENDING)] == inside != before
    second.stop()
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, *ENDING)] == before
    with session.autosave(dict, signals=False):
        assert [signal.getsignal(signum) for signum in (signal.SIGINT, *ENDING)] == before


def test_an_ignored_signal_stays_ignored(session: Session) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with session.autosave(dict):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_installs_no_handlers(session: Session) -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work() -> None:
        with session.autosave(lambda: {"n": 1}):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
    assert events(session) == ["exit"]


def test_a_handler_that_was_installed_later_is_left_alone(session: Session) -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda signum, frame: calls.append(signum))
    try:
        saver = session.autosave(lambda: {"n": 1}).start()
        ours = signal.getsignal(signal.SIGHUP)
        assert callable(ours)

        def later(signum: int, frame: FrameType | None) -> None:
            ours(signum, frame)

        signal.signal(signal.SIGHUP, later)
        saver.stop()
        assert signal.getsignal(signal.SIGHUP) is later
        signal.raise_signal(signal.SIGHUP)
        assert calls == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)


def is_running(pid: int) -> bool:
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(shown.stdout.strip()) and not shown.stdout.strip().startswith("Z")


def test_this_test_tells_a_running_process() -> None:
    assert is_running(os.getpid())
