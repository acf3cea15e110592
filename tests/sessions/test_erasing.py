"""What is erased is gone: from every table, from the file and its free pages, from the snapshots."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import apsw
import psycopg
import pytest
from psycopg import sql

from holdfast import SessionManager, Workspace
from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.crypto import KeyRing
from holdfast.errors import SessionNotFound, WorkspaceUnavailable
from holdfast.sessions import Session
from holdfast.sql import TENANT_TABLES
from holdfast.testing.drafts import session as new_session
from holdfast.testing.drafts import write
from tests.memory import holds
from tests.stores.postgres_drafts import connect
from tests.workspace.killing import killer

GONE = "gone-with-the-wind"
KEPT = "kept-for-good"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if kind == "postgres":
        return cast("str", request.getfixturevalue("postgres_url"))
    # Uncompressed, so that whatever is left can be found.
    return "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/data/s.db?compress=off"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "shared.txt").write_text(f"{KEPT} in a file")
    return folder


@pytest.fixture
def manager(url: str, project: Path) -> Iterator[SessionManager]:
    with SessionManager.open(url, project_dir=project) as opened:
        yield opened


def work(manager: SessionManager, mark: str) -> Session:
    """A session that leaves its mark wherever it can, and much of it removed again already."""
    before = manager.create_session("worker", session_id=f"{mark}-before")
    session = manager.create_session(
        "worker",
        session_id=mark,
        agent_name=f"{mark} agent",
        task_description=f"{mark} task",
        metadata={"note": f"{mark} metadata"},
        continues=before.id,
    )
    before.close()
    own = manager.project_dir / f"{mark}.txt"
    own.write_text(f"{mark} file " + os.urandom(20_000).hex())
    # More than are kept: the first are trimmed, their content is left over.
    for number in range(8):
        session.save_checkpoint(
            f"{mark} {number}",
            state={
                "small": f"{mark} {number}",
                "large": [f"{mark} {number} {n}" for n in range(900)],
            },
            retention_class="automatic",
            metadata={"m": f"{mark} checkpoint"},
        )
    session.save_checkpoint(f"{mark} named", state={"s": f"{mark} overwritten"})
    session.save_checkpoint(f"{mark} named", state={"s": f"{mark} again"}, overwrite=True)
    own.unlink()
    session.log("info", f"{mark} log", data={"data": f"{mark} in a log"})
    session.step(f"{mark} step", lambda: f"{mark} result")
    entry = Entry(at="2026-01-01T00:00:00Z", message=f"{mark} failed", session_id=session.id)
    FallbackLog(manager.project_dir).append(entry)
    session.close()
    return session


def traces(manager: SessionManager, kind: str, url: str, mark: str) -> list[str]:
    """Name every place that has the mark."""
    found = [str(path) for path in files_of(manager, url) if mark.encode() in path.read_bytes()]
    home = manager.project_dir / ".agents" / "workspace.git"
    everything = ("cat-file", "--batch-all-objects", "--batch", "--buffer")
    objects = subprocess.run(
        ["git", f"--git-dir={home}", *everything], capture_output=True, check=True
    )
    if mark.encode() in objects.stdout:
        found.append("an object of the private store")
    if kind == "postgres":
        with connect(url) as connection:
            found += rows_with(connection, mark)
            found += packs_with(connection, home, mark)
    if holds(manager, mark):
        found.append("the memory of this process")
    return found


def files_of(manager: SessionManager, url: str) -> Iterator[Path]:
    yield from (path for path in (manager.project_dir / ".agents").rglob("*") if path.is_file())
    if url.startswith("sqlite"):
        yield from Path(url.removeprefix("sqlite:///").partition("?")[0]).parent.iterdir()


def rows_with(connection: psycopg.Connection[Any], mark: str) -> list[str]:
    found = []
    for table in TENANT_TABLES:
        query = sql.SQL(
            "SELECT count(*) FROM {} AS t WHERE t::text LIKE %s OR t::text LIKE %s"
        ).format(sql.Identifier(table))
        hexadecimal = mark.encode().hex()
        row = connection.execute(query, [f"%{mark}%", f"%{hexadecimal}%"]).fetchone()
        if row != (0,):
            found.append(table)
    return found


def packs_with(connection: psycopg.Connection[Any], home: Path, mark: str) -> list[str]:
    """Return the packs that have the mark in a file: git has compressed it."""
    found = []
    packs = "SELECT commit_id, data FROM workspace_packs WHERE substr(data, 1, 8) = %s"
    for commit, data in connection.execute(packs, [b"PACK\0\0\0\2"]):
        with TemporaryDirectory() as aside:
            environment = {**os.environ, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(home / "objects")}
            for command, given in (
                (["init", "-q", "--bare"], b""),
                (["unpack-objects", "-q"], bytes(data)),
                (["cat-file", "--batch-all-objects", "--batch", "--buffer"], b""),
            ):
                done = subprocess.run(
                    ["git", "-C", aside, *command],
                    input=given,
                    capture_output=True,
                    env=environment,
                    check=True,
                )
            if mark.encode() in done.stdout:
                found.append(f"the pack of {commit}")
    return found


@pytest.mark.row("S3-36")
def test_nothing_is_left_of_an_erased_session(manager: SessionManager, kind: str, url: str) -> None:
    gone, kept = work(manager, GONE), work(manager, KEPT)
    later = manager.create_session("worker", session_id="later", continues=gone.id)
    assert gone.get_checkpoint(f"{GONE} 7").state["large"]
    assert "the memory of this process" in traces(manager, kind, url, GONE)
    assert len(traces(manager, kind, url, GONE)) >= 3
    for session_id in (gone.id, f"{GONE}-before"):
        erased = manager.delete_session(session_id)
        assert (erased.sessions, erased.left) == (1, ())
    assert traces(manager, kind, url, GONE) == []
    assert manager.get_session(later.id).record.continues_id is None
    assert kept.get_checkpoint(f"{KEPT} named").state == {"s": f"{KEPT} again"}
    assert manager.verify().damaged == ()
    # The files that the other session saved are all there, and the next save begins anew.
    checkpoint = manager.get_checkpoint(kept.latest_checkpoint().id)
    names = {one.path for one in manager.list_files(checkpoint)}
    assert names == {"shared.txt", f"{KEPT}.txt"}
    later.save_checkpoint("after", state={})
    assert manager.verify().damaged == ()


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_files_that_were_saved_before_and_after_are_still_there(
    postgres_url: str, project: Path, tmp_path: Path, sealed: bool
) -> None:
    """Each pack has what the one before it lacks, whosever that is."""
    opened: dict[str, Any] = {"keys": KeyRing.new() if sealed else None}
    with SessionManager.open(postgres_url, project_dir=project, **opened) as manager:
        for mark in ("before", GONE, "between", "after"):
            manager.create_session("worker", session_id=mark).close()
        for number, mark in enumerate(("before", GONE, "between", GONE, "after")):
            (project / "file").write_text(f"{mark} {number} " + "much the same " * 2000)
            with manager.resume_session(mark) as session:
                session.save_checkpoint(f"{number}", state={})
        assert manager.delete_session(GONE).left == ()
        needs = manager.store.pack_needs()
        assert needs.keys() == manager.store.workspace_commits()
        # They still need each other, and not all the files are sent again.
        assert sorted(map(len, needs.values())) == [0, 1, 1]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with SessionManager.open(postgres_url, project_dir=elsewhere, **opened) as manager:
        for number, mark in ((0, "before"), (2, "between"), (4, "after")):
            with manager.resume_session(mark, take_over=True) as session:
                session.rollback(f"{number}")
            assert (elsewhere / "file").read_text().startswith(f"{mark} {number} much")
            assert (elsewhere / "shared.txt").read_text() == f"{KEPT} in a file"


def test_packs_that_cannot_be_made_anew_are_told_of(
    postgres_url: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SessionManager.open(postgres_url, project_dir=project) as manager:
        gone, kept = work(manager, GONE), work(manager, KEPT)
        monkeypatch.setattr("holdfast.sessions.detaching.export_pack", refused)
        (left,) = manager.delete_session(gone.id).left
        assert left == "packs of files in the database that others need: git is not here"
        assert manager.store.find_packs([str(kept.latest_checkpoint().workspace_commit)])
        monkeypatch.undo()
        assert manager.delete_session(f"{GONE}-before").left == ()
        assert traces(manager, "postgres", postgres_url, GONE) == []


def test_no_pack_is_made_anew_for_a_session_that_is_not_there(
    postgres_url: str, project: Path
) -> None:
    with SessionManager.open(postgres_url, project_dir=project) as manager:
        for mark in (GONE, KEPT):
            (project / "file").write_text(f"{mark} " + "much the same " * 2000)
            with manager.create_session("worker", session_id=mark) as session:
                session.save_checkpoint(mark, state={})
        with manager.resume_session(GONE) as session:
            session.delete_checkpoint(GONE)
        needs = manager.store.pack_needs()
        assert sorted(map(len, needs.values())) == [0, 1]
        with pytest.raises(SessionNotFound):
            manager.delete_session("nobody")
        assert manager.store.pack_needs() == needs
        manager.delete_session(GONE)
        assert sorted(map(len, manager.store.pack_needs().values())) == [0]


def test_a_store_that_cannot_be_swept_is_told_of(project: Path) -> None:
    with SessionManager.open(project_dir=project) as manager:
        gone = work(manager, GONE)
        foreign = project / ".agents" / "workspace.git" / "refs" / "snapshots" / "foreign"
        foreign.write_text("no reference")
        (left,) = manager.delete_session(gone.id).left
        assert left.startswith(f"snapshots of files: {str(foreign)!r} is no reference")


@pytest.mark.parametrize("whole_tenant", [False, True], ids=["session", "tenant"])
def test_files_in_another_project_are_told_of(
    project: Path, tmp_path: Path, whole_tenant: bool
) -> None:
    """As when a database is named from elsewhere, or several projects have one server."""
    here = tmp_path / "here"
    here.mkdir()
    url = project / ".agents" / "sessions.db"
    with SessionManager.open(project_dir=project) as manager:
        work(manager, GONE)
        snapshots = str(manager.workspace.store_dir)
    with SessionManager.open(url, project_dir=here) as manager:
        assert manager.delete_session(f"{GONE}-before").left != ()
        (left,) = (manager.erase_tenant() if whole_tenant else manager.delete_session(GONE)).left
        assert left.startswith(f"{snapshots}: the snapshots of files there")
        command = "--all" if whole_tenant else f"--session {GONE}"
        assert left.endswith(f"run holdfast erase {command} in that project")
    with SessionManager.open(project_dir=project) as manager:
        if whole_tenant:
            assert manager.erase_tenant().left == ()
        else:
            with pytest.raises(SessionNotFound):
                manager.delete_session(GONE)
        assert traces(manager, "sqlite", "", GONE) == []


def test_files_that_were_left_alone_are_told_of(project: Path, tmp_path: Path) -> None:
    with SessionManager.open(project_dir=project) as manager:
        manager.create_session("worker", session_id=GONE).save_checkpoint("one", state={})
    with SessionManager.open(project_dir=project, workspace=False) as manager:
        # A directory that is gone has nothing.
        manager.create_session("worker", session_id="moved").close()
        statement = "UPDATE sessions SET project_dir = ? WHERE id = 'moved'"
        connection = apsw.Connection(str(project / ".agents" / "sessions.db"))
        connection.execute(statement, (str(tmp_path / "gone"),))
        connection.close()
        assert manager.delete_session("moved").left == ()
        (left,) = manager.delete_session(GONE).left
        assert left.startswith(str(project / ".agents" / "workspace.git"))


def test_what_an_interrupted_rollback_has_kept_is_told_of(project: Path) -> None:
    with SessionManager.open(project_dir=project) as manager:
        work(manager, GONE)
        (project / "file").write_text("as it was")
        target = manager.workspace.snapshot().commit
        (project / "file").write_text(f"{GONE} in a file")
        with killer() as deadly:
            for step in count(1):
                assert deadly.attempt(project, "restore", target, at=step)
                if manager.workspace.is_interrupted():
                    break
        manager.workspace.recover()
        # What the killed one had for its own is not this manager's.
        Workspace(project).gc(set)
        [rescued] = manager.workspace.rescued()
        manager.delete_session(f"{GONE}-before")
        (left,) = manager.delete_session(GONE).left
        assert left.startswith(f"snapshot {rescued} of files")
        command = left[left.index("git ") : left.index(" lets go")]
        subprocess.run(shlex.split(command), check=True)
        (project / "file").write_text("as it is")
        manager.create_session("worker").save_checkpoint("after", state={})
        manager.gc()
        assert traces(manager, "sqlite", "", GONE) == []


def test_snapshots_of_a_store_in_memory_go_when_its_process_has_ended(project: Path) -> None:
    program = (
        "import sys; from holdfast import SessionManager as M\n"
        "m = M.open('memory:', project_dir=sys.argv[1])\n"
        "m.create_session('w').save_checkpoint('one', state={})\n"
    )
    (project / "file").write_text(GONE)
    subprocess.run([sys.executable, "-c", program, str(project)], check=True)
    (project / "file").write_text(KEPT)
    with (
        SessionManager.open("memory:", project_dir=project) as manager,
        SessionManager.open("memory:", project_dir=project) as other,
    ):
        kept = other.create_session("worker").save_checkpoint("one", state={})
        assert manager.gc(dry_run=True).snapshots == 1
        assert manager.gc().snapshots == 1
        assert traces(manager, "memory", "", GONE) == []
        assert other.list_files(kept)


def refused(*_: object) -> bytes:
    raise WorkspaceUnavailable("git is not here")


def test_nothing_is_left_of_an_erased_tenant(
    manager: SessionManager, kind: str, url: str, project: Path
) -> None:
    work(manager, GONE)
    # One that no checkpoint asks for, so that nothing but the erasing itself takes it away.
    commit, data = "a" * 40, f"PACK {GONE}".encode()
    manager.store.put_pack(commit, needs=[], data=data)
    assert [one.data for one in manager.store.read_packs(commit)] == [data]
    other = SessionManager.open(url, project_dir=project, tenant="other")
    with other:
        if kind != "memory":
            kept = work(other, KEPT)
            other.store.put_pack(commit, needs=[], data=KEPT.encode())
        erased = manager.erase_tenant()
        assert (erased.sessions, erased.left) == (2, ())
        assert erased.snapshots >= 1
        assert traces(manager, kind, url, GONE) == []
        assert manager.store.find_packs([commit]) == set()
        assert manager.erase_tenant().sessions == 0
        if kind != "memory":
            assert [one.data for one in other.store.read_packs(commit)] == [KEPT.encode()]
            assert kept.get_checkpoint(f"{KEPT} named").state == {"s": f"{KEPT} again"}
            assert other.verify().damaged == ()


NAMED = {
    ("chain_tombstones", "session_id"),
    ("session_checkpoints", "name"),
    ("session_checkpoints", "session_id"),
    ("checkpoint_writes", "session_id"),
    ("effects", "key"),
    ("effects", "session_id"),
    ("session_logs", "session_id"),
    ("sessions", "continues_id"),
    ("sessions", "id"),
}
"""What the planner goes by: of ids and names PostgreSQL keeps samples, as the docs say."""


@pytest.mark.parametrize("whole_tenant", [True, False], ids=["tenant", "sessions"])
def test_the_statistics_of_the_server_keep_no_content(
    postgres_url: str, project: Path, whole_tenant: bool
) -> None:
    with (
        SessionManager.open(postgres_url, project_dir=project) as manager,
        connect(postgres_url) as connection,
    ):
        # Of a single row no samples are kept.
        sessions = [work(manager, f"{GONE}-{number}") for number in range(3)]
        for number, one in enumerate(sessions):
            with manager.resume_session(one.id) as again:
                again.pause(reason=f"{GONE} {number} reason")
            draft = new_session(id=one.id, agent_id=one.record.agent_id)
            manifest = json.dumps({"write": f"{GONE} {number}"})
            manager.store.put_writes(draft, "", "e", [write(manifest=manifest)])
            data = f"PACK {GONE} {number}".encode()
            manager.store.put_pack(str(number) * 40, needs=[], data=data)
        # As autovacuum does it.
        connection.execute("ANALYZE")
        assert samples_with(connection, GONE) == NAMED
        if whole_tenant:
            manager.erase_tenant()
        else:
            for one in sessions:
                manager.delete_session(one.id)
        connection.execute("VACUUM ANALYZE")
        assert samples_with(connection, GONE) <= NAMED


def samples_with(connection: psycopg.Connection[Any], mark: str) -> set[tuple[str, str]]:
    """Return the columns of whose values the server keeps samples with the mark."""
    rows = connection.execute(
        "SELECT tablename, attname FROM pg_stats AS s WHERE schemaname = current_schema() "
        "AND (s::text LIKE %s OR s::text LIKE %s)",
        [f"%{mark}%", f"%{mark.encode().hex()}%"],
    ).fetchall()
    return {(table, column) for table, column in rows}


def test_a_reader_that_holds_the_log_is_named(tmp_path: Path) -> None:
    import apsw

    path = tmp_path / "s.db"
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session("worker")
        session.save_checkpoint("one", state={"s": GONE * 1000})
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM sessions").get == 1
        session.close()
        (left,) = manager.delete_session(session.id).left
        assert left.startswith(f"{path}-wal:")
        reader.close()
        manager.gc()
        assert manager.store.leftovers() == []
        for file in tmp_path.iterdir():
            assert GONE.encode() not in file.read_bytes()


def test_copies_from_before_a_migration_are_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    (tmp_path / "s.db.backup-v1").write_bytes(b"old")
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session("worker")
        session.close()
        (left,) = manager.delete_session(session.id).left
    assert left.startswith(f"{path}.backup-v1:")


def test_the_error_log_keeps_what_is_about_others(tmp_path: Path) -> None:
    log = FallbackLog(tmp_path, max_bytes=250)
    for session_id, tenant in (("a", None), ("b", "default"), ("a", "other"), ("a", "default")):
        log.append(Entry(at="t", message="m", session_id=session_id, tenant=tenant))
    with log.path.open("a") as file:
        file.write("torn\n")
    log.forget("default", ["a"])
    assert [(one.session_id, one.tenant) for one in log.entries()] == [
        ("b", "default"),
        ("a", "other"),
    ][-len(log.entries()) :]
    assert ("a", "other") in [(one.session_id, one.tenant) for one in log.entries()]
    assert log.path.stat().st_mode & 0o777 == 0o600
    log.forget("other", None)
    assert [one.tenant for one in log.entries() if one.tenant == "other"] == []
    lines = [line for line in log.path.read_text().splitlines() if line.strip()]
    assert all(json.loads(line)["session_id"] == "b" for line in lines)
