"""SQLite and plain Python give the same answers to the same calls, whatever the calls are."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    EffectOutcome,
    EffectQuery,
    NewAgent,
    NewCheckpoint,
    NewEffect,
    NewSession,
    NewWrite,
    PutResult,
    SessionQuery,
    SessionRecord,
    Trim,
)
from holdfast.state.refs import Ref, digest_of, pack_refs
from holdfast.stores import memory_sessions, sqlite_sessions
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore

START = datetime(2026, 1, 1, tzinfo=UTC)
AGENTS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(2)]
SESSIONS = ["one", "two"]
CONTENTS = [b"content %d " % number * 20 for number in range(5)]
INDEX = pack_refs(Ref(digest_of(data), 0, 0, len(data)) for data in CONTENTS[:2])

numbers = st.integers(0, 7)
moments = st.integers(-4, 4).map(lambda hours: START + timedelta(hours=hours))
scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 1.5, "", "1", "ü"])
documents = st.dictionaries(st.sampled_from(["a", "b"]), scalars, max_size=2)
namespaces = st.sampled_from(["", "sub"])
classes = st.sampled_from(["automatic", "manual", "failure"])

trims = st.builds(
    Trim,
    keep=st.none() | st.integers(0, 3),
    max_age=st.just({})
    | st.dictionaries(classes, st.integers(0, 5).map(lambda hours: timedelta(hours=hours))),
)


def session_draft(session_id: str, agent: int = 0, **changes: Any) -> NewSession:
    worker = NewAgent(AGENTS[agent], "worker", "implementer")
    return NewSession(session_id, worker.id, "implementer", agent=worker, **changes)


@st.composite
def puts(draw: st.DrawFn) -> NewCheckpoint:
    session_id = draw(st.sampled_from(SESSIONS))
    leaves = draw(st.lists(st.sampled_from(CONTENTS), max_size=2, unique=True))
    refs = [Ref(digest_of(data), 0, 0, len(data)) for data in leaves]
    chunks = {digest_of(data): data for data in leaves}
    if draw(st.booleans()):
        refs.append(Ref(digest_of(INDEX), 1, 0, sum(map(len, CONTENTS[:2]))))
        chunks |= {digest_of(data): data for data in (INDEX, *CONTENTS[:2])}
    left_out = draw(st.sets(st.sampled_from(sorted(chunks)))) if chunks else set()
    number = draw(numbers)
    return NewCheckpoint(
        id=f"{draw(st.integers(0, 40)):08x}-0000-7000-8000-000000000000",
        session_id=session_id,
        name=f"name {number}",
        manifest='{"a":1}',
        refs=pack_refs(refs),
        chunks={digest: data for digest, data in chunks.items() if digest not in left_out},
        expects=sorted(left_out),
        size_bytes=draw(st.integers(0, 1000)),
        retention_class=draw(classes),  # type: ignore[arg-type]
        namespace=draw(namespaces),
        external_id=draw(st.none() | numbers.map(lambda n: f"external {n}")),
        resumable=draw(st.booleans()),
        pinned=draw(st.integers(0, 5)) == 0,
        expires_at=draw(st.none() | st.none() | moments),
        metadata=draw(st.none() | documents),
        created_at=draw(st.none() | moments),
        replace=draw(st.booleans()),
        trim=draw(trims),
        session=session_draft(session_id) if draw(st.integers(0, 3)) else None,
    )


@st.composite
def writes(draw: st.DrawFn) -> NewWrite:
    leaves = draw(st.lists(st.sampled_from(CONTENTS), max_size=1))
    return NewWrite(
        task_id=draw(st.sampled_from(["a", "b"])),
        index=draw(st.integers(-1, 2)),
        channel="channel",
        manifest=draw(st.sampled_from(["1", "2"])),
        refs=pack_refs(Ref(digest_of(data), 0, 0, len(data)) for data in leaves),
        chunks={digest_of(data): data for data in leaves},
        expects=(),
        task_path=draw(st.sampled_from(["", "~"])),
        replace=draw(st.booleans()),
    )


@st.composite
def outcomes(draw: st.DrawFn) -> EffectOutcome:
    status = draw(st.sampled_from(["started", "done", "failed", "unknown"]))
    leaves = draw(st.lists(st.sampled_from(CONTENTS), max_size=1)) if status == "done" else []
    return EffectOutcome(
        status=status,  # type: ignore[arg-type]
        manifest='{"result":1}' if status == "done" else None,
        refs=pack_refs(Ref(digest_of(data), 0, 0, len(data)) for data in leaves),
        chunks={digest_of(data): data for data in leaves},
        error=draw(st.none() | documents),
    )


attempts = st.integers(0, 3).map(lambda number: f"{number:08x}-0000-4000-8000-00000000000a")

queries = st.builds(
    CheckpointQuery,
    session_id=st.none() | st.sampled_from(SESSIONS),
    namespace=st.none() | namespaces,
    name=st.none() | numbers.map(lambda number: f"name {number}"),
    retention_class=st.none() | classes,
    resumable=st.none() | st.booleans(),
    before_seq=st.none() | st.integers(0, 30),
    metadata=st.just({}) | documents,
    limit=st.none() | st.integers(-1, 5),
)

Operation = Callable[[Store], Any]


def call(name: str, *arguments: Any, **options: Any) -> Operation:
    def operation(store: Store) -> Any:
        return getattr(store, name)(*arguments, **options)

    operation.__qualname__ = f"{name}({arguments}, {options})"
    return operation


def forget_ids(answer: Any) -> Any:
    """Return an answer without what two stores are free to choose differently."""
    if isinstance(answer, CheckpointRecord):
        # How many bytes a chunk takes is a store's own business.
        return replace(answer, stored_bytes=0)
    if isinstance(answer, SessionRecord):
        return replace(answer, lease_token=0)
    if isinstance(answer, PutResult):
        return (forget_ids(answer.record), answer.created, answer.removed)
    if isinstance(answer, list):
        return [forget_ids(one) for one in answer]
    return answer


operations: st.SearchStrategy[Operation] = st.one_of(
    puts().map(lambda draft: call("put", draft)),
    puts().map(lambda draft: call("put", draft)),
    puts().map(lambda draft: call("put", draft)),
    queries.map(lambda query: call("list_checkpoints", query)),
    st.sampled_from(AGENTS).map(lambda id_: call("latest_of_agent", id_)),
    st.sampled_from(SESSIONS).map(lambda id_: call("create_session", session_draft(id_, 1))),
    st.sampled_from(SESSIONS).map(lambda id_: call("delete_session", id_)),
    st.sampled_from(SESSIONS).map(
        lambda id_: call("copy_session", id_, session_draft("copy", forked_from=id_))
    ),
    st.just(call("delete_session", "copy")),
    st.tuples(st.sampled_from(SESSIONS), st.sampled_from(["active", "paused", "failed"])).map(
        lambda pair: call("update_session", pair[0], status=pair[1], expected={"active", "failed"})
    ),
    documents.map(lambda wanted: call("list_sessions", SessionQuery(metadata=wanted))),
    st.tuples(st.sampled_from(SESSIONS), namespaces, numbers, st.lists(writes(), max_size=3)).map(
        lambda given: call(
            "put_writes", session_draft(given[0]), given[1], f"external {given[2]}", given[3]
        )
    ),
    st.tuples(st.sampled_from(SESSIONS), namespaces).map(
        lambda given: call("list_writes", *given, [f"external {number}" for number in range(8)])
    ),
    st.sampled_from(SESSIONS).map(lambda id_: call("append_log", id_, "info", "line", {"k": 1})),
    st.builds(
        NewEffect,
        session_id=st.sampled_from(SESSIONS),
        key=st.sampled_from(["a", "b"]),
        occurrence=st.integers(0, 1),
        name=st.just("name"),
        fingerprint=st.sampled_from([b"", b"digest"]),
        attempt_id=attempts,
        outcome=outcomes(),
        instead_of=st.none() | attempts,
    ).map(lambda draft: call("begin_effect", draft)),
    st.tuples(
        st.sampled_from(SESSIONS),
        st.sampled_from(["a", "b"]),
        st.integers(0, 1),
        attempts,
        outcomes(),
    ).map(lambda given: call("finish_effect", *given)),
    st.just(call("purge_expired")),
    st.booleans().map(lambda dry_run: call("gc", dry_run=dry_run)),
)


class Twin:
    """Two stores that share a clock and draw equal ids for copies."""

    def __init__(self, directory: str) -> None:
        self.moment = START
        self.count = 0
        self.memory = MemoryStore(now=self.now)
        self.sqlite = SqliteStore(Path(directory) / "sessions.db", now=self.now, compress=False)

    def now(self) -> datetime:
        return self.moment

    def ask(self, operation: Operation) -> tuple[Any, Any]:
        self.moment += timedelta(hours=1)
        self.count += 1
        return self.answer(self.memory, operation), self.answer(self.sqlite, operation)

    def answer(self, store: Store, operation: Operation) -> Any:
        drawn = iter(range(1000))

        def fixed() -> str:
            return f"cccccccc-0000-7000-{self.count:04x}-{next(drawn):012x}"

        modules: list[Any] = [memory_sessions, sqlite_sessions]
        saved = [module.new_id for module in modules]
        for module in modules:
            module.new_id = fixed
        try:
            return forget_ids(operation(store))
        except HoldfastError as error:
            return type(error)
        finally:
            for module, original in zip(modules, saved, strict=True):
                module.new_id = original


def everything(store: Store) -> list[Any]:
    sessions = [*SESSIONS, "copy"]
    external_ids = [f"external {number}" for number in range(8)]
    records = store.list_checkpoints(CheckpointQuery())
    return [
        store.list_agents(),
        forget_ids(store.list_sessions()),
        forget_ids(records),
        list(store.iter_checkpoint_ids()),
        [store.read_payload(record.id) for record in records],
        store.read_chunks([digest_of(data) for data in (*CONTENTS, INDEX)]),
        store.total_bytes(),
        [store.list_logs(id_) for id_ in sessions],
        [store.list_writes(id_, space, external_ids) for id_ in sessions for space in ("", "sub")],
        [store.list_effects(EffectQuery(id_)) for id_ in sessions],
        [forget_ids(store.latest_of_agent(id_)) for id_ in AGENTS],
        [replace(one, stored_bytes=0) for one in store.session_usage()],
        store.gc(dry_run=True),
    ]


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(operations, min_size=5, max_size=25))
def test_memory_and_sqlite_agree(chosen: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        twin = Twin(directory)
        try:
            for operation in chosen:
                expected, found = twin.ask(operation)
                assert found == expected, operation.__qualname__
            assert everything(twin.sqlite) == everything(twin.memory)
        finally:
            twin.sqlite.close()
