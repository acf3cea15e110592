"""The threat model names a proof for each guarantee, and every proof that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security" / "threat-model.md"
REFERENCE = re.compile(r"`((?:tests|src/holdfast/testing)/[\w/]+\.py)(?:::(\w+))?`")
ROW = re.compile(r"^\| (?!guarantee|---)(.+?) \| (.+?) \|$", re.MULTILINE)

ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def test_the_page_has_its_tables() -> None:
    assert len(ROWS) >= 30


@pytest.mark.parametrize("row", ROWS, ids=[str(number) for number in range(1, len(ROWS) + 1)])
def test_a_guarantee_has_proofs_that_exist(row: tuple[str, str]) -> None:
    guarantee, proof = row
    found = REFERENCE.findall(proof)
    assert found, guarantee
    assert REFERENCE.sub("", proof).strip(", ") == "", "nothing but tests stands for a proof"
    for path, name in found:
        assert (ROOT / path).is_file(), path
        known = names_in(ROOT / path)
        if name:
            assert name in known, f"{path}::{name}"
        else:
            # A whole file: tests of its own, or a contract that it runs.
            text = (ROOT / path).read_text(encoding="utf-8")
            assert any(one.startswith("test_") for one in known) or "Contract)" in text, path


def test_every_named_test_would_be_missed(tmp_path: Path) -> None:
    """The check itself finds a test that is gone."""
    module = tmp_path / "test_some.py"
    module.write_text("def test_here(): ...\nclass C:\n    async def test_inside(self): ...\n")
    assert names_in(module) == {"test_here", "test_inside"}


def test_the_policy_leads_to_the_model() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / target).is_file(), target
    assert "docs/security/threat-model.md" in text
