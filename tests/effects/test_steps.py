"""Steps run once: replayed when done, refused when unknown, and each finds its own record."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Session, SessionManager
from holdfast.effects import Effect, Verdict
from holdfast.errors import (
    ArgumentsNotFingerprintable,
    DigestMismatch,
    EffectFailed,
    EffectMismatch,
    EffectRunning,
    EffectSuperseded,
    EffectUnknown,
    HoldfastError,
    IllegalTransition,
    InputError,
    InvalidStep,
    LeaseLost,
    ResultNotStorable,
    StateNotSerializable,
    StoreBusy,
)
from holdfast.model import Payload
from holdfast.state import StateEncoder
from holdfast.stores.memory import MemoryStore

Reopen = Callable[[], SessionManager]


class Cut(BaseException):
    """What ends a program from outside, as KeyboardInterrupt does."""


class World:
    """What bodies change: every call leaves a trace."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def act(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((*args, *kwargs.values()))
        return {"number": len(self.calls), "args": list(args)}

    def fail(self, *args: Any) -> None:
        self.calls.append(args)
        raise ValueError("no \0 money \udcff")

    def stop(self, *args: Any) -> None:
        self.calls.append(args)
        raise Cut


@pytest.fixture
def world() -> World:
    return World()


class TestReplay:
    def test_a_finished_step_is_replayed_in_another_run(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        first = session.step("charge-card", world.act, {"order": 7}, amount=5)
        again = reopen().resume_session(session.id)
        assert again.step("charge-card", world.act, {"order": 7}, amount=5) == first
        assert world.calls == [({"order": 7}, 5)]
        [effect] = again.effects()
        assert (effect.name, effect.status, effect.attempts) == ("charge-card", "done", 1)
        assert effect.result == first
        assert effect.finished_at is not None
        assert effect.started_at <= effect.finished_at

    @pytest.mark.parametrize(
        "result",
        [
            None,
            (1, [2.5, -0.0], {"nested": (Decimal("1.10"), {b"bytes"})}),
            datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
            "NUL \0 and ü",
            {"$t": "tuple", "v": [1]},
            10**30,
        ],
        ids=["none", "nested", "datetime", "text", "tag", "integer"],
    )
    def test_a_result_comes_back_exactly(
        self, manager: SessionManager, reopen: Reopen, result: Any
    ) -> None:
        session = manager.create_session("payer")
        assert session.step("make", lambda: result) == result
        found = reopen().resume_session(session.id).step("make", lambda: "run again")
        assert found == result
        assert type(found) is type(result)

    def test_a_large_result_is_kept_from_a_sweep(
        self, manager: SessionManager, reopen: Reopen
    ) -> None:
        session = manager.create_session("payer")
        large = {"text": "x" * 300_000, "rows": [{"n": n} for n in range(3000)]}
        assert session.step("make", lambda: large) == large
        assert manager.gc().chunks == 0
        assert reopen().resume_session(session.id).step("make", lambda: None) == large
        manager.delete_session(session.id)
        assert manager.store.total_bytes() == 0

    def test_the_first_run_returns_what_a_replay_returns(self, manager: SessionManager) -> None:
        @dataclass
        class Receipt:
            amount: int
            text: str

        session = manager.create_session("payer")
        found: Any = session.step("pay", lambda: Receipt(5, "y" * 2000))
        assert found == {"amount": 5, "text": "y" * 2000}

    def test_uses_of_the_same_step_are_counted(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        numbers = [session.step("beep", world.act)["number"] for _ in range(3)]
        assert numbers == [1, 2, 3]
        again = reopen().resume_session(session.id)
        replayed = [again.step("beep", world.act)["number"] for _ in range(4)]
        assert replayed == [1, 2, 3, 4]
        assert len(world.calls) == 4

    def test_a_key_names_one_effect_however_often_it_is_used(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        one = session.step("charge", world.act, 1, key="order-1")
        assert session.step("charge", world.act, 1, key="order-1") == one
        assert session.step("charge", world.act, 1, key="order-2") != one
        assert len(world.calls) == 2

    def test_taking_up_a_checkpoint_meets_the_recorded_effects_again(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        session.save_checkpoint("before", state={"n": 1})
        first = session.step("charge", world.act, 1)
        session.load_checkpoint("before")
        assert session.step("charge", world.act, 1) == first
        assert len(world.calls) == 1

    def test_a_rollback_does_not_take_back_what_was_done(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        session.save_checkpoint("before", state={"n": 1})
        first = session.step("charge", world.act, 1)
        session.rollback("before")
        assert session.step("charge", world.act, 1) == first
        session.undo()
        assert session.step("charge", world.act, 1) == first
        assert len(world.calls) == 1

    def test_a_guarded_block_can_be_repeated(self, manager: SessionManager, world: World) -> None:
        session = manager.create_session("payer")
        for attempt in range(3):
            try:
                with session.guard("risky"):
                    session.step("charge", world.act, 1)
                    if attempt < 2:
                        raise ValueError("after the charge")
            except ValueError:
                continue
        assert len(world.calls) == 1

    def test_a_guarded_block_in_a_body_can_be_repeated(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")

        def outer() -> None:
            for attempt in range(3):
                with suppress(ValueError), session.guard("risky"):
                    session.step("charge", world.act, 1)
                    if attempt < 2:
                        raise ValueError("after the charge")

        session.step("outer", outer)
        assert len(world.calls) == 1

    def test_taking_up_a_checkpoint_in_a_body_meets_its_steps_again(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        session.save_checkpoint("before", state={"n": 1})

        def inner() -> list[Any]:
            first = session.step("charge", world.act, 1)
            session.load_checkpoint("before")
            return [first, session.step("charge", world.act, 1)]

        def outer() -> list[Any]:
            found = session.step("inner", inner)
            return [*found, session.step("charge", world.act, 1)]

        first, second, third = session.step("outer", outer)
        assert first == second
        assert third["number"] == 2
        assert len(world.calls) == 2

    def test_a_step_that_runs_while_a_checkpoint_is_taken_up_is_not_run_a_second_time(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        session.save_checkpoint("before", state={"n": 1})
        started, release = threading.Event(), threading.Event()

        def slow() -> str:
            started.set()
            assert release.wait(30)
            return "done"

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(session.step, "charge", slow)
            try:
                assert started.wait(30)
                session.load_checkpoint("before")
                with pytest.raises(EffectRunning, match="'charge' is running"):
                    session.step("charge", world.act)
            finally:
                release.set()
            assert running.result(30) == "done"
        assert session.step("charge", world.act) == "done"
        assert session.step("charge", world.act) == {"number": 1, "args": []}

    def test_a_fork_has_done_nothing_yet(self, manager: SessionManager, world: World) -> None:
        session = manager.create_session("payer")
        session.step("charge", world.act, 1)
        session.save_checkpoint("here", state={"n": 1})
        fork = session.fork("here")
        assert fork.effects() == []
        fork.step("charge", world.act, 1)
        assert len(world.calls) == 2
        assert [len(one.effects()) for one in (session, fork)] == [1, 1]

    def test_a_completed_session_takes_no_step(self, manager: SessionManager, world: World) -> None:
        session = manager.create_session("payer")
        session.complete()
        with pytest.raises(IllegalTransition):
            session.step("charge", world.act)
        assert world.calls == []


class TestIdentity:
    def test_steps_find_their_records_in_whatever_order_they_come(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        first = {n: session.step("charge", world.act, {"order": n}) for n in range(5)}
        again = reopen().resume_session(session.id)
        # Number 9 was never reached: it runs, and takes nobody's record.
        assert again.step("charge", world.act, {"order": 9})["number"] == 6
        assert {n: again.step("charge", world.act, {"order": n}) for n in (3, 0, 4, 2, 1)} == first
        assert len(world.calls) == 6

    @pytest.mark.row("B1")
    def test_the_same_key_with_other_arguments_is_an_error(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        first = session.step("charge", world.act, 5, key="order-1")
        again = reopen().resume_session(session.id)
        for options in ({}, {"policy": "retry"}, {"idempotent": True}):
            with pytest.raises(EffectMismatch, match="order-1"):
                again.step("charge", world.act, 6, key="order-1", **options)
            with pytest.raises(EffectMismatch, match="order-1"):
                again.step("refund", world.act, 5, key="order-1", **options)
        assert len(world.calls) == 1
        assert again.step("charge", world.act, 5, key="order-1") == first

    def test_an_argument_without_a_stored_form_needs_a_key(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        client = object()
        with pytest.raises(ArgumentsNotFingerprintable, match="key=") as caught:
            session.step("call", world.act, {"tools": [1, client]})
        assert caught.value.path == "$.args[0].tools[1]"
        assert isinstance(caught.value, InputError)
        assert (world.calls, session.effects()) == ([], [])
        session.step("call", lambda given: 1, client, key="call-1")
        assert session.step("call", world.act, client, key="call-1") == 1

    def test_equal_arguments_are_the_same_step(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        first = session.step("a", world.act, {"x": 1, "y": [(1, 2), 10**20]}, b=1, c=2)
        again = reopen().resume_session(session.id)
        assert again.step("a", world.act, {"y": [(1, 2), 10**20], "x": 1}, c=2, b=1) == first
        for other in ({"x": 1.0, "y": [(1, 2), 10**20]}, {"x": 1, "y": [[1, 2], 10**20]}):
            assert again.step("a", world.act, other, b=1, c=2) != first

    def test_what_a_partial_binds_is_part_of_the_arguments(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        bound = [partial(partial(world.act, n), 0) for n in range(3)]
        first = [session.step("a", one) for one in bound]
        again = reopen().resume_session(session.id)
        assert [again.step("a", one) for one in reversed(bound)] == first[::-1]
        assert again.step("a", world.act, 1, 0) != first[1], "one more use of the same step"

    def test_many_threads_keep_their_identity(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        numbers = list(range(40))
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda n: session.step("pay", world.act, n), numbers)
            first = dict(zip(numbers, found, strict=True))
        assert {n: result["args"] for n, result in first.items()} == {n: [n] for n in numbers}
        again = reopen().resume_session(session.id)
        with ThreadPoolExecutor(8) as pool:
            backwards = numbers[::-1]
            found = pool.map(lambda n: again.step("pay", world.act, n), backwards)
            second = dict(zip(backwards, found, strict=True))
        assert second == first
        assert len(world.calls) == len(numbers)

    def test_equal_steps_at_the_same_time_are_counted(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        with ThreadPoolExecutor(8) as pool:
            first = list(pool.map(lambda _: session.step("beep", world.act)["number"], range(16)))
        assert sorted(first) == list(range(1, 17))
        again = reopen().resume_session(session.id)
        with ThreadPoolExecutor(8) as pool:
            second = list(pool.map(lambda _: again.step("beep", world.act)["number"], range(16)))
        assert sorted(second) == sorted(first)
        assert len(world.calls) == 16

    def test_a_key_that_is_running_is_not_run_a_second_time(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        started, release = threading.Event(), threading.Event()

        def slow() -> str:
            started.set()
            assert release.wait(30)
            return "done"

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(session.step, "pay", slow, key="order-1", policy="retry")
            try:
                assert started.wait(30)
                with pytest.raises(EffectRunning, match="order-1"):
                    session.step("pay", world.act, key="order-1", policy="retry")
            finally:
                release.set()
            assert running.result(30) == "done"
        assert world.calls == []
        assert session.step("pay", world.act, key="order-1") == "done"

    def test_the_idempotency_key_is_the_effects_own(
        self, manager: SessionManager, reopen: Reopen
    ) -> None:
        seen: list[str] = []

        def pay(amount: int, *, idempotency_key: str) -> str:
            seen.append(idempotency_key)
            if len(seen) == 1:
                raise ConnectionError("no answer")
            return idempotency_key

        session = manager.create_session("payer")
        with pytest.raises(ConnectionError):
            session.step("pay", pay, 5)
        again = reopen().resume_session(session.id)
        key = again.step("pay", pay, 5, policy="retry")
        assert seen == [key, key]
        assert again.effects()[0].idempotency_key == key
        others = [again.step("pay", pay, 5), again.step("pay", pay, 6)]
        others.append(manager.create_session("payer").step("pay", pay, 5))
        assert len({key, *others}) == 4
        assert again.step("pay", pay, 7, idempotency_key="mine") == "mine"

    def test_an_idempotency_key_of_ones_own_is_left_alone(self) -> None:
        def pay(order: int, idempotency_key: str = "none") -> str:
            return idempotency_key

        class Bank:
            def pay(self, order: int, *, idempotency_key: str) -> str:
                return idempotency_key

        def pay_by_place(order: int, idempotency_key: str = "none", /) -> str:
            return idempotency_key

        session = SessionManager(MemoryStore(), workspace=False).create_session("payer")
        mine = [
            session.step("a", partial(pay, idempotency_key="mine"), 1),
            session.step("b", pay, 1, "mine"),
            session.step("c", partial(pay, 1), "mine"),
            session.step("d", partial(pay, 1, "mine")),
            session.step("e", partial(Bank().pay, idempotency_key="mine"), 1),
            session.step("f", pay_by_place, 1, "mine"),
        ]
        assert mine == ["mine"] * 6
        assert session.step("g", pay_by_place, 1) == "none"
        for body in (pay, partial(pay, 1), Bank().pay, partial(Bank().pay, 1)):
            args = () if isinstance(body, partial) else (1,)
            key = session.step("h", body, *args)
            assert key == session.effects()[-1].idempotency_key

    def test_the_idempotency_keys_of_tenants_differ(self) -> None:
        keys = set()
        for tenant in ("one", "two"):
            manager = SessionManager(MemoryStore(tenant=tenant), workspace=False)
            session = manager.create_session("payer", session_id="same")
            session.step("pay", lambda: None)
            keys.add(session.effects()[0].idempotency_key)
        assert len(keys) == 2


class TestEnds:
    def test_a_failed_step_is_recorded_and_not_run_again_by_itself(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        with pytest.raises(ValueError, match="money"):
            session.step("charge", world.fail, 1)
        # Neither in the same run: a use that raised is not over.
        for one in (session, reopen().resume_session(session.id)):
            with pytest.raises(EffectFailed, match=r"policy='retry'") as caught:
                one.step("charge", world.act, 1)
            assert caught.value.error_type == "ValueError"
            assert caught.value.error_message == "no \\0 money \\udcff"
            assert "in fail" in str(caught.value.error_traceback)
        assert len(world.calls) == 1
        [effect] = session.effects(status="failed")
        assert effect.error is not None
        assert effect.error["type"] == "ValueError"
        with pytest.raises(EffectFailed):
            _ = effect.result

    def test_a_failed_step_is_run_again_when_told_so(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        with pytest.raises(ValueError, match="money"):
            session.step("charge", world.fail, 1)
        again = reopen().resume_session(session.id)
        done = again.step("charge", world.act, 1, policy="retry")
        assert len(world.calls) == 2
        [effect] = again.effects()
        assert (effect.status, effect.attempts, effect.error) == ("done", 2, None)
        assert reopen().resume_session(session.id).step("charge", world.act, 1) == done

    @pytest.mark.parametrize("kind", ["argument", "traceback", "name"])
    def test_an_error_that_cannot_be_told_whole_is_recorded_and_goes_on(
        self, manager: SessionManager, kind: str
    ) -> None:
        class WithoutTraceback(Exception):
            def __getattribute__(self, name: str) -> Any:
                if name == "__traceback__":
                    raise RuntimeError("no traceback")
                return super().__getattribute__(name)

        class Named(Exception): ...

        Named.__qualname__ = "Odd\udcff"
        error, recorded_type = {
            "argument": (SyntaxError("odd", ("file", 1, 2, 5)), "SyntaxError"),  # type: ignore[arg-type]
            "traceback": (WithoutTraceback("odd"), WithoutTraceback.__qualname__),
            "name": (Named("odd"), "Odd\\udcff"),
        }[kind]

        def body() -> None:
            raise error

        session = manager.create_session("payer")
        raised: list[int] = []
        try:
            session.step("charge", body)
        except Exception as found:
            raised.append(id(found))  # pytest could not tell of it either
        assert raised == [id(error)]
        with pytest.raises(EffectFailed) as failed:
            session.step("charge", body)
        assert failed.value.error_type == recorded_type
        assert "odd" in str(failed.value.error_message)
        assert failed.value.error_traceback

    def test_a_step_that_was_cut_short_is_unknown(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        with pytest.raises(Cut):
            session.step("charge", world.stop, 1)
        again = reopen().resume_session(session.id)
        with pytest.raises(EffectUnknown, match=r"may have happened or not"):
            again.step("charge", world.act, 1)
        assert len(world.calls) == 1
        assert [one.status for one in again.effects()] == ["unknown"]
        with pytest.raises(EffectUnknown):
            _ = again.effects()[0].result

    @pytest.mark.parametrize("end", ["fail", "stop"])
    @pytest.mark.parametrize("happened", [True, False])
    def test_reconcile_says_what_happened(
        self, manager: SessionManager, reopen: Reopen, world: World, end: str, happened: bool
    ) -> None:
        session = manager.create_session("payer")
        with pytest.raises((ValueError, Cut)):
            session.step("charge", getattr(world, end), 1)
        asked: list[Effect] = []

        def look(effect: Effect) -> Verdict:
            asked.append(effect)
            return effect.happened({"found": 7}) if happened else effect.did_not_happen()

        again = reopen().resume_session(session.id)
        found = again.step("charge", world.act, 1, policy="ask", reconcile=look)
        assert asked[0].status == {"fail": "failed", "stop": "unknown"}[end]
        assert asked[0].idempotency_key == again.effects()[0].idempotency_key
        assert found == ({"found": 7} if happened else {"number": 2, "args": [1]})
        assert reopen().resume_session(session.id).step("charge", world.act, 1) == found
        assert len(world.calls) == (1 if happened else 2)
        assert len(asked) == 1

    def test_reconcile_that_cannot_tell_changes_nothing(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        with pytest.raises(ValueError, match="money"):
            session.step("charge", world.fail, 1)

        def confused(effect: Effect) -> Any:
            return "yes"

        def broken(effect: Effect) -> Any:
            raise RuntimeError("the bank is closed")

        for reconcile, error in (
            (lambda effect: None, EffectFailed),
            (confused, InvalidStep),
            (broken, RuntimeError),
        ):
            with pytest.raises(error):
                session.step("charge", world.act, 1, policy="ask", reconcile=reconcile)
        assert [one.status for one in session.effects()] == ["failed"]
        assert len(world.calls) == 1

    @pytest.mark.parametrize("idempotent", [False, True])
    def test_a_result_that_cannot_be_stored_says_that_the_effect_happened(
        self, manager: SessionManager, reopen: Reopen, world: World, idempotent: bool
    ) -> None:
        def charge(order: int) -> dict[str, Any]:
            world.act(order)
            return {"client": object()}

        session = manager.create_session("payer")
        again = reopen().resume_session(session.id)
        for one in (session, session, again):
            with pytest.raises(ResultNotStorable, match=r"did happen.*result\.client"):
                one.step("charge", charge, 1, idempotent=idempotent)
        assert len(world.calls) == 1
        [effect] = session.effects()
        assert effect.status == "done"

    def test_a_body_that_hands_out_a_coroutine_was_not_run(
        self, manager: SessionManager, world: World
    ) -> None:
        async def body() -> None:
            world.act()

        session = manager.create_session("payer")
        hidden: Callable[[], Any] = lambda: body()  # noqa: E731
        with pytest.raises(InvalidStep, match="coroutine"):
            session.step("charge", hidden)
        assert session.step("charge", lambda: "now it is right") == "now it is right"
        assert world.calls == []

    def test_steps_inside_a_step_are_met_again_when_it_is_repeated(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        fails = iter([True, False])

        def outer(number: int) -> list[Any]:
            inner = [session.step("inner", world.act) for _ in range(2)]
            if next(fails):
                raise ValueError("after the inner ones")
            return inner

        with pytest.raises(ValueError, match="inner"):
            session.step("outer", outer, 1)
        found = session.step("outer", outer, 1, policy="retry")
        assert [one["number"] for one in found] == [1, 2]
        # Outside, the same step is another one.
        assert session.step("inner", world.act)["number"] == 3
        assert len(session.effects()) == 4

    def test_steps_in_threads_of_a_body_belong_to_it_in_a_copy_of_its_context(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        def play(session: Session) -> None:
            def outer() -> Any:
                with ThreadPoolExecutor(1) as pool:
                    inner = partial(session.step, "inner", world.act)
                    return pool.submit(copy_context().run, inner).result()

            assert session.step("outer", outer)["number"] == 1
            assert session.step("inner", world.act)["number"] == 2

        session = manager.create_session("payer")
        play(session)
        play(reopen().resume_session(session.id))
        assert len(world.calls) == 2

    def test_steps_inside_a_step_belong_to_it_through_those_of_another_session(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        def play(session: Session, other: Session) -> None:
            def between() -> Any:
                return session.step("inner", world.act)

            assert session.step("outer", lambda: other.step("between", between))["number"] == 1
            assert session.step("inner", world.act)["number"] == 2

        sessions = [manager.create_session("payer") for _ in range(2)]
        play(*sessions)
        again = reopen()
        play(*(again.resume_session(one.id) for one in sessions))
        assert len(world.calls) == 2

    def test_steps_inside_reconcile_belong_to_the_attempt_that_it_is_asked_about(
        self, manager: SessionManager, reopen: Reopen, world: World
    ) -> None:
        session = manager.create_session("payer")
        cut = iter([True, True, False])
        asked: list[str] = []

        def pay() -> str:
            if next(cut):
                raise Cut
            return "paid"

        def look(effect: Effect) -> Verdict:
            session.step("ask", world.act, "bank")
            asked.append(effect.record.attempt_id)
            if len(asked) == 1:
                raise Cut
            return effect.did_not_happen()

        with pytest.raises(Cut):
            session.step("pay", pay)
        for _ in range(2):
            session = reopen().resume_session(session.id)
            with pytest.raises(Cut):
                session.step("pay", pay, policy="ask", reconcile=look)
        # The answer about the first attempt was known; the second one is another question.
        assert (len(set(asked)), len(world.calls)) == (1, 1)
        session = reopen().resume_session(session.id)
        assert session.step("pay", pay, policy="ask", reconcile=look) == "paid"
        assert (len(set(asked)), len(world.calls)) == (2, 2)
        session = reopen().resume_session(session.id)
        assert session.step("pay", pay) == "paid"
        assert session.step("ask", world.act, "bank")["number"] == 3


class TestLeases:
    @staticmethod
    def take_over(manager: SessionManager, session_id: str) -> None:
        (lease,) = manager.store.list_leases(session_id=session_id)
        manager.store.acquire_lease(session_id, "another worker", over=lease.token)

    def test_a_worker_that_lost_its_session_runs_no_step(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        self.take_over(manager, session.id)
        with pytest.raises(LeaseLost):
            session.step("charge", world.act, 1)
        assert (world.calls, session.effects()) == ([], [])

    def test_a_session_that_is_only_looked_at_runs_no_step(
        self, manager: SessionManager, world: World
    ) -> None:
        reader = manager.get_session(manager.create_session("payer").id)
        with pytest.raises(HoldfastError, match="resume"):
            reader.step("charge", world.act, 1)
        assert (world.calls, reader.effects()) == ([], [])

    def test_what_a_body_did_after_its_session_was_lost_is_unknown(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")

        def body() -> Any:
            self.take_over(manager, session.id)
            return world.act()

        with pytest.raises(LeaseLost) as caught:
            session.step("charge", body)
        assert "did happen" in caught.value.__notes__[0]
        assert [one.status for one in session.effects()] == ["started"]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    @pytest.mark.parametrize("idempotent", [False, True])
    def test_a_child_that_was_forked_in_a_body_does_not_say_how_it_ended(
        self, tmp_path: Path, idempotent: bool
    ) -> None:
        manager = SessionManager.open(tmp_path / "s.db", workspace=False)
        session = manager.create_session("payer")
        codes: list[int] = []

        def body() -> str:
            with warnings.catch_warnings():
                # Newer Pythons warn of what is the subject here: forking a process that has threads.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                return "nothing was paid"
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return "paid"

        parent = os.getpid()
        code = 1
        try:
            result = session.step("pay", body, idempotent=idempotent)
        except LeaseLost:
            code = 7
        finally:
            if os.getpid() != parent:
                os._exit(code)
        assert codes == [7]
        assert [result, *(one.result for one in session.effects())] == ["paid", "paid"]
        manager.close()

    def test_a_body_whose_session_is_closed_meanwhile_says_how_it_ended_while_the_lease_stands(
        self, manager: SessionManager, world: World
    ) -> None:
        session = manager.create_session("payer")
        other = manager.resume_session(session.id)

        def body() -> Any:
            session.close()
            return world.act()

        first = session.step("pay", body)
        assert other.step("pay", world.act) == first
        assert len(world.calls) == 1


class Spy(MemoryStore):
    """Counts what is written, and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.broken: str | None = None

    def begin_effect(self, draft: Any) -> Any:
        self._note("begin")
        return super().begin_effect(draft)

    def finish_effect(self, *args: Any, **kwargs: Any) -> bool:
        self._note("finish")
        return super().finish_effect(*args, **kwargs)

    def _note(self, what: str) -> None:
        self.written.append(what)
        if self.broken == what:
            raise StoreBusy("somebody holds the file")


class TestWrites:
    @pytest.fixture
    def store(self) -> Spy:
        return Spy()

    @pytest.fixture
    def spied(self, store: Spy) -> SessionManager:
        return SessionManager(store, workspace=False)

    def test_a_step_is_two_writes_and_an_idempotent_one_is_one(
        self, store: Spy, spied: SessionManager, world: World
    ) -> None:
        session = spied.create_session("payer")
        session.step("a", world.act, 1)
        assert store.written == ["begin", "finish"]
        store.written.clear()
        done = [session.step("b", world.act, n, idempotent=True) for n in (1, 1, 2)]
        assert store.written == ["begin"] * 3
        store.written.clear()
        again = spied.resume_session(session.id)
        assert [again.step("b", world.act, n, idempotent=True) for n in (1, 1, 2)] == done
        assert store.written == []
        assert len(world.calls) == 4

    def test_an_idempotent_step_that_fails_is_recorded_nowhere_and_runs_again(
        self, store: Spy, spied: SessionManager, world: World
    ) -> None:
        session = spied.create_session("payer")
        with pytest.raises(ValueError, match="money"):
            session.step("b", world.fail, 1, idempotent=True)
        assert (store.written, session.effects()) == ([], [])
        done = session.step("b", world.act, 1, idempotent=True)
        assert spied.resume_session(session.id).step("b", world.act, 1, idempotent=True) == done

    def test_an_idempotent_step_with_a_key_is_replayed_in_the_same_run(
        self, spied: SessionManager, world: World
    ) -> None:
        session = spied.create_session("payer")
        one = session.step("b", world.act, 1, key="k", idempotent=True)
        assert session.step("b", world.act, 1, key="k", idempotent=True) == one
        session.step("c", world.act, key="other")
        assert session.step("c", world.act, key="other", idempotent=True)["number"] == 2
        assert len(world.calls) == 2

    def test_declaring_a_failed_step_idempotent_lets_it_run(
        self, spied: SessionManager, world: World
    ) -> None:
        session = spied.create_session("payer")
        with pytest.raises(ValueError, match="money"):
            session.step("b", world.fail, 1)
        again = spied.resume_session(session.id)
        assert again.step("b", world.act, 1, idempotent=True)["number"] == 2
        [effect] = again.effects()
        assert (effect.status, effect.attempts) == ("done", 2)

    def test_two_runs_of_an_idempotent_step_agree_on_the_first_result(
        self, spied: SessionManager, world: World
    ) -> None:
        session = spied.create_session("payer")
        other = spied.resume_session(session.id)
        other.step("unrelated", world.act, idempotent=True)  # from now on it knows the ledger
        first = session.step("b", world.act, 1, idempotent=True)
        assert other.step("b", world.act, 1, idempotent=True) == first
        assert len(world.calls) == 3

    def test_when_starting_cannot_be_recorded_nothing_runs(
        self, store: Spy, spied: SessionManager, world: World
    ) -> None:
        session = spied.create_session("payer")
        store.broken = "begin"
        with pytest.raises(StoreBusy):
            session.step("a", world.act, 1)
        store.broken = None
        assert world.calls == []
        session.step("a", world.act, 1)
        assert [one.occurrence for one in session.effects()] == [0]

    @pytest.mark.parametrize(
        ("idempotent", "note"), [(False, "finds it unknown"), (True, "will run again")]
    )
    def test_when_the_end_cannot_be_recorded_the_error_says_that_it_happened(
        self, store: Spy, spied: SessionManager, world: World, idempotent: bool, note: str
    ) -> None:
        session = spied.create_session("payer")
        store.broken = "begin" if idempotent else "finish"
        with pytest.raises(StoreBusy) as caught:
            session.step("a", world.act, 1, idempotent=idempotent)
        [said] = caught.value.__notes__
        assert "did happen" in said
        assert note in said
        store.broken = None
        if idempotent:
            assert session.step("a", world.act, 1, idempotent=True)["number"] == 2
        else:
            with pytest.raises(EffectUnknown):
                session.step("a", world.act, 1)

    def test_when_a_failure_cannot_be_recorded_its_own_error_goes_on(
        self, store: Spy, spied: SessionManager, world: World
    ) -> None:
        session = spied.create_session("payer")
        store.broken = "finish"
        with pytest.raises(ValueError, match="money") as caught:
            session.step("a", world.fail, 1)
        assert "was not recorded" in caught.value.__notes__[0]
        store.broken = None
        with pytest.raises(EffectUnknown):
            session.step("a", world.act, 1)

    def test_a_body_whose_place_was_taken_is_told(
        self, spied: SessionManager, world: World
    ) -> None:
        session = spied.create_session("payer")
        other = spied.resume_session(session.id)

        def slow() -> str:
            assert other.step("a", lambda: "theirs", key="k", policy="retry") == "theirs"
            return "mine"

        with pytest.raises(EffectSuperseded):
            session.step("a", slow, key="k")
        assert session.step("a", world.act, key="k") == "theirs"


class TestDeclarations:
    @pytest.mark.parametrize(
        "options",
        [
            {"policy": "perhaps"},
            {"policy": "ask"},
            {"reconcile": lambda effect: None},
            {"policy": "retry", "reconcile": lambda effect: None},
            {"key": ""},
            {"key": "nul\0"},
        ],
        ids=["policy", "ask alone", "reconcile alone", "both", "empty key", "key"],
    )
    def test_a_step_that_cannot_be_meant_is_refused(
        self, manager: SessionManager, world: World, options: dict[str, Any]
    ) -> None:
        session = manager.create_session("payer")
        with pytest.raises(InputError):
            session.step("a", world.act, **options)
        with pytest.raises(InputError):
            session.step("", world.act)
        with pytest.raises(InvalidStep):
            session.step("a", "not callable")  # type: ignore[arg-type]
        assert (world.calls, session.effects()) == ([], [])

    def test_an_async_body_belongs_to_the_async_twin(self) -> None:
        async def coroutine() -> None: ...

        body: Callable[[], Any] = coroutine
        session = SessionManager(MemoryStore(), workspace=False).create_session("payer")
        with pytest.raises(InvalidStep, match=r"holdfast\.aio"):
            session.step("a", body)
        assert session.effects() == []

    def test_a_generator_is_refused_since_calling_it_runs_nothing(self, world: World) -> None:
        def pieces() -> Iterator[int]:
            world.act()
            yield 1

        async def async_pieces() -> AsyncIterator[int]:
            world.act()
            yield 1

        class Pieces:
            def __call__(self) -> Iterator[int]:
                yield from pieces()

        class AsyncPieces:
            async def __call__(self) -> AsyncIterator[int]:
                yield world.act()

        session = SessionManager(MemoryStore(), workspace=False).create_session("payer")
        for body in (pieces, async_pieces, Pieces(), AsyncPieces(), partial(Pieces())):
            with pytest.raises(InvalidStep, match="generator"):
                session.step("a", body)
            assert session.effects() == []
        assert session.step("a", lambda: list(pieces())) == [1]
        assert len(world.calls) == 1

    @pytest.mark.parametrize("idempotent", [False, True])
    def test_a_body_that_hands_out_a_generator_is_not_taken_for_done(
        self, world: World, idempotent: bool
    ) -> None:
        def pieces() -> Iterator[int]:
            world.act()
            yield 1

        async def async_pieces() -> AsyncIterator[int]:
            world.act()
            yield 1

        session = SessionManager(MemoryStore(), workspace=False).create_session("payer")
        hidden: list[Callable[[], Any]] = [lambda: pieces(), lambda: async_pieces()]
        for name, body in zip("ab", hidden, strict=True):
            with pytest.raises(InvalidStep, match="generator"):
                session.step(name, body, idempotent=idempotent)
            if not idempotent:
                # It may have done something before.
                with pytest.raises(EffectFailed, match="generator"):
                    session.step(name, world.act)
            assert world.calls == []
            policy = "fail" if idempotent else "retry"
            assert session.step(name, lambda: list(pieces()), policy=policy) == [1]
            world.calls.clear()

    def test_a_decorated_function_is_called_as_before(self, world: World) -> None:
        manager = SessionManager(MemoryStore(), workspace=False)
        session = manager.create_session("payer")

        def declare(session: Session) -> tuple[Callable[..., Any], Callable[..., Any]]:
            @session.effect
            def charge(order: dict[str, Any], amount: int = 0) -> Any:
                """Charge a card."""
                return world.act(order["id"], amount)

            @session.effect(name="send", key=lambda to, text: f"mail-{to}", policy="retry")
            def mail(to: str, text: str) -> Any:
                return world.act(to, text)

            return charge, mail

        charge, mail = declare(session)
        assert (charge.__name__, charge.__doc__) == ("charge", "Charge a card.")
        first = [charge({"id": 1}, amount=5), charge({"id": 1}, amount=5), mail("ann", "hi")]
        charge, mail = declare(manager.resume_session(session.id))
        second = [charge({"id": 1}, amount=5), charge({"id": 1}, amount=5), mail("ann", "hi")]
        assert second == first
        assert len(world.calls) == 3
        with pytest.raises(EffectMismatch):
            mail("ann", "something else")
        names = {one.name: one.key for one in session.effects()}
        assert names["send"] == "mail-ann"
        assert len(names) == 2

    def test_a_step_is_named_after_a_partials_function_and_an_objects_class(
        self, world: World
    ) -> None:
        class Charge:
            def __call__(self, amount: int) -> Any:
                return world.act(amount)

        session = SessionManager(MemoryStore(), workspace=False).create_session("payer")
        for body in (partial(world.act, 1), partial(partial(world.act), 1)):
            assert session.effect(body)(5)["args"] == [1, 5]
        assert session.effect(Charge())(5)["args"] == [5]
        assert session.effect(partial(Charge(), 6))()["args"] == [6]
        assert [one.name for one in session.effects()] == [
            *[World.act.__qualname__] * 2,
            *[Charge.__qualname__] * 2,
        ]

    def test_every_effect_error_is_one_family(self) -> None:
        for error in (EffectUnknown, EffectFailed, EffectMismatch, EffectRunning):
            assert issubclass(error, HoldfastError)
            assert error.exit_code == 8


class TestVerification:
    def test_verify_reads_the_results_of_effects_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
            session = manager.create_session("payer")
            session.save_checkpoint("one", state={"n": 1})
            session.step("small", lambda: 1)
            session.step("large", lambda: "x" * 5000, key="large-1")
            report = manager.verify()
            assert (report.ok, report.checked, report.effects) == (True, 1, 2)
            monkeypatch.setattr(manager.store, "read_chunks", lambda digests: {})
            [damage] = manager.verify().damaged
            assert (damage.checkpoint_id, damage.code) == (None, "digest_mismatch")
            assert (damage.session_id, damage.effect_key) == (session.id, "large-1")
            # What cannot be read exactly is refused, and not run again.
            again = manager.resume_session(session.id)
            with pytest.raises(DigestMismatch):
                again.step("large", lambda: "again", key="large-1")


@pytest.mark.parametrize(
    "result", [None, 7, "text", ["a", {"b": 1.5}], {"$t": "x"}, 10**30, "x" * 600, (1,), "\udcff"],
    ids=["none", "number", "text", "nested", "tag", "integer", "large", "tuple", "surrogate"],
)  # fmt: skip
def test_a_small_result_is_stored_as_a_state_is(result: Any) -> None:
    manager = SessionManager(MemoryStore(), workspace=False)
    session = manager.create_session("payer")
    try:
        encoded = StateEncoder().encode({"result": result})
    except StateNotSerializable:
        with pytest.raises(ResultNotStorable):
            session.step("make", lambda: result)
        return
    session.step("make", lambda: result)
    [effect] = session.effects()
    assert effect.record.payload == Payload(encoded.manifest, encoded.refs)
