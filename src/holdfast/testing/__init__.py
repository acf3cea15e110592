"""The contracts as test suites: of a store, of a saver, of a checkpointer.

Subclass one of them in a test module of your own and say how yours is opened; pytest finds the rest.
It needs pytest, which nothing else in the package does. For `holdfast.stores.base.Store`:

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

from holdfast.testing.agents import AgentContract
from holdfast.testing.chain import ChainContract
from holdfast.testing.checkpointers import CheckpointerContract
from holdfast.testing.checkpoints import CheckpointContract
from holdfast.testing.content import ContentContract
from holdfast.testing.copies import CopyContract
from holdfast.testing.effects import EffectContract
from holdfast.testing.labels import LabelContract
from holdfast.testing.leases import LeaseContract
from holdfast.testing.lines import LineContract
from holdfast.testing.listings import ListingContract
from holdfast.testing.logs import LogContract
from holdfast.testing.packs import PackContract
from holdfast.testing.quarantine import QuarantineContract
from holdfast.testing.restoring import RestoringContract
from holdfast.testing.savers import SaverContract
from holdfast.testing.sessions import SessionContract
from holdfast.testing.tenants import TenantContract
from holdfast.testing.transfer import TransferContract
from holdfast.testing.trims import TrimContract
from holdfast.testing.upkeep import UpkeepContract
from holdfast.testing.writes import WriteContract

__all__ = ["CheckpointerContract", "SaverContract", "StoreContract"]


class StoreContract(
    AgentContract,
    SessionContract,
    CopyContract,
    LogContract,
    CheckpointContract,
    ChainContract,
    QuarantineContract,
    ListingContract,
    RestoringContract,
    TenantContract,
    ContentContract,
    TrimContract,
    WriteContract,
    LabelContract,
    LineContract,
    LeaseContract,
    PackContract,
    EffectContract,
    TransferContract,
    UpkeepContract,
):
    """Everything that a store promises. Override the fixtures ``store`` and ``neighbour``."""
