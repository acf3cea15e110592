"""From stored checkpoints to LangGraph's tuples: a question for each part, whatever their number.

One for the records, one for the manifests of all of them, one a level of references for their chunks,
one for their pending writes and one for the chunks of those. For a single checkpoint the first two are one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)

from holdfast.errors import DigestMismatch, IntegrityError, InvalidFilter, StateCorrupt
from holdfast.integrations.langgraph.places import Place, config_of
from holdfast.integrations.langgraph.prototypes import Content, Prototypes
from holdfast.integrations.langgraph.values import Values
from holdfast.model import CheckpointQuery, CheckpointRecord, Payload, WritePlace, WriteRecord
from holdfast.state import DecodedState, decode_state, decode_states
from holdfast.stores import Store

PAGE = 100
_SCALARS = frozenset({str, int, float, bool, type(None)})


class Reader:
    """Reads the threads of one store, which are sessions among others: those of agents whose ids begin so."""

    def __init__(self, store: Store, values: Values, agent_prefix: str) -> None:
        self._store = store
        self._agents = agent_prefix
        self._values = values
        self.prototypes = Prototypes(values)

    def find(self, place: Place) -> CheckpointRecord | None:
        """Return the record of a place, of the latest checkpoint if it names none, or None."""
        found = self._store.list_checkpoints(_query(place))
        return found[0] if found else None

    def pages(
        self,
        place: Place | None,
        *,
        filter: Mapping[str, Any] | None,  # noqa: A002, LangGraph's name
        before: CheckpointRecord | str | None,
        limit: int | None,
    ) -> Iterator[Sequence[CheckpointRecord]]:
        """Yield records, newest first, page by page; without a place those of all threads.

        ``before`` is a record, or the id of a checkpoint that was never stored, or no longer is: then
        ids are compared, which grow with time.
        """
        if filter is not None and not isinstance(filter, Mapping):
            raise InvalidFilter(f"a filter is a dict of metadata: {filter!r:.80}")
        wanted = dict(filter or {})
        plain = {key: value for key, value in wanted.items() if type(value) in _SCALARS}
        compared = {key: value for key, value in wanted.items() if key not in plain}
        position = before.seq if isinstance(before, CheckpointRecord) else None
        # Where records are looked through here, a page may hold few that are wanted.
        screened = bool(compared) or isinstance(before, str)
        remaining = limit
        while remaining is None or remaining > 0:
            size = PAGE if remaining is None or screened else min(PAGE, remaining)
            records = self._store.list_checkpoints(
                CheckpointQuery(
                    session_id=None if place is None else place.thread_id,
                    namespace=None if place is None else place.namespace,
                    external_id=None if place is None else place.checkpoint_id,
                    # Other sessions hold other things than checkpoints of graphs.
                    agent_prefix=self._agents if place is None else None,
                    metadata=plain,
                    before_seq=position,
                    limit=size,
                )
            )
            matching = [
                one for one in records if self._has(one, compared) and _comes_before(one, before)
            ]
            matching = matching[:remaining]
            if matching:
                yield matching
            if len(records) < size:
                return
            position = records[-1].seq
            remaining = None if remaining is None else remaining - len(matching)

    def _has(self, record: CheckpointRecord, compared: Mapping[str, Any]) -> bool:
        metadata = self.metadata(record) if compared else {}
        return all(metadata.get(key) == value for key, value in compared.items())

    def tuples(self, records: Sequence[CheckpointRecord]) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of records; those that were removed meanwhile are left out."""
        contents = self._contents(records)
        writes = self.writes(records)
        for record in records:
            content = contents.get(record.id)
            if content is not None:
                stored = _stored(record, content)
                yield self._tuple(record, stored, writes.get(_key(record), []))

    def read(self, place: Place) -> tuple[CheckpointTuple, Payload] | None:
        """Return the checkpoint of a place, the latest if it names none, and its payload, or None."""
        known = self.prototypes.get(place.line)
        try:
            loaded = self._store.load_newest_unless(
                None if known is None else known.payload, _query(place)
            )
        except IntegrityError as error:
            record = self.find(place)
            if record is None:
                raise
            raise _named(error, record) from error
        if loaded is None:
            return None
        record, payload, content = loaded
        writes = self.writes([record]).get(_key(record), [])
        if known is None or content is not None:
            stored = _stored(record, cast("DecodedState", content))
            known = self.prototypes.read(place.line, payload, stored, record.size_bytes)
        return self._tuple(record, known.content, writes), payload

    def _contents(self, records: Sequence[CheckpointRecord]) -> dict[str, DecodedState]:
        ids = [record.id for record in reversed(records)]
        try:
            return self._store.load_all(ids)
        except IntegrityError:
            found = {record.id: self._load(record) for record in records}
            return {id_: content for id_, content in found.items() if content is not None}

    def _load(self, record: CheckpointRecord) -> DecodedState | None:
        """Read one by itself, so that an error says which one it is."""
        try:
            loaded = self._store.load(record.id)
        except IntegrityError as error:
            raise _named(error, record) from error
        return None if loaded is None else loaded[1]

    def _tuple(
        self, record: CheckpointRecord, content: Content, writes: list[PendingWrite]
    ) -> CheckpointTuple:
        thread_id, namespace, parent = record.session_id, record.namespace, record.parent_id
        return CheckpointTuple(
            config=config_of(thread_id, namespace, record.external_id or record.id),
            checkpoint=cast("Checkpoint", self.prototypes.handed_out(content, thread_id)),
            metadata=self.metadata(record),
            parent_config=config_of(thread_id, namespace, parent) if parent else None,
            pending_writes=writes,
        )

    def metadata(self, record: CheckpointRecord) -> CheckpointMetadata:
        """Return the metadata of a checkpoint as it was put."""
        metadata = record.metadata or {}
        return cast(
            "CheckpointMetadata",
            {
                key: self._values.thawed(value, record.session_id, f"metadata {key}")
                for key, value in metadata.items()
            },
        )

    def writes(
        self, records: Sequence[CheckpointRecord], channels: Collection[str] | None = None
    ) -> dict[WritePlace, list[PendingWrite]]:
        """Return the pending writes at these checkpoints, of all channels or some, in their order."""
        found = [
            (place, write)
            for place, writes in self._store.read_writes([_key(one) for one in records]).items()
            for write in writes
            if channels is None or write.channel in channels
        ]
        result: dict[WritePlace, list[PendingWrite]] = {}
        for (key, write), value in zip(found, self._values_of(found), strict=True):
            thawed = self._values.thawed(value, key[0], write.channel)
            result.setdefault(key, []).append((write.task_id, write.channel, thawed))
        return result

    def _values_of(self, writes: Sequence[tuple[WritePlace, WriteRecord]]) -> Iterable[Any]:
        read_chunks, cache = self._store.read_chunks, self._store.cache
        try:
            payloads = [write.payload for _, write in writes]
            states = decode_states(payloads, read_chunks, cache=cache)
            return [state.state["value"] for state in states]
        except (IntegrityError, LookupError):
            pass
        values = []
        for (thread_id, namespace, checkpoint_id), write in writes:
            place = (
                f"thread {thread_id!r}, namespace {namespace!r}, checkpoint {checkpoint_id!r}, "
                f"write of task {write.task_id!r} to channel {write.channel!r}"
            )
            try:
                state = decode_state(write.payload, read_chunks, cache=cache).state
            except DigestMismatch as error:
                raise DigestMismatch(f"{place}: {error}") from error
            except IntegrityError as error:
                raise type(error)(f"{place}: {error}") from error
            if "value" not in state:
                raise StateCorrupt(f"{place}: what is stored is no write of a task")
            values.append(state["value"])
        return values

    def delta_history(
        self, place: Place, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        """Return the writes to channels on the way to a checkpoint, from their last whole value."""
        found: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        target = self.find(place)
        wanted = None if target is None else target.parent_id
        open_channels = set(channels)
        # A parent was stored before its child.
        for page in self.pages(
            Place(place.thread_id, place.namespace or "", None),
            filter=None,
            before=target,
            limit=None if target is not None else 0,
        ):
            chain = []
            for record in page:
                if record.external_id == wanted:
                    chain.append(record)
                    wanted = record.parent_id
            self._collect(chain, open_channels, found, seeds)
            if not open_channels or wanted is None:
                break
        history: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            history[channel] = {"writes": found[channel][::-1]}
            if channel in seeds:
                history[channel]["seed"] = seeds[channel]
        return history

    def _collect(
        self,
        chain: Sequence[CheckpointRecord],
        open_channels: set[str],
        found: dict[str, list[PendingWrite]],
        seeds: dict[str, Any],
    ) -> None:
        contents = self._contents(chain)
        writes = self.writes(chain, open_channels)
        for record in chain:
            for write in reversed(writes.get(_key(record), [])):
                if write[1] in open_channels:
                    found[write[1]].append(write)
            stored = contents[record.id].state["channel_values"] if record.id in contents else {}
            for channel in open_channels & stored.keys():
                seeds[channel] = self._values.thawed(stored[channel], record.session_id, channel)
                open_channels.discard(channel)
            if not open_channels:
                return


def _comes_before(record: CheckpointRecord, before: CheckpointRecord | str | None) -> bool:
    """Tell whether a listed checkpoint, which was stored earlier, is also the older one.

    A subgraph's checkpoint that was made while ``before`` was its parent graph's newest comes after
    that one, also where a background write of the parent graph was slower.
    """
    if isinstance(before, str):
        return (record.external_id or record.id) < before
    if before is None or before.namespace == record.namespace:
        return True
    parents = (record.metadata or {}).get("parents")
    return not isinstance(parents, dict) or parents.get(before.namespace) != before.external_id


def _query(place: Place) -> CheckpointQuery:
    return CheckpointQuery(
        session_id=place.thread_id,
        namespace=place.namespace or "",
        external_id=place.checkpoint_id,
        limit=1,
    )


def _stored(record: CheckpointRecord, content: DecodedState) -> Content:
    channels = content.state.get("channel_values")
    if type(channels) is not dict:
        raise StateCorrupt(f"{_shown(record)}: what is stored is no checkpoint of a graph")
    return Content(content.state, channels)


def _key(record: CheckpointRecord) -> WritePlace:
    return (record.session_id, record.namespace, record.external_id or record.id)


def _named(error: IntegrityError, record: CheckpointRecord) -> IntegrityError:
    """Return an error that says of which checkpoint it is."""
    named = type(error)(f"{_shown(record)}: {error}")
    named.last_good = error.last_good
    return named


def _shown(record: CheckpointRecord) -> str:
    return (
        f"thread {record.session_id!r}, namespace {record.namespace!r}, "
        f"checkpoint {record.external_id!r}"
    )
