"""``holdfast keys``: a ring is made, changed and counted."""

import errno
import json
import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from holdfast import SessionManager
from holdfast.cli import holdfast
from holdfast.crypto import KeyRing
from holdfast.errors import PlaintextRefused, StoreUnavailable
from holdfast.stores.sealed import SealedStore


def run(*arguments: str) -> Result:
    return CliRunner().invoke(holdfast, arguments)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "holdfast.keys"
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(path))
    return path


def test_a_ring_is_made_once_for_its_owner_only(file: Path) -> None:
    answer = run("keys", "new", str(file), "--json")
    assert answer.exit_code == 0, answer.output
    ring = KeyRing.from_file(file)
    assert json.loads(answer.stdout)["key_file"]["current"] == ring.current
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for key in (*ring.keys.values(), ring.names):
        assert key.hex() not in answer.output
    again = run("keys", "new", str(file))
    assert again.exit_code == 2
    assert KeyRing.from_file(file).keys == ring.keys
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_which_file_is_asked_for_with_advice_that_helps(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = run("keys", "new")
    assert answer.exit_code == 2
    assert "which FILE? Name it" in answer.stderr
    assert "HOLDFAST_KEY_FILE" not in answer.stderr
    assert not file.exists()
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    assert "set HOLDFAST_KEY_FILE" in run("keys", "add").stderr


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    answer = run("keys", "new", str(tmp_path / ".config" / "holdfast.keys"))
    assert answer.exit_code == 2
    assert f"there is no directory {tmp_path / '.config'}; make it" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link_and_the_file_keeps_its_permissions(file: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    kept = shared / "ring"
    run("keys", "new", str(kept))
    kept.chmod(0o640)
    file.symlink_to(kept)
    before = KeyRing.from_file(kept)
    assert run("keys", "add").exit_code == 0
    assert file.is_symlink()
    after = KeyRing.from_file(kept)
    assert list(after.keys)[1:] == list(before.keys)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert [one.name for one in shared.iterdir()] == [kept.name]


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="only root gives files away")
def test_a_file_keeps_its_owner(file: Path) -> None:
    run("keys", "new", str(file))
    os.chown(file, 4321, 5432)
    assert run("keys", "add").exit_code == 0
    found = file.stat()
    assert (found.st_uid, found.st_gid) == (4321, 5432)
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_a_file_whose_owner_cannot_be_kept_is_left_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("keys", "new", str(file))
    before = file.read_text()

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("holdfast.crypto.files._belong_alike", refused)
    answer = run("keys", "add")
    assert answer.exit_code == 2
    assert "It is as it was" in answer.output
    assert file.read_text() == before
    assert [one.name for one in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("error", [StoreUnavailable, KeyboardInterrupt])
def test_an_interrupted_rotation_ends_with_what_it_has_left(
    file: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("keys", "new", str(file))
    with SessionManager.open(workspace=False) as manager:
        manager.create_session(agent_type="t", task_description="secret")
    run("keys", "add")
    with monkeypatch.context() as broken:
        broken.setattr(SealedStore, "write_seal", Mock(side_effect=error("the server is gone")))
        stopped = run("keys", "rotate")
    assert stopped.exit_code == (6 if error is StoreUnavailable else 130)
    assert "Keep all keys of the ring, and rotate again" in stopped.stderr
    assert run("keys", "rotate").exit_code == 0


def test_a_new_key_takes_over(file: Path) -> None:
    run("keys", "new", str(file))
    old = KeyRing.from_file(file)
    with SessionManager.open(workspace=False) as manager:
        session = manager.create_session(agent_type="t", task_description="secret")
        session.save_checkpoint("one", state={"a": 1})
    added = run("keys", "add")
    assert added.exit_code == 0, added.output
    assert "holdfast keys rotate" in added.output
    new = KeyRing.from_file(file)
    assert list(new.keys)[1:] == list(old.keys)
    assert new.names == old.names
    counted = json.loads(run("keys", "list", "--json").stdout)["keys"]
    assert counted["old_values"] == sum(counted["values"].values()) > 0
    rotated = run("keys", "rotate")
    assert rotated.exit_code == 0, rotated.output
    assert new.current in rotated.output
    counted = json.loads(run("keys", "list", "--json").stdout)["keys"]
    assert (counted["old_values"], counted["current"]) == (0, new.current)
    shown = run("keys", "list").output
    assert "seals" in shown
    assert "opens" in shown
    file.write_text(new.only(set()).text())
    with SessionManager.open(workspace=False) as manager:
        assert manager.get_session(session.id).load_checkpoint("one").state == {"a": 1}


def test_keys_are_counted_and_changed_for_the_tenant_that_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("keys", "new", str(file))
    for tenant in ("default", "acme"):
        monkeypatch.setenv("HOLDFAST_TENANT", tenant)
        with SessionManager.open(workspace=False) as manager:
            manager.create_session(agent_type="t", task_description="secret")
    monkeypatch.delenv("HOLDFAST_TENANT")
    run("keys", "add")
    rotated = run("keys", "rotate")
    assert "of tenant default with" in rotated.output
    assert "tenant default" in run("keys", "list").output
    here = json.loads(run("keys", "list", "--json").stdout)["keys"]
    there = json.loads(run("keys", "list", "--tenant", "acme", "--json").stdout)["keys"]
    assert (here["tenant"], here["old_values"]) == ("default", 0)
    assert there["tenant"] == "acme"
    assert there["old_values"] > 0


def test_what_is_damaged_is_named_and_ends_with_its_exit_code(file: Path) -> None:
    run("keys", "new", str(file))
    with SessionManager.open(workspace=False) as manager:
        session = manager.create_session(agent_type="t", task_description="secret")
        session.save_checkpoint("one", state={"a": 1})
        assert isinstance(manager.store, SealedStore)
        manager.store.inner.append_log(session.id, "info", "past the key")
    run("keys", "add")
    for action in ("rotate", "list"):
        answer = run("keys", action)
        assert answer.exit_code == 5
        assert "damaged session_logs id=1: the log of" in answer.output
        assert "1 row damaged" in answer.output
        assert run("keys", action, "--json").exit_code == 5
    [damage] = json.loads(run("keys", "list", "--json").stdout)["keys"]["damaged"]
    assert (damage["table"], damage["row"]) == ("session_logs", {"id": 1})
    assert damage["code"] == PlaintextRefused.code
    # All the rest has the new key.
    ring = KeyRing.from_file(file)
    file.write_text(ring.only(set()).text())
    with SessionManager.open(workspace=False) as manager:
        assert manager.get_session(session.id).load_checkpoint("one").state == {"a": 1}


def test_a_key_that_is_missing_is_named(file: Path) -> None:
    run("keys", "new", str(file))
    ring = KeyRing.from_file(file)
    away = ring.rotated()
    with SessionManager.open(workspace=False) as manager:
        manager.create_session(agent_type="t", task_description="secret")
    with SessionManager.open(workspace=False, keys=away) as manager:
        manager.create_session(agent_type="t", task_description="secret")
    for action in ("rotate", "list"):
        answer = run("keys", action)
        assert answer.exit_code == 5
        assert f"missing {away.current}: it has sealed" in answer.output


def test_what_cannot_be_done_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keys", "add").exit_code == 2
    assert run("keys", "new", str(file / "no" / "where")).exit_code == 2
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    assert run("keys", "new").exit_code == 2
    assert run("keys", "rotate", str(file)).exit_code == 2
    with SessionManager.open(workspace=False):
        pass
    refused = run("keys", "rotate")
    assert refused.exit_code == 2
    assert "not sealed" in refused.output
