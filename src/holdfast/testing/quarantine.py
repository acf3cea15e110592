"""The contract of quarantine: what failed verification is there, and nobody uses it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import CheckpointQuarantined, ChunksMissing, DigestMismatch
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, Trim
from holdfast.state import StateEncoder
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session, stored
from holdfast.verification import verify_store


def state_of(number: int) -> dict[str, Any]:
    """Return a state with content of its own."""
    return {"n": number, "text": f"{number} of many words " * 200}


def put_state(store: Store, session_id: str, number: int, **changes: Any) -> str:
    """Put a state and return the checkpoint's id."""
    encoded = StateEncoder().encode(state_of(number))
    content: dict[str, Any] = {
        "name": f"n{number}",
        "manifest": encoded.manifest,
        "chunks": encoded.chunks,
        "refs": encoded.refs,
        "expects": encoded.expects,
    }
    return store.put(checkpoint(session_id, **(content | changes))).record.id


class QuarantineContract(Contract):
    """Checkpoints and chunks that are kept from being used."""

    def test_what_is_in_quarantine_is_neither_loaded_nor_resumed_from(self, store: Store) -> None:
        owner = store.create_session(session())
        good, bad = (put_state(store, owner.id, number) for number in range(2))
        assert store.quarantine([bad.upper(), new_id()]) == {bad}
        assert store.quarantine([bad]) == set()
        with pytest.raises(CheckpointQuarantined) as raised:
            store.load(bad)
        assert raised.value.last_good == good
        assert good in str(raised.value)
        newest = CheckpointQuery(session_id=owner.id)
        with pytest.raises(CheckpointQuarantined):
            store.read_newest(newest)
        with pytest.raises(CheckpointQuarantined) as raised:
            store.load_newest(newest)
        assert raised.value.last_good == good
        with pytest.raises(CheckpointQuarantined):
            store.read_payloads([good, bad])
        with pytest.raises(CheckpointQuarantined):
            store.load_all([good, bad])
        with pytest.raises(CheckpointQuarantined):
            store.copy_session(owner.id, session())
        assert store.read_payload(bad, anyway=True) is not None
        latest = store.latest_of_agent(owner.agent_id)
        assert latest is not None
        assert latest.id == good
        assert stored(store, owner.id) == ["n1", "n0"]
        assert stored(store, owner.id, resumable=True) == ["n0"]
        assert stored(store, owner.id, resumable=False) == ["n1"]
        assert stored(store, owner.id, quarantined=True) == ["n1"]
        assert len(linked(store, owner.id)) == 2
        assert store.quarantine([good, bad], lift=True) == {bad}
        assert store.load(bad) is not None

    def test_a_neighbour_cannot_put_into_quarantine(self, store: Store, neighbour: Store) -> None:
        owner = store.create_session(session())
        good = put_state(store, owner.id, 0)
        assert neighbour.quarantine([good]) == set()
        assert store.quarantine([]) == set()
        assert store.load(good) is not None

    def test_a_trim_spares_the_last_good_one(self, store: Store) -> None:
        owner = store.create_session(session())
        put_state(store, owner.id, 0)
        bad = put_state(store, owner.id, 1)
        store.quarantine([bad])
        put_state(store, owner.id, 2, resumable=False, trim=Trim(keep=1))
        assert stored(store, owner.id) == ["n2", "n0"]

    def test_content_that_was_set_aside_counts_as_missing(self, store: Store) -> None:
        owner = store.create_session(session())
        encoded = StateEncoder().encode(state_of(0))
        [digest] = encoded.chunks
        store.stage_chunks({digest: b"something else"})
        first = put_state(store, owner.id, 0)
        assert list(store.iter_digests()) == [digest]
        [(damaged, wrong)] = store.find_damaged_chunks([digest]).items()
        assert damaged == digest
        assert store.set_chunk_aside(digest, b"other bytes") is False
        assert store.set_chunk_aside(digest, wrong) is True
        assert store.set_chunk_aside(digest, wrong) is False
        assert list(store.iter_digests()) == []
        assert store.find_damaged_chunks([digest]) == {digest: None}
        with pytest.raises(DigestMismatch):
            store.load(first)
        with pytest.raises(ChunksMissing):
            put_state(store, owner.id, 1, chunks={}, refs=encoded.refs, expects=[digest])
        put_state(store, owner.id, 0, name="again")
        assert store.load(first) is not None
        assert store.gc().chunks == 1
        assert store.load(first) is not None

    def test_nothing_is_swept_as_long_as_something_is_in_quarantine(self, store: Store) -> None:
        owner = store.create_session(session())
        good, bad = (put_state(store, owner.id, number) for number in range(2))
        store.delete_checkpoints([good])
        store.quarantine([bad])
        for dry_run in (True, False):
            report = store.gc(dry_run=dry_run)
            assert (report.chunks, report.bytes, report.in_quarantine) == (0, 0, 1)
        assert len(list(store.iter_digests())) == 2
        store.quarantine([bad], lift=True)
        report = store.gc()
        assert (report.chunks, report.in_quarantine) == (1, 0)

    def test_a_neighbour_in_quarantine_stops_no_sweep(self, store: Store, neighbour: Store) -> None:
        theirs = neighbour.create_session(session())
        neighbour.quarantine([put_state(neighbour, theirs.id, 0)])
        owner = store.create_session(session())
        store.delete_checkpoints([put_state(store, owner.id, 1)])
        assert store.gc().chunks == 1

    def test_deep_verification_quarantines_and_releases(self, store: Store) -> None:
        owner = store.create_session(session())
        first = put_state(store, owner.id, 0)
        report = verify_store(store, deep=True)
        assert (report.ok, report.checked, report.sessions, report.chunks) == (True, 1, 1, 1)
        [(digest, data)] = StateEncoder().encode(state_of(1)).chunks.items()
        store.stage_chunks({digest: b"something else"})
        second = put_state(store, owner.id, 1)
        report = verify_store(store, deep=True)
        assert [one.checkpoint_id for one in report.damaged] == [None, second]
        assert report.quarantined == (second,)
        assert store.list_checkpoints(CheckpointQuery(quarantined=True))[0].id == second
        assert verify_store(store, deep=True).quarantined == ()
        store.stage_chunks({digest_of(bytes(data)): data})
        assert verify_store(store).ok
        with pytest.raises(CheckpointQuarantined):
            store.load(second)
        report = verify_store(store, deep=True)
        assert (report.ok, report.released) == (True, (second,))
        assert store.load(second) is not None
        assert store.load(first) is not None


def linked(store: Store, session_id: str) -> list[str]:
    """Return the checkpoints that are links of a chain, in quarantine or not."""
    chain = store.read_chain(session_id)
    return [] if chain is None else [one.checkpoint_id for one in chain.links]
