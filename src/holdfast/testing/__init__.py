"""The contract of a store as a test suite, for every implementation of `holdfast.stores.base.Store`.

Subclass `StoreContract` in a test module of your own and say how a store is opened; pytest finds the
rest. It needs pytest, which nothing else in the package does.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            with MyStore("default") as store:
                yield store

        @pytest.fixture
        def neighbour(self, store: Store) -> Iterator[Store]:
            with MyStore("neighbour") as other:
                yield other
"""

from __future__ import annotations

from holdfast.testing.checkpoints import CheckpointContract
from holdfast.testing.sessions import SessionContract
from holdfast.testing.trims import TrimContract
from holdfast.testing.upkeep import UpkeepContract
from holdfast.testing.writes import WriteContract

__all__ = ["StoreContract"]


class StoreContract(
    SessionContract, CheckpointContract, TrimContract, WriteContract, UpkeepContract
):
    """Everything that a store promises. Override the fixtures ``store`` and ``neighbour``."""
