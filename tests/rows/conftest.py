"""The two databases as a requirement sees them: through the library, and through plain SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import apsw
import psycopg
import pytest

from holdfast import SessionManager
from tests.stores.postgres_drafts import connect, schema_of

AGENT = "01900000-0000-7000-8000-00000000000a"
STRANGER = "01900000-0000-7000-8000-00000000ffff"


@dataclass
class Database:
    """A store that was just created, and a connection beside it, as a stranger's tool has one."""

    kind: str
    url: str
    connection: Any = field(repr=False)

    @property
    def schema(self) -> str:
        """The schema that the tables are in; PostgreSQL only."""
        return schema_of(self.url)

    def open(self, **options: Any) -> SessionManager:
        return SessionManager.open(self.url, **({"workspace": False} | options))

    def sql(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement; a value stands where a question mark is."""
        if self.kind == "postgres":
            query = query.replace("?", "%s")
            cursor = self.connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []
        return [tuple(row) for row in self.connection.execute(query, values or None)]

    def value(self, query: str, *values: object) -> Any:
        ((found,),) = self.sql(query, *values)
        return found

    def refuses(self) -> Any:
        """What a statement that the database itself turns down raises."""
        # A NULL and a value that breaks a rule are integrity errors, a value that is no UUID or no
        # JSON at all never reaches a rule in PostgreSQL.
        return pytest.raises((apsw.ConstraintError, psycopg.IntegrityError, psycopg.DataError))

    def add_owner(self) -> str:
        """Insert an agent and the session ``s``, and return the agent's id."""
        self.sql("INSERT INTO agents (id, name, agent_type) VALUES (?, 'a', 't')", AGENT)
        self.sql("INSERT INTO sessions (id, agent_id, agent_type) VALUES ('s', ?, 't')", AGENT)
        return AGENT

    def add_checkpoint(self, **values: object) -> None:
        """Insert a checkpoint with the least that it needs, and with these values."""
        number = self.value("SELECT count(*) FROM session_checkpoints") + 1
        row: dict[str, object] = {
            "session_id": "s",
            "agent_id": AGENT,
            "seq": number,
            "name": f"n{number}",
            "state_snapshot": "{}",
        }
        if self.kind == "postgres":
            row["manifest"] = "{}"
        self.insert("session_checkpoints", **(row | values))

    def insert(self, table: str, **values: object) -> None:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        self.sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", *values.values())

    def fail_on(self, event: str, table: str) -> None:
        """Let every such event on a table fail from now on, as a full disk might."""
        if self.kind == "postgres":
            self.sql(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE disk_full USING MESSAGE = 'no space'; END $$"
            )
            self.sql(
                f"CREATE TRIGGER refused AFTER {event} ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
        else:
            self.sql(
                f"CREATE TRIGGER refused AFTER {event} ON {table} "
                "BEGIN SELECT raise(ABORT, 'no space'); END"
            )

    def recover(self, table: str) -> None:
        """Let the events succeed again."""
        self.sql(
            f"DROP TRIGGER refused ON {table}"
            if self.kind == "postgres"
            else "DROP TRIGGER refused"
        )


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "postgres":
        url = cast("str", request.getfixturevalue("postgres_url"))
        SessionManager.open(url, workspace=False).close()
        with connect(url) as connection:
            yield Database("postgres", url, connection)
        return
    path = tmp_path / "store" / "sessions.db"
    SessionManager.open(path, workspace=False).close()
    beside = apsw.Connection(str(path))
    beside.pragma("foreign_keys", True)
    beside.set_busy_timeout(10_000)
    yield Database("sqlite", str(path), beside)
    beside.close()
