"""What a snapshot leaves out, what it may cost, and what a user without rights can do with it."""

from __future__ import annotations

import os
import random
import socket
import stat
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.errors import RestoreFailed, WorkspaceFull
from holdfast.workspace.base import MB, Limits
from tests.workspace.children import project_of_nobody, run_python
from tests.workspace.pictures import commit_all, git, make_repository, picture, picture_of_git


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "a.txt").write_text("one\n")
    return path


def reasons(workspace: Workspace, commit: str) -> dict[str, str]:
    return {one.path: one.reason for one in workspace.skipped(commit)}


def test_pipes_and_sockets_are_named_and_left_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sub").mkdir()
    (root / "alone").mkdir()
    os.mkfifo(root / "pipe")
    os.mkfifo(root / "sub" / "pipe")
    os.mkfifo(root / "alone" / "pipe")
    (root / "sub" / "file").write_text("f")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        before = picture(root)
        workspace = Workspace(root)
        saved = workspace.snapshot()
        expected = {
            "pipe": "a named pipe", "sub/pipe": "a named pipe", "alone/pipe": "a named pipe",
            "socket": "a socket",
        }  # fmt: skip
        assert reasons(workspace, saved.commit) == expected
        (root / "a.txt").write_text("two\n")
        assert reasons(workspace, workspace.snapshot().commit) == expected
        os.mkfifo(root / "later")
        (root / "sub" / "file").unlink()
        workspace.restore(saved.commit)
        os.unlink(root / "later")
        assert picture(root) == before


def test_a_pipe_in_the_place_of_a_file_is_not_opened(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_text("f")
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "a.txt").unlink()
    os.mkfifo(root / "a.txt")
    (root / "d" / "f").unlink()
    (root / "d").rmdir()
    os.mkfifo(root / "d")
    (root / "b").write_text("b")
    report = workspace.restore(saved.commit)
    assert {one.path for one in report.kept} == {"a.txt", "d/f"}
    assert stat.S_ISFIFO((root / "d").lstat().st_mode)
    assert stat.S_ISFIFO((root / "a.txt").lstat().st_mode)
    assert not (root / "b").exists()


@pytest.mark.row("T18", "B2")
def test_a_huge_untracked_file_costs_nothing(root: Path) -> None:
    make_repository(root)
    commit_all(root)
    with (root / "huge.img").open("wb") as file:
        file.truncate(2 * 1024 * MB)
    own = picture_of_git(root)
    workspace = Workspace(root)
    saved = workspace.snapshot()
    assert reasons(workspace, saved.commit)["huge.img"] == "larger than 104,857,600 bytes"
    assert workspace.usage().bytes < MB
    # With a larger cap, the quota holds.
    generous = Workspace(root, limits=Limits(max_file_bytes=4096 * MB, quota_bytes=20 * MB))
    again = generous.snapshot()
    assert reasons(generous, again.commit)["huge.img"] == "over the quota of 20,971,520 bytes"
    assert generous.usage().bytes < MB
    (root / "a.txt").write_text("two\n")
    generous.restore(saved.commit)
    assert (root / "a.txt").read_text() == "one\n"
    assert (root / "huge.img").stat().st_size == 2 * 1024 * MB
    assert picture_of_git(root) == own


def test_a_huge_staged_file_is_not_copied(root: Path) -> None:
    make_repository(root)
    noise = random.Random(1)
    (root / "big").write_bytes(noise.randbytes(2 * MB))
    git(root, "add", "big")
    workspace = Workspace(root, limits=Limits(max_file_bytes=MB))
    saved = workspace.snapshot()
    assert "big" in reasons(workspace, saved.commit)
    assert workspace.usage().bytes < MB
    index = git(root, "ls-files", "-s")
    git(root, "rm", "-q", "--cached", "-f", "big")
    workspace.restore(saved.commit, move_head=True)
    assert git(root, "ls-files", "-s") == index


