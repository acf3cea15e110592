"""The memory store keeps the contract."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing import StoreContract
from holdfast.testing.drafts import checkpoint, session, write


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with MemoryStore() as store:
            yield store

    @pytest.fixture
    def neighbour(self) -> Iterator[Store]:
        with MemoryStore(tenant="neighbour") as store:
            yield store


def test_writes_are_orphans_only_after_a_day() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    store = MemoryStore(now=lambda: now)
    owner = session()
    store.put_writes(owner, "", "orphan", [write(contents=[b"orphaned"])])
    store.put_writes(owner, "", "kept", [write(contents=[b"kept"])])
    store.put(checkpoint(owner.id, external_id="kept"))
    now += timedelta(hours=23)
    assert store.gc().writes == 0
    now += timedelta(hours=2)
    assert store.gc(dry_run=True).writes == 1
    report = store.gc()
    assert (report.writes, report.chunks) == (1, 1)
    assert store.list_writes(owner.id, "", ["orphan"]) == []
    assert len(store.list_writes(owner.id, "", ["kept"])) == 1
    assert store.read_chunks([digest_of(b"kept")])
