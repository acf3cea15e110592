"""Guards: success keeps, failure rolls back, and what failed is always told."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import CheckpointManager, SessionManager
from holdfast.errors import Escalated, IllegalTransition, InvalidIdentifier, VerdictFailed
from holdfast.manager import SyncCheckpointManager
from holdfast.sessions import Checkpoint
from holdfast.sessions.guarded import is_kept_for_guard
from tests.manager.conftest import files_of


class Broken(Exception):
    """What goes wrong in these tests."""


def spoil(project: Path) -> None:
    (project / "src" / "app.ts").write_text("spoilt\n")
    (project / "rubbish").write_text("x")


def fail(project: Path, error: BaseException) -> None:
    spoil(project)
    raise error


@pytest.mark.row("S4-14")
def test_success_keeps_the_work_and_the_checkpoint(
    project: Path, manager: SyncCheckpointManager
) -> None:
    with manager.guard("fine", description="will do") as saved:
        (project / "src" / "app.ts").write_text("better\n")
    assert (project / "src" / "app.ts").read_text() == "better\n"
    (listed,) = manager.list_checkpoints()
    assert listed == saved
    assert (saved.name, saved.description, saved.type) == ("fine", "will do", "automatic")


@pytest.mark.row("S4-14")
@pytest.mark.parametrize("error", [Broken("no"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_an_exception_rolls_back_and_goes_on(
    project: Path, manager: SyncCheckpointManager, error: BaseException
) -> None:
    before = files_of(project)
    guard = manager.guard("risky")
    with pytest.raises(type(error)) as raised, guard:
        fail(project, error)
    assert raised.value is error
    assert files_of(project) == before
    assert guard.rolled_back is not None
    assert guard.rolled_back.paths == ["rubbish", "src/app.ts"]
    manager.undo()
    assert (project / "rubbish").exists()


@pytest.mark.row("S4-14")
def test_blocks_and_functions_of_asyncio_are_guarded_alike(project: Path) -> None:
    before = files_of(project)

    async def scenario() -> None:
        manager = CheckpointManager(project)

        @manager.guard("function")
        async def risky(text: str) -> str:
            spoil(project)
            if text != "fine":
                raise Broken(text)
            return text

        with pytest.raises(Broken):
            async with manager.guard("block"):
                fail(project, Broken())
        assert files_of(project) == before
        with pytest.raises(Broken):
            await risky("bad")
        assert files_of(project) == before
        task = asyncio.create_task(cancelled(manager))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert files_of(project) == before
        assert await risky("fine") == "fine"
        assert (project / "rubbish").exists()
        await manager.close()

    started = asyncio.Event()

    async def cancelled(manager: CheckpointManager) -> None:
        async with manager.guard("cancelled"):
            spoil(project)
            started.set()
            await asyncio.sleep(60)

    asyncio.run(scenario())


@pytest.mark.row("S4-14")
def test_a_verdict_rolls_back_what_raised_nothing(
    project: Path, manager: SyncCheckpointManager
) -> None:
    before = files_of(project)
    with pytest.raises(VerdictFailed, match="tests"), manager.guard("tests", verdict=lambda: False):
        spoil(project)
    assert files_of(project) == before

    @manager.guard("judged", verdict=lambda result: result > 1)
    def work(number: int) -> int:
        spoil(project)
        return number

    with pytest.raises(VerdictFailed):
        work(1)
    assert files_of(project) == before
    assert work(2) == 2
    assert (project / "rubbish").exists()

    async def scenario() -> None:
        async def verdict() -> bool:
            return False

        twin = CheckpointManager(project)
        (project / "more").write_text("x")
        later = files_of(project)
        with pytest.raises(VerdictFailed):
            async with twin.guard("async", verdict=verdict):
                (project / "more").unlink()
        assert files_of(project) == later
        await twin.close()

    asyncio.run(scenario())
    with pytest.raises(InvalidIdentifier, match="async"), manager.guard("x", verdict=_later):
        pass


async def _later() -> bool:
    return True


@pytest.mark.row("S4-14")
def test_when_rolling_back_fails_too_both_errors_are_told(
    project: Path, manager: SyncCheckpointManager
) -> None:
    def lock_and_fail() -> None:
        (project / "src" / "app.ts").write_text("x\n")
        (project / ".git" / "index.lock").write_text("")
        raise Broken("the first")

    with pytest.raises(Broken, match="the first") as raised, manager.guard("doomed"):
        lock_and_fail()
    (note,) = raised.value.__notes__
    assert "could not be rolled back" in note
    assert "index.lock" in note
    (project / ".git" / "index.lock").unlink()
    assert manager.rollback_to_latest().paths == ["src/app.ts"]


def test_guards_within_a_guard_do_not_cost_the_outer_one_its_way_back(
    project: Path, manager: SyncCheckpointManager
) -> None:
    before = files_of(project)

    def many_guards() -> None:
        for number in range(6):
            with manager.guard(f"inner-{number}"):
                pass
        fail(project, Broken())

    with pytest.raises(Broken), manager.guard("outer"):
        many_guards()
    assert files_of(project) == before


def test_a_guard_keeps_its_files_over_its_attempts(
    project: Path, manager: SyncCheckpointManager
) -> None:
    before = files_of(project)
    attempts: list[str] = []

    @manager.guard("outer", on_failure=lambda _: "retry", attempts=2)
    def work() -> None:
        attempts.append((project / "src" / "app.ts").read_text())
        for number in range(7):
            (project / "src" / "app.ts").write_text(f"spoilt {number}\n")
            manager.end_session()
        with SessionManager.open(project_dir=project) as other:
            other.gc()
        raise Broken

    with pytest.raises(Broken):
        work()
    assert len(set(attempts)) == 1
    assert files_of(project) == before


def test_a_guard_protects_one_block_at_a_time(manager: SyncCheckpointManager) -> None:
    guard = manager.guard("one")
    with guard, pytest.raises(IllegalTransition), guard:
        pass
    with pytest.raises(InvalidIdentifier):
        manager.guard("x", attempts=0)


@pytest.mark.parametrize("kind", ["block", "function"])
def test_a_guard_that_is_cancelled_before_it_protects_anything_keeps_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    saving = threading.Event()
    saved: list[Checkpoint] = []
    save_guarded = SyncCheckpointManager.save_guarded

    def slow(*args: Any) -> Checkpoint:
        saving.set()
        time.sleep(0.2)
        saved.append(save_guarded(*args))
        return saved[-1]

    async def scenario() -> None:
        async with CheckpointManager(project) as manager:
            guard = manager.guard("risky")

            async def block() -> None:
                async with guard:
                    spoil(project)

            @guard
            async def function() -> None:
                spoil(project)

            task = asyncio.create_task(block() if kind == "block" else function())
            await asyncio.to_thread(saving.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not is_kept_for_guard(saved[0].id)
            for number in range(5):
                await manager.create_checkpoint(f"{number}", type="automatic")
            listed = await manager.list_checkpoints(type="automatic")
            assert [one.name for one in listed] == ["4", "3", "2", "1", "0"]
            monkeypatch.undo()
            async with guard:
                pass

    monkeypatch.setattr(SyncCheckpointManager, "save_guarded", slow)
    before = files_of(project)
    asyncio.run(scenario())
    assert files_of(project) == before


@pytest.mark.row("S4-14")
def test_ctrl_c_rolls_back_a_real_process(project: Path) -> None:
    before = files_of(project)
    program = (
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "from holdfast.manager import SyncCheckpointManager\n"
        "manager = SyncCheckpointManager(sys.argv[1])\n"
        "with manager.guard('risky'):\n"
        "    Path(sys.argv[1], 'rubbish').write_text('x')\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(project)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors
    assert process.returncode != 0
    assert files_of(project) == before


def failing(project: Path, times: int) -> tuple[list[bool], Callable[[], str]]:
    """A function that fails so many times, and whether it found a clean project each time."""
    clean: list[bool] = []

    def work() -> str:
        clean.append(not (project / "rubbish").exists())
        spoil(project)
        if len(clean) <= times:
            raise Broken(f"attempt {len(clean)}")
        return "done"

    return clean, work


@pytest.mark.row("S4-27")
def test_retry_runs_again_from_the_same_state(
    project: Path, manager: SyncCheckpointManager
) -> None:
    clean, work = failing(project, 1)
    asked: list[BaseException] = []

    def on_failure(error: BaseException) -> Any:
        asked.append(error)
        return "retry"

    assert manager.guard("again", on_failure=on_failure)(work)() == "done"
    assert clean == [True, True]
    assert [str(error) for error in asked] == ["attempt 1"]
    (project / "rubbish").unlink()
    before = files_of(project)
    clean, work = failing(project, 9)
    with pytest.raises(Broken, match="attempt 2") as raised:
        manager.guard("again", on_failure=on_failure, attempts=2)(work)()
    assert "last of 2 attempts" in raised.value.__notes__[0]
    assert files_of(project) == before


@pytest.mark.row("S4-27")
def test_skip_goes_on_as_if_nothing_had_been_tried(project: Path) -> None:
    before = files_of(project)
    with SyncCheckpointManager(project, on_failure=lambda error: "skip") as manager:
        with manager.guard("block"):
            spoil(project)
            raise Broken
        assert files_of(project) == before
        _, work = failing(project, 1)
        assert manager.guard("function")(work)() is None
        assert files_of(project) == before
        with pytest.raises(KeyboardInterrupt), manager.guard("interrupted"):
            raise KeyboardInterrupt


@pytest.mark.row("S4-27")
def test_escalate_rolls_back_and_reports(project: Path) -> None:
    before = files_of(project)

    async def strategy(error: BaseException) -> Any:
        return "escalate"

    async def scenario() -> Escalated:
        manager = CheckpointManager(project)
        with pytest.raises(Escalated) as raised:
            async with manager.guard("hard", on_failure=strategy):
                fail(project, Broken("too hard"))
        await manager.close()
        return raised.value

    error = asyncio.run(scenario())
    assert files_of(project) == before
    assert isinstance(error.__cause__, Broken)
    assert error.report["error"]["message"] == "too hard"
    assert error.report["checkpoint"]["name"] == "hard"
    assert {one["path"] for one in error.report["rollback"]["changes"]} == {"rubbish", "src/app.ts"}
    assert error.exit_code != 0


@pytest.mark.row("S4-27")
@pytest.mark.parametrize("message", ["caf\udce9", "a\0b"], ids=ascii)
def test_escalate_logs_a_message_that_has_no_stored_form(
    project: Path, manager: SyncCheckpointManager, message: str
) -> None:
    before = files_of(project)
    with (
        pytest.raises(Escalated) as raised,
        manager.guard("hard", on_failure=lambda _: "escalate"),
    ):
        fail(project, Broken(message))
    assert files_of(project) == before
    assert not hasattr(raised.value, "__notes__")
    with SessionManager.open(project_dir=project) as sessions:
        lines = sessions.get_session(manager.session_id).logs(level="error")
    assert lines[-1].message == f"escalated: Broken: {raised.value.report['error']['message']}"


@pytest.mark.row("S4-27")
def test_escalate_calls_for_help_also_when_the_store_is_what_is_broken(project: Path) -> None:
    manager = SyncCheckpointManager(project)

    @manager.guard("hard", on_failure=lambda _: "escalate")
    def work() -> None:
        manager.close()
        fail(project, Broken("too hard"))

    with pytest.raises(Escalated, match="NOT rolled back") as raised:
        work()
    assert raised.value.report["checkpoint"]["name"] == "hard"
    assert "could not be logged" in raised.value.__notes__[0]
    assert isinstance(raised.value.__cause__, Broken)


@pytest.mark.row("S4-27")
@pytest.mark.parametrize("answer", ["shrug", None, Broken("the strategy")], ids=str)
def test_a_strategy_that_makes_no_sense_is_a_rollback_with_a_note(
    project: Path, manager: SyncCheckpointManager, answer: Any
) -> None:
    def on_failure(error: BaseException) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    before = files_of(project)
    with (
        pytest.raises(Broken, match="first") as raised,
        manager.guard("x", on_failure=on_failure),
    ):
        fail(project, Broken("first"))
    assert "on_failure could not tell" in raised.value.__notes__[0]
    assert files_of(project) == before


async def _items() -> AsyncIterator[int]:
    yield 1


@pytest.mark.row("S4-14")
@pytest.mark.parametrize("function", [lambda: (yield), _items], ids=["plain", "async"])
def test_a_generator_function_is_refused_since_its_body_runs_after_the_call(
    manager: SyncCheckpointManager, function: Callable[..., Any]
) -> None:
    with pytest.raises(InvalidIdentifier, match="generator function"):
        manager.guard("items")(function)
    assert manager.list_checkpoints() == []


@pytest.mark.row("S4-14")
@pytest.mark.parametrize("answer", ["skip", "retry"])
def test_work_that_would_run_after_the_guard_is_stopped_and_refused(
    project: Path, manager: SyncCheckpointManager, answer: Any
) -> None:
    started = []

    async def later() -> None:
        started.append("by nobody")

    @manager.guard("wrapped", on_failure=lambda _: answer, verdict=lambda _: True)
    def work() -> Any:
        spoil(project)
        return later()

    @manager.guard("scheduled", on_failure=lambda _: answer)
    def schedule() -> Any:
        return asyncio.get_running_loop().create_task(later())

    async def scenario() -> None:
        with pytest.raises(InvalidIdentifier, match="async def"):
            schedule()

    before = files_of(project)
    with pytest.raises(InvalidIdentifier, match="async def"):
        work()
    asyncio.run(scenario())
    assert files_of(project) == before
    assert started == []


@pytest.mark.row("S4-14")
@pytest.mark.parametrize("kind", ["block", "function"])
def test_nobody_has_to_wait_for_a_strategy_to_have_it_rolled_back(
    project: Path, manager: SyncCheckpointManager, kind: str
) -> None:
    before = files_of(project)

    def interrupted(error: BaseException) -> Any:
        raise KeyboardInterrupt

    guard = manager.guard("asked", on_failure=interrupted)

    def block() -> None:
        with guard:
            fail(project, Broken("first"))

    guarded = block if kind == "block" else guard(partial(fail, project, Broken("first")))
    with pytest.raises(KeyboardInterrupt):
        guarded()
    assert files_of(project) == before

    async def scenario() -> None:
        asked = asyncio.Event()

        async def think(error: BaseException) -> Any:
            asked.set()
            await asyncio.sleep(60)

        async with CheckpointManager(project) as twin:
            guard = twin.guard("asked", on_failure=think)

            async def work() -> None:
                fail(project, Broken("first"))

            async def block() -> None:
                async with guard:
                    await work()

            task = asyncio.create_task(block() if kind == "block" else guard(work)())
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(scenario())
    assert files_of(project) == before
