"""The pages for contributors say what is true of the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.cli.group import COMMANDS

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    listed = re.findall(r"^(\d+)\. \[(.+)\]\(decisions/(.+)\)$", INDEX, re.MULTILINE)
    assert [name for _, _, name in listed] == [page.name for page in DECISIONS]
    for number, (shown, title, name) in enumerate(listed, start=1):
        first, _, _ = (ROOT / "docs" / "decisions" / name).read_text("utf-8").partition("\n")
        assert name.startswith(f"{number:04}-")
        assert first == f"# {shown}. {title}"
        assert shown == str(number)


def test_every_page_is_reached_from_the_index() -> None:
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\((.+?)\)", INDEX)}
    pages = {page.resolve() for page in (ROOT / "docs").rglob("*.md")}
    assert pages - linked == {(ROOT / "docs" / "index.md").resolve()}


def test_every_module_of_the_package_has_a_place_in_the_table() -> None:
    table = CONTRIBUTING.partition("| layer |")[2].partition("\n\n")[0]
    named = {
        name
        for row in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", row.split(" | ")[1])
    }
    source = ROOT / "src" / "holdfast"
    modules = {path.stem for path in source.glob("[a-z]*.py")}
    modules |= {path.parent.name for path in source.glob("*/__init__.py")}
    assert named == modules


@pytest.mark.parametrize(
    "path",
    sorted(
        set(re.findall(r"`((?:tests|stores|sql|cli|docs|benchmarks)/[\w./]*\w/?)`", CONTRIBUTING))
    ),
)
def test_every_file_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "src" / "holdfast" / path).exists()


def test_the_changelog_names_every_command() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`{name}`" not in text] == []
