"""The little project that the agent works on: a git repository with a shop in it, and its tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.config import AGENTS_DIR
from holdfast.errors import HoldfastError

Contents: TypeAlias = dict[str, bytes]
"""Files by their path, as they are on the disk."""

PRICE: Final = 49
VERSION: Final = "1.1.0"
TAX_TABLE: Final = "shop/tax.json"
TAX_RATES: Final = '{"AT": 20, "DE": 19, "FR": 20, "IT": 22}\n'
PRICES: Final = '''"""What things cost."""


def total(prices):
    """Return what an order costs: a tenth less above 100."""
    full = sum(prices)
    return full * 0.9 if full > 100 else full
'''
BROKEN_PRICES: Final = '''"""What things cost, tidied."""

total = lambda prices: max(prices
'''
TESTS: Final = """import unittest

from shop.prices import total


class Prices(unittest.TestCase):
    def test_an_order_is_the_sum_of_its_parts(self):
        self.assertEqual(total([1, 2, 3]), 6)

    def test_orders_above_100_cost_a_tenth_less(self):
        self.assertEqual(total([150, 50]), 180)

    def test_orders_of_100_do_not(self):
        self.assertEqual(total([100]), 100)
"""
CHANGELOG: Final = f"## {VERSION}\n\n- Orders above 100 cost a tenth less.\n"

_FILES: Final = {
    ".gitignore": f"{AGENTS_DIR}/\n__pycache__/\n",
    "README.md": "# A little shop\n",
    "shop/__init__.py": "",
    "shop/prices.py": (
        '"""What things cost."""\n\n\ndef total(prices):\n    """Return what an order costs."""\n'
        "    return sum(prices)\n"
    ),
    "tests/__init__.py": "",
    "tests/test_prices.py": (
        "import unittest\n\nfrom shop.prices import total\n\n\nclass Prices(unittest.TestCase):\n"
        "    def test_an_order_is_the_sum_of_its_parts(self):\n"
        "        self.assertEqual(total([1, 2, 3]), 6)\n"
    ),
}
_AUTHOR: Final = ("-c", "user.name=Demo", "-c", "user.email=demo@example.org")
_RAN: Final = re.compile(r"^Ran (\d+) tests?", re.MULTILINE)
_BAD: Final = re.compile(r"(?:failures|errors)=(\d+)")


class DemoFailed(HoldfastError):
    """The demonstration could not be carried out."""

    code = "demo_failed"


def make_project(folder: Path) -> Path:
    """Create the shop, with a first commit. Raises `DemoFailed` without git."""
    git = shutil.which("git")
    if git is None:
        raise DemoFailed("git is not installed, and the agent works on a repository: install it")
    for path, text in _FILES.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")
    # The settings of whoever runs it have no say: no signing, no hooks, no templates.
    env = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for arguments in (
        ("init", "--quiet", "--template=", "--initial-branch=main"),
        ("add", "--all"),
        (*_AUTHOR, "commit", "--quiet", "--message=A little shop"),
    ):
        done = subprocess.run(
            [git, *arguments], cwd=folder, env=env, capture_output=True, check=False
        )
        if done.returncode:
            said = done.stderr.decode(errors="backslashreplace").strip()
            raise DemoFailed(f"no git repository could be made for the project: {said}")
    return folder


def run_tests(folder: Path) -> str:
    """Run the shop's tests in a process of their own and return how they went, in a line."""
    done = subprocess.run(
        [sys.executable, "-E", "-S", "-B", "-m", "unittest", "discover", "-t", ".", "-s", "tests"],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    found = _RAN.search(done.stderr)
    ran = int(found[1]) if found else 0
    if done.returncode == 0:
        return f"{ran} tests passed"
    bad = sum(int(count) for count in _BAD.findall(done.stderr.rpartition("FAILED")[2]))
    return f"{bad} of {ran} tests failed"


def read_files(project: Path) -> Contents:
    """Return the project's files, without Holdfast's and git's own."""
    return _read(project, skip=(AGENTS_DIR, ".git"))


def read_repository(project: Path) -> Contents:
    """Return every file of the project's own git repository."""
    return _read(project / ".git")


def _read(folder: Path, *, skip: tuple[str, ...] = ()) -> Contents:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for top in folder.iterdir()
        if top.name not in skip
        for file in (sorted(top.rglob("*")) if top.is_dir() else [top])
        if file.is_file()
    }
