"""Databases of LangGraph's own checkpointers, read and never written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self
from urllib.parse import quote

from langgraph.checkpoint.serde.types import TASKS

from holdfast.errors import (
    InvalidUrl,
    MissingExtra,
    NotADatabase,
    StateCorrupt,
    StoreUnavailable,
)
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


def open_source(url: str | Path, values: PeerValues) -> AbstractContextManager[Source]:
    """Open the database of a SqliteSaver (a path) or a PostgresSaver (a URL)."""
    if isinstance(url, Path):
        return SqliteSource(url, values)
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
            # What somebody wrote into the file's schema calls nothing here.
            self._connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
            self._connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
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
        return {_text(thread_id): count for thread_id, count in self._all("langgraph.threads")}

    def ids(self, thread_id: str) -> list[tuple[str, str]]:
        """Return namespace and id of a thread's checkpoints, oldest first: ids grow with time."""
        return [(_text(one), _text(two)) for one, two in self._all("langgraph.ids", (thread_id,))]

    def _all(self, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
        import apsw

        try:
            return list(self._connection.execute(_SQLITE[name], values))
        except (apsw.Error, UnicodeDecodeError) as error:
            raise NotADatabase(
                f"{self._path} cannot be read as a database of LangGraph: {error}. It was not changed; "
                f"what was imported before stays"
            ) from error

    def read(self, thread_id: str, namespace: str, checkpoint_id: str) -> PeerCheckpoint:
        """Return one of them."""
        key = (thread_id, namespace, checkpoint_id)
        parent_id, kind, data, metadata = _only(self._all("langgraph.checkpoint", key), key)
        rows = self._all(self._writes, key)
        return PeerCheckpoint(
            namespace,
            checkpoint_id,
            None if parent_id is None else _text(parent_id),
            _named(self._values.read_checkpoint(kind, data, thread_id)),
            _named(self._values.read_metadata(metadata, thread_id) or {}),
            [_write(row, self._values, thread_id) for row in rows],
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
        return {_text(thread_id): count for thread_id, count in self._all("langgraph.threads")}

    def ids(self, thread_id: str) -> list[tuple[str, str]]:
        """Return namespace and id of a thread's checkpoints, oldest first: ids grow with time."""
        return [(_text(one), _text(two)) for one, two in self._all("langgraph.ids", (thread_id,))]

    def read(self, thread_id: str, namespace: str, checkpoint_id: str) -> PeerCheckpoint:
        """Return one of them, with the channels that stand in a table of their own."""
        key = (thread_id, namespace, checkpoint_id)
        parent_id, checkpoint, metadata = _only(self._all("langgraph.checkpoint", key), key)
        blobs = self._all("postgres.langgraph.channels", key)
        rows = self._all(self._writes, key)
        read = self._values.read
        checkpoint = _named(checkpoint)
        channels = dict(_named(checkpoint.get("channel_values") or {}))
        for channel, kind, data in blobs:
            if kind != "empty":
                channels[channel] = read(kind, data, thread_id, channel)
        checkpoint = {**checkpoint, "channel_values": channels}
        if _is_older(checkpoint) and (sends := self._sends(thread_id, namespace, parent_id)):
            channels[TASKS] = sends
            versions = _named(checkpoint.get("channel_versions") or {})
            checkpoint["channel_versions"] = {**versions, TASKS: _newest(versions)}
        return PeerCheckpoint(
            namespace,
            checkpoint_id,
            parent_id,
            checkpoint,
            _named(metadata or {}),
            [_write(row, self._values, thread_id) for row in rows],
        )

    def _sends(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> list[Any]:
        """Return what the tasks of a checkpoint sent, in the order in which it is worked off."""
        rows = self._all(self._writes, (thread_id, namespace, checkpoint_id))
        sends = [_write(row, self._values, thread_id) for row in rows if row[3] == TASKS]
        return [one.value for one in sorted(sends, key=attrgetter("task_path", "task_id", "idx"))]


# SQLite keeps whatever it is given in a column of any type, and JSONB any document.


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise StateCorrupt(f"the source has {value!r:.80} where an id or a name must stand")
    return value


def _named(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StateCorrupt(f"the source has {value!r:.80} where an object must stand")
    return value


def _only(rows: list[Any], key: tuple[str, ...]) -> Any:
    if len(rows) != 1:
        raise StateCorrupt(f"the source has {len(rows)} checkpoints where one must be: {key}")
    return rows[0]


def _is_older(checkpoint: dict[str, Any]) -> bool:
    """Tell whether the sends that led to it stand among its parent's writes only, and in no channel."""
    version = checkpoint.get("v")
    return isinstance(version, int) and version < 4


def _newest(versions: dict[str, Any]) -> Any:
    try:
        return max(versions.values(), default=1)
    except TypeError:
        raise StateCorrupt("the source has versions of channels that cannot be compared") from None


def _write(row: tuple[Any, ...], values: PeerValues, thread_id: str) -> PeerWrite:
    task, path, index, channel, kind, data = row
    if type(index) is not int:
        raise StateCorrupt(f"the source has a write at the place {index!r:.80}")
    value = values.read(kind, data, thread_id, _text(channel))
    return PeerWrite(_text(task), _text(path), index, channel, value)
