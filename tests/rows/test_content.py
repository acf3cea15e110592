"""What is stored of a state: JSON, compressed where that helps, and never a program."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest

from holdfast import SessionManager
from holdfast.errors import StateNotSerializable
from holdfast.state.cache import NO_CACHE
from holdfast.state.refs import expand_each, unpack_refs
from holdfast.stores.compression import PLAIN, ZSTD, unpack
from tests.cli.conftest import run_process
from tests.rows.conftest import Database


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float


TYPES: dict[str, Any] = {
    "datetime": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "date": date(2026, 1, 2),
    "timedelta": timedelta(days=1, microseconds=5),
    "path": PurePosixPath("/srv/a b"),
    "bytes": b"\x00\xff" * 40,
    "set": {1, 2, 3},
    "tuple": (1, (2, [3])),
    "decimal": Decimal("1.10"),
    "uuid": UUID("01900000-0000-7000-8000-000000000001"),
    "infinity": float("-inf"),
    "big": 2**100,
    "enum": Colour.RED,
    "dataclass": Point(1, 2.5),
}


@pytest.mark.row("S1-23")
def test_everything_that_is_stored_is_json_and_comes_back_as_it_was(database: Database) -> None:
    many = [{"n": n, **{key: TYPES[key] for key in TYPES}} for n in range(200)]
    with database.open() as manager:
        session = manager.create_session("a")
        session.save_checkpoint(
            "one", state={"id": TYPES["uuid"], "many": many, "nan": float("nan")}
        )
        session.save_checkpoint("few", state=TYPES)
        few = manager.get_session(session.id).load_checkpoint("few").state
        state = manager.get_session(session.id).load_checkpoint("one").state
    expected = {**TYPES, "enum": "red", "dataclass": {"x": 1, "y": 2.5}}
    assert few == expected
    assert {key: type(value) for key, value in few.items()} == {
        key: type(value) for key, value in expected.items()
    }
    assert state["many"] == [{"n": n, **expected} for n in range(200)]
    assert state["nan"] != state["nan"]

    # What lies in the database, unpacked but otherwise as it is.
    manifest = database.value("SELECT manifest FROM session_checkpoints WHERE name = 'one'")
    assert json.loads(manifest)["state"]["id"] == {"$t": "uuid", "v": str(TYPES["uuid"])}
    stored = {
        bytes(digest): unpack(codec, bytes(data)) or b""
        for digest, codec, data in database.sql("SELECT digest, codec, data FROM chunks")
    }
    refs = database.value("SELECT refs FROM session_checkpoints WHERE name = 'one'")
    (leaves,) = expand_each(
        [unpack_refs(bytes(refs))], lambda wanted: {one: stored[one] for one in wanted}, NO_CACHE
    )
    text = b"".join(stored[leaf.digest] for leaf in leaves)
    elements = json.loads(b"[%b]" % text[1:])
    assert sorted(one["n"] for one in elements) == list(range(200))
    assert all(one["uuid"]["v"] == str(TYPES["uuid"]) for one in elements)


@pytest.mark.row("S1-23")
def test_what_cannot_be_stored_is_named_by_its_path_and_nothing_is_written(
    database: Database,
) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with database.open() as manager:
        session = manager.create_session("a")
        for wrong, path in (
            ({"tools": [1, {"client": object()}]}, "$.tools[1].client"),
            ({"f": print}, "$.f"),
            ({"deep": {"type": int}}, "$.deep.type"),
            ({"loop": loop}, "$.loop"),
        ):
            with pytest.raises(StateNotSerializable) as caught:
                session.save_checkpoint("bad", state=wrong)
            assert caught.value.path.startswith(path)
        assert session.list_checkpoints() == []
    assert database.value("SELECT count(*) FROM chunks") == 0


@pytest.mark.row("S1-55", "T3")
def test_chunks_are_compressed_where_that_makes_them_smaller_and_only_there(
    tmp_path: Path,
) -> None:
    texts = {
        "repetitive": "the same line, said again and again\n" * 40_000,
        "random": random.Random(5).randbytes(1_200_000).hex()[:1_200_000],
        "bytes": random.Random(6).randbytes(1_200_000),
    }
    for switch in ("on", "off"):
        for kind, content in texts.items():
            url = f"sqlite:///{tmp_path}/{kind}-{switch}.db?compress={switch}"
            with SessionManager.open(url, workspace=False) as manager:
                session = manager.create_session("a")
                session.save_checkpoint("one", state={"content": content})
                assert session.get_checkpoint("one").state == {"content": content}
                stored = manager.store.total_bytes()
                codecs = {
                    codec
                    for (codec,) in manager.store._file.read(  # type: ignore[attr-defined]
                        lambda connection: connection.execute("SELECT codec FROM chunks").fetchall()
                    )
                }
            if switch == "off":
                assert codecs == {PLAIN}
                if kind != "repetitive":  # equal chunks are stored once, packed or not
                    assert stored >= len(content)
            elif kind == "repetitive":
                assert ZSTD in codecs
                assert stored < len(content) / 3
            elif kind == "random":
                assert ZSTD in codecs
                assert stored < len(content)
            else:
                # Random bytes cannot be made smaller: they stay as they are.
                assert PLAIN in codecs
                assert stored < len(content) * 1.02


@pytest.mark.row("S1-55", "S1-68")
def test_compressed_content_is_exported_as_plain_json(tmp_path: Path) -> None:
    state = {"messages": [{"role": "user", "content": f"{n} " * 200} for n in range(300)]}
    with SessionManager.open(project_dir=tmp_path, workspace=False) as manager:
        manager.create_session("a").save_checkpoint("one", state=state)
    shown = run_process("show", "one", "--json", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert json.loads(shown.stdout)["checkpoint"]["state"] == state
