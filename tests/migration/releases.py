"""Databases as released versions left them, kept as SQL text.

A file ``sqlite_vNNN.sql`` is never edited once a release has written such databases: it stands for
the users' own. To add one for a new schema: ``python -m tests.migration.releases``
"""

import sqlite3
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import apsw

from holdfast.sql import migrations
from holdfast.state.refs import digest_of
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_connection import APPLICATION_ID
from holdfast.testing.drafts import agent, checkpoint, index_of, session, write

HERE = Path(__file__).parent
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SESSION = "release"
AGENT = "01900000-0000-7000-8000-00000000000a"
FIRST = "01900000-0000-7000-8000-000000000001"
SECOND = "01900000-0000-7000-8000-000000000002"
LEAVES = [b"a large part of a state, said again and again. " * 20, b"short"]
MANIFEST = '{"conversation_history":[{"role":"user","content":"hello ü"}],"n":1.10}'


def fill(store: SqliteStore) -> None:
    """Store a little of everything."""
    owner = session(
        id=SESSION,
        agent_id=AGENT,
        agent=agent(id=AGENT, name="keeper"),
        task_description="Keep this readable",
        metadata={"team": "core", "n": 1},
    )
    data, refs = index_of(*LEAVES)
    store.put(
        checkpoint(
            SESSION,
            "first",
            id=FIRST,
            session=owner,
            contents=LEAVES,
            external_id="1ef-1",
            metadata={"step": 1},
            manifest=MANIFEST,
        )
    )
    store.put(
        checkpoint(
            SESSION,
            "second",
            id=SECOND,
            parent_id=FIRST,
            refs=refs,
            chunks={digest_of(data): data},
            expects=[digest_of(leaf) for leaf in LEAVES],
            git_branch="main",
            git_uncommitted=True,
            retention_class="failure",
            checkpoint_type="failure",
        )
    )
    store.put_writes(owner, "", "1ef-1", [write("task", 0, contents=[b"a pending value"])])
    store.append_log(SESSION, "warning", "careful", {"k": [1, 2]})


def dump(path: Path) -> str:
    """Return a database as SQL text."""
    connection = sqlite3.connect(path)
    try:
        lines = [f"PRAGMA application_id = {APPLICATION_ID};", *connection.iterdump()]
    finally:
        connection.close()
    return "\n".join(lines) + "\n"


def build(text: str, path: Path) -> None:
    """Make a database of SQL text."""
    connection = apsw.Connection(str(path))
    connection.execute(text)
    connection.close()


def write_release() -> Path:
    """Write the present schema with some data next to this module."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "sessions.db"
        with SqliteStore(path, now=lambda: MOMENT) as store:
            fill(store)
        target = HERE / f"sqlite_v{migrations('sqlite')[-1].version:03}.sql"
        target.write_text(dump(path), encoding="utf-8")
        return target


if __name__ == "__main__":
    print(write_release())
