"""The documentation is executed: every Python block runs, every named file exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import ELSEWHERE, ROOT, blocks_of, run_page

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


WITH_CODE = [page for page in PAGES if blocks_of(page)]


@pytest.mark.parametrize("page", [page for page in WITH_CODE if page not in ELSEWHERE], ids=name_of)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    run_page(page)


def test_pages_that_need_a_framework_are_run_where_it_is_installed() -> None:
    tests = ROOT / "tests" / "frameworks"
    environments = {path.parent.name for path in tests.glob("*/constraints.txt")}
    assert environments == set(ELSEWHERE.values())
    assert ELSEWHERE.keys() <= set(WITH_CODE)
    for framework in ELSEWHERE.values():
        text = "".join(
            path.read_text(encoding="utf-8") for path in (tests / framework).glob("*.py")
        )
        assert "run_page(PAGE)" in text
        assert "run_example(" in text
        assert "undescribed(" in text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = [
        target
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
