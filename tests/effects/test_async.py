"""Steps whose bodies are awaited: the same records, and nothing in doubt after a cancellation."""

from __future__ import annotations

import asyncio
import functools
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.aio import AsyncSession, AsyncSessionManager
from holdfast.effects import Effect, Verdict
from holdfast.errors import DigestMismatch, EffectFailed, EffectUnknown
from holdfast.stores.base import Store

Scenario = Callable[[AsyncSessionManager, AsyncSession], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return cast("str", request.getfixturevalue("postgres_url"))
    return str(tmp_path / "sessions.db")


@pytest.fixture
def play(url: str) -> Callable[[Scenario], None]:
    """Runs a scenario with a manager and a fresh session in an event loop of its own."""

    async def played(scenario: Scenario) -> None:
        async with await AsyncSessionManager.open(url, workspace=False) as manager:
            await scenario(manager, await manager.create_session("payer"))

    return lambda scenario: asyncio.run(played(scenario))


async def statuses(session: AsyncSession) -> list[str]:
    return [one.status for one in await session.effects()]


def test_steps_that_run_at_once_find_their_own_records(play: Callable[[Scenario], None]) -> None:
    calls: list[int] = []

    async def pay(number: int) -> dict[str, int]:
        calls.append(number)
        await asyncio.sleep(0.001 * (7 - number))
        return {"number": number}

    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        first = await asyncio.gather(*(session.step("pay", pay, n) for n in range(8)))
        assert first == [{"number": n} for n in range(8)]
        again = await manager.resume_session(session.id)
        second = await asyncio.gather(*(again.step("pay", pay, n) for n in reversed(range(9))))
        assert second == [{"number": n} for n in reversed(range(9))]
        assert sorted(calls) == list(range(9))
        assert sorted(one.result["number"] for one in await again.effects()) == list(range(9))

    play(scenario)


def test_a_body_that_is_cancelled_is_unknown(play: Callable[[Scenario], None]) -> None:
    calls: list[str] = []

    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        begun = asyncio.Event()

        async def pay() -> str:
            calls.append("begun")
            begun.set()
            await asyncio.sleep(60)
            return "in vain"

        task = asyncio.create_task(session.step("pay", pay))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await statuses(session) == ["unknown"]
        for one in (session, await manager.resume_session(session.id)):
            with pytest.raises(EffectUnknown):
                await one.step("pay", pay)
        assert calls == ["begun"]

        async def look(effect: Effect) -> Verdict:
            await asyncio.sleep(0)
            return effect.happened("it was paid")

        found = await session.step("pay", pay, policy="ask", reconcile=look)  # type: ignore[arg-type]
        assert found == "it was paid"
        assert await statuses(session) == ["done"]

    play(scenario)


def test_a_timeout_inside_the_body_is_a_failure(play: Callable[[Scenario], None]) -> None:
    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        async def pay() -> None:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)

        with pytest.raises(TimeoutError):
            await session.step("pay", pay)
        with pytest.raises(EffectFailed):
            await session.step("pay", pay)

    play(scenario)


