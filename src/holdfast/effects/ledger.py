"""The ledger of one run: which effect a call is, and its way from started to its end."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Token
from dataclasses import dataclass, replace
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NoReturn, Protocol, TypeAlias, cast

from holdfast.effects.call import (
    KEY_PARAMETER,
    Call,
    Reconcile,
    fingerprint,
    is_async,
    key_mark,
    without_mark,
)
from holdfast.effects.effect import Effect, Verdict, idempotency_key
from holdfast.effects.raised import error_document
from holdfast.effects.recorded import Recorded, unrecognised
from holdfast.effects.result import (
    encoded_result,
    recorded_result,
    refuse,
    result_as_stored,
    shown,
    without_result,
)
from holdfast.effects.uses import AROUND, HERE, Counts, Scope, Use, is_running_here
from holdfast.errors import (
    EffectMismatch,
    EffectRunning,
    EffectSuperseded,
    HoldfastError,
    InvalidStep,
    ResultNotStorable,
    StateNotSerializable,
)
from holdfast.ids import new_id
from holdfast.locks import new_lock
from holdfast.model import EffectOutcome, EffectQuery, EffectRecord, NewEffect
from holdfast.state.plain import is_plain
from holdfast.state.screen import Screen
from holdfast.stores.base import Store

RunInThread: TypeAlias = Callable[..., Awaitable[Any]]


class Threads(Protocol):
    """Where blocking calls are run and waited for."""

    @property
    def run(self) -> RunInThread:
        """Runs what is ours."""

    @property
    def run_body(self) -> RunInThread:
        """Runs users' own code, which may wait for other calls."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A body that is to run now. ``recorded`` says that the store knows of it."""

    draft: NewEffect
    call: Call
    tenant: str
    recorded: bool

    def start(self) -> Any:
        """Call the body, with its idempotency key if it has a parameter of that name to be filled."""
        call = self.call
        kwargs = dict(call.kwargs)
        if call.wants_key():
            kwargs[KEY_PARAMETER] = idempotency_key(self.tenant, self.draft)
        return call.function(*call.args, **kwargs)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A step that is done: what it returned then."""

    value: Any


@dataclass(frozen=True, slots=True)
class Question:
    """A step whose outcome ``reconcile`` is asked for."""

    draft: NewEffect
    call: Call
    effect: Effect


class Ledger:
    """The steps of one run of a session. It may be used from several threads."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        fence: Callable[[], int | None] = lambda: None,
        *,
        screen: Screen | None = None,
        fill: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        """``fence`` tells the token with which each record is written.

        ``screen`` sees results, errors and arguments before anything of them is recorded; ``fill``
        gives results that are replayed back what it took out.
        """
        self._store = store
        self._screen = screen
        self._fill = fill
        self._fence = fence
        self._session_id = session_id
        self._lock = new_lock()
        self._epoch = 0
        self._run = Scope()
        self._running: dict[tuple[str, int], Use] = {}
        self._recorded = Recorded(store, session_id)

    def restart(self) -> None:
        """Count from the first again, in bodies too: what comes now repeats what was recorded."""
        with self._lock:
            self._epoch += 1
            self._recorded = Recorded(self._store, self._session_id)

    def effects(self, *, status: str | None = None, limit: int | None = None) -> list[Effect]:
        """Return the recorded effects in the order of their last start."""
        query = EffectQuery(self._session_id, status=status, limit=limit)
        return [Effect(record, self._store) for record in self._store.list_effects(query)]

    def run(self, call: Call) -> Any:
        """Run a step or replay it."""
        if is_async(call.function) or (call.reconcile is not None and is_async(call.reconcile)):
            raise InvalidStep(
                f"step {call.name!r} is async; nothing was run. Use it with holdfast.aio"
            )
        use = Use(call)
        try:
            try:
                result = self._run_use(use)
                use.over = True
            finally:
                self._release(use)
        except BaseException:
            # An interrupt comes at any moment, that of the release too: the caller has got no result.
            use.over = False
            self._release(use)
            raise
        return result

    def _run_use(self, use: Use) -> Any:
        opened = self.begin(use)
        while isinstance(opened, Question):
            opened = self.settle(opened, self._ask(opened))
        return opened.value if isinstance(opened, Replayed) else self.perform(opened)

    async def run_async(self, call: Call, threads: Threads) -> Any:
        """Run a step whose body may be a coroutine; what blocks is run in ``threads``.

        A caller that is cancelled meanwhile has got no result, whatever is recorded by then.
        """
        use = Use(call)
        try:
            try:
                result = await self._run_use_async(use, threads)
                use.over = True
            finally:
                self._release(use)
        except BaseException:
            use.over = False
            self._release(use)
            raise
        return result

    async def _run_use_async(self, use: Use, threads: Threads) -> Any:
        call, run = use.call, threads.run
        opened = await self._opened(run, self.begin, use)
        while isinstance(opened, Question):
            if is_async(call.reconcile):
                verdict = await self._ask_async(opened)
            else:
                verdict = await threads.run_body(self._ask, opened)
            opened = await self._opened(run, self.settle, opened, verdict)
        if isinstance(opened, Replayed):
            return opened.value
        if not is_async(call.function):
            return await threads.run_body(self.perform, opened)
        try:
            around = self._enter(opened.draft)
            try:
                result = await opened.start()
            finally:
                AROUND.reset(around)
        except GeneratorExit:
            raise  # the loop is gone: what was started is unknown
        except BaseException as error:
            await run(self.fail, opened, error)
            raise
        return await run(self.succeed, opened, result)

    async def _opened(self, run: RunInThread, work: Callable[..., Any], *args: Any) -> Any:
        """Begin in a thread; if the caller is cancelled meanwhile, record that no body ran."""
        opened: list[Replayed | Attempt | Question] = []
        try:
            await run(lambda: opened.append(work(*args)))
        except BaseException as error:
            for one in opened:
                if isinstance(one, Attempt):
                    await run(self.fail, one, error, began=False)
            raise
        return opened[0]

    # The moments of a step ---------------------------------------------------------------

    def begin(self, use: Use) -> Replayed | Attempt | Question:
        """Record a step as started, or find what is recorded of it."""
        use.call.check()
        return self._begin(self._claim(use), use.call)

    def settle(self, question: Question, verdict: Verdict | None) -> Replayed | Attempt | Question:
        """Go on as ``reconcile`` said."""
        draft, call, record = question.draft, question.call, question.effect.record
        if verdict is None:
            self._give_up(record)
        if not isinstance(verdict, Verdict):
            raise InvalidStep(
                f"reconcile of step {call.name!r} must return effect.happened(result), "
                f"effect.did_not_happen() or None, not {type(verdict).__name__}"
            )
        if not verdict.happened:
            return self._replace(record, draft, call)
        found = replace(draft, attempt_id=record.attempt_id)
        return Replayed(self.succeed(self._attempt(found, call, recorded=True), verdict.result))

    def perform(self, attempt: Attempt) -> Any:
        """Run a body that is no coroutine, and record how it ended."""
        around = AROUND.get()  # not a token, which an interrupt of `_enter` would keep from us
        try:
            try:
                self._enter(attempt.draft)
                result = attempt.start()
            finally:
                AROUND.set(around)
        except BaseException as error:
            self.fail(attempt, error)
            raise
        if inspect.iscoroutine(result):
            result.close()
            hidden = InvalidStep(
                f"step {attempt.call.name!r} returned a coroutine, which was not run: give the "
                f"async function itself to a session of holdfast.aio"
            )
            self.fail(attempt, hidden, began=False)
            raise hidden
        if isinstance(result, GeneratorType | AsyncGeneratorType):
            # What the body did before it made that nobody knows: it need not be nothing.
            lazy = InvalidStep(
                f"step {attempt.call.name!r} returned a generator, whose body has not run to its end. Use a "
                f"function that returns a list"
            )
            self.fail(attempt, lazy)
            raise lazy
        return self.succeed(attempt, result)

    def succeed(self, attempt: Attempt, result: Any) -> Any:
        """Record what a body returned, and return it as a replay will."""
        try:
            outcome = encoded_result(result, self._screen)
        except StateNotSerializable as error:
            reason = f"{error.path.removeprefix('$.')}: {error.reason}"
            lost = EffectOutcome(
                "done",
                error=self._screened({"type": "ResultNotStorable", "message": reason}),
            )
            self._finish(attempt, lost)
            raise ResultNotStorable(without_result(shown(attempt.draft), reason)) from None
        other = self._finish(attempt, outcome)
        if other is not None:
            return self._recorded_result(other)
        return result if is_plain(result) else self._as_stored(result, outcome)

    def fail(self, attempt: Attempt, error: BaseException, *, began: bool = True) -> None:
        """Record what a body raised. One that was cut short may have happened: it is unknown."""
        document = self._screened(error_document(error) | ({} if began else {"began": False}))
        failed = isinstance(error, Exception) or not began
        try:
            if attempt.recorded:
                self._finish(
                    attempt, EffectOutcome("failed" if failed else "unknown", error=document)
                )
        except HoldfastError as second:
            error.add_note(f"how the step {attempt.call.name!r} ended was not recorded: {second}")

    # Inside ----------------------------------------------------------------------------------

    def _screened(self, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return document if self._screen is None else self._screen.document(document)

    def _recorded_result(self, record: EffectRecord) -> Any:
        return self._fill(recorded_result(record, self._store))

    def _as_stored(self, result: Any, outcome: EffectOutcome) -> Any:
        """Return a result in the form that a replay gives it, with what the screen took out."""
        return result_as_stored(outcome if self._screen is None else encoded_result(result))

    def _claim(self, use: Use) -> NewEffect:
        """Decide which effect a call is, and keep others in this run from being the same."""
        call = use.call
        digest = fingerprint(call, self._screen)
        if call.key is None and key_mark(digest):
            self._recorded.check_key_mark(call.name, key_mark(digest))
        fence = self._fence()
        around = AROUND.get()
        with self._lock:
            scope = around.get(self, self._run)
            counts = scope.counts
            if counts is None or counts.epoch != self._epoch:
                counts = scope.counts = Counts(self._epoch)
            key, occurrence, again = call.key, 0, None
            if key is None:
                key = scope.key_for(call, digest)
                again = counts.again.get(key)
                occurrence = min(again) if again else counts.next.get(key, 0)
            draft = NewEffect(
                self._session_id, key, occurrence, call.name, digest, new_id(), fence=fence
            )
            if (key, occurrence) in self._running:
                # It has a key, or the count began anew while it runs.
                raise EffectRunning(
                    f"the step {shown(draft)} is running in this session already; nothing was run. "
                    f"Wait for it, or give each use a key of its own"
                )
            # From here on `_release` takes back whatever an interrupt leaves half done.
            use.counts, use.draft = counts, draft
            self._running[key, occurrence] = use
            HERE.add((os.getpid(), draft.attempt_id))
            if again:
                again.discard(occurrence)
            elif call.key is None:
                counts.next[key] = occurrence + 1
        return draft

    def _release(self, use: Use) -> None:
        """Let later calls be the effect that a use was, unless that is over. Doing so twice is fine."""
        counts, draft = use.counts, use.draft
        if counts is None or draft is None:
            return  # it was not begun
        if not use.over or use.call.key is not None:
            self._recorded.add(draft)
        with self._lock:
            if not use.over and draft.occurrence < counts.next.get(draft.key, 0):
                counts.again.setdefault(draft.key, set()).add(draft.occurrence)
            if self._running.get((draft.key, draft.occurrence)) is use:
                del self._running[draft.key, draft.occurrence]
            HERE.discard((os.getpid(), draft.attempt_id))

    def _ask(self, question: Question) -> Verdict | None:
        around = AROUND.get()
        try:
            self._enter(question.draft, question.effect.record.attempt_id)
            return cast("Reconcile", question.call.reconcile)(question.effect)
        finally:
            AROUND.set(around)

    async def _ask_async(self, question: Question) -> Any:
        around = self._enter(question.draft, question.effect.record.attempt_id)
        try:
            return await cast("Callable[..., Any]", question.call.reconcile)(question.effect)
        finally:
            AROUND.reset(around)

    def _enter(self, draft: NewEffect, asked: str = "") -> Token[Any]:
        """Count the steps of a body apart: another attempt at it meets them again.

        Those of ``reconcile`` belong to the attempt that it is asked about: of another one it is asked anew.
        """
        place = f"{draft.key}\0{draft.occurrence}\0{asked}".encode()
        return AROUND.set({**AROUND.get(), self: Scope(place)})

    def _attempt(self, draft: NewEffect, call: Call, *, recorded: bool) -> Attempt:
        return Attempt(draft, call, self._store.tenant, recorded)

    def _begin(self, draft: NewEffect, call: Call) -> Replayed | Attempt | Question:
        if call.idempotent:
            # Running it twice is no harm, so nothing needs to be written before it runs.
            record = self._recorded.find(draft)
            if record is None:
                return self._attempt(draft, call, recorded=False)
        else:
            record = self._store.begin_effect(draft)
            if record.attempt_id == draft.attempt_id:
                return self._attempt(draft, call, recorded=True)
        found, given = record.fingerprint, draft.fingerprint
        if found and given and without_mark(found) != without_mark(given):
            if b"" != key_mark(found) != key_mark(given) != b"":
                raise unrecognised(f"the key {draft.key!r} is recorded for step {record.name!r}")
            raise EffectMismatch(
                f"the key {draft.key!r} is recorded for step {record.name!r} with other arguments; "
                f"nothing was run. A key names one effect: give this one a key of its own"
            )
        return self._meet(record, draft, call)

    def _meet(
        self, record: EffectRecord, draft: NewEffect, call: Call
    ) -> Replayed | Attempt | Question:
        """Go on from what is recorded, which is not this attempt."""
        if record.status == "done":
            return Replayed(self._recorded_result(record))
        if call.idempotent:
            return self._attempt(replace(draft, instead_of=record.attempt_id), call, recorded=False)
        if call.policy == "retry" or (record.error or {}).get("began") is False:
            return self._replace(record, draft, call)
        if call.policy == "ask":
            return Question(draft, call, Effect(record, self._store))
        return self._give_up(record)

    def _replace(
        self, record: EffectRecord, draft: NewEffect, call: Call
    ) -> Replayed | Attempt | Question:
        """Begin again in the place of a recorded attempt, unless somebody else was faster."""
        present = self._store.begin_effect(replace(draft, instead_of=record.attempt_id))
        if present.attempt_id == draft.attempt_id:
            return self._attempt(draft, call, recorded=True)
        return self._meet(present, draft, call)

    def _give_up(self, record: EffectRecord) -> NoReturn:
        """Raise what stands against running a step; one that nobody saw end is marked as unknown."""
        if record.status == "started":
            self._store.finish_effect(
                record.session_id,
                record.key,
                record.occurrence,
                record.attempt_id,
                EffectOutcome("unknown"),
                fence=self._fence(),
            )
        refuse(record)

    def _finish(self, attempt: Attempt, outcome: EffectOutcome) -> EffectRecord | None:
        """Record an outcome. Return the record that stands in its place, if one does."""
        draft = attempt.draft
        try:
            if not is_running_here(draft):
                # A forked child has no lease.
                self._fence()
            if attempt.recorded:
                place = (draft.session_id, draft.key, draft.occurrence, draft.attempt_id)
                if not self._store.finish_effect(*place, outcome, fence=draft.fence):
                    raise EffectSuperseded(
                        f"somebody began the step {shown(draft)} anew, or erased the session, while "
                        f"its body ran here; how it ended here was not recorded"
                    )
                return None
            while True:
                record = self._store.begin_effect(replace(draft, outcome=outcome))
                if record.attempt_id == draft.attempt_id:
                    return None
                if record.status == "done":
                    return record
                draft = replace(draft, instead_of=record.attempt_id)
        except HoldfastError as error:
            if outcome.status == "done":
                error.add_note(
                    f"The step {shown(draft)} did happen. "
                    + (
                        "It stays recorded as started, and the next run finds it unknown."
                        if attempt.recorded
                        else "Nothing says so yet: being idempotent, it will run again."
                    )
                )
            raise
