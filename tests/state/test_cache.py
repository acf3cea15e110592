"""Verified chunks are kept within bounds, and never stand in for content that was not verified."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from holdfast.errors import DigestMismatch
from holdfast.state.cache import Cache, ChunkCache


def test_the_least_used_go_first() -> None:
    cache = ChunkCache(max_bytes=30)
    for name in (b"a", b"b", b"c"):
        cache.add(name, name * 10)
    assert cache.get(b"a") == b"a" * 10
    cache.add(b"d", b"d" * 10)
    assert cache.get(b"b") is None
    assert [cache.get(name) is not None for name in (b"a", b"c", b"d")] == [True, True, True]


def test_a_value_may_be_replaced_and_removed() -> None:
    cache: Cache[str, int] = Cache(max_bytes=30)
    cache.put("a", 1, 20)
    cache.put("b", 2, 10)
    cache.put("a", 3, 5)
    assert (cache.get("a"), cache.get("b"), cache.all_keys()) == (3, 2, ["a", "b"])
    cache.put("c", 4, 15)
    assert cache.all_keys() == ["a", "b", "c"]
    cache.put("a", 5, 31)
    assert (cache.get("a"), cache.all_keys()) == (None, ["b", "c"])
    cache.remove("b")
    cache.remove("b")
    cache.put("d", 6, 15)
    assert cache.all_keys() == ["c", "d"]


def test_values_may_be_removed_by_what_their_keys_say_and_all_at_once() -> None:
    cache: Cache[str, int] = Cache(max_bytes=30)
    for number, key in enumerate(("a1", "b1", "a2")):
        cache.put(key, number, 10)
    cache.remove_where(lambda key: key[0] == "a")
    assert cache.all_keys() == ["b1"]
    cache.put("c", 4, 20)
    assert cache.all_keys() == ["b1", "c"]
    cache.clear()
    assert cache.all_keys() == []
    cache.put("d", 5, 30)
    assert cache.get("d") == 5


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache = ChunkCache(max_bytes=5)
    cache.add(b"a", b"x" * 6)
    assert cache.get(b"a") is None


def test_damage_is_found_by_whoever_reads_it_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session("a")
        session.save_checkpoint("one", state={"text": "content " * 1000})
        assert session.get_checkpoint("one").state == {"text": "content " * 1000}
        database = apsw.Connection(str(path))
        database.execute("UPDATE chunks SET codec = 0, data = zeroblob(length(data))")
        database.close()
        # This process has verified the content before; what it gives back is still that.
        assert session.get_checkpoint("one").state == {"text": "content " * 1000}
        assert not manager.verify().ok
    with (
        SessionManager.open(path, workspace=False) as manager,
        pytest.raises(DigestMismatch),
    ):
        _ = manager.get_session(session.id).latest_checkpoint().state
