"""Everything of a damaged database that still verifies, saved into a new one.

Whatever rows can be read come first (`holdfast.stores.sqlite_salvage`); then every state is decoded and
every digest derived again, and what fails is left out and named (`holdfast.doctor.leaving_out`). An effect whose result is lost stays, as
one of which nobody knows how it ended: without it the step would be run a second time.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from holdfast.doctor.leaving_out import LeavingOut, Lost
from holdfast.durable import sync_directory
from holdfast.errors import InvalidUrl, KeyRequired, WrongKey
from holdfast.stores import Store, file_in, open_store, sealing
from holdfast.stores.rules import key_required
from holdfast.stores.sqlite_errors import translated
from holdfast.stores.sqlite_salvage import (
    MendedTime,
    Salvaged,
    add_seal,
    lost_seals,
    mend_chains,
    salvage_rows,
    tenants_of,
)

if TYPE_CHECKING:
    from holdfast.crypto import GivenKeys


# A database, and what SQLite keeps beside it under names that it makes of the file's: they go together.
_ENDINGS: Final = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What was saved, and what was lost.

    ``lost_rows`` counts by table what could not be read at all; of checkpoints among them ``lost`` has the
    ids where an index still knew them. ``remade_sessions`` had lost their own row.
    """

    source: Path
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

    @property
    def moves(self) -> list[tuple[Path, Path]]:
        """What to rename, in this order, to put the new file in the place of the old one.

        The old one keeps its log: SQLite would write that over the new one.
        """
        old = [end for end in _ENDINGS if os.path.lexists(f"{self.source}{end}")]
        aside = next(
            name
            for name in (f"{self.source}.damaged-{number}" for number in count(1))
            if not any(os.path.lexists(f"{name}{end}") for end in _ENDINGS)
        )
        away = [(Path(f"{self.source}{end}"), Path(f"{aside}{end}")) for end in old]
        return [*away, (self.target, self.source)]

    @property
    def next(self) -> list[str]:
        """The commands that look at the new file and then put it in the place of the old one."""
        look = shlex.join(["holdfast", "verify", "--deep", "--url", str(self.target)])
        return [look, *(shlex.join(["mv", str(one), str(to)]) for one, to in self.moves)]


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
    with _scratch_beside(target) as folder:
        made = Path(folder, "salvaged.db")
        rows = _rows_of(source, made)
        lost_lines = 0
        lost = [Lost(id_, "its row cannot be read") for id_ in rows.lost_checkpoints]
        lost += map(_lost_time, rows.mended)
        if rows.unread_log:
            lost.append(
                Lost(None, "its log cannot be read, and saves that were only there are lost")
            )
        for tenant in lost_seals(made):
            seal = sealing(tenant, keys)
            if seal is None:
                raise key_required(str(source))
            add_seal(made, tenant, seal.proof())
        for tenant in tenants_of(made):
            with _opened(made, source, tenant, keys) as store:
                _mark_remade(store, rows)
                leaving_out = LeavingOut(made, store)
                leaving_out.everything(progress, rows.remade_sessions)
                lost += leaving_out.lost
                lost_lines += leaving_out.logs
        mend_chains(made)
        _publish(made, target)
    return _report(source, target, rows, lost, lost_lines)


def _lost_time(time: MendedTime) -> Lost:
    instead = "is left out" if time.instead is None else f"became {time.instead}"
    reason = (
        f"{time.column} of a row of {time.table} cannot be read and {instead}; the rest is saved"
    )
    return Lost(None, reason, time.session_id, agent_id=time.agent_id)


def _scratch_beside(target: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a directory to work in, from where a file can be given its name in one step."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=".holdfast-", dir=target.parent)
    except OSError as error:
        raise translated(error, target, f"{target} cannot be made") from error


def _rows_of(source: Path, made: Path) -> Salvaged:
    """Save what can be read; a log may ask for a copy that is larger than any file can be."""
    try:
        return salvage_rows(source, made)
    except OSError as error:
        raise translated(error, made, f"{source} cannot be copied with its log") from error


def _opened(made: Path, source: Path, tenant: str, keys: GivenKeys) -> Store:
    try:
        return open_store(made, tenant=tenant, keys=keys, as_it_is=True)
    except (KeyRequired, WrongKey) as error:
        # The keys are those of the source; of the file beside the target nobody has heard.
        url = f"sqlite:///{quote(str(made.absolute()))}"
        raise type(error)(str(error).replace(url, str(source))) from None


def _mark_remade(store: Store, rows: Salvaged) -> None:
    """Give sessions that had lost their rows the mark that those of a sealed store have."""
    if store.read_seal() is None:
        return
    from holdfast.stores.sealed import SealedStore

    if isinstance(store, SealedStore):
        for session_id in rows.remade_sessions:
            store.mark_session(session_id)


def _publish(made: Path, target: Path) -> None:
    """Give a closed database its name, durably; never over a file that has it."""
    with made.open("rb+") as file:
        os.fsync(file.fileno())
    os.link(made, target)
    # Not every system can open a directory; there the file system keeps its own order.
    with suppress(OSError):
        sync_directory(target.parent)


def _report(
    source: Path, target: Path, rows: Salvaged, lost: list[Lost], lost_lines: int
) -> SalvageReport:
    left_out = sum(one.checkpoint_id is not None for one in lost) - len(rows.lost_checkpoints)
    return SalvageReport(
        source=source,
        target=target,
        sessions=rows.taken["sessions"] + len(rows.remade_sessions),
        checkpoints=rows.taken["session_checkpoints"] - left_out,
        effects=rows.taken["effects"],
        logs=rows.taken["session_logs"] - lost_lines,
        lost=tuple(lost),
        lost_rows=dict(rows.lost),
        remade_sessions=tuple(rows.remade_sessions),
    )
