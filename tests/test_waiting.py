"""Blocking calls in asyncio: what they raise is what their caller gets."""

from __future__ import annotations

import asyncio
import concurrent.futures

import pytest

from holdfast.waiting import in_thread
from tests.event_loop import event_loop


class Own(Exception):
    pass


def raising(error: BaseException) -> None:
    raise error


def test_the_end_of_an_iterator_is_an_error_as_in_any_coroutine() -> None:
    ended = StopIteration("nothing left")
    # In a loop that does not wait for what nothing ends.
    with event_loop() as loop, pytest.raises(RuntimeError) as raised:
        asyncio.run_coroutine_threadsafe(in_thread(raising, ended), loop).result(20)
    assert raised.value.__cause__ is ended


def test_a_cancelled_future_of_others_is_no_cancellation() -> None:
    async def scenario() -> None:
        error = concurrent.futures.CancelledError("theirs")
        task = asyncio.create_task(in_thread(raising, error))
        await asyncio.wait([task])
        assert not task.cancelled()
        assert task.exception() is error

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "error", [Own("its own"), TimeoutError("its own"), asyncio.CancelledError()]
)
def test_every_other_error_is_raised_as_it_is(error: BaseException) -> None:
    async def scenario() -> None:
        with pytest.raises(type(error)) as raised:
            await in_thread(raising, error)
        assert raised.value is error

    asyncio.run(scenario())
