"""The contract of listings: filters, limits, pages, and metadata that is compared."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.errors import InvalidFilter
from holdfast.model import CheckpointQuery, CheckpointRecord
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, agent, checkpoint, names, session, stored


class ListingContract(Contract):
    """Finding checkpoints by what they are."""

    def test_each_filter_narrows_a_listing(self, store: Store) -> None:
        worker = agent(id="abcdef00-0000-8000-8000-000000000002")
        owner = store.create_session(session(agent_id=worker.id, agent=worker))
        other = store.create_session(session())
        chosen = store.put(
            checkpoint(
                owner.id,
                "chosen",
                id="abcdef00-0000-7000-8000-000000000001",
                namespace="sub",
                external_id="e",
                label="checkpoint-20260101-000000",
                checkpoint_type="failure",
                retention_class="failure",
                run_id="run",
                version=3,
                resumable=False,
                metadata={"k": "v"},
            )
        ).record
        rest = store.put(checkpoint(other.id, "rest", created_at=datetime(2020, 1, 1, tzinfo=UTC)))
        store.quarantine([chosen.id])
        filters: dict[str, Any] = {
            "session_id": owner.id,
            "namespace": "sub",
            "agent_id": worker.id,
            "agent_prefix": "ABCDEF00-0000-8000-8",
            "id": chosen.id,
            "id_prefix": chosen.id[:8],
            "name": "chosen",
            "label": "checkpoint-20260101-000000",
            "external_id": "e",
            "checkpoint_type": "failure",
            "retention_class": "failure",
            "run_id": "run",
            "version": 3,
            "resumable": False,
            "quarantined": True,
            "before_seq": rest.record.seq,
            "metadata": {"k": "v"},
        }
        unlimited = {field.name for field in fields(CheckpointQuery)} - {"limit"}
        assert filters.keys() == unlimited, "every filter is tried"
        for name, value in filters.items():
            query = CheckpointQuery(**{name: value})
            assert names(store.list_checkpoints(query)) == ["chosen"], name
        assert names(store.list_checkpoints(CheckpointQuery(**filters))) == ["chosen"]
        for name in filters.keys() - {"id_prefix", "before_seq", "metadata", "id"}:
            contradiction = CheckpointQuery(**{name: filters[name], "id": rest.record.id})
            assert store.list_checkpoints(contradiction) == [], name
        assert names(store.list_checkpoints(CheckpointQuery(resumable=True))) == ["rest"]
        assert names(store.list_checkpoints(CheckpointQuery(namespace=""))) == ["rest"]

    def test_limits_cut_a_listing(self, store: Store) -> None:
        owner = store.create_session(session())
        for number in range(4):
            store.put(checkpoint(owner.id, f"n{number}"))
        assert stored(store, owner.id, limit=2) == ["n3", "n2"]
        assert stored(store, owner.id, limit=100) == ["n3", "n2", "n1", "n0"]
        assert stored(store, owner.id, limit=0) == []
        for bad in (-1, 1.5, "1", True):
            with pytest.raises(InvalidFilter):
                stored(store, owner.id, limit=bad)

    def test_a_listing_can_be_paged_with_before_seq(self, store: Store) -> None:
        owner = store.create_session(session())
        for number in range(5):
            store.put(checkpoint(owner.id, f"n{number}"))
        seen: list[CheckpointRecord] = []
        while page := store.list_checkpoints(
            CheckpointQuery(session_id=owner.id, limit=2, before_seq=seen[-1].seq if seen else None)
        ):
            seen += page
        assert names(seen) == ["n4", "n3", "n2", "n1", "n0"]

    @pytest.mark.parametrize(
        ("metadata", "wanted", "fits"),
        [
            ({"k": "v"}, {"k": "v"}, True),
            ({"k": "v"}, {"k": "V"}, False),
            ({"k": "v"}, {"K": "v"}, False),
            ({"k": 1}, {"k": 1.0}, True),
            ({"k": 1.0}, {"k": 1}, True),
            ({"k": 1}, {"k": True}, False),
            ({"k": True}, {"k": 1}, False),
            ({"k": True}, {"k": True}, True),
            ({"k": False}, {"k": False}, True),
            ({"k": 0}, {"k": False}, False),
            ({"k": 1}, {"k": "1"}, False),
            ({"k": "1"}, {"k": 1}, False),
            ({"k": None}, {"k": None}, True),
            ({}, {"k": None}, False),
            ({"k": "null"}, {"k": None}, False),
            ({"k": 0.1}, {"k": 0.1}, True),
            ({"k": 0.30000000000000004}, {"k": 0.3}, False),
            ({"k": 2**62}, {"k": 2**62}, True),
            ({"k": 2**62 + 1}, {"k": 2**62}, False),
            ({"k": ["v"]}, {"k": "v"}, False),
            ({"k": {"j": 1}}, {"k": 1}, False),
            ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
            ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
            ({"a.b": 1}, {"a.b": 1}, True),
            ({"a": {"b": 1}}, {"a.b": 1}, False),
            ({"q\"uo'te\\": "x"}, {"q\"uo'te\\": "x"}, True),
            ({"$.k": "% _"}, {"$.k": "% _"}, True),
            ({"é": "🦀\n"}, {"é": "🦀\n"}, True),
            ({"": ""}, {"": ""}, True),
            (None, {"k": 1}, False),
        ],
    )
    def test_metadata_is_compared_by_top_level_scalars(
        self,
        store: Store,
        metadata: dict[str, Any] | None,
        wanted: dict[str, Any],
        fits: bool,
    ) -> None:
        owner = store.create_session(session())
        store.put(checkpoint(owner.id, "one", metadata=metadata))
        assert stored(store, owner.id, metadata=wanted) == (["one"] if fits else [])

    @pytest.mark.parametrize(
        "value", [[1], {"a": 1}, (1,), {1}, b"x", object(), float("nan"), 2**70]
    )
    def test_metadata_cannot_be_compared_with_more_than_scalars(
        self, store: Store, value: object
    ) -> None:
        with pytest.raises(InvalidFilter):
            store.list_checkpoints(CheckpointQuery(metadata={"k": value}))

    @pytest.mark.parametrize("bad", [{"name": 1}, {"session_id": "lone \ud800"}, {"version": "1"}])
    def test_a_filter_of_the_wrong_kind_is_refused(self, store: Store, bad: dict[str, Any]) -> None:
        with pytest.raises(InvalidFilter):
            store.list_checkpoints(CheckpointQuery(**bad))

    def test_what_a_caller_does_to_a_record_does_not_reach_the_store(self, store: Store) -> None:
        owner = store.create_session(session())
        given: dict[str, Any] = {"list": [1]}
        record = store.put(checkpoint(owner.id, metadata=given)).record
        given["list"].append(2)
        assert record.metadata is not None
        record.metadata["list"].append(3)
        (listed,) = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert listed.metadata == {"list": [1]}
