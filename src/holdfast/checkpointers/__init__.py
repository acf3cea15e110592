"""Checkpointers: four async methods that keep an agent's snapshots by thread.

    checkpointer = SQLiteCheckpointer("agent.db")
    checkpoint_id = await checkpointer.put("support-42", {"version": 1, "messages": []})
    await checkpointer.get("support-42")                 # the latest, or None
    await checkpointer.list("support-42", limit=10)      # newest first, without the snapshots
    await checkpointer.delete("support-42")

`PostgresCheckpointer` sends exactly one statement for each of them through a pool, a connection or any
object with ``query(sql, params)`` that you give it; importing this package imports no driver.
"""

from holdfast.checkpointers.backed import (
    MemoryCheckpointer,
    SQLiteCheckpointer,
    StoreCheckpointer,
)
from holdfast.checkpointers.base import BaseCheckpointer, SnapshotInfo
from holdfast.checkpointers.postgres import PostgresCheckpointer
from holdfast.checkpointers.queryable import PgQueryable
from holdfast.checkpointers.schema import ensure_checkpoints_schema, schema_sql

__all__ = [
    "BaseCheckpointer",
    "MemoryCheckpointer",
    "PgQueryable",
    "PostgresCheckpointer",
    "SQLiteCheckpointer",
    "SnapshotInfo",
    "StoreCheckpointer",
    "ensure_checkpoints_schema",
    "schema_sql",
]
