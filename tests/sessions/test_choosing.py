"""Whoever chooses among the checkpoints of a session passes over those whose rows cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing
from holdfast.errors import CheckpointNotFound, IntegrityError, NothingToUndo, StateCorrupt
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from tests.stores.postgres_drafts import connect

Spoil = Callable[[str], None]


class Setting:
    """A session ``s`` with the checkpoints one … five in a project, and what makes a row unreadable."""

    def __init__(self, manager: SessionManager, url: str, project: Path) -> None:
        self.manager = manager
        self.url = url
        self.spoil = _spoiler(manager.store, url)
        self.project = project


@pytest.fixture(params=["memory", "sqlite", "sealed", "postgres"])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    kind = request.param
    project = tmp_path / "project"
    project.mkdir()
    url = "memory:" if kind == "memory" else str(tmp_path / "sessions.db")
    if kind == "postgres":
        url = str(request.getfixturevalue("postgres_url"))
    keys = KeyRing.new() if kind == "sealed" else None

    with SessionManager.open(url, project_dir=project, keys=keys) as manager:
        session = manager.create_session("x", session_id="s")
        for number, name in enumerate(("one", "two", "three", "four", "five")):
            (project / "a.txt").write_text(name)
            session.save_checkpoint(name, state={"n": number})
        session.close()
        yield Setting(manager, url, project)


def _spoiler(store: Any, url: str) -> Spoil:
    if isinstance(store, MemoryStore):

        def garble(name: str) -> None:
            line = store._sessions["s"].lines[""]
            line.by_name[name].document = "not JSON"

        return garble
    if url.startswith("postgresql"):

        def beyond(name: str) -> None:
            with connect(url) as connection:
                connection.execute(
                    "UPDATE session_checkpoints SET created_at = 'infinity' WHERE name = %s",
                    (name,),
                )
                connection.commit()

        return beyond

    def junk(name: str) -> None:
        # The library's own SQLite: two copies of it in one process would undo each other's locks.
        connection = apsw.Connection(url)
        connection.execute(
            "UPDATE session_checkpoints SET created_at = 'nonsense' WHERE name = ?", (name,)
        )
        connection.close()

    return junk


def test_a_rollback_goes_to_the_newest_that_can_be_read(setting: Setting) -> None:
    setting.spoil("four")
    with setting.manager.hold_session("s") as session:
        assert session.rollback().checkpoint.name == "five"
        setting.spoil("five")
        assert session.rollback().checkpoint.name == "three"
        with pytest.raises(IntegrityError):
            session.rollback("four")
    assert (setting.project / "a.txt").read_text() == "three"


def test_what_can_be_read_can_be_undone_and_redone(setting: Setting) -> None:
    with setting.manager.resume_session("s") as session:
        session.rollback("two")
        setting.spoil("four")
        session.undo()
        assert (setting.project / "a.txt").read_text() == "five"
        session.redo()
        assert (setting.project / "a.txt").read_text() == "two"
        assert session.state == {"n": 1}


def test_a_rollback_whose_safety_checkpoint_cannot_be_read_is_not_mistaken_for_another(
    setting: Setting,
) -> None:
    with setting.manager.resume_session("s") as session:
        session.rollback("two")
        second = session.rollback("three")
        assert second.safety is not None
        setting.spoil(second.safety.name)
        with pytest.raises(IntegrityError):
            session.undo()
        with pytest.raises(NothingToUndo):
            session.redo()
    assert (setting.project / "a.txt").read_text() == "three"


@pytest.mark.parametrize("chosen", ["five", None])
def test_a_checkpoint_leaves_beside_one_that_cannot_be_read(
    setting: Setting, tmp_path: Path, chosen: str | None
) -> None:
    setting.spoil("four" if chosen else "five")
    session = setting.manager.get_session("s")
    newest = session.latest_checkpoint()
    assert newest.name == (chosen or "four")
    bundle = tmp_path / "one.tar"
    setting.manager.export_session("s", bundle, checkpoint=chosen or newest.id, unsealed=True)
    with SessionManager.open("memory:", project_dir=tmp_path / "project") as other:
        other.import_bundle(bundle)
        assert [one.name for one in other.get_session("s").list_checkpoints()] == [newest.name]
    bundle.unlink()
    with pytest.raises(IntegrityError):
        setting.manager.export_session("s", bundle)
    assert not bundle.exists()


def test_a_fork_begins_beside_one_that_cannot_be_read(setting: Setting) -> None:
    setting.spoil("four")
    session = setting.manager.get_session("s")
    with session.fork() as fork:
        assert fork.state == {"n": 4}
    with session.fork("three") as fork:
        assert fork.state == {"n": 2}
    with pytest.raises(CheckpointNotFound):
        session.fork("six")


def test_a_resume_falls_back_past_one_that_cannot_be_read(setting: Setting) -> None:
    newest = setting.manager.get_session("s").get_checkpoint("five")
    setting.spoil("four")
    _alter(setting, newest.id)
    with setting.manager.resume_session("s") as session:
        assert session.state == {"n": 2}
        said = " ".join(session.notices)
        assert "'five' is damaged and was passed over" in said
        assert "cannot be read and was passed over" in said
    with setting.manager.resume_session("s") as session:
        assert session.state == {"n": 2}


def _alter(setting: Setting, checkpoint_id: str) -> None:
    """Let a checkpoint's row not fit its link any more."""
    store: Any = setting.manager.store
    inner = getattr(store, "inner", store)
    statement = "UPDATE session_checkpoints SET run_id = 'forged' WHERE id = "
    if isinstance(inner, MemoryStore):
        stored = inner._checkpoints[checkpoint_id]
        stored.payload = type(stored.payload)(stored.payload.manifest + " ", stored.payload.refs)
    elif isinstance(inner, SqliteStore):
        database = apsw.Connection(str(inner.path))
        database.execute(f"{statement}?", (checkpoint_id,))
        database.close()
    else:
        with connect(setting.url) as connection:
            connection.execute(f"{statement}%s", (checkpoint_id,))


def test_nobody_undoes_what_was_never_rolled_back(setting: Setting) -> None:
    setting.spoil("four")
    with setting.manager.hold_session("s") as session, pytest.raises(NothingToUndo):
        session.undo()


def test_a_save_goes_on_beside_one_that_cannot_be_read(setting: Setting) -> None:
    with setting.manager.hold_session("s") as session:
        setting.spoil("five")
        assert session.save_checkpoint("six", state={"n": 5}).parent_id is not None
    with pytest.raises((StateCorrupt, IntegrityError)):
        setting.manager.get_session("s").get_checkpoint("five")
