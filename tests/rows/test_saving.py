"""Saving, listing and resuming as a user does it, whole requirements at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    AmbiguousReference,
    CheckpointExists,
    HoldfastError,
    NotResumable,
    SessionNotFound,
)
from holdfast.ids import is_uuid
from holdfast.preflight import hash_file
from tests.rows.conftest import Database


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "trunk")
    (root / "a.txt").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


@pytest.mark.row("S1-02", "S1-69", "S1-82")
def test_one_call_captures_state_and_git_and_returns_an_id(
    database: Database, repository: Path
) -> None:
    with database.open(workspace=True, project_dir=repository) as manager:
        session = manager.create_session("a")
        clean = session.save_checkpoint("clean", state={"text": "word " * 2000})
        (repository / "a.txt").write_text("two\n")
        dirty = session.save_checkpoint("dirty", state={"n": 2})
        bare = session.save_checkpoint("context alone")
        assert bare.state == {}
    assert is_uuid(clean.id)
    head = git(repository, "rev-parse", "HEAD")
    rows = database.sql(
        "SELECT name, git_branch, git_commit, git_uncommitted FROM session_checkpoints ORDER BY seq"
    )
    assert [(*row[:3], bool(row[3])) for row in rows] == [
        ("clean", "trunk", head, False),
        ("dirty", "trunk", head, True),
        ("context alone", "trunk", head, True),
    ]
    assert (bare.git_branch, bare.git_commit, bare.git_uncommitted) == ("trunk", head, True)
    uncommitted = "git_uncommitted" if database.kind == "postgres" else "git_uncommitted = 1"
    found = database.sql(
        f"SELECT name FROM session_checkpoints WHERE git_branch = 'trunk' AND {uncommitted} "
        "ORDER BY seq"
    )
    assert found == [("dirty",), ("context alone",)]
    assert dirty.git_uncommitted
    if database.kind == "postgres":
        # The row and its content carry the number of one and the same transaction.
        transactions = database.sql(
            "SELECT c.xmin::text FROM session_checkpoints AS c WHERE c.name = 'clean' "
            "UNION SELECT k.xmin::text FROM chunks AS k"
        )
        assert len(transactions) == 1


@pytest.mark.row("S1-02", "T5")
@pytest.mark.parametrize("where", ["chunks", "session_checkpoints"])
def test_a_failure_half_way_leaves_neither_row_nor_content(database: Database, where: str) -> None:
    counts = {
        name: f"SELECT count(*) FROM {name}"
        for name in ("session_checkpoints", "chunks", "session_logs")
    }
    with database.open() as manager:
        session = manager.create_session("a")
        session.save_checkpoint("kept", state={"text": "old words " * 2000})
        before = {name: database.value(query) for name, query in counts.items()}
        database.fail_on("INSERT", where)
        with pytest.raises(HoldfastError):
            session.save_checkpoint("lost", state={"text": "new words " * 2000})
        assert {name: database.value(query) for name, query in counts.items()} == before
        database.recover(where)
        assert manager.gc(dry_run=True).chunks == 0
        session.save_checkpoint("lost", state={"text": "new words " * 2000})
        assert manager.get_session(session.id).latest_checkpoint().state == {
            "text": "new words " * 2000
        }
        assert manager.verify().ok


@pytest.mark.row("S1-67")
def test_an_overwrite_that_fails_keeps_what_it_was_to_replace(database: Database) -> None:
    with database.open() as manager:
        session, other = manager.create_session("a"), manager.create_session("a")
        old = session.save_checkpoint("same", state={"text": "old " * 3000})
        with pytest.raises(CheckpointExists):
            session.save_checkpoint("same", state={"n": 2})
        database.fail_on("INSERT", "session_checkpoints")
        with pytest.raises(HoldfastError):
            session.save_checkpoint("same", state={"n": 3}, overwrite=True)
        reader = manager.get_session(session.id)
        assert reader.get_checkpoint("same").id == old.id
        assert reader.get_checkpoint("same").state == {"text": "old " * 3000}
        database.recover("session_checkpoints")
        new = session.save_checkpoint("same", state={"n": 3}, overwrite=True)
        assert [one.id for one in session.list_checkpoints()] == [new.id]
        assert other.save_checkpoint("same", state={"n": 4}).name == "same"


@pytest.mark.row("S1-67")
def test_a_reader_sees_the_old_checkpoint_until_the_new_one_is_committed(
    database: Database,
) -> None:
    query = "SELECT id FROM session_checkpoints"
    with database.open() as manager:
        session = manager.create_session("a")
        old = session.save_checkpoint("same", state={"n": 1})
        database.sql(
            "BEGIN ISOLATION LEVEL REPEATABLE READ" if database.kind == "postgres" else "BEGIN"
        )
        before = database.sql(query)
        new = session.save_checkpoint("same", state={"n": 2}, overwrite=True)
        assert database.sql(query) == before
        database.sql("COMMIT")
        assert [str(before[0][0]), str(database.value(query))] == [old.id, new.id]


@pytest.mark.row("S1-04")
def test_a_listing_shows_what_one_chooses_by_and_reads_no_payload(
    database: Database, repository: Path
) -> None:
    with database.open(workspace=True, project_dir=repository) as manager:
        session = manager.create_session("a")
        session.save_checkpoint("first", state={"text": "x " * 5000})
        (repository / "new.txt").write_text("untracked\n")
        session.save_checkpoint("second", state={}, checkpoint_type="auto")
        # With the content gone and the documents unreadable a listing that read them would fail.
        database.sql("DELETE FROM chunks")
        database.sql("UPDATE session_checkpoints SET state_snapshot = '[]'")
        if database.kind == "postgres":
            database.sql("UPDATE session_checkpoints SET manifest = 'nonsense'")
        second, first = session.list_checkpoints()
    assert (second.name, first.name) == ("second", "first")
    assert (second.checkpoint_type, first.checkpoint_type) == ("auto", "manual")
    assert (second.git_branch, first.git_branch) == ("trunk", "trunk")
    assert (second.git_uncommitted, first.git_uncommitted) == (True, False)
    assert first.size_bytes == len('{"text":""}') + 10_000
    assert first.created_at < second.created_at
    assert abs(first.created_at - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.row("S1-05", "S1-85", "S0-14")
def test_resuming_makes_a_session_active_from_the_latest_resumable_or_the_named_one(
    database: Database,
) -> None:
    with database.open() as manager:
        session = manager.create_session("a")
        session.save_checkpoint("one", state={"n": 1})
        session.save_checkpoint("two", state={"n": 2})
        unfit = session.save_checkpoint("mid-call", state={"n": 3}, resumable=False)
        assert session.get_checkpoint("two").resumable
        for status in ("active", "paused", "interrupted", "failed", "stopped"):
            manager.store.update_session(session.id, status=status)
            before = datetime.now(UTC)
            resumed = manager.resume_session(session.id)
            assert (resumed.status, resumed.state) == ("active", {"n": 2})
            assert resumed.record.resumed_at is not None
            assert abs(resumed.record.resumed_at - before) < timedelta(minutes=1)
        assert manager.resume_session(session.id, checkpoint="one").state == {"n": 1}
        for refused in (
            lambda: manager.resume_session(session.id, checkpoint="mid-call"),
            lambda: manager.get_session(session.id).load_checkpoint(unfit.id),
        ):
            with pytest.raises(NotResumable, match=r"mid-call.*force"):
                refused()
        forced = manager.resume_session(session.id, checkpoint="mid-call", force=True)
        assert forced.state == {"n": 3}
        assert session.latest_checkpoint().name == "mid-call"
        assert session.latest_checkpoint(resumable=True).name == "two"


DYING = """
    import os, sys
    from holdfast import SessionManager

    manager = SessionManager.open(sys.argv[1], workspace=False)
    session = manager.create_session("a")
    session.save_checkpoint("one", state={"n": 1})
    session.save_checkpoint("two", state={"n": 2, "text": "word " * 1000})
    print(session.id, flush=True)
    sys.stdin.read()
