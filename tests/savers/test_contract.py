"""Every saver keeps the contract: ours on all backends, their async twins, and a stranger's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from inspect import isasyncgenfunction, iscoroutinefunction, signature
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BaseCheckpointSaver,
    CheckpointConfig,
    CheckpointTuple,
    MemoryCheckpointSaver,
    PostgresCheckpointSaver,
    SQLiteCheckpointSaver,
)
from holdfast.errors import (
    CheckpointNotFound,
    InvalidFilter,
    InvalidIdentifier,
    StateNotSerializable,
)
from holdfast.ids import new_id
from holdfast.model import utc_now
from holdfast.savers import CheckpointMetadata, StoreCheckpointSaver, ThreadInfo, open_saver
from holdfast.state.codec import dump
from holdfast.stores import open_store
from holdfast.testing.savers import SaverContract


@pytest.mark.row("S2-05", "S2-11", "S2-12", "S2-14", "S2-02")
class TestMemoryCheckpointSaver(SaverContract):
    @pytest.fixture
    def saver(self) -> Iterator[BaseCheckpointSaver]:
        with MemoryCheckpointSaver() as saver:
            yield saver


@pytest.mark.row("S2-06", "S2-11", "S2-12", "S2-14", "S2-02")
class TestSQLiteCheckpointSaver(SaverContract):
    @pytest.fixture
    def saver(self, tmp_path: Path) -> Iterator[BaseCheckpointSaver]:
        with SQLiteCheckpointSaver(tmp_path / "checkpoints.db") as saver:
            yield saver


@pytest.mark.row("S2-24", "S2-11", "S2-12", "S2-14", "S2-02")
class TestPostgresCheckpointSaver(SaverContract):
    @pytest.fixture
    def saver(self, postgres_url: str) -> Iterator[BaseCheckpointSaver]:
        with PostgresCheckpointSaver(postgres_url) as saver:
            yield saver


class TestSaverOverTheMemoryStore(SaverContract):
    @pytest.fixture
    def saver(self) -> Iterator[BaseCheckpointSaver]:
        with StoreCheckpointSaver(open_store("memory:")) as saver:
            yield saver


class Blocking(BaseCheckpointSaver):
    """Presents the async twins as if they were the methods, so that the same suite runs through."""

    def __init__(self, inner: BaseCheckpointSaver) -> None:
        self.inner = inner

    def put(
        self,
        config: CheckpointConfig,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointConfig:
        return asyncio.run(self.inner.aput(config, checkpoint, metadata))

    def put_writes(
        self,
        config: CheckpointConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        asyncio.run(self.inner.aput_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: CheckpointConfig) -> CheckpointTuple | None:
        return asyncio.run(self.inner.aget_tuple(config))

    def list(self, config: CheckpointConfig | None, **narrowed: Any) -> Iterator[CheckpointTuple]:
        async def collected() -> Any:
            return [found async for found in self.inner.alist(config, **narrowed)]

        return iter(asyncio.run(collected()))

    def delete_thread(self, thread_id: str) -> None:
        asyncio.run(self.inner.adelete_thread(thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        asyncio.run(self.inner.acopy_thread(source_thread_id, target_thread_id))

    def list_threads(self) -> Sequence[ThreadInfo]:
        return asyncio.run(self.inner.alist_threads())


@pytest.mark.row("S2-23")
class TestAsyncTwins(SaverContract):
    @pytest.fixture
    def saver(self, tmp_path: Path) -> Iterator[BaseCheckpointSaver]:
        with SQLiteCheckpointSaver(tmp_path / "checkpoints.db") as inner:
            yield Blocking(inner)

    @pytest.mark.parametrize(
        "name",
        ["put", "put_writes", "get", "get_tuple", "list", "list_summaries",
         "delete_thread", "copy_thread", "list_threads"],
    )  # fmt: skip
    def test_a_twin_has_the_same_signature(self, name: str) -> None:
        method = getattr(BaseCheckpointSaver, name)
        twin = getattr(BaseCheckpointSaver, f"a{name}")
        assert iscoroutinefunction(twin) or isasyncgenfunction(twin)
        assert signature(method).parameters == signature(twin).parameters


class DictSaver(BaseCheckpointSaver):
    """What a user of the interface might write: the required methods and nothing else."""

    def __init__(self) -> None:
        self.found: list[tuple[CheckpointTuple, bytes]] = []
        self.writes: dict[tuple[str, str], list[tuple[str, int, str, Any]]] = {}

    def put(
        self,
        config: CheckpointConfig,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointConfig:
        if not isinstance(checkpoint, Mapping):
            raise StateNotSerializable("$", "not a dict")
        text, _ = dump(checkpoint, "$")
        dump(metadata or {}, "metadata")
        saved = CheckpointConfig(config.thread_id, new_id(), config.namespace)
        latest = self.get_tuple(
            config
            if config.checkpoint_id
            else CheckpointConfig(config.thread_id, None, config.namespace)
        )
        parent = latest.config if latest else None
        kept = CheckpointMetadata(deepcopy(dict(metadata or {})))
        kept.created_at = utc_now()
        self.found.append(
            (CheckpointTuple(saved, deepcopy(dict(checkpoint)), kept, parent, []), text)
        )
        return saved

    def put_writes(
        self,
        config: CheckpointConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        if config.checkpoint_id is None:
            raise InvalidIdentifier("no checkpoint")
        stored = self.writes.setdefault((config.thread_id, config.checkpoint_id), [])
        taken = {(task, at) for task, at, _, _ in stored}
        for at, (channel, value) in enumerate(writes):
            if (task_id, at) not in taken:
                stored.append((task_id, at, channel, value))

    def get_tuple(self, config: CheckpointConfig) -> CheckpointTuple | None:
        return next(self.list(config, limit=1), None)

    def list(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        if limit is not None and limit < 0:
            raise InvalidFilter("negative")
        if any(isinstance(value, (dict, set, tuple)) for value in (filter or {}).values()):
            raise InvalidFilter("not a scalar")
        known = [found.config for found, _ in self.found]
        if before is not None and before not in known:
            raise CheckpointNotFound("unknown")
        rest = self.found[: known.index(before)] if before is not None else self.found
        fitting = [found for found, _ in reversed(rest) if _fits(found, config, filter or {})]
        for found in fitting[:limit]:
            key = (found.config.thread_id, str(found.config.checkpoint_id))
            writes = sorted(self.writes.get(key, []), key=lambda write: write[:2])
            metadata = CheckpointMetadata(deepcopy(dict(found.metadata)))
            metadata.created_at = found.metadata.created_at
            yield CheckpointTuple(
                found.config,
                deepcopy(found.checkpoint),
                metadata,
                found.parent_config,
                [(task, channel, value) for task, _, channel, value in writes],
            )

    def delete_thread(self, thread_id: str) -> None:
        self.found = [pair for pair in self.found if pair[0].config.thread_id != thread_id]
        self.writes = {key: value for key, value in self.writes.items() if key[0] != thread_id}

    def list_threads(self) -> Sequence[ThreadInfo]:
        threads: dict[str, Any] = {}
        for found, text in self.found:
            threads.setdefault(found.config.thread_id, []).append((found, text))
        return [
            ThreadInfo(
                thread_id,
                len(pairs),
                sum(len(text) for _, text in pairs),
                0,
                pairs[-1][0].config.checkpoint_id,
            )
            for thread_id, pairs in threads.items()
        ]


def _fits(
    found: CheckpointTuple, config: CheckpointConfig | None, wanted: Mapping[str, Any]
) -> bool:
    if config is not None and (
        (found.config.thread_id, found.config.namespace) != (config.thread_id, config.namespace)
        or config.checkpoint_id not in (None, found.config.checkpoint_id)
    ):
        return False
    return all(
        key in found.metadata
        and found.metadata[key] == value
        and isinstance(found.metadata[key], bool) is isinstance(value, bool)
        for key, value in wanted.items()
    )


@pytest.mark.row("S2-04")
class TestASaverOfTheUsers(SaverContract):
    @pytest.fixture
    def saver(self) -> BaseCheckpointSaver:
        return DictSaver()

    def test_the_interface_alone_cannot_be_used(self) -> None:
        with pytest.raises(TypeError, match="abstract"):
            BaseCheckpointSaver()  # type: ignore[abstract]


@pytest.mark.row("S2-24")
def test_a_url_chooses_the_backend(tmp_path: Path, postgres_url: str) -> None:
    for url, kind in [
        ("memory:", MemoryCheckpointSaver),
        (f"sqlite:///{tmp_path}/a.db", StoreCheckpointSaver),
        (postgres_url, StoreCheckpointSaver),
    ]:
        with open_saver(url) as saver:
            assert isinstance(saver, kind)
            config = saver.put(CheckpointConfig("t"), {"n": 1})
            assert saver.get(config) == {"n": 1}
