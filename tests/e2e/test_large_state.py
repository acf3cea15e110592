"""Large states: stored small, read back whole, and a second save pays for the change only."""

from __future__ import annotations

import inspect
import os
import random
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager

WORDS = [
    f"{first}{second}"
    for first in ("re", "un", "pro", "in")
    for second in ("tain", "form", "vide", "cess", "quest", "solve", "tract", "spect", "mit", "fer")
]


def prose(seed: int, size: int) -> str:
    chosen = random.Random(seed)
    return " ".join(chosen.choices(WORDS, k=size // 5))[:size]


def stored_bytes(manager: SessionManager) -> int:
    return manager.store.total_bytes()


@pytest.mark.row("S1-55", "T3")
def test_compressed_content_is_smaller_than_plain(tmp_path: Path) -> None:
    # Code that stays as it is when ours changes.
    library = sorted(Path(os.__file__).parent.glob("*.py"))
    source = "".join(path.read_text("utf-8") for path in library)[:1_200_000]
    assert len(source) == 1_200_000
    sizes: dict[str, dict[str, int]] = {}
    for switch in ("on", "off"):
        sizes[switch] = {}
        for kind, text in {"source": source, "prose": prose(1, 1_200_000)}.items():
            url = f"sqlite:///{tmp_path}/{kind}-{switch}.db?compress={switch}"
            with SessionManager.open(url, workspace=False) as manager:
                session = manager.create_session("a")
                saved = session.save_checkpoint("one", state={"text": text})
                assert saved.state == {"text": text}
                assert saved.size_bytes >= 1_000_000
                sizes[switch][kind] = stored_bytes(manager)
    assert sizes["on"]["source"] < 1_200_000 / 3
    assert sizes["on"]["prose"] < 1_200_000 / 2
    assert sizes["off"]["prose"] >= 1_200_000


@pytest.mark.row("S1-18")
def test_fifty_megabytes_and_one_percent_of_change(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": random.Random(n).randbytes(512).hex(), "n": n}
        for n in range(49_000)
    ]
    with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
        session = manager.create_session("a")
        size = session.save_checkpoint("one", state={"messages": messages}).size_bytes
        assert size > 50_000_000
        before = stored_bytes(manager)
        for n in range(20_000, 20_490):
            messages[n] = {**messages[n], "content": random.Random(-n).randbytes(512).hex()}
        session.save_checkpoint("two", state={"messages": messages})
        assert stored_bytes(manager) - before < 0.03 * size
        assert manager.get_session(session.id).load_checkpoint("two").state["messages"] == messages


@pytest.mark.row("S1-92")
def test_every_session_may_have_a_database_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with SessionManager.open(tmp_path / f"{name}.db", workspace=False) as manager:
            manager.create_session("a", session_id=name).save_checkpoint("n", state={"name": name})
    for name in ("one", "two"):
        with SessionManager.open(tmp_path / f"{name}.db", workspace=False) as manager:
            assert [one.id for one in manager.list_sessions()] == [name]


@pytest.mark.row("S1-91")
def test_a_long_listing_reads_rows_only(tmp_path: Path) -> None:
    shared = "x" * 1_000_000
    with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
        session = manager.create_session("a")
        for number in range(2_000):
            state = {"shared": shared, "n": number}
            session.save_checkpoint(state=state, retention_class="step")
        listed = session.list_checkpoints()
        assert len(listed) == 2_000
        assert all(one.size_bytes > 1_000_000 for one in listed)
        source = inspect.getsource(type(manager.store))
        assert "SELECT" not in source  # all SQL is in files, where the next line looks
        from holdfast.sql import queries

        columns = queries("sqlite")["checkpoints.list"].lower().split("from")[0]
        assert "manifest" not in columns
        assert "state_snapshot" not in columns
        assert "refs" not in columns
