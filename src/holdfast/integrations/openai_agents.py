"""OpenAI Agents: conversations that last, and approvals that are acted upon once.

`HoldfastSession` is a session to hand to ``Runner.run(…, session=…)``. `HoldfastRunStates` keeps the
states of interrupted runs under names. Running one such state twice would call its tools twice, so
here it can be taken once, whoever asks and in however many processes.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.conversations import DEFAULT_CAP, Conversations, Draft, Version, documents
from holdfast.errors import (
    AlreadyResumed,
    CheckpointExists,
    MissingExtra,
    NothingToResume,
    StaleWriter,
)
from holdfast.stores import Store
from holdfast.waiting import in_thread

try:
    from agents import RunState, SessionSettings
except ModuleNotFoundError as error:
    raise MissingExtra("openai-agents", "An adapter for OpenAI Agents") from error

if TYPE_CHECKING:
    from agents import Agent, TResponseInputItem

_KIND: Final = "openai-agents"
_RUNS: Final = "run-states"


class HoldfastSession:
    """A conversation in a Holdfast store, which is given, or opened from its URL and closed by `close`.

    Every addition is durable when it returns, and nothing that two runs add at once is lost. The
    last ``max_versions`` additions can be gone back to with Holdfast's own means.
    """

    def __init__(
        self,
        session_id: str,
        where: Store | str | Path,
        *,
        session_settings: SessionSettings | None = None,
        max_versions: float | None = DEFAULT_CAP,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._conversations = Conversations(where, _KIND, max_versions=max_versions)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the conversation, or its last ``limit`` items."""
        found = await in_thread(self._conversations.read, self.session_id)
        items: list[Any] = _items(found)
        limit = self.session_settings.limit if limit is None else limit
        return items if limit is None or limit < 0 else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end."""
        added = documents(items, "$.items")

        def add(last: Version | None) -> Draft | None:
            return Draft({"items": [*_items(last), *added]}) if added else None

        await in_thread(self._conversations.change, self.session_id, add)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; None when there is none."""
        popped: list[Any] = []

        def pop(last: Version | None) -> Draft | None:
            items = _items(last)
            popped[:] = items[-1:]
            return Draft({"items": items[:-1]}) if items else None

        await in_thread(self._conversations.change, self.session_id, pop)
        return deepcopy(popped[0]) if popped else None

    async def clear_session(self) -> None:
        """Erase the conversation with all its versions."""
        await in_thread(self._conversations.erase, self.session_id, "")

    async def close(self) -> None:
        """Close the store if it was opened here."""
        await in_thread(self._conversations.close)


@dataclass(frozen=True, slots=True)
class SavedRun:
    """The state of an interrupted run, and which version of it this is.

    ``mine`` says that `HoldfastRunStates.take` gave it, so that whoever has it may put the run back.
    """

    name: str
    state: RunState[Any, Any]
    version: Version
    mine: bool = False

    @property
    def taken(self) -> bool:
        """Whether a worker had the run when this was read."""
        return bool(self.version.state["taken"])


class HoldfastRunStates:
    """States of interrupted runs by name, each of which is taken once.

    A process that dies after `take` leaves the run taken: whether its tools ran nobody can tell from
    here. ``take(…, fork=True)`` takes it again, on purpose.
    """

    def __init__(self, where: Store | str | Path) -> None:
        self._conversations = Conversations(where, _KIND)

    async def save(
        self,
        name: str,
        state: RunState[Any, Any],
        *,
        after: SavedRun | None = None,
        **options: Any,
    ) -> None:
        """Store a run under a name, or what became of the one that was loaded or taken as ``after``.

        ``options`` are those of ``RunState.to_string``: without one a context of a class of its own stays out.
        Raises `CheckpointExists` for a name that is in use when ``after`` is not given, and
        `AlreadyResumed` when somebody else has gone on from ``after``, or had taken it when it was
        loaded; nothing is stored then.
        """
        # Only the worker knows what became of a taken run; anybody else would have its tools run twice.
        if after is not None and after.taken and not after.mine:
            raise AlreadyResumed(
                f"the run {name!r} had been taken by a worker when it was loaded, so a decision on it "
                f"comes too late. Nothing was stored: load it again if the worker saves it anew, or, "
                f"if that worker is dead, decide on what take(…, fork=True) gives"
            )
        draft = Draft({"run_state": json.loads(state.to_string(**options)), "taken": False})
        before = None if after is None else after.version
        try:
            await in_thread(self._conversations.replace, name, draft, after=before, namespace=_RUNS)
        except StaleWriter:
            if after is not None:
                raise _taken(name) from None
            raise CheckpointExists(
                f"a run is stored under the name {name!r} already. Nothing was stored: say after="
                f"which version this one comes, or forget the other one first"
            ) from None

    async def load(self, name: str, agent: Agent[Any], **options: Any) -> SavedRun:
        """Return a run without taking it, to show what waits or to record a decision.

        Of one that a worker has, which is ``taken``, no decision can be stored. ``options`` are those of
        ``RunState.from_json``. Raises `NothingToResume`.
        """
        found = await in_thread(self._conversations.read, name, _RUNS)
        if found is None:
            raise NothingToResume(f"no run is stored under the name {name!r}")
        state = await RunState.from_json(agent, found.state["run_state"], **options)
        return SavedRun(name, state, found)

    async def take(
        self, name: str, agent: Agent[Any], *, fork: bool = False, **options: Any
    ) -> SavedRun:
        """Return a run to go on with. Of any number of callers one gets it.

        The others get `AlreadyResumed` and have run nothing. ``fork`` takes what was taken before.
        """
        found = await self.load(name, agent, **options)
        if found.taken and not fork:
            raise _taken(name)
        draft = Draft({**found.version.state, "taken": True})
        try:
            taken = await in_thread(
                self._conversations.replace, name, draft, after=found.version, namespace=_RUNS
            )
        except StaleWriter:
            raise _taken(name) from None
        return SavedRun(name, found.state, taken, mine=True)

    async def forget(self, name: str) -> None:
        """Erase what is stored under a name, which is free again then."""
        await in_thread(self._conversations.erase, name, _RUNS)

    async def close(self) -> None:
        """Close the store if it was opened here."""
        await in_thread(self._conversations.close)


def _items(version: Version | None) -> list[Any]:
    return [] if version is None else version.state.get("items", [])


def _taken(name: str) -> AlreadyResumed:
    return AlreadyResumed(
        f"somebody else has taken the run {name!r}, or decided on it, since it was read. Nothing was "
        f"run or stored here; take(…, fork=True) goes on from what is stored once more"
    )
