"""A sealed store keeps the contract of the store that it is made of."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.crypto import KeyRing
from holdfast.stores import Store, open_store
from holdfast.testing import StoreContract

RING = KeyRing.new()
# Version, length and id of the key, nonce, proof.
OVERHEAD = 2 + len(RING.current) + 12 + 16


class TestSealedMemory(StoreContract):
    pack_overhead = OVERHEAD

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with open_store("memory:", keys=RING) as store:
            yield store

    @pytest.fixture
    def neighbour(self) -> Iterator[Store]:
        with open_store("memory:", tenant="neighbour", keys=RING) as store:
            yield store


class TestSealedSqlite(StoreContract):
    pack_overhead = OVERHEAD

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with open_store(tmp_path / "sealed.db", keys=RING) as store:
            yield store

    @pytest.fixture
    def neighbour(self, tmp_path: Path, store: Store) -> Iterator[Store]:
        with open_store(tmp_path / "sealed.db", tenant="neighbour", keys=RING) as store:
            yield store


class TestSealedPostgres(StoreContract):
    pack_overhead = OVERHEAD

    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        with open_store(postgres_url, keys=RING) as store:
            yield store

    @pytest.fixture
    def neighbour(self, postgres_url: str, store: Store) -> Iterator[Store]:
        with open_store(postgres_url, tenant="neighbour", keys=RING) as store:
            yield store
