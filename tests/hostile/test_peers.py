"""Databases of other checkpointers: their rows name classes and functions to call. None is called."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import ormsgpack
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from holdfast.errors import HoldfastError
from holdfast.integrations.langgraph import HoldfastSaver, import_threads

WAYS: Final = (
    "pickle",
    "pickle-under-msgpack",
    "call",
    "call-by-name",
    "method",
    "json",
    "view",
    "types",
)


def pickled(mark: Path) -> bytes:
    return f"cos\nsystem\n(S\"touch '{mark}'\"\ntR.".encode()


def forged(way: str, mark: Path) -> tuple[str, bytes]:
    """Return the type and the bytes of a value that calls ``touch`` where somebody lets it."""
    command = f"touch '{mark}'"
    if way == "pickle":
        return "pickle", pickled(mark)
    if way == "json":
        return "json", (
            b'{"lc":2,"type":"constructor","id":["os","system"],"args":["%s"]}' % command.encode()
        )
    code, parts = {
        "call": (0, ("os", "system", command)),
        "call-by-name": (2, ("subprocess", "run", {"args": command, "shell": True})),
        "method": (3, ("builtins", "str", command, "__class__")),
        "pickle-under-msgpack": (0, ("pickle", "loads", pickled(mark))),
    }[way]
    return "msgpack", ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))


def spoil(path: Path, way: str, mark: Path) -> None:
    with sqlite3.connect(path) as database:
        if way == "view":
            database.execute("ALTER TABLE checkpoints RENAME TO hidden")
            database.execute(
                "CREATE VIEW checkpoints AS SELECT * FROM hidden WHERE load_extension('x') IS NULL"
            )
        elif way == "types":
            database.execute("UPDATE checkpoints SET thread_id = x'00ff', metadata = 7")
        else:
            kind, data = forged(way, mark)
            database.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", (kind, data))
            database.execute("UPDATE writes SET type = ?, value = ?", (kind, data))
    database.close()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_that_a_peers_database_names_is_called(way: str, tmp_path: Path) -> None:
    path, mark = tmp_path / "peer.sqlite", tmp_path / "executed"
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with SqliteSaver.from_conn_string(str(path)) as peer:
        saved = peer.put(config, empty_checkpoint(), {"step": 1}, {})
        peer.put_writes(saved, [("channel", "value")], "task")
    spoil(path, way, mark)
    with HoldfastSaver(tmp_path / "ours.db") as saver:
        if way in ("view", "types"):
            with pytest.raises(HoldfastError):
                import_threads(str(path), saver)
        else:
            assert [one.thread_id for one in import_threads(str(path), saver).refused] == ["t"]
        assert list(saver.list(None)) == []
    assert not mark.exists()


def test_the_pickle_of_these_tests_is_a_live_one(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    code = "import pickle, sys; pickle.load(sys.stdin.buffer)"
    subprocess.run([sys.executable, "-c", code], input=pickled(mark), check=True, timeout=60)
    assert mark.exists()
