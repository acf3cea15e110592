"""Steps of a session: calls with side effects, recorded so that each runs once, over crashes too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.effects import Call, Declaration, Effect, Ledger, Verdict
from holdfast.sessions.saving import SavingSession

P = ParamSpec("P")
R = TypeVar("R")


class SteppingSession(SavingSession):
    """A session that knows which steps were taken."""

    def step(
        self,
        name: str,
        function: Callable[..., R],
        /,
        *args: Any,
        key: str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
        **kwargs: Any,
    ) -> R:
        """Call ``function`` with the arguments and record it, so that it runs once, over crashes too.

        A step that an earlier run has finished returns what it returned then. Which one that is
        follows from name and arguments, or from ``key``, which names one effect of this session:
        with other arguments it raises `EffectMismatch`. A step that began and whose end nobody
        recorded, or that failed, follows its ``policy``: ``"fail"`` raises `EffectUnknown` or
        `EffectFailed`, ``"retry"`` runs it again, ``"ask"`` does what ``reconcile(effect)`` answers:
        ``effect.happened(result)``, ``effect.did_not_happen()``, or None for neither.

        A function with a parameter ``idempotency_key`` is handed one that is the same in every
        attempt. A step declared ``idempotent`` may run twice without harm: only its end is recorded.
        """
        call = Call(name, function, args, kwargs, key, policy, reconcile, idempotent)
        # Nothing is called after that: an interrupt would come between a use that is over and its caller.
        result: R = self.open_ledger().run(call)
        return result

    @overload
    def effect(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def effect(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., str] | str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def effect(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., str] | str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
    ) -> Callable[..., Any]:
        """Make every call of a function a `step`, called like the function; also with options.

        ``key`` may be a function of the same arguments: ``@session.effect(key=lambda order: order.id)``.
        """

        declared = Declaration(name, key, policy, reconcile, idempotent)

        def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(body)
            def recorded(*args: Any, **kwargs: Any) -> Any:
                return self.open_ledger().run(declared.call(body, args, kwargs))

            return recorded

        return decorate if function is None else decorate(function)

    def effects(self, *, status: str | None = None, limit: int | None = None) -> list[Effect]:
        """List the recorded effects of the session, in the order of their last start."""
        return self._ledger.effects(status=status, limit=limit)

    def open_ledger(self) -> Ledger:
        """Return what runs and records the steps of this session; a completed one takes none."""
        self._check_open()
        return self._ledger
