"""No call that only POSIX has is made unguarded: found in the source, and by running without them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import __file__ as package
from tests.platforms.posix import CALLS_WITH_KEYWORDS, KEYWORDS, MODULES, NAMES

SOURCE = Path(package).parent
REPOSITORY = Path(__file__).parents[2]
# File snapshots need locks and handles of directories. Whatever works on the private store takes its lock
# first, and that says so where there is no such thing: `test_without_them_states_are_saved_all_the_same`.
BEHIND_THE_LOCK = {
    "workspace/apply.py",
    "workspace/held.py",
    "workspace/incoming.py",
    "workspace/passing.py",
    "workspace/process.py",
    "workspace/store_locks.py",
    "workspace/watch.py",
}
_SIGNS = ("hasattr(", "sys.platform", "os.name", "fcntl is")


def uses(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield whatever only POSIX has, with the place where it stands."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node, one.name) for one in names if one.name in MODULES)
            case ast.ImportFrom(module=module, names=names):
                if module in MODULES:
                    yield node, str(module)
                known = NAMES.get(str(module), frozenset())
                yield from ((node, f"{module}.{one.name}") for one in names if one.name in known)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                if name in NAMES.get(owner, frozenset()) or owner in MODULES:
                    yield node, f"{owner}.{name}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner)), keywords=keywords):
                if owner in CALLS_WITH_KEYWORDS:
                    found = [one.arg for one in keywords if one.arg in KEYWORDS]
                    yield from ((node, f"{owner}: {one}=") for one in found)


def is_guarded(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """Whether something asked first: around it, or before it in the same block and then left."""
    while node in above:
        inner, node = node, above[node]
        if isinstance(node, (ast.If, ast.While, ast.IfExp)) and _asks(node.test):
            return True
        if isinstance(node, ast.BoolOp) and any(_asks(one) for one in node.values):
            return True
        if isinstance(node, ast.Try) and any(_catches_absence(one) for one in node.handlers):
            return True
        if isinstance(node, ast.FunctionDef):
            before = [one for one in node.body if one.lineno < inner.lineno]  # type: ignore[attr-defined]
            if any(_leaves(one) for one in before):
                return True
    return False


def _asks(test: ast.expr) -> bool:
    return any(sign in ast.unparse(test) for sign in _SIGNS)


def _catches_absence(handler: ast.ExceptHandler) -> bool:
    caught = ast.unparse(handler.type) if handler.type is not None else ""
    return "ImportError" in caught or "AttributeError" in caught


def _leaves(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and _asks(statement.test)
        and isinstance(statement.body[-1], (ast.Return, ast.Raise))
    )


def unguarded(text: str) -> list[str]:
    tree = ast.parse(text)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return [f"{node.lineno}: {what}" for node, what in uses(tree) if not is_guarded(node, above)]  # type: ignore[attr-defined]


@pytest.mark.row("S1-90")
def test_no_posix_only_call_is_unguarded() -> None:
    found = {
        name: wrong
        for path in sorted(SOURCE.rglob("*.py"))
        if (name := path.relative_to(SOURCE).as_posix()) not in BEHIND_THE_LOCK
        and (wrong := unguarded(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("import fcntl", False),
        ("try:\n    import fcntl\nexcept ImportError:\n    fcntl = None", True),
        ("import os\nos.fork()", False),
        ("if hasattr(os, 'fork'):\n    os.fork()", True),
        ("def f():\n    if os.name != 'posix':\n        return\n    os.fork()", True),
        ("def f():\n    os.fork()\n    if os.name != 'posix':\n        return", False),
        ("x = os.O_NOFOLLOW", False),
        ("x = getattr(os, 'O_NOFOLLOW', 0)", True),
        ("x = os.geteuid() if hasattr(os, 'geteuid') else 0", True),
        ("x = hasattr(os, 'geteuid') and os.geteuid() == 0", True),
        ("signal.signal(signal.SIGHUP, f)", False),
        ("from signal import SIGKILL", False),
        ("os.open('x', 0, dir_fd=3)", False),
        ("subprocess.run([], start_new_session=True)", False),
        ("while fcntl is not None:\n    fcntl.flock(3, 4)", True),
        ("socket.socket(socket.AF_UNIX)", False),
    ],
)
def test_a_guard_is_told_from_none(text: str, guarded: bool) -> None:
    assert (unguarded(text) == []) == guarded


def test_every_listed_module_needs_its_place_in_the_list() -> None:
    for name in BEHIND_THE_LOCK:
        assert unguarded((SOURCE / name).read_text(encoding="utf-8")), name


@pytest.mark.row("S1-90")
def test_without_them_states_are_saved_all_the_same(tmp_path: Path) -> None:
    """A process that has no POSIX-only name: everything imports, and all but file snapshots works."""
    program = REPOSITORY / "tests" / "platforms" / "elsewhere.py"
    done = subprocess.run(
        [sys.executable, program, str(SOURCE.parent), str(REPOSITORY)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "all is well"
