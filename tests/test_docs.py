"""The documentation is executed: every Python block runs, every named file exists.

Pages that are read with a shell at hand run in one, too: their ``sh`` blocks from top to bottom in a
scratch repository, and a ``text`` block behind one shows lines of what it prints, in their order, where
``…`` stands for anything.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.hooks.installing.agents import AGENTS, AgentName
from tests.pages import ELSEWHERE, ROOT, blocks_of, run_page

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = re.compile(
    r"^```sh\n(?P<commands>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```)?", re.MULTILINE | re.DOTALL
)
SETTINGS = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
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


IN_A_SHELL = [
    ROOT / "docs" / "first-rescue.md",
    *(
        ROOT / "docs" / "how-to" / f"{name}.md"
        for name in ("claude-code", "codex", "gemini-cli", "opencode")
    ),
]


@pytest.mark.parametrize("page", IN_A_SHELL, ids=name_of)
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    for name in ("home", "bin", "project"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "holdfast").symlink_to(Path(sys.executable).parent / "holdfast")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "project", check=True)
    blocks = list(SHELL.finditer(page.read_text(encoding="utf-8")))
    assert blocks
    marks = [f"--- block {number} of {len(blocks)} ---" for number in range(1, len(blocks) + 1)]
    script = "".join(
        f"echo '{mark}'\n{block['commands']}" for mark, block in zip(marks, blocks, strict=True)
    )

    done = subprocess.run(
        ["sh", "-e"],
        input=script,
        cwd=tmp_path / "project",
        env={
            "HOME": str(tmp_path / "home"),
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    printed = re.split("|".join(map(re.escape, marks)), done.stdout)[1:]
    for block, said in zip(blocks, printed, strict=True):
        lines = [re.escape(line).replace("…", ".*") for line in (block["shown"] or "").splitlines()]
        shown = "\n(?:.*\n)*?".join(re.sub(r"(\\ )+", r"\\s+", line) for line in lines)
        assert re.search(f"^{shown}$", said, re.MULTILINE), said


@pytest.mark.row("S1-25")
@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini"])
def test_the_settings_on_a_page_are_those_that_are_written(agent: AgentName) -> None:
    page = ROOT / "docs" / "how-to" / f"{'gemini-cli' if agent == 'gemini' else agent}.md"
    (shown,) = SETTINGS.findall(page.read_text(encoding="utf-8"))

    written = AGENTS[agent].groups(f"holdfast hook --agent {agent}")

    assert json.loads(shown) == {"hooks": {event: [group] for event, group in written.items()}}
