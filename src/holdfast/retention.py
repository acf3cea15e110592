"""How long checkpoints stay: rules, and decisions that carry their reason.

A put trims its own session as it goes (`trim_for` says what it may remove); `plan_prune` looks at
everything at once and explains each decision before anything is removed. Both keep what must never
go: the newest checkpoint of a session and namespace that can be resumed from, pinned ones, and the classes
that are kept until somebody deletes them.

Nor does an ancestor go that a kept checkpoint is computed from. A delta channel of LangGraph stores the whole of its
value now and then only; in between, a checkpoint needs its ancestors, their writes included, back to the
last whole one. LangGraph counts in the metadata how long that is ago: a channel that is counted needs the
parent, and one that is not counted there ends the walk.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.errors import InvalidFilter
from holdfast.model import CheckpointRecord, Trim

DELTA_COUNTERS: Final = "counters_since_delta_snapshot"


@dataclass(frozen=True, slots=True)
class Rule:
    """How many checkpoints of a class a session keeps, and for how long. None is no limit."""

    keep: int | None = None
    max_age: timedelta | None = None


DEFAULT_RULES: Final[Mapping[str, Rule]] = {
    "automatic": Rule(keep=5),
    "session": Rule(keep=3),
    "failure": Rule(max_age=timedelta(days=7)),
    "step": Rule(),
    "manual": Rule(),
    "feature": Rule(),
}
# How long a rollback's own checkpoints stay: how things were before it, and what it landed at.
ROLLBACK_AGE: Final = timedelta(days=30)
_UNTIL_DELETED: Final = {"manual": "manual: kept until deleted", "feature": "feature: permanent"}


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules in force, plus bounds that only `plan_prune` applies across sessions."""

    rules: Mapping[str, Rule] = field(default_factory=lambda: DEFAULT_RULES)
    max_age: timedelta | None = None
    max_bytes: int | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, int]) -> Policy:
        """Return the default rules with a project's own numbers put in."""
        rules = dict(DEFAULT_RULES)
        for key, value in settings.items():
            if key == "failure_days":
                rules["failure"] = Rule(max_age=timedelta(days=value))
            else:
                rules[key] = Rule(keep=value)
        return cls(rules)

    def bounded(
        self, *, keep: int | None, max_age: timedelta | None, max_bytes: int | None
    ) -> Policy:
        """Return these rules with a cap on class step and bounds across all sessions."""
        if keep is not None and (type(keep) is not int or keep < 1):
            raise InvalidFilter(f"keep must be a whole number above 0: {keep!r:.80}")
        if max_age is not None and not isinstance(max_age, timedelta):
            raise InvalidFilter(f"max_age must be a timedelta, not {type(max_age).__name__}")
        if max_age is not None and max_age < timedelta(0):
            raise InvalidFilter(f"max_age must not be negative: {max_age}")
        if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 0):
            raise InvalidFilter(
                f"max_bytes must be a whole number, not negative: {max_bytes!r:.80}"
            )
        rules = {**self.rules, "step": Rule(keep=keep)} if keep is not None else self.rules
        return Policy(
            rules,
            self.max_age if max_age is None else max_age,
            self.max_bytes if max_bytes is None else max_bytes,
        )

    def trim_for(self, retention_class: str) -> Trim:
        """Return what a put of this class may remove."""
        ages = {name: rule.max_age for name, rule in self.rules.items() if rule.max_age}
        return Trim(keep=self.rules[retention_class].keep, max_age=ages)


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to one checkpoint, and why. ``may_go`` says that nothing protects it."""

    record: CheckpointRecord
    keep: bool
    reason: str
    may_go: bool = False


def plan_prune(
    records: Iterable[CheckpointRecord],
    policy: Policy,
    *,
    now: datetime,
    quarantined: Collection[str] = frozenset(),
    landings: Collection[str] = frozenset(),
) -> list[Decision]:
    """Decide about all checkpoints, newest first. Nothing is removed here.

    The ``quarantined`` ones are damaged: none of them stays in the place of one to resume from. The
    ``landings`` are what rollbacks went on from, which nobody saved by hand.
    """
    counts: dict[tuple[str, str, str], int] = {}
    anchored: set[tuple[str, str]] = set()
    decisions = []
    for record in sorted(records, key=lambda record: record.seq, reverse=True):
        if _is_expired(record, now):
            reason = f"expired at {record.expires_at:%Y-%m-%d %H:%M} UTC"
            decisions.append(Decision(record, False, reason))
            continue
        line = (record.session_id, record.namespace)
        newest = record.resumable and record.id not in quarantined and line not in anchored
        if newest:
            anchored.add(line)
        place = (*line, record.retention_class)
        if not record.pinned:
            counts[place] = counts.get(place, 0) + 1
        landing = record.id in landings
        decisions.append(_decide(record, policy, now, counts.get(place, 0), newest, landing))
    needs = Needs(one.record for one in decisions if not _is_expired(one.record, now))
    return _with_needed(decisions, needs, policy.max_bytes)


class Needs:
    """Which checkpoints others are computed from, among the records of any number of sessions."""

    def __init__(self, records: Iterable[CheckpointRecord]) -> None:
        self._by_name = {
            (one.session_id, one.namespace, one.external_id): one
            for one in records
            if one.external_id is not None
        }

    def of(self, record: CheckpointRecord) -> list[CheckpointRecord]:
        """Return the ancestors that delta channels of a checkpoint are computed from, nearest first."""
        found: dict[str, CheckpointRecord] = {}
        channels = _unsaved(record)
        one = record
        while channels and one.parent_id is not None:
            parent = self._by_name.get((one.session_id, one.namespace, one.parent_id))
            # A line that leads back to itself is damage; there is nothing more on it.
            if parent is None or parent.id in found or parent.id == record.id:
                break
            found[parent.id] = parent
            channels &= _unsaved(parent)
            one = parent
        return list(found.values())


def has_delta_channels(record: CheckpointRecord) -> bool:
    """Tell whether a checkpoint has channels that are computed from its ancestors."""
    return bool(_unsaved(record))


def _unsaved(record: CheckpointRecord) -> set[str]:
    counters = (record.metadata or {}).get(DELTA_COUNTERS)
    return set(counters) if isinstance(counters, dict) else set()


def _is_expired(record: CheckpointRecord, now: datetime) -> bool:
    return record.expires_at is not None and record.expires_at <= now


def _decide(
    record: CheckpointRecord,
    policy: Policy,
    now: datetime,
    place: int,
    newest: bool,
    landing: bool,
) -> Decision:
    rule = policy.rules.get(record.retention_class)
    if rule is None:
        # Only damage, or somebody else's hand, puts one there: that is no reason to lose it.
        return Decision(record, True, f"the class {record.retention_class!r} is not known")
    age = now - record.created_at
    if record.pinned:
        return Decision(record, True, "pinned")
    if newest:
        return Decision(record, True, "newest resumable checkpoint of its session")
    if record.retention_class in _UNTIL_DELETED and not landing:
        return Decision(record, True, _UNTIL_DELETED[record.retention_class])
    if rule.keep is not None and place > rule.keep:
        reason = f"number {place} of class {record.retention_class}, which keeps {rule.keep}"
        return Decision(record, False, reason)
    for limit, whose in (
        (rule.max_age, f"class {record.retention_class}"),
        (ROLLBACK_AGE if landing else None, "rollbacks"),
        (policy.max_age, "all"),
    ):
        if limit is not None and age > limit:
            return Decision(
                record, False, f"{_days(age)} old, the limit of {whose} is {_days(limit)}"
            )
    reason = f"within the rule of {'rollbacks' if landing else f'class {record.retention_class}'}"
    return Decision(record, True, reason, may_go=True)


def _with_needed(decisions: list[Decision], needs: Needs, max_bytes: int | None) -> list[Decision]:
    """Keep what kept ones are computed from, and give up the oldest of what may go until the rest fits."""
    at = {one.record.id: place for place, one in enumerate(decisions)}
    needed = {one.record.id: needs.of(one.record) for one in decisions if one.keep}
    # How many kept ones need each: what is given up needs nothing any more.
    wanted = Counter(one.id for ancestors in needed.values() for one in ancestors)
    if max_bytes is not None:
        staying = (one.record for one in decisions if one.keep or wanted[one.record.id])
        excess = sum(one.stored_bytes for one in staying) - max_bytes
        free = [
            (one.record.seq, one.record.id)
            for one in decisions
            if one.may_go and not wanted[one.record.id]
        ]
        heapq.heapify(free)
        while excess > 0 and free:
            _, going = heapq.heappop(free)
            decision = decisions[at[going]]
            excess -= decision.record.stored_bytes
            reason = f"oldest that may go while the total is above {max_bytes} bytes"
            decisions[at[going]] = Decision(decision.record, False, reason)
            for one in needed[going]:
                wanted[one.id] -= 1
                if wanted[one.id]:
                    continue
                if decisions[at[one.id]].may_go:
                    heapq.heappush(free, (one.seq, one.id))
                elif not decisions[at[one.id]].keep:
                    excess -= one.stored_bytes
    return [
        replace(one, keep=True, reason="a delta channel of a later checkpoint is computed from it")
        if not one.keep and wanted[one.record.id]
        else one
        for one in decisions
    ]


def _days(span: timedelta) -> str:
    return f"{span.total_seconds() / 86400:.1f} days"
