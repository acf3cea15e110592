"""How the PostgreSQL store reaches its server: URL, pool, repetition, migrations.

A statement runs on a connection of the pool, ours (`postgres_pool`) or one that was handed in. Deadlocks are
repeated, since PostgreSQL has undone the whole statement by then; a statement whose connection died
is repeated once, but only when its caller says that doing it twice is the same as doing it once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import SystemRandom
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from holdfast.errors import (
    InvalidConfiguration,
    InvalidUrl,
    MissingExtra,
    StateCorrupt,
    StoreClosed,
)
from holdfast.locks import new_lock
from holdfast.sql import migrations, queries

try:
    import psycopg
    import psycopg_pool  # noqa: F401, the extra has both
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.rows import tuple_row
except ImportError:
    raise MissingExtra("postgres", "A PostgreSQL store") from None

from holdfast.stores.migrate import pending, require_current
from holdfast.stores.postgres_errors import RETRYABLE, is_connection_lost, translate
from holdfast.stores.postgres_pool import AnyConnection, Connections, Pool
from holdfast.stores.postgres_prepared import Prepared
from holdfast.stores.postgres_statements import Statement

T = TypeVar("T")

WAIT_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10
_CHANCE: Final = SystemRandom()
_ATTEMPTS: Final = 5
_SECRET: Final = frozenset({"password", "sslpassword", "oauth_client_secret"})


@dataclass(frozen=True, slots=True)
class Target:
    """What a store URL says: where libpq connects, our own parameters, and a form for people."""

    conninfo: str
    schema: str | None
    tenant: str | None
    shown: str


def parse_url(url: str) -> Target:
    """Take ``schema`` and ``tenant`` out of a URL; the rest is libpq's. Raises `InvalidUrl`.

    What cannot be understood is not repeated in the message: anything in it may be the password.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("postgresql", "postgres"):
        raise InvalidUrl("not a PostgreSQL URL: it must begin with postgresql://")
    # As libpq reads it: the user ends at the first @, if that comes before any slash.
    user, at, place = rest.partition("@")
    if not at or "/" in user:
        user, at, place = "", "", rest
    place, _, query = place.partition("?")
    if "@" in place:
        raise InvalidUrl("a user or password with @ or / in it must have them as %40 and %2F")
    ours: dict[str, str] = {}
    theirs, public = [], []
    for item in filter(None, query.split("&")):
        name, _, value = item.partition("=")
        if name in ("schema", "tenant"):
            ours[name] = unquote(value)
            continue
        theirs.append(item)
        if unquote(name) not in _SECRET and "@" not in item:
            public.append(item)
    tail = f"?{'&'.join(theirs)}" if theirs else ""
    public += [f"{name}={value}" for name, value in ours.items()]
    name = user.partition(":")[0]
    target = Target(
        conninfo=f"postgresql://{user}{at}{place}{tail}",
        schema=ours.get("schema"),
        tenant=ours.get("tenant"),
        shown=f"postgresql://{name}{at}{place}" + (f"?{'&'.join(public)}" if public else ""),
    )
    try:
        said = conninfo_to_dict(target.conninfo)
    except psycopg.ProgrammingError:
        # The driver's message repeats the URL, password and all.
        raise InvalidUrl("libpq does not understand this PostgreSQL URL") from None
    for port in str(said.get("port") or "").split(","):
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            # What stands where a port should be may be a password without its user.
            raise InvalidUrl("the port of a PostgreSQL URL must be a number from 1 to 65535")
    return target


