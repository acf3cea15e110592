"""The contract of leases: one holder at a time, and a holder that lost a session changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import (
    CheckpointBusy,
    CheckpointNotFound,
    IllegalTransition,
    InvalidIdentifier,
    LeaseLost,
    SessionNotFound,
)
from holdfast.model import CheckpointQuery, Lease
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session, stored, write
from holdfast.testing.effects import done, effect, place

# Short enough to be over with the next statement, since a contract cannot turn a store's clock.
MOMENT = timedelta(microseconds=1)


def expire(store: Store, session_id: str, owner: str) -> Lease:
    """Return a lease that has expired while its owner did not notice."""
    lease = store.acquire_lease(session_id, owner, ttl=MOMENT)
    while not store.list_leases(session_id=session_id)[0].expired:
        pass
    return lease


class LeaseContract(Contract):
    """Leases, fences and what they refuse."""

    def test_a_lease_is_taken_once_and_given_back(self, store: Store) -> None:
        owner = store.create_session(session())
        assert owner.lease_owner is None
        assert store.list_leases() == []
        lease = store.acquire_lease(owner.id, "worker 1")
        assert (lease.session_id, lease.owner) == (owner.id, "worker 1")
        assert lease.token == owner.lease_token + 1
        assert lease.expired is False
        assert timedelta(seconds=25) < lease.expires_at - lease.since < timedelta(seconds=35)
        found = store.find_session(owner.id)
        assert found is not None
        assert (found.lease_owner, found.lease_token) == ("worker 1", lease.token)
        assert (found.lease_since, found.lease_expires_at) == (lease.since, lease.expires_at)
        with pytest.raises(CheckpointBusy, match="worker 1") as refused:
            store.acquire_lease(owner.id, "worker 2")
        assert refused.value.lease == lease
        assert store.release_lease(owner.id, lease.token) is True
        assert store.release_lease(owner.id, lease.token) is False
        assert store.acquire_lease(owner.id, "worker 2").token == lease.token + 2

    def test_a_session_can_be_held_from_its_first_moment(self, store: Store) -> None:
        owner = store.create_session(session(lease_owner="worker"))
        assert owner.lease_owner == "worker"
        (lease,) = store.list_leases()
        assert (lease.owner, lease.expired) == ("worker", False)
        assert lease.token == owner.lease_token
        copy = store.copy_session(owner.id, session(agent_id=owner.agent_id, lease_owner="another"))
        assert copy.lease_owner == "another"
        plain = store.copy_session(owner.id, session(agent_id=owner.agent_id))
        assert plain.lease_owner is None

    @pytest.mark.parametrize(
        "way", ["created", "created held", "put", "writes", "copied", "brought along"]
    )
    def test_who_held_an_erased_session_does_not_hold_the_next_one_with_its_id(
        self, store: Store, way: str
    ) -> None:
        source = store.create_session(session())
        draft = session()
        store.create_session(draft)
        moved = store.read_session(draft.id)
        assert moved is not None
        store.delete_session(draft.id)
        ways: dict[str, Callable[[], object]] = {
            "created": lambda: store.create_session(draft),
            "created held": lambda: store.create_session(replace(draft, lease_owner="me")),
            "put": lambda: store.put(checkpoint(draft.id, session=draft)),
            "writes": lambda: store.put_writes(draft, "", "e", [write()]),
            "copied": lambda: store.copy_session(source.id, draft),
            "brought along": lambda: store.add_session(moved, pytest.fail, indexes={}, leaves=()),
        }
        ways[way]()
        old = store.acquire_lease(draft.id, "me")
        store.delete_session(draft.id)
        ways[way]()
        new = store.acquire_lease(draft.id, "me")
        begun = effect(draft.id, fence=new.token)
        store.begin_effect(begun)
        writing: list[Callable[[], object]] = [
            lambda: store.put(checkpoint(draft.id, fence=old.token)),
            lambda: store.put_writes(draft, "", "e", [write("late")], fence=old.token),
            lambda: store.update_session(draft.id, status="completed", fence=old.token),
            lambda: store.begin_effect(effect(draft.id, fence=old.token)),
            lambda: store.finish_effect(*place(begun), done(), fence=old.token),
        ]
        for late in writing:
            with pytest.raises(LeaseLost):
                late()
        assert store.renew_leases({draft.id: old.token}) == set()
        assert store.release_lease(draft.id, old.token) is False
        (standing,) = store.list_leases()
        assert (standing.owner, standing.token) == ("me", new.token)
        assert 0 <= new.token < 2**53

    def test_an_equal_owner_joins(self, store: Store) -> None:
        owner = store.create_session(session())
        first = store.acquire_lease(owner.id, "agent:claude:7", ttl=timedelta(seconds=5))
        again = store.acquire_lease(owner.id, "agent:claude:7")
        assert (again.token, again.since) == (first.token, first.since)
        assert again.expires_at > first.expires_at
        expired = expire(store, owner.id, "agent:claude:7")
        assert store.acquire_lease(owner.id, "agent:claude:7").token == expired.token == first.token

    def test_an_expired_lease_can_be_taken_and_its_token_counts_until_then(
        self, store: Store
    ) -> None:
        owner = store.create_session(session())
        old = expire(store, owner.id, "old")
        assert store.put(checkpoint(owner.id, "late", fence=old.token)).created
        new = store.acquire_lease(owner.id, "new")
        assert new.token == old.token + 1
        with pytest.raises(LeaseLost):
            store.put(checkpoint(owner.id, "too late", fence=old.token))
        assert stored(store, owner.id) == ["late"]

    def test_a_lease_is_taken_over_from_the_very_holder_that_was_seen(self, store: Store) -> None:
        owner = store.create_session(session())
        dead = store.acquire_lease(owner.id, "dead")
        with pytest.raises(CheckpointBusy):
            store.acquire_lease(owner.id, "one", over=dead.token + 1)
        taken = store.acquire_lease(owner.id, "one", over=dead.token)
        assert taken.token == dead.token + 1
        with pytest.raises(CheckpointBusy):
            store.acquire_lease(owner.id, "two", over=dead.token)

    def test_of_many_at_once_one_takes_it(self, store: Store) -> None:
        owner = store.create_session(session())
        for turn in range(1, 11):
            dead = store.acquire_lease(owner.id, f"dead {turn}")

            def attempt(name: str, over: int = dead.token) -> bool:
                try:
                    store.acquire_lease(owner.id, name, over=over)
                except CheckpointBusy:
                    return False
                return True

            with ThreadPoolExecutor(8) as pool:
                won = list(pool.map(attempt, [f"worker {number}" for number in range(8)]))
            assert won.count(True) == 1
            (lease,) = store.list_leases()
            assert lease.token == dead.token + 1
            store.release_lease(owner.id, lease.token)

    def test_renewing_prolongs_what_is_still_held(self, store: Store) -> None:
        held, lost, gone = (store.create_session(session()).id for _ in range(3))
        tokens = {one: expire(store, one, "me").token for one in (held, lost)}
        tokens[gone] = store.acquire_lease(gone, "me").token
        store.acquire_lease(lost, "another")
        store.release_lease(gone, tokens[gone])
        assert store.renew_leases(tokens | {"unknown": 1}) == {held}
        leases = {lease.session_id: lease for lease in store.list_leases()}
        assert leases[held].expired is False
        assert leases[lost].owner == "another"
        assert store.renew_leases({}) == set()

    def test_every_write_compares_the_fence(self, store: Store) -> None:
        owner = store.create_session(session())
        mine = store.acquire_lease(owner.id, "me")
        saved = store.put(checkpoint(owner.id, "mine", fence=mine.token)).record
        store.update_session(owner.id, merge_metadata={"a": 1}, fence=mine.token)
        store.mark_restored(saved.id, fence=mine.token)
        draft = session(id=owner.id)
        store.put_writes(draft, "", "e", [write()], fence=mine.token)
        store.acquire_lease(owner.id, "thief", over=mine.token)
        before = store.find_session(owner.id)
        restored = store.list_checkpoints(CheckpointQuery(owner.id))
        calls: list[Callable[[], object]] = [
            lambda: store.put(checkpoint(owner.id, fence=mine.token)),
            lambda: store.put(checkpoint(owner.id, "mine", fence=mine.token, replace=True)),
            lambda: store.update_session(owner.id, status="completed", fence=mine.token),
            lambda: store.update_session(owner.id, merge_metadata={"b": 2}, fence=mine.token),
            lambda: store.mark_restored(saved.id, fence=mine.token),
            lambda: store.delete_checkpoints([saved.id], fence=mine.token),
            lambda: store.put_writes(draft, "", "e", [write("other")], fence=mine.token),
        ]
        for call in calls:
            with pytest.raises(LeaseLost):
                call()
        assert store.find_session(owner.id) == before
        assert store.list_checkpoints(CheckpointQuery(owner.id)) == restored
        assert len(store.list_writes(owner.id, "", ["e"])) == 1
        # Logs are not fenced, and upkeep asks for no fence.
        store.append_log(owner.id, "info", "still here")
        assert store.delete_checkpoints([saved.id]) == 1

    def test_giving_a_lease_back_ends_its_token(self, store: Store) -> None:
        owner = store.create_session(session())
        mine = store.acquire_lease(owner.id, "me")
        store.release_lease(owner.id, mine.token)
        with pytest.raises(LeaseLost):
            store.put(checkpoint(owner.id, fence=mine.token))
        assert store.put(checkpoint(owner.id)).created

    def test_a_fence_of_a_session_that_is_gone_is_lost(self, store: Store) -> None:
        owner = session()
        with pytest.raises(LeaseLost):
            store.put(checkpoint(owner.id, session=owner, fence=1))
        with pytest.raises(LeaseLost):
            store.put_writes(owner, "", "e", [write()], fence=1)
        assert store.find_session(owner.id) is None
        with pytest.raises(SessionNotFound):
            store.acquire_lease(owner.id, "me")
        with pytest.raises(CheckpointNotFound):
            store.mark_restored(owner.agent_id, fence=1)

    def test_without_a_fence_nobody_may_hold_the_session(self, store: Store) -> None:
        owner = store.create_session(session())
        lease = store.acquire_lease(owner.id, "process:host:boot.1:4711:99")
        draft = checkpoint(owner.id, "saver")
        with pytest.raises(CheckpointBusy, match=r"process 4711 on host"):
            store.put(draft)
        with pytest.raises(CheckpointBusy):
            store.put_writes(session(id=owner.id), "", "e", [write()])
        assert stored(store, owner.id) == []
        assert store.list_writes(owner.id, "", ["e"]) == []
        store.release_lease(owner.id, lease.token)
        assert store.put(draft).created

    @pytest.mark.parametrize("what", ["put", "writes"])
    def test_a_write_without_a_fence_ends_a_lease_that_has_expired(
        self, store: Store, what: str
    ) -> None:
        owner = store.create_session(session())
        old = expire(store, owner.id, "asleep")
        if what == "put":
            store.put(checkpoint(owner.id, "saver"))
        else:
            store.put_writes(session(id=owner.id), "", "e", [write()])
        assert store.list_leases() == []
        with pytest.raises(LeaseLost):
            store.put(checkpoint(owner.id, "awake", fence=old.token))

    def test_a_completed_session_takes_nothing_more(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id, "last")
        first = store.put(draft)
        store.update_session(owner.id, status="completed")
        with pytest.raises(IllegalTransition):
            store.put(checkpoint(owner.id, "more"))
        for status in ("active", "failed", "paused"):
            with pytest.raises(IllegalTransition):
                store.update_session(owner.id, status=status)
        assert store.update_session(owner.id, status="completed").status == "completed"
        assert store.update_session(owner.id, merge_metadata={"a": 1}).metadata == {"a": 1}
        again = store.put(draft)
        assert (again.created, again.record) == (False, first.record)
        assert stored(store, owner.id) == ["last"]

    def test_a_pause_is_recorded_and_cleared(self, store: Store) -> None:
        owner = store.create_session(session())
        until = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
        paused = store.update_session(
            owner.id, status="paused", pause_reason="approval", paused_until=until
        )
        assert (paused.status, paused.pause_reason, paused.paused_until) == (
            "paused",
            "approval",
            until,
        )
        assert paused.paused_at is not None
        assert paused.paused_at >= owner.created_at
        kept = store.update_session(owner.id, merge_metadata={"a": 1})
        assert (kept.paused_at, kept.pause_reason) == (paused.paused_at, "approval")
        active = store.update_session(owner.id, status="active")
        assert (active.paused_at, active.paused_until, active.pause_reason) == (None, None, None)
        assert store.find_session(owner.id) == active

    def test_a_dead_holders_session_is_interrupted_once(self, store: Store) -> None:
        owner = store.create_session(session(lease_owner="dead"))

        def interrupt(number: int) -> object:
            data = {"recoverer": number}
            token = owner.lease_token
            return store.interrupt_session(owner.id, token, most=3, message="found", data=data)

        with ThreadPoolExecutor(8) as pool:
            found = [one for one in pool.map(interrupt, range(16)) if one is not None]
        (record,) = found
        assert record == store.find_session(owner.id)
        now = store.find_session(owner.id)
        assert now is not None
        assert (now.status, now.recoveries) == ("interrupted", 1)
        assert (now.lease_owner, now.lease_token) == (None, owner.lease_token + 1)
        (line,) = store.list_logs(owner.id)
        assert (line.level, line.message) == ("warning", "found")
        with pytest.raises(LeaseLost):
            store.put(checkpoint(owner.id, fence=owner.lease_token))

    def test_recoveries_are_bounded(self, store: Store) -> None:
        owner = store.create_session(session())
        statuses = []
        for _ in range(3):
            store.update_session(owner.id, status="active")
            lease = store.acquire_lease(owner.id, "fragile")
            found = store.interrupt_session(owner.id, lease.token, most=2, message="again")
            assert found is not None
            statuses.append(found.status)
        assert statuses == ["interrupted", "interrupted", "failed"]

    def test_only_an_active_session_that_is_held_so_is_interrupted(self, store: Store) -> None:
        owner = store.create_session(session(lease_owner="me"))
        token = owner.lease_token
        assert store.interrupt_session(owner.id, token + 6, most=3, message="") is None
        assert store.interrupt_session("unknown", token, most=3, message="") is None
        store.update_session(owner.id, status="paused")
        assert store.interrupt_session(owner.id, token, most=3, message="") is None
        store.update_session(owner.id, status="active")
        assert store.release_lease(owner.id, token)
        assert store.interrupt_session(owner.id, token + 1, most=3, message="") is None
        assert store.list_logs(owner.id) == []

    @pytest.mark.parametrize(
        ("owner", "ttl"),
        [
            ("", timedelta(seconds=1)),
            ("a\0b", timedelta(seconds=1)),
            ("x" * 2000, timedelta(seconds=1)),
            ("me", timedelta(0)),
            ("me", timedelta(hours=2)),
        ],
        ids=["empty", "nul", "long", "no time", "too much time"],
    )
    def test_impossible_leases_are_refused(self, store: Store, owner: str, ttl: timedelta) -> None:
        held = store.create_session(session())
        with pytest.raises(InvalidIdentifier):
            store.acquire_lease(held.id, owner, ttl=ttl)
        with pytest.raises(InvalidIdentifier):
            store.create_session(session(lease_owner=owner, lease_ttl=ttl))
        assert store.list_leases() == []

    def test_tenants_have_leases_of_their_own(self, store: Store, neighbour: Store) -> None:
        name = session().id
        neighbour.create_session(session(id=name, lease_owner=neighbour.tenant))
        mine = store.create_session(session(id=name, lease_owner=store.tenant))
        (theirs,) = neighbour.list_leases()
        assert theirs.owner == neighbour.tenant
        assert store.release_lease(name, theirs.token) is False
        assert store.release_lease(name, mine.lease_token)
        assert neighbour.list_leases() == [theirs]
