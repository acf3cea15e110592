"""What stands before the newest good checkpoint of a session, and is passed over: damaged, but not forgotten.

Whoever shows that one, or goes on from it, says so: what was saved after it is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import IntegrityError
from holdfast.model import CheckpointQuery
from holdfast.stores.base import Store
from holdfast.stores.readable import read_checkpoints


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A checkpoint that is newer than the newest good one. ``problem`` is why its row cannot be read, if so.

    Its name is known only where the row can be read.
    """

    session_id: str
    id: str
    name: str | None = None
    problem: IntegrityError | None = None

    @property
    def code(self) -> str:
        """The code of the reason that preflight gives."""
        return "checkpoint_quarantined" if self.problem is None else "checkpoint_unreadable"

    @property
    def text(self) -> str:
        """What to tell a reader, and how to look at it."""
        if self.problem is not None:
            return f"checkpoint {self.id} is newer and was passed over, since it cannot be read: {self.problem}"
        return (
            f"checkpoint {self.name} is newer and was passed over: it failed verification and is in "
            f"quarantine. `holdfast verify --deep` says what is wrong with it, `holdfast log` lists it"
        )

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"id": self.id, "name": self.name, "code": self.code, "reason": self.text}


def find_passed_over(
    store: Store, session_id: str, *, resumable: bool | None = None
) -> list[PassedOver]:
    """Return what is newer than a session's newest good checkpoint and cannot be used, newest first.

    With ``resumable`` among those that can be resumed from.
    """
    ours = CheckpointQuery(session_id, namespace="")
    good, unreadable = read_checkpoints(
        store, replace(ours, resumable=resumable, quarantined=False, limit=1)
    )
    damaged, hidden = read_checkpoints(store, replace(ours, quarantined=True))
    after = good[0].seq if good else 0
    found = [
        (one.seq, PassedOver(session_id, one.id, one.name))
        for one in damaged
        if resumable is None or one.resumable == resumable
    ]
    places = _places(store, session_id) if unreadable or hidden else {}
    found += [
        # Where nobody knows its place, it may be the newest.
        (places.get(id_, after + 1), PassedOver(session_id, id_, problem=problem))
        for id_, problem in (unreadable | hidden).items()
    ]
    found.sort(key=lambda one: one[0], reverse=True)
    return [one for seq, one in found if seq > after]


def _places(store: Store, session_id: str) -> Mapping[str, int]:
    chain = store.read_chain(session_id)
    return {} if chain is None else {one.checkpoint_id: one.seq for one in chain.links}
