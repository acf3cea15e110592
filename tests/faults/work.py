"""The work during which faults strike, and the ledger of what of it was acknowledged."""

from __future__ import annotations

import random
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast import SessionManager, SQLiteCheckpointSaver
from holdfast.ids import new_id
from holdfast.savers import CheckpointConfig

Ledger = dict[str, Any]

_SESSION: Final = "kept"
_THREAD: Final = CheckpointConfig("thread")
_CAPPED: Final = CheckpointConfig("capped")
_CAP: Final = 3


class Work:
    """Does everything that a store is for, in random order."""

    def __init__(self, path: Path, coin: random.Random) -> None:
        self._coin = coin
        self._manager = SessionManager.open(path, project_dir=path.parent, workspace=False)
        self._saver = SQLiteCheckpointSaver(path)
        self._capping = SQLiteCheckpointSaver(path, max_checkpoints_per_thread=_CAP)
        self._session = self._manager.create_session("worker", session_id=_SESSION)
        self._messages: list[dict[str, str]] = []
        self._thread, self._capped = _THREAD, _CAPPED
        self._number = 0
        self.ledger: Ledger = {
            "states": {},
            "thread": [],
            "capped": None,
            "effects": [],
            "logs": [],
            "erased": [],
        }

    def step(self) -> None:
        """Do one thing, and write it into the ledger once it has been acknowledged."""
        self._number += 1
        number, ledger, session = self._number, self.ledger, self._session
        self._messages.append({"role": "user", "content": self._coin.randbytes(300).hex()})
        kind = self._coin.randrange(12)
        if kind < 4:
            state = {"messages": self._messages}
            saved = session.save_checkpoint(f"step-{number}", state=state)
            ledger["states"][saved.id] = len(self._messages)
        elif kind < 7:
            state = {"messages": self._messages}
            self._thread = self._saver.put(self._thread, state, {"step": number})
            ledger["thread"].append(self._thread.checkpoint_id)
        elif kind < 9:
            self._capped = self._capping.put(self._capped, {"number": number})
            ledger["capped"] = number
        elif kind < 10:
            session.step(f"effect-{number}", lambda: number)
            ledger["effects"].append(f"effect-{number}")
        elif kind < 11:
            session.log("info", "done", data={"number": number})
            ledger["logs"].append(number)
        else:
            thread = new_id()
            self._saver.put(CheckpointConfig(thread), {"messages": self._messages})
            self._saver.delete_thread(thread)
            ledger["erased"].append(thread)
            self._manager.gc()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for one in (self._capping, self._saver, self._manager):
            one.close()


def missing(path: Path, ledger: Ledger) -> list[str]:
    """Return what was acknowledged and is not there, in words; then see that work goes on."""
    acknowledged = any(ledger.values())
    if not path.exists() or not path.stat().st_size:
        return ["the whole database"] if acknowledged else []
    with (
        SessionManager.open(path, project_dir=path.parent, workspace=False) as manager,
        SQLiteCheckpointSaver(path) as saver,
    ):
        found = [f"{one.what}: {one.reason}" for one in manager.verify(deep=True).damaged]
        if not acknowledged:
            return found
        session = manager.get_session(_SESSION)
        stored = {one.id: one for one in session.list_checkpoints()}
        for id_, count in ledger["states"].items():
            if id_ not in stored or len(stored[id_].state["messages"]) != count:
                found.append(f"checkpoint {id_}")
        thread = {one.config.checkpoint_id for one in saver.list_summaries(_THREAD)}
        found += [f"put {id_}" for id_ in ledger["thread"] if id_ not in thread]
        if ledger["capped"] is not None:
            newest = saver.get_tuple(_CAPPED)
            if newest is None or newest.checkpoint["number"] < ledger["capped"]:
                found.append("the newest of the capped thread")
        done = {one.name for one in session.effects(status="done")}
        found += [name for name in ledger["effects"] if name not in done]
        logged = {one.data["number"] for one in session.logs() if one.data}
        found += [f"log line {number}" for number in ledger["logs"] if number not in logged]
        back = [id_ for id_ in ledger["erased"] if saver.get_tuple(CheckpointConfig(id_))]
        found += [f"the erasure of {id_}" for id_ in back]
        manager.resume_session(_SESSION).save_checkpoint("afterwards", state={"ok": True})
    return found
