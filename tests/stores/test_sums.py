"""What is stored of an effect and of a pending write is bound to its place: altered or moved, it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing
from holdfast.errors import EffectAltered, KeyRequired, StateCorrupt, WriteAltered
from holdfast.ids import new_id
from holdfast.model import EffectOutcome, EffectQuery, NewEffect, SessionUsage
from holdfast.rotation import count_keys, rotate
from holdfast.state import StateEncoder
from holdfast.stores import open_store
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.drafts import checkpoint, session, write
from holdfast.verification import verify_store
from tests.stores.postgres_drafts import connect

RESULTS = {name: StateEncoder().encode({"result": name}).manifest for name in ("charge", "mail")}
ERROR = {"type": "ValueError", "z": 1.5, "a": {"y": -0.0, "b": [1e16, 2**60]}, "message": "é"}
OTHER_UUID = "01900000-0000-7000-8000-00000000000a"

# What is done to the effect of the key "charge", and to the pending write of task "one".
EFFECT_CHANGES = {
    "key": "key = 'charhe'",
    "occurrence": "occurrence = 1",
    "name": "name = 'mail'",
    "fingerprint": "fingerprint = '\\x00'",
    "status": "status = 'started'",
    "attempt_id": f"attempt_id = '{OTHER_UUID}'",
    "attempts": "attempts = 7",
    "result": "result = replace(result, 'charge', 'charhe')",
    "result lost": "result = NULL",
    "result of another": "result = (SELECT o.result FROM effects AS o WHERE o.key = 'mail')",
    "refs": "refs = '\\x00'",
    "error": "error = '{\"began\": false}'",
    "begun_sum": "begun_sum = outcome_sum",
    "outcome_sum": "outcome_sum = begun_sum",
}
WRITE_CHANGES = {
    "namespace": "namespace = 'other'",
    "external_id": "external_id = 'e2'",
    "task_id": "task_id = 'three'",
    "idx": "idx = idx + 1",
    "task_path": "task_path = 'elsewhere'",
    "channel": "channel = 'other'",
    "manifest": "manifest = replace(manifest, '1', '2')",
    "refs": "refs = '\\x00'",
    "row_sum": "row_sum = '\\x00'",
    "of another": "manifest = (SELECT o.manifest FROM checkpoint_writes AS o WHERE o.task_id = 'two')",
}

Run = Callable[[str], None]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "sessions.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def run(url: str) -> Run:
    """What changes a row past the store."""

    def run(statement: str) -> None:
        if url.startswith("postgresql"):
            with connect(url) as beside:
                beside.execute("SET session_replication_role = replica")
                beside.execute(statement.encode())
            return
        connection = apsw.Connection(url)
        try:
            connection.pragma("foreign_keys", False)
            connection.execute(statement.replace("'\\x00'", "x'00'"))
        finally:
            connection.close()

    return run


def encoded(value: Any) -> dict[str, Any]:
    found = StateEncoder().encode({"value": value})
    return {"manifest": found.manifest, "refs": found.refs}


def fill(store: Store) -> str:
    """Store two effects that are done, one that is not, and two pending writes."""
    owner = store.create_session(session())
    for name, result in RESULTS.items():
        draft = NewEffect(owner.id, name, 0, name, b"fingerprint", new_id())
        store.begin_effect(draft)
        place = (owner.id, name, 0, draft.attempt_id)
        assert store.finish_effect(*place, EffectOutcome("done", result))
    store.begin_effect(NewEffect(owner.id, "begun", 0, "begun", b"", new_id()))
    store.put_writes(
        session(id=owner.id, agent_id=owner.agent_id),
        *("space", "e1", [write("one", **encoded(1)), write("two", **encoded(3))]),
    )
    return owner.id


@pytest.fixture
def stored(url: str) -> Iterator[tuple[Store, str]]:
    with open_store(url) as store:
        yield store, fill(store)


@pytest.mark.parametrize("change", EFFECT_CHANGES)
def test_an_altered_effect_is_refused_and_named(
    stored: tuple[Store, str], run: Run, change: str
) -> None:
    store, session_id = stored
    assert verify_store(store).ok
    run(f"UPDATE effects SET {EFFECT_CHANGES[change]} WHERE key = 'charge'")
    key = "charhe" if change == "key" else "charge"
    occurrence = 1 if change == "occurrence" else 0
    with pytest.raises(EffectAltered, match=key):
        store.list_effects(EffectQuery(session_id, key, occurrence))
    with pytest.raises(EffectAltered):
        store.begin_effect(NewEffect(session_id, key, occurrence, "x", b"", new_id()))
    with pytest.raises(EffectAltered):
        store.read_session(session_id)
    for deep in (False, True):
        [damage] = verify_store(store, deep=deep).damaged
        assert damage.code == EffectAltered.code
        assert (damage.session_id, damage.effect_key, damage.occurrence) == (
            session_id,
            key,
            occurrence,
        )
    [mail] = store.list_effects(EffectQuery(session_id, "mail"))
    assert mail.payload is not None


@pytest.mark.parametrize("column", ["name", "status", "attempts", "error", "fingerprint"])
def test_an_effect_that_only_began_has_sums_too(
    stored: tuple[Store, str], run: Run, column: str
) -> None:
    store, session_id = stored
    change = "status = 'unknown'" if column == "status" else EFFECT_CHANGES[column]
    run(f"UPDATE effects SET {change} WHERE key = 'begun'")
    with pytest.raises(EffectAltered, match="begun"):
        store.list_effects(EffectQuery(session_id, "begun"))
    [damage] = verify_store(store).damaged
    assert damage.effect_key == "begun"


def test_results_in_each_others_place_are_both_found(stored: tuple[Store, str], run: Run) -> None:
    store, _ = stored
    run(
        f"UPDATE effects SET result = CASE key WHEN 'mail' THEN '{RESULTS['charge']}' "
        f"ELSE '{RESULTS['mail']}' END WHERE result IS NOT NULL"
    )
    found = verify_store(store).damaged
    assert sorted(str(one.effect_key) for one in found) == ["charge", "mail"]


def test_a_done_effect_without_its_result_says_so(stored: tuple[Store, str], run: Run) -> None:
    store, session_id = stored
    run("UPDATE effects SET result = NULL WHERE key = 'charge'")
    with pytest.raises(EffectAltered, match="its result is gone"):
        store.list_effects(EffectQuery(session_id, "charge"))


def test_an_effect_of_another_session_is_refused(stored: tuple[Store, str], run: Run) -> None:
    store, _ = stored
    other = store.create_session(session())
    run(f"UPDATE effects SET session_id = '{other.id}' WHERE key = 'charge'")
    with pytest.raises(EffectAltered):
        store.list_effects(EffectQuery(other.id))
    [damage] = verify_store(store, deep=True).damaged
    assert (damage.session_id, damage.effect_key) == (other.id, "charge")


@pytest.mark.parametrize("change", WRITE_CHANGES)
def test_an_altered_write_is_refused_and_named(
    stored: tuple[Store, str], run: Run, change: str
) -> None:
    store, session_id = stored
    assert verify_store(store, deep=True).ok
    run(f"UPDATE checkpoint_writes SET {WRITE_CHANGES[change]} WHERE task_id = 'one'")
    namespace = "other" if change == "namespace" else "space"
    external_id = "e2" if change == "external_id" else "e1"
    with pytest.raises(WriteAltered, match="pending write"):
        store.list_writes(session_id, namespace, [external_id])
    with pytest.raises(WriteAltered):
        store.read_session(session_id)
    with pytest.raises(WriteAltered):
        store.copy_session(session_id, session())
    [damage] = verify_store(store, deep=True).damaged
    assert (damage.code, damage.session_id) == (WriteAltered.code, session_id)
    assert ("three" if change == "task_id" else "one") in damage.reason


def test_writes_of_a_session_that_is_not_there_are_found(
    stored: tuple[Store, str], run: Run
) -> None:
    store, _ = stored
    run("UPDATE checkpoint_writes SET session_id = 'nobody' WHERE task_id = 'one'")
    found = {(one.code, one.session_id) for one in verify_store(store, deep=True).damaged}
    assert (WriteAltered.code, "nobody") in found


@pytest.mark.parametrize("what", ["checkpoint", "writes"])
def test_what_is_erased_while_it_is_verified_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store = MemoryStore()
    session_id = fill(store)
    if what == "checkpoint":
        store.put(checkpoint(session_id, **encoded(1)))
    usage = store.session_usage

    def too_late(session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        if session_ids is None:
            return []  # the session was begun when they had been listed
        store.delete_session(session_id)
        return usage(session_ids)

    monkeypatch.setattr(store, "session_usage", too_late)
    assert verify_store(store, deep=True).damaged == ()
    assert store.find_session(session_id) is None


def test_a_damaged_write_and_a_damaged_effect_hide_nothing_of_each_other(
    stored: tuple[Store, str], run: Run
) -> None:
    store, session_id = stored
    owner = store.find_session(session_id)
    assert owner is not None
    place = session(id=session_id, agent_id=owner.agent_id)
    store.put_writes(place, "space", "e9", [write("late", **encoded(9))])
    run("UPDATE checkpoint_writes SET channel = 'x' WHERE task_id = 'one'")
    run("UPDATE checkpoint_writes SET channel = 'x' WHERE task_id = 'late'")
    run("UPDATE effects SET name = 'x' WHERE key = 'charge'")
    found = verify_store(store, deep=True).damaged
    assert sorted(one.code for one in found) == ["effect_altered", "write_altered", "write_altered"]


def test_every_attempt_and_every_error_fits_its_sums(url: str) -> None:
    with open_store(url) as store:
        owner = store.create_session(session())
        place = session(id=owner.id, agent_id=owner.agent_id)
        draft = NewEffect(owner.id, "key", 0, "step", b"f", new_id())
        store.begin_effect(draft)
        for attempts in (2, 3):
            draft = replace(draft, attempt_id=new_id(), instead_of=draft.attempt_id)
            assert store.begin_effect(draft).attempts == attempts
        for status in ("unknown", "failed"):
            outcome = EffectOutcome(status, error=ERROR)
            assert store.finish_effect(owner.id, "key", 0, draft.attempt_id, outcome)
        [found] = store.list_effects(EffectQuery(owner.id))
        assert (found.attempts, found.error) == (3, ERROR)
        for value in (1, 2):
            changed = [write(channel=f"channel {value}", replace=True, **encoded(value))]
            store.put_writes(place, "", "e", changed)
        store.put(checkpoint(owner.id, external_id="e", **encoded(0)))
        copy = store.copy_session(owner.id, session())
        for one in (owner, copy):
            [written] = store.list_writes(one.id, "", ["e"])
            assert written.channel == "channel 2"
        assert verify_store(store, deep=True).ok


def test_a_step_whose_record_was_altered_does_not_run_again(url: str, run: Run) -> None:
    calls: list[int] = []
    with SessionManager.open(url, workspace=False) as manager:
        made = manager.create_session(agent_type="t", session_id="one")
        made.step("charge", calls.append, 1)
    run("UPDATE effects SET status = 'failed', result = NULL, error = '{\"began\": false}'")
    with SessionManager.open(url, workspace=False) as manager:
        resumed = manager.resume_session("one")
        with pytest.raises(EffectAltered, match="charge"):
            resumed.step("charge", calls.append, 1)
    assert calls == [1]


def test_done_with_neither_result_nor_reason_is_damage(url: str) -> None:
    with SessionManager.open(url, workspace=False) as manager:
        made = manager.create_session(agent_type="t")
        done = EffectOutcome("done")
        manager.store.begin_effect(NewEffect(made.id, "k", 0, "k", b"", new_id(), outcome=done))
        with pytest.raises(StateCorrupt, match="its result is gone"):
            made.step("k", lambda: None, key="k")


def test_memory_looks_as_well() -> None:
    store = MemoryStore()
    session_id = fill(store)
    assert verify_store(store, deep=True).ok
    held = store._sessions[session_id]
    kept = held.effects["charge", 0]
    held.effects["charge", 0] = replace(kept, record=replace(kept.record, name="mail"))
    [damage] = verify_store(store, deep=True).damaged
    assert damage.effect_key == "charge"
    with pytest.raises(EffectAltered):
        store.begin_effect(NewEffect(session_id, "charge", 0, "charge", b"", new_id()))
    held.effects["charge", 0] = kept
    stored = held.writes["space", "e1"]
    one = stored["one", 0]
    stored["one", 0] = replace(one, record=replace(one.record, channel="other"))
    [damage] = verify_store(store, deep=True).damaged
    assert damage.code == WriteAltered.code
    with pytest.raises(WriteAltered):
        store.list_writes(session_id, "space", ["e1"])
    with pytest.raises(WriteAltered):
        store.copy_session(session_id, session())


# With a key -----------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["name", "status", "attempts", "outcome_sum"])
def test_in_a_sealed_store_too_nothing_is_altered_unseen(url: str, run: Run, change: str) -> None:
    with open_store(url, keys=KeyRing.new()) as store:
        session_id = fill(store)
        assert verify_store(store, deep=True).ok
        run(f"UPDATE effects SET {EFFECT_CHANGES[change]} WHERE key = 'charge'")
        run("UPDATE checkpoint_writes SET task_path = 'elsewhere' WHERE task_id = 'one'")
        with pytest.raises(EffectAltered):
            store.list_effects(EffectQuery(session_id, "charge"))
        with pytest.raises(WriteAltered):
            store.list_writes(session_id, "space", ["e1"])
        found = verify_store(store, deep=True).damaged
        assert sorted(one.code for one in found) == ["effect_altered", "write_altered"]


def test_without_the_key_no_sum_can_be_made(url: str) -> None:
    ring = KeyRing.new()
    with open_store(url, keys=ring) as store:
        session_id = fill(store)
        inner = store.inner  # type: ignore[attr-defined]
        keyed = inner.row_digest
        del inner.row_digest
        inner.begin_effect(NewEffect(session_id, "forged", 0, "forged", b"", new_id()))
        with pytest.raises(KeyRequired):
            inner.list_effects(EffectQuery(session_id, "charge"))
        with pytest.raises(KeyRequired):
            inner.list_writes(session_id, "space", ["e1"])
        inner.row_digest = keyed
        with pytest.raises(EffectAltered, match="forged"):
            store.list_effects(EffectQuery(session_id, "forged"))


def test_a_rotation_does_not_make_right_what_was_altered(url: str, run: Run) -> None:
    ring = KeyRing.new()
    with open_store(url, keys=ring) as store:
        session_id = fill(store)
    run("UPDATE effects SET status = 'unknown' WHERE key = 'charge'")
    run("UPDATE checkpoint_writes SET task_path = 'elsewhere' WHERE task_id = 'one'")
    with open_store(url, keys=ring.rotated()) as store:
        for report in (rotate(store), rotate(store), count_keys(store)):
            assert [one.code for one in report.damaged] == ["write_altered", "effect_altered"]
        assert (report.changed, report.old_values) == (0, 2)
        found = verify_store(store, deep=True).damaged
        assert sorted(one.code for one in found) == ["effect_altered", "write_altered"]
        [mail] = store.list_effects(EffectQuery(session_id, "mail"))
        assert mail.payload is not None
