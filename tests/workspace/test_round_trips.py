"""Whatever a project looks like, a restore brings every byte back, and its undo does too.

A scene is a generator: what it makes before its ``yield`` is saved, what it does afterwards is what the
restore has to take back.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from holdfast import Workspace
from tests.workspace.pictures import (
    commit_all,
    git,
    make_repository,
    picture,
    picture_of_git,
    repository_view,
)

Scene: TypeAlias = Callable[[Path], Iterator[None]]

SCENES: Final[list[Scene]] = []


def scene(function: Scene) -> Scene:
    SCENES.append(function)
    return function


def usual_project(root: Path) -> None:
    """A small repository with one of each, all committed, and what its rules ignore."""
    make_repository(root)
    (root / "src").mkdir()
    (root / "src" / "app.py").write_text("print('one')\n")
    (root / "src" / "lib.py").write_text("x = 1\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "data.bin").write_bytes(bytes(range(256)))
    (root / "link").symlink_to("src/app.py")
    (root / ".gitignore").write_text("*.log\nbuild/\n.env\n.agents/\n")
    commit_all(root, "first")
    (root / "debug.log").write_text("a log\n")
    (root / "build" / "deep" / "hollow").mkdir(parents=True)
    (root / "build" / "out.o").write_bytes(b"\0object")
    (root / ".env").write_text("TOKEN=1\n")


# Files -----------------------------------------------------------------------------------------


@scene
def modified_new_deleted_and_renamed(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "notes.txt").write_text("untracked\n")
    (root / "src" / "lib.py").write_text("x = 2  # not committed\n")
    yield
    (root / "src" / "app.py").write_text("broken")
    (root / "notes.txt").unlink()
    (root / "src" / "lib.py").rename(root / "src" / "library.py")
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "docs" / "deep" / "page.md").write_text("new\n")
    shutil.copy(root / "data.bin", root / "copy.bin")


@scene
def no_repository_at_all(root: Path) -> Iterator[None]:
    (root / "src").mkdir(parents=True)
    (root / "src" / "a").write_text("one")
    (root / "run").write_text("run")
    (root / "run").chmod(0o700)
    yield
    (root / "src" / "a").write_text("two")
    (root / "src" / "b").write_text("three")
    (root / "run").unlink()


@scene
def everything_gone(root: Path) -> Iterator[None]:
    usual_project(root)
    yield
    for path in root.iterdir():
        if path.name in ("src",):
            shutil.rmtree(path)
        elif path.name in ("run.sh", "data.bin", "link"):
            path.unlink()


@scene
def permissions(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "key").write_text("secret")
    (root / "key").chmod(0o600)
    (root / "shared").mkdir()
    (root / "shared").chmod(0o2775)
    (root / "shared" / "open").write_text("o")
    (root / "shared" / "open").chmod(0o666)
    (root / "private").mkdir(mode=0o700)
    (root / "private" / "read-only").write_text("r")
    (root / "private" / "read-only").chmod(0o400)
    (root / "setuid").write_text("s")
    (root / "setuid").chmod(0o4711)
    yield
    (root / "key").chmod(0o644)
    (root / "run.sh").chmod(0o644)
    (root / "src" / "app.py").chmod(0o755)
    (root / "shared").chmod(0o700)
    (root / "shared" / "open").unlink()
    shutil.rmtree(root / "private")
    (root / "setuid").chmod(0o644)
    (root / "setuid").write_text("other")


@scene
def permissions_of_directories_in_each_other(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "outer" / "inner" / "most").mkdir(parents=True)
    (root / "outer" / "inner" / "most" / "file").write_text("f")
    yield
    for path in ("outer", "outer/inner", "outer/inner/most"):
        (root / path).chmod(0o700)


@scene
def the_most_usual_modes_are_others(root: Path) -> Iterator[None]:
    (root / "inner" / "most").mkdir(parents=True)
    for path in (root / "inner", root / "inner" / "most"):
        path.chmod(0o750)
        (path / "file").write_text("f")
        (path / "file").chmod(0o640)
        (path / "tool").write_text("t")
        (path / "tool").chmod(0o750)
    (root / "plain").write_text("p")
    yield
    shutil.rmtree(root / "inner")
    (root / "plain").chmod(0o640)


@scene
def links(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "dangling").symlink_to("no/where")
    (root / "absolute").symlink_to("/etc/hostname")
    (root / "up").symlink_to("../..")
    (root / "becomes-file").symlink_to("run.sh")
    (root / "becomes-link").write_text("file")
    os.symlink(b"na\xefve\n", os.fsencode(root / "odd"))
    (root / "only-links" / "deep").mkdir(parents=True)
    (root / "only-links" / "deep" / "up").symlink_to("..")
    yield
    shutil.rmtree(root / "only-links")
    for name in ("dangling", "absolute", "up", "becomes-file", "becomes-link"):
        (root / name).unlink()
    (root / "dangling").symlink_to("src")
    (root / "absolute").symlink_to("absolute")
    (root / "becomes-file").write_text("now a file")
    (root / "becomes-link").symlink_to("run.sh")
    (root / "another").symlink_to(root.parent)


@scene
def files_links_and_directories_swapped(root: Path) -> Iterator[None]:
    usual_project(root)
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    for name in ("same", "other"):
        (elsewhere / name).write_text(f"the {name} file of elsewhere")
    (root / "directory").mkdir()
    (root / "directory" / "same").write_text("mine")
    (root / "file").write_text("a file")
    (root / "to-directory").symlink_to("elsewhere")
    (root / "folder" / "inner").mkdir(parents=True)
    (root / "folder" / "inner" / "deep").write_text("deep")
    (root / "loop" / "inner").mkdir(parents=True)
    (root / "loop" / "inner" / "file").write_text("in a directory that becomes a circle")
    yield
    shutil.rmtree(root / "loop")
    (root / "loop").symlink_to("loop")
    shutil.rmtree(root / "directory")
    (root / "directory").symlink_to("elsewhere")
    (root / "file").unlink()
    (root / "file" / "now" / "a").mkdir(parents=True)
    (root / "file" / "now" / "a" / "directory").write_text("d")
    (root / "to-directory").unlink()
    (root / "to-directory").mkdir()
    (root / "to-directory" / "same").write_text("a real one")
    shutil.rmtree(root / "folder")
    (root / "folder").write_text("a file now")


@scene
def contents_of_all_kinds(root: Path) -> Iterator[None]:
    usual_project(root)
    noise = random.Random(7)
    for name, content in (
        ("zeros", bytes(300_000)),
        ("noise", noise.randbytes(300_000)),
        ("empty", b""),
        ("crlf", b"a\r\nb\nc\r"),
        ("no-end", b"no newline at the end"),
        ("utf-16", "ﬀ\n".encode("utf-16")),
    ):
        (root / name).write_bytes(content)
    yield
    (root / "zeros").write_bytes(bytes(299_999))
    (root / "noise").write_bytes(noise.randbytes(300_000))
    (root / "empty").write_bytes(b"\n")
    (root / "crlf").write_bytes(b"a\nb\nc\n")
    (root / "no-end").write_bytes(b"no newline at the end\n")
    (root / "utf-16").write_bytes(b"")
    (root / "data.bin").write_bytes(b"")


@scene
def same_size_and_time(root: Path) -> Iterator[None]:
    usual_project(root)
    yield
    path = root / "src" / "app.py"
    look = path.stat()
    path.write_text("print('two')\n")
    os.utime(path, ns=(look.st_atime_ns, look.st_mtime_ns))


@scene
def empty_directories(root: Path) -> Iterator[None]:
    usual_project(root)
    for name in ("hollow/a/b", "hollow/c", "only", "mixed/empty", "swap"):
        (root / name).mkdir(parents=True)
    (root / "only").chmod(0o700)
    (root / "mixed" / "file").write_text("f")
    yield
    (root / "hollow" / "a" / "b").rmdir()
    (root / "only").rmdir()
    (root / "only").write_text("a file in its place")
    (root / "mixed" / "empty" / "x").write_text("no longer empty")
    (root / "swap").rmdir()
    (root / "swap").symlink_to("hollow")
    (root / "new" / "and" / "empty").mkdir(parents=True)
    shutil.rmtree(root / "hollow" / "c")


@scene
def an_empty_directory_whose_content_would_be_ignored(root: Path) -> Iterator[None]:
    usual_project(root)
    with (root / ".gitignore").open("a") as rules:
        rules.write("/logs/*\n")
    (root / "logs").mkdir()
    yield
    (root / "logs").rmdir()


@scene
def odd_names(root: Path) -> Iterator[None]:
    usual_project(root)
    names = [
        b"with space", b"new\nline", b"tab\t", b'"quoted"', b"it's", b"-dash", b"--help", b"*",
        b":(glob)x", b"!bang", b"#hash", b"back\\slash", b"not-\xff-utf8", "zürich".encode(),
        "zu\u0308rich".encode(), b"Case", b"case", b"[set]", b"trailing ", b"a" * 200, b"~", b"%41",
        b".gitattributes.not", b"HEAD", b"x\ndiff --git a b",
    ]  # fmt: skip
    for name in names:
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(b"1 " + name)
    for name in (b"-folder", b"fold\xe9r", b" lead"):
        folder = Path(os.fsdecode(os.fsencode(root) + b"/" + name))
        (folder / "-inner").mkdir(parents=True)
        (folder / "-inner" / "-x").write_text("x")
        (folder / "hollow").mkdir()
    yield
    for name in names:
        path = Path(os.fsdecode(os.fsencode(root) + b"/" + name))
        if len(name) % 2:
            path.unlink()
        else:
            path.write_bytes(b"2 " + name)
    for name in (b"-folder", b"fold\xe9r"):
        shutil.rmtree(os.fsencode(root) + b"/" + name)
    (root / "-new").write_text("new")


# The index --------------------------------------------------------------------------------------


@scene
def staged_partly_staged_and_intended(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "staged").write_text("staged\n")
    (root / "partly").write_text("staged part\n")
    git(root, "add", "staged", "partly")
    (root / "partly").write_text("staged part\nand another\n")
    (root / "intended").write_text("later\n")
    git(root, "add", "-N", "intended")
    git(root, "rm", "-q", "--cached", "data.bin")
    git(root, "update-index", "--chmod=+x", "src/lib.py")
    git(root, "mv", "src/app.py", "src/moved.py")
    yield
    git(root, "reset", "-q", "--hard")
    (root / "staged").write_text("different\n")
    git(root, "add", "staged")


@scene
def flags_of_the_index(root: Path) -> Iterator[None]:
    usual_project(root)
    git(root, "update-index", "--assume-unchanged", "src/lib.py")
    (root / "src" / "lib.py").write_text("local = True\n")
    git(root, "update-index", "--skip-worktree", "run.sh")
    yield
    git(root, "update-index", "--no-assume-unchanged", "src/lib.py")
    git(root, "update-index", "--no-skip-worktree", "run.sh")
    (root / "src" / "lib.py").write_text("local = False\n")


@scene
def committed_what_was_staged(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")
    yield
    git(root, "commit", "-q", "-m", "later")
    git(root, "gc", "-q", "--prune=now")


@scene
def split_index(root: Path) -> Iterator[None]:
    usual_project(root)
    git(root, "config", "core.splitIndex", "true")
    git(root, "config", "splitIndex.sharedIndexExpire", "now")
    git(root, "update-index", "--split-index")
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")
    yield
    git(root, "reset", "-q", "--hard")
    git(root, "config", "core.splitIndex", "false")
    git(root, "update-index", "--no-split-index")
    for number in range(3):
        (root / f"later{number}").write_text("later")
        git(root, "add", f"later{number}")
    for shared in (root / ".git").glob("sharedindex.*"):
        shared.unlink()


# Branches and commits ---------------------------------------------------------------------------


@scene
def switched_and_committed(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "src" / "lib.py").write_text("uncommitted\n")
    yield
    git(root, "checkout", "-q", "-b", "other")
    commit_all(root, "on another branch")
    (root / "src" / "app.py").write_text("dirty there\n")


@scene
def committed_on_the_same_branch(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "wip").write_text("wip\n")
    yield
    commit_all(root, "one")
    (root / "wip").write_text("more\n")
    commit_all(root, "two")


@scene
def amended_and_branch_deleted(root: Path) -> Iterator[None]:
    usual_project(root)
    git(root, "checkout", "-q", "-b", "feature")
    (root / "f").write_text("f")
    commit_all(root, "feature")
    yield
    git(root, "checkout", "-q", "main")
    git(root, "branch", "-q", "-D", "feature")
    (root / "src" / "app.py").write_text("amended\n")
    git(root, "commit", "-q", "-a", "--amend", "-m", "first, amended")


@scene
def detached(root: Path) -> Iterator[None]:
    usual_project(root)
    git(root, "checkout", "-q", "--detach")
    (root / "src" / "app.py").write_text("detached\n")
    yield
    commit_all(root, "a detached commit")
    git(root, "checkout", "-q", "main")


@scene
def detached_commits_since(root: Path) -> Iterator[None]:
    usual_project(root)
    yield
    git(root, "checkout", "-q", "--detach")
    (root / "src" / "app.py").write_text("detached\n")
    commit_all(root, "on no branch")


@scene
def unborn_branch(root: Path) -> Iterator[None]:
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n")
    (root / "a").write_text("first")
    yield
    commit_all(root, "born")
    (root / "b").write_text("second")


@scene
def unborn_branch_with_staged_files(root: Path) -> Iterator[None]:
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n")
    (root / "a").write_text("first")
    git(root, "add", "a")
    (root / "a").write_text("first and more")
    yield
    git(root, "rm", "-q", "-r", "-f", "--cached", ".")
    (root / "a").unlink()


@scene
def a_stash(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "src" / "app.py").write_text("stashed\n")
    git(root, "stash", "-q")
    (root / "src" / "app.py").write_text("not stashed\n")
    yield
    (root / "src" / "app.py").write_text("changed\n")


# Operations in progress -------------------------------------------------------------------------


def two_branches_in_conflict(root: Path) -> None:
    usual_project(root)
    git(root, "checkout", "-q", "-b", "theirs")
    (root / "src" / "app.py").write_text("theirs\n")
    (root / "src" / "lib.py").unlink()
    (root / "new").write_text("added by them\n")
    commit_all(root, "theirs")
    git(root, "checkout", "-q", "main")
    (root / "src" / "app.py").write_text("ours\n")
    (root / "src" / "lib.py").write_text("ours = 1\n")
    (root / "new").write_text("added by us\n")
    commit_all(root, "ours")


@scene
def merge_in_progress(root: Path) -> Iterator[None]:
    two_branches_in_conflict(root)
    git(root, "merge", "theirs", ok=(1,))
    (root / "src" / "app.py").write_text("half resolved\n")
    git(root, "add", "src/app.py")
    yield
    git(root, "merge", "--abort")


@scene
def merge_concluded_since(root: Path) -> Iterator[None]:
    two_branches_in_conflict(root)
    git(root, "merge", "theirs", ok=(1,))
    yield
    (root / "src" / "app.py").write_text("resolved\n")
    commit_all(root, "merged")
    git(root, "gc", "-q", "--prune=now")


@scene
def merge_begun_since(root: Path) -> Iterator[None]:
    two_branches_in_conflict(root)
    (root / "wip").write_text("wip")
    yield
    git(root, "merge", "theirs", ok=(1,))


@scene
def rebase_in_progress(root: Path) -> Iterator[None]:
    two_branches_in_conflict(root)
    git(root, "rebase", "theirs", ok=(1,))
    yield
    git(root, "rebase", "--abort")
    (root / "src" / "app.py").write_text("after\n")


@scene
def rebase_concluded_since(root: Path) -> Iterator[None]:
    two_branches_in_conflict(root)
    git(root, "rebase", "theirs", ok=(1,))
    yield
    for name in ("src/app.py", "src/lib.py", "new"):
        (root / name).write_text("resolved\n")
    git(root, "add", "-A")
    git(root, "rebase", "--continue")


@scene
def cherry_pick_in_progress(root: Path) -> Iterator[None]:
    two_branches_in_conflict(root)
    git(root, "cherry-pick", "theirs", ok=(1,))
    yield
    git(root, "cherry-pick", "--abort")


@scene
def cherry_pick_of_several(root: Path) -> Iterator[None]:
    two_branches_in_conflict(root)
    git(root, "checkout", "-q", "theirs")
    (root / "second").write_text("s")
    commit_all(root, "second")
    git(root, "checkout", "-q", "main")
    git(root, "cherry-pick", "main..theirs", ok=(1,))
    yield
    git(root, "cherry-pick", "--quit")
    git(root, "reset", "-q", "--hard")


@scene
def revert_in_progress(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "src" / "app.py").write_text("second\n")
    commit_all(root, "second")
    (root / "src" / "app.py").write_text("third\n")
    commit_all(root, "third")
    git(root, "revert", "HEAD~1", ok=(1,))
    yield
    git(root, "revert", "--abort")


# Conversions -------------------------------------------------------------------------------------


@scene
def conversions_that_attributes_ask_for(root: Path) -> Iterator[None]:
    usual_project(root)
    git(root, "config", "core.autocrlf", "true")
    (root / ".gitattributes").write_text(
        "*.txt text eol=crlf\n*.u16 text working-tree-encoding=UTF-16LE eol=crlf\n"
        "*.id ident\n*.auto text=auto\n*.old crlf\n"
    )
    (root / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (root / "mixed.txt").write_bytes(b"one\r\ntwo\nthree\r")
    (root / "wide.u16").write_bytes("wide\r\n".encode("utf-16-le"))
    (root / "keyword.id").write_bytes(b"$Id$\n$Id: 0123 $\n")
    (root / "some.auto").write_bytes(b"a\r\nb\n")
    (root / "some.old").write_bytes(b"a\r\nb\n")
    commit_all(root, "conversions")
    (root / "untracked.txt").write_bytes(b"lf\nonly\n")
    (root / "keyword.id").write_bytes(b"$Id: kept as it is $\n")
    yield
    (root / "crlf.txt").write_bytes(b"one\ntwo\n")
    (root / "mixed.txt").write_bytes(b"one\r\n")
    (root / "wide.u16").write_bytes(b"\xff\xfeodd")
    (root / "keyword.id").write_bytes(b"$Id$\n")
    (root / "untracked.txt").write_bytes(b"lf\r\nonly\r\n")
    (root / "some.auto").unlink()
    (root / ".gitattributes").write_text("* text=auto eol=lf\n")


@scene
def a_required_filter(root: Path) -> Iterator[None]:
    usual_project(root)
    for key, value in (("clean", "tr a-z A-Z"), ("smudge", "tr A-Z a-z"), ("required", "true")):
        git(root, "config", f"filter.case.{key}", value)
    (root / ".gitattributes").write_text("*.case filter=case\n")
    (root / "a.case").write_text("lower\n")
    commit_all(root, "filtered")
    (root / "a.case").write_text("Mixed Case\n")
    (root / "b.case").write_text("Untracked\n")
    yield
    (root / "a.case").write_text("OTHER\n")
    (root / "b.case").unlink()


@scene
def pointers_of_large_files(root: Path) -> Iterator[None]:
    usual_project(root)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 5\n"
    (root / "checked-out.psd").write_bytes(b"large content")
    (root / "pointer.psd").write_bytes(pointer % 2)
    blob = git(root, "hash-object", "-w", "--stdin", stdin=pointer % 1)
    git(root, "update-index", "--add", "--cacheinfo", f"100644,{blob},checked-out.psd")
    git(root, "add", "pointer.psd")
    (root / ".gitattributes").write_text("*.psd filter=lfs diff=lfs merge=lfs -text\n")
    git(root, "add", ".gitattributes")
    git(root, "commit", "-q", "-m", "pointers")
    yield
    (root / "checked-out.psd").write_bytes(b"other content")
    (root / "pointer.psd").write_bytes(b"smudged")


# Repositories in repositories --------------------------------------------------------------------


@scene
def nested_repositories(root: Path) -> Iterator[None]:
    usual_project(root)
    for name in ("inner", "deep/er/inner", "unborn", "bare-of-files"):
        make_repository(root / name)
    for name in ("inner", "deep/er/inner"):
        (root / name / "file").write_text("committed")
        (root / name / ".gitignore").write_text("*.tmp\n")
        commit_all(root / name)
        (root / name / "x.tmp").write_text("ignored")
        (root / name / "file").write_text("dirty")
    (root / "unborn" / "sub").mkdir()
    (root / "unborn" / "sub" / "file").write_text("no commit")
    (root / "unborn" / "hollow").mkdir()
    make_repository(root / "inner" / "innermost")
    (root / "inner" / "innermost" / "file").write_text("x")
    yield
    (root / "inner" / "file").write_text("changed")
    (root / "inner" / "new").write_text("new")
    shutil.rmtree(root / "unborn" / "sub")
    (root / "deep" / "er" / "inner" / "file").unlink()
    (root / "inner" / "innermost" / "file").write_text("y")


@scene
def what_a_nested_repository_tracks_although_ignored(root: Path) -> Iterator[None]:
    usual_project(root)
    make_repository(root / "inner")
    (root / "inner" / ".gitignore").write_text("*.log\n")
    (root / "inner" / "kept.log").write_text("one")
    git(root / "inner", "add", "-f", ".gitignore", "kept.log")
    git(root / "inner", "commit", "-q", "-m", "inner")
    yield
    (root / "inner" / "kept.log").write_text("two")


def project_with_submodule(root: Path) -> None:
    source = root.parent / "source"
    make_repository(source)
    (source / "lib.c").write_text("int x;\n")
    commit_all(source)
    usual_project(root)
    git(root, "submodule", "--quiet", "add", str(source), "vendor/lib")
    git(root, "commit", "-q", "-m", "submodule")


@scene
def dirty_submodule(root: Path) -> Iterator[None]:
    project_with_submodule(root)
    (root / "vendor" / "lib" / "lib.c").write_text("int dirty;\n")
    (root / "vendor" / "lib" / "new.c").write_text("new\n")
    yield
    (root / "vendor" / "lib" / "lib.c").write_text("int broken;\n")
    (root / "vendor" / "lib" / "new.c").unlink()


@scene
def staged_submodule_commit(root: Path) -> Iterator[None]:
    project_with_submodule(root)
    (root / "vendor" / "lib" / "lib.c").write_text("int y;\n")
    commit_all(root / "vendor" / "lib")
    git(root, "add", "vendor/lib")
    yield
    git(root, "reset", "-q")
    (root / "vendor" / "lib" / "lib.c").write_text("int z;\n")


@scene
def linked_worktree(root: Path) -> Iterator[None]:
    main = root.parent / "main"
    usual_project(main)
    git(main, "worktree", "add", "-q", "-b", "linked", str(root))
    (root / "src" / "app.py").write_text("in the worktree\n")
    (root / "staged").write_text("s")
    git(root, "add", "staged")
    yield
    commit_all(root, "there")
    (root / "src" / "app.py").write_text("changed\n")


@scene
def sparse_checkout(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "left" / "out").mkdir(parents=True)
    (root / "left" / "out" / "file").write_text("sparse")
    commit_all(root)
    git(root, "sparse-checkout", "set", "src")
    (root / "src" / "app.py").write_text("dirty\n")
    yield
    (root / "src" / "app.py").write_text("changed\n")
    git(root, "add", "src/app.py")
    (root / "src" / "new.py").write_text("new\n")


@scene
def sha256_repository(root: Path) -> Iterator[None]:
    make_repository(root, "--object-format=sha256")
    (root / "a").write_text("one")
    (root / ".gitignore").write_text(".agents/\n")
    commit_all(root)
    (root / "staged").write_text("s")
    git(root, "add", "staged")
    yield
    commit_all(root)
    (root / "a").write_text("two")


# Ignore rules ------------------------------------------------------------------------------------


@scene
def tracked_although_ignored(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "kept.log").write_text("tracked\n")
    git(root, "add", "-f", "kept.log")
    git(root, "commit", "-q", "-m", "a log that matters")
    yield
    (root / "kept.log").write_text("changed\n")


@scene
def a_rule_was_added_since(root: Path) -> Iterator[None]:
    usual_project(root)
    (root / "data.csv").write_text("1\n")
    (root / "cache").mkdir()
    (root / "cache" / "x").write_text("cached")
    yield
    (root / ".gitignore").write_text("*.log\nbuild/\n.env\n.agents/\n*.csv\ncache/\n")
    (root / "data.csv").write_text("2\n")
    (root / "cache" / "x").write_text("cached anew")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "the project"
    path.mkdir()
    return path


WITHOUT_REPOSITORY: Final = (no_repository_at_all, the_most_usual_modes_are_others)


def played(scenes: Sequence[Scene]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("play", scenes, ids=[one.__name__ for one in scenes])


@pytest.mark.row("S4-20", "S4-34", "B5")
@played(SCENES)
def test_files_come_back_and_so_does_what_was_there_before(play: Scene, root: Path) -> None:
    if play is linked_worktree:
        root.rmdir()
    acts = play(root)
    next(acts)
    before = picture(root)
    own = picture_of_git(root) if (root / ".git").is_dir() else {}
    workspace = Workspace(root)
    saved = workspace.snapshot()
    assert workspace.snapshot().commit == saved.commit
    assert picture(root) == before
    assert own == (picture_of_git(root) if own else {})

    assert next(acts, None) is None
    changed = picture(root)
    stand = repository_view(root) if (root / ".git").exists() else {}
    own = picture_of_git(root) if own else {}
    preview = workspace.restore(saved.commit, dry_run=True)
    assert picture(root) == changed
    assert own == (picture_of_git(root) if own else {})

    report = workspace.restore(saved.commit)
    assert picture(root) == before
    assert report.changes == preview.changes
    assert own == (picture_of_git(root) if own else {})
    assert workspace.snapshot().commit == report.landed

    assert workspace.restore(report.safety).landed == report.safety
    assert picture(root) == changed
    assert stand == (repository_view(root) if stand else {})
    assert own == (picture_of_git(root) if own else {})
    assert workspace.verify() == []


@pytest.mark.row("S4-16", "S4-20")
@played([one for one in SCENES if one not in WITHOUT_REPOSITORY])
def test_the_repository_moves_along_when_asked(play: Scene, root: Path) -> None:
    if play is linked_worktree:
        root.rmdir()
    acts = play(root)
    next(acts)
    before, stood = picture(root), repository_view(root)
    workspace = Workspace(root)
    saved = workspace.snapshot()
    assert next(acts, None) is None
    changed, stands = picture(root), repository_view(root)

    preview = workspace.restore(saved.commit, move_head=True, dry_run=True)
    assert (picture(root), repository_view(root)) == (changed, stands)
    report = workspace.restore(saved.commit, move_head=True)
    assert picture(root) == before
    now = repository_view(root)
    for key in ("head", "status", "index", "notes", "rebase", "stash", "problems"):
        assert now[key] == stood[key], key
    assert report.commits == preview.commits
    undone = workspace.restore(report.safety, move_head=True)
    assert picture(root) == changed
    now = repository_view(root)
    # A branch that came back with the restore is not deleted again.
    assert set(stands.pop("refs")) <= set(now.pop("refs"))
    assert now == stands
    assert undone.landed is not None


def test_a_directory_that_somebody_works_in_is_not_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "book" / "part"
    folder.mkdir(parents=True)
    (folder / "novel.txt").write_text("Call me Ishmael.\n")
    workspace = Workspace(tmp_path)
    saved = workspace.snapshot()
    (folder / "novel.txt").unlink()
    (folder / "draft.txt").write_text("All work and no play\n")
    working_in_it = os.open(folder, os.O_RDONLY)
    try:
        workspace.restore(saved.commit)

        assert os.listdir(working_in_it) == ["novel.txt"]
    finally:
        os.close(working_in_it)
