"""Whatever a file says, importing it ends with the session that was exported, or a typed error and no trace."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from holdfast import SessionManager
from holdfast.bundle import container, names, open_bundle
from holdfast.bundle.container import header, padding
from holdfast.bundle.content import payload_digest
from holdfast.bundle.writing import canonical, opening
from holdfast.errors import (
    BundleCorrupt,
    BundleRefused,
    BundleTooNew,
    HoldfastError,
    InputError,
    IntegrityError,
    NotABundle,
    SnapshotCorrupt,
    StateCorrupt,
    WorkspaceRefused,
)
from holdfast.model import Payload
from holdfast.sessions.portable import verify_bundle
from holdfast.state import StateEncoder
from tests.bundle.conftest import Open, work
from tests.fuzz.shapes import reshaped

BAD = (NotABundle, BundleRefused, BundleCorrupt, BundleTooNew)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A bundle as it should be."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "project").mkdir()
    with SessionManager.open(project_dir=folder / "project") as manager:
        session = work(manager)
        return manager.export_session(session.id, folder / "s.tar").path.read_bytes()


@pytest.fixture
def target(open_at: Open) -> SessionManager:
    return open_at("target")


def traces(manager: SessionManager) -> tuple[Any, ...]:
    store = manager.store
    snapshots = (manager.project_dir / ".agents" / "workspace.git" / "refs" / "snapshots").exists()
    return (manager.list_sessions(), manager.list_agents(), store.total_bytes(), snapshots)


def refuse(manager: SessionManager, path: Path, *expected: type[HoldfastError]) -> HoldfastError:
    """Import a file that must be refused, and see that nothing came of it."""
    before = traces(manager)
    with pytest.raises(expected or BAD) as caught:
        manager.import_bundle(path)
    assert traces(manager) == before
    return caught.value


# Parts ----------------------------------------------------------------------------------------


def parts_of(whole: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        found = {}
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
        return found


def joined(parts: dict[str, bytes]) -> bytes:
    members = (
        header(name, len(data)) + data + bytes(padding(len(data))) for name, data in parts.items()
    )
    return b"".join(members) + bytes(1024)


def sealed(parts: dict[str, bytes], **changes: Any) -> bytes:
    """Return a bundle of other parts whose digests are right: what somebody hostile can make."""
    manifest = orjson.loads(parts[names.MANIFEST]) | changes
    manifest["members"] = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in parts.items()
        if name not in (names.START, names.MANIFEST)
    ]
    text = canonical(manifest)
    return joined({**parts, names.START: opening(text), names.MANIFEST: text})


def test_the_means_of_these_tests_make_good_bundles(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    assert joined(parts) == whole == sealed(parts)
    (tmp_path / "again.tar").write_bytes(sealed(parts))
    assert target.import_bundle(tmp_path / "again.tar").outcome == "imported"


# Not a bundle ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4096,
        b"not a bundle",
        os.urandom(0) + bytes(range(256)) * 20,
        zlib.compress(bytes(1 << 20)),
    ],
    ids=["empty", "zeros", "text", "binary", "zlib"],
)
def test_other_files_are_no_bundles(content: bytes, target: SessionManager, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert isinstance(refuse(target, tmp_path / "file"), NotABundle)


def test_other_archives_are_no_bundles(target: SessionManager, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    with tarfile.open(tmp_path / "plain.tar", "w") as archive:
        archive.add(tmp_path / "note.txt", "note.txt")
    with tarfile.open(tmp_path / "ours.tar", "w") as archive:
        archive.add(tmp_path / "note.txt", names.START)
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as zipped:
        zipped.write(tmp_path / "note.txt", "note.txt")
    for name in ("plain.tar", "ours.tar", "some.zip"):
        refuse(target, tmp_path / name, NotABundle, BundleRefused)


def test_what_is_no_file_is_no_bundle(target: SessionManager, tmp_path: Path) -> None:
    os.mkdir(tmp_path / "folder")
    # Nobody writes to it, so whoever waited for its first byte would wait for ever.
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "nothing", "pipe"):
        assert isinstance(refuse(target, tmp_path / name), NotABundle)


def test_a_compressed_bundle_is_not_unpacked(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    (tmp_path / "s.tar.gz").write_bytes(gzip.compress(whole))
    assert isinstance(refuse(target, tmp_path / "s.tar.gz"), NotABundle)


# Damage ---------------------------------------------------------------------------------------


@pytest.mark.row("B7")
def test_a_flipped_bit_anywhere_is_refused(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    path = tmp_path / "flipped.tar"
    chance = Random(7)
    # Every byte of the first headers and texts, one in each block, and some anywhere.
    places = {
        *range(0, 4096, 7),
        *(at + chance.randrange(512) for at in range(0, len(whole) - 512, 512)),
        *(chance.randrange(len(whole)) for _ in range(200)),
        len(whole) - 1,
    }
    damaged = bytearray(whole)
    for place in sorted(places):
        flipped = 1 << chance.randrange(8)
        damaged[place] ^= flipped
        path.write_bytes(damaged)
        with pytest.raises(BAD), open_bundle(path):
            pass
        damaged[place] ^= flipped
    assert bytes(damaged) == whole
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(damaged)
    refuse(target, path)


def test_a_bundle_that_was_cut_off_is_refused(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    path = tmp_path / "cut.tar"
    lengths = {0, 1, 511, 512, 513, 1024, len(whole) - 1, len(whole) - 1024, len(whole) - 1536}
    lengths |= {len(whole) * part // 20 for part in range(1, 20)}
    for length in sorted(lengths):
        path.write_bytes(whole[:length])
        refuse(target, path)
    path.write_bytes(whole + b"\0")
    assert isinstance(refuse(target, path), BundleRefused)


def test_parts_of_two_bundles_do_not_mix(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    (tmp_path / "mixed.tar").write_bytes(joined(parts | {names.LOGS: b""}))
    refuse(target, tmp_path / "mixed.tar", BundleRefused)
    line, *rest = parts[names.LOGS].split(b"\n")
    changed = line.replace(b"OAuth", b"LDAP!")
    other = b"\n".join([changed, *rest])
    assert other != parts[names.LOGS]
    assert len(other) == len(parts[names.LOGS])
    (tmp_path / "mixed.tar").write_bytes(joined(parts | {names.LOGS: other}))
    refuse(target, tmp_path / "mixed.tar", BundleCorrupt)


# Malice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 17, 999_999_999])
def test_a_newer_format_is_named(
    version: int, whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    parts[names.START] = opening(parts[names.MANIFEST], version)
    (tmp_path / "new.tar").write_bytes(joined(parts))
    error = refuse(target, tmp_path / "new.tar", BundleTooNew)
    assert f"format {version}" in str(error)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/../../evil", "evil", "chunks/../evil", "chunks/000099"]
)
def test_no_other_name_gets_in(
    name: str, whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    for evil in (sealed({**parts, name: b"evil"}), joined({**parts, name: b"evil"})):
        (tmp_path / "evil.tar").write_bytes(evil)
        refuse(target, tmp_path / "evil.tar", BundleRefused)
    assert not (tmp_path / "evil").exists()
    assert not (target.project_dir / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE,
                                  tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, b"x", b"L"])  # fmt: skip
def test_links_devices_and_extensions_are_refused(
    kind: bytes, whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    info = tarfile.TarInfo(names.BRIEF)
    info.type, info.linkname = kind, "/etc/passwd"
    at = whole.index(b"BRIEF.md".ljust(100, b"\0"))
    block = info.tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "odd.tar").write_bytes(whole[:at] + block + whole[at + 512 :])
    refuse(target, tmp_path / "odd.tar", BundleRefused)


@pytest.mark.parametrize("size", [1 << 20, 1 << 33, 1 << 49, (1 << 60) - 1])
def test_a_size_that_the_file_does_not_have_is_refused(
    size: int, whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    for name in (names.START, names.MANIFEST, names.BRIEF, "chunks/000001"):
        at = whole.index(name.encode().ljust(100, b"\0"))
        (tmp_path / "huge.tar").write_bytes(whole[:at] + header(name, size) + whole[at + 512 :])
        refuse(target, tmp_path / "huge.tar")


def test_parts_must_be_there_once_and_in_order(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    path = tmp_path / "odd.tar"
    for name in (*names.TEXTS, "chunks/000001", names.FILES):
        path.write_bytes(sealed({key: data for key, data in parts.items() if key != name}))
        refuse(target, path, BundleRefused)
    turned = dict(reversed(parts.items()))
    first = {name: parts[name] for name in (names.START, names.MANIFEST)}
    path.write_bytes(sealed(first | turned))
    refuse(target, path, BundleRefused)
    at = whole.index(b"BRIEF.md".ljust(100, b"\0"))
    member = whole[at : at + 1024]
    path.write_bytes(whole[:at] + member + whole[at:])
    refuse(target, path, BundleRefused)


@pytest.mark.parametrize(
    "changes",
    [
        {"session": {}},
        {"session": None},
        {"file_bytes": -1},
        {"file_bytes": "many"},
        {"checkpoints": []},
        {"checkpoints": {}},
        {"checkpoints": [{"id": 1}]},
        {"more": 1},
    ],
    ids=str,
)
def test_a_manifest_that_says_something_else_is_refused(
    changes: dict[str, Any], whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    (tmp_path / "odd.tar").write_bytes(sealed(parts_of(whole), **changes))
    refuse(target, tmp_path / "odd.tar", BundleRefused)


def test_a_manifest_of_any_other_shape_is_refused(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    path = tmp_path / "odd.tar"
    # A checkpoint may come without its files.
    manifest = re.sub(rb'"tree": "\w+"', b'"tree": null', parts[names.MANIFEST])
    for shape in sorted({reshaped(manifest, Random(seed)) for seed in range(400)}):
        try:
            text = canonical(orjson.loads(shape))
        except orjson.JSONDecodeError:
            text = shape  # half a character, which has no other form
        if text == manifest:
            continue
        path.write_bytes(joined({**parts, names.START: opening(text), names.MANIFEST: text}))
        refuse(target, path, *BAD, SnapshotCorrupt)


def _rows(parts: dict[str, bytes], name: str, change: Callable[[dict[str, Any]], Any]) -> bytes:
    rows = [orjson.loads(line) for line in parts[name].splitlines()]
    change(rows[0])
    return b"".join(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) + b"\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (names.SESSION, {"status": "lost"}),
        (names.SESSION, {"id": ""}),
        (names.SESSION, {"created_at": "yesterday"}),
        (names.SESSION, {"created_at": "2026-01-01T00:00:00+01:00"}),
        (names.SESSION, {"metadata": [1]}),
        (names.SESSION, {"metadata": {"$t": "surprise"}}),
        (names.SESSION, {"lease_owner": "me"}),
        (names.CHECKPOINTS, {"retention_class": "eternal"}),
        (names.CHECKPOINTS, {"id": "../../x"}),
        (names.CHECKPOINTS, {"size_bytes": 1 << 63}),
        (names.CHECKPOINTS, {"pinned": 1}),
        (names.CHECKPOINTS, {"payload": ["{}", "!"]}),
        (names.CHECKPOINTS, {"payload": ["{}", ""]}),
        (names.CHECKPOINTS, {"payload": None}),
        (names.CHECKPOINTS, {"workspace_commit": "main"}),
        (names.EFFECTS, {"status": "maybe"}),
        (names.EFFECTS, {"attempt_id": "x"}),
        (names.EFFECTS, {"payload": ["{", ""]}),
        (names.WRITES, {"index": "0"}),
        (names.LOGS, {"level": "loud"}),
        (names.LOGS, {"more": 1}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_row_that_no_store_has_is_refused(
    name: str, changes: dict[str, Any], whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    changed = parts | {name: _rows(parts, name, lambda row: row.update(changes))}
    (tmp_path / "odd.tar").write_bytes(sealed(changed))
    refuse(target, tmp_path / "odd.tar", BundleRefused)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]\n", b"{}\n", b"\xff\n", b"{" * 5000 + b"\n", b"\0\n"]
)
def test_rows_that_are_no_rows_are_refused(
    text: bytes, whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    (tmp_path / "odd.tar").write_bytes(sealed(parts | {names.SESSION: text}))
    refuse(target, tmp_path / "odd.tar", BundleRefused)


def test_chunks_must_be_what_their_names_say(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    name = "chunks/000001"
    data = parts[name]
    size = int.from_bytes(data[33:37], "big")
    other = bytearray(data)
    other[37] ^= 1
    for chunks in (
        bytes(other),
        data[37 + size :],
        data + data[: 37 + size],
        data[:-1],
        data + b"\x12",
        data[:33] + b"\xff\xff\xff\xff" + data[37:],
    ):
        (tmp_path / "odd.tar").write_bytes(sealed(parts | {name: chunks}))
        refuse(target, tmp_path / "odd.tar", BundleRefused)


def test_a_state_that_would_fill_the_memory_is_refused(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    """A few references that claim terabytes, and a few that name one chunk over and over."""
    from holdfast.state.document import write_manifest
    from holdfast.state.refs import Ref, digest_of

    parts = parts_of(whole)
    zeros = bytes(32 * 1024)
    leaf = Ref(digest_of(zeros), 0, 0, len(zeros))
    for refs in ([Ref(leaf.digest, 0, 0, 1 << 44)], [leaf] * 40_000):
        payload = write_manifest(b'{"a":{"$t":"ref","v":0}}', b"", [("str", len(refs))], refs)

        def bomb(row: dict[str, Any], payload: Any = payload) -> None:
            row["payload"] = [payload.manifest, base64.b64encode(payload.refs).decode()]

        (tmp_path / "bomb.tar").write_bytes(
            sealed(parts | {names.EFFECTS: _rows(parts, names.EFFECTS, bomb)})
        )
        refuse(target, tmp_path / "bomb.tar", BundleRefused)


# What is well formed, and not what it seems -----------------------------------------------------


def with_content(whole: bytes, state: dict[str, Any], context: dict[str, Any] | None) -> bytes:
    """Return a bundle whose checkpoints all hold another small state, unchecked."""
    encoded = StateEncoder().encode(state, context)
    payload = Payload(encoded.manifest, encoded.refs)
    stored = [payload.manifest, base64.b64encode(payload.refs).decode()]
    parts = parts_of(whole)
    rows = [
        orjson.dumps({**orjson.loads(line), "payload": stored}, option=orjson.OPT_SORT_KEYS) + b"\n"
        for line in parts[names.CHECKPOINTS].splitlines()
    ]
    listed = orjson.loads(parts[names.MANIFEST])["checkpoints"]
    digests = [{**one, "state": payload_digest(payload)} for one in listed]
    return sealed(parts | {names.CHECKPOINTS: b"".join(rows)}, checkpoints=digests)


@pytest.mark.parametrize(
    "state",
    [
        {"task_state": 5},
        {"task_state": "tasks"},
        {"task_state": {"tasks": [5]}},
        {"task_state": [{"id": [], "status": {}}]},
        {"progress": "half way"},
        {"progress": 10**400},
        {"decisions": 7},
        {"decisions": [{"rationale": "no text"}]},
        {"memory_refs": "here"},
        {"open_files": [{"line": 1}]},
        {"execution_context": {"tools": 5}},
        {"context": "large"},
    ],
    ids=str,
)
def test_a_state_in_which_a_documented_key_means_something_else_is_taken_as_it_is(
    state: dict[str, Any], whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    (tmp_path / "odd.tar").write_bytes(with_content(whole, state, None))
    session_id = target.import_bundle(tmp_path / "odd.tar").session_id
    session = target.resume_session(session_id)
    assert session.state == state
    assert "Move auth to OAuth" in session.brief(tools=["git"]).text
    assert session.check_memory_refs() == []
    assert session.latest_checkpoint().progress["total"] == 0
    session.rollback("save 1")
    assert session.state == state
    assert target.export_session(session_id, tmp_path / "again.tar").states


@pytest.mark.parametrize(
    "context",
    [
        {"git": "main"},
        {"git": {"branch": 5}},
        {"git": {"staged": 5}},
        {"git": {"renamed": [["a"]]}},
        {"git": {"staged_count": 1 << 70}},
        {"workspace": []},
        {"workspace": {"skipped": [5]}},
        {"workspace": {"wrote": [[]]}},
        {"workspace": {"wrote_count": "many"}},
        {"completed_tasks": [{"title": "without an id"}]},
    ],
    ids=str,
)
def test_what_holdfast_does_not_write_beside_a_state_is_not_read(
    context: dict[str, Any], whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    (tmp_path / "odd.tar").write_bytes(with_content(whole, {"n": 1}, context))
    session = target.get_session(target.import_bundle(tmp_path / "odd.tar").session_id)
    with pytest.raises(StateCorrupt, match="what Holdfast does not write: context"):
        _ = session.latest_checkpoint().files
    assert session.preflight().verdict == "unsafe"
    with pytest.raises(StateCorrupt):
        session.rollback("save 1", dry_run=True, only_mine=True)
    # What is saved after it is not held up.
    with target.hold_session(session.id) as held:
        held.save_checkpoint("mine", state={"n": 2})
    assert session.load_checkpoint("mine").state == {"n": 2}


def test_a_session_from_the_future_does_not_become_the_latest_one(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)

    def begun(moment: datetime) -> Path:
        text = moment.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        rows = _rows(parts, names.SESSION, lambda row: row.update(created_at=text))
        (tmp_path / "begun.tar").write_bytes(sealed(parts | {names.SESSION: rows}))
        return tmp_path / "begun.tar"

    now = datetime.now(UTC)
    for moment in (now + timedelta(days=2), datetime.max.replace(tzinfo=UTC)):
        refuse(target, begun(moment), BundleRefused)
        with pytest.raises(BundleRefused, match="yet to come"):
            verify_bundle(begun(moment))
    # The clock of another machine may go before ours.
    assert target.import_bundle(begun(now + timedelta(hours=1))).outcome == "imported"


PAST = "2020-01-01T00:00:00.000000Z"


def expired(whole: bytes, *, all_of_them: bool) -> bytes:
    """Return a bundle whose first checkpoint, or all, have expired, each after it was resumed from."""
    parts = parts_of(whole)
    rows = [orjson.loads(line) for line in parts[names.CHECKPOINTS].splitlines()]
    for row in rows if all_of_them else rows[:1]:
        row.update(expires_at=PAST, consumed_at=PAST)
    lines = (orjson.dumps(row, option=orjson.OPT_SORT_KEYS) + b"\n" for row in rows)
    return sealed(parts | {names.CHECKPOINTS: b"".join(lines)})


@pytest.mark.parametrize("session_id", [None, "another"])
def test_what_has_expired_stays_out(
    session_id: str | None, whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    (tmp_path / "old.tar").write_bytes(expired(whole, all_of_them=False))
    for outcome in ("imported", "present"):
        report = target.import_bundle(tmp_path / "old.tar", session_id=session_id)
        assert (report.outcome, len(report.checkpoints)) == (outcome, 3)
    listed = target.get_session(report.session_id).list_checkpoints()
    assert [one.name for one in listed] == ["feature", "save 3", "save 2"]


def test_where_all_has_expired_no_files_are_said_to_be_back(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    (tmp_path / "old.tar").write_bytes(expired(whole, all_of_them=True))
    report = target.import_bundle(tmp_path / "old.tar", restore=True)
    assert (dict(report.checkpoints), report.restored) == ({}, False)
    assert not (target.project_dir / "text.txt").exists()


# Files ----------------------------------------------------------------------------------------


def test_a_pack_that_is_none_is_refused(
    whole: bytes, target: SessionManager, tmp_path: Path
) -> None:
    parts = parts_of(whole)
    for pack in (b"", b"PACK", b"x" * 1000, parts[names.FILES][:-30]):
        (tmp_path / "odd.tar").write_bytes(sealed(parts | {names.FILES: pack}))
        refuse(target, tmp_path / "odd.tar", SnapshotCorrupt)


def test_a_pack_that_unpacks_to_more_than_was_said_is_refused(
    whole: bytes, open_at: Open, tmp_path: Path
) -> None:
    target = open_at("target")
    (tmp_path / "more.tar").write_bytes(sealed(parts_of(whole), file_bytes=7))
    refuse(target, tmp_path / "more.tar", SnapshotCorrupt)


def test_a_file_that_is_larger_than_files_may_be_is_refused(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    (ours.project_dir / "zeros").write_bytes(bytes(3_000_000))
    session = ours.create_session("tester")
    session.save_checkpoint("one", state={})
    bundle = ours.export_session(session.id, tmp_path / "bomb.tar")
    assert bundle.bytes < 50_000
    (tmp_path / "b" / ".agents").mkdir(parents=True)
    (tmp_path / "b" / ".agents" / "holdfast.toml").write_text("[workspace]\nmax_file_mb = 1\n")
    theirs = open_at("b")
    error = refuse(theirs, bundle.path, WorkspaceRefused)
    assert "max_file_mb" in str(error)


def test_a_pack_without_a_needed_object_is_refused(
    whole: bytes, open_at: Open, tmp_path: Path
) -> None:
    ours = open_at("a")
    session = ours.create_session("tester")
    (ours.project_dir / "x").write_text("x")
    session.save_checkpoint("one", state={})
    other = ours.export_session(session.id, tmp_path / "other.tar").path.read_bytes()
    parts = parts_of(whole) | {names.FILES: parts_of(other)[names.FILES]}
    (tmp_path / "odd.tar").write_bytes(sealed(parts))
    refuse(open_at("b"), tmp_path / "odd.tar", SnapshotCorrupt)


def test_the_errors_of_bad_files_belong_to_families_that_callers_know() -> None:
    assert all(issubclass(one, (InputError, IntegrityError)) for one in BAD)
    assert container.header("a" * 100, 1 << 40)[:100] == b"a" * 100
    assert re.fullmatch(r"chunks/\d{6}", names.chunks_name(1))
