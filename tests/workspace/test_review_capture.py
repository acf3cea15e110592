"""What a capture takes, what it leaves and says so, and what it never touches."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import SessionManager, Workspace
from holdfast.errors import WorkspaceRefused
from holdfast.workspace.base import Limits, Skipped
from holdfast.workspace.references import References
from tests.workspace.children import project_of_nobody, run_python
from tests.workspace.pictures import commit_all, git, make_repository


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    return root


# Databases --------------------------------------------------------------------------------------


def test_the_store_among_the_files_is_neither_captured_nor_put_back(root: Path) -> None:
    with SessionManager.open(str(root / "state.db"), project_dir=root) as manager:
        session = manager.create_session("x", session_id="s")
        base = session.save_checkpoint("base", state={"n": 0})
        assert base.workspace_commit is not None
        assert Workspace(root).files(base.workspace_commit) == ["a.txt"]
        (root / "a.txt").write_text("two\n")
        session.save_checkpoint("more", state={"n": 1})
        result = session.rollback("base")
        assert result.files is not None
        assert [one.path for one in result.files.changes] == ["a.txt"]
        session.save_checkpoint("after", state={"n": 2})
    with SessionManager.open(str(root / "state.db"), project_dir=root) as manager:
        names = {one.name for one in manager.get_session("s").list_checkpoints()}
    assert {"base", "more", "after"} <= names


@pytest.mark.parametrize(
    "name", ["state.db", "state.db-wal", "state.db-shm", "state.db-journal", "state.db.backup-v1"]
)
def test_databases_handed_in_are_left_alone(root: Path, name: str) -> None:
    (root / name).write_text("precious")
    (root / "state.db.txt").write_text("notes")
    workspace = Workspace(root, never=[root / "state.db"])
    taken = Workspace(root).snapshot()
    assert name in Workspace(root).files(taken.commit)
    (root / name).write_text("newer")
    assert workspace.files(workspace.snapshot().commit) == ["a.txt", "state.db.txt"]
    report = workspace.restore(taken.commit)
    assert (root / name).read_text() == "newer"
    assert [one.path for one in report.kept] == [name]


@pytest.mark.parametrize("name", ["sessions.db", "sessions.db-wal", "workspace.git/HEAD"])
def test_no_rule_opens_the_stores_of_inner_projects(root: Path, name: str) -> None:
    (root / ".gitignore").write_text("!.agents\n!*.db*\n!**/workspace.git/\n")
    inner = root / "deep" / "inner" / ".agents" / name
    inner.parent.mkdir(parents=True)
    inner.write_text("theirs")
    workspace = Workspace(root)
    assert not [one for one in workspace.files(workspace.snapshot().commit) if "agents" in one]
    relative = str(inner.relative_to(root))
    assert "agents" not in str(workspace.files(workspace.snapshot([relative]).commit))


# Edits during a capture -------------------------------------------------------------------------


def test_an_edit_of_the_same_size_during_a_capture_is_found_by_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    file = root / "a.txt"
    keep = References.keep

    def edit_and_keep(self: References, *args: object, **named: object) -> None:
        looked = file.stat()
        with file.open("r+") as opened:
            opened.write("TWO\n")
        # Within the same second, as far as git can tell, and long before the index is in place.
        os.utime(file, ns=(looked.st_atime_ns, looked.st_mtime_ns))
        index = workspace.store_dir / "index.next"
        later = looked.st_mtime_ns + 5_000_000_000
        os.utime(index, ns=(later, later))
        keep(self, *args, **named)  # type: ignore[arg-type]

    file.write_text("two\n")
    monkeypatch.setattr(References, "keep", edit_and_keep)
    first = workspace.snapshot()
    monkeypatch.setattr(References, "keep", keep)
    assert workspace.read(first.commit, "a.txt") == b"two\n"
    assert workspace.read(workspace.snapshot().commit, "a.txt") == b"TWO\n"


@pytest.mark.parametrize("then", ["all", "grafted", "told"])
def test_an_edit_of_the_same_size_and_time_right_after_a_capture_is_found_by_the_next(
    root: Path, then: str
) -> None:
    workspace = Workspace(root)
    (root / "folder").mkdir()
    file = root / "folder" / "f"

    def write(content: str) -> None:
        # As builds do whose results are to be the same whenever they are made.
        file.write_text(content)
        os.utime(file, (1, 1))

    write("one")
    workspace.snapshot()
    # Most of these come within the same second, and what is saved does not depend on it.
    for number in range(4):
        content = f"{number:03}"
        write(content)
        if then == "grafted":
            workspace.snapshot(["folder/f"])
        saved = workspace.snapshot(["folder"] if then == "told" else None)
        assert workspace.read(saved.commit, "folder/f") == content.encode()
        # And without a look at it since.
        (root / "a.txt").write_text(content)
        assert workspace.read(workspace.snapshot().commit, "folder/f") == content.encode()


def test_a_damaged_index_is_made_anew(root: Path) -> None:
    workspace = Workspace(root)
    first = workspace.snapshot()
    index = workspace.store_dir / "index"
    looked = index.stat()
    with index.open("r+b") as opened:
        opened.write(b"\0" * looked.st_size)
    os.utime(index, ns=(looked.st_atime_ns, looked.st_mtime_ns))
    (root / "a.txt").write_text("three\n")
    second = workspace.snapshot()
    assert workspace.read(second.commit, "a.txt") == b"three\n"
    assert workspace.read(first.commit, "a.txt") == b"one\n"


_SHRINKING = """#!{python}
import os, signal, sys
names = sys.stdin.buffer.read() if "update-index" in sys.argv else None
if names is not None and b"log\\0" in names and "--add" in sys.argv:
    index = os.environ["GIT_INDEX_FILE"]
    open(index + ".lock", "w").close()
    open(os.path.join(os.environ["GIT_OBJECT_DIRECTORY"], "tmp_obj_half"), "w").close()
    os.kill(os.getpid(), signal.SIGBUS)
