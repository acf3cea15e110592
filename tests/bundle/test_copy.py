"""Sessions move between stores of any kind, and are what they were."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import apsw
import pytest

from holdfast.aio import AsyncSessionManager
from holdfast.conversations import Conversations, Draft
from holdfast.errors import (
    AgentExists,
    InvalidUrl,
    SchemaTooNew,
    SessionNotFound,
    StoreError,
    WorkspaceRefused,
)
from holdfast.stores import open_store
from tests.bundle.conftest import Open, state_digest, tree_digest, work
from tests.bundle.test_round_trip import digests, rows_of


@pytest.mark.row("T4")
def test_there_and_back_again_everything_is_as_it_was(
    open_at: Open, tmp_path: Path, postgres_url: str
) -> None:
    ours = open_at("a")
    session = work(ours)
    tree = tree_digest(ours.project_dir)
    steps: list[tuple[int, int]] = []
    done = lambda done, total: steps.append((done, total))  # noqa: E731
    there = ours.copy_to(postgres_url, progress=done)
    assert {one.session_id: one.outcome for one in there} == {
        session.id: "copied", "the plan": "copied"
    }  # fmt: skip
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    # Another directory has the server in common only: the files come from there.
    elsewhere = open_at("b", postgres_url)
    elsewhere.copy_to(elsewhere.project_dir / ".agents" / "sessions.db")
    theirs = open_at("b")
    assert rows_of(theirs, session.id) == rows_of(ours, session.id)
    found = theirs.get_session(session.id)
    assert digests(theirs, found) == digests(ours, session)
    assert theirs.verify().ok
    theirs.hold_session(session.id).rollback("feature")
    assert tree_digest(theirs.project_dir) == tree


def test_only_what_was_named_is_copied_and_looking_copies_nothing(
    open_at: Open, tmp_path: Path
) -> None:
    ours = open_at("a")
    session = work(ours)
    target = tmp_path / "target.db"
    [report] = ours.copy_to(target, [session.id[:13]], dry_run=True)
    assert (report.outcome, report.checkpoints, report.dry_run) == ("copied", 4, True)
    assert report.snapshots == 3
    assert not target.exists()
    ours.copy_to(target, [session.id])
    assert [one.outcome for one in ours.copy_to(target, dry_run=True)] == ["copied", "present"]
    with pytest.raises(SessionNotFound):
        ours.copy_to(target, ["nobody"])


def test_a_session_that_differs_there_is_left_alone(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    session = work(ours)
    target = tmp_path / "target.db"
    ours.copy_to(target)
    theirs = open_at("a", str(target))
    with theirs.resume_session(session.id) as held:
        held.save_checkpoint("theirs", state={})
    before = rows_of(theirs, session.id)
    outcomes = {one.session_id: one.outcome for one in ours.copy_to(target)}
    assert outcomes == {session.id: "different", "the plan": "present"}
    assert rows_of(theirs, session.id) == before


def test_a_store_is_not_copied_into_itself(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    work(ours)
    with pytest.raises(InvalidUrl, match="copy from"):
        ours.copy_to(ours.project_dir / ".agents" / "sessions.db")


def test_a_thread_that_was_copied_to_another_tenant_is_found_and_erased_there(
    open_at: Open, tmp_path: Path, postgres_url: str
) -> None:
    ours = open_at("a")
    Conversations(ours.store, "chat").change("talk", lambda _: Draft({"items": [1]}))
    ours.copy_to(postgres_url, ["talk"], tenant="acme")
    with open_store(postgres_url, tenant="acme") as store:
        theirs = Conversations(store, "chat")
        theirs.change(
            "talk", lambda last: Draft({"items": [*last.state["items"], 2]} if last else {})
        )
        theirs.change("new", lambda _: Draft({"items": [3]}))
        found = theirs.read("talk")
        assert found is not None
        assert found.state == {"items": [1, 2]}
        assert {one.id for one in theirs.threads()} == {"new", "talk"}
        theirs.erase("talk")
        assert [one.id for one in theirs.threads()] == ["new"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_one_tenant_is_not_copied_into_another_of_the_same_database(
    open_at: Open, kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    ours = open_at("a", url)
    session = work(ours)
    with pytest.raises(AgentExists, match=r"another tenant: .* Nothing of it was stored; give it"):
        ours.copy_to(url or ours.store.url, [session.id], tenant="other")
    assert open_at("a", url, tenant="other").list_sessions() == []


@pytest.mark.parametrize("url", ["mysql://x/y", "postgresql://x:no-port/", "sqlite:x"])
def test_a_wrong_url_is_refused(url: str, open_at: Open) -> None:
    with pytest.raises(InvalidUrl):
        open_at("a").copy_to(url)


def test_a_target_with_a_newer_schema_is_left_alone(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    session = work(ours)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    target = tmp_path / "new.db"
    open_at("a", str(target)).close()
    with apsw.Connection(str(target)) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (99, 'later', 'now')")
    connection.close()
    before = target.read_bytes()
    with pytest.raises(SchemaTooNew):
        ours.copy_to(target)
    with pytest.raises(StoreError):
        open_at("a", str(target)).import_bundle(bundle)
    assert target.read_bytes() == before


def test_copies_share_what_is_there_already(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    session = work(ours)
    fork = session.fork("save 3")
    target = tmp_path / "target.db"
    ours.copy_to(target, [session.id])
    theirs = open_at("a", str(target))
    before = theirs.store.total_bytes()
    ours.copy_to(target, [fork.id])
    assert theirs.store.total_bytes() == before
    there = theirs.get_session(fork.id).latest_checkpoint()
    assert state_digest(there.state) == state_digest(session.get_checkpoint("save 3").state)


@pytest.mark.parametrize("here", ["a", "b", "c"])
def test_files_go_to_the_project_whose_database_it_is(
    open_at: Open, tmp_path: Path, here: str
) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = work(ours)
    tree = tree_digest(ours.project_dir)
    # Whichever of them the copy is made in, or a third one: its own private store stays as it is.
    between = open_at(here, str(tmp_path / "a" / ".agents" / "sessions.db"))
    target = tmp_path / "b" / ".agents" / "sessions.db"
    [_, looked] = between.copy_to(target, dry_run=True)
    [_, report] = between.copy_to(target)
    assert (report.outcome, report.snapshots) == (looked.outcome, looked.snapshots) == ("copied", 3)
    assert not (tmp_path / "c" / ".agents").exists()
    assert theirs.verify().ok
    assert [one.outcome for one in between.copy_to(target)] == ["present", "present"]
    found = theirs.latest_unfinished_session()
    assert found.id == session.id
    theirs.hold_session(found.id).rollback("feature")
    assert tree_digest(theirs.project_dir) == tree


def test_files_that_the_target_has_damaged_are_found_when_they_arrive(open_at: Open) -> None:
    ours, theirs = open_at("a"), open_at("b")
    for manager in (ours, theirs):
        (manager.project_dir / "code.py").write_text("print(1)\n")
        manager.create_session("tester").save_checkpoint("one", state={})
    [blob] = [
        one
        for one in (theirs.project_dir / ".agents" / "workspace.git" / "objects").rglob("*")
        if one.is_file() and zlib.decompress(one.read_bytes()).endswith(b"print(1)\n")
    ]
    blob.chmod(0o600)
    blob.write_bytes(zlib.compress(b"blob 9\0print(2)\n"))
    [report] = ours.copy_to(theirs.store.url)
    assert (report.outcome, [one.code for one in report.damaged]) == (
        "damaged",
        ["snapshot_corrupt"],
    )
    assert len(theirs.list_sessions()) == 1


@pytest.mark.parametrize("side", ["source", "target"])
def test_where_no_project_can_be_told_nothing_is_copied(
    open_at: Open, tmp_path: Path, side: str
) -> None:
    ours, theirs = open_at("a"), open_at("b")
    work(ours)
    ours.copy_to(tmp_path / "loose.db")
    if side == "source":
        manager, target = open_at("b", str(tmp_path / "loose.db")), tmp_path / "new.db"
    else:
        manager, target = ours, theirs.project_dir / "new.db"
    for dry_run in (True, False):
        with pytest.raises(
            WorkspaceRefused, match=r"--project-dir.* export and import.*--no-files"
        ):
            manager.copy_to(target, dry_run=dry_run)
    assert not target.exists()
    assert [one.outcome for one in manager.copy_to(target, files=False)] == ["copied", "copied"]


def test_the_twins_do_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        async with await AsyncSessionManager.open(project_dir=tmp_path / "a") as ours:
            session = await ours.create_session("tester")
            await session.save_checkpoint("one", state={"n": 1})
            report = await ours.export_session(session.id, tmp_path / "s.tar")
            [copied] = await ours.copy_to(tmp_path / "c.db")
            assert copied.outcome == "copied"
            async with await AsyncSessionManager.open(project_dir=tmp_path / "b") as theirs:
                imported = await theirs.import_bundle(report.path, restore=True)
                assert imported.outcome == "imported"
                there = await theirs.get_session(session.id)
                assert (await there.latest_checkpoint()).state == {"n": 1}

    asyncio.run(scenario())
