"""A checkpointer needs no server to be tested, and no driver to be imported."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import PostgresCheckpointer, ensure_checkpoints_schema
from holdfast.checkpointers import PgQueryable
from holdfast.errors import InvalidConfiguration, MigrationChanged, SchemaTooNew
from holdfast.stores.chain import link_hash
from holdfast.testing.checkpointers import run


@pytest.mark.row("S3-20")
def test_a_stub_of_a_few_lines_works() -> None:
    class Stub:
        async def query(self, sql: str, params: Mapping[str, Any] | None) -> Any:
            return {"rows": []}

    checkpointer = PostgresCheckpointer(Stub())
    assert isinstance(Stub(), PgQueryable)
    assert len(run(checkpointer.put("t", {"n": 1}))) == 36
    assert run(checkpointer.get("t")) is None
    assert run(checkpointer.list("t")) == []
    assert run(checkpointer.delete("t")) == 0
    run(ensure_checkpoints_schema(Stub()))


COLUMNS = (
    *("id", "session_id", "agent_id", "namespace", "seq", "external_id", "parent_id", "name"),
    *("label", "description", "checkpoint_type", "retention_class", "run_id", "version"),
    *("size_bytes", "stored_bytes", "git_branch", "git_commit", "git_uncommitted"),
    *("workspace_commit", "resumable", "pinned", "expires_at", "metadata"),
    *("created_at", "restored_at"),
    *("chain_number", "chain_previous", "chain_hash"),
    *("manifest", "refs", "quarantined_at", "digests", "data"),
)


class Emulation:
    """An in-memory server that answers the four shapes of statements, as a test might write it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.chunks: dict[bytes, bytes] = {}
        self.head = b""
        self.shapes: list[str] = []

    def query(self, sql: str, params: Mapping[str, Any] | None) -> Any:
        assert params is not None
        if 'holdfast".put(' in sql:
            self.shapes.append("put")
            # What few drafts say is one document; what is false or the usual is left out of it.
            rest = json.loads(params["draft"] or "{}")
            row = dict.fromkeys(COLUMNS) | {"git_uncommitted": False, "pinned": False}
            row |= {key: value for key, value in {**params, **rest}.items() if key in row}
            row |= {"resumable": "not_resumable" not in rest, "version": int(params["version"])}
            row |= {"size_bytes": int(params["size_bytes"])}
            moment, agent_id = datetime.now(UTC), json.loads(params["session"])["agent_id"]
            row |= {"seq": len(self.rows), "stored_bytes": 0, "created_at": moment}
            row |= {"agent_id": agent_id, "metadata": None}
            stamp = f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"
            link = link_hash(
                previous=self.head,
                number=1,
                seq=len(self.rows),
                agent_id=agent_id,
                stored_bytes=0,
                created_at=stamp,
                parent_id=params["parent_id"],
                label=rest.get("label"),
                metadata=None,
                content=params["content"],
            )
            row |= {"chain_number": 1, "chain_previous": self.head, "chain_hash": link}
            self.head = link
            if params["digest"] is not None:
                self.chunks[params["digest"]] = params["chunk"]
            self.chunks |= zip(params["digests"] or (), params["data"] or (), strict=True)
            self.rows.append(row)
            keep = rest.get("keep")
            self.rows = self.rows[-keep:] if keep else self.rows
            return []
        found = [
            row
            for row in reversed(self.rows)
            if row["session_id"] in params.get("thread_ids", [params.get("session_id")])
            or row["session_id"] == params.get("thread_id")
        ]
        if "id" in params:
            found = [row for row in found if row["id"] == params["id"]]
        if "erase_threads" in sql or "remove_checkpoints" in sql:
            self.shapes.append("delete")
            self.rows = [row for row in self.rows if row not in found]
            return [{"erased": len(found)}]
        if "chunk_closure" in sql:
            self.shapes.append("get")
            # All chunks will do; a real server sends those that the checkpoint needs.
            content = {"digests": [*self.chunks], "data": [*self.chunks.values()]}
            return [row | content for row in found[:1]]
        self.shapes.append("list")
        return found[: params["limit"]]


@pytest.mark.row("S3-20")
def test_the_four_shapes_of_statements_can_be_emulated() -> None:
    server = Emulation()
    checkpointer = PostgresCheckpointer(server, max_checkpoints_per_thread=3)
    ids = [run(checkpointer.put("t", {"n": n, "text": "x" * 900, "version": 2})) for n in range(5)]
    assert [found.id for found in run(checkpointer.list("t"))] == ids[:1:-1]
    assert run(checkpointer.list("t", 1))[0].version == 2
    assert run(checkpointer.get("t")) == {"n": 4, "text": "x" * 900, "version": 2}
    assert run(checkpointer.get("t", ids[3])) == {"n": 3, "text": "x" * 900, "version": 2}
    assert run(checkpointer.get("t", ids[0])) is None
    assert run(checkpointer.delete("t", ids[4])) == 1
    assert run(checkpointer.delete("t")) == 2
    assert set(server.shapes) == {"put", "get", "list", "delete"}


def test_rows_may_come_as_tuples_or_in_an_attribute() -> None:
    class Result:
        rows = ((3,),)

    class Stub:
        def query(self, sql: str, params: Mapping[str, Any] | None) -> Any:
            return Result()

    assert run(PostgresCheckpointer(Stub()).delete("t")) == 3


@pytest.mark.parametrize("pool", [None, "postgresql://localhost", object(), {"query": 1}])
def test_what_cannot_be_queried_is_refused(pool: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="query"):
        PostgresCheckpointer(pool)


@pytest.mark.parametrize(("state", "kind"), [("HF010", SchemaTooNew), ("HF011", MigrationChanged)])
def test_a_schema_that_is_not_ours_is_an_error_of_ours(state: str, kind: type[Exception]) -> None:
    class Refused(Exception):
        sqlstate = state

    class Stub:
        def query(self, sql: str, params: Mapping[str, Any] | None) -> Any:
            raise Refused("the database has another schema")

    with pytest.raises(kind, match="another schema"):
        run(ensure_checkpoints_schema(Stub()))


@pytest.mark.row("S3-09")
def test_no_driver_is_needed_to_import_it_or_to_use_a_stub() -> None:
    program = """
        import sys

        for name in ("psycopg", "psycopg_pool", "asyncpg", "psycopg2"):
            sys.modules[name] = None

        import asyncio
        from holdfast import MemoryCheckpointer, PostgresCheckpointer, SQLiteCheckpointer
        from holdfast.savers import PostgresCheckpointSaver

        class Stub:
            async def query(self, sql, params):
                return []

        print(len(asyncio.run(PostgresCheckpointer(Stub()).put("t", {"n": 1}))))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("36\n", "")


@pytest.mark.row("S3-09")
def test_no_driver_is_a_dependency() -> None:
    from importlib.metadata import PackageNotFoundError, requires
    from pathlib import Path

    try:
        needed = requires("holdfast") or []
    except PackageNotFoundError:
        import tomllib

        text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
        needed = tomllib.loads(text)["project"]["dependencies"]
    always = [one for one in needed if "extra ==" not in one]
    assert always
    assert not [one for one in always if "psycopg" in one or "asyncpg" in one]
