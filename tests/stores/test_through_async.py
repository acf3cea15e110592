"""The contract holds through the async twin's threads as it does without them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.aio import Threads
from holdfast.stores.base import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import StoreContract
from tests.event_loop import event_loop


class Awaited:
    """Presents a store whose every call is awaited in an event loop, as the async twin makes it."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, threads: Threads) -> None:
        self._store = store
        self._loop = loop
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not callable(value):
            return value

        def awaited(*args: Any, **kwargs: Any) -> Any:
            call = self._threads.run(value, *args, **kwargs)
            return asyncio.run_coroutine_threadsafe(call, self._loop).result(60)

        return awaited


class TestStoreThroughTheAsyncTwin(StoreContract):
    @pytest.fixture
    def threads(self) -> Iterator[tuple[asyncio.AbstractEventLoop, Threads]]:
        threads = Threads()
        with event_loop() as loop:
            yield loop, threads
        threads.shut_down()

    @pytest.fixture
    def store(
        self, tmp_path: Path, threads: tuple[asyncio.AbstractEventLoop, Threads]
    ) -> Iterator[Store]:
        with SqliteStore(tmp_path / "sessions.db") as store:
            yield cast("Store", Awaited(store, *threads))

    @pytest.fixture
    def neighbour(
        self, tmp_path: Path, threads: tuple[asyncio.AbstractEventLoop, Threads]
    ) -> Iterator[Store]:
        with SqliteStore(tmp_path / "sessions.db", tenant="neighbour") as store:
            yield cast("Store", Awaited(store, *threads))
