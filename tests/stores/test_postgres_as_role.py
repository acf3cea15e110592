"""The store keeps its contract for a role that is bound by row-level security.

What is proven here is that every statement names its tenant: one that does not would find nothing.
"""

from collections.abc import Iterator

import pytest

from holdfast.stores.base import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.testing import StoreContract
from tests.stores.postgres_roles import role_of


class TestPostgresStoreOfARole(StoreContract):
    @pytest.fixture
    def role_url(self, postgres_url: str) -> Iterator[str]:
        with role_of(postgres_url, "app") as url:
            yield url

    @pytest.fixture
    def store(self, role_url: str) -> Iterator[Store]:
        with PostgresStore(role_url) as store:
            yield store

    @pytest.fixture
    def neighbour(self, store: Store, role_url: str) -> Iterator[Store]:
        with PostgresStore(role_url, tenant="neighbour") as other:
            yield other
