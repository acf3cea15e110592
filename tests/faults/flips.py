"""A database with a little of everything, and single bits of it that are turned.

What counts as *live* is decided by content: the values of every column that never changes once it is
written, as a plain walk through the tables reads them. A turned bit is live if that content is another one
afterwards, or cannot be read any more. Bits of free pages, of unused bytes, of indexes and of columns that change in the
course of things (when something was restored, leases, logs) are not: nothing that was saved depends on
them. What is loaded is looked at after every one of them all the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, EffectOutcome, NewEffect, Trim
from holdfast.state import StateEncoder
from holdfast.stores.base import Store
from holdfast.stores.compression import unpack
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_log import read_frames, read_header
from holdfast.testing.drafts import checkpoint, session, write
from holdfast.verification import verify_store

# Tables and those of their columns that never change.
LIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "session_checkpoints": (
        *("tenant", "id", "external_id", "session_id", "agent_id", "namespace", "seq", "parent_id"),
        *(
            "name",
            "label",
            "description",
            "checkpoint_type",
            "retention_class",
            "run_id",
            "version",
        ),
        *("size_bytes", "stored_bytes", "chain_number", "chain_previous", "chain_hash"),
        *("git_branch", "git_commit", "git_uncommitted", "workspace_commit", "resumable"),
        *("expires_at", "metadata", "created_at", "state_snapshot", "refs"),
    ),
    "chunks": ("tenant", "digest", "codec", "data"),
    "chain_tombstones": (*("tenant", "session_id", "first_number", "last_number", "chain_hash"),),
    "sessions": ("tenant", "id", "chain_length", "chain_head"),
    # Without the tenant: for the one that had it, such a row is gone, and one that is gone as a whole
    # leaves nothing behind that could tell.
    "checkpoint_writes": (
        *("session_id", "namespace", "external_id", "task_id", "idx", "task_path", "channel"),
        *("manifest", "refs", "row_sum"),
    ),
    "effects": (
        *("session_id", "key", "occurrence", "name", "fingerprint", "status", "attempt_id"),
        *("attempts", "result", "refs", "error", "begun_sum", "outcome_sum"),
    ),
}


def fill(
    store: Store, randomness: random.Random, *, sweep: bool = True
) -> dict[str, dict[str, Any]]:
    """Store sessions of every shape; return the states by checkpoint. A sweep empties the log too."""
    saved: dict[str, dict[str, Any]] = {}
    for number in range(3):
        owner = store.create_session(session())
        encoder = StateEncoder()
        messages: list[str] = []
        for step in range(8):
            messages.append(randomness.randbytes(300).hex())
            state = {"session": number, "step": step, "messages": list(messages)}
            encoded = encoder.encode(state)
            draft = checkpoint(
                owner.id,
                f"step {step}",
                manifest=encoded.manifest,
                refs=encoded.refs,
                chunks=encoded.chunks,
                expects=encoded.expects,
                external_id=f"e{step}",
                parent_id=new_id(),
                label=f"checkpoint-20260101-00000{step}",
                description="what was done so far",
                run_id="run",
                git_branch="main",
                git_commit="c" * 40,
                workspace_commit="a" * 40,
                metadata={"step": step, "cost": 1.25},
                trim=Trim(keep=5 if number == 0 else None),
            )
            result = store.put(draft)
            saved[result.record.id] = state
            for removed in result.removed:
                del saved[removed]
        value = StateEncoder().encode({"value": {"answer": number}})
        store.put_writes(
            session(id=owner.id, agent_id=owner.agent_id),
            *("space", "e7", [write(manifest=value.manifest, refs=value.refs, task_path="path")]),
        )
        done = EffectOutcome("done", manifest=value.manifest, refs=value.refs)
        failed = EffectOutcome("failed", error={"type": "ValueError", "message": "no"})
        first = new_id()
        for occurrence, outcome in enumerate([done, failed, EffectOutcome("started")]):
            attempt = NewEffect(owner.id, "key", occurrence, "step", b"f", first, outcome=outcome)
            store.begin_effect(attempt)
            store.begin_effect(replace(attempt, attempt_id=new_id(), instead_of=first))
    if sweep:
        # A chunk that nothing needs would be no loss.
        store.gc()
    return saved


def content(path: Path) -> list[Any] | None:
    """Return what is live in a file, read past its indexes; None when it cannot be read."""
    connection = apsw.Connection(
        f"file:{path}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        connection.pragma("cell_size_check", True)
        found = {
            table: connection.execute(
                f"SELECT {_as_stored(columns)} FROM {table} NOT INDEXED"
            ).fetchall()
            for table, columns in LIVE.items()
        }
        # Of compressed bytes some bits say nothing; what counts is what comes out.
        chunks: list[Any] = connection.execute(
            "SELECT tenant, digest, codec, data FROM chunks NOT INDEXED"
        ).fetchall()
        found["chunks"] = [
            (tenant, digest, unpack(codec, data)) for tenant, digest, codec, data in chunks
        ]
        return list(found.values())
    except (apsw.Error, TypeError, UnicodeDecodeError):
        return None
    finally:
        connection.close()


def _as_stored(columns: tuple[str, ...]) -> str:
    return ", ".join(f"typeof({one}), CAST({one} AS BLOB)" for one in columns)


def turn_file_bit(path: Path, randomness: random.Random) -> None:
    """Turn one bit anywhere in a file."""
    at, bit = randomness.randrange(path.stat().st_size), randomness.randrange(8)
    with path.open("r+b") as file:
        file.seek(at)
        [value] = file.read(1)
        file.seek(at)
        file.write(bytes([value ^ 1 << bit]))


def turn_log_bit(log: Path, randomness: random.Random) -> None:
    """Turn one bit of a log, in a frame behind which there are two commits more."""
    with log.open("rb") as file:
        header = read_header(file)
        assert header is not None
        frames = list(read_frames(file, header.page_size))
    *_, last, _, _ = [number for number, frame in enumerate(frames, 1) if frame.pages]
    at = randomness.randrange(frames[0].at, frames[last].at)
    with log.open("r+b") as file:
        file.seek(at)
        [value] = file.read(1)
        file.seek(at)
        file.write(bytes([value ^ 1 << randomness.randrange(8)]))


def turn_column_bit(path: Path, randomness: random.Random) -> bool:
    """Turn one bit of one live value; false when the database does not take it."""
    connection = apsw.Connection(str(path))
    try:
        connection.pragma("ignore_check_constraints", True)
        connection.pragma("foreign_keys", False)
        table = randomness.choice(list(LIVE))
        column = randomness.choice(LIVE[table])
        key = "first_number" if table == "chain_tombstones" else "rowid"
        values: list[Any] = connection.execute(
            f"SELECT {key}, {column}, typeof({column}), CAST({column} AS BLOB) FROM {table}"
            f" WHERE length({column}) > 0 ORDER BY {key}"
        ).fetchall()
        if not values:
            return False
        row, old, kind, stored = randomness.choice(values)
        if kind == "integer":
            new: Any = old ^ 1 << randomness.randrange(16)
        else:
            turned = bytearray(stored)
            turned[randomness.randrange(len(turned))] ^= 1 << randomness.randrange(8)
            new = bytes(turned)
        place = "CAST(? AS TEXT)" if kind == "text" else "?"
        connection.execute(f"UPDATE {table} SET {column} = {place} WHERE {key} = ?", (new, row))
        return True
    except (apsw.Error, UnicodeDecodeError):
        return False
    finally:
        connection.close()


def wrong_loads(store: Store, saved: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the checkpoints of which something else is returned than was saved."""
    newest: list[str] = []
    with suppress(HoldfastError):
        newest = [one.id for one in store.list_checkpoints(CheckpointQuery(limit=5))]
    for checkpoint_id in [*saved, *newest]:
        try:
            loaded = store.load(checkpoint_id)
        except HoldfastError:
            continue
        if loaded is not None and loaded[1].state != saved.get(checkpoint_id):
            yield checkpoint_id