def test_a_blocking_body_is_finished_and_recorded_before_the_cancellation_goes_on(
    play: Callable[[Scenario], None],
) -> None:
    started, release = threading.Event(), threading.Event()

    def pay() -> str:
        started.set()
        assert release.wait(30)
        return "paid"

    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        task = asyncio.create_task(session.step("pay", pay))
        await asyncio.to_thread(started.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await statuses(session) == ["done"]
        again = await manager.resume_session(session.id)
        assert await again.step("pay", lambda: "twice") == "paid"

    play(scenario)


def test_a_step_that_is_cancelled_before_its_body_is_as_if_it_had_never_been(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    started, release = threading.Event(), threading.Event()
    calls: list[str] = []

    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        store = manager.store
        begin = store.begin_effect

        def slowly(draft: Any) -> Any:
            found = begin(draft)
            started.set()
            assert release.wait(30)
            return found

        async def pay() -> str:
            calls.append("paid")
            return "paid"

        with monkeypatch.context() as patch:
            patch.setattr(store, "begin_effect", slowly)
            task = asyncio.create_task(session.step("pay", pay))
            await asyncio.to_thread(started.wait, 30)
            task.cancel()
            await asyncio.sleep(0)
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert calls == []
        again = await manager.resume_session(session.id)
        assert await again.step("pay", pay) == "paid"
        assert calls == ["paid"]
        assert await statuses(session) == ["done"]

    play(scenario)


def test_a_cancellation_while_the_end_is_recorded_waits_for_it(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    started, release = threading.Event(), threading.Event()

    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        store: Store = manager.store
        finish = store.finish_effect

        def slowly(*args: Any, **kwargs: Any) -> bool:
            started.set()
            assert release.wait(30)
            return finish(*args, **kwargs)

        async def pay() -> str:
            return "paid"

        with monkeypatch.context() as patch:
            patch.setattr(store, "finish_effect", slowly)
            task = asyncio.create_task(session.step("pay", pay))
            await asyncio.to_thread(started.wait, 30)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await (await manager.resume_session(session.id)).step("pay", pay) == "paid"
        assert [one.attempts for one in await session.effects()] == [1]

    play(scenario)


async def cancel_in(
    store: Store, method: str, step: Callable[[], Awaitable[Any]], patch: pytest.MonkeyPatch
) -> None:
    """Cancel a step while its thread is in a method of the store, which still does its work."""
    started, release = threading.Event(), threading.Event()
    work = getattr(store, method)

    def slowly(*args: Any, **kwargs: Any) -> Any:
        found = work(*args, **kwargs)
        started.set()
        assert release.wait(30)
        return found

    with patch.context() as within:
        within.setattr(store, method, slowly)
        task = asyncio.ensure_future(step())
        await asyncio.to_thread(started.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestAUseThatIsCancelledIsNotOver:
    """Its caller got no result: the next call is the same effect again, never a second one."""

    @pytest.mark.parametrize("awaited", [False, True])
    @pytest.mark.parametrize("idempotent", [False, True])
    def test_when_its_body_has_ended(
        self,
        play: Callable[[Scenario], None],
        monkeypatch: pytest.MonkeyPatch,
        awaited: bool,
        idempotent: bool,
    ) -> None:
        calls: list[int] = []

        def pay(order: int) -> str:
            calls.append(order)
            return f"receipt {len(calls)}"

        async def pay_awaited(order: int) -> str:
            return pay(order)

        async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
            async def step() -> str:
                body: Callable[[int], Any] = pay_awaited if awaited else pay
                return cast("str", await session.step("pay", body, 7, idempotent=idempotent))

            await session.step("first", lambda: None, idempotent=True)
            end = "begin_effect" if idempotent else "finish_effect"
            await cancel_in(manager.store, end, step, monkeypatch)
            assert await step() == "receipt 1"
            assert calls == [7]
            assert await step() == "receipt 2"  # the first use is over now

        play(scenario)

    def test_when_it_was_replayed(
        self, play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []

        async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
            def pay() -> str:
                calls.append("paid")
                return f"receipt {len(calls)}"

            await session.step("pay", pay)
            again = await manager.resume_session(session.id)
            step = functools.partial(again.step, "pay", pay)
            await cancel_in(manager.store, "begin_effect", step, monkeypatch)
            assert await step() == "receipt 1"
            assert calls == ["paid"]

        play(scenario)

    def test_when_it_turned_out_to_have_happened(
        self, play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []

        async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
            def pay() -> None:
                calls.append("tried")
                raise ValueError("no answer")

            with pytest.raises(ValueError, match="no answer"):
                await session.step("pay", pay)

            def look(effect: Effect) -> Verdict:
                return effect.happened("receipt")

            step = functools.partial(session.step, "pay", pay, policy="ask", reconcile=look)
            await cancel_in(manager.store, "finish_effect", step, monkeypatch)
            assert await statuses(session) == ["done"]
            assert await step() == "receipt"
            assert calls == ["tried"]

        play(scenario)


@types.coroutine
def throw_away(step: Coroutine[Any, Any, Any], begun: asyncio.Event) -> Generator[Any, None, None]:
    """Run a step until its body has begun, and drop it there, as a loop that is closed does."""
    while not begun.is_set():
        waits_for = step.send(None)
        if not begun.is_set():
            yield waits_for
    step.close()


def test_a_step_that_is_thrown_away_is_unknown(play: Callable[[Scenario], None]) -> None:
    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        begun = asyncio.Event()

        async def pay() -> None:
            assert not begun.is_set(), "it runs a second time"
            begun.set()
            await asyncio.Event().wait()

        await throw_away(session.step("pay", pay), begun)
        with pytest.raises(EffectUnknown):
            await session.step("pay", pay)

    play(scenario)


def test_a_decorated_coroutine_is_awaited_as_before(play: Callable[[Scenario], None]) -> None:
    calls: list[Any] = []

    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        def declare(session: AsyncSession) -> tuple[Any, Any]:
            @session.effect
            async def charge(order: int, *, idempotency_key: str) -> str:
                calls.append(order)
                return idempotency_key

            @session.effect(key=lambda to: f"mail-{to}", idempotent=True)
            def mail(to: str) -> str:
                calls.append(to)
                return to

            return charge, mail

        charge, mail = declare(session)
        first = [await charge(1), await mail("ann")]
        charge, mail = declare(await manager.resume_session(session.id))
        assert [await charge(1), await mail("ann")] == first
        assert calls == [1, "ann"]

    play(scenario)


def test_steps_inside_an_awaited_step_are_met_again(play: Callable[[Scenario], None]) -> None:
    calls: list[str] = []

    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        fails = iter([True, False])

        async def inner(name: str) -> str:
            calls.append(name)
            return name

        async def outer() -> list[str]:
            found = await asyncio.gather(*(session.step("inner", inner, n) for n in ("a", "a")))
            if next(fails):
                raise ValueError("after the inner ones")
            return list(found)

        with pytest.raises(ValueError, match="inner"):
            await session.step("outer", outer)
        assert await session.step("outer", outer, policy="retry") == ["a", "a"]
        assert calls == ["a", "a"]

    play(scenario)


@pytest.mark.parametrize("awaited", [False, True])
def test_steps_inside_reconcile_belong_to_the_step(
    play: Callable[[Scenario], None], awaited: bool
) -> None:
    calls: list[str] = []

    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        def ask() -> int:
            calls.append("asked")
            return len(calls)

        def pay() -> None:
            raise ValueError("no answer")

        async def look(effect: Effect) -> Verdict:
            return effect.happened(await session.step("ask", ask))

        def look_blocking(effect: Effect) -> Verdict:
            return asyncio.run_coroutine_threadsafe(look(effect), loop).result(30)

        async def ask_the_bank() -> Any:
            reconcile: Any = look if awaited else look_blocking
            return await session.step("pay", pay, policy="ask", reconcile=reconcile)

        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="no answer"):
            await session.step("pay", pay)
        assert await ask_the_bank() == 1
        session = await manager.resume_session(session.id)
        assert await ask_the_bank() == 1
        assert await session.step("ask", ask) == 2

    play(scenario)


def test_any_number_of_blocking_bodies_may_wait_for_steps_of_their_own(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        loop = asyncio.get_running_loop()
        started = threading.Barrier(12)

        def body(number: int) -> int:
            started.wait(30)
            inner = session.step("inner", lambda: number)
            return asyncio.run_coroutine_threadsafe(inner, loop).result(30)

        assert await asyncio.gather(*(session.step("outer", body, n) for n in range(12))) == [
            *range(12)
        ]

    play(scenario)


@pytest.mark.parametrize("raised", [ValueError, asyncio.CancelledError])
def test_what_a_body_raised_is_told_though_its_manager_was_closed_meanwhile(
    play: Callable[[Scenario], None], raised: type[BaseException]
) -> None:
    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        async def body() -> None:
            await manager.close()
            raise raised("card declined")

        with pytest.raises(raised, match="card declined") as caught:
            await session.step("pay", body)
        assert "how the step 'pay' ended was not recorded" in caught.value.__notes__[0]

    play(scenario)


def test_the_error_of_a_guarded_block_is_told_though_its_manager_was_closed_meanwhile(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        async def guarded() -> None:
            async with session.guard("before"):
                await manager.close()
                raise ValueError("block")

        with pytest.raises(ValueError, match="block") as caught:
            await guarded()
        assert "it could not be rolled back" in caught.value.__notes__[0]

    play(scenario)


def test_a_damaged_result_keeps_no_other_effect_from_being_listed(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(manager: AsyncSessionManager, session: AsyncSession) -> None:
        await session.step("large", lambda: "x" * 5000)
        await session.step("small", lambda: 1)
        monkeypatch.setattr(manager.store, "read_chunks", lambda digests: {})
        large, small = await session.effects()
        monkeypatch.undo()
        assert (large.status, small.result) == ("done", 1)
        with pytest.raises(DigestMismatch):
            _ = large.result

    play(scenario)