"""


@pytest.mark.row("S1-05")
def test_a_session_is_resumed_after_its_process_was_killed(database: Database) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DYING), database.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        session_id = process.stdout.readline().strip()
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    with database.open() as manager:
        assert manager.resume_session(session_id).state == {"n": 2, "text": "word " * 1000}
        assert manager.resume_session(session_id, checkpoint="one").state == {"n": 1}


@pytest.mark.row("S1-47")
def test_resume_takes_an_id_or_enough_of_its_beginning(database: Database) -> None:
    alike = [f"01900000-aaaa-7000-8000-00000000000{digit}" for digit in "12"]
    with database.open() as manager:
        for session_id in (*alike, "customer-1", "customer-12"):
            session = manager.create_session("a", session_id=session_id)
            session.save_checkpoint("c", state={"in": session_id})
        own = manager.create_session("a")
        own.save_checkpoint("c", state={"in": "own"})
        for session_id in (*alike, "customer-1"):
            assert manager.resume_session(session_id).state == {"in": session_id}
        for length in (8, 13, 30):
            assert manager.resume_session(own.id[:length]).state == {"in": "own"}
        with pytest.raises(AmbiguousReference, match=alike[1]):
            manager.resume_session(alike[0][:20])
        # Seven characters are too few, and an id of the user's own is never guessed.
        for unknown in (own.id[:7], "customer", "nowhere at all", alike[0][:-1] + "9"):
            with pytest.raises(SessionNotFound):
                manager.resume_session(unknown)


@pytest.mark.row("S1-08")
def test_history_keeps_inputs_outputs_and_those_of_subagents_in_order(database: Database) -> None:
    history: list[dict[str, Any]] = []
    for number in range(60):
        history += [
            {
                "agent": "lead",
                "role": "assistant",
                "input": f"question {number}",
                "output": {"plan": [number, None, "ü"]},
                "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number),
            },
            {
                "agent": f"helper-{number % 3}",
                "parent": "lead",
                "role": "tool",
                "input": {"path": f"file {number}"},
                "output": "line\n" * (number % 7),
                "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number + 0.5),
            },
        ]
    with database.open() as manager:
        session = manager.create_session("lead")
        session.save_checkpoint("half", state={"agent_history": history[:60]})
        session.save_checkpoint("whole", state={"agent_history": history})
    with database.open() as manager:
        assert manager.resume_session(session.id).state["agent_history"] == history
        earlier = manager.resume_session(session.id, checkpoint="half")
        assert earlier.state["agent_history"] == history[:60]


@pytest.mark.row("S1-09")
def test_memory_references_are_checked_where_the_session_is_resumed(
    database: Database, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("same", "edited", "gone"):
        (project / name).write_text(name)
    refs = [
        {"key": name, "path": name, "hash": hash_file(project / name)}
        for name in ("same", "edited", "gone")
    ]
    refs.append({"key": "by uri", "uri": (project / "same").as_uri()})
    with database.open(project_dir=project) as manager:
        session = manager.create_session("a")
        session.save_checkpoint("one", state={"memory_refs": refs})
    (project / "edited").write_text("other")
    (project / "gone").unlink()
    with database.open(project_dir=project) as manager:
        resumed = manager.resume_session(session.id)
        assert resumed.state["memory_refs"] == refs
        assert {one.key: one.status for one in resumed.check_memory_refs()} == {
            "same": "present",
            "edited": "changed",
            "gone": "missing",
            "by uri": "present",
        }


@pytest.mark.row("S1-07", "S1-49")
def test_every_checkpoint_has_tasks_and_progress_whatever_its_state_says(
    database: Database,
) -> None:
    def task(name: str, status: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "title": name.upper(), "status": status, **more}

    with database.open() as manager:
        session = manager.create_session("a")
        bare = session.save_checkpoint("bare")
        assert bare.task_state == {"tasks": []}
        assert bare.progress == {"completed": 0, "total": 0, "percent": 0.0}
        done = task("a", "completed", progress=1.0, result={"files": 3})
        session.save_checkpoint("1", state={"task_state": {"tasks": [done, task("b", "pending")]}})
    with database.open() as manager:
        session = manager.resume_session(session.id)
        session.save_checkpoint("2", state={"task_state": {"tasks": [task("b", "in_progress")]}})
        session.save_checkpoint("3", state={"free": "of tasks"})
        found = {one.name: one for one in session.list_checkpoints()}
        assert found["2"].task_state["tasks"] == [done, task("b", "in_progress")]
        assert found["2"].progress == {"completed": 1, "total": 2, "percent": 50.0}
        assert found["3"].task_state["tasks"] == [done]
        assert found["bare"].task_state == {"tasks": []}


@pytest.mark.row("S1-83", "S1-82", "S1-81")
def test_what_is_mandatory_is_mandatory(database: Database) -> None:
    with database.open() as manager:
        with pytest.raises(TypeError):
            manager.create_session()  # type: ignore[call-arg]
        for empty in ("", None):
            with pytest.raises(ValueError, match="agent_type"):
                manager.create_session(empty)  # type: ignore[arg-type]
        assert manager.list_sessions() == []
        session = manager.create_session("a")
        session.save_checkpoint("one", state={"n": 1})
        with pytest.raises(TypeError):
            manager.get_session()  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            session.load_checkpoint()  # type: ignore[call-arg]
        for empty in ("", None):
            with pytest.raises(ValueError, match="session id"):
                manager.get_session(empty)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="checkpoint"):
                session.load_checkpoint(empty)  # type: ignore[arg-type]
            if empty is not None:
                with pytest.raises(ValueError, match="name"):
                    session.save_checkpoint(empty, state={})
        assert manager.get_session(session.id).load_checkpoint("one").state == {"n": 1}


@pytest.mark.row("S1-48", "T5")
def test_a_name_is_any_text_and_no_file_is_ever_named_after_it(
    database: Database, tmp_path: Path
) -> None:
    names = ["a/b", "..", "../../x", '"', "'", "'; DROP TABLE sessions; --", "/etc/passwd", "~",
             "new\nline", "名前", "e\u0301", "é", "🦀", "%s", "\\", "C:\\x", " ", "-rf"]  # fmt: skip
    before = {path for path in tmp_path.rglob("*") if path.suffix not in (".db-wal", ".db-shm")}
    with database.open() as manager:
        session = manager.create_session("a")
        for name in names:
            session.save_checkpoint(name, state={"name": name})
        for name in names:
            assert session.load_checkpoint(name).state == {"name": name}
        assert [one.name for one in session.list_checkpoints()] == names[::-1]
    after = {path for path in tmp_path.rglob("*") if path.suffix not in (".db-wal", ".db-shm")}
    assert after == before


@pytest.mark.row("S1-51", "S1-84")
def test_the_checkpoints_of_a_session_are_its_own(database: Database) -> None:
    with database.open() as manager:
        one, two = manager.create_session("a"), manager.create_session("a")
        empty = manager.create_session("a")
        for number in range(4):
            (one if number % 2 else two).save_checkpoint(f"n{number}", state={})
        assert [each.name for each in one.list_checkpoints()] == ["n3", "n1"]
        assert [each.name for each in two.list_checkpoints()] == ["n2", "n0"]
        assert {each.session_id for each in one.list_checkpoints()} == {one.id}
        assert empty.list_checkpoints() == []
        with pytest.raises(SessionNotFound):
            manager.get_session("no such session").list_checkpoints()
