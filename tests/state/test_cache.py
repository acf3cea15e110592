"""Verified chunks are kept within bounds, and never stand in for content that was not verified."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from holdfast.errors import DigestMismatch
from holdfast.state.cache import ChunkCache


def test_the_least_used_go_first() -> None:
    cache = ChunkCache(max_bytes=30)
    for name in (b"a", b"b", b"c"):
        cache.add(name, name * 10)
    assert cache.get(b"a") == b"a" * 10
    cache.add(b"d", b"d" * 10)
    assert cache.get(b"b") is None
    assert [cache.get(name) is not None for name in (b"a", b"c", b"d")] == [True, True, True]


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
