"""An interrupt, as Ctrl-C raises it, at every moment of a step in a program that survives it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from holdfast import Session, SessionManager
from holdfast.errors import EffectFailed, EffectUnknown
from holdfast.stores.memory import MemoryStore


class Interrupt:
    """Raises `KeyboardInterrupt` at one of all the moments at which Python looks for signals.

    These are the beginning of each function and the end of each call of one that is written in C.
    """

    def __init__(self, moment: int) -> None:
        self._left = moment

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_return") or argument is sys.setprofile:
            return
        self._left -= 1
        if self._left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    def during(self, step: Callable[[], Any]) -> type[BaseException] | None:
        """Run a step and return what it raised."""
        before = sys.getprofile()
        gc.disable()  # what is raised while it collects goes nowhere
        sys.setprofile(self)
        try:
            step()
        except BaseException as error:
            return type(error)
        finally:
            sys.setprofile(before)
            gc.enable()
        return None


@pytest.fixture
def manager() -> SessionManager:
    return SessionManager(MemoryStore(), workspace=False)


def take(step: Callable[[], Any]) -> None:
    """Take a step that may raise what its body does, or that it is not run again."""
    with suppress(ValueError, EffectFailed, EffectUnknown):
        step()


@pytest.mark.parametrize("options", [{}, {"key": "order-7"}, {"idempotent": True}])
def test_a_step_that_is_interrupted_is_the_same_effect_when_it_is_called_again(
    manager: SessionManager, options: dict[str, Any]
) -> None:
    most = 2 if "idempotent" in options else 1

    def pay(session: Session, world: list[str]) -> None:
        session.step("pay", lambda: world.append("paid"), **options)

    def tell(session: Session, world: list[str]) -> None:
        session.step("tell", lambda: world.append("told"))

    for moment in range(1, 2000):
        session = manager.create_session("payer")
        world: list[str] = []
        if Interrupt(moment).during(partial(pay, session, world)) is None:
            return
        take(partial(pay, session, world))
        assert world.count("paid") <= most, f"paid again after an interrupt at moment {moment}"
        assert {one.occurrence for one in session.effects()} <= {0}
        # What comes next is counted where the next run looks for it.
        tell(session, world)
        again = manager.resume_session(session.id)
        take(partial(pay, again, world))
        tell(again, world)
        assert world.count("paid") <= most
        assert world.count("told") == 1
    pytest.fail("the step has no end")


@pytest.mark.parametrize("options", [{}, {"key": "order-7"}])
def test_a_step_that_raised_and_is_interrupted_then_is_not_run_again(
    manager: SessionManager, options: dict[str, Any]
) -> None:
    def pay(session: Session, world: list[str]) -> None:
        def refused() -> None:
            world.append("paid")
            raise ValueError("no answer")

        session.step("pay", refused, **options)

    for moment in range(1, 4000):
        session = manager.create_session("payer")
        world: list[str] = []
        raised = Interrupt(moment).during(partial(pay, session, world))
        take(partial(pay, session, world))
        assert len(world) <= 1, f"paid again after an interrupt at moment {moment}"
        if raised is ValueError:
            return
    pytest.fail("the step has no end")
