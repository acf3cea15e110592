import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


def _git(project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)


def test_init_creates_a_private_database(cli: CommandLine) -> None:
    document = cli.json("init")["project"]
    home = cli.project / ".agents"
    assert document["database"] == "created"
    assert document["project_dir"] == str(cli.project)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "sessions.db").stat().st_mode) == 0o600


def test_init_says_what_it_did_and_doing_it_again_changes_nothing(cli: CommandLine) -> None:
    _git(cli.project)
    first = cli.ok("init")
    assert "created" in first
    assert "added .agents/" in first
    before = (cli.project / ".gitignore").read_bytes()
    second = cli.ok("init")
    assert "was there already" in second
    assert "was ignored already" in second
    assert (cli.project / ".gitignore").read_bytes() == before == b".agents/\n"


def test_git_then_ignores_the_directory(cli: CommandLine) -> None:
    _git(cli.project)
    cli.ok("init")
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=cli.project, capture_output=True, check=True
    )
    assert b".agents" not in status.stdout


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"*.pyc", b"*.pyc\n.agents/\n"),
        (b"*.pyc\r\n", b"*.pyc\r\n.agents/\r\n"),
        (b"/.agents\n", b"/.agents\n"),
        (b"  .agents/\r\n", b"  .agents/\r\n"),
    ],
)
def test_an_existing_gitignore_is_continued_in_its_own_way(
    cli: CommandLine, before: bytes, after: bytes
) -> None:
    (cli.project / ".gitignore").write_bytes(before)
    cli.ok("init", "--gitignore")
    assert (cli.project / ".gitignore").read_bytes() == after


def test_no_gitignore_leaves_git_alone(cli: CommandLine) -> None:
    _git(cli.project)
    assert cli.json("init", "--no-gitignore")["project"]["gitignore"] == "not_added"
    assert not (cli.project / ".gitignore").exists()


def test_outside_of_git_there_is_nothing_to_ignore(cli: CommandLine) -> None:
    assert cli.json("init")["project"]["gitignore"] == "not_added"
    assert not (cli.project / ".gitignore").exists()


def test_a_gitignore_that_is_a_link_is_not_followed(cli: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("x\n")
    (cli.project / ".gitignore").symlink_to(target)
    assert cli.json("init", "--gitignore")["project"]["gitignore"] == "not_added"
    assert target.read_text() == "x\n"


@pytest.mark.row("S1-16")
def test_the_store_is_at_the_top_of_the_project_from_any_subdirectory(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _git(cli.project)
    deep = cli.project / "src" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    cli.ok("init")
    cli.save("first", {"step": 1})
    assert (cli.project / ".agents" / "sessions.db").is_file()
    assert [path.name for path in cli.project.rglob(".agents")] == [".agents"]
    monkeypatch.chdir(cli.project)
    assert cli.json("log")["checkpoints"][0]["name"] == "first"


def test_init_prepares_another_store_with_url(cli: CommandLine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other/my.db"
    assert cli.json("init", "--url", url)["project"]["url"] == url
    assert (tmp_path / "other" / "my.db").is_file()
    assert not (cli.project / ".agents").exists()


def test_a_directory_that_is_not_there_is_an_input_error(cli: CommandLine) -> None:
    answer = cli("init", "--project-dir", "nowhere")
    assert answer.code == 2
    assert "does not exist" in answer.err
