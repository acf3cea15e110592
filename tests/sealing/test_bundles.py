"""Bundles that stay sealed: they open with their key, whole and in order, or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast import SessionManager
from holdfast.bundle import names, writing
from holdfast.bundle.sealed import BLOCK, SealedWriter
from holdfast.cli import holdfast
from holdfast.crypto import KeyRing
from holdfast.crypto.envelope import overhead
from holdfast.errors import (
    BundleCorrupt,
    BundleNotSealed,
    BundleTooNew,
    HoldfastError,
    KeyRequired,
    NotABundle,
    PlaintextRefused,
    SealBroken,
    WrongKey,
)

CANARY = "canary-5150"
STATE: dict[str, Any] = {"small": CANARY, "large": [f"{CANARY} {n}" * 60 for n in range(300)]}


def filled(manager: SessionManager, session_id: str = "secret-session") -> str:
    with manager.create_session(
        "tester", session_id=session_id, task_description=f"{CANARY} task", metadata={"m": CANARY}
    ) as session:
        if (manager.project_dir / "project.txt").exists():
            (manager.project_dir / "project.txt").write_text(f"{CANARY} file\n")
        session.save_checkpoint("one", state=STATE, description=f"{CANARY} described")
        session.step("pay", lambda: {"paid": CANARY})
        session.log("error", f"{CANARY} failed")
        session.save_checkpoint("two", state={**STATE, "n": 2})
        return session.id


@pytest.fixture
def source(tmp_path: Path, ring: KeyRing) -> Iterator[SessionManager]:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "project.txt").write_text("begun\n")
    with SessionManager.open(project_dir=folder, keys=ring) as manager:
        filled(manager)
        yield manager


@pytest.fixture
def bundle(source: SessionManager, tmp_path: Path) -> Path:
    return source.export_session("secret-session", tmp_path / "one.holdfast.sealed").path


@pytest.fixture
def target(tmp_path: Path, ring: KeyRing) -> Iterator[SessionManager]:
    folder = tmp_path / "target"
    folder.mkdir()
    with SessionManager.open(project_dir=folder, keys=ring) as manager:
        yield manager


def refuse(manager: SessionManager, path: Path, *expected: type[HoldfastError]) -> HoldfastError:
    """Import a file that must be refused, and see that nothing came of it."""
    with pytest.raises(expected) as caught:
        manager.import_bundle(path)
    assert manager.list_sessions() == []
    assert manager.list_agents() == []
    assert manager.store.total_bytes() == 0
    assert not (manager.project_dir / ".agents" / "workspace.git" / "refs" / "snapshots").exists()
    return caught.value


def blocks_of(data: bytes, ring: KeyRing) -> tuple[bytes, list[bytes]]:
    """Return the line that a sealed bundle begins with, and its envelopes."""
    begin = data.index(b"\n") + 1
    size = BLOCK + overhead(ring.current)
    return data[:begin], [data[at : at + size] for at in range(begin, len(data), size)]


# There and back -------------------------------------------------------------------------------


def test_a_sealed_bundle_takes_a_session_with_its_files_to_another_sealed_store(
    source: SessionManager, tmp_path: Path, ring: KeyRing, postgres_url: str
) -> None:
    exported = source.export_session("secret-session", tmp_path / "one.sealed")
    data = exported.path.read_bytes()
    assert exported.sealed
    assert exported.bytes == len(data)
    # More than one block, and nothing to be read in any: no content, no name, no archive.
    assert len(data) > 3 * BLOCK
    for shown in (CANARY, "secret-session", "manifest.json", "ustar", "PACK"):
        assert shown.encode() not in data
    assert exported.path.stat().st_mode & 0o077 == 0
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    with SessionManager.open(postgres_url, project_dir=folder, keys=ring, tenant="other") as theirs:
        imported = theirs.import_bundle(exported.path)
        assert (imported.outcome, imported.bundle.sealed) == ("imported", True)
        assert imported.bundle.states == exported.states
        assert imported.bundle.bytes == len(data)
        session = theirs.get_session("secret-session")
        assert session.get_checkpoint("one").state == STATE
        assert session.task_description == f"{CANARY} task"
        assert theirs.import_bundle(exported.path, restore=True).outcome == "present"
        assert (folder / "project.txt").read_text() == f"{CANARY} file\n"
        assert theirs.verify(deep=True).ok


def test_the_same_session_sealed_twice_has_no_block_in_common(
    source: SessionManager, tmp_path: Path, ring: KeyRing
) -> None:
    found = [
        blocks_of(source.export_session("secret-session", tmp_path / name).path.read_bytes(), ring)
        for name in ("a", "b")
    ]
    assert found[0][0] != found[1][0]
    assert not set(found[0][1]) & set(found[1][1])


def test_no_plain_text_is_on_the_disk_while_it_is_written(
    source: SessionManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    monkeypatch.setattr(writing, "TemporaryFile", lambda **_: spool.open("w+b"))
    source.export_session("secret-session", tmp_path / "one.sealed")
    assert spool.stat().st_size > 3 * BLOCK
    assert CANARY.encode() not in spool.read_bytes()
    source.export_session("secret-session", tmp_path / "one.tar", unsealed=True)
    assert CANARY.encode() in spool.read_bytes()


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 7])
def test_every_size_comes_back(size: int, tmp_path: Path, ring: KeyRing) -> None:
    from holdfast.bundle.sealed import open_sealed
    from holdfast.crypto import keys_from

    data = Random(size).randbytes(size)
    with (tmp_path / "file").open("w+b") as file:
        writer = SealedWriter(file, ring)
        for at in range(0, size, 10_007):
            writer.write(data[at : at + 10_007])
        writer.finish()
        opened = open_sealed(file, keys_from(ring))
        assert opened.read() == data
        assert opened.seek(0, os.SEEK_END) == size
        for at in {0, size // 2, max(size - 3, 0)}:
            opened.seek(at)
            assert opened.read(70_000) == data[at : at + 70_000]


def test_a_bundle_of_an_older_key_opens_as_long_as_the_ring_has_that_key(
    bundle: Path, tmp_path: Path, ring: KeyRing
) -> None:
    rotated = ring.rotated()
    with SessionManager.open(tmp_path / "rotated.db", workspace=False, keys=rotated) as manager:
        assert manager.import_bundle(bundle, files=False).outcome == "imported"
    forgotten = rotated.only(set())
    with SessionManager.open(tmp_path / "forgotten.db", workspace=False, keys=forgotten) as manager:
        error = refuse(manager, bundle, WrongKey)
        assert ring.current in str(error)


# Keys -----------------------------------------------------------------------------------------


def test_without_a_key_or_with_another_one_it_does_not_open(
    bundle: Path, tmp_path: Path, ring: KeyRing
) -> None:
    with SessionManager.open(tmp_path / "plain.db", workspace=False, keys=False) as manager:
        refuse(manager, bundle, KeyRequired)
    other = KeyRing.new()
    with SessionManager.open(tmp_path / "other.db", workspace=False, keys=other) as manager:
        refuse(manager, bundle, WrongKey)
    namesake = KeyRing({ring.current: os.urandom(32)}, ring.names)
    with SessionManager.open(tmp_path / "namesake.db", workspace=False, keys=namesake) as manager:
        refuse(manager, bundle, SealBroken)


def test_plain_text_does_not_take_the_place_of_a_sealed_bundle(
    source: SessionManager, bundle: Path, target: SessionManager, tmp_path: Path
) -> None:
    plain = source.export_session("secret-session", tmp_path / "plain.tar", unsealed=True)
    assert not plain.sealed
    refuse(target, plain.path, BundleNotSealed)
    (tmp_path / "headed").write_bytes(
        bundle.read_bytes().partition(b"\n")[0] + b"\n" + plain.path.read_bytes()
    )
    refuse(target, tmp_path / "headed", PlaintextRefused, SealBroken, BundleCorrupt)
    (tmp_path / "text").write_text("no bundle at all")
    refuse(target, tmp_path / "text", NotABundle)
    assert target.import_bundle(plain.path, unsealed=True).outcome == "imported"


# Damage and malice ----------------------------------------------------------------------------


def test_every_flipped_bit_is_refused(
    bundle: Path, target: SessionManager, tmp_path: Path, ring: KeyRing
) -> None:
    whole = bundle.read_bytes()
    head, blocks = blocks_of(whole, ring)
    size = len(blocks[0])
    chance = Random(11)
    starts = [len(head) + number * size for number in range(len(blocks))]
    places = {
        *range(len(head)),
        *(start + offset for start in starts for offset in (0, 1, 2, 15, 20, 40)),
        *(chance.randrange(len(whole)) for _ in range(40)),
        len(whole) - 1,
    }
    path = tmp_path / "flipped"
    for place in sorted(places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        refuse(
            target, path, SealBroken, PlaintextRefused, BundleCorrupt, BundleTooNew, WrongKey,
            NotABundle,
        )  # fmt: skip


def test_a_cut_is_refused_also_between_two_blocks(
    bundle: Path, target: SessionManager, tmp_path: Path, ring: KeyRing
) -> None:
    whole = bundle.read_bytes()
    head, blocks = blocks_of(whole, ring)
    between = {len(head) + number * len(blocks[0]) for number in range(len(blocks))}
    path = tmp_path / "cut"
    for length in sorted(between | {1, 20, len(head) - 1, len(head) + 5, len(whole) - 1}):
        path.write_bytes(whole[:length])
        error = refuse(target, path, SealBroken, BundleCorrupt, NotABundle)
        assert length < len(head) or "cut off" in str(error)


Change = Callable[[list[bytes], list[bytes]], list[bytes]]
MOVED: dict[str, Change] = {
    "swapped": lambda ours, _: [ours[1], ours[0], *ours[2:]],
    "repeated": lambda ours, _: [ours[0], ours[0], *ours[2:]],
    "left out": lambda ours, _: [ours[0], *ours[2:]],
    "put in": lambda ours, _: [ours[0], ours[1], *ours[1:]],
    "the last one left out": lambda ours, _: ours[:-1],
    "the last one early": lambda ours, _: [*ours[:-2], ours[-1]],
    "one of another bundle": lambda ours, other: [ours[0], other[1], *ours[2:]],
    "the first of another bundle": lambda ours, other: [other[0], *ours[1:]],
    "the last of another bundle": lambda ours, other: [*ours[:-1], other[-1]],
    "all of another bundle": lambda _, other: other,
    "plain text": lambda ours, _: [ours[0], b"x" * len(ours[1]), *ours[2:]],
}


@pytest.mark.parametrize("what", MOVED)
def test_a_block_opens_in_its_own_place_only(
    what: str, source: SessionManager, bundle: Path, target: SessionManager, tmp_path: Path,
    ring: KeyRing,
) -> None:  # fmt: skip
    other = source.export_session("secret-session", tmp_path / "other").path.read_bytes()
    head, ours = blocks_of(bundle.read_bytes(), ring)
    theirs = blocks_of(other, ring)[1]
    path = tmp_path / "moved"
    path.write_bytes(head + b"".join(MOVED[what](ours, theirs)))
    refuse(target, path, SealBroken, PlaintextRefused)


def test_a_newer_format_is_named(bundle: Path, target: SessionManager, tmp_path: Path) -> None:
    data = bundle.read_bytes().replace(f"{names.SEALED}1 ".encode(), f"{names.SEALED}2 ".encode())
    (tmp_path / "new").write_bytes(data)
    assert "format 2" in str(refuse(target, tmp_path / "new", BundleTooNew))


def test_whoever_has_the_key_gets_nothing_past_the_checks_either(
    target: SessionManager, tmp_path: Path, ring: KeyRing
) -> None:
    path = tmp_path / "odd"
    for archive in (b"", b"not an archive", bytes(4096)):
        with path.open("wb") as file:
            writer = SealedWriter(file, ring)
            writer.write(archive)
            writer.finish()
        refuse(target, path, NotABundle, BundleCorrupt)


# The command line -----------------------------------------------------------------------------


def test_commands_seal_by_default_and_unseal_when_asked(
    tmp_path: Path, ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(holdfast, arguments)

    (tmp_path / "keys").write_text(ring.text())
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(tmp_path / "keys"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    with SessionManager.open() as manager:
        filled(manager)
    done = run("export", "secret-session")
    assert done.exit_code == 0, done.output
    assert re.search(r"secret-session\.holdfast\.sealed: .*, sealed\n", done.stdout)
    sealed = tmp_path / "project" / "secret-session.holdfast.sealed"
    assert CANARY.encode() not in sealed.read_bytes()
    done = run("export", "secret-session", "--unsealed", "--json")
    assert json.loads(done.stdout)["bundle"]["sealed"] is False
    plain = tmp_path / "project" / "secret-session.holdfast.tar"
    assert CANARY.encode() in plain.read_bytes()

    # Into a store that is not there yet: it is made for a bundle that opens, and for no other.
    new = tmp_path / "new.db"
    done = run("import", str(plain), "--url", str(new), "--json")
    assert (done.exit_code, new.exists()) == (2, False)
    assert json.loads(done.stderr)["error"]["code"] == "bundle_not_sealed"
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    done = run("import", str(sealed), "--url", str(new), "--json")
    assert (done.exit_code, new.exists()) == (6, False)
    assert json.loads(done.stderr)["error"]["code"] == "key_required"
    (tmp_path / "others").write_text(KeyRing.new().text())
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(tmp_path / "others"))
    done = run("import", str(sealed), "--url", str(new), "--json")
    assert (done.exit_code, new.exists()) == (6, False)
    assert json.loads(done.stderr)["error"]["code"] == "wrong_key"

    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(tmp_path / "keys"))
    done = run("import", str(sealed), "--url", str(new), "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)["import"]
    assert (answer["outcome"], answer["bundle"]["sealed"]) == ("imported", True)
    assert CANARY.encode() not in new.read_bytes()
    done = run("import", str(plain), "--unsealed", "--url", str(tmp_path / "second.db"), "--json")
    assert json.loads(done.stdout)["import"]["bundle"]["sealed"] is False