def is_detected(store: Store) -> bool:
    """Whether deep verification finds something."""
    try:
        return not verify_store(store, deep=True).ok
    except HoldfastError:
        return True


def drill(path: Path, saved: Mapping[str, Mapping[str, Any]]) -> tuple[bool, list[str]]:
    """Open what a turned bit has left; return whether it is detected, and what is loaded wrongly."""
    try:
        with SqliteStore(path) as store:
            return is_detected(store), list(wrong_loads(store, saved))
    except HoldfastError:
        return True, []


def turn_postgres_bit(connection: Any, randomness: random.Random) -> tuple[str, Any, Any] | None:
    """Turn one bit of one live value; return what puts it back, or None when it is not taken."""
    table = randomness.choice(list(LIVE))
    column = randomness.choice(LIVE[table])
    rows = connection.execute(
        f"SELECT ctid::text, pg_typeof({column})::text, {column}::text, {column} FROM {table}"
        f" WHERE {column} IS NOT NULL ORDER BY {column}::text"
    ).fetchall()
    rows = [row for row in rows if row[2] not in ("", "\\x")]
    if not rows:
        return None
    place, kind, text, value = randomness.choice(rows)
    if kind == "bytea":
        turned = bytearray(value)
        turned[randomness.randrange(len(turned))] ^= 1 << randomness.randrange(8)
        new: Any = bytes(turned)
    elif kind in ("bigint", "integer", "smallint"):
        new = value ^ 1 << randomness.randrange(14)
    else:
        characters = list(text)
        at = randomness.randrange(len(characters))
        characters[at] = chr(ord(characters[at]) ^ 1 << randomness.randrange(5))
        new = "".join(characters)
    answer = connection.execute(
        f"UPDATE {table} SET {column} = %s::{kind} WHERE ctid = %s::tid"
        f" AND {column} IS DISTINCT FROM %s::{kind} RETURNING ctid::text",
        [new, place, new],
    ).fetchone()
    if answer is None:
        return None
    back = f"UPDATE {table} SET {column} = %s::{kind} WHERE ctid = %s::tid"
    return back, value if kind == "bytea" else text, answer[0]
