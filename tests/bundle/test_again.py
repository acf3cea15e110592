"""A bundle that is imported again: recognised after its files were put back, and finished where that was not done."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.errors import NothingToUndo, SessionExists
from holdfast.workspace.apply import Applier
from tests.bundle.conftest import Open, tree_digest, work


def exported(open_at: Open, tmp_path: Path, *, completed: bool = False) -> tuple[str, Path, str]:
    """Return a session's id, its bundle, and what its files are."""
    ours = open_at("a")
    session = work(ours)
    if completed:
        session.complete()
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    return session.id, bundle, tree_digest(ours.project_dir)


def checkpoints(manager: SessionManager, session_id: str) -> list[str]:
    return [one.name for one in manager.get_session(session_id).list_checkpoints()]


@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres"])
def test_importing_again_after_a_restore_changes_nothing(
    backend: str, open_at: Open, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    session_id, bundle, wanted = exported(open_at, tmp_path)
    urls = {"memory": "memory:", "sqlite": None}
    url = urls[backend] if backend in urls else request.getfixturevalue("postgres_url")
    theirs = open_at("b", url)
    (theirs.project_dir / "mine.txt").write_text("not saved")
    before = tree_digest(theirs.project_dir)
    assert theirs.import_bundle(bundle, restore=True).outcome == "imported"
    there = checkpoints(theirs, session_id)
    for restore in (True, False):
        again = theirs.import_bundle(bundle, restore=restore)
        assert (again.outcome, again.restored) == ("present", restore)
    assert checkpoints(theirs, session_id) == there
    (theirs.project_dir / "text.txt").write_text("changed since")
    assert theirs.import_bundle(bundle, restore=True).restored
    assert tree_digest(theirs.project_dir) == wanted
    with theirs.hold_session(session_id) as session:
        session.undo()
        assert (theirs.project_dir / "text.txt").read_text() == "changed since"
        session.undo()
        assert tree_digest(theirs.project_dir) == before
    assert theirs.import_bundle(bundle).outcome == "present"


def test_a_completed_session_is_forked_once(open_at: Open, tmp_path: Path) -> None:
    session_id, bundle, wanted = exported(open_at, tmp_path, completed=True)
    theirs = open_at("b")
    for outcome in ("imported", "present"):
        assert theirs.import_bundle(bundle, restore=True).outcome == outcome
    assert tree_digest(theirs.project_dir) == wanted
    assert len(theirs.list_sessions()) == 2
    assert theirs.get_session(session_id).status == "completed"


def test_an_interrupted_restore_is_finished_by_importing_again(
    open_at: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id, bundle, wanted = exported(open_at, tmp_path)
    theirs = open_at("b")
    (theirs.project_dir / "mine.txt").write_text("not saved")
    before = tree_digest(theirs.project_dir)
    with monkeypatch.context() as patched:
        patched.setattr(Applier, "carry_out", _interrupt)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                theirs.import_bundle(bundle, restore=True)
    assert tree_digest(theirs.project_dir) == before
    report = theirs.import_bundle(bundle, restore=True)
    assert (report.outcome, report.restored) == ("present", True)
    assert tree_digest(theirs.project_dir) == wanted
    with theirs.hold_session(session_id) as session:
        session.undo()
        assert tree_digest(theirs.project_dir) == before
        with pytest.raises(NothingToUndo):
            session.undo()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "gone_on",
    ["saved", "rolled back", "decided", "stepped", "resumed"],
)
def test_a_session_that_went_on_is_another(open_at: Open, tmp_path: Path, gone_on: str) -> None:
    session_id, bundle, _ = exported(open_at, tmp_path)
    theirs = open_at("b")
    theirs.import_bundle(bundle, restore=True)
    if gone_on == "resumed":
        theirs.resume_session(session_id).close()
    else:
        with theirs.hold_session(session_id) as session:
            if gone_on == "saved":
                session.save_checkpoint("mine", state={"n": 1})
            elif gone_on == "rolled back":
                session.rollback("save 1")
            elif gone_on == "decided":
                session.decision("Stay with passwords")
            else:
                session.step("ship", lambda: 1)
    with pytest.raises(SessionExists):
        theirs.import_bundle(bundle, restore=True)
