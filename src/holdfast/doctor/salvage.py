"""Everything of a damaged database that still verifies, saved into a new one.

Whatever rows can be read come first (`holdfast.stores.sqlite_salvage`); then every state is decoded and
every digest derived again, and what fails is left out and named. An effect whose result is lost stays, as
one of which nobody knows how it ended: without it the step would be run a second time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.durable import sync_directory
from holdfast.errors import IntegrityError, InvalidUrl
from holdfast.stores import Store, file_in, open_store, sealing
from holdfast.stores.rules import key_required
from holdfast.stores.sqlite_salvage import (
    Salvaged,
    add_seal,
    forget_result,
    lost_seals,
    mend_chains,
    salvage_rows,
    tenants_of,
)
from holdfast.verification import verify_store

if TYPE_CHECKING:
    from holdfast.crypto import GivenKeys


@dataclass(frozen=True, slots=True)
class Lost:
    """A checkpoint that could not be saved, and why; or the result of an effect.

    With a session alone it is something of its own row or log that cannot be opened, and is as it was.
    """

    checkpoint_id: str | None
    reason: str
    session_id: str | None = None
    effect_key: str | None = None

    @property
    def what(self) -> str:
        """What was lost, for people."""
        if self.checkpoint_id is not None:
            return self.checkpoint_id
        if self.effect_key is not None:
            return f"result of {self.effect_key} of session {self.session_id}"
        return f"something of session {self.session_id}"


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What was saved, and what was lost.

    ``lost_rows`` counts by table what could not be read at all; of checkpoints among them ``lost`` has the
    ids where an index still knew them. ``remade_sessions`` had lost their own row.
    """

    target: Path
    sessions: int
    checkpoints: int
    effects: int
    logs: int
    lost: tuple[Lost, ...]
    lost_rows: dict[str, int]
    remade_sessions: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """True when nothing was lost."""
        return not (self.lost or self.lost_rows or self.remade_sessions)


def salvage(
    url: str | Path,
    target: Path,
    *,
    progress: Callable[[int], None] | None = None,
    keys: GivenKeys = None,
) -> SalvageReport:
    """Save what still verifies of the SQLite file that ``url`` names into the new file ``target``.

    The source is only read. The target appears whole or not at all. ``progress`` is called with the
    number of checkpoints looked at. What is sealed takes its ``keys``, as for `open_store`, and stays
    sealed.
    """
    if str(url).startswith(("memory:", "postgresql:", "postgres:")):
        raise InvalidUrl("only a SQLite file can be salvaged; nothing was written")
    source, _ = file_in(url)
    if os.path.lexists(target):
        raise InvalidUrl(f"{target} exists already; nothing was written. Name a new file")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".holdfast-", dir=target.parent) as folder:
        made = Path(folder, "salvaged.db")
        rows = salvage_rows(source, made)
        lost = [Lost(id_, "its row cannot be read") for id_ in rows.lost_checkpoints]
        for tenant in lost_seals(made):
            seal = sealing(tenant, keys)
            if seal is None:
                raise key_required(str(source))
            add_seal(made, tenant, seal.proof())
        for tenant in tenants_of(made):
            with open_store(made, tenant=tenant, keys=keys, as_it_is=True) as store:
                _mark_remade(store, rows)
                lost += _leave_out_damaged(made, store, progress)
        mend_chains(made)
        _publish(made, target)
    return _report(target, rows, lost)


def _mark_remade(store: Store, rows: Salvaged) -> None:
    """Give sessions that had lost their rows the mark that those of a sealed store have."""
    if store.read_seal() is None:
        return
    from holdfast.stores.sealed import SealedStore

    if isinstance(store, SealedStore):
        for session_id in rows.remade_sessions:
            store.mark_session(session_id)


def _leave_out_damaged(
    path: Path, store: Store, progress: Callable[[int], None] | None
) -> list[Lost]:
    damaged = verify_store(store, progress=progress).damaged
    checkpoints = [one for one in damaged if one.checkpoint_id is not None]
    store.delete_checkpoints([str(one.checkpoint_id) for one in checkpoints])
    store.gc()
    for one in damaged:
        if one.session_id is not None and one.effect_key is not None:
            key = _key_in(store, one.effect_key)
            forget_result(path, (store.tenant, one.session_id, key, one.occurrence))
    lost = [Lost(one.checkpoint_id, one.reason, one.session_id, one.effect_key) for one in damaged]
    return lost + _unreadable(store)


def _unreadable(store: Store) -> list[Lost]:
    """Name the sessions whose own rows or logs cannot be opened. They stay: all else of them is whole."""
    lost = []
    for usage in store.session_usage():
        try:
            store.read_session(usage.session_id)
        except IntegrityError as error:
            lost.append(Lost(None, str(error), usage.session_id))
    return lost


def _key_in(store: Store, key: str) -> str:
    """Return the key of an effect as the database has it."""
    from holdfast.stores.sealed import SealedStore

    return store.rows.effect_key(key) if isinstance(store, SealedStore) else key


def _publish(made: Path, target: Path) -> None:
    """Give a closed database its name, durably; never over a file that has it."""
    with made.open("rb+") as file:
        os.fsync(file.fileno())
    os.link(made, target)
    # Not every system can open a directory; there the file system keeps its own order.
    with suppress(OSError):
        sync_directory(target.parent)


def _report(target: Path, rows: Salvaged, lost: list[Lost]) -> SalvageReport:
    left_out = sum(one.checkpoint_id is not None for one in lost) - len(rows.lost_checkpoints)
    return SalvageReport(
        target=target,
        sessions=rows.taken["sessions"] + len(rows.remade_sessions),
        checkpoints=rows.taken["session_checkpoints"] - left_out,
        effects=rows.taken["effects"],
        logs=rows.taken["session_logs"],
        lost=tuple(lost),
        lost_rows=dict(rows.lost),
        remade_sessions=tuple(rows.remade_sessions),
    )
