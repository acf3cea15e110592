from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, run_process


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(cli: CommandLine, shell: str) -> None:
    script = cli.ok("completion", shell)
    assert "_HOLDFAST_COMPLETE" in script
    assert cli.json("completion", shell)["completion"]["script"].strip() == script.strip()


def test_another_shell_is_refused(cli: CommandLine) -> None:
    assert cli("completion", "tcsh").code == 2


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_without_a_shell_the_choices_are_named_in_one_line(
    cli: CommandLine, options: tuple[str, ...]
) -> None:
    answer = cli("completion", *options)
    assert answer.code == 2
    assert "Choose from: bash, zsh, fish" in answer.err
    assert "\\" not in answer.err


def test_the_script_is_answered_with_commands_and_options(cli: CommandLine) -> None:
    def complete(words: str, at: int) -> bytes:
        return run_process(
            cwd=cli.project,
            _HOLDFAST_COMPLETE="bash_complete",
            COMP_WORDS=words,
            COMP_CWORD=str(at),
        ).stdout

    assert b"sessions" in complete("holdfast s", 1)
    assert b"--dry-run" in complete("holdfast prune --", 2)


def completed(folder: Path, words: str, at: int) -> list[str]:
    """Return what a shell in a directory is offered for the word at a place."""
    found = run_process(
        cwd=folder, _HOLDFAST_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(at)
    )
    assert found.returncode == 0, found.stderr
    lines = found.stdout.decode().splitlines()
    return [line.partition(",")[2] for line in lines if line]


def test_no_name_that_a_shell_would_act_upon_is_offered(cli: CommandLine) -> None:
    for name in (
        "$(touch x)",
        "`touch x`",
        "a;touch",
        "a|b",
        "a&b",
        "~",
        "--yes",
        "*",
        "a b",
        "a\nb",
    ):
        cli.save(name, {})
    cli.save("feature/2.0-rc_1", {})
    assert completed(cli.project, "holdfast rollback ", 2) == ["feature/2.0-rc_1"]


def test_names_of_checkpoints_are_completed(cli: CommandLine) -> None:
    def complete(words: str, at: int) -> list[str]:
        return completed(cli.project / "src", words, at)

    (cli.project / "src").mkdir()
    assert complete("holdfast rollback ", 2) == []
    cli.save("before-refactor", {})
    cli.save("before-lunch", {})
    cli.save("other", {}, "--session", "another")
    assert complete("holdfast rollback ", 2) == ["other"]
    for command in ("rollback", "show", "diff"):
        session = cli.json("sessions")["sessions"][1]["id"]
        words = f"holdfast {command} --session {session} be"
        assert complete(words, 4) == ["before-lunch", "before-refactor"]
    for command in (f"resume {session} -c", f"export {session} --checkpoint"):
        assert complete(f"holdfast {command} be", 4) == ["before-lunch", "before-refactor"]
    assert complete("holdfast resume --checkpoint ", 3) == ["other"]
    for command in ("rollback", "undo", "usage"):
        assert command in complete("holdfast ", 1)
    assert {"--dry-run", "--take-over", "--redo"} <= set(complete("holdfast undo --", 2))
