"""Blocking calls in asyncio: run in a thread, and waited for whatever happens.

A caller that is cancelled still waits for the outcome and is cancelled then, so that a write is whole
or absent, and over, when the cancellation goes on. asyncio is imported when it is first needed: programs
without an event loop never pay for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

T = TypeVar("T")

_END: Final = object()


async def run_in(executor: Executor | None, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run ``call`` in a thread of ``executor`` with the caller's context variables."""
    import asyncio

    loop = asyncio.get_running_loop()
    bound = partial(copy_context().run, call, *args, **kwargs)
    result, error = await _outcome(loop.run_in_executor(executor, _told, bound))
    if error is None:
        return cast("T", result)
    try:
        raise error
    finally:
        del error  # or it would hold itself, through its traceback


def _told(call: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Return what a call returned or raised: a future cannot hold every error, and makes others of some."""
    try:
        return call(), None
    except BaseException as error:
        return None, error


async def outlast(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end, which a cancellation of the caller only delays."""
    import asyncio

    return await _outcome(asyncio.ensure_future(work))


async def _outcome(future: asyncio.Future[T]) -> T:
    import asyncio

    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not future.cancelled():
            future.exception()  # seen, or the loop would complain about it
        raise cancelled
    return future.result()


async def in_thread(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run ``call`` in a thread of the event loop's own."""
    return await run_in(None, call, *args, **kwargs)


async def iterate_in_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Draw items one by one in a thread."""
    while (item := await in_thread(next, items, _END)) is not _END:
        yield item
