"""What the package as a whole promises: a light install, documentation, security, a coverage gate."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import stat
import subprocess
import sys
import textwrap
import tomllib
import typing
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import Session, SessionManager
from holdfast.aio import AsyncSession, AsyncSessionManager
from tests import test_fault_tolerance
from tests.cli.conftest import run_process
from tests.docstrings import undescribed
from tests.pages import ELSEWHERE

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def imports_of(requirements: list[str]) -> set[str]:
    """The top-level modules that these requirements would bring."""
    names = {re.split(r"[\[<>=!;~ ]", one)[0] for one in requirements}
    known = {"langgraph-checkpoint": "langgraph", "holdfast": ""}
    return {known.get(name, name) for name in names} - {""}


@pytest.mark.row("S1-36", "S3-09")
def test_the_plain_install_saves_and_resumes_without_any_extra() -> None:
    extras = {
        module
        for requirements in SETTINGS["project"]["optional-dependencies"].values()
        for module in imports_of(requirements)
    } - imports_of(SETTINGS["project"]["dependencies"])
    assert extras >= {"psycopg", "psycopg_pool", "cryptography", "starlette", "mcp", "langgraph"}
    program = f"""
        import sys
        for name in {sorted(extras)!r}:
            sys.modules[name] = None

        from holdfast import SessionManager
        with SessionManager.open("plain.db", workspace=False) as manager:
            session = manager.create_session("a")
            session.save_checkpoint("one", state={{"n": 1}})
            print(manager.resume_session(session.id).state)

        import holdfast
        for name in holdfast.__all__:
            getattr(holdfast, name)
    """
    with_nothing = run_python(program)
    assert (with_nothing.stdout, with_nothing.stderr) == ("{'n': 1}\n", "")


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.mark.row("S3-09")
def test_a_driver_is_an_extra_and_never_a_dependency() -> None:
    always = SETTINGS["project"]["dependencies"]
    assert not [one for one in always if re.search("psycopg|asyncpg|pg8000", one)]
    extra = SETTINGS["project"]["optional-dependencies"]["postgres"]
    assert imports_of(extra) == {"psycopg", "psycopg_pool"}


@pytest.mark.row("S1-37")
@pytest.mark.parametrize(
    ("verb", "calls"),
    [
        ("new", [SessionManager.create_session, AsyncSessionManager.create_session]),
        ("save", [Session.save_checkpoint, AsyncSession.save_checkpoint]),
        ("restore", [Session.load_checkpoint, AsyncSession.load_checkpoint]),
        ("get", [Session.list_checkpoints, AsyncSession.list_checkpoints]),
        ("resume", [SessionManager.resume_session, AsyncSessionManager.resume_session]),
    ],
)
def test_each_verb_exists_documented_and_typed(verb: str, calls: list[Callable[..., Any]]) -> None:
    assert (files("holdfast") / "py.typed").is_file()
    for call in calls:
        assert len(inspect.getdoc(call) or "") > 20
        signature = inspect.signature(call)
        annotated = [
            one.annotation is not inspect.Parameter.empty
            for name, one in signature.parameters.items()
            if name != "self"
        ]
        assert all(annotated)
        assert signature.return_annotation is not inspect.Signature.empty


def modules() -> Iterator[ModuleType]:
    yield holdfast
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        # The tests of adapters that are tested elsewhere ask the same of them.
        if found.name.rpartition(".")[2] not in ("__main__", *ELSEWHERE.values()):
            yield importlib.import_module(found.name)


@pytest.mark.row("S2-19")
def test_every_public_name_of_every_module_has_a_docstring() -> None:
    bare = [name for module in modules() for name in undescribed(module)]
    assert bare == []


@pytest.mark.row("S2-22")
def test_no_stored_data_becomes_code_anywhere_in_the_tree() -> None:
    forbidden = re.compile(
        r"\b(?:import|from)\s+(?:pickle|dill|shelve|jsonpickle|cloudpickle|yaml)\b"
        r"|\bpickle\.|\bmarshal\.loads?\b|(?<![\w.])(?:eval|exec)\(|\byaml\.(?:unsafe_)?load\b"
        r"|__import__\(|\bos\.system\(|shell=True"
    )
    folders = [ROOT / name for name in ("src", "benchmarks", "examples") if (ROOT / name).exists()]
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in folders
        for path in folder.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []


@pytest.mark.row("S2-22")
def test_no_sql_is_written_around_a_value() -> None:
    """Statements stand in files; in Python there is none into which a value could be put."""
    statement = re.compile(r"""["'](?:SELECT|INSERT INTO|UPDATE|DELETE FROM|DROP|CREATE) """)
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if statement.search(line) and "testing" not in path.parts
    ]
    assert found == []
    # Whatever it begins with: none is put together where it is sent.
    calls = [
        f"{path.relative_to(SOURCE)}:{call.lineno}"
        for path in SOURCE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and getattr(call.func, "attr", None) in ("execute", "executemany", "executescript", "query")
        and any(map(put_together, call.args))
    ]
    assert calls == []


