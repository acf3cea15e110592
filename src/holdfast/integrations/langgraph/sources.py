"""Databases of LangGraph's own checkpointers, read and never written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self
from urllib.parse import quote

from holdfast.errors import InvalidUrl, MissingExtra, NotADatabase, StoreUnavailable
from holdfast.integrations.langgraph.peer_values import PeerValues
from holdfast.sql import queries

_SQLITE: Final = queries("sqlite")
_POSTGRES: Final = queries("postgres")


class PeerWrite(NamedTuple):
    """A pending write, with its place in the order."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any


class PeerCheckpoint(NamedTuple):
    """A checkpoint of the source with what was written at it."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[PeerWrite]


class Source(Protocol):
    """Where threads come from; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *args: Any) -> None: ...

    def threads(self) -> Mapping[str, int]:
        """Return the number of checkpoints of each thread."""

    def ids(self, thread_id: str) -> list[tuple[str, str]]:
        """Return namespace and id of a thread's checkpoints, oldest first."""

    def read(self, thread_id: str, namespace: str, checkpoint_id: str) -> PeerCheckpoint:
        """Return one of them."""


def open_source(url: str, values: PeerValues) -> AbstractContextManager[Source]:
    """Open the database of a SqliteSaver (a path) or a PostgresSaver (a URL)."""
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresSource(url, values)
    if "://" in url and not url.startswith("sqlite:///"):
        raise InvalidUrl(f"a database of LangGraph is a file or postgresql://…: {url}")
    return SqliteSource(Path(url.removeprefix("sqlite:///")), values)


class SqliteSource:
    """A file of SqliteSaver."""

    def __init__(self, path: Path, values: PeerValues) -> None:
        import apsw

        self._values = values
        self._path = path
        if not path.exists():
            raise StoreUnavailable(f"there is no file {path}; nothing was imported")
        try:
            self._connection = apsw.Connection(
                f"file:{quote(str(path))}?mode=ro",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
            self._connection.set_busy_timeout(10_000)
            # One view of it, whatever is written meanwhile.
            self._connection.execute("BEGIN")
            columns = {column for (column,) in self._all("langgraph.columns")}
        except apsw.Error as error:
            raise NotADatabase(f"{path} is no SQLite database: {error}") from error
        if "checkpoint_id" not in columns:
            raise NotADatabase(f"{path} has no checkpoints of LangGraph's SqliteSaver")
        self._writes = (
            "langgraph.writes" if "task_path" in columns else "langgraph.writes.without_path"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    def threads(self) -> Mapping[str, int]:
        """Return the number of checkpoints of each thread."""
        return dict(self._all("langgraph.threads"))

    def ids(self, thread_id: str) -> list[tuple[str, str]]:
        """Return namespace and id of a thread's checkpoints, oldest first: ids grow with time."""
        return self._all("langgraph.ids", (thread_id,))

    def _all(self, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return list(self._connection.execute(_SQLITE[name], values))

    def read(self, thread_id: str, namespace: str, checkpoint_id: str) -> PeerCheckpoint:
        """Return one of them."""
        key = (thread_id, namespace, checkpoint_id)
        ((parent_id, kind, data, metadata),) = self._all("langgraph.checkpoint", key)
        rows = self._all(self._writes, key)
        read = self._values.read
        return PeerCheckpoint(
            namespace,
            checkpoint_id,
            parent_id,
            read(kind, data, thread_id, "checkpoint"),
            read("json", metadata, thread_id, "metadata") or {},
            [
                PeerWrite(task, path, index, channel, read(kind, data, thread_id, channel))
                for task, path, index, channel, kind, data in rows
            ],
        )


class PostgresSource:
    """The tables of PostgresSaver."""

    def __init__(self, url: str, values: PeerValues) -> None:
        try:
            import psycopg
        except ModuleNotFoundError:
            raise MissingExtra("postgres", "Reading a PostgreSQL database") from None
        self._values = values
        try:
            self._connection = psycopg.connect(url)
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._connection.read_only = True
            columns = {column for (column,) in self._all("langgraph.columns")}
        except psycopg.Error as error:
            raise StoreUnavailable(f"{error}".strip() + "; nothing was imported") from error
        if "checkpoint_id" not in columns:
            self._connection.close()
            raise NotADatabase("the database has no checkpoints of LangGraph's PostgresSaver")
        self._writes = (
            "langgraph.writes" if "task_path" in columns else "langgraph.writes.without_path"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    def _all(self, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._connection.execute(_POSTGRES[name].encode(), values).fetchall()

    def threads(self) -> Mapping[str, int]:
        """Return the number of checkpoints of each thread."""
        return dict(self._all("langgraph.threads"))

    def ids(self, thread_id: str) -> list[tuple[str, str]]:
        """Return namespace and id of a thread's checkpoints, oldest first: ids grow with time."""
        return self._all("langgraph.ids", (thread_id,))

    def read(self, thread_id: str, namespace: str, checkpoint_id: str) -> PeerCheckpoint:
        """Return one of them, with the channels that stand in a table of their own."""
        key = (thread_id, namespace, checkpoint_id)
        ((parent_id, checkpoint, metadata),) = self._all("langgraph.checkpoint", key)
        blobs = self._all("postgres.langgraph.channels", key)
        rows = self._all(self._writes, key)
        read = self._values.read
        channels = dict(checkpoint.get("channel_values") or {})
        for channel, kind, data in blobs:
            if kind != "empty":
                channels[channel] = read(kind, data, thread_id, channel)
        return PeerCheckpoint(
            namespace,
            checkpoint_id,
            parent_id,
            {**checkpoint, "channel_values": channels},
            metadata or {},
            [
                PeerWrite(task, path, index, channel, read(kind, data, thread_id, channel))
                for task, path, index, channel, kind, data in rows
            ],
        )
