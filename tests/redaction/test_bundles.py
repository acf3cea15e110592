"""What is taken elsewhere in a bundle goes without its secrets."""

from __future__ import annotations

import tarfile
from pathlib import Path
from random import Random

from holdfast import SessionManager
from holdfast.redaction import placeholders_in
from tests.redaction import corpus
from tests.redaction.test_sessions import one_of_each_kind, save_everywhere


def test_secrets_that_are_in_the_store_do_not_leave_it(tmp_path: Path) -> None:
    secrets = one_of_each_kind()
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    target = tmp_path / "work.tar"
    with SessionManager.open(project_dir=here, workspace=False) as manager:
        session_id = save_everywhere(manager, secrets)
        manager.export_session(session_id, target)
        before = manager.get_session(session_id).present_state()
    with SessionManager.open(project_dir=there, workspace=False) as manager:
        manager.import_bundle(target)
        assert manager.verify().ok
        session = manager.get_session(session_id)
        after = session.present_state()
        everything = str(
            [
                after,
                session.record,
                [one.record for one in session.list_checkpoints()],
                [one.state for one in session.list_checkpoints()],
                session.logs(),
                [(one.record, one.status == "done" and one.result) for one in session.effects()],
            ]
        )
        lines = {kind: max(one.split("\n"), key=len) for kind, one in secrets.items()}
        assert [kind for kind, one in lines.items() if one in everything] == []
    assert {one.kind for one in placeholders_in(after)} == set(secrets)
    assert before.keys() == after.keys()
    with tarfile.open(target) as archive:
        brief = archive.extractfile("BRIEF.md")
        assert brief is not None
        text = brief.read().decode()
    assert [kind for kind, one in secrets.items() if one in text] == []


def test_what_has_no_secrets_leaves_as_it_is(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with SessionManager.open(project_dir=project, workspace=False, redact=True) as manager:
        session_id = save_everywhere(manager, one_of_each_kind())
        manager.export_session(session_id, tmp_path / "a.tar")
    with SessionManager.open(project_dir=project, workspace=False, redact=False) as manager:
        manager.export_session(session_id, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    token = corpus.TOKENS["github-token"][0](Random(1))
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    with SessionManager.open(project_dir=project, workspace=False, redact=False) as manager:
        session = manager.create_session("implementer")
        session.save_checkpoint(state={"t": token})
        manager.export_session(session.id, tmp_path / "a.tar")
    with SessionManager.open(project_dir=other, workspace=False) as manager:
        manager.import_bundle(tmp_path / "a.tar")
        assert manager.get_session(session.id).state == {"t": token}
