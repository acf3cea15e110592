from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.errors import InvalidIdentifier
from holdfast.workspace.base import Limits
from holdfast.workspace.paths import batches, fits, folders_of, join, lines, parents, split, within


def test_paths_that_are_no_text_come_back_as_they_were() -> None:
    paths = ["plain", "with\nline", "ä/ö", b"\xff\xfe".decode("utf-8", "surrogateescape")]
    assert split(join(paths)) == paths
    assert lines(paths[2:]) == "ä/ö\n".encode() + b"\xff\xfe\n"
    assert split(b"") == []


def test_parts_hold_every_path_once() -> None:
    paths = [str(number) for number in range(7)]
    assert [list(some) for some in batches(paths, 3)] == [paths[:3], paths[3:6], paths[6:]]
    assert list(batches([], 3)) == []


def test_directories_come_from_the_nearest_to_the_top() -> None:
    assert list(parents("a/b/c")) == ["a/b", "a"]
    assert list(parents("a")) == []
    assert list(folders_of(["a/b/c", "a/d/e", "f", "g/"])) == ["a/b", "a", "a/d", "g"]


@pytest.mark.parametrize(
    ("path", "folders", "is_within"),
    [
        ("a/b", ["a"], True),
        ("a/b", ["a/"], True),
        ("a", ["a"], True),
        ("a/b", ["."], True),
        ("a/b", None, True),
        ("ab", ["a", "a/"], False),
        ("a/b", ["a/b/c"], False),
        ("a/b", [], False),
    ],
    ids=str,
)
def test_a_path_lies_in_a_directory_however_that_is_spelled(
    path: str, folders: list[str] | None, is_within: bool
) -> None:
    assert within(path, folders) is is_within


@pytest.mark.parametrize("spelled", ["dist", "dist/", "."], ids=["plain", "slash", "all"])
def test_included_files_come_and_go_however_their_directory_is_spelled(
    tmp_path: Path, spelled: str
) -> None:
    (tmp_path / ".gitignore").write_text("dist/\n")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "first").write_text("first")
    workspace = Workspace(tmp_path, limits=Limits(include=(spelled,)))
    snapshot = workspace.snapshot()
    (tmp_path / "dist" / "second").write_text("second")
    (tmp_path / ".gitignore").write_text("dist/\nother/\n")
    assert "dist/second" in workspace.files(workspace.snapshot().commit)
    workspace.restore(snapshot.commit)
    assert [one.name for one in (tmp_path / "dist").iterdir()] == ["first"]


@pytest.mark.parametrize("path", ["src/\ud83d", "nul\0"], ids=ascii)
def test_what_no_file_can_be_called_is_refused_before_a_capture_is_told_of_it(
    tmp_path: Path, path: str
) -> None:
    with pytest.raises(InvalidIdentifier):
        Limits(include=(path,))
    with pytest.raises(InvalidIdentifier):
        Limits(patterns=(path,))
    with pytest.raises(InvalidIdentifier):
        Workspace(tmp_path).relative(path)


def test_a_capture_whose_details_cannot_be_read_keeps_none_from_following(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("1")
    (tmp_path / "run").chmod(0o750)
    workspace = Workspace(tmp_path)
    workspace.snapshot()
    note = tmp_path / ".agents" / "workspace.git" / "last.json"
    told = json.loads(note.read_text())
    told["message"] = json.dumps(json.loads(told["message"]) | {"included": ["\ud83d"]})
    note.write_text(json.dumps(told))

    snapshot = workspace.snapshot()

    (tmp_path / "run").chmod(0o600)
    workspace.restore(snapshot.commit)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o750


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("notes/a.md", "notes/*.md", True),
        ("notes/a.txt", "notes/*.md", False),
        ("notes/deep/a.md", "notes/*.md", False),
        ("other/notes/a.md", "notes/*.md", False),
        ("notes/deep.md/a", "notes/*.md", True),
        ("a.md", "**/*.md", True),
        ("x/y/a.md", "**/*.md", True),
        ("x/y/a.txt", "**/*.md", False),
        ("x/y", "x/**/z/*", False),
        ("x/q/r/z/a", "x/**/z/*", True),
        ("x", "x/**", True),
        ("claude-progress.txt", "claude-progress.*", True),
        ("progress[1].md", "progress[[]1].md", True),
    ],
)
def test_a_path_fits_a_pattern_where_a_search_would_find_it(
    path: str, pattern: str, expected: bool
) -> None:
    assert fits(path, pattern) is expected