def put_together(expression: ast.expr) -> bool:
    """Whether an expression makes a text of pieces, one of which stands there itself."""
    if isinstance(expression, ast.BinOp):
        sides = (expression.left, expression.right)
        return any(isinstance(one, ast.Constant) or put_together(one) for one in sides)
    return isinstance(expression, ast.JoinedStr)


@pytest.mark.row("S2-22")
def test_the_security_scan_is_clean() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bandit", "-q", "-r", "src", "-c", "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.row("S1-35", "S1-98")
@pytest.mark.parametrize(("covered", "status"), [(9, 0), (7, 1)])
def test_the_coverage_gate_lets_eighty_percent_pass_and_less_not(
    tmp_path: Path, covered: int, status: int
) -> None:
    """The project's own settings, on a package of ten lines of which some are never run."""
    gate = SETTINGS["tool"]["coverage"]["report"]["fail_under"]
    assert gate >= 80
    package = tmp_path / "sample"
    package.mkdir()
    never = "".join(f"    x = {n}\n" for n in range(10 - covered))
    always = "".join(f"x = {n}\n" for n in range(covered - 1))
    (package / "__init__.py").write_text(f"{always}def never() -> None:\n{never}")
    (tmp_path / "test_sample.py").write_text("import sample\n\n\ndef test_one() -> None: ...\n")
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.coverage.run]\nsource_pkgs = ['sample']\n[tool.coverage.report]\nfail_under = {gate}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--cov"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "1 passed" in done.stdout
    assert done.returncode == status, done.stdout


@pytest.mark.row("S1-35", "S1-98")
def test_ci_runs_the_tests_with_that_gate() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^test:.*\n\t(.*)$", makefile, re.MULTILINE)
    assert recipe is not None
    assert "--cov" in recipe[1].split()
    assert "--no-cov" not in recipe[1]
    assert "fail-under" not in recipe[1], "the one number stands in pyproject.toml"
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in script
    assert re.search(r"^make test$", script, re.MULTILINE)


@pytest.mark.row("S1-16")
def test_the_database_is_made_for_its_owner_and_git_is_told_to_leave_it_out(
    tmp_path: Path,
) -> None:
    project = tmp_path / "a project"
    deep = project / "src" / "ü"
    deep.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    done = run_process("init", cwd=deep, HOLDFAST_URL="")
    assert (done.returncode, done.stderr) == (0, b"")
    database = project / ".agents" / "sessions.db"
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert (project / ".gitignore").read_text() == ".agents/\n"
    elsewhere = tmp_path / "not" / "there" / "yet" / "mine.db"
    with SessionManager.open(elsewhere, workspace=False) as manager:
        manager.create_session("a")
    assert elsewhere.is_file()


@pytest.mark.row("S2-15", "S2-16", "S2-17")
@pytest.mark.parametrize(
    ("group", "least"),
    [
        ("TestCheckpointMetadata", 5),
        ("TestMemoryCheckpointSaver", 8),
        ("TestSQLiteCheckpointSaver", 10),
    ],
)
def test_the_groups_of_tests_are_as_large_as_was_asked(group: str, least: int) -> None:
    tests = [
        name for name in vars(getattr(test_fault_tolerance, group)) if name.startswith("test_")
    ]
    assert len(tests) >= least


def test_type_hints_of_the_public_classes_can_be_read() -> None:
    for value in (Session, SessionManager):
        for name, member in vars(value).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                typing.get_type_hints(member)
