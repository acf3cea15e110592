"""The package as an importer sees it: light, complete, typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

HEAVY = ("asyncio", "psycopg", "starlette", "mcp", "rich", "click", "langgraph", "orjson", "apsw")
SOURCE = Path(holdfast.__file__).parent


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, holdfast; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.row("S3-09", "S1-36")
def test_every_public_name_imports_without_a_postgres_driver() -> None:
    code = (
        "import sys\n"
        "sys.modules['psycopg'] = sys.modules['psycopg_pool'] = None\n"
        "import holdfast\n"
        "for name in holdfast.__all__: getattr(holdfast, name)\n"
        "assert 'asyncpg' not in sys.modules\n"
        "print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("fine", "")


@pytest.mark.row("S3-09")
def test_a_postgres_store_without_its_driver_names_the_extra() -> None:
    code = (
        "import sys\n"
        "sys.modules['psycopg'] = sys.modules['psycopg_pool'] = None\n"
        "from holdfast import SessionManager\n"
        "from holdfast.errors import MissingExtra\n"
        "try: SessionManager.open('postgresql://localhost/x', workspace=False)\n"
        "except MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'holdfast[postgres]'" in done.stdout


def test_the_public_names_are_those_and_no_others() -> None:
    assert sorted(dir(holdfast)) == sorted(holdfast.__all__)
    with pytest.raises(AttributeError):
        _ = holdfast.NoSuchName


@pytest.mark.row("S2-22")
def test_stored_data_never_becomes_code() -> None:
    forbidden = re.compile(
        r"\b(pickle|dill|shelve|jsonpickle)\b|\bmarshal\.loads?\b|\beval\(|\bexec\(|yaml\.load\b"
        r"|__import__\("
    )
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("agent_framework", "agent_framework"),
        ("claude_agent_sdk", "claude_agent_sdk"),
        ("google_adk", "google.adk"),
        ("openai_agents", "agents"),
        ("pydantic_ai", "pydantic_ai"),
    ],
    ids=["agent_framework", "claude_agent_sdk", "google_adk", "openai_agents", "pydantic_ai"],
)
def test_an_adapter_without_its_framework_names_the_extra(module: str, package: str) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from holdfast.errors import MissingExtra\n"
        f"try: import holdfast.integrations.{module}\n"
        "except MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert f"pip install 'holdfast[{module.replace('_', '-')}]'" in done.stdout, done.stderr