if names is not None:
    import subprocess
    sys.exit(subprocess.run([{git!r}, *sys.argv[1:]], input=names).returncode)
os.execv({git!r}, [{git!r}, *sys.argv[1:]])
"""


def test_a_file_that_shrinks_while_git_reads_it_is_listed_and_the_others_are_held(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = shutil.which("git")
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(_SHRINKING.format(python=sys.executable, git=git))
    program.chmod(0o755)
    for number in range(5):
        (root / f"{number}.txt").write_text(f"{number}")
    (root / "log").write_text("held")
    workspace = Workspace(root)
    workspace.snapshot()
    (root / "log").write_text("changing")
    (root / "a.txt").write_text("two")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    second = workspace.snapshot()
    monkeypatch.undo()
    assert second.skipped == (Skipped("log", "changed while it was read"),)
    assert workspace.read(second.commit, "a.txt") == b"two"
    assert "log" not in workspace.files(second.commit)
    assert not list(workspace.store_dir.rglob("tmp_obj*"))
    assert workspace.verify() == []
    assert workspace.read(workspace.snapshot().commit, "log") == b"changing"


# Names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["git~1", "a:b\\c", ".gitmodules", "Icon\r"])
def test_names_of_other_systems_are_captured_and_come_back(root: Path, name: str) -> None:
    (root / name).write_text("one")
    workspace = Workspace(root)
    first = workspace.snapshot()
    assert name in workspace.files(first.commit)
    (root / name).write_text("two")
    assert workspace.read(workspace.snapshot([name]).commit, name) == b"two"
    workspace.restore(first.commit)
    assert (root / name).read_text() == "one"


@pytest.mark.parametrize("name", [".GIT/f", "sub/.Git", ".g\u200cit"])
def test_what_git_would_take_for_its_own_is_listed_as_skipped(root: Path, name: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("x")
    workspace = Workspace(root)
    snapshot = workspace.snapshot()
    assert workspace.files(snapshot.commit) == ["a.txt"]
    assert [one.path for one in snapshot.skipped] == [name]
    assert [one.path for one in workspace.snapshot([name]).skipped] == [name]


def test_a_link_that_git_does_not_hold_is_listed_and_survives_a_restore(root: Path) -> None:
    (root / ".gitmodules").write_text("file")
    workspace = Workspace(root)
    first = workspace.snapshot()
    (root / ".gitmodules").unlink()
    (root / ".gitmodules").symlink_to("elsewhere")
    second = workspace.snapshot()
    assert ".gitmodules" not in workspace.files(second.commit)
    assert [one.path for one in second.skipped] == [".gitmodules"]
    report = workspace.restore(first.commit)
    assert [one.path for one in report.kept] == [".gitmodules"]
    assert os.readlink(root / ".gitmodules") == "elsewhere"


# Told paths -------------------------------------------------------------------------------------


def test_told_through_a_link_what_changed_behind_it_is_captured(root: Path) -> None:
    (root / "real").mkdir()
    (root / "real" / "f").write_text("one")
    (root / "real" / "g").write_text("one")
    (root / "link").symlink_to("real")
    workspace = Workspace(root)
    workspace.snapshot()
    (root / "real" / "f").write_text("second")
    assert workspace.read(workspace.snapshot(["link/f"]).commit, "real/f") == b"second"
    (root / "real" / "g").unlink()
    assert "real/g" not in workspace.files(workspace.snapshot(["link/g"]).commit)


@pytest.mark.parametrize(
    ("told", "new"),
    [
        ("ign/new.txt", "ign/new.txt"),
        ("ign", "ign/new.txt"),
        ("ign/forced.txt", "ign/forced.txt"),
        ("ign", "ign/forced.txt"),
        ("inner/new.txt", "inner/new.txt"),
        ("inner", "inner/new.txt"),
        (".", "inner/new.txt"),
        ("fresh/new.txt", "fresh/new.txt"),
        ("fresh", "fresh/new.txt"),
    ],
    ids=lambda one: one.replace("/", "-"),
)
def test_told_files_that_git_does_not_list_are_captured(root: Path, told: str, new: str) -> None:
    make_repository(root)
    (root / ".gitignore").write_text("ign/\n")
    (root / "ign").mkdir()
    (root / "ign" / "keep.txt").write_text("kept")
    make_repository(root / "inner")
    (root / "inner" / "old.txt").write_text("old")
    workspace = Workspace(root, limits=Limits(include=("ign/keep.txt", "ign/new.txt")))
    workspace.snapshot()
    if new.startswith("fresh"):
        make_repository(root / "fresh")
    (root / new).write_text("new")
    if "forced" in new:
        git(root, "add", "-f", new)
    assert new in workspace.files(workspace.snapshot([told]).commit)


def test_told_by_its_real_path_a_file_of_a_linked_project_is_captured(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(root)
    workspace = Workspace(tmp_path / "link")
    workspace.snapshot()
    (root / "a.txt").write_text("second")
    assert workspace.read(workspace.snapshot([root / "a.txt"]).commit, "a.txt") == b"second"


# Tracked although ignored -----------------------------------------------------------------------


@pytest.fixture
def forced(root: Path) -> Path:
    """A file that the repository tracks and a rule ignores."""
    make_repository(root)
    (root / ".gitignore").write_text("build/\n")
    (root / "build").mkdir()
    (root / "build" / "keep.mk").write_text("one")
    git(root, "add", "-f", "a.txt", ".gitignore", "build/keep.mk")
    git(root, "commit", "-q", "-m", "begin")
    return root / "build" / "keep.mk"


def remove(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()


@pytest.mark.parametrize(
    "take_away", [remove, lambda path: path.write_text("x" * 2000)], ids=["deleted", "too large"]
)
@pytest.mark.parametrize(
    "told", [None, ["build"], ["build/keep.mk"]], ids=["all", "folder", "file"]
)
def test_a_tracked_file_that_a_rule_ignores_is_captured_again_when_it_is_back(
    root: Path, forced: Path, take_away: Callable[[Path], object], told: list[str] | None
) -> None:
    workspace = Workspace(root, limits=Limits(max_file_bytes=1000))
    assert "build/keep.mk" in workspace.files(workspace.snapshot().commit)
    take_away(forced)
    for _ in range(2):
        without = workspace.snapshot()
        assert "build/keep.mk" not in workspace.files(without.commit)
        assert [one.path for one in without.skipped] == ["build/keep.mk"] * forced.exists()
    git(root, "checkout", "-q", ".")
    again = workspace.snapshot(told)
    assert workspace.read(again.commit, "build/keep.mk") == b"one"
    assert again.skipped == ()
    forced.write_text("ruined")
    workspace.restore(again.commit)
    assert forced.read_text() == "one"


def test_an_ignored_file_that_no_repository_tracks_any_more_is_left_out(
    root: Path, forced: Path
) -> None:
    workspace = Workspace(root)
    tracked = workspace.snapshot()
    git(root, "rm", "-q", "--cached", "build/keep.mk")
    forced.write_text("not for others")
    for _ in range(2):
        assert "build/keep.mk" not in workspace.files(workspace.snapshot().commit)
    report = workspace.restore(tracked.commit)
    assert forced.read_text() == "one"
    workspace.restore(report.safety)
    assert forced.read_text() == "not for others"


def test_what_a_nested_repository_tracks_is_captured_whatever_the_rules_around_it_say(
    root: Path,
) -> None:
    make_repository(root)
    (root / ".gitignore").write_text("*.log\n")
    make_repository(root / "inner")
    (root / "inner" / "one.log").write_text("one")
    commit_all(root / "inner")
    workspace = Workspace(root)
    both = ["inner/one.log", "inner/two.log"]
    assert both[:1] == logs(workspace)
    (root / "inner" / "two.log").write_text("two")
    commit_all(root / "inner")
    assert both == logs(workspace)
    (root / ".gitignore").write_text("*.log\n*.tmp\n")
    assert both == logs(workspace)


def logs(workspace: Workspace) -> list[str]:
    files = workspace.files(workspace.snapshot().commit)
    return [path for path in files if path.endswith(".log")]


def test_what_is_tracked_below_the_top_of_its_repository_is_captured_whatever_the_rules_say(
    root: Path,
) -> None:
    make_repository(root)
    (root / ".gitignore").write_text("dist/\n!packages/[v-x]eb/dist/\n")
    project = root / "packages" / "web"
    (project / "dist").mkdir(parents=True)
    (project / "dist" / "bundle.js").write_text("committed")
    (project / ".agents").mkdir()
    (project / ".agents" / "holdfast.toml").touch()
    git(root, "add", "packages/web/dist")
    workspace = Workspace(project)
    assert workspace.files(workspace.snapshot().commit) == ["dist/bundle.js"]


def test_names_that_git_reads_as_more_than_names_are_asked_about_like_others(root: Path) -> None:
    make_repository(root)
    (root / ".gitignore").write_text("*.log\n")
    names = [":(top)x.log", ":!x.log", "*.log", "-x.log"]
    for name in names:
        (root / name).write_text("x")
    (root / "folder").mkdir()
    (root / "folder" / "x.log").write_text("x")
    git(root, "add", "-f", "-A")
    (root / "folder" / "x.log").unlink()
    (root / "folder").rmdir()
    (root / "folder").symlink_to(root.parent)
    assert logs(Workspace(root)) == sorted(names)


# Closed directories -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o644, 0o200, 0], ids=oct)
@pytest.mark.parametrize("told", [None, ["src/app"], ["src"]], ids=["all", "file", "folder"])
def test_what_is_in_a_closed_directory_is_listed_as_skipped_not_taken_for_unchanged(
    mode: int, told: list[str] | None
) -> None:
    with project_of_nobody() as root:
        run_python(
            f"""
