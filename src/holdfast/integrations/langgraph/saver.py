"""`HoldfastSaver`: LangGraph's checkpointer over any store of ours.

A thread is a session, ``checkpoint_ns`` its namespace, a checkpoint's id its external id. Order, and
with it the latest one, is the order of the puts: no clock and no id decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)

from holdfast.closing import Closing
from holdfast.collector import collection_paused
from holdfast.errors import (
    CheckpointBusy,
    InvalidFilter,
    InvalidIdentifier,
    StateNotSerializable,
)
from holdfast.ids import LANGGRAPH, check_external_id, check_text, new_id, thread_agents
from holdfast.integrations.langgraph import pruning
from holdfast.integrations.langgraph.classes import Classes
from holdfast.integrations.langgraph.newest import Runs
from holdfast.integrations.langgraph.places import (
    Place,
    checkpoint_of,
    config_of,
    place_of,
    thread_of,
)
from holdfast.integrations.langgraph.reading import Reader
from holdfast.integrations.langgraph.twins import AsyncTwins
from holdfast.integrations.langgraph.values import Values
from holdfast.model import CheckpointQuery, CheckpointRecord, NewWrite, Trim
from holdfast.savers.backed import list_threads
from holdfast.savers.values import ThreadInfo, check_writes
from holdfast.sessions import SessionManager
from holdfast.sessions.upkeep import carry_out
from holdfast.state import StateEncoder
from holdfast.stores import Store, open_store
from holdfast.stores.checks import FREE_TEXT_BYTES
from holdfast.stores.rules import foreign_session
from holdfast.threads import (
    ThreadRecorders,
    check_cap,
    thread_checkpoint,
    thread_session,
)

_VERSION: Final = re.compile(r"(\d+)(\..*)?", re.DOTALL)


class HoldfastSaver(AsyncTwins, Closing, BaseCheckpointSaver[Any]):
    """A checkpointer for LangGraph: ``builder.compile(checkpointer=HoldfastSaver("agent.db"))``.

    ``store`` is a path or URL as `holdfast.stores.open_store` reads it, or a `Store` or
    `SessionManager` that is open already and stays so. ``types`` are the classes of your own that
    may stand in the state: pydantic models, dataclasses, named tuples and enumerations. With
    ``max_checkpoints_per_thread`` the oldest checkpoints of a thread and namespace go, except in
    threads with delta channels; `prune` knows what those need.

    All methods may be called from several threads, and each has its async twin. It is a context
    manager of both kinds, which closes what it opened.
    """

    def __init__(
        self,
        store: str | Path | Store | SessionManager,
        *,
        types: Iterable[type] = (),
        tenant: str | None = None,
        max_checkpoints_per_thread: float | None = None,
    ) -> None:
        super().__init__()
        self._trim = Trim(keep=check_cap(max_checkpoints_per_thread))
        self.classes = Classes(types)
        values = Values(self.classes)
        self._owns_store = not isinstance(store, (Store, SessionManager))
        if isinstance(store, SessionManager):
            self._store = store.store
        elif isinstance(store, Store):
            self._store = store
        else:
            self._store = open_store(store, tenant=tenant)
        self._agents = thread_agents(LANGGRAPH)
        self._values = values
        self._reader = Reader(self._store, values, self._agents)
        self._recorders = ThreadRecorders()
        # An object of its own: what runs remember outlives the saver, and must not keep it.
        self._runs = Runs()

    @property
    def store(self) -> Store:
        """The store beneath, for what a checkpointer has no words for."""
        return self._store

    # Writing -------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint on the one that the config names; it is durable when this returns.

        Putting an id again replaces it and keeps its place in the order. Raises `ClassNotAllowed`
        and `StateNotSerializable`, which name thread, channel and path, and `StaleWriter` when this
        run went on from the newest checkpoint and somebody else has done so since.
        """
        place = place_of(config)
        thread_id, namespace = place.line
        _check_dict(checkpoint, thread_id, "checkpoint")
        _check_dict(checkpoint.get("channel_values"), thread_id, "channel_values")
        _check_dict(metadata, thread_id, "metadata")
        checkpoint_id = check_external_id(checkpoint.get("id"))
        notes = self._notes(config, metadata, thread_id)
        run_id = notes.get("run_id")
        has_deltas = pruning.has_delta_channels(notes, checkpoint["channel_values"])
        draft_id = new_id()
        follows = self._runs.follows(config, place.line, place.checkpoint_id)
        session = thread_session(self._store.tenant, LANGGRAPH, thread_id)
        try:
            with collection_paused():
                state = self._document(checkpoint, thread_id)
            for attempt in self._recorders.attempts(place.line, state):
                with attempt as encoded:
                    self._store.put(
                        thread_checkpoint(
                            session,
                            encoded,
                            draft_id,
                            external_id=checkpoint_id,
                            namespace=namespace,
                            parent_id=place.checkpoint_id,
                            follows=follows,
                            replace=True,
                            run_id=run_id if type(run_id) is str else None,
                            metadata=notes,
                            trim=Trim() if has_deltas else self._trim,
                        )
                    )
        except StateNotSerializable as error:
            raise _placed(error, thread_id) from error
        self._reader.prototypes.stored(place.line, encoded, state)
        self._runs.went_on(config, place.line, checkpoint_id)
        return config_of(thread_id, namespace, checkpoint_id)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote at the config's checkpoint, which may itself still be on its way.

        A write that the task has stored there before stays as it was, so a retry is safe; errors,
        interrupts and resume values take the place of earlier ones.
        """
        place = place_of(config)
        thread_id, namespace = place.line
        if place.checkpoint_id is None:
            raise InvalidIdentifier(
                f"thread {thread_id!r}: writes belong to one checkpoint, and the config names none"
            )
        drafts = []
        for index, (channel, value) in enumerate(check_writes(writes)):
            if not isinstance(channel, str):
                raise InvalidIdentifier(f"thread {thread_id!r}: {channel!r:.80} is no channel")
            at = WRITES_IDX_MAP.get(channel, index)
            drafts.append(self.write_draft(thread_id, task_id, task_path, at, channel, value))
        self.put_drafts(thread_id, namespace, place.checkpoint_id, drafts)

    def write_draft(
        self,
        thread_id: str,
        task_id: str,
        task_path: str,
        index: int,
        channel: str,
        value: Any,
        *,
        beside: Mapping[str, Any] | None = None,
    ) -> NewWrite:
        """Return a pending write as it is stored, at a place in its task's order; it may hold more ``beside``."""
        frozen = self._values.frozen(value, thread_id, channel)
        try:
            encoded = StateEncoder().encode({"value": frozen, **(beside or {})})
        except StateNotSerializable as error:
            raise _placed(error, thread_id, channel) from error
        return NewWrite(
            task_id=task_id,
            index=index,
            channel=channel,
            manifest=encoded.manifest,
            refs=encoded.refs,
            chunks=encoded.chunks,
            expects=encoded.expects,
            task_path=task_path,
            replace=channel in WRITES_IDX_MAP,
        )

    def put_drafts(
        self, thread_id: str, namespace: str, checkpoint_id: str, drafts: Sequence[NewWrite]
    ) -> None:
        """Store pending writes at a checkpoint, in one transaction."""
        session = thread_session(self._store.tenant, LANGGRAPH, thread_id)
        self._store.put_writes(session, namespace, checkpoint_id, drafts)

    def _document(self, checkpoint: Checkpoint, thread_id: str) -> dict[str, Any]:
        frozen = self._values.frozen
        document = {
            name: value if name == "channel_values" else frozen(value, thread_id, name)
            for name, value in checkpoint.items()
        }
        document["channel_values"] = {
            channel: self._values.frozen_later(value, thread_id, channel)
            for channel, value in checkpoint["channel_values"].items()
        }
        return document

    def _notes(
        self, config: RunnableConfig, metadata: CheckpointMetadata, thread_id: str
    ) -> dict[str, Any]:
        notes = cast("dict[str, Any]", get_checkpoint_metadata(config, metadata))
        return {
            key: self._values.frozen(value, thread_id, f"metadata {key}")
            for key, value in notes.items()
        }

    # Reading -------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the config's checkpoint, the latest if it names none, or None.

        Raises `IntegrityError`, naming the thread, when what is stored is not what was saved.
        """
        found = self._read(config)
        self._remember(config, found)
        return found

    def _read(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = place_of(config)
        read = self._reader.read(place)
        if read is None:
            return None
        found, payload = read
        # The thread's next put mostly goes on from there and sends only what is new.
        self._recorders.adopt(place.line, payload, self._store.read_chunks, self._store.cache)
        return found

    def _remember(self, config: RunnableConfig, found: CheckpointTuple | None) -> None:
        place = place_of(config)
        if place.checkpoint_id is not None:
            self._runs.travelled(config, place.line)
        else:
            self._runs.saw(config, place.line, found.checkpoint["id"] if found else None)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first; without a config over those of all threads.

        ``filter`` compares top-level keys of the metadata, ``before`` names the checkpoint to
        continue after, also one of another namespace, or one that is not stored: then ids decide.
        Raises `InvalidFilter`.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidFilter(f"limit must be a whole number, not negative: {limit!r}")
        place = None if config is None else place_of(config)
        cursor = None if before is None else self._cursor(before, place)
        for records in self._reader.pages(place, filter=filter, before=cursor, limit=limit):
            yield from self._reader.tuples(records)

    def _cursor(self, before: RunnableConfig, place: Place | None) -> CheckpointRecord | str | None:
        checkpoint_id = checkpoint_of(before)
        if checkpoint_id is None:
            return None
        names = before.get("configurable", {})
        thread_id = thread_of(names["thread_id"]) if "thread_id" in names else None
        if thread_id is None and place is not None:
            thread_id = place.thread_id
        found = self._store.list_checkpoints(
            CheckpointQuery(
                session_id=thread_id,
                namespace=names.get("checkpoint_ns"),
                agent_prefix=self._agents if thread_id is None else None,
                external_id=checkpoint_id,
                limit=1,
            )
        )
        return found[0] if found else checkpoint_id

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what was written to channels on the way to the config's checkpoint.

        It goes back to the last stored value of each, its seed, along the line of parents.
        """
        return self._reader.delta_history(place_of(config), channels) if channels else {}

    # Threads -------------------------------------------------------------------------------------

    def list_threads(self) -> Sequence[ThreadInfo]:
        """List all threads of graphs with what they hold, most recently created first; no content is read."""
        return list_threads(self._store, self._agents)

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread in all its namespaces, and at once what nothing else refers to.

        Raises `ForeignSession`, and erases nothing, where the id is that of another agent's session.
        """
        thread_id = thread_of(thread_id)
        self._store.delete_session(thread_id, agent_prefix=self._agents)
        self._forget([thread_id])

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of runs, in all threads of graphs, with their pending writes.

        What a delta channel of a later checkpoint still needs stays, also of one that comes meanwhile.
        Raises `InvalidIdentifier`, and erases nothing, for what is no list of ids, each a text that is not
        empty, and `CheckpointBusy` where others go on with what was to be erased.
        """
        # None would stand for any run.
        runs = [check_text(one, "run id", FREE_TEXT_BYTES) for one in _listed(run_ids, "run_ids")]
        queries = [CheckpointQuery(run_id=one, agent_prefix=self._agents) for one in runs]
        found = chain.from_iterable(map(self._store.list_checkpoints, queries))
        threads = {record.session_id for record in found}
        plans = {one: partial(self._plan_without, one, runs) for one in sorted(threads)}
        for plan in plans.values():
            carry_out(self._store, plan, newest_too=True)
        if plans:
            self._store.gc()
            self._forget(plans)
        if busy := [thread_id for thread_id, plan in plans.items() if plan()[0]]:
            raise CheckpointBusy(
                f"checkpoints of these runs are still in the threads {', '.join(map(repr, busy))}: others "
                f"work on them, or one is being restored. Erase the runs again when that has ended"
            )

    def _forget(self, thread_ids: Iterable[str]) -> None:
        """Let nothing that was erased stay in the memory of this process."""
        for thread_id in thread_ids:
            self._recorders.forget_thread(thread_id)
            self._reader.prototypes.forget_thread(thread_id)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its namespaces and writes into a new one; contents are shared.

        Raises `SessionNotFound` without a source, `SessionExists` for a taken target, and
        `ForeignSession` where the source is another agent's session.
        """
        draft = thread_session(self._store.tenant, LANGGRAPH, thread_of(target_thread_id))
        source = thread_of(source_thread_id)
        self._refuse_foreign([source], "Nothing was copied: no graph could go on with it")
        self._store.copy_session(source, draft)

    def prune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
    ) -> None:
        """Remove old checkpoints of threads, with their writes.

        ``keep_latest`` keeps the newest one of each namespace, ``keep_last=N`` the newest N, both also
        the newest that is not in quarantine, and ``delete`` none. What is kept keeps all that it needs:
        its pending writes, interrupts among them, and the ancestors that its delta channels are computed
        from. Raises `ForeignSession`, and removes nothing, where one of them is another agent's session.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidFilter(f"strategy must be keep_latest or delete: {strategy!r}")
        if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
            raise InvalidFilter(f"keep_last must be a whole number above 0: {keep_last!r}")
        threads = [thread_of(thread_id) for thread_id in _listed(thread_ids, "thread_ids")]
        self._refuse_foreign(threads)
        if strategy == "delete":
            for thread_id in threads:
                self.delete_thread(thread_id)
            return
        plans = [partial(self._plan_newest, thread_id, keep_last or 1) for thread_id in threads]
        if sum([carry_out(self._store, plan) for plan in plans]):
            self._store.gc()
            self._forget(threads)

    def _plan_newest(self, thread_id: str, count: int) -> tuple[Sequence[str], Sequence[str]]:
        """Return the ids of what goes of a thread, and of what stays: the newest of each namespace."""
        query = CheckpointQuery(session_id=thread_id, agent_prefix=self._agents)
        records = self._store.list_checkpoints(query)
        damaged = self._store.list_checkpoints(replace(query, quarantined=True))
        return pruning.plan(records, keep=pruning.newest_of_each(records, count, damaged))

    def _plan_without(
        self, thread_id: str, runs: Collection[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return the ids of what goes of a thread, which is that of runs, and of what stays."""
        query = CheckpointQuery(session_id=thread_id, agent_prefix=self._agents)
        records = self._store.list_checkpoints(query)
        return pruning.plan(records, keep=[one for one in records if one.run_id not in runs])

    def _refuse_foreign(self, thread_ids: Iterable[str], *advice: str) -> None:
        for thread_id in thread_ids:
            found = self._store.find_session(thread_id)
            if found is not None and not found.agent_id.startswith(self._agents):
                raise foreign_session(thread_id, found.agent_type, *advice)

    # LangGraph's other wishes --------------------------------------------------------------------

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version after ``current``: a number, or a text where a thread began with texts."""
        if current is None:
            return 1
        if isinstance(current, int) or (isinstance(current, float) and math.isfinite(current)):
            return int(current) + 1
        found = _VERSION.fullmatch(current) if isinstance(current, str) else None
        if found is None:
            raise InvalidIdentifier(f"{current!r:.80} is no version of a channel")
        digits = found[1]
        return f"{int(digits) + 1:0{len(digits)}}{found[2] or ''}"

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return this saver: it is strict already, and its classes are those of ``types``."""
        return self

    def close(self) -> None:
        """Close the store if this saver opened it; closing twice is fine."""
        if self._owns_store:
            self._store.close()


def _listed(ids: Iterable[Any], what: str) -> Iterable[Any]:
    """Return ids, of which there is a list: the letters of a single one would be taken for ids."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise InvalidIdentifier(f"{what} must be a list of ids: {ids!r:.80}")
    return ids


def _check_dict(value: object, thread_id: str, what: str) -> None:
    if not isinstance(value, (dict, Mapping)):
        raise StateNotSerializable(
            f"thread {thread_id!r}, {what}", f"a dict is needed, not {type(value).__name__}"
        )


def _placed(
    error: StateNotSerializable, thread_id: str, channel: str | None = None
) -> StateNotSerializable:
    """Return the error with the thread, and the channel where the path does not begin with it."""
    where = f"thread {thread_id!r}, " + (f"channel {channel!r}, " if channel is not None else "")
    return StateNotSerializable(where + error.path, error.reason)