def test_a_store_that_was_staged_by_accident_does_not_take_itself_in(root: Path) -> None:
    make_repository(root)
    workspace = Workspace(root)
    for number in range(3):
        (root / "a.txt").write_bytes(random.Random(number).randbytes(50_000))
        git(root, "add", "-A")
        workspace.snapshot()
    assert workspace.usage().bytes < 250_000
    assert not any(
        path.startswith(".agents/") for path in workspace.files(workspace.snapshot().commit)
    )


@pytest.mark.row("B2")
def test_the_quota_is_never_exceeded(root: Path) -> None:
    make_repository(root)
    noise = random.Random(2)
    (root / ".gitignore").write_text(".agents/\n")
    for number in range(100):
        (root / f"a file with quite a long name {number:04}").write_text(str(number))
    commit_all(root)
    quota = MB
    workspace = Workspace(root, limits=Limits(quota_bytes=quota))
    full = left_out = 0
    kept = []
    for number in range(60):
        size = noise.choice((10, 1_000, 50_000))
        (root / f"noise{number % 5}").write_bytes(noise.randbytes(size))
        if number % 3 == 0:
            git(root, "add", "-A")
        try:
            saved = workspace.snapshot()
        except WorkspaceFull:
            full += 1
        else:
            kept.append(saved.commit)
            left_out += bool(saved.skipped)
        assert workspace.usage().bytes <= quota
    assert full + left_out > 0
    assert workspace.verify() == []
    assert workspace.usage().bytes > quota // 2
    assert workspace.gc(lambda: kept[:1]).bytes > 0
    assert workspace.snapshot().skipped == ()
    assert workspace.usage().bytes <= quota


def test_a_restore_needs_no_room_for_what_is_stored_already(root: Path) -> None:
    (root / "large").write_bytes(random.Random(3).randbytes(600_000))
    before = picture(root)
    workspace = Workspace(root, limits=Limits(quota_bytes=MB))
    saved = workspace.snapshot()
    (root / "large").unlink()
    workspace.snapshot()
    report = workspace.restore(saved.commit)
    assert picture(root) == before
    assert report.landed == saved.commit


def test_a_smaller_cap_does_not_stop_a_restore(root: Path) -> None:
    (root / "large").write_bytes(bytes(10_000))
    before = picture(root)
    saved = Workspace(root).snapshot()
    (root / "large").unlink()
    Workspace(root, limits=Limits(max_file_bytes=1_000)).restore(saved.commit)
    assert picture(root) == before


def test_what_an_ignored_file_would_lose_is_saved_first(root: Path) -> None:
    (root / "data").write_text("one")
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / ".gitignore").write_text("data\n")
    workspace.snapshot()
    (root / "data").write_text("two, ignored")
    changed = picture(root)
    report = workspace.restore(saved.commit)
    assert (root / "data").read_text() == "one"
    workspace.restore(report.safety)
    assert picture(root) == changed