source = root / "src"
source.mkdir()
(source / "app").write_text("good")
(root / "a").write_text("a")
os.utime(source, (1, 1))
workspace = Workspace(root)
def saved(told=None):
    snapshot = workspace.snapshot(told)
    assert workspace.details(snapshot.commit).empty == []
    return workspace.files(snapshot.commit), [(one.path, one.reason) for one in snapshot.skipped]
everything = (["a", "src/app"], [])
assert saved() == everything
(source / "app").write_text("ruined")
source.chmod({mode})
without = (["a"], [("src", "unreadable")])
assert saved({told}) == without
assert saved() == without
source.chmod(0o755)
assert saved() == everything
""",
            root,
            unprivileged=True,
        )


def test_what_lies_behind_a_link_into_a_closed_directory_is_gone_not_unreadable() -> None:
    with project_of_nobody() as root:
        run_python(
            """
(root / "real").mkdir()
(root / "real" / "f").write_text("f")
(root / "closed").mkdir()
workspace = Workspace(root)
workspace.snapshot()
(root / "real" / "f").unlink()
(root / "real").rmdir()
(root / "real").symlink_to("closed")
(root / "closed").chmod(0)
saved = workspace.snapshot()
assert workspace.files(saved.commit) == ["real"]
assert [one.path for one in saved.skipped] == ["closed"]
""",
            root,
            unprivileged=True,
        )


# A project below the top of its repository ------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        "dist/\n!packages/*/dist/\n",
        "dist/\n!/packages/web/dist/\n",
        "dist/\n!packages/**/dist/\n",
        "dist/\n!**/web/dist/\n",
        "dist/\n!pack*/w[a-f]b/dist/\n",
        "dist/\n!packages/[^a]eb/dist/\n",
        "dist/\n!p\\ackages/?eb/dist/\n",
        "dist/\n!packages/\\*/dist/\n",
        "dist/\n!packages/api/dist/\n",
        "packages/*/dist/*.js\n",
        "/packages/*/src\n!/packages/*/src\n",
        "packages/**/dist/**\n",
        "**/packages/**/web/**/x.js\n",
        "/*\n!/packages\n/packages/web/*\n!/packages/web/src\n",
        "**/" * 60 + "nothing\n" + "**/" * 60 + "dist/x.js\n",
    ],
)
def test_rules_above_a_project_ignore_what_git_ignores_by_them(root: Path, rules: str) -> None:
    make_repository(root)
    (root / ".gitignore").write_text(rules)
    project = root / "packages" / "web"
    files = ("dist/x.js", "dist/x.css", "src/x.js", "src/dist/x.js", "packages/web/x.js", "x.js")
    for name in files:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    (project / ".agents").mkdir()
    (project / ".agents" / "holdfast.toml").touch()
    workspace = Workspace(project)
    listed = git(project, "ls-files", "-o", "--exclude-standard", "--", *files).split()
    assert workspace.files(workspace.snapshot().commit) == sorted(listed)


# Nested repositories ----------------------------------------------------------------------------


def test_the_first_capture_of_a_nested_repository_goes_by_the_rules_of_the_next(root: Path) -> None:
    make_repository(root)
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text("/build/\n*.tmp\n")
    make_repository(root / "inner")
    files = (".agents/notes.md", ".claude/checkpoints/x", "build/x", "one.tmp", "f")
    for name in files:
        (root / "inner" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "inner" / name).write_text(name)
    workspace = Workspace(root)
    first = workspace.snapshot()
    captured = {f"inner/{name}" for name in files if name != "one.tmp"}
    assert captured == {path for path in workspace.files(first.commit) if path != "a.txt"}
    assert workspace.snapshot().commit == first.commit
    (root / "a.txt").write_text("two\n")
    assert [one.path for one in workspace.restore(first.commit).changes] == ["a.txt"]


def test_a_folder_that_became_a_repository_gives_what_it_tracks(root: Path) -> None:
    (root / ".gitignore").write_text("*.log\n")
    (root / "lib").mkdir()
    (root / "lib" / "f").write_text("f")
    workspace = Workspace(root)
    workspace.snapshot()
    make_repository(root / "lib")
    (root / "lib" / "kept.log").write_text("tracked")
    git(root / "lib", "add", "-f", "kept.log")
    assert logs(workspace) == ["lib/kept.log"]


@pytest.mark.parametrize("include", ["vendor", "vendor/lib", "vendor/lib/f.o"])
def test_repositories_in_an_included_folder_give_their_files(root: Path, include: str) -> None:
    (root / ".gitignore").write_text("vendor/\n*.o\n")
    make_repository(root / "vendor" / "lib")
    (root / "vendor" / "plain").write_text("plain")
    (root / "vendor" / "lib" / "f.o").write_text("f")
    (root / "vendor" / "lib" / "g").write_text("g")
    workspace = Workspace(root, limits=Limits(include=(include,)))
    all_files = ["vendor/lib/f.o", "vendor/lib/g", "vendor/plain"]
    wanted = [path for path in all_files if f"{path}/".startswith(f"{include}/")]
    for _ in range(2):
        files = workspace.files(workspace.snapshot().commit)
        assert [path for path in files if path.startswith("vendor/")] == wanted


def only_head(git_dir: Path) -> None:
    shutil.rmtree(git_dir)
    git_dir.mkdir()
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")


@pytest.mark.parametrize(
    "damage",
    [
        only_head,
        lambda git_dir: (git_dir / "index").write_bytes(b"DIRCgarbage"),
        lambda git_dir: (git_dir / "config").write_text("[core]\nrepositoryformatversion = 9\n"),
        lambda git_dir: (git_dir / "config").write_text("[core\n"),
    ],
    ids=["only HEAD", "index", "unknown format", "settings"],
)
@pytest.mark.parametrize("saved_before", [False, True])
def test_a_nested_repository_that_git_cannot_read_gives_its_files(
    root: Path, damage: Callable[[Path], object], saved_before: bool
) -> None:
    make_repository(root)
    (root / ".gitignore").write_text("*.log\n")
    inner = root / "fixtures" / "repository"
    make_repository(inner)
    (inner / "f").write_text("f")
    (inner / "kept.log").write_text("kept")
    commit_all(inner)
    workspace = Workspace(root)
    files = [".gitignore", "a.txt", "fixtures/repository/f"]
    if saved_before:
        files.append("fixtures/repository/kept.log")
        assert workspace.files(workspace.snapshot().commit) == files
    damage(inner / ".git")
    (root / ".gitignore").write_text("*.log\n*.tmp\n")
    assert workspace.files(workspace.snapshot().commit) == files


# Names of objects -------------------------------------------------------------------------------


def test_what_is_staged_in_a_repository_of_another_object_format_does_not_stop_a_save(
    root: Path,
) -> None:
    workspace = Workspace(root)
    first = workspace.snapshot()
    make_repository(root, "--object-format=sha256")
    (root / "b.txt").write_text("staged")
    git(root, "add", "b.txt")
    (root / "b.txt").write_text("newer")
    second = workspace.snapshot()
    assert workspace.files(second.commit) == ["a.txt", "b.txt"]
    assert second.git is not None
    assert second.git.staged == ("b.txt",)
    workspace.restore(first.commit)
    workspace.restore(second.commit, move_head=True)
    assert (root / "b.txt").read_text() == "newer"
    assert git(root, "show", ":b.txt") == "staged"


# A store from strangers -------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["victim", "nowhere"])
@pytest.mark.parametrize(
    "place",
    [
        "", "workspace.git", "workspace.git/objects", "workspace.git/objects/ab",
        "workspace.git/incoming", "workspace.git/incoming/ab", "workspace.git/refs",
        "workspace.git/refs/snapshots", "workspace.git/refs/snapshots/local",
        "workspace.git/packed-refs", "workspace.git/work.lock",
    ],
    ids=lambda one: one.replace("/", "-") or "agents",
)  # fmt: skip
def test_links_in_a_shipped_store_are_refused(
    root: Path, tmp_path: Path, place: str, target: str
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("as it was")
    link = root / ".agents" / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / target)
    workspace = Workspace(root)
    with pytest.raises(WorkspaceRefused):
        workspace.snapshot()
    with pytest.raises(WorkspaceRefused), workspace.saving():
        pass
    assert [one.name for one in tmp_path.iterdir() if one != root] == ["victim"]
    assert [one.name for one in victim.iterdir()] == ["precious"]


# Locks and disks --------------------------------------------------------------------------------


def test_a_child_forked_during_a_capture_does_not_keep_its_lock(root: Path) -> None:
    store = Workspace(root)._store
    reader, writer = os.pipe()
    with store.working():
        child = os.fork()
        if child == 0:  # pragma: no cover
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    try:
        with store.working(seconds=0):
            pass
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_a_lock_ends_with_its_holder_though_a_child_lives_on(root: Path) -> None:
    # Killed inside of the block, while a child that it forked goes on.
    store = Workspace(root)._store
    ready, done = os.pipe(), os.pipe()
    holder = os.fork()
    if holder == 0:  # pragma: no cover
        with store.working():
            if os.fork() == 0:
                os.close(done[1])
                os.write(ready[1], b"1")
                os.read(done[0], 1)
                os._exit(0)
            os.read(done[0], 0)
            signal.pause()
    try:
        os.read(ready[0], 1)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        with store.working(seconds=0):
            pass
    finally:
        for one in (*ready, *done):
            os.close(one)


def test_the_names_of_new_objects_and_references_are_synced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    workspace = Workspace(root)
    workspace.snapshot()
    before = {one for one in (workspace.store_dir / "objects").rglob("*") if one.is_file()}
    (root / "a.txt").write_text("two")
    monkeypatch.setattr(os, "fsync", note)
    workspace.snapshot()
    after = {one for one in (workspace.store_dir / "objects").rglob("*") if one.is_file()}
    assert {str(one.parent) for one in after - before} <= set(synced)
    assert str(workspace.store_dir / "refs" / "snapshots" / "local") in synced
