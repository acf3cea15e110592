"""What of a salvaged database does not verify is left out of it, piece by piece, and named.

Nothing whole goes with it: of a checkpoint its row, of an effect only the result, of a session or an agent only the
texts that do not open, of a log the line. So whatever is left can be read, and the new database verifies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import IntegrityError
from holdfast.state import decode_state
from holdfast.stores import Store
from holdfast.stores.chain import breaks
from holdfast.stores.sqlite_salvage import forget, forget_result, listed
from holdfast.verification import verify_store

if TYPE_CHECKING:
    from holdfast.stores.sealed import SealedStore


@dataclass(frozen=True, slots=True)
class Lost:
    """A checkpoint that could not be saved, and why; the result of an effect; the metadata or a time of an agent.

    With a session alone it is a pending write, a line of its log, something of its own row, a time of any row of
    it, or links of its chain that are gone. With nothing at all it is a time of what sessions share.
    """

    checkpoint_id: str | None
    reason: str
    session_id: str | None = None
    effect_key: str | None = None
    agent_id: str | None = None

    @property
    def what(self) -> str:
        """What was lost, for people."""
        if self.checkpoint_id is not None:
            return self.checkpoint_id
        if self.effect_key is not None:
            return f"result of {self.effect_key} of session {self.session_id}"
        if self.agent_id is not None:
            return f"something of agent {self.agent_id}"
        if self.session_id is None:
            return "something that sessions share"
        return f"something of session {self.session_id}"


class LeavingOut:
    """Leaves out what is damaged of a tenant. ``lost`` names it, ``logs`` counts lines among it."""

    def __init__(self, path: Path, store: Store) -> None:
        self._path = path
        self._store = store
        self._sealed = _as_sealed(store)
        # Rows as they are stored: one that does not open hides none of the others there.
        self._inner = store if self._sealed is None else self._sealed.inner
        self._sessions = [one.session_id for one in store.session_usage()]
        self.lost: list[Lost] = []
        self.logs = 0

    def everything(self, progress: Callable[[int], None] | None, remade: Collection[str]) -> None:
        """Go through all there is. Of sessions that were ``remade`` nobody knows where their chains end."""
        for session_id in self._sessions:
            self._chain(session_id, has_end=session_id not in remade)
        self._checkpoints_and_results(progress)
        for agent_id, *_ in listed(self._path, "agent_ids", (self._store.tenant,)):
            self._agent(agent_id)
        for session_id in self._sessions:
            self._session(session_id)
            self._log(session_id)
            self._writes(session_id)

    def _chain(self, session_id: str, *, has_end: bool) -> None:
        """Name links that are gone. The salvaged chain will show no trace of them."""
        chain = self._store.read_chain(session_id)
        for checkpoint_id, reason in () if chain is None else breaks(chain):
            if checkpoint_id is None and not has_end:
                continue
            seen = "" if checkpoint_id is None else f" (seen at {checkpoint_id})"
            self.lost.append(Lost(None, reason + seen, session_id))

    def _checkpoints_and_results(self, progress: Callable[[int], None] | None) -> None:
        damaged = verify_store(self._store, progress=progress).damaged
        ids = [one.checkpoint_id for one in damaged if one.checkpoint_id is not None]
        self._store.delete_checkpoints(ids)
        self._store.gc()
        for one in damaged:
            if one.checkpoint_id is None and one.effect_key is None:
                # A session's own row, which is looked at below.
                continue
            if one.session_id is not None and one.effect_key is not None:
                self._forget_result(one.session_id, one.effect_key, one.occurrence)
            self.lost.append(Lost(one.checkpoint_id, one.reason, one.session_id, one.effect_key))

    def _forget_result(self, session_id: str, key: str, occurrence: int | None) -> None:
        stored_key = self._sealed.rows.effect_key(key) if self._sealed else key
        forget_result(self._path, (session_id, stored_key, occurrence), self._store.sums)

    def _agent(self, agent_id: str) -> None:
        with self._or(lambda error: Lost(None, str(error), agent_id=agent_id)) as damaged:
            self._store.find_agent(agent_id)
        if damaged:
            self._forget("agent_metadata", agent_id)

    def _session(self, session_id: str) -> None:
        def named(error: IntegrityError) -> Lost:
            return Lost(None, str(error), session_id)

        with self._or(named) as damaged:
            self._inner.find_session(session_id)
        if damaged:
            self._forget("metadata", session_id)
        found = self._inner.find_session(session_id)
        if self._sealed is None or found is None:
            return
        rows = self._sealed.rows
        with self._or(named) as damaged:
            rows.opened_text(found.task_description, "task", session_id)
        if damaged:
            self._forget("task", session_id)
        with self._or(named) as damaged:
            rows.opened_text(found.pause_reason, "pause reason", session_id)
        if damaged:
            self._forget("pause_reason", session_id)
        with self._or(named) as damaged:
            rows.opened_session(replace(found, task_description=None, pause_reason=None))
        if damaged:
            self._sealed.mark_session(session_id)

    def _log(self, session_id: str) -> None:
        ids = [id_ for (id_,) in listed(self._path, "log_ids", (self._store.tenant, session_id))]
        ranges = [(0, len(ids))] if ids else []
        while ranges:
            first, count = ranges.pop()
            try:
                self._store.list_logs(session_id, offset=first, limit=count)
            except IntegrityError as error:
                if count > 1:
                    half = count // 2
                    ranges += [(first, half), (first + half, count - half)]
                    continue
                # From behind, so that places before it stay what they are.
                self._forget("log_line", ids[first])
                self.lost.append(Lost(None, str(error), session_id))
                self.logs += 1

    def _writes(self, session_id: str) -> None:
        # Row by row: one that was altered hides none of the others.
        for *row, _ in listed(self._path, "writes", (self._store.tenant, session_id)):
            namespace, external_id, task = row[1:4]

            def named(error: IntegrityError, task: str = task) -> Lost:
                return Lost(None, f"a pending write of task {task}: {error}", session_id)

            with self._or(named) as damaged:
                stored = self._inner.sums.check_write(tuple(row))
                rows = self._sealed.rows if self._sealed else None
                opened = (
                    stored if rows is None else rows.opened_write(stored, session_id, namespace)
                )
                decode_state(opened.payload, self._store.read_chunks)
            if damaged:
                self._forget("write", session_id, namespace, external_id, task, row[5])

    @contextmanager
    def _or(self, named: Callable[[IntegrityError], Lost]) -> Iterator[list[Lost]]:
        """Note what does not verify in the block; what is given is empty when all does."""
        found: list[Lost] = []
        try:
            yield found
        except IntegrityError as error:
            found.append(named(error))
            self.lost += found

    def _forget(self, what: str, *place: object) -> None:
        forget(self._path, what, (self._store.tenant, *place))


def _as_sealed(store: Store) -> SealedStore | None:
    if store.read_seal() is None:
        return None
    from holdfast.stores.sealed import SealedStore

    return store if isinstance(store, SealedStore) else None
