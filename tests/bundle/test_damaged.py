"""A session with a damaged checkpoint does not leave whole: that is said, with the way for what is good."""

from __future__ import annotations

import zlib
from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from holdfast.errors import CheckpointQuarantined, DigestMismatch, IntegrityError, SnapshotCorrupt
from holdfast.model import SessionQuery
from holdfast.sessions import Session
from tests.bundle.conftest import Open
from tests.workspace.pictures import git

LEFT_OUT = "--checkpoint NAME, or --latest"


def three_saves(manager: SessionManager) -> Session:
    """Save three times, and spoil the content of the second as a bad disk would."""
    session = manager.create_session("tester", session_id="the session")
    known: list[set[bytes]] = []
    for number in range(1, 4):
        known.append(set(manager.store.iter_digests()))
        (manager.project_dir / "code.py").write_text(f"print({number})\n")
        session.save_checkpoint(f"save {number}", state={"text": f"{number} " * 20_000})
    digest = max(known[2] - known[1])
    database = apsw.Connection(str(manager.project_dir / ".agents" / "sessions.db"))
    [(stored,)] = database.execute("SELECT data FROM chunks WHERE digest = ?", (digest,))
    turned = stored[:-1] + bytes([stored[-1] ^ 1])
    database.execute("UPDATE chunks SET data = ? WHERE digest = ?", (turned, digest))
    database.close()
    return session


@pytest.fixture(params=["found", "not-found-yet"])
def damaged(request: pytest.FixtureRequest, open_at: Open) -> tuple[Session, SessionManager]:
    """A session whose second checkpoint is damaged; verification has found that, or not yet."""
    manager = open_at("a")
    session = three_saves(manager)
    if request.param == "found":
        assert len(manager.verify(deep=True).quarantined) == 1
    return session, manager


def test_a_refused_export_writes_nothing_and_says_how_to_leave_the_damaged_one_out(
    damaged: tuple[Session, SessionManager], tmp_path: Path, open_at: Open
) -> None:
    session, manager = damaged
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises((CheckpointQuarantined, DigestMismatch)) as refused:
        manager.export_session(session.id, folder / "all.tar")
    assert str(refused.value).startswith("session the session was not exported: ")
    assert "Nothing was written, and nothing is lost here" in str(refused.value)
    assert LEFT_OUT in str(refused.value)
    assert list(folder.iterdir()) == []

    (folder / "all.tar").write_bytes(b"an earlier one")
    with pytest.raises(IntegrityError):
        manager.export_session(session.id, folder / "all.tar", overwrite=True)
    assert [one.name for one in folder.iterdir()] == ["all.tar"]
    assert (folder / "all.tar").read_bytes() == b"an earlier one"

    latest = session.latest_checkpoint().id
    manager.export_session(session.id, folder / "one.tar", checkpoint=latest)
    theirs = open_at("b")
    theirs.import_bundle(folder / "one.tar")
    assert theirs.get_session(session.id).state == {"text": "3 " * 20_000}


def test_a_refused_copy_leaves_nothing_to_be_seen_and_names_the_way_for_the_others(
    damaged: tuple[Session, SessionManager], open_at: Open
) -> None:
    _, manager = damaged
    manager.create_session("tester", session_id="another").save_checkpoint("one", state={"n": 1})
    theirs = open_at("b")
    target = theirs.project_dir / ".agents" / "sessions.db"
    with pytest.raises((CheckpointQuarantined, DigestMismatch)) as refused:
        manager.copy_to(target)
    assert str(refused.value).startswith("session the session was not copied: ")
    assert "Nothing of it is to be seen in the target" in str(refused.value)
    assert "naming them (session_ids=, SESSIONS)" in str(refused.value)
    assert theirs.store.list_sessions(SessionQuery()) == []
    theirs.gc()
    assert list(theirs.store.iter_digests()) == []

    [copied] = manager.copy_to(target, ["another"])
    assert copied.outcome == "copied"
    assert theirs.get_session("another").state == {"n": 1}


@pytest.mark.parametrize(
    "wrong", [None, zlib.compress(b"blob 9\0print(2)\n")], ids=["gone", "other"]
)
def test_damaged_files_stay_behind_and_the_states_may_go_alone(
    open_at: Open, tmp_path: Path, postgres_url: str, wrong: bytes | None
) -> None:
    manager = open_at("a")
    session = manager.create_session("tester", session_id="the session")
    (manager.project_dir / "code.py").write_text("print(1)\n")
    session.save_checkpoint("one", state={"n": 1})
    blob = git(manager.project_dir, "hash-object", "--stdin", stdin=b"print(1)\n")
    stored = manager.project_dir / ".agents" / "workspace.git" / "objects" / blob[:2] / blob[2:]
    stored.unlink()
    if wrong is not None:
        stored.write_bytes(wrong)
    target = tmp_path / "all.tar"
    with pytest.raises(SnapshotCorrupt, match=r"not exported: .*files=False \(--no-files\)"):
        manager.export_session(session.id, target)
    with pytest.raises(SnapshotCorrupt, match=r"not copied: .*files=False \(--no-files\)"):
        manager.copy_to(postgres_url)
    assert not target.exists()
    theirs = open_at("b", postgres_url)
    assert theirs.store.list_sessions(SessionQuery()) == []

    manager.export_session(session.id, target, files=False)
    [copied] = manager.copy_to(postgres_url, files=False)
    assert (copied.outcome, copied.snapshots) == ("copied", 0)
