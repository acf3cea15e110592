"""The contract of effects: recorded once, finished by their own attempt only, kept from a sweep."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import InputError, LeaseLost, SessionNotFound
from holdfast.ids import new_id
from holdfast.model import EffectOutcome, EffectQuery, NewEffect, Payload
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.testing.drafts import MANIFEST, Contract, checkpoint, refs_to, session


def effect(session_id: str, key: str = "charge", **changes: Any) -> NewEffect:
    """Return an attempt at an effect to store."""
    values: dict[str, Any] = {
        "session_id": session_id,
        "key": key,
        "occurrence": 0,
        "name": "charge",
        "fingerprint": b"fingerprint",
        "attempt_id": new_id(),
    }
    return NewEffect(**(values | changes))


def done(*contents: bytes) -> EffectOutcome:
    """Return the outcome of a step that returned something, with a chunk for each content."""
    chunks = {digest_of(data): data for data in contents}
    return EffectOutcome("done", MANIFEST, refs_to(*contents), chunks)


def place(draft: NewEffect) -> tuple[str, str, int, str]:
    """Return what names an attempt to `Store.finish_effect`."""
    return draft.session_id, draft.key, draft.occurrence, draft.attempt_id


class EffectContract(Contract):
    """Effects of sessions."""

    def test_an_effect_is_recorded_as_started(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = effect(owner.id)
        record = store.begin_effect(draft)
        assert (record.session_id, record.key, record.occurrence) == (owner.id, "charge", 0)
        assert (record.name, record.fingerprint) == ("charge", b"fingerprint")
        assert (record.status, record.attempt_id) == ("started", draft.attempt_id)
        assert (record.attempts, record.payload, record.error) == (1, None, None)
        assert record.started_at.tzinfo is not None
        assert record.finished_at is None
        assert store.list_effects(EffectQuery(owner.id)) == [record]

    def test_what_is_recorded_stands_against_another_attempt(self, store: Store) -> None:
        owner = store.create_session(session())
        first = store.begin_effect(effect(owner.id))
        assert store.begin_effect(effect(owner.id, fingerprint=b"other")) == first
        assert store.begin_effect(effect(owner.id, outcome=done(b"late" * 9))) == first
        assert store.list_effects(EffectQuery(owner.id)) == [first]
        assert store.read_chunks([digest_of(b"late" * 9)]) == {}

    def test_beginning_the_same_attempt_again_changes_nothing(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = effect(owner.id)
        assert store.begin_effect(draft) == store.begin_effect(draft)
        again = effect(owner.id, instead_of=draft.attempt_id)
        assert store.begin_effect(again) == store.begin_effect(again)

    def test_keys_and_occurrences_are_apart(self, store: Store) -> None:
        owner, other = (store.create_session(session()) for _ in range(2))
        drafts = [
            effect(owner.id),
            effect(owner.id, "refund"),
            effect(owner.id, occurrence=1),
            effect(other.id),
        ]
        for draft in drafts:
            assert store.begin_effect(draft).attempt_id == draft.attempt_id
        assert len(store.list_effects(EffectQuery(owner.id))) == 3

    def test_a_fence_that_is_none_is_refused_whatever_it_is_for(self, store: Store) -> None:
        draft = effect("nobody")
        with pytest.raises(InputError, match="fence"):
            store.finish_effect(*place(draft), done(b"x"), fence="1")  # type: ignore[arg-type]
        assert store.finish_effect(*place(draft), done(b"x"), fence=1) is False

    def test_an_attempt_that_ended_is_recorded_with_what_it_returned(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = effect(owner.id)
        store.begin_effect(draft)
        assert store.finish_effect(*place(draft), done(b"result" * 50)) is True
        [record] = store.list_effects(EffectQuery(owner.id))
        assert record.status == "done"
        assert record.payload == Payload(MANIFEST, refs_to(b"result" * 50))
        assert record.finished_at is not None
        assert record.started_at <= record.finished_at
        assert set(store.read_chunks([digest_of(b"result" * 50)]).values()) == {b"result" * 50}
        # A reply that was lost is repeated.
        assert store.finish_effect(*place(draft), done(b"result" * 50)) is True
        assert store.begin_effect(effect(owner.id)).payload == record.payload

    def test_an_error_is_recorded_as_it_was_given(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = effect(owner.id)
        store.begin_effect(draft)
        error = {"type": "ValueError", "message": "ü \U0001f600 -0.0", "began": False, "n": -0.0}
        assert store.finish_effect(*place(draft), EffectOutcome("failed", error=error)) is True
        [record] = store.list_effects(EffectQuery(owner.id))
        assert (record.status, record.error, record.payload) == ("failed", error, None)

    def test_a_new_attempt_takes_the_place_of_the_one_it_names(self, store: Store) -> None:
        owner = store.create_session(session())
        first = effect(owner.id)
        store.begin_effect(first)
        store.finish_effect(*place(first), EffectOutcome("failed", error={"type": "E"}))
        second = effect(owner.id, instead_of=first.attempt_id)
        record = store.begin_effect(second)
        assert (record.status, record.attempts) == ("started", 2)
        assert (record.attempt_id, record.error) == (second.attempt_id, None)
        assert record.finished_at is None
        # Whoever also wanted to take it is told who has it.
        assert store.begin_effect(effect(owner.id, instead_of=first.attempt_id)) == record

    def test_only_the_recorded_attempt_can_end_it(self, store: Store) -> None:
        owner = store.create_session(session())
        first, second = effect(owner.id), effect(owner.id)
        store.begin_effect(first)
        store.begin_effect(replace(second, instead_of=first.attempt_id))
        assert store.finish_effect(*place(first), done(b"too late" * 9)) is False
        assert store.list_effects(EffectQuery(owner.id))[0].status == "started"
        assert store.finish_effect(*place(second), done()) is True
        assert store.finish_effect(owner.id, "nothing", 0, new_id(), done()) is False
        assert store.finish_effect("nobody", "charge", 0, first.attempt_id, done()) is False
        assert store.read_chunks([digest_of(b"too late" * 9)]) == {}

    def test_an_effect_may_be_recorded_with_its_end_at_once(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = effect(owner.id, outcome=done(b"at once" * 9))
        record = store.begin_effect(draft)
        assert (record.status, record.attempts) == ("done", 1)
        assert record.payload == Payload(MANIFEST, refs_to(b"at once" * 9))
        assert record.finished_at is not None
        assert store.read_chunks([digest_of(b"at once" * 9)]) != {}

    def test_effects_are_listed_as_they_were_started(self, store: Store) -> None:
        owner = store.create_session(session())
        drafts = [effect(owner.id, key) for key in ("b", "a", "c")]
        for draft in drafts:
            store.begin_effect(draft)
        store.finish_effect(*place(drafts[1]), done())

        def keys(**filters: Any) -> list[str]:
            return [one.key for one in store.list_effects(EffectQuery(owner.id, **filters))]

        assert keys() == ["b", "a", "c"]
        assert keys(limit=2) == ["b", "a"]
        assert keys(limit=0) == []
        assert keys(status="done") == ["a"]
        assert keys(key="c", occurrence=0) == ["c"]
        assert keys(key="c", occurrence=1) == []
        store.begin_effect(effect(owner.id, "b", instead_of=drafts[0].attempt_id))
        assert keys() == ["a", "c", "b"]
        assert store.list_effects(EffectQuery("nobody")) == []
        other = store.create_session(session())
        store.begin_effect(effect(other.id, "elsewhere"))
        everywhere = [one.key for one in store.list_effects(EffectQuery())]
        assert everywhere == ["a", "c", "b", "elsewhere"]

    @pytest.mark.parametrize(
        "query",
        [
            {"limit": -1},
            {"key": 1},
            {"occurrence": "0"},
            {"occurrence": -1},
            {"status": 1},
            {"status": "unkown"},
        ],
    )
    def test_an_impossible_listing_of_effects_is_refused(
        self, store: Store, query: dict[str, Any]
    ) -> None:
        with pytest.raises(InputError):
            store.list_effects(EffectQuery("session", **query))

    def test_an_effect_needs_its_session(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            store.begin_effect(effect("nobody"))
        with pytest.raises(SessionNotFound):
            store.begin_effect(effect("nobody", outcome=done(b"content" * 9)))
        store.gc()
        assert store.total_bytes() == 0

    @pytest.mark.parametrize(
        "changes",
        [
            {"key": ""},
            {"key": "nul\0"},
            {"name": ""},
            {"occurrence": -1},
            {"occurrence": 1 << 31},
            {"attempt_id": "none"},
            {"instead_of": "none"},
            {"outcome": EffectOutcome("over")},  # type: ignore[arg-type]
            {"outcome": EffectOutcome("done", MANIFEST, b"refs")},
        ],
        ids=lambda changes: "-".join(changes),
    )
    def test_an_impossible_effect_is_refused(self, store: Store, changes: dict[str, Any]) -> None:
        owner = store.create_session(session())
        with pytest.raises(InputError):
            store.begin_effect(effect(owner.id, **changes))
        assert store.list_effects(EffectQuery(owner.id)) == []

    def test_gc_keeps_what_effects_returned(self, store: Store) -> None:
        owner = store.create_session(session())
        first, second = effect(owner.id), effect(owner.id, "other")
        for draft in (first, second):
            store.begin_effect(draft)
        store.finish_effect(*place(first), done(b"kept" * 50))
        store.finish_effect(*place(second), done(b"going" * 50))
        assert store.gc().chunks == 0
        store.begin_effect(effect(owner.id, "other", instead_of=second.attempt_id))
        assert store.gc().chunks == 1
        assert list(store.read_chunks([digest_of(b"kept" * 50)]).values()) == [b"kept" * 50]

    def test_effects_go_with_their_session_and_with_nothing_else(self, store: Store) -> None:
        owner, other = (store.create_session(session()) for _ in range(2))
        for one in (owner, other):
            content = f"{one.id} returned".encode() * 9
            store.begin_effect(effect(one.id, outcome=done(content)))
        saved = store.put(checkpoint(owner.id, "a")).record
        store.delete_checkpoints([saved.id])
        assert store.erase_threads([owner.id], namespace="", agent_prefix=owner.agent_id) == 0
        assert len(store.list_effects(EffectQuery(owner.id))) == 1
        assert store.delete_session(owner.id)
        assert store.list_effects(EffectQuery(owner.id)) == []
        assert store.read_chunks([digest_of(f"{owner.id} returned".encode() * 9)]) == {}
        assert store.read_chunks([digest_of(f"{other.id} returned".encode() * 9)]) != {}

    def test_a_copied_session_has_no_effects(self, store: Store) -> None:
        owner = store.create_session(session())
        store.put(checkpoint(owner.id, "a"))
        store.begin_effect(effect(owner.id))
        copy = store.copy_session(owner.id, session())
        assert store.list_effects(EffectQuery(copy.id)) == []
        assert len(store.list_effects(EffectQuery(owner.id))) == 1

    def test_tenants_have_effects_of_their_own(self, store: Store, neighbour: Store) -> None:
        store.create_session(session(id="same"))
        neighbour.create_session(session(id="same"))
        mine, theirs = effect("same"), effect("same")
        assert store.begin_effect(mine).attempt_id == mine.attempt_id
        assert neighbour.begin_effect(theirs).attempt_id == theirs.attempt_id
        assert neighbour.finish_effect(*place(mine), done()) is False
        assert len(store.list_effects(EffectQuery("same"))) == 1

    def test_who_lost_the_lease_records_nothing(self, store: Store) -> None:
        owner = store.create_session(session())
        lost = store.acquire_lease(owner.id, "one").token
        draft = effect(owner.id, fence=lost)
        before = store.begin_effect(draft)
        held = store.acquire_lease(owner.id, "two", over=lost).token
        for late in (
            effect(owner.id, "other", fence=lost, outcome=done(b"late" * 50)),
            effect(owner.id, fence=lost, instead_of=draft.attempt_id),
            effect(owner.id, fence=lost),
        ):
            with pytest.raises(LeaseLost):
                store.begin_effect(late)
        with pytest.raises(LeaseLost):
            store.finish_effect(*place(draft), done(b"late" * 50), fence=lost)
        assert store.list_effects(EffectQuery(owner.id)) == [before]
        assert store.begin_effect(effect(owner.id, fence=held)) == before
        assert store.finish_effect(*place(draft), done(), fence=held) is True
        assert store.finish_effect(owner.id, "nothing", 0, new_id(), done(), fence=held) is False
        assert store.finish_effect("nobody", "nothing", 0, new_id(), done(), fence=held) is False
        with pytest.raises(SessionNotFound):
            store.begin_effect(effect("nobody", fence=held))
        store.gc()
        assert store.total_bytes() == 0

    def test_of_many_that_begin_at_once_one_is_recorded(self, store: Store) -> None:
        owner = store.create_session(session())
        drafts = [effect(owner.id) for _ in range(8)]
        ready = threading.Barrier(len(drafts))
        answers: list[str] = []

        def begin(draft: NewEffect) -> None:
            ready.wait(30)
            answers.append(store.begin_effect(draft).attempt_id)

        workers = [threading.Thread(target=begin, args=(draft,)) for draft in drafts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(answers) == len(drafts)
        assert len(set(answers)) == 1
