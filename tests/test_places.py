"""What Holdfast keeps in a project stays out of what its user commits."""

import subprocess
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.autosave.fallback import FILE_NAME as ERRORS
from holdfast.doctor import salvage
from holdfast.hooks.desk import FOLDER
from holdfast.places import keep_out_of_git
from holdfast.redaction.keys import FILE_NAME as KEY
from holdfast.runner import brief_path
from holdfast.workspace.base import STORE


def seen_by_git(project: Path) -> list[str]:
    """Return what ``git add`` would take."""
    told = ["git", "status", "--porcelain", "-uall"]
    return subprocess.run(
        told, cwd=project, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def save(project: Path) -> None:
    with SessionManager.open(project_dir=project, redact=True) as manager:
        manager.create_session("library").save_checkpoint(state={"said": "something private"})


def test_a_database_that_is_made_beside_the_first_is_no_more_seen_by_git(project: Path) -> None:
    save(project)
    home = project / ".agents"
    salvage(home / "sessions.db", home / "saved.db")
    with SessionManager.open(project_dir=project) as manager:
        manager.back_up(home / "copy.db")
        manager.copy_to(str(home / "other.db"))
    # As doctor sets a damaged log aside.
    (home / "saved.db-wal.damaged-1").touch()
    assert seen_by_git(project) == []


@pytest.mark.parametrize("kept", [[], ["skills/x/SKILL.md"]], ids=["nothing", "skills"])
def test_git_sees_what_others_keep_beside_us_and_nothing_of_ours(
    project: Path, kept: list[str]
) -> None:
    theirs = [project / ".agents" / one for one in kept]
    for path in theirs:
        path.parent.mkdir(parents=True)
        path.write_text("theirs\n")
    save(project)
    for name in (f"{FOLDER}/a.jsonl", ERRORS, f"{ERRORS}.1", KEY, str(brief_path(project, "one"))):
        path = project / ".agents" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("ours\n")
    assert (project / ".agents" / STORE).is_dir()
    assert seen_by_git(project) == [f"?? {one.relative_to(project)}" for one in theirs]


def test_rules_of_somebody_else_stay_as_they_are(project: Path) -> None:
    rules = project / ".agents" / ".gitignore"
    rules.parent.mkdir()
    rules.write_text("skills/\n")
    save(project)
    assert rules.read_text() == "skills/\n"


def test_nothing_is_written_through_a_link_or_where_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".agents").symlink_to("elsewhere")
    keep_out_of_git(str(tmp_path / ".agents"))
    keep_out_of_git(str(tmp_path / "nowhere" / ".agents"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_database_elsewhere_has_no_rules_beside_it(tmp_path: Path) -> None:
    SessionManager.open(tmp_path / "here.db", workspace=False).close()
    assert not (tmp_path / ".gitignore").exists()
