"""The PostgreSQL store keeps the contract of every store."""

from collections.abc import Iterator

import pytest

from holdfast.stores.base import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.testing import StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        with PostgresStore(postgres_url) as store:
            yield store

    @pytest.fixture
    def neighbour(self, store: Store, postgres_url: str) -> Iterator[Store]:
        with PostgresStore(postgres_url, tenant="neighbour") as other:
            yield other
