"""The contract of labels: readable aliases, unique in their session and namespace."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from holdfast.model import CheckpointQuery
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session

LABEL = "checkpoint-20260102-030405"


class LabelContract(Contract):
    """Labels of checkpoints that were made in the same second."""

    def test_a_label_that_is_taken_gets_a_number(self, store: Store) -> None:
        owner, other = (store.create_session(session()) for _ in range(2))
        given = [store.put(checkpoint(owner.id, label=LABEL)).record.label for _ in range(12)]
        assert given == [LABEL, *(f"{LABEL}-{number}" for number in range(2, 13))]
        elsewhere = store.put(checkpoint(owner.id, label=LABEL, namespace="other")).record
        theirs = store.put(checkpoint(other.id, label=LABEL)).record
        assert (elsewhere.label, theirs.label) == (LABEL, LABEL)
        assert store.put(checkpoint(owner.id)).record.label is None
        (found,) = store.list_checkpoints(CheckpointQuery(owner.id, label=f"{LABEL}-11"))
        assert found.label == f"{LABEL}-11"

    def test_a_retry_keeps_its_label(self, store: Store) -> None:
        owner = store.create_session(session())
        store.put(checkpoint(owner.id, label=LABEL))
        draft = checkpoint(owner.id, label=LABEL)
        first, again = store.put(draft), store.put(draft)
        assert (first.created, again.created) == (True, False)
        assert first.record == again.record
        assert again.record.label == f"{LABEL}-2"

    def test_a_replaced_checkpoint_leaves_its_label(self, store: Store) -> None:
        owner = store.create_session(session())
        store.put(checkpoint(owner.id, "name", label=LABEL))
        second = store.put(checkpoint(owner.id, "name", label=LABEL, replace=True)).record
        assert second.label == LABEL

    def test_what_only_looks_like_a_number_does_not_count(self, store: Store) -> None:
        owner = store.create_session(session())
        odd = ("-x", "-3x", "--4", "-99999999999", "-", "x", "-1")
        for label in (LABEL, *(LABEL + end for end in odd)):
            assert store.put(checkpoint(owner.id, label=label)).record.label == label
        assert store.put(checkpoint(owner.id, label=LABEL)).record.label == f"{LABEL}-2"
        assert store.put(checkpoint(owner.id, label="%_'ü")).record.label == "%_'ü"
        assert store.put(checkpoint(owner.id, label="%_'ü")).record.label == "%_'ü-2"

    def test_numbers_go_on_above_a_gap(self, store: Store) -> None:
        owner = store.create_session(session())
        saved = [store.put(checkpoint(owner.id, label=LABEL)).record for _ in range(3)]
        store.delete_checkpoints([saved[1].id])
        assert store.put(checkpoint(owner.id, label=LABEL)).record.label == f"{LABEL}-4"

    def test_a_copy_keeps_the_labels(self, store: Store) -> None:
        owner = store.create_session(session())
        for _ in range(2):
            store.put(checkpoint(owner.id, label=LABEL))
        copy = store.copy_session(owner.id, session(agent_id=owner.agent_id))
        copied = store.list_checkpoints(CheckpointQuery(copy.id))
        assert [one.label for one in copied] == [f"{LABEL}-2", LABEL]
        assert store.put(checkpoint(copy.id, label=LABEL)).record.label == f"{LABEL}-3"

    def test_writers_at_once_get_different_labels(self, store: Store) -> None:
        owner = store.create_session(session())
        drafts = [checkpoint(owner.id, label=LABEL) for _ in range(40)]
        with ThreadPoolExecutor(8) as pool:
            given = [result.record.label for result in pool.map(store.put, drafts)]
        assert set(given) == {LABEL, *(f"{LABEL}-{number}" for number in range(2, 41))}
