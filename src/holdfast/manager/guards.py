"""A risky operation between two states that are both fine: the one before it, or the one it reaches.

    with manager.guard("refactor"):            # or async with
        ...

    @manager.guard("refactor", verdict=tests_pass, on_failure=lambda error: "retry")
    def refactor(): ...                        # or async def

What failed is always told: the exception goes on unless the strategy is to skip it, and if rolling back
fails too, the exception says so in a note.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

from holdfast.errors import (
    Escalated,
    HoldfastError,
    IllegalTransition,
    InvalidIdentifier,
    VerdictFailed,
)
from holdfast.manager.documents import SavePoint, save_point
from holdfast.manager.reports import Rollback
from holdfast.sessions import Checkpoint
from holdfast.waiting import in_thread

if TYPE_CHECKING:
    from holdfast.manager.blocking import SyncCheckpointManager

F = TypeVar("F", bound=Callable[..., Any])

Strategy: TypeAlias = Literal["retry", "rollback", "skip", "escalate"]
# Asked what to do about an error. Async ones are awaited in async guards.
OnFailure: TypeAlias = Callable[[BaseException], "Strategy | Awaitable[Strategy]"]
# Judges what was done: called with a function's result, with nothing after a block.
Verdict: TypeAlias = Callable[..., "bool | Awaitable[bool]"]

STRATEGIES: Final = ("retry", "rollback", "skip", "escalate")


class Guard:
    """What `CheckpointManager.guard` returns; one block at a time, a function as often as you like.

    ``checkpoint`` is the save point from before the block, ``rolled_back`` the report if it failed.
    """

    def __init__(
        self,
        manager: SyncCheckpointManager,
        name: str,
        *,
        description: str | None = None,
        verdict: Verdict | None = None,
        on_failure: OnFailure | None = None,
        attempts: int = 3,
    ) -> None:
        if type(attempts) is not int or attempts < 1:
            raise InvalidIdentifier(f"attempts must be a positive whole number: {attempts!r}")
        self._manager = manager
        self._name = name
        self._description = description
        self._verdict = verdict
        self._on_failure = on_failure
        self._attempts = attempts
        self._saved: Checkpoint | None = None
        self.checkpoint: SavePoint | None = None
        self.rolled_back: Rollback | None = None

    # A function ------------------------------------------------------------------------------

    def __call__(self, function: F) -> F:
        """Guard every call of a function, plain or async.

        A generator's body runs after the call, when nothing is guarded any more, so it is refused.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidIdentifier(
                "a guard cannot protect a generator function, whose body runs after the call; use "
                "`with manager.guard(…)` where its items are asked for, or in its body"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waited(*args: Any, **kwargs: Any) -> Any:
                return await self._again()._run_async(function, args, kwargs)

            return cast("F", waited)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return self._again()._run(function, args, kwargs)

        return cast("F", called)

    def _again(self) -> Guard:
        """Return a guard like this one for one call: calls may overlap."""
        return Guard(
            self._manager,
            self._name,
            description=self._description,
            verdict=self._verdict,
            on_failure=self._on_failure,
            attempts=self._attempts,
        )

    def _run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        saved = self._begin()
        for left in reversed(range(self._attempts)):
            try:
                result = _now(function(*args, **kwargs), "result")
                self._judge(self._verdict and _now(self._verdict(result), "verdict"))
            except BaseException as error:
                outcome = self._recover(saved, error, self._ask(saved, error), left)
                if outcome == "raise":
                    raise
                if outcome == "skip":
                    return None
                continue
            self._manager.keep_guarded(saved)
            return result
        raise AssertionError("unreachable")  # pragma: no cover

    async def _run_async(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        saved = await self._begin_async()
        for left in reversed(range(self._attempts)):
            try:
                result = await function(*args, **kwargs)
                self._judge(self._verdict and await _awaited(self._verdict(result)))
            except BaseException as error:
                chosen = await self._ask_async(saved, error)
                outcome = await in_thread(self._recover, saved, error, chosen, left)
                if outcome == "raise":
                    raise
                if outcome == "skip":
                    return None
                continue
            await in_thread(self._manager.keep_guarded, saved)
            return result
        raise AssertionError("unreachable")  # pragma: no cover

    # A block ---------------------------------------------------------------------------------

    def __enter__(self) -> SavePoint:
        self._begin()
        return cast("SavePoint", self.checkpoint)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        saved = self._end()
        if exc is None:
            try:
                self._judge(self._verdict and _now(self._verdict(), "verdict"))
            except BaseException as error:
                if self._recover(saved, error, self._ask(saved, error), 0) == "raise":
                    raise
                return True
        if exc is None or isinstance(exc, GeneratorExit):
            # A generator that nobody asks any more has not failed.
            self._manager.keep_guarded(saved)
            return False
        return self._recover(saved, exc, self._ask(saved, exc), 0) == "skip"

    async def __aenter__(self) -> SavePoint:
        await self._begin_async()
        return cast("SavePoint", self.checkpoint)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        saved = self._end()
        if exc is None:
            try:
                self._judge(self._verdict and await _awaited(self._verdict()))
            except BaseException as error:
                chosen = await self._ask_async(saved, error)
                if await in_thread(self._recover, saved, error, chosen, 0) == "raise":
                    raise
                return True
        if exc is None or isinstance(exc, GeneratorExit):
            await in_thread(self._manager.keep_guarded, saved)
            return False
        chosen = await self._ask_async(saved, exc)
        return await in_thread(self._recover, saved, exc, chosen, 0) == "skip"

    # Both ------------------------------------------------------------------------------------

    def _begin(self) -> Checkpoint:
        if self._saved is not None:
            raise IllegalTransition("this guard protects a block already; make another one")
        self.rolled_back = None
        self._saved = self._manager.save_guarded(self._name, self._description)
        self.checkpoint = save_point(self._saved)
        return self._saved

    async def _begin_async(self) -> Checkpoint:
        """Begin in a thread. A cancellation meanwhile ends what had begun: no block will do that."""
        begun: list[Checkpoint] = []
        try:
            await in_thread(lambda: begun.append(self._begin()))
        except BaseException:
            if begun:
                await in_thread(self._manager.end_guarded, self._end())
            raise
        return begun[0]

    def _end(self) -> Checkpoint:
        saved, self._saved = self._saved, None
        return cast("Checkpoint", saved)

    def _judge(self, verdict: object) -> None:
        if self._verdict is not None and not verdict:
            raise VerdictFailed(f"{self._name!r} ended, but its verdict is that it failed")

    def _ask(self, saved: Checkpoint, error: BaseException) -> Strategy:
        if self._on_failure is None or not _is_failure(error):
            return "rollback"
        try:
            return _checked(_now(self._on_failure(error), "on_failure"))
        except Exception as second:
            error.add_note(f"on_failure could not tell what to do: {second!r}")
            return "rollback"
        except BaseException:
            # Somebody did not wait for the answer. The block has failed all the same.
            self._recover(saved, error, "rollback", 0)
            raise

    async def _ask_async(self, saved: Checkpoint, error: BaseException) -> Strategy:
        if self._on_failure is None or not _is_failure(error):
            return "rollback"
        try:
            return _checked(await _awaited(self._on_failure(error)))
        except Exception as second:
            error.add_note(f"on_failure could not tell what to do: {second!r}")
            return "rollback"
        except BaseException:
            await in_thread(self._recover, saved, error, "rollback", 0)
            raise

    def _recover(
        self, saved: Checkpoint, error: BaseException, strategy: Strategy, left: int
    ) -> Literal["skip", "retry", "raise"]:
        """Roll back, then say what becomes of the error; ``left`` attempts could follow."""
        self.rolled_back = None
        try:
            self.rolled_back = self._manager.fall_back(saved, error)
        except HoldfastError as second:
            error.add_note(f"it could not be rolled back: {second}")
        again = self.rolled_back is not None and strategy == "retry" and left > 0
        if self.rolled_back is not None and not again:
            self._manager.end_guarded(saved)
        if strategy == "escalate":
            raise self._escalated(error) from error
        if self.rolled_back is not None and strategy == "skip":
            return "skip"
        if again:
            return "retry"
        if strategy == "retry":
            error.add_note(f"it was not tried again: {self._why_not()}")
        return "raise"

    def _why_not(self) -> str:
        if self.rolled_back is None:
            return "it could not be rolled back"
        return f"that was the last of {self._attempts} attempts, or a block, which runs only once"

    def _escalated(self, error: BaseException) -> Escalated:
        before = cast("SavePoint", self.checkpoint)
        report = self._manager.report_failure(before, error, self.rolled_back)
        done = "it was rolled back" if self.rolled_back is not None else "it was NOT rolled back"
        escalated = Escalated(
            f"{self._name!r} failed and needs somebody to look at it; {done} to checkpoint "
            f"{before.id}: {type(error).__name__}: {report['error']['message']}",
            report,
        )
        try:
            self._manager.log_failure(report)
        except HoldfastError as second:
            # Calling for help must not depend on the store, which may be what is broken.
            escalated.add_note(f"the report could not be logged: {second}")
        return escalated


class _MustBeAwaited(InvalidIdentifier):
    """Something to wait for came from where nobody waits: what it stands for would run unguarded."""


def _is_failure(error: BaseException) -> bool:
    """Ctrl-C, an exit, a cancellation and work that would run unguarded are no question of strategy."""
    return isinstance(error, Exception) and not isinstance(error, _MustBeAwaited)


def _checked(strategy: Any) -> Strategy:
    if strategy not in STRATEGIES:
        raise InvalidIdentifier(f"it must be one of {', '.join(STRATEGIES)}, not {strategy!r}")
    return cast("Strategy", strategy)


def _now(value: Any, what: str) -> Any:
    """Return what was answered, which must not be something to wait for: that is stopped."""
    if not inspect.isawaitable(value):
        return value
    stop = getattr(value, "close" if inspect.iscoroutine(value) else "cancel", None)
    if stop is not None:
        stop()
    raise _MustBeAwaited(f"an async {what} needs an `async def` function or `async with`")


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
