"""What the doctor says of the places where data lie: whose they are, and how much room is left there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config import load_config
from holdfast.crypto import KeyRing
from holdfast.doctor import Finding
from holdfast.doctor.places import look_at_links, look_at_permissions, look_at_room
from tests.doctor.test_salvage import fill
from tests.stores.test_sqlite_file import in_child

Disk = namedtuple("Disk", "total used free")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".agents").mkdir(mode=0o700)
    fill(tmp_path / ".agents" / "sessions.db")
    return tmp_path


def permissions(project: Path, url: Path | None = None) -> list[Finding]:
    return list(look_at_permissions(load_config(project, url=url)))


def test_what_only_the_owner_may_use_is_in_order(project: Path) -> None:
    (found,) = permissions(project)
    assert (found.level, found.advice) == ("ok", None)


@pytest.mark.parametrize(
    "name",
    [
        "sessions.db",
        "sessions.db-wal",
        "sessions.db-shm",
        "sessions.db.backup-v1",
        "redaction.key",
        "holdfast-errors.log",
    ],
)
@pytest.mark.parametrize("mode", [0o604, 0o640, 0o666])
def test_each_file_that_others_may_get_at_is_named(project: Path, name: str, mode: int) -> None:
    path = project / ".agents" / name
    path.touch()
    path.chmod(mode)
    (found,) = permissions(project)
    assert found.level == "warning"
    assert f"{path} (-rw" in found.text
    assert found.advice == f"chmod go= {path}"


@pytest.mark.parametrize("name", ["workspace.git", "hooks"])
def test_each_directory_that_others_may_get_at_is_named(project: Path, name: str) -> None:
    path = project / ".agents" / name
    path.mkdir(mode=0o700)
    path.chmod(0o755)
    (found,) = permissions(project)
    assert f"{path} (drwxr-xr-x)" in found.text


def test_a_store_elsewhere_is_looked_at_where_it_is(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where" / "s.db"
    elsewhere.parent.mkdir()
    fill(elsewhere)
    elsewhere.chmod(0o666)
    (found,) = permissions(project, elsewhere)
    assert f"{elsewhere} (-rw-rw-rw-)" in found.text
    assert found.advice == f"chmod go= '{elsewhere}'"
    elsewhere.chmod(0o600)
    (project / ".agents" / "sessions.db").chmod(0o666)
    (found,) = permissions(project, elsewhere)
    assert found.level == "ok"


@pytest.mark.parametrize("name", ["sessions.db", "redaction.key"])
@pytest.mark.parametrize(("mode", "level"), [(0o600, "ok"), (0o644, "warning")])
def test_of_a_link_the_target_counts(project: Path, name: str, mode: int, level: str) -> None:
    link = project / ".agents" / name
    real = project / "real"
    link.touch()
    link.rename(real)
    link.symlink_to(real)
    real.chmod(mode)
    (found,) = permissions(project)
    assert found.level == level


def test_the_key_file_is_looked_at(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = project / "keys"
    key.write_text(KeyRing.new().text())
    key.chmod(0o644)
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(key))
    (found,) = permissions(project)
    assert f"{key} (-rw-r--r--)" in found.text


def test_without_anything_stored_nothing_is_said(tmp_path: Path) -> None:
    assert permissions(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs POSIX users")
def test_a_user_who_may_not_write_is_told() -> None:
    def look_as_a_stranger() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        found = permissions(project)
        assert any(f"may not write {store.parent}, {store}" in one.text for one in found)

    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory)
        store = project / ".agents" / "sessions.db"
        store.parent.mkdir()
        fill(store)
        store.chmod(0o444)
        for folder in (store.parent, project):
            folder.chmod(0o555)
        try:
            in_child(look_as_a_stranger)
        finally:
            project.chmod(0o755)
            store.parent.chmod(0o755)


def test_a_link_in_place_of_a_directory_is_named(project: Path, tmp_path: Path) -> None:
    link = project / ".agents" / "workspace.git"
    link.symlink_to(tmp_path)
    (found,) = look_at_links(load_config(project))
    assert found.level == "warning"
    assert f"{link} is a link" in found.text
    assert found.advice == f"remove the link: rm {link}"


def disks(monkeypatch: pytest.MonkeyPatch, free: Callable[[Path], int]) -> None:
    def usage(path: str | Path) -> Disk:
        return Disk(0, 0, free(Path(path)))

    monkeypatch.setattr(shutil, "disk_usage", usage)


@pytest.mark.parametrize(("free", "level"), [(536_000_000, "warning"), (537_000_000, "ok")])
def test_little_room_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    disks(monkeypatch, lambda path: free)
    found = look_at_room(load_config(project))
    assert found.level == level
    assert found.text == f"{free // 10**6} MB free for the store and files"
    assert (found.advice is None) == (level == "ok")


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a second file system")
def test_the_room_of_the_store_is_that_of_its_own_disk(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        elsewhere = Path(directory, "s.db")
        link = project / "link.db"
        link.symlink_to(elsewhere)
        disks(monkeypatch, lambda path: 1_000_000 if path.is_relative_to("/dev/shm") else 10**12)
        found = look_at_room(load_config(project, url=link))
    assert found.level == "warning"
    assert found.text == "1 MB free for the store, 1,000.0 GB free for files"


def test_a_server_has_room_of_its_own(project: Path) -> None:
    found = look_at_room(load_config(project, url="postgresql://localhost/x"))
    assert found.text.endswith("B free for files")