@pytest.mark.row("S4-19", "T14")
def test_what_is_ignored_and_secrets_are_kept(root: Path) -> None:
    (root / ".gitignore").write_text("node_modules/\n*.log\nsub/build/\n")
    (root / "sub").mkdir()
    (root / "sub" / "unchanged").write_text("same in both")
    (root / "image.png").write_bytes(bytes(range(256)) * 10)
    workspace = Workspace(root)
    workspace.snapshot()
    (root / "a.txt").write_text("two\n")
    second = workspace.snapshot()
    expected = picture(root)
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("p")

    for name in (
        "node_modules/x/y.js",
        "node_modules/hollow/.keep",
        "debug.log",
        "sub/build/deep/o",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("ignored")
    (root / "node_modules" / "hollow" / ".keep").unlink()
    (root / "sub" / "build" / "hollow").mkdir()
    (root / ".env").write_text("TOKEN=1\n")
    ignored = {
        name: one for name, one in picture(root).items() if name not in expected
    }  # fmt: skip
    (root / "new" / "deep").mkdir(parents=True)
    (root / "new" / "deep" / "made-since").write_text("x")
    (root / "to-outside").symlink_to(outside)
    (root / "image.png").unlink()
    (root / ".gitignore").write_text("")

    preview = workspace.restore(second.commit, dry_run=True)
    listed = {one.path for one in preview.changes if one.kind == "deleted"}
    assert listed == {"new/deep/made-since", "to-outside"}
    report = workspace.restore(second.commit)
    assert report.changes == preview.changes
    assert picture(root) == {**expected, **ignored}
    assert {one.path for one in report.kept} >= {".env", "debug.log", "node_modules/x/y.js"}
    assert (outside / "precious").read_text() == "p"


def test_the_stores_of_projects_in_this_one_are_left_to_them(root: Path) -> None:
    inner = root / "packages" / "inner"
    (inner / ".agents").mkdir(parents=True)
    (inner / ".agents" / "holdfast.toml").write_text("")
    (inner / "f").write_text("one")
    theirs = Workspace(inner)
    assert theirs.root == inner
    theirs.snapshot()
    (inner / ".agents" / "sessions.db").write_bytes(b"a database")
    workspace = Workspace(root)
    saved = workspace.snapshot()
    assert workspace.files(saved.commit) == [
        "a.txt", "packages/inner/.agents/holdfast.toml", "packages/inner/f",
    ]  # fmt: skip
    (inner / "f").write_text("two")
    later = theirs.snapshot()
    (inner / ".agents" / "sessions.db").write_bytes(b"a newer database")
    workspace.restore(saved.commit)
    assert (inner / "f").read_text() == "one"
    assert (inner / ".agents" / "sessions.db").read_bytes() == b"a newer database"
    assert theirs.verify([later.commit]) == []


def test_a_private_directory_that_stays_keeps_its_permissions(root: Path) -> None:
    (root / ".gitignore").write_text("key\n")
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "secrets").mkdir(mode=0o700)
    (root / "secrets" / "key").write_text("ignored")
    (root / "secrets" / "notes").write_text("captured")
    workspace.restore(saved.commit)
    assert [one.name for one in (root / "secrets").iterdir()] == ["key"]
    assert stat.S_IMODE((root / "secrets").stat().st_mode) == 0o700


def test_what_cannot_be_replaced_stops_the_restore_and_takes_it_back(root: Path) -> None:
    (root / ".gitignore").write_text("*.o\n")
    (root / "z").write_text("a file")
    (root / "b").write_text("b")
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "z").unlink()
    (root / "z").mkdir()
    (root / "z" / "kept.o").write_text("ignored, so it cannot go")
    (root / "z" / "f").write_text("f")
    (root / "b").write_text("changed")
    (root / "a.txt").unlink()
    changed = picture(root)
    with pytest.raises(RestoreFailed, match="taken back"):
        workspace.restore(saved.commit)
    assert picture(root) == changed
    assert workspace.recover() is None
    assert not list(root.rglob(".holdfast-*"))


def test_a_user_without_rights_reads_and_restores_what_it_may() -> None:
    with project_of_nobody() as root:
        run_python(
            """
os.umask(0o027)
(root / "closed" / "inner").mkdir(parents=True)
(root / "closed" / "f").write_text("one")
(root / "closed" / "inner" / "g").write_text("one")
(root / "sealed" / "deep").mkdir(parents=True)
(root / "sealed" / "deep" / "h").write_text("h")
(root / "secret").write_text("nobody reads this")
(root / "secret").chmod(0)
(root / "dark").mkdir()
(root / "dark" / "x").write_text("x")
(root / "dark").chmod(0)
for folder in (root / "closed" / "inner", root / "closed"):
    folder.chmod(0o500)
workspace = Workspace(root)
saved = workspace.snapshot()
skipped = {one.path: one.reason for one in saved.skipped}
assert skipped == {"secret": "unreadable", "dark": "unreadable"}, skipped
def look():
    (root / "dark").chmod(0o700), (root / "secret").chmod(0o600)
    seen = picture(root)
    (root / "dark").chmod(0), (root / "secret").chmod(0)
    return seen
before = look()
for folder in (root / "closed", root / "closed" / "inner"):
    folder.chmod(0o700)
(root / "closed" / "f").write_text("two")
(root / "closed" / "inner" / "g").unlink()
(root / "closed" / "inner" / "new").write_text("new")
(root / "closed" / "inner").chmod(0o500)
(root / "closed").chmod(0o500)
os.rename(root / "sealed" / "deep", root / "unsealed")
os.umask(0o077)
changed = look()
report = workspace.restore(saved.commit)
assert look() == before
workspace.restore(report.safety)
assert look() == changed
assert workspace.verify() == []
""",
            root,
            unprivileged=True,
        )


