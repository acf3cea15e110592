"""Retention rules as decisions with reasons."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model import CheckpointRecord, RetentionClass
from holdfast.retention import Policy, plan_prune

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def record(seq: int, kept_as: RetentionClass = "step", **changes: object) -> CheckpointRecord:
    made = CheckpointRecord(
        id=f"id-{seq}", session_id="s", agent_id="a", namespace="", seq=seq, external_id=None,
        parent_id=None, name=f"n{seq}", label=None, description=None, checkpoint_type="auto",
        retention_class=kept_as, run_id=None, version=1, size_bytes=10, stored_bytes=10,
        git_branch=None, git_commit=None, git_uncommitted=False, workspace_commit=None,
        resumable=True, pinned=False,
        expires_at=None, metadata=None, created_at=NOW - timedelta(hours=100 - seq),
        restored_at=None,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def removed(records: list[CheckpointRecord], policy: Policy) -> set[int]:
    return {one.record.seq for one in plan_prune(records, policy, now=NOW) if not one.keep}


def bounded(
    keep: int | None = None, max_age: timedelta | None = None, max_bytes: int | None = None
) -> Policy:
    return Policy().bounded(keep=keep, max_age=max_age, max_bytes=max_bytes)


@pytest.mark.row("S1-100", "S4-22", "S4-25")
def test_each_class_keeps_its_own_number() -> None:
    records = [record(n, "automatic") for n in range(8)]
    records += [record(n, "session") for n in range(8, 13)]
    assert removed(records, Policy()) == {0, 1, 2, 8, 9}


def test_pinned_ones_do_not_count_and_do_not_go() -> None:
    records = [record(n, pinned=n in (0, 5)) for n in range(6)]
    assert removed(records, bounded(keep=2)) == {1, 2}


def test_the_newest_resumable_one_stays_whatever_the_rule() -> None:
    records = [record(0), record(1), record(2, resumable=False), record(3, resumable=False)]
    assert removed(records, bounded(keep=1)) == {0, 2}


def test_a_damaged_one_stays_in_nobodys_place() -> None:
    decisions = plan_prune(
        [record(0), record(1), record(2)], bounded(keep=1), now=NOW, quarantined={"id-2"}
    )
    assert [(one.record.seq, one.keep) for one in decisions] == [(2, True), (1, True), (0, False)]
    assert decisions[1].reason == "newest resumable checkpoint of its session"


@pytest.mark.row("S1-100", "S4-23", "S4-24")
def test_manual_and_feature_ones_survive_age_and_bytes() -> None:
    records = [record(0, "manual"), record(1, "feature"), record(2), record(3)]
    harsh = bounded(max_age=timedelta(seconds=1), max_bytes=1)
    assert removed(records, harsh) == {2}


def test_failures_go_after_a_week() -> None:
    old = record(0, "failure", created_at=NOW - timedelta(days=8))
    recent = record(1, "failure", created_at=NOW - timedelta(days=6))
    assert removed([old, recent, record(2)], Policy()) == {0}


@pytest.mark.row("S1-100")
def test_bytes_are_freed_from_the_oldest() -> None:
    records = [record(n) for n in range(10)]
    assert removed(records, bounded(max_bytes=45)) == {0, 1, 2, 3, 4, 5}


def test_sessions_and_namespaces_are_apart() -> None:
    records = [record(n, session_id=f"s{n % 2}", namespace=f"{n % 4 // 2}") for n in range(8)]
    assert removed(records, bounded(keep=1)) == {0, 1, 2, 3}


def test_expired_ones_go_and_say_so() -> None:
    gone = record(0, expires_at=NOW - timedelta(minutes=1))
    decisions = plan_prune([gone, record(1)], Policy(), now=NOW)
    assert decisions[-1].reason.startswith("expired at 2026-05-31")


def test_age_and_bytes_reach_failures_too_and_zero_is_a_bound() -> None:
    failure = record(0, "failure", created_at=NOW - timedelta(days=2))
    assert removed([failure, record(1)], bounded(max_age=timedelta(days=1))) == {0}
    assert removed([failure, record(1)], bounded(max_bytes=0)) == {0}
    assert removed([record(0), record(1)], bounded(max_age=timedelta(0))) == {0}


def test_an_expired_one_protects_nothing_of_its_session() -> None:
    gone = record(2, expires_at=NOW - timedelta(minutes=1))
    assert removed([record(0), record(1), gone], bounded(keep=1)) == {0, 2}


def test_one_of_a_class_that_nobody_knows_stays() -> None:
    records = [replace(record(0), retention_class="strange"), record(1), record(2)]  # type: ignore[arg-type]
    harsh = bounded(keep=1, max_age=timedelta(seconds=1), max_bytes=1)
    assert removed(records, harsh) == {1}


def delta(seq: int, *, whole: bool = False, **changes: object) -> CheckpointRecord:
    """Return a checkpoint of a LangGraph thread with a delta channel, on the one before it."""
    counters = {} if whole else {"counters_since_delta_snapshot": {"notes": [1, 1]}}
    parent = f"e{seq - 1}" if seq else None
    made = record(seq, external_id=f"e{seq}", parent_id=parent, metadata=counters)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_what_a_kept_one_is_computed_from_stays() -> None:
    records = [delta(n, whole=n == 2) for n in range(6)]
    decisions = plan_prune(records, bounded(keep=1), now=NOW)
    assert [(one.record.seq, one.keep) for one in decisions] == [
        (5, True), (4, True), (3, True), (2, True), (1, False), (0, False),
    ]  # fmt: skip
    assert decisions[3].reason == "a delta channel of a later checkpoint is computed from it"
    assert removed(records, bounded(max_age=timedelta(0))) == {0, 1}


def test_lines_are_computed_from_their_own_ancestors_only() -> None:
    records = [delta(n, session_id=f"s{n % 2}", parent_id=f"e{n - 2}") for n in range(6)]
    other = [delta(n, session_id="s3", whole=True) for n in range(6, 9)]
    assert removed([*records, *other], bounded(keep=1)) == {6, 7}


def test_bytes_are_freed_from_the_oldest_that_nothing_needs() -> None:
    thread = [delta(n, whole=n == 3) for n in range(6)]
    plain = [record(n, session_id="other") for n in range(6, 9)]
    # 3 to 5 and 8 must stay; 0 and 1 are needed until 2 is gone, and then go before 6.
    assert removed([*thread, *plain], bounded(max_bytes=85)) == {2}
    assert removed([*thread, *plain], bounded(max_bytes=75)) == {2, 1}
    assert removed([*thread, *plain], bounded(max_bytes=55)) == {2, 1, 0, 6}
    assert removed([*thread, *plain], bounded(max_bytes=0)) == {0, 1, 2, 6, 7}


def test_what_a_rule_gives_up_goes_with_the_last_that_needs_it() -> None:
    records = [delta(0), delta(1), delta(2, whole=True)]
    oldest_is_too_old = timedelta(hours=99, minutes=30)
    assert removed(records, bounded(max_age=oldest_is_too_old)) == set()
    assert removed(records, bounded(max_age=oldest_is_too_old, max_bytes=15)) == {0, 1}


def test_a_line_of_parents_that_leads_back_to_itself_ends() -> None:
    records = [delta(0, parent_id="e1"), delta(1), record(2)]
    assert removed(records, bounded(keep=1)) == {0, 1}
    assert removed([records[0], delta(1, pinned=True), record(2)], bounded(keep=1)) == set()
