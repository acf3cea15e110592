"""What a person sees: colours on a terminal, unless NO_COLOR is set; plain text anywhere else."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, run_process

pty = pytest.importorskip("pty")


def _on_terminal(*arguments: str, cwd: Path, columns: int = 120, **environment: str) -> str:
    """Run ``holdfast`` with a terminal for stdout and stderr, and return what it drew."""
    ours, theirs = pty.openpty()
    settings = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **settings},
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux reports the end of a terminal
            break
        if not part:
            break
        drawn += part
    os.close(ours)
    assert process.wait(60) == 0
    return drawn.decode()


@pytest.fixture
def _two_checkpoints(cli: CommandLine) -> None:
    cli.save("one", {"step": 1, "gone": True})
    cli.save("two", {"step": 2, "text": "[red]not markup[/red] :smile:"})


@pytest.mark.usefixtures("_two_checkpoints")
@pytest.mark.parametrize(
    "arguments", [("log",), ("sessions",), ("show",), ("diff", "one", "two"), ("verify",)]
)
def test_colours_are_for_terminals_and_no_color_is_respected(
    cli: CommandLine, arguments: tuple[str, ...]
) -> None:
    assert "\x1b[" in _on_terminal(*arguments, cwd=cli.project)
    assert "\x1b[3" not in _on_terminal(*arguments, cwd=cli.project, NO_COLOR="1")
    assert "\x1b" not in _on_terminal(*arguments, cwd=cli.project, TERM="dumb")
    assert "\x1b" not in _on_terminal(*arguments, "--json", cwd=cli.project)
    assert b"\x1b" not in run_process(*arguments, cwd=cli.project).stdout


@pytest.mark.usefixtures("_two_checkpoints")
def test_stored_text_is_never_markup(cli: CommandLine) -> None:
    assert "[red]not markup[/red] :smile:" in _on_terminal("show", cwd=cli.project, NO_COLOR="1")


@pytest.mark.usefixtures("_two_checkpoints")
def test_a_narrow_terminal_keeps_ids_whole(cli: CommandLine) -> None:
    session = cli.json("sessions")["sessions"][0]["id"]
    assert session in _on_terminal("sessions", cwd=cli.project, columns=80, NO_COLOR="1")


def test_verify_draws_a_bar_only_for_those_who_wait(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.cli.commands import verify
    from holdfast.cli.options import Common

    monkeypatch.setattr(verify, "on_terminal", lambda err=False: True)
    monkeypatch.setattr(verify, "_PATIENCE", 0.01)
    cli.save("one", {})
    with Common().open() as manager:
        with verify._progress(manager, Common(json=True)) as progress:
            assert progress is None
        with verify._progress(manager, Common()) as progress:
            assert progress is not None
            progress(1)
            time.sleep(0.02)
            progress(2)
            progress(3)


@pytest.fixture
def _drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw as on a terminal, into the answer of a command that runs in this process."""
    from holdfast.cli import output
    from holdfast.cli.commands import demo, diff, log

    for module in (output, demo, diff, log):
        monkeypatch.setattr(module, "on_terminal", lambda err=False: True)
    monkeypatch.setenv("COLUMNS", "80")
    output.console.cache_clear()


@pytest.mark.usefixtures("_drawn", "_two_checkpoints")
def test_tables_fit_the_terminal_and_leave_out_empty_columns(cli: CommandLine) -> None:
    cli.save("x" * 100, {}, "-m", "a description " * 10)
    log = cli.ok("log").splitlines()
    assert log[0].startswith("session ")
    assert "BRANCH" not in log[1]
    assert all(len(line) <= 80 for line in log)
    assert log[2].startswith("xxx")
    assert "…" in log[2]
    assert all(len(line) <= 80 for line in cli.ok("diff", "one", "two").splitlines())
    assert '"step": 2' in cli.ok("show", "two")


@pytest.mark.usefixtures("_drawn")
def test_the_demonstration_ends_with_a_panel(cli: CommandLine) -> None:
    out = cli.ok("demo", "--keep")
    assert "Nothing was lost" in out
    assert "✓ no finished step was repeated" in out
    kept = re.search(r"Kept in (\S+)\. Look around:", out)
    assert kept is not None
    try:
        found = cli.json("log", "--project-dir", kept[1])["checkpoints"]
        assert len(found) == 12
    finally:
        shutil.rmtree(kept[1])
