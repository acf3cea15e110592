"""A project may come from strangers: nothing of it runs, and nothing of it leads out of it."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from holdfast import Workspace
from holdfast.errors import (
    HoldfastError,
    RestoreFailed,
    SnapshotCorrupt,
    WorkspaceRefused,
    WorkspaceUnavailable,
)
from holdfast.workspace import process
from holdfast.workspace.base import MB, Limits
from holdfast.workspace.details import Details
from tests.workspace.pictures import (
    commit_all,
    git,
    make_repository,
    picture,
    picture_of_git,
)

HOOKS: Final = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout",
    "post-commit", "post-index-change", "post-merge", "post-rewrite", "pre-applypatch", "pre-auto-gc",
    "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg", "push-to-checkout",
    "reference-transaction", "sendemail-validate", "update",
)  # fmt: skip


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program that leaves a trace when it is run; ``sprung`` looks for it."""
    path = tmp_path / "trap.sh"
    path.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{tmp_path}/sprung'\nexec cat\n")
    path.chmod(0o755)
    return path


def sprung(trap: Path) -> str:
    trace = trap.with_name("sprung")
    return trace.read_text() if trace.exists() else ""


def hostile_config(trap: Path) -> str:
    lines = [
        f"[core]\n\tfsmonitor = {trap}\n\tpager = {trap}\n\teditor = {trap}\n\tsshCommand = {trap}",
        f"\tgitProxy = {trap}\n\taskPass = {trap}\n\talternateRefsCommand = {trap}",
        f'[filter "evil"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired = true',
        f'[filter "pro=cess"]\n\tprocess = {trap}\n\trequired',
        f'[diff]\n\texternal = {trap}\n[diff "evil"]\n\tcommand = {trap}\n\ttextconv = {trap}',
        f'[merge "evil"]\n\tdriver = {trap}\n[sequence]\n\teditor = {trap}\n[gpg]\n\tprogram = {trap}',
        f"[credential]\n\thelper = !{trap}\n[uploadpack]\n\tpackObjectsHook = {trap}",
        f"[alias]\n\tstatus = !{trap}\n\tls-files = !{trap}\n[pager]\n\tstatus = {trap}",
        f'[remote "origin"]\n\turl = ext::{trap}\n\tuploadpack = {trap}\n\tpromisor = true',
        f'[submodule "vendor/lib"]\n\tupdate = !{trap}\n[submodule]\n\trecurse = true',
        "[status]\n\tsubmoduleSummary = true\n[log]\n\tshowSignature = true",
    ]
    return "\n".join([*lines, ""])


