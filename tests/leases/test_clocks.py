"""The time of a lease is that of the machine since it started; no wall clock has a say."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.errors import CheckpointBusy, LeaseLost
from holdfast.processes import Uptime
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.drafts import checkpoint, session

HOUR = timedelta(hours=1)


class Clocks:
    """A wall clock and the time since the boot, both to be turned."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 1, 1, tzinfo=UTC)
        self.boot = Uptime("boot 1", 1000.0)

    def pass_by(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.boot = self.boot._replace(seconds=self.boot.seconds + seconds)


Opened = tuple[Store, Clocks]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    clocks = Clocks()
    given: dict[str, Callable[[], object]] = {
        "now": lambda: clocks.wall,
        "uptime": lambda: clocks.boot,
    }
    if request.param == "memory":
        return MemoryStore(**given), clocks  # type: ignore[arg-type]
    return SqliteStore(tmp_path / "s.db", **given), clocks  # type: ignore[arg-type]


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_wall_clock_that_jumps_neither_ends_nor_prolongs_a_lease(
    opened: Opened, jump: timedelta
) -> None:
    store, clocks = opened
    owner = store.create_session(session(lease_owner="me"))
    clocks.wall += jump
    with pytest.raises(CheckpointBusy):
        store.acquire_lease(owner.id, "another")
    clocks.pass_by(29)
    assert store.list_leases()[0].expired is False
    clocks.pass_by(2)
    assert store.list_leases()[0].expired is True
    assert store.acquire_lease(owner.id, "another").token == owner.lease_token + 1
    with pytest.raises(LeaseLost):
        store.put(checkpoint(owner.id, fence=owner.lease_token))


def test_renewing_counts_from_now_by_the_same_clock(opened: Opened) -> None:
    store, clocks = opened
    owner = store.create_session(session(lease_owner="me"))
    for _ in range(5):
        clocks.pass_by(20)
        clocks.wall -= HOUR
        assert store.renew_leases({owner.id: owner.lease_token}) == {owner.id}
        assert store.list_leases()[0].expired is False
    clocks.pass_by(31)
    assert store.list_leases()[0].expired is True


def test_a_lease_of_an_earlier_boot_has_expired(opened: Opened) -> None:
    store, clocks = opened
    owner = store.create_session(session(lease_owner="me"))
    clocks.boot = Uptime("boot 2", 5.0)
    assert store.list_leases()[0].expired is True
    assert store.acquire_lease(owner.id, "another").token == owner.lease_token + 1


def test_where_boots_cannot_be_told_apart_an_impossible_time_is_of_another_one(
    opened: Opened,
) -> None:
    store, clocks = opened
    clocks.boot = Uptime("-", 90_000.0)
    store.create_session(session(lease_owner="me"))
    assert store.list_leases()[0].expired is False
    clocks.boot = Uptime("-", 5.0)
    assert store.list_leases()[0].expired is True
