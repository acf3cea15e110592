"""A sealed store on each of the three backends."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.crypto import KeyRing
from holdfast.stores import Store, open_store
from holdfast.stores.sealed import SealedStore

Open = Callable[..., Store]


@pytest.fixture
def ring() -> KeyRing:
    """The keys of the sealed store."""
    return KeyRing.new()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a database is to be that others can open too."""
    if request.param == "sqlite":
        return str(tmp_path / "sealed.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path, ring: KeyRing) -> Iterator[SealedStore]:
    """An empty sealed store; its ``inner`` is what somebody reaches who can write to the database."""
    where = {"memory": "memory:", "sqlite": str(tmp_path / "sealed.db")}.get(request.param)
    with open_store(where or request.getfixturevalue("postgres_url"), keys=ring) as store:
        assert isinstance(store, SealedStore)
        yield store
