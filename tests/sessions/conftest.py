"""A manager on every backend, and one that goes through the async twin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import SessionManager
from holdfast.aio import AsyncSession, AsyncSessionManager
from tests.event_loop import event_loop

BACKENDS = ("memory", "sqlite", "postgres", "async")


class Blocking:
    """Presents an async twin as if it were synchronous, so that the same tests run through it."""

    def __init__(self, twin: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._twin = twin
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._twin, name)
        if name == "guard":
            return self._guard
        if isawaitable(value):
            return self._wait(value)
        if not callable(value):
            return value
        return lambda *args, **kwargs: self._wait(value(*args, **kwargs))

    def _wait(self, awaitable: Any) -> Any:
        async def waited() -> Any:
            return await awaitable

        result = asyncio.run_coroutine_threadsafe(waited(), self._loop).result(60)
        return Blocking(result, self._loop) if isinstance(result, AsyncSession) else result

    @contextmanager
    def _guard(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        guard = self._twin.guard(*args, **kwargs)
        value = self._wait(guard.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self._wait(guard.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._wait(guard.__aexit__(None, None, None))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.fixture
def url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if backend == "memory":
        return "memory:"
    if backend == "postgres":
        return cast("str", request.getfixturevalue("postgres_url"))
    return str(tmp_path / "store" / "sessions.db")


@pytest.fixture
def manager(backend: str, url: str) -> Iterator[SessionManager]:
    if backend != "async":
        with SessionManager.open(url, workspace=False) as opened:
            yield opened
        return
    with event_loop() as loop:
        opening = AsyncSessionManager.open(url, workspace=False)
        twin = asyncio.run_coroutine_threadsafe(opening, loop).result(60)
        yield cast("SessionManager", Blocking(twin, loop))
        asyncio.run_coroutine_threadsafe(twin.close(), loop).result(60)


@pytest.fixture
def reopen(
    backend: str, url: str, manager: SessionManager
) -> Iterator[Callable[[], SessionManager]]:
    """Opens the same store a second time, as another process would."""
    opened: list[SessionManager] = []

    def again() -> SessionManager:
        if backend == "memory":
            return SessionManager(manager.store, workspace=False)
        opened.append(SessionManager.open(url, workspace=False))
        return opened[-1]

    yield again
    for one in opened:
        one.close()
