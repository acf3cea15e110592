"""Autosave for asyncio: the same block with ``async with``, and a provider that may be a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from inspect import isawaitable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdfast.autosave.saver import Autosave
from holdfast.waiting import in_thread

S = TypeVar("S")


class LoopProvider:
    """Lets the event loop answer for a thread, so that nothing else of the loop runs meanwhile."""

    def __init__(self, provider: Callable[[], Any]) -> None:
        self._provider = provider
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> Mapping[str, Any]:
        if self.loop is None or self.loop.is_closed():
            raise RuntimeError("the event loop that the provider belongs to is not running")
        return asyncio.run_coroutine_threadsafe(self._ask(), self.loop).result()

    async def _ask(self) -> Mapping[str, Any]:
        answer = self._provider()
        found: Mapping[str, Any] = await answer if isawaitable(answer) else answer
        return found


class AsyncAutosave(Generic[S]):
    """The twin of `Autosave`."""

    def __init__(self, saver: Autosave[S], provider: LoopProvider) -> None:
        self._saver = saver
        self._provider = provider

    async def start(self) -> Self:
        """See `Autosave.start`."""
        loop = asyncio.get_running_loop()
        self._provider.loop = loop
        if threading.current_thread() is threading.main_thread():
            self._saver.run_in_main = loop.call_soon_threadsafe
        # Here and not in a worker thread: signal handlers are the main thread's.
        self._saver.start()
        return self

    async def stop(self) -> None:
        """See `Autosave.stop`."""
        await self._leave(None)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(exc)

    async def _leave(self, exc: BaseException | None) -> None:
        try:
            await in_thread(self._saver.__exit__, type(exc), exc, None)
        finally:
            self._saver.restore_signals()

    async def notify(self, event: str, /, **details: Any) -> S | None:
        """See `Autosave.notify`."""
        return await in_thread(self._saver.notify, event, **details)

    async def flush(self) -> S | None:
        """See `Autosave.flush`."""
        return await in_thread(self._saver.flush)

    def register_child(self, process: Any) -> None:
        """See `Autosave.register_child`."""
        self._saver.register_child(process)

    @property
    def last_error(self) -> BaseException | None:
        """See `Autosave.last_error`."""
        return self._saver.last_error

    @property
    def last_checkpoint(self) -> S | None:
        """See `Autosave.last_checkpoint`."""
        return self._saver.last_checkpoint

    @property
    def is_running(self) -> bool:
        """See `Autosave.is_running`."""
        return self._saver.is_running
