"""The SQLite store keeps the contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores.base import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with SqliteStore(tmp_path / "sessions.db") as store:
            yield store

    @pytest.fixture
    def neighbour(self, tmp_path: Path) -> Iterator[Store]:
        with SqliteStore(tmp_path / "sessions.db", tenant="neighbour") as store:
            yield store