class Link:
    """A pool of connections to one schema, and the only way that statements take."""

    def __init__(self, conninfo: str, schema: str, shown: str, pool: Pool | None) -> None:
        self.schema = schema
        self.shown = shown
        self._options: dict[str, Any] = {
            "autocommit": True,
            "client_encoding": "utf8",
            "fallback_application_name": "holdfast",
            # What is sent twice is likely to be sent again.
            "prepare_threshold": 1,
        }
        if "connect_timeout" not in (conninfo_to_dict(conninfo) if pool is None else {}):
            self._options["connect_timeout"] = CONNECT_SECONDS
        self._conninfo = conninfo
        self.owned = pool is None
        self._given = pool
        self._own: Connections | None = None
        self._parents: list[Connections] = []
        self._lock = new_lock(reset=self._leave_to_parent)
        self._closed = False

    def close(self) -> None:
        """Close the pool if it is ours; what is under way may finish."""
        with self._lock:
            self._closed = True
            own, self._own = self._own, None
        if own is not None:
            own.close()

    def _leave_to_parent(self) -> None:
        """In a forked child: leave the connections alone, which are the parent's.

        They are kept unused, since collecting them would speak on them.
        """
        if self._own is not None:
            self._parents.append(self._own)
            self._own = None

    def rows(self, statement: Statement, *, again: bool = False) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own and return its rows.

        ``again`` says that the statement may be sent a second time when the reply was lost.
        """

        def run(connection: AnyConnection) -> list[tuple[Any, ...]]:
            return execute(connection, statement)

        return self.run(run, again=again)

    def prepared_rows(
        self, prepared: Prepared, statement: Statement, *, again: bool = False
    ) -> list[tuple[Any, ...]]:
        """Do the same with one that is sent often; on connections that are not ours, as `rows` does."""
        if not self.owned:
            return self.rows(statement, again=again)
        return self.run(partial(prepared.rows, params=statement.params), again=again)

    def run(self, work: Callable[[AnyConnection], T], *, again: bool = False) -> T:
        """Run ``work`` on a connection, repeat it as its errors allow, and translate them."""
        lost = 0
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._run_once(work)
            except psycopg.Error as error:
                if is_connection_lost(error) and again and not lost:
                    lost += 1
                    if self._own is not None:
                        self._own.doubt()
                elif error.sqlstate not in RETRYABLE or attempt == _ATTEMPTS:
                    raise translate(error, self.shown) from error
                else:
                    # At random, or two that stood in each other's way would do so again.
                    time.sleep(_CHANCE.uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")  # pragma: no cover

    def _run_once(self, work: Callable[[AnyConnection], T]) -> T:
        pool = self._own or self._pool()
        connection = pool.getconn(timeout=WAIT_SECONDS)
        try:
            if self.owned or connection.autocommit:
                # Each statement is a transaction, so there is none to end; asking costs time.
                return work(connection)
            with connection:
                return work(connection)
        finally:
            pool.putconn(connection)

    def _pool(self) -> Pool:
        with self._lock:
            if self._closed:
                raise StoreClosed(f"{self.shown}: the store is closed")
            if self._given is not None:
                return self._given
            if self._own is None:
                self._own = Connections(self._connect_for_pool)
            return self._own

    def _connect_for_pool(self) -> AnyConnection:
        connection = self.connect()
        try:
            execute(connection, Statement(queries("postgres", self.schema)["postgres.check"], {}))
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise translate(error, self.shown) from error
            raise
        return connection

    def connect(self) -> AnyConnection:
        """Open one connection outside the pool, whose failure is known at once."""
        try:
            connection = psycopg.connect(self._conninfo, **self._options)
        except psycopg.Error as error:
            raise translate(error, self.shown) from error
        return connection


def execute(connection: AnyConnection, statement: Statement) -> list[tuple[Any, ...]]:
    """Send one statement and return its rows, whatever row factory the connection has."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement.sql, statement.params or None, binary=True)
        # Asking for the description would build an object for every column of every answer.
        answered = cursor.pgresult is not None and cursor.pgresult.nfields > 0
        try:
            return cursor.fetchall() if answered else []
        except (psycopg.DataError, ValueError) as error:
            # Not what was asked is wrong, but what is stored.
            raise StateCorrupt(
                f"a value in the database cannot be understood ({error}). Nothing was changed"
            ) from error


def migrate_schema(link: Link) -> None:
    """Create the schema if it is missing and apply what it lacks.

    Any number of processes may do this at once: each migration is one transaction that begins by
    taking a lock and looking again at what was applied.
    """
    available = migrations("postgres", link.schema)
    named = queries("postgres", link.schema)

    def work(connection: AnyConnection) -> None:
        while missing := pending(available, _applied(connection, named), link.shown):
            with connection.transaction():
                execute(connection, Statement(named["postgres.migrations.lock"], {}))
                _create_schema(connection, named)
                missing = pending(available, _applied(connection, named), link.shown)
                if missing:
                    connection.execute(missing[0].up)
                    record = {"version": missing[0].version, "checksum": missing[0].checksum}
                    connection.execute(named["migrations.insert"], record)

    _once(link, work)


def check_schema(link: Link) -> None:
    """Raise unless the schema is there and is the one that this package knows."""
    available = migrations("postgres", link.schema)
    named = queries("postgres", link.schema)

    def work(connection: AnyConnection) -> None:
        require_current(available, _applied(connection, named), link.shown)

    _once(link, work)


def _once(link: Link, work: Callable[[AnyConnection], None]) -> None:
    """Run ``work`` on a connection whose errors name the reason, before there is a pool."""
    if not link.owned:
        link.run(work, again=True)
        return
    with link.connect() as connection:
        try:
            work(connection)
        except psycopg.Error as error:
            raise translate(error, link.shown) from error


def _applied(connection: AnyConnection, named: Mapping[str, str]) -> dict[int, str]:
    [(exists, encoding)] = execute(connection, Statement(named["postgres.migrations.exists"], {}))
    if encoding != "UTF8":
        raise InvalidConfiguration(f"the database has the encoding {encoding}; Holdfast needs UTF8")
    return dict(execute(connection, Statement(named["migrations.list"], {}))) if exists else {}


def _create_schema(connection: AnyConnection, named: Mapping[str, str]) -> None:
    # IF NOT EXISTS asks for the right to create schemas even where there is nothing to create.
    [(exists,)] = execute(connection, Statement(named["postgres.schema.exists"], {}))
    if not exists:
        connection.execute(named["postgres.schema.create"])
