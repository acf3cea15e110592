"""A process that is killed at any step leaves the old tree or the new one, after the next look at it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast import Workspace
from tests.workspace.killing import Killer, killer
from tests.workspace.pictures import (
    Picture,
    commit_all,
    git,
    make_repository,
    picture,
    repository_view,
)

_STAND: Final = ("head", "status", "index", "notes", "problems")


@pytest.fixture(scope="module")
def deadly() -> Iterator[Killer]:
    with killer() as one:
        yield one


@dataclass(frozen=True)
class Scene:
    """A project to be restored, how it is, and how it is to become."""

    root: Path
    target: str
    old: Picture
    new: Picture
    stands: dict[str, Any]
    stood: dict[str, Any]
    lost: str

    def copy(self, number: int) -> Path:
        place = self.root.parent / f"copy{number}"
        shutil.copytree(self.root, place, symlinks=True)
        return place


def stand(root: Path) -> dict[str, Any]:
    seen = repository_view(root)
    return {key: seen[key] for key in _STAND}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    root = tmp_path_factory.mktemp("killed") / "project"
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n*.o\n")
    (root / "a").write_text("one")
    (root / "swap").mkdir()
    (root / "swap" / "f").write_text("f")
    commit_all(root, "first")
    (root / "a").write_text("staged")
    git(root, "add", "a")
    (root / "link").symlink_to("a")
    (root / "closed").mkdir()
    (root / "closed" / "c").write_text("c")
    (root / "closed").chmod(0o500)
    (root / "hollow").mkdir()
    workspace = Workspace(root)
    target = workspace.snapshot().commit
    new, stood = picture(root), stand(root)
    lost = commit_all(root, "second")
    (root / "a").write_text("two")
    (root / "a").chmod(0o755)
    shutil.rmtree(root / "swap")
    (root / "swap").write_text("a file now")
    (root / "link").unlink()
    (root / "closed").chmod(0o700)
    (root / "closed" / "c").write_text("changed")
    (root / "closed").chmod(0o500)
    (root / "hollow").rmdir()
    (root / "new").mkdir()
    (root / "new" / "n").write_text("n")
    return Scene(root, target, picture(root), new, stand(root), stood, lost)


def leftovers(root: Path) -> list[str]:
    seen = [
        *root.rglob(".holdfast-*"),
        *(root / ".git").glob("*.lock"),
        *(root / ".git").glob("holdfast-*"),
    ]
    home = root / ".agents" / "workspace.git"
    seen += [path for path in home.rglob("*.lock") if path.stem not in ("work", "use", "turn")]
    return [
        str(path.relative_to(root)) for path in (*seen, *home.rglob("*.new"), *home.rglob("tmp_*"))
    ]


def recover_and_check(scene: Scene, root: Path, *, move_head: bool) -> str:
    workspace = Workspace(root)
    workspace.recover()
    saved = workspace.snapshot()
    now = picture(root)
    assert now in (scene.old, scene.new)
    outcome = "new" if now == scene.new else "old"
    expected = scene.stood if move_head and outcome == "new" else scene.stands
    # Where only the files went back, a status tells of them.
    compared = [key for key in _STAND if move_head or outcome == "old" or key != "status"]
    stands = stand(root)
    assert [stands[key] for key in compared] == [expected[key] for key in compared]
    assert not leftovers(root)
    assert workspace.verify() == []
    assert set(workspace.files(saved.commit)) == {
        name for name, (mode, _) in now.items() if not 0o040000 <= mode < 0o050000
    }
    reachable = git(root, "for-each-ref", "--contains", scene.lost)
    assert reachable
    return outcome


def every_step(
    scene: Scene, deadly: Killer, *, move_head: bool, first: int, stride: int
) -> dict[str, int]:
    seen = {"old": 0, "new": 0}
    number = first
    while True:
        root = scene.copy(number)
        killed = deadly.attempt(root, "restore", scene.target, at=number, move_head=move_head)
        outcome = recover_and_check(scene, root, move_head=move_head)
        shutil.rmtree(root)
        if not killed:
            assert outcome == "new"
            return seen
        seen[outcome] += 1
        number += stride


both = pytest.mark.parametrize("move_head", [False, True], ids=["files", "files-and-head"])


@pytest.mark.row("S4-21")
@both
def test_a_restore_killed_at_steps_all_along(scene: Scene, deadly: Killer, move_head: bool) -> None:
    seen = every_step(scene, deadly, move_head=move_head, first=2, stride=13)
    assert min(seen.values()) > 0


@pytest.mark.slow
@pytest.mark.row("S4-21")
@both
def test_a_restore_killed_at_every_step(scene: Scene, deadly: Killer, move_head: bool) -> None:
    seen = every_step(scene, deadly, move_head=move_head, first=1, stride=1)
    assert min(seen.values()) > 0


def edits_in_between(scene: Scene, deadly: Killer, *, stride: int) -> int:
    """Kill a restore, edit what it is about, and see every edit survive. Returns how often."""
    attempts = 0
    number = stride
    while True:
        root = scene.copy(number)
        if not deadly.attempt(root, "restore", scene.target, at=number, move_head=True):
            shutil.rmtree(root)
            return attempts
        edits = {
            "a": "edited after the kill", "new/n": "edited too", "another": "a new file",
            "new/deep/er": "in a directory that was to go", "ignored.o": "ignored",
        }  # fmt: skip
        for name, content in edits.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        workspace = Workspace(root)
        workspace.recover()
        for name, content in edits.items():
            assert (root / name).read_text() == content, (number, name)
        untouched = {"closed", "closed/c", "hollow", "link", ".gitignore"}
        now = picture(root)
        sides = [
            {name: side[name] for name in untouched if name in side}
            for side in (scene.old, scene.new)
        ]  # fmt: skip
        assert {name: now[name] for name in untouched if name in now} in sides, number
        assert not leftovers(root)
        assert workspace.verify() == []
        assert git(root, "for-each-ref", "--contains", scene.lost)
        assert git(root, "fsck", "--no-dangling", "--no-progress") == ""
        shutil.rmtree(root)
        attempts += 1
        number += stride


@pytest.mark.row("S4-21")
def test_edits_between_the_kill_and_the_recovery_survive(scene: Scene, deadly: Killer) -> None:
    assert edits_in_between(scene, deadly, stride=29) > 3


@pytest.mark.slow
def test_edits_survive_a_kill_at_every_step(scene: Scene, deadly: Killer) -> None:
    assert edits_in_between(scene, deadly, stride=2) > 50


def captures(scene: Scene, deadly: Killer, *, first: int, stride: int) -> int:
    """Kill a save at step after step; the next one is as good as if nothing had happened."""
    attempts = 0
    number = first
    while True:
        root = scene.copy(number)
        workspace = Workspace(root)
        workspace.snapshot()
        (root / "a").write_text("owt")
        (root / "swap").unlink()
        (root / "fresh").write_text("fresh")
        now = picture(root)
        killed = deadly.attempt(root, "snapshot", at=number)
        assert picture(root) == now
        saved = workspace.snapshot().commit
        assert workspace.read(saved, "a") == b"owt"
        assert "swap" not in workspace.files(saved)
        assert workspace.read(saved, "fresh") == b"fresh"
        assert workspace.verify() == []
        assert not leftovers(root)
        shutil.rmtree(root)
        if not killed:
            return attempts
        attempts += 1
        number += stride


def test_a_save_killed_at_steps_all_along(scene: Scene, deadly: Killer) -> None:
    assert captures(scene, deadly, first=1, stride=4) > 3


@pytest.mark.slow
def test_a_save_killed_at_every_step(scene: Scene, deadly: Killer) -> None:
    assert captures(scene, deadly, first=1, stride=1) > 15