def make_hostile(git_dir: Path, trap: Path) -> None:
    with (git_dir / "config").open("a") as config:
        config.write(hostile_config(trap))
    (git_dir / "hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        shutil.copy(trap, git_dir / "hooks" / name)
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("*.c filter=pro=cess\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    source = tmp_path / "source"
    make_repository(source)
    (source / "lib.c").write_text("int x;\n")
    commit_all(source)
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n")
    (root / "a.txt").write_text("one\n")
    (root / "b.c").write_text("two\n")
    git(root, "submodule", "--quiet", "add", str(source), "vendor/lib")
    commit_all(root, "first")
    make_repository(root / "nested")
    (root / "nested" / "n.txt").write_text("nested\n")
    commit_all(root / "nested")
    return root


def test_nothing_of_a_hostile_repository_runs(project: Path, trap: Path) -> None:
    for git_dir in (
        project / ".git", project / ".git" / "modules" / "vendor" / "lib", project / "nested" / ".git",
    ):  # fmt: skip
        make_hostile(git_dir, trap)
    for folder in (project, project / "nested", project / "vendor" / "lib"):
        (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil ident\n")
    (project / "vendor" / "lib" / "lib.c").write_text("int dirty;\n")
    (project / "a.txt").write_text("ONE\n")
    before = picture(project)
    own = picture_of_git(project)

    workspace = Workspace(project)
    with workspace.saving():
        first = workspace.snapshot()
    (project / "a.txt").write_text("changed\n")
    (project / "b.c").unlink()
    (project / "nested" / "n.txt").write_text("changed\n")
    second = workspace.snapshot()
    workspace.snapshot(["a.txt"])
    workspace.diff(first.commit, second.commit)
    assert "+changed" in workspace.diff_text(first.commit, second.commit)[0].text
    workspace.files(first.commit)
    workspace.read(first.commit, "b.c")
    workspace.git_state()
    workspace.restore(first.commit, move_head=True, dry_run=True)
    workspace.verify()
    workspace.usage()
    assert picture_of_git(project) == own
    report = workspace.restore(first.commit)
    assert picture(project) == before
    workspace.restore(report.safety, move_head=True)
    workspace.restore(first.commit, move_head=True)
    assert picture(project) == before
    workspace.gc(lambda: [first.commit])
    assert workspace.verify() == []
    assert sprung(trap) == ""
    # The trap is a live one.
    git(project, "add", "a.txt", ok=(0, 1, 128))
    assert sprung(trap) != ""


# A store that came with the project --------------------------------------------------------------

Bait: TypeAlias = Callable[[Path, Path], None]
BAITS: Final[list[Bait]] = []


def bait(function: Bait) -> Bait:
    BAITS.append(function)
    return function


@bait
def settings_and_hooks(store: Path, trap: Path) -> None:
    make_hostile(store, trap)
    (store / "info" / "attributes").write_text("* filter=evil diff=evil\n")


@bait
def settings_elsewhere(store: Path, trap: Path) -> None:
    other = trap.parent / "other.git"
    shutil.copytree(store, other)
    make_hostile(other, trap)
    (other / "info" / "attributes").write_text("* filter=evil\n")
    (store / "commondir").write_text(f"{other}\n")
    (store / "config").write_text(f"[include]\n\tpath = {other}/config\n")
    (store / "config.worktree").write_text(hostile_config(trap))


@bait
def objects_elsewhere(store: Path, trap: Path) -> None:
    other = trap.parent / "elsewhere"
    make_repository(other)
    (other / "a.txt").write_text("ONE\n")
    commit_all(other)
    (store / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")


@bait
def rules_that_hide_everything(store: Path, trap: Path) -> None:
    (store / "info" / "exclude").write_text("*\n")


@bait
def links_out_of_the_store(store: Path, trap: Path) -> None:
    victim = trap.parent / "victim"
    victim.write_text("precious")
    for name in ("index.next", "last.json.new", "journal.json.new", "config.new"):
        (store / name).symlink_to(victim)
    (store / "info" / "exclude").symlink_to(victim)
    (store / "last.json").unlink(missing_ok=True)
    (store / "last.json").symlink_to(victim)


@bait
def an_index_that_calls_everything_unchanged(store: Path, trap: Path) -> None:
    root = store.parent.parent
    index = {
        "GIT_INDEX_FILE": str(store / "index"),
        "GIT_DIR": str(store),
        "GIT_WORK_TREE": str(root),
    }
    git(root, "update-index", "--add", "a.txt", "b.c", variables=index)
    git(root, "update-index", "--assume-unchanged", "a.txt", "b.c", variables=index)
    tree = git(root, "write-tree", variables=index)
    commit = git(root, "commit-tree", tree, variables=index, stdin=Details().to_message())
    note = {"tree": tree, "commit": commit, "message": Details().to_message().decode(), "bytes": 0}
    (store / "last.json").write_text(json.dumps(note))
    (root / "a.txt").write_text("not what the index says\n")


@bait
def hidden_history(store: Path, trap: Path) -> None:
    (store / "shallow").write_text("0" * 40 + "\n")
    (store / "info" / "grafts").write_text("")


@bait
def logs_that_lead_elsewhere(store: Path, trap: Path) -> None:
    victim = trap.parent / "victim"
    victim.write_text("precious")
    (store / "HEAD").write_text("ref: refs/last\n")
    (store / "logs" / "refs").mkdir(parents=True)
    for name in ("HEAD", "refs/last"):
        (store / "logs" / name).symlink_to(victim)


@pytest.mark.parametrize("lay", BAITS, ids=lambda one: one.__name__)
def test_a_store_that_came_with_the_project_is_made_harmless(
    lay: Bait, project: Path, trap: Path
) -> None:
    store = project / ".agents" / "workspace.git"
    git(trap.parent, "init", "-q", "--bare", "--template=", str(store))
    (store / "info").mkdir(exist_ok=True)
    lay(store, trap)
    own = picture_of_git(project)
    before = picture(project)
    outside = trap.parent / "victim"
    victim = outside.read_text() if outside.exists() else None

    workspace = Workspace(project)
    assert workspace.recover() is None
    saved = workspace.snapshot()
    assert set(workspace.files(saved.commit)) >= {
        "a.txt",
        "b.c",
        "nested/n.txt",
        "vendor/lib/lib.c",
    }
    assert workspace.read(saved.commit, "a.txt") == (project / "a.txt").read_bytes()
    (project / "a.txt").write_text("changed\n")
    (project / "b.c").unlink()
    report = workspace.restore(saved.commit)
    assert report.landed == saved.commit
    assert picture(project) == before
    workspace.gc(lambda: [saved.commit])
    assert workspace.verify() == []
    assert sprung(trap) == ""
    assert picture_of_git(project) == own
    assert victim == (outside.read_text() if outside.exists() else None)
    shutil.rmtree(trap.parent / "elsewhere", ignore_errors=True)
    assert workspace.verify([saved.commit]) == []


@pytest.mark.parametrize("place", ["", "objects", "refs", "info", "incoming"])
def test_a_store_that_is_a_link_is_refused(place: str, project: Path, tmp_path: Path) -> None:
    store = project / ".agents" / "workspace.git"
    store.parent.mkdir()
    if place:
        git(tmp_path, "init", "-q", "--bare", "--template=", str(store))
        shutil.rmtree(store / place, ignore_errors=True)
    (store / place).symlink_to(project / ".git" / place)
    own = picture_of_git(project)
    with pytest.raises(WorkspaceRefused):
        Workspace(project).snapshot()
    with pytest.raises(HoldfastError):
        Workspace(project).restore("0" * 40)
    assert picture_of_git(project) == own


@pytest.mark.parametrize("folder", ["refs/heads/deep", "refs/snapshots/local"])
def test_references_that_lead_into_the_repository_are_refused(folder: str, project: Path) -> None:
    store = project / ".agents" / "workspace.git"
    git(project, "clone", "-q", "--bare", str(project), str(store))
    (store / "packed-refs").unlink(missing_ok=True)
    (store / folder).mkdir(parents=True)
    (store / folder / "linked").symlink_to(project / ".git" / "refs" / "heads")
    own = picture_of_git(project)
    workspace = Workspace(project)
    workspace.snapshot()
    with pytest.raises(WorkspaceRefused):
        workspace.gc(list)
    assert picture_of_git(project) == own


def journal(plan: dict[str, Any], **fields: Any) -> str:
    """Return a journal as a killed restore leaves it."""
    nothing: dict[str, Any] = {
        "changes": [],
        "modes": {},
        "folder_modes": {},
        "empty_old": [],
        "empty_new": [],
    }
    return json.dumps({
        "mark": "m", "safety": "0" * 40, "target": "0" * 40, "old": None, "new": None,
        "plan": {**nothing, **plan}, **fields,
    })  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["../outside", ".git/hooks/pre-commit", "/etc/x", "a/../../outside", ".agents/x", ".GIT/x"],
)
@pytest.mark.parametrize("kind", ["changes", "modes", "folder_modes", "empty_new"])
def test_a_journal_that_leads_out_of_the_project_is_refused(
    kind: str, path: str, project: Path
) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    blob = git(workspace.store_dir, "hash-object", "-w", "--stdin", stdin=b"#!/bin/sh\n")
    change = {"path": path, "kind": "added", "old": None, "new": {"mode": "100755", "blob": blob}}
    values: dict[str, Any] = {
        "changes": [change], "modes": {path: [0o644, 0o755]}, "folder_modes": {path: [0o755, 0o777]},
        "empty_new": [path],
    }  # fmt: skip
    note = workspace.store_dir / "journal.json"
    note.write_text(journal({kind: values[kind]}))
    before, own = picture(project.parent), picture_of_git(project)
    with pytest.raises(RestoreFailed):
        workspace.recover()
    with pytest.raises(RestoreFailed):
        workspace.restore(saved.commit)
    after = picture(project.parent)
    assert {name for name in before.keys() ^ after.keys() if "/.agents/" not in name} == set()
    assert picture_of_git(project) == own


@pytest.mark.parametrize(
    "fields",
    [{"mark": "x/../../../victim"}, {"purpose": {"id": "x/../../../../victim"}}, {"mark": 7}],
    ids=["mark", "purpose", "number"],
)
def test_a_journal_whose_names_lead_elsewhere_is_refused(
    fields: dict[str, Any], project: Path
) -> None:
    workspace = Workspace(project)
    workspace.snapshot()
    victim = project.parent / "victim"
    victim.write_text("precious")
    (project / ".holdfast-x").mkdir()
    (workspace.store_dir / "finished-x").mkdir()
    change = {"path": "a.txt", "kind": "deleted", "old": None, "new": None}
    note = workspace.store_dir / "journal.json"
    note.write_text(journal({"changes": [change]}, **fields))
    with pytest.raises(RestoreFailed):
        workspace.recover()
    assert victim.read_text() == "precious"
    assert not list(project.parent.glob("victim.json"))
    assert (project / "a.txt").exists()


def test_a_capture_waits_for_no_pipe_among_what_is_incoming(project: Path) -> None:
    alternates = project / ".agents" / "workspace.git" / "incoming" / "info" / "alternates"
    alternates.parent.mkdir(parents=True)
    os.mkfifo(alternates)
    Workspace(project).snapshot()
    assert alternates.read_text() == "../objects\n"


def test_a_note_is_removed_from_the_store_only(project: Path) -> None:
    workspace = Workspace(project)
    workspace.snapshot()
    victim = project.parent / "victim.json"
    victim.write_text("precious")
    (workspace.store_dir / "finished-x").mkdir()
    workspace.forget_finished("x/../../../../victim")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize(
    "wrong", [{"head": "--stdin"}, {"commit": "--index-output=x"}, {"extra": "HEAD"}, {"head": 7}]
)
def test_a_journal_with_a_position_that_cannot_be_is_refused(
    wrong: dict[str, Any], side: str, project: Path
) -> None:
    workspace = Workspace(project)
    workspace.snapshot()
    position = {"head": "1" * 40, "commit": None, "extra": None, **wrong}
    (workspace.store_dir / "journal.json").write_text(journal({}, **{side: position}))
    with pytest.raises(RestoreFailed):
        workspace.recover()


def test_a_journal_from_elsewhere_does_not_move_the_repository(project: Path) -> None:
    workspace = Workspace(project)
    workspace.snapshot()
    head = git(project, "rev-parse", "HEAD")
    (project / "a.txt").write_text("two\n")
    commit_all(project)
    own = picture_of_git(project)
    new = {"head": "ref: refs/heads/main", "commit": head, "extra": None}
    (workspace.store_dir / "journal.json").write_text(journal({}, new=new))
    workspace.recover()
    assert picture_of_git(project) == own
    assert not (workspace.store_dir / "journal.json").exists()


# Snapshots that no capture made --------------------------------------------------------------------


def entry(mode: str, name: bytes, sha: str) -> bytes:
    return mode.encode() + b" " + name + b"\0" + bytes.fromhex(sha)


def hostile_trees(store: Path) -> Iterator[tuple[str, bytes]]:
    blob = git(store, "hash-object", "-w", "--stdin", stdin=b"evil\n")
    link = git(store, "hash-object", "-w", "--stdin", stdin=b"/tmp")
    rules = git(store, "hash-object", "-w", "--stdin", stdin=b"*\n")

    def tree(raw: bytes) -> str:
        return git(store, "hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=raw)

    inside = tree(entry("100644", b"x", blob))
    ignoring = tree(entry("100644", b".gitignore", rules))
    yield "up", entry("40000", b"..", inside)
    yield "up-in-one-name", entry("100644", b"a/../../x", blob)
    yield "rules-above", entry("40000", b"..", tree(entry("40000", b"..", ignoring)))
    yield "here", entry("40000", b".", inside)
    yield "absolute", entry("100644", b"/etc/x", blob)
    yield "git", entry("40000", b".git", tree(entry("40000", b"hooks", inside)))
    yield "git-in-capitals", entry("40000", b".Git", inside)
    yield "git-below", entry("40000", b"sub", tree(entry("40000", b".git", inside)))
    yield "agents", entry("40000", b".agents", inside)
    yield "no-name", entry("100644", b"", blob)
    yield "through-a-link", entry("120000", b"l", link) + entry("40000", b"l", inside)
    yield "through-a-file", entry("100644", b"f", blob) + entry("40000", b"f", inside)
    yield "submodule", entry("160000", b"m", "1" * 40)
    yield "missing-tree", entry("40000", b"m", "1" * 40)


def hostile_details() -> Iterator[tuple[str, Details]]:
    yield "empty-above", Details(empty=["../../new"])
    yield "empty-in-git", Details(empty=[".git/refs/new"])
    yield "mode-above", Details(directories={"..": 0o777})
    yield "file-mode-above", Details(modes={"../source": 0o777})


def refuse(workspace: Workspace, commit: str, project: Path) -> None:
    (project / "a.txt").write_text("not saved anywhere\n")
    (project / "deleted-by-a-restore").write_text("x")
    before, own = picture(project), picture_of_git(project)
    outside = sorted(os.listdir(project.parent))
    every: list[dict[str, Any]] = [
        {}, {"dry_run": True}, {"move_head": True}, {"paths": ["a.txt"]},
    ]  # fmt: skip
    for options in every:
        with pytest.raises((SnapshotCorrupt, RestoreFailed)):
            workspace.restore(commit, **options)
        assert picture(project) == before
    assert picture_of_git(project) == own
    assert sorted(os.listdir(project.parent)) == outside
    assert workspace.recover() is None


NAMES: Final = (
    "up", "up-in-one-name", "rules-above", "here", "absolute", "git", "git-in-capitals", "git-below",
    "agents", "no-name", "through-a-link", "through-a-file", "submodule", "missing-tree",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_tree_is_refused_before_anything_is_touched(name: str, project: Path) -> None:
    workspace = Workspace(project)
    workspace.snapshot()
    store = workspace.store_dir
    raw = dict(hostile_trees(store))[name]
    tree = git(store, "hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=raw)
    commit = git(store, "commit-tree", tree, stdin=Details().to_message())
    refuse(workspace, commit, project)
    assert not (project.parent / "x").exists()


@pytest.mark.parametrize("name", [name for name, _ in hostile_details()])
def test_details_that_lead_elsewhere_change_nothing(name: str, project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    details = dict(hostile_details())[name]
    commit = git(
        workspace.store_dir, "commit-tree", saved.tree, stdin=details.to_message()
    )  # fmt: skip
    outside = project.parent.stat().st_mode, (project.parent / "source").stat().st_mode
    own = picture_of_git(project)
    with suppress(SnapshotCorrupt):
        workspace.restore(commit)
    assert (project.parent.stat().st_mode, (project.parent / "source").stat().st_mode) == outside
    assert picture_of_git(project) == own
    assert not (project.parent.parent / "new").exists()
    assert workspace.recover() is None


IMPOSSIBLE: Final[dict[str, dict[str, Any]]] = {
    "a mode of letters": {"modes": {"a.txt": "rwx"}},
    "a mode with a fraction": {"modes": {"a.txt": 1.5}},
    "a mode that is a list": {"modes": {"a.txt": [1]}},
    "a mode that is true": {"modes": {"a.txt": True}},
    "a mode that is too large": {"modes": {"a.txt": 1 << 40}},
    "a mode below zero": {"directories": {"sub": -5}},
    "modes that are a list": {"modes": ["a.txt"]},
    "usual modes of letters": {"defaults": ["a", "b", "c"]},
    "usual modes that are too large": {"defaults": [1 << 70] * 3},
    "a directory that is a number": {"empty": [1]},
    "directories that are one text": {"empty": "abc"},
    "a directory without bytes": {"empty": ["\ud800"]},
    "a skipped list": {"skipped": [[["a"], 2]]},
    "a skipped number": {"skipped": [[1, "a reason"]]},
    "a HEAD that is a number": {"head": 5},
    "rules that are a number": {"excludes": 5},
    "rules without bytes": {"excludes": "\ud800"},
    "an included number": {"included": [5]},
    "a place that is none": {"below": 5},
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_details_that_cannot_be_are_refused(name: str, project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    document = json.loads(Details().to_message()) | IMPOSSIBLE[name]
    message = json.dumps(document).encode()
    commit = git(workspace.store_dir, "commit-tree", saved.tree, stdin=message)
    (project / "a.txt").write_text("not saved anywhere\n")
    before = picture(project)
    with pytest.raises(SnapshotCorrupt):
        workspace.restore(commit)
    assert picture(project) == before
    assert not workspace.has(commit)


@pytest.mark.parametrize(
    "target", [b"", b"x\0y", b"x" * 5000], ids=["empty", "zero byte", "too long"]
)
def test_a_link_that_cannot_be_is_refused(target: bytes, project: Path) -> None:
    workspace = Workspace(project)
    workspace.snapshot()
    store = workspace.store_dir
    blob = git(store, "hash-object", "-w", "--stdin", stdin=target)
    tree = git(store, "mktree", stdin=f"120000 blob {blob}\tlink\n".encode())
    commit = git(store, "commit-tree", tree, stdin=Details().to_message())
    before = picture(project)
    for dry_run in (True, False):
        with pytest.raises(SnapshotCorrupt, match="link that no file system can have"):
            workspace.restore(commit, dry_run=dry_run)
    assert picture(project) == before


def position_of(workspace: Workspace, name: str, content: bytes) -> str:
    """Return a snapshot whose position holds one file more, or another index."""
    saved = workspace.snapshot()
    store = workspace.store_dir
    blob = git(store, "hash-object", "-w", "--stdin", stdin=content)
    tree = git(store, "mktree", stdin=f"100644 blob {blob}\t{name}\n".encode())
    extra = git(store, "commit-tree", tree, stdin=b"position\n")
    message = workspace.details(saved.commit).to_message()
    return git(store, "commit-tree", saved.tree, "-p", extra, stdin=message)


@pytest.mark.parametrize("path", [b".git/hooks/post-checkout", b"../outside", b"x/.GIT/y"])
def test_an_index_that_leads_elsewhere_is_not_brought_back(path: bytes, project: Path) -> None:
    entry = struct.pack(">10I", *(0,) * 6, 0o100755, *(0,) * 3) + b"\1" * 20
    entry += struct.pack(">H", len(path)) + path
    entry += bytes(8 - len(entry) % 8)
    index = b"DIRC" + struct.pack(">II", 2, 1) + entry
    workspace = Workspace(project)
    commit = position_of(workspace, "index", index + sha1(index).digest())
    own = picture_of_git(project)
    for dry_run in (True, False):
        with pytest.raises(SnapshotCorrupt, match="index"):
            workspace.restore(commit, move_head=True, dry_run=dry_run)
    assert picture_of_git(project) == own
    workspace.restore(commit)


def test_an_index_that_cannot_be_read_is_not_brought_back(project: Path) -> None:
    workspace = Workspace(project)
    commit = position_of(workspace, "index", b"DIRC nonsense")
    own = picture_of_git(project)
    with pytest.raises(SnapshotCorrupt, match="index"):
        workspace.restore(commit, move_head=True)
    assert picture_of_git(project) == own


@pytest.mark.parametrize("name", ["rebase-merge", "rebase-apply", "sequencer"])
def test_a_rebase_that_somebody_else_began_is_not_brought_back(name: str, project: Path) -> None:
    workspace = Workspace(project)
    commit = position_of(workspace, f"note.{name}%2Fgit-rebase-todo", b"exec touch here\n")
    own = picture_of_git(project)
    for dry_run in (True, False):
        with pytest.raises(RestoreFailed, match="not by you"):
            workspace.restore(commit, move_head=True, dry_run=dry_run)
    assert picture_of_git(project) == own
    workspace.restore(commit)


def test_a_rebase_comes_back_for_the_user_who_saved_in_it_only(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".git" / "rebase-merge").mkdir()
    (project / ".git" / "rebase-merge" / "git-rebase-todo").write_text("exec touch here\n")
    workspace = Workspace(project)
    commit = workspace.snapshot().commit
    shutil.rmtree(project / ".git" / "rebase-merge")
    with monkeypatch.context() as another:
        another.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
        with pytest.raises(RestoreFailed, match="not by you"):
            workspace.restore(commit, move_head=True)
    workspace.restore(commit, move_head=True)
    assert (project / ".git" / "rebase-merge" / "git-rebase-todo").exists()


def test_links_among_the_notes_of_git_are_neither_read_nor_written_through(
    project: Path, tmp_path: Path
) -> None:
    secrets, own = tmp_path / "secrets", project / ".git"
    (secrets / "deep").mkdir(parents=True)
    for name in ("key", "MERGE_MSG", "git-rebase-todo", "deep/x"):
        (secrets / name).write_text("precious")
    before = picture(secrets)
    notes = {
        "MERGE_MSG": "ours",
        "rebase-merge/git-rebase-todo": "ours",
        "sequencer/deep/x": "ours",
    }
    for name, text in notes.items():
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(text)
    workspace = Workspace(project)
    saved = workspace.snapshot().commit
    for folder in ("rebase-merge", "sequencer"):
        shutil.rmtree(own / folder)
    (own / "MERGE_MSG").unlink()
    (own / "MERGE_MSG").symlink_to(secrets / "MERGE_MSG")
    (own / "SQUASH_MSG").symlink_to(secrets / "key")
    (own / "rebase-merge").symlink_to(secrets)
    (own / "sequencer").mkdir()
    (own / "sequencer" / "deep").symlink_to(secrets / "deep")
    (own / "holdfast-move").symlink_to(secrets / "key")

    taken = workspace.snapshot().commit
    reachable = git(workspace.store_dir, "rev-list", "--objects", taken)
    for name in ("SQUASH_MSG", "MERGE_MSG", "key"):
        assert name not in reachable
    workspace.restore(saved, move_head=True)
    assert picture(secrets) == before
    for name, text in notes.items():
        assert (own / name).read_text() == text


# Packs that unpack to more than anybody has room for --------------------------------------------------


def packed(kind: int, size: int, content: bytes, base: bytes = b"") -> bytes:
    """Return an object as a pack has it; ``kind`` is git's number of it."""
    head = bytes([kind << 4 | size & 15 | 0x80]) + number(size >> 4)
    return head + base + zlib.compress(content, 9)


def number(value: int) -> bytes:
    """Return a number as a pack has it."""
    *parts, last = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(part | 0x80 for part in parts), last])


def pack_of(*objects: bytes) -> bytes:
    raw = b"PACK" + struct.pack(">II", 2, len(objects)) + b"".join(objects)
    return raw + sha1(raw).digest()


def arrive(workspace: Workspace, way: str, commit: str, pack: bytes) -> None:
    if way == "shared":
        workspace.import_packs(commit, [pack])
    else:
        workspace.take_in([commit], [pack], size=1)


def a_file_made_of_copies() -> bytes:
    base, copies = bytes(0xFFFFFF), 20
    change = number(len(base)) + number(len(base) * copies) + b"\xf0\xff\xff\xff" * copies
    name = sha1(b"blob %d\0" % len(base) + base).digest()
    return pack_of(packed(3, len(base), base), packed(7, len(change), change, name))


def a_directory_of_nothing() -> bytes:
    return pack_of(packed(2, 300 * MB, bytes(300 * MB)))


@pytest.mark.parametrize("way", ["one pack", "shared"])
@pytest.mark.parametrize("make", [a_file_made_of_copies, a_directory_of_nothing])
def test_a_small_pack_cannot_have_git_fill_the_memory(
    make: Callable[[], bytes], way: str, project: Path
) -> None:
    pack = make()
    assert len(pack) < 400_000
    with pytest.raises((SnapshotCorrupt, WorkspaceUnavailable), match="over limit"):
        arrive(Workspace(project), way, "1" * 40, pack)


@pytest.mark.parametrize("mode", [b"40000", b"040000"])
@pytest.mark.parametrize("way", ["one pack", "shared"])
def test_directories_that_stand_in_each_other_over_and_over_are_refused(
    way: str, mode: bytes, project: Path
) -> None:
    objects = [packed(3, 1, b"x")]
    inside = sha1(b"blob 1\0x").digest()
    for depth in range(2000):
        each = mode if depth else b"100644"
        tree = b"".join(each + b" %03d\0" % one + inside for one in range(100))
        objects.append(packed(2, len(tree), tree))
        inside = sha1(b"tree %d\0" % len(tree) + tree).digest()
    raw = b"tree %s\n\n" % inside.hex().encode() + Details().to_message()
    commit = sha1(b"commit %d\0" % len(raw) + raw).hexdigest()
    pack = pack_of(*objects, packed(1, len(raw), raw))
    workspace = Workspace(project)
    with pytest.raises(SnapshotCorrupt, match="over and over"):
        arrive(workspace, way, commit, pack)
    assert commit not in workspace.snapshots()


@pytest.mark.parametrize(
    ("name", "bound"), [("_MOST_LISTED", 10_000), ("_LIST_ROOM", {"GIT_ALLOC_LIMIT": "200000"})]
)
def test_a_list_of_files_without_an_end_is_given_up(
    name: str, bound: object, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot().commit
    store = workspace.store_dir
    inside, kind = git(store, "hash-object", "-w", "--stdin", stdin=b"x"), "100644 blob"
    for _ in range(3):
        listed = "".join(f"{kind} {inside}\t{one}\n" for one in range(30))
        inside, kind = git(store, "mktree", stdin=listed.encode()), "040000 tree"
    commit = git(store, "commit-tree", inside, stdin=Details().to_message())
    assert len(workspace.files(commit)) == 27_000
    monkeypatch.setattr(process, name, bound)
    looks: list[Callable[[], object]] = [
        lambda: workspace.count_changes([(saved, commit)]),
        lambda: workspace.diff(saved, commit),
        lambda: workspace.diff_text(saved, commit),
        lambda: workspace.restore(commit, dry_run=True),
    ]
    if name == "_MOST_LISTED":
        looks += [lambda: workspace.files(commit), lambda: workspace.list_files(commit)]
    for look in looks:
        with pytest.raises(SnapshotCorrupt, match="more files than any project"):
            look()


def test_details_that_are_too_large_are_not_read(project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    message = Details(excludes="x" * 33 * MB).to_message()
    commit = git(workspace.store_dir, "commit-tree", saved.tree, stdin=message)
    assert not workspace.has(commit)
    with pytest.raises(SnapshotCorrupt):
        workspace.restore(commit)


@pytest.mark.parametrize("way", ["one pack", "shared"])
def test_a_snapshot_from_elsewhere_gives_no_file_the_rights_of_its_owner(
    way: str, project: Path, tmp_path: Path
) -> None:
    usual = [(f"run{number}", 0o755) for number in range(3)]
    for name, mode in (("tool", 0o4755), ("other", 0o2711), ("plain", 0o640), *usual):
        (project / name).write_text("theirs")
        (project / name).chmod(mode)
    (project / "shared").mkdir()
    (project / "shared" / "f").write_text("theirs")
    (project / "shared").chmod(0o2775)
    workspace = Workspace(project)
    saved = workspace.snapshot().commit
    mine = tmp_path / "mine"
    mine.mkdir()
    here = Workspace(mine)
    if way == "shared":
        here.import_packs(saved, [workspace.export_pack(saved)])
    else:
        parts: list[bytes] = []
        size = workspace.write_pack([saved], parts.append)
        here.take_in([saved], parts, size=size)
    report = here.restore(saved)
    assert [one.path for one in report.kept] == ["other", "tool"]
    modes = {name: (mine / name).stat().st_mode & 0o7777 for name in ("tool", "other", "plain")}
    assert modes == {"tool": 0o755, "other": 0o711, "plain": 0o640}
    assert (mine / "shared").stat().st_mode & 0o7777 == 0o2775
    # Where it was made, and known before it came back, it is one's own.
    parts = []
    size = workspace.write_pack([saved], parts.append)
    workspace.take_in([saved], parts, size=size)
    (project / "tool").unlink()
    assert workspace.restore(saved).kept == ()
    assert (project / "tool").stat().st_mode & 0o7777 == 0o4755


@pytest.mark.parametrize(
    "head", ["ref: -d", "ref: refs/../x", "--stdin", "ref: /etc/passwd", "ref: refs/heads/a b"]
)
def test_a_head_that_cannot_be_moves_nothing(head: str, project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    own = picture_of_git(project)
    details = Details(head=head, head_commit=git(project, "rev-parse", "HEAD"))
    commit = git(workspace.store_dir, "commit-tree", saved.tree, stdin=details.to_message())
    with pytest.raises((SnapshotCorrupt, RestoreFailed)):
        workspace.restore(commit, move_head=True)
    assert picture_of_git(project) == own
    assert workspace.recover() is None


@pytest.mark.parametrize("place", ["before", "instead", "after"])
def test_a_commit_that_names_an_option_for_its_tree_is_refused_or_read_as_git_does(
    place: str, project: Path
) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    victim = project.parent / "victim"
    victim.write_text("precious")
    raw = git(workspace.store_dir, "cat-file", "commit", saved.commit).encode() + b"\n"
    tree, option = f"tree {saved.tree}\n".encode(), f"tree --output={victim}\n".encode()
    instead = {"before": option + tree, "instead": option, "after": tree + option}[place]
    commit = git(
        workspace.store_dir, "hash-object", "-w", "-t", "commit", "--literally", "--stdin",
        stdin=raw.replace(tree, instead),
    )  # fmt: skip
    (project / "a.txt").write_text("changed\n")
    ways: list[Callable[[], object]] = [
        lambda: workspace.restore(commit, dry_run=True),
        lambda: workspace.diff(saved.commit, commit),
        lambda: workspace.count_changes([(saved.commit, commit)]),
        lambda: workspace.list_files(commit),
        lambda: workspace.files(commit),
    ]
    for way in ways:
        if place == "after":
            way()
        else:
            with pytest.raises(HoldfastError):
                way()
    assert victim.read_text() == "precious"


def test_the_files_of_a_snapshot_with_a_submodule_cannot_be_listed(project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    store = workspace.store_dir
    for kind, mode in (("commit", "160000"), ("blob", "100644")):
        entry = f"{mode} {kind} {'1' * 40}\tx\n".encode()
        tree = git(store, "mktree", "--missing", stdin=entry)
        commit = git(store, "commit-tree", tree, stdin=Details().to_message())
        with pytest.raises((SnapshotCorrupt, WorkspaceUnavailable)):
            workspace.list_files(commit)
    assert workspace.list_files(saved.commit)


@pytest.mark.parametrize("key", ["commit", "tree", "position"])
def test_a_note_that_was_edited_becomes_no_option_of_git(key: str, project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    victim = project.parent / "victim"
    victim.write_text("precious")
    path = workspace.store_dir / "last.json"
    for name in (f"--output={victim}", 7, [7]):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), key: name}))
        assert workspace.snapshot().commit == saved.commit
        path.write_text(json.dumps({**json.loads(path.read_bytes()), key: name}))
        assert workspace.restore(saved.commit).landed == saved.commit
        assert victim.read_text() == "precious"


def test_a_note_hands_out_no_snapshot_that_is_not_there(project: Path) -> None:
    workspace = Workspace(project)
    assert workspace.last() is None
    saved = workspace.snapshot()
    assert workspace.last() == saved.commit
    path = workspace.store_dir / "last.json"
    note = json.loads(path.read_bytes())
    names: tuple[Any, ...] = (saved.tree, "--all", "", 7, [7], {})
    for name in names:
        path.write_text(json.dumps({**note, "commit": name}))
        assert workspace.last() is None


def test_a_snapshot_that_was_lost_stops_neither_a_sweep_nor_the_next_one(project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    path = workspace.store_dir / "last.json"
    for paths in (None, ["a.txt"]):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "commit": "1" * 40}))
        assert workspace.last() is None
        workspace.gc(lambda: {saved.commit})
        assert workspace.snapshot(paths).commit == saved.commit
        assert workspace.last() == saved.commit


def test_what_a_commit_consists_of_is_not_read_from_elsewhere(project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    store = project / ".agents" / "workspace.git"
    git(store, "--git-dir=.", "commit-graph", "write", "--reachable")
    nothing = git(store, "--git-dir=.", "hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")
    graph = store / "objects" / "info" / "commit-graph"
    graph.chmod(0o600)
    said = graph.read_bytes()[:-20]
    assert bytes.fromhex(saved.tree) in said
    lie = said.replace(bytes.fromhex(saved.tree), bytes.fromhex(nothing))
    graph.write_bytes(lie + sha1(lie, usedforsecurity=False).digest())
    assert workspace.verify() == []
    (store / "objects" / saved.tree[:2] / saved.tree[2:]).unlink()
    assert [one.commit for one in workspace.verify()] == [saved.commit]


def test_a_note_that_is_not_gits_moves_nothing(project: Path) -> None:
    workspace = Workspace(project)
    saved = workspace.snapshot()
    store = workspace.store_dir
    blob = git(store, "hash-object", "-w", "--stdin", stdin=b"[core]\n\tfsmonitor = /tmp/evil\n")
    head = git(project, "rev-parse", "HEAD")
    for note in ("config", "hooks%2Fpre-commit", "rebase-merge%2F..%2Fconfig", "sequencer%2F"):
        tree = git(store, "mktree", stdin=f"100644 blob {blob}\tnote.{note}\n".encode())
        extra = git(store, "commit-tree", tree, stdin=b"position\n")
        details = Details(head="ref: refs/heads/main", head_commit=head)
        commit = git(
            store, "commit-tree", saved.tree, "-p", extra, stdin=details.to_message()
        )  # fmt: skip
        own = picture_of_git(project)
        with pytest.raises(SnapshotCorrupt):
            workspace.restore(commit, move_head=True)
        assert picture_of_git(project) == own


# Pipes and devices ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        ".gitignore", "vendor/.gitignore", ".gitattributes", "vendor/.gitattributes",
        ".git/HEAD", ".git/config", ".git/index", ".git/info/attributes", ".git/info/exclude",
        ".git/packed-refs", ".git/refs/heads/main", ".git/objects/info/alternates",
    ],
)  # fmt: skip
def test_a_capture_waits_for_no_pipe_that_git_reads(
    name: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PATIENCE", 0.2)
    pipe = project / name
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    (project / "vendor" / "new.c").write_text("int z;\n")
    # Without the check, this time passes, and it is another error.
    workspace = Workspace(project, limits=Limits(seconds=20))
    with pytest.raises(WorkspaceUnavailable, match=f"/{name}' is a named pipe"):
        workspace.snapshot()
    pipe.unlink()


@pytest.mark.parametrize("name", ["info/attributes", "refs/heads/main", "config"])
def test_no_device_is_read_in_the_place_of_a_file_of_git(name: str, project: Path) -> None:
    device = project / ".git" / name
    device.parent.mkdir(exist_ok=True)
    device.unlink(missing_ok=True)
    device.symlink_to("/dev/zero")
    with pytest.raises(WorkspaceUnavailable, match=f"/{name}' is a device"):
        Workspace(project, limits=Limits(seconds=20)).snapshot()


def test_pipes_and_devices_that_do_not_hold_git_do_not_hold_a_capture(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PATIENCE", 0.0)
    (project / ".git" / "info").mkdir()
    (project / ".git" / "info" / "exclude").symlink_to(os.devnull)
    (project / ".gitattributes").symlink_to(os.devnull)
    (project / ".gitignore").write_text("ignored/\n")
    (project / "ignored").mkdir()
    os.mkfifo(project / "ignored" / ".gitignore")
    os.mkfifo(project / ".git" / "pipe")
    Workspace(project).snapshot()
