"""A session keeps the command that it was started with. Whose command that is, decides whether it is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.model import utc_now
from tests.workspace.pictures import make_repository


def holdfast(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=project, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.fixture
def stranger(tmp_path: Path, mark: Path) -> Iterator[SessionManager]:
    """Somebody else's project, with sessions whose command leaves a mark."""
    make_repository(tmp_path / "stranger")
    with SessionManager.open(project_dir=tmp_path / "stranger") as manager:
        for name, until in (("plain", None), ("parked", utc_now() - timedelta(hours=1))):
            session = manager.create_session(
                "implementer",
                session_id=name,
                metadata={"command": ["/bin/sh", "-c", f"touch '{mark}'"], "directory": "."},
            )
            session.save_checkpoint("work", state={"step": 1})
            session.pause("approval", until=until)
        yield manager


def resume_in_every_way(project: Path) -> list[subprocess.CompletedProcess[str]]:
    return [
        holdfast(project, "resume"),
        holdfast(project, "resume", "plain"),
        holdfast(project, "resume", "parked", "--json"),
        holdfast(project, "resume", "--when-due", "--limit", "5"),
        holdfast(project, "recover"),
        holdfast(project, "resume", "plain", "--no-start"),
        holdfast(project, "brief", "plain"),
    ]


def test_the_command_of_a_project_that_was_cloned_is_shown_and_not_started(
    stranger: SessionManager, mark: Path, tmp_path: Path
) -> None:
    stranger.close()
    clone = tmp_path / "clone"
    shutil.copytree(stranger.project_dir, clone)
    _, named, *_ = resume_in_every_way(clone)
    assert not mark.exists()
    assert named.returncode == 2
    assert "wants to run" in named.stderr
    assert "touch" in named.stderr
    # It is a live one: whoever has looked at it may start it, and is not asked again.
    assert holdfast(clone, "resume", "parked", "--trust").returncode == 0
    assert mark.exists()


def test_the_command_of_a_bundle_is_shown_and_not_started(
    stranger: SessionManager, mark: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    make_repository(mine)
    for name in ("plain", "parked"):
        bundle = stranger.export_session(name, tmp_path / f"{name}.tar").path
        done = holdfast(mine, "import", str(bundle), "--restore")
        assert done.returncode == 0, done.stderr
    resume_in_every_way(mine)
    assert not mark.exists()


def test_one_word_more_makes_another_command(tmp_path: Path, mark: Path) -> None:
    project = tmp_path / "project"
    make_repository(project)
    done = holdfast(project, "run", "--", "/bin/sh", "-c", "exit 5")
    assert done.returncode == 5, done.stderr
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
    # Its own command is started without a question.
    assert holdfast(project, "resume", record.id).returncode == 5
    with SessionManager.open(project_dir=project) as manager:
        session = manager.resume_session(record.id)
        session.update_metadata({"command": ["/bin/sh", "-c", f"touch '{mark}'"]})
        session.pause("changed")
    assert holdfast(project, "resume", record.id).returncode == 2
    assert not mark.exists()


def test_the_id_of_a_session_leads_its_brief_nowhere_else(tmp_path: Path) -> None:
    project, victim = tmp_path / "project", tmp_path / "victim.md"
    make_repository(project)
    victim.write_text("precious")
    session_id = "../../../victim"
    with SessionManager.open(project_dir=project) as manager:
        session = manager.create_session(
            "implementer",
            session_id=session_id,
            metadata={"command": ["/bin/sh", "-c", 'cat "$HOLDFAST_BRIEF"'], "directory": "."},
        )
        session.save_checkpoint("work", state={"step": 1})
        session.pause("later")
    done = holdfast(project, "resume", session_id, "--trust")
    assert done.returncode == 0, done.stderr
    assert session_id in done.stdout
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        (".agents/briefs", "elsewhere"),
        (".agents/briefs", "elsewhere/new"),
        (".agents/briefs/plain.md", "elsewhere/new"),
    ],
)
def test_a_brief_is_not_written_through_a_link(link: str, target: str, tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    make_repository(project)
    elsewhere.mkdir()
    with SessionManager.open(project_dir=project) as manager:
        session = manager.create_session(
            "implementer", session_id="plain", metadata={"command": ["true"], "directory": "."}
        )
        session.save_checkpoint("work", state={"step": 1})
        session.pause("later")
    (project / link).parent.mkdir(exist_ok=True)
    (project / link).symlink_to(tmp_path / target)
    refused = holdfast(project, "resume", "plain", "--trust")
    assert (refused.returncode, "remove the link" in refused.stderr) == (2, True)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("what", ["pipe", "another name of a file", "directory"])
def test_a_brief_is_a_new_file_whatever_is_in_its_place(what: str, tmp_path: Path) -> None:
    project, victim = tmp_path / "project", tmp_path / "victim"
    make_repository(project)
    victim.write_text("precious")
    with SessionManager.open(project_dir=project) as manager:
        session = manager.create_session(
            "implementer",
            session_id="plain",
            metadata={"command": ["sh", "-c", 'cat "$HOLDFAST_BRIEF"'], "directory": "."},
        )
        session.save_checkpoint("work", state={"step": 1})
        session.pause("later")
    brief = project / ".agents" / "briefs" / "plain.md"
    brief.parent.mkdir()
    if what == "pipe":
        os.mkfifo(brief)
    elif what == "directory":
        brief.mkdir()
    else:
        brief.hardlink_to(victim)
    done = holdfast(project, "resume", "plain", "--trust")
    if what == "directory":
        assert (done.returncode, "the brief cannot be written" in done.stderr) == (2, True)
        brief.rmdir()
        # Nobody holds it.
        done = holdfast(project, "resume", "plain")
    assert (done.returncode, "plain" in done.stdout) == (0, True), done.stderr
    assert victim.read_text() == "precious"