@pytest.mark.parametrize(
    "closed", [{"src": 0o644}, {"src/inner": 0}, {"src/inner": 0, "src": 0}], ids=str
)
def test_what_is_in_a_directory_that_was_closed_since_comes_back_too(
    closed: dict[str, int],
) -> None:
    with project_of_nobody() as root:
        run_python(
            f"closed = {closed}\n"
            """
(root / "src" / "inner").mkdir(parents=True)
for path in ("src/inner/f", "src/f"):
    (root / path).write_text("good")
workspace = Workspace(root)
saved = workspace.snapshot()
before = picture(root)
for path in ("src/inner/f", "src/f"):
    (root / path).write_text("ruined")
for path, mode in closed.items():
    (root / path).chmod(mode)
def refuse(_):
    raise ZeroDivisionError
try:
    workspace.restore(saved.commit, before=refuse)
except ZeroDivisionError:
    pass
workspace.restore(saved.commit, dry_run=True)
last = list(closed)[-1]
assert (root / last).stat().st_mode & 0o777 == closed[last]
report = workspace.restore(saved.commit)
assert report.landed == saved.commit, report
assert {one.path for one in report.changes} == {"src/f", "src/inner/f"}, report
assert report.modes == tuple(sorted(closed)), report
assert picture(root) == before
workspace.restore(report.safety)
assert (root / "src" / "f").read_text() == (root / "src" / "inner" / "f").read_text() == "ruined"
""",
            root,
            unprivileged=True,
        )


def test_a_path_that_became_unwritable_stops_the_restore() -> None:
    prepare = """
(root / "b").write_text("one")
(root / "c" / "d").mkdir(parents=True)
(root / "c" / "d" / "f").write_text("one")
(root / "z").write_text("one")
print(Workspace(root).snapshot().commit)
for name in ("b", "c/d/f", "z"):
    (root / name).write_text("two")
"""
    attempt = """
changed = picture(root)
try:
    Workspace(root).restore({commit!r})
except holdfast.errors.RestoreFailed as error:
    assert "taken back" in str(error), error
else:
    raise AssertionError("it was restored")
assert picture(root) == changed
assert Workspace(root).recover() is None
"""
    with project_of_nobody() as root:
        commit = run_python(prepare, root, unprivileged=True).strip()
        if os.geteuid() == 0:
            os.chown(root / "c" / "d", 0, 0)
        else:
            # Without rights over the owner, something that cannot go stands in the way.
            (root / "c" / "d" / "f").unlink()
            (root / "c" / "d" / "f" / ".git").mkdir(parents=True)
        run_python(attempt.format(commit=commit), root, unprivileged=True)
        assert (root / "b").read_text() == "two"


def test_eight_snapshots_at_once(root: Path) -> None:
    out = run_python(
        """
commits = []
children = []
for number in range(8):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        (root / f"file{number}").write_text(f"written by {number}")
        commit = Workspace(root).snapshot().commit
        os.write(writing, commit.encode())
        os._exit(0)
    os.close(writing)
    children.append((child, reading))
for child, reading in children:
    assert os.waitpid(child, 0)[1] == 0
    print(os.read(reading, 100).decode())
""",
        root,
    )
    workspace = Workspace(root)
    commits = out.split()
    assert len(commits) == 8
    for number, commit in enumerate(commits):
        assert workspace.read(commit, f"file{number}") == f"written by {number}".encode()
    assert workspace.snapshots() >= set(commits)
    assert len(workspace.files(workspace.snapshot().commit)) == 9
    assert workspace.verify() == []
