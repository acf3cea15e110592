"""What a save point holds, how it is named, where readers find it, and how long it stays."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from holdfast import CheckpointManager, SessionManager
from holdfast.errors import (
    AmbiguousReference,
    CheckpointNotFound,
    CheckpointProtected,
    InvalidConfiguration,
    InvalidIdentifier,
    StoreClosed,
    StoreUnavailable,
)
from holdfast.manager import SavePoint, SyncCheckpointManager, read_schema
from holdfast.sessions import Session
from tests.cli.conftest import CommandLine
from tests.manager.conftest import complete, files_of, folders
from tests.workspace.pictures import git, make_repository


def document_of(project: Path, point: SavePoint) -> Any:
    path = project / ".claude" / "checkpoints" / point.id / "metadata.json"
    return json.loads(path.read_text(encoding="utf-8"))


def prune_all(project: Path) -> None:
    """Remove whatever any rule of age or size may remove."""
    with SessionManager.open(project_dir=project) as sessions:
        sessions.prune(max_age=timedelta(0), max_bytes=1)


@pytest.mark.row("S4-01")
@pytest.mark.parametrize("kind", [str, Path], ids=["str", "Path"])
def test_any_directory_of_the_project_leads_to_its_top(project: Path, kind: type) -> None:
    with SyncCheckpointManager(project) as top:
        saved = top.create_checkpoint("here")
    for inside in (project, project / "src"):
        with SyncCheckpointManager(kind(inside)) as manager:
            assert manager.project_dir == project
            assert [one.id for one in manager.list_checkpoints()] == [saved.id]
    with pytest.raises(InvalidConfiguration):
        SyncCheckpointManager(project / "nowhere")


@pytest.mark.row("S4-02")
def test_a_coroutine_returns_the_save_point_and_the_twin_does_so_at_once(project: Path) -> None:
    async def scenario() -> tuple[SavePoint, list[SavePoint]]:
        async with CheckpointManager(project) as manager:
            made = manager.create_checkpoint(
                name="before-refactor", description="State before major refactoring"
            )
            assert inspect.isawaitable(made)
            return await made, await manager.list_checkpoints()

    saved, listed = asyncio.run(scenario())
    assert saved.name == "before-refactor"
    assert saved.description == "State before major refactoring"
    assert saved.git_state["branch"] == "main"
    assert saved.feature_state["current"] == "auth-003"
    assert saved.context == {"session_number": None, "token_usage": None}
    assert listed == [saved]
    twin = CheckpointManager(project).sync
    assert twin.get_checkpoint(saved.id) == saved
    again = twin.create_checkpoint("before-refactor")
    assert [one.id for one in twin.list_checkpoints()] == [again.id, saved.id]
    twin.close()


@pytest.mark.row("S4-02")
def test_the_twins_have_the_same_methods() -> None:
    inner = {
        "save_guarded", "keep_guarded", "end_guarded", "fall_back", "report_failure", "log_failure",
    }  # fmt: skip
    plain = {name for name in dir(SyncCheckpointManager) if not name.startswith("_")} - inner
    waited = {name for name in dir(CheckpointManager) if not name.startswith("_")} - {"sync"}
    assert plain == waited
    for name in plain:
        one, two = getattr(SyncCheckpointManager, name), getattr(CheckpointManager, name)
        if not isinstance(one, property):
            assert inspect.signature(one).parameters == inspect.signature(two).parameters, name


@pytest.mark.row("S4-05")
def test_git_state_names_every_kind_of_dirty_file_and_their_content_comes_back(
    project: Path, manager: SyncCheckpointManager
) -> None:
    (project / "src" / "app.ts").write_text("changed\n")
    (project / "staged.bin").write_bytes(bytes(range(256)))
    git(project, "add", "staged.bin")
    git(project, "mv", "tool.sh", "renamed.sh")
    (project / "renamed.sh").chmod(0o755)
    (project / "claude-progress.txt").unlink()
    (project / "untracked ü").symlink_to("src/app.ts")
    before, index = files_of(project), git(project, "ls-files", "-s")
    saved = manager.create_checkpoint("dirty")
    assert saved.git_state == {
        "commit_hash": git(project, "rev-parse", "HEAD"),
        "branch": "main",
        "dirty_files": [
            "claude-progress.txt", "renamed.sh", "src/app.ts", "staged.bin", "tool.sh", "untracked ü",
        ],
    }  # fmt: skip
    git(project, "reset", "-q", "--hard")
    git(project, "clean", "-qfd", "-e", ".claude", "-e", ".agents")
    manager.rollback(saved.id)
    assert files_of(project) == before
    assert git(project, "ls-files", "-s") == index


@pytest.mark.row("S4-06", "S4-12")
def test_the_feature_list_is_copied_and_read(project: Path, manager: SyncCheckpointManager) -> None:
    saved = manager.create_checkpoint("with")
    assert saved.feature_state == {
        "current": "auth-003",
        "completed": ["auth-001", "auth-002"],
        "snapshot_path": f".claude/checkpoints/{saved.id}/feature_list.json",
    }
    source = project / "feature_list.json"
    assert (project / str(saved.feature_state["snapshot_path"])).read_bytes() == source.read_bytes()
    source.unlink()
    missing = manager.create_checkpoint("without")
    assert missing.feature_state == {"current": None, "completed": [], "snapshot_path": None}
    assert manager.get_state(missing.id)["features"]["content"] is None
    assert not (project / ".claude/checkpoints" / missing.id / "feature_list.json").exists()


def test_a_feature_list_that_leads_out_of_the_project_is_not_followed(
    project: Path, manager: SyncCheckpointManager, tmp_path: Path
) -> None:
    (tmp_path / "secret.json").write_text('[{"id": "x", "passes": true}]')
    (project / "feature_list.json").unlink()
    (project / "feature_list.json").symlink_to(tmp_path / "secret.json")
    assert manager.create_checkpoint("link").feature_state["completed"] == []


@pytest.mark.row("S4-07")
def test_the_progress_file_is_stored_and_can_be_another_one(project: Path) -> None:
    (project / "claude-progress.md").write_bytes(b"# more\r\n\xff")
    with SyncCheckpointManager(project) as manager:
        saved = manager.create_checkpoint("usual")
        folder = project / ".claude" / "checkpoints" / saved.id
        for name in ("claude-progress.txt", "claude-progress.md"):
            content = (project / name).read_bytes()
            assert (folder / name).read_bytes() == content
            assert manager.get_state(saved.id)["progress_files"][name] == content
    (project / "notes").mkdir()
    (project / "notes" / "diary.txt").write_text("dear diary\n")
    with SyncCheckpointManager(project, progress="notes/diary.txt") as manager:
        saved = manager.create_checkpoint("mine")
        assert list(manager.get_state(saved.id)["progress_files"]) == ["notes/diary.txt"]
        assert (project / ".claude/checkpoints" / saved.id / "diary.txt").exists()
    (project / ".agents" / "holdfast.toml").write_text('[manager]\nprogress = "tool.sh"\n')
    with SyncCheckpointManager(project) as manager:
        saved = manager.create_checkpoint("by settings")
        assert list(manager.get_state(saved.id)["progress_files"]) == ["tool.sh"]
    for outside in ("../x", "/etc/passwd", "", "**progress.md", "notes/a**"):
        (project / ".agents" / "holdfast.toml").write_text(f'[manager]\nprogress = "{outside}"\n')
        with pytest.raises(InvalidConfiguration):
            SyncCheckpointManager(project)


@pytest.mark.row("S4-08")
def test_the_context_is_what_somebody_reported_and_nothing_else(
    manager: SyncCheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def context(**told: Any) -> tuple[int | None, int | None]:
        found = manager.create_checkpoint("x", **told).context
        return found["session_number"], found["token_usage"]

    assert context() == (None, None)
    monkeypatch.setenv("HOLDFAST_SESSION_NUMBER", "5")
    monkeypatch.setenv("HOLDFAST_TOKEN_USAGE", "45000")
    assert context() == (5, 45000)
    manager.add_provider("tracker", lambda: {"token_usage": 46000, "session_number": "no number"})
    assert context() == (5, 46000)
    assert context(session_number=7, token_usage=0) == (7, 0)
    monkeypatch.setenv("HOLDFAST_TOKEN_USAGE", "many")
    with pytest.raises(InvalidConfiguration, match="HOLDFAST_TOKEN_USAGE"):
        context()
    with pytest.raises(InvalidIdentifier):
        context(token_usage=-1)


@pytest.mark.row("S4-09", "S4-11")
def test_the_document_has_exactly_the_documented_structure(
    project: Path, manager: SyncCheckpointManager
) -> None:
    check = jsonschema.Draft202012Validator(read_schema())
    check.check_schema(read_schema())
    before = datetime.now(UTC) - timedelta(seconds=1)
    full = manager.create_checkpoint(
        "before-refactor", description="d", session_number=5, token_usage=45000
    )
    (project / "feature_list.json").unlink()
    bare = manager.create_checkpoint()
    for point in (full, bare):
        document = document_of(project, point)
        check.validate(document)
        assert document == point.to_document()
        moment = datetime.fromisoformat(document["timestamp"])
        assert moment.utcoffset() == timedelta(0)
        assert before <= moment <= datetime.now(UTC) + timedelta(seconds=1)
    assert list(document_of(project, full)) == [
        "id", "name", "description", "timestamp", "git_state", "feature_state", "context",
    ]  # fmt: skip
    assert document_of(project, full)["context"] == {"session_number": 5, "token_usage": 45000}
    for broken in ({**full.to_document(), "more": 1}, {**full.to_document(), "timestamp": "today"}):
        with pytest.raises(jsonschema.ValidationError):
            check.validate(broken)


@pytest.mark.row("S4-10")
def test_ids_are_readable_distinct_and_accepted_everywhere(
    project: Path, manager: SyncCheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
    monkeypatch.setattr("holdfast.sessions.saving.utc_now", lambda: moment)
    made = [manager.create_checkpoint("same name") for _ in range(2)]
    ids = [one.id for one in made]
    assert ids == ["checkpoint-20250115-103000", "checkpoint-20250115-103000-2"]
    for point in made:
        assert manager.get_checkpoint(point.id) == point
        assert manager.get_checkpoint(point.checkpoint_id) == point
        assert manager.rollback(point.id, dry_run=True).checkpoint == point
    with pytest.raises(AmbiguousReference, match=ids[0]):
        manager.rollback("same name")
    manager.delete(ids[1])
    assert [one.id for one in manager.list_checkpoints()] == ids[:1]
    with pytest.raises(CheckpointNotFound):
        manager.get_checkpoint(ids[1])


@pytest.mark.row("S4-10")
def test_the_command_line_knows_the_ids(
    project: Path, manager: SyncCheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [manager.create_checkpoint(name).id for name in ("one", "two")]
    with SessionManager.open(project_dir=project) as sessions:
        sessions.create_session("another, more recent one").close()
    monkeypatch.chdir(project / "src")
    cli = CommandLine(project)
    assert cli.json("show", ids[0])["checkpoint"]["name"] == "one"
    assert cli("diff", *ids).code in (0, 1)
    (project / "src" / "app.ts").write_text("later\n")
    cli.json("rollback", ids[0], "--yes")
    assert (project / "src" / "app.ts").read_text() == "export {}\n"
    assert cli("show", "checkpoint-19990101-000000").code == 3


@pytest.mark.row("S4-13")
def test_readers_find_small_files_that_neither_git_nor_snapshots_see(
    project: Path, manager: SyncCheckpointManager
) -> None:
    saved = manager.create_checkpoint("one")
    folder = project / ".claude" / "checkpoints" / saved.id
    assert {path.name for path in folder.iterdir()} == {
        "metadata.json", "feature_list.json", "claude-progress.txt", ".holdfast",
    }  # fmt: skip
    assert git(project, "status", "--porcelain", "--untracked-files=all") == ""
    second = manager.create_checkpoint("two")
    assert second.git_state["dirty_files"] == []
    with SessionManager.open(project_dir=project) as sessions:
        record = sessions.get_checkpoint(second.checkpoint_id)
        held = sessions.workspace.files(str(record.workspace_commit))
    assert not [path for path in held if path.startswith((".claude/checkpoints", ".agents"))]


@pytest.mark.row("S4-13")
def test_progress_files_of_one_name_have_a_copy_each(project: Path) -> None:
    for name in "ab":
        (project / name).mkdir()
        (project / name / "progress.md").write_text(f"of {name}")
    with SyncCheckpointManager(project, progress="*/progress.md") as manager:
        folder = project / ".claude" / "checkpoints" / manager.create_checkpoint("one").id
    for name in "ab":
        assert (folder / f"{name}__progress.md").read_text() == f"of {name}"


@pytest.mark.row("S4-13", "S4-12")
def test_sessions_of_one_project_do_not_share_a_folder_by_chance(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "holdfast.sessions.saving.label_for", lambda _: "checkpoint-20260102-030405"
    )
    points = {}
    listed = project / "feature_list.json"
    with ExitStack() as stack:
        for name in (None, "a", "b"):
            manager = stack.enter_context(SyncCheckpointManager(project, session_id=name))
            listed.write_text(json.dumps([{"id": f"of {name}"}]))
            points[name] = manager.create_checkpoint("one")
            jsonschema.validate(points[name].to_document(), read_schema())
        assert {one.id for one in points.values()} == {"checkpoint-20260102-030405"}
        assert len(folders(project)) == 3
        for name, point in points.items():
            shown = project / str(point.feature_state["snapshot_path"])
            assert json.loads(shown.read_text()) == [{"id": f"of {name}"}]
        manager.delete(points["b"].id)
        assert len(folders(project)) == 2


def test_a_lost_folder_is_made_again_and_foreign_ones_are_left_alone(
    project: Path, manager: SyncCheckpointManager
) -> None:
    first = manager.create_checkpoint("one")
    home = project / ".claude" / "checkpoints"
    content = {path.name: path.read_bytes() for path in (home / first.id).iterdir()}
    for path in (home / first.id).iterdir():
        path.unlink()
    (home / first.id).rmdir()
    (home / "checkpoint-20200101-000000").mkdir()
    (home / "checkpoint-20200101-000000" / "metadata.json").write_text("{}")
    second = manager.create_checkpoint("two")
    assert {path.name: path.read_bytes() for path in (home / first.id).iterdir()} == content
    assert folders(project) == {first.id, second.id, "checkpoint-20200101-000000"}


def test_a_folder_that_leads_elsewhere_is_not_written_to(
    project: Path, manager: SyncCheckpointManager, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / ".claude").symlink_to(outside)
    saved = manager.create_checkpoint("one")
    assert manager.list_checkpoints() == [saved]
    assert list(outside.iterdir()) == []


@pytest.mark.row("S4-22", "S4-25", "S4-23")
def test_each_type_keeps_as_many_as_it_should(
    project: Path, manager: SyncCheckpointManager
) -> None:
    manual = manager.create_checkpoint("manual")
    automatic = [manager.create_checkpoint(f"a{n}", type="automatic") for n in range(6)]
    session = [manager.create_checkpoint(f"s{n}", type="session") for n in range(4)]
    left = {one.id for one in manager.list_checkpoints()}
    expected = {manual.id, *(one.id for one in (*automatic[1:], *session[1:]))}
    assert left == expected
    assert folders(project) == expected
    assert [one.name for one in manager.list_checkpoints(type="session")] == ["s3", "s2", "s1"]
    prune_all(project)
    assert manual.id in {one.id for one in manager.list_checkpoints()}
    manager.delete(manual.id)
    assert manual.id not in {one.id for one in manager.list_checkpoints()}
    with pytest.raises(InvalidIdentifier, match="automatic, manual, feature, session"):
        manager.create_checkpoint("x", type="weekly")  # type: ignore[arg-type]


@pytest.mark.row("S4-22")
def test_rollbacks_and_failed_guards_take_none_of_the_last_five(
    project: Path, manager: SyncCheckpointManager
) -> None:
    manager.create_checkpoint("base")
    saved = [manager.create_checkpoint(f"a{n}", type="automatic").name for n in range(5)]
    for n in range(3):
        (project / "src" / "app.ts").write_text(f"{n}\n")
        manager.rollback("base")
    assert [one.name for one in manager.list_checkpoints(type="automatic")] == saved[::-1]
    for n in range(2):
        with pytest.raises(ZeroDivisionError), manager.guard(f"g{n}"):
            (project / "src" / "app.ts").write_text(f"{1 // 0}\n")
    listed = [one.name for one in manager.list_checkpoints(type="automatic")]
    assert listed == ["g1", "g0", "a4", "a3", "a2"]
    assert [one.name for one in manager.list_checkpoints(type="manual")] == ["base"]


@pytest.mark.row("S4-24")
def test_a_feature_that_becomes_complete_is_kept_for_good(
    project: Path, manager: SyncCheckpointManager
) -> None:
    manager.create_checkpoint("start")
    assert manager.list_checkpoints(type="feature") == []
    complete(project, "auth-003")
    after = manager.create_checkpoint("later")
    (made,) = manager.list_checkpoints(type="feature")
    assert made.name == "feature-auth-003"
    assert made.feature_state["completed"] == ["auth-001", "auth-002", "auth-003"]
    assert [one.id for one in manager.list_checkpoints()][:2] == [after.id, made.id]
    manager.create_checkpoint("nothing new")
    assert len(manager.list_checkpoints(type="feature")) == 1
    prune_all(project)
    with pytest.raises(CheckpointProtected, match="force"):
        manager.delete(made.id)
    assert made.id in folders(project)
    manager.delete(made.id, force=True)
    assert made.id not in folders(project)


@pytest.mark.row("S4-24")
def test_a_guard_notices_the_feature_that_its_block_completed(
    project: Path, manager: SyncCheckpointManager
) -> None:
    with manager.guard("work"):
        complete(project, "auth-003")
    assert [one.name for one in manager.list_checkpoints()] == ["feature-auth-003", "work"]


@pytest.mark.row("S4-12")
def test_names_that_cannot_be_stored_cost_no_checkpoint(
    project: Path, manager: SyncCheckpointManager
) -> None:
    listed = project / "feature_list.json"
    written = json.dumps([{"title": "half \ud83d", "passes": False}, {"id": "a\0b"}])
    listed.write_text(written)
    assert manager.create_checkpoint("one").feature_state["current"] == "half \\ud83d"

    @manager.guard("work")
    def work() -> str:
        listed.write_text(written.replace("false", "true"))
        return "the result"

    assert work() == "the result"
    (made,) = manager.list_checkpoints(type="feature")
    assert made.name == "feature-half \\ud83d"
    manager.rollback("one")
    assert listed.read_text() == written


@pytest.mark.row("S4-18")
@pytest.mark.skipif(sys.platform != "linux", reason="names are text there")
def test_a_progress_file_may_have_a_name_that_is_no_text(
    project: Path, manager: SyncCheckpointManager
) -> None:
    path = os.path.join(os.fsencode(project), b"claude-progress.\xe9")
    Path(os.fsdecode(path)).write_text("step 1")
    saved = manager.create_checkpoint("one")
    assert manager.get_state(saved.id)["progress_files"]["claude-progress.\\xe9"] == b"step 1"
    Path(os.fsdecode(path)).write_text("step 2")
    manager.rollback(saved.id)
    assert Path(os.fsdecode(path)).read_text() == "step 1"


def test_a_block_that_went_well_is_not_failed_by_what_cannot_be_saved_after_it(
    project: Path, manager: SyncCheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    @manager.guard("work")
    def work() -> str:
        complete(project, "auth-003")
        monkeypatch.setattr(Session, "save_checkpoint", refuse)
        return "the result"

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is \udcff full")

    assert work() == "the result"
    with SessionManager.open(project_dir=project) as sessions:
        (line,) = sessions.get_session(manager.session_id).logs(level="warning")
    assert line.message == "completed features were not looked for: the disk is \\udcff full"


@pytest.mark.row("S4-26")
def test_deleting_frees_space_and_leaves_what_others_share(
    project: Path, manager: SyncCheckpointManager
) -> None:
    (project / "shared.bin").write_bytes(os.urandom(200_000))
    kept = manager.create_checkpoint("kept")
    (project / "large.bin").write_bytes(os.urandom(2_000_000))
    large = manager.create_checkpoint("large")
    (project / "large.bin").unlink()
    manager.create_checkpoint("without it")
    with SessionManager.open(project_dir=project) as sessions:
        before = sessions.file_usage().bytes
        manager.delete(large.id)
        sessions.gc()
        assert sessions.file_usage().bytes < before - 1_900_000
    content = (project / "shared.bin").read_bytes()
    (project / "shared.bin").unlink()
    manager.rollback(kept.id)
    assert (project / "shared.bin").read_bytes() == content


@pytest.mark.row("S4-29")
def test_the_lifecycle_of_a_session_makes_the_right_types(
    project: Path, manager: SyncCheckpointManager
) -> None:
    (project / "feature_list.json").rename(project / "later.json")
    first = manager.start_session(session_number=1)
    assert (first.mode, first.session_number, first.checkpoint.type) == ("INIT", 1, "session")
    (project / "later.json").rename(project / "feature_list.json")
    saved = manager.create_checkpoint("within")
    assert saved.context["session_number"] == 1, "remembered until the session ends"
    assert manager.end_session(token_usage=9).type == "automatic"
    assert manager.create_checkpoint("between").context["session_number"] is None
    second = manager.start_session()
    assert (second.mode, second.session_number) == ("CONTINUE", None)
    complete(project, "auth-003")
    done = manager.feature_complete(token_usage=10)
    assert (done.type, done.name) == ("feature", "feature-auth-003")
    named = manager.feature_complete("auth-099", description="by hand")
    assert (named.name, named.description) == ("feature-auth-099", "by hand")


@pytest.mark.row("S4-30")
def test_providers_are_asked_and_one_that_fails_costs_no_checkpoint(
    manager: SyncCheckpointManager,
) -> None:
    asked = []

    def tracker() -> dict[str, Any]:
        asked.append(1)
        return {"token_usage": 45000, "plan": ["parse", "build"]}

    def broken() -> Any:
        raise RuntimeError("the tracker is not there")

    manager.add_provider("tracker", tracker)
    manager.add_provider("broken", broken)
    manager.add_provider("unstorable", lambda: {"connection": object()})
    saved = manager.create_checkpoint("asked")
    state = manager.get_state(saved.id)
    assert asked == [1]
    assert state["providers"] == {"tracker": {"token_usage": 45000, "plan": ["parse", "build"]}}
    assert saved.context["token_usage"] == 45000
    assert state["provider_errors"]["broken"]["message"] == "the tracker is not there"
    assert "$.value.connection" in state["provider_errors"]["unstorable"]["message"]
    for name in ("tracker", "broken", "unstorable"):
        manager.remove_provider(name)
    assert manager.get_state(manager.create_checkpoint("later").id)["providers"] == {}
    with pytest.raises(InvalidIdentifier):
        manager.add_provider("none", None)  # type: ignore[arg-type]


def test_nothing_is_created_by_looking(project: Path) -> None:
    with SyncCheckpointManager(project) as manager:
        assert manager.list_checkpoints() == []
        for call in (manager.rollback_to_latest, manager.undo):
            with pytest.raises(CheckpointNotFound, match="no checkpoint yet"):
                call()
        with pytest.raises(CheckpointNotFound):
            manager.rollback("x")
    assert not (project / ".agents").exists()
    with pytest.raises(StoreClosed):
        manager.create_checkpoint("late")


def test_processes_share_a_project_and_wait_for_each_other(project: Path) -> None:
    program = (
        "import sys\n"
        "from holdfast.manager import SyncCheckpointManager\n"
        "with SyncCheckpointManager(sys.argv[1]) as manager:\n"
        "    for n in range(2): manager.create_checkpoint(f'{sys.argv[2]}-{n}')\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(project), name]) for name in "ab"
    ]
    assert [process.wait(120) for process in running] == [0, 0]
    with SyncCheckpointManager(project) as manager:
        names = {one.name for one in manager.list_checkpoints()}
    assert names == {f"{name}-{n}" for name in "ab" for n in range(2)}


def test_managers_of_one_process_wait_for_each_other(project: Path) -> None:
    at_once: list[int] = []
    saving: set[int] = set()

    def save(manager: SyncCheckpointManager) -> list[str]:
        def look() -> None:
            saving.add(id(manager))
            time.sleep(0.1)
            at_once.append(len(saving))
            saving.discard(id(manager))

        manager.add_provider("look", look)
        with manager.guard("risky") as guarded:
            pass
        return [manager.create_checkpoint("same").name, guarded.name]

    with SyncCheckpointManager(project) as one, SyncCheckpointManager(project / "src") as two:
        one.create_checkpoint("start")
        complete(project, "auth-003")
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(save, (one, two))) == [["same", "risky"]] * 2
        names = [point.name for point in one.list_checkpoints()]
    assert set(at_once) == {1}
    assert sorted(names) == ["feature-auth-003", "risky", "risky", "same", "same", "start"]


def test_projects_that_share_a_database_keep_their_own_checkpoints(tmp_path: Path) -> None:
    database = tmp_path / "shared.db"
    for name in ("one", "two"):
        make_repository(tmp_path / name)
        with SyncCheckpointManager(tmp_path / name, url=database) as manager:
            manager.create_checkpoint(name)
            assert [point.name for point in manager.list_checkpoints()] == [name]


@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_any_store_will_do(project: Path, kind: str, request: pytest.FixtureRequest) -> None:
    url = "memory:" if kind == "memory" else request.getfixturevalue("postgres_url")
    with SyncCheckpointManager(project, url=url) as manager:
        assert manager.list_checkpoints() == []
        saved = manager.create_checkpoint("before")
        before = files_of(project)
        (project / "src" / "app.ts").write_text("later\n")
        assert manager.rollback_to_latest().checkpoint == saved
        assert files_of(project) == before
        manager.undo()
        assert (project / "src" / "app.ts").read_text() == "later\n"
        assert folders(project) == {saved.id}
