"""The contract of retention: what a put removes, exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import InputError
from holdfast.model import CheckpointQuery, Trim
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session, stored


class TrimContract(Contract):
    """Trims inside a put."""

    def put_many(self, store: Store, session_id: str, count: int, **changes: Any) -> list[str]:
        """Put numbered checkpoints and return their ids."""
        changes.setdefault("retention_class", "automatic")
        changes.setdefault("checkpoint_type", "auto")
        return [
            store.put(checkpoint(session_id, f"n{number}", **changes)).record.id
            for number in range(count)
        ]

    @pytest.mark.parametrize("keep", [1, 2, 5])
    def test_the_cap_is_exact(self, store: Store, keep: int) -> None:
        draft = session()
        store.create_session(draft)
        self.put_many(store, draft.id, 8, trim=Trim(keep=keep))
        assert stored(store, draft.id) == [f"n{number}" for number in range(8)][::-1][:keep]

    def test_a_put_names_what_it_removed_oldest_first(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        ids = self.put_many(store, draft.id, 4)
        result = store.put(checkpoint(draft.id, retention_class="automatic", trim=Trim(keep=2)))
        assert result.removed == tuple(ids[:3])
        assert store.read_payload(ids[0]) is None

    def test_no_cap_removes_nothing(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        self.put_many(store, draft.id, 8, trim=Trim())
        assert len(stored(store, draft.id)) == 8

    def test_a_negative_cap_is_refused(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        with pytest.raises(InputError):
            store.put(checkpoint(draft.id, trim=Trim(keep=-1)))
        assert stored(store, draft.id) == []

    def test_the_cap_counts_the_drafts_own_class_only(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        store.put(checkpoint(draft.id, "by hand"))
        store.put(checkpoint(draft.id, "step", retention_class="step", checkpoint_type="auto"))
        self.put_many(store, draft.id, 4, trim=Trim(keep=2))
        assert stored(store, draft.id) == ["n3", "n2", "step", "by hand"]

    def test_the_cap_counts_one_session_and_namespace_only(self, store: Store) -> None:
        first, second = session(), session()
        for draft in (first, second):
            store.create_session(draft)
            self.put_many(store, draft.id, 2, trim=Trim(keep=2))
        self.put_many(store, first.id, 3, namespace="sub", trim=Trim(keep=1))
        assert stored(store, first.id, namespace="") == ["n1", "n0"]
        assert stored(store, first.id, namespace="sub") == ["n2"]
        assert stored(store, second.id) == ["n1", "n0"]

    def test_pinned_checkpoints_stay_and_do_not_count(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        store.put(checkpoint(draft.id, "pinned", retention_class="automatic", pinned=True))
        self.put_many(store, draft.id, 5, trim=Trim(keep=2))
        assert stored(store, draft.id) == ["n4", "n3", "pinned"]

    def test_the_newest_resumable_checkpoint_stays(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        store.put(checkpoint(draft.id, "older", retention_class="automatic"))
        store.put(checkpoint(draft.id, "resumable", retention_class="automatic"))
        self.put_many(store, draft.id, 4, resumable=False, trim=Trim(keep=1))
        assert stored(store, draft.id) == ["n3", "resumable"]

    def test_checkpoints_past_their_age_go(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        now = datetime.now(UTC)
        week = timedelta(days=7)
        for name, age in (("old", 8), ("pinned", 9), ("young", 6)):
            store.put(
                checkpoint(
                    draft.id,
                    name,
                    retention_class="failure",
                    checkpoint_type="failure",
                    pinned=name == "pinned",
                    created_at=now - timedelta(days=age),
                )
            )
        store.put(checkpoint(draft.id, "by hand", created_at=now - timedelta(days=400)))
        result = store.put(checkpoint(draft.id, "now", trim=Trim(max_age={"failure": week})))
        assert stored(store, draft.id) == ["now", "by hand", "young", "pinned"]
        assert len(result.removed) == 1

    def test_an_age_from_before_all_time_removes_nothing(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        rule = Trim(max_age={"failure": timedelta(days=1_000_000)})
        first_day = datetime.min.replace(tzinfo=UTC)
        store.put(checkpoint(draft.id, "old", retention_class="failure", created_at=first_day))
        assert store.put(checkpoint(draft.id, "now", trim=rule)).removed == ()
        assert stored(store, draft.id) == ["now", "old"]

    def test_age_spares_the_newest_resumable_checkpoint(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        long_ago = datetime.now(UTC) - timedelta(days=30)
        rule = Trim(max_age={"failure": timedelta(days=7)})
        for name in ("first", "second"):
            store.put(checkpoint(draft.id, name, retention_class="failure", created_at=long_ago))
        store.put(checkpoint(draft.id, "now", resumable=False, trim=rule))
        assert stored(store, draft.id) == ["now", "second"]

    def test_a_trimmed_parent_keeps_its_name_in_the_child(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        first = store.put(checkpoint(draft.id, retention_class="automatic")).record
        store.put(
            checkpoint(draft.id, parent_id=first.id, retention_class="automatic", trim=Trim(keep=1))
        )
        (left,) = store.list_checkpoints(CheckpointQuery(session_id=draft.id))
        assert left.parent_id == first.id

    def test_an_expired_checkpoint_neither_counts_nor_protects(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        past = datetime.now(UTC) - timedelta(seconds=5)
        self.put_many(store, draft.id, 3)
        store.put(checkpoint(draft.id, retention_class="automatic", expires_at=past))
        store.put(
            checkpoint(
                draft.id, "last", retention_class="automatic", resumable=False, trim=Trim(keep=2)
            )
        )
        assert stored(store, draft.id) == ["last", "n2"]
