"""What the SQLite store does to its file, and what the file's troubles become."""

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from holdfast.errors import (
    HoldfastError,
    LogMisplaced,
    NotADatabase,
    SchemaMissing,
    StateCorrupt,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.model import CheckpointQuery, Trim
from holdfast.state.refs import digest_of
from holdfast.stores import open_store
from holdfast.stores.compression import MAX_CHUNK_BYTES, pack, unpack
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_errors import ERRORS, translated
from holdfast.stores.sqlite_file import IDLE_CONNECTIONS
from holdfast.testing.drafts import checkpoint, index_of, session, stored, write

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        yield store


def plain(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def in_child(work: Callable[[], None]) -> None:
    """Run ``work`` in a forked child; what goes wrong there fails here."""
    with warnings.catch_warnings():
        # Forking beside threads is what the tests are about; Python 3.12 warns of it.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.row("S2-22")
def test_the_files_belong_to_their_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From the first byte on: what is taken away later was open until then.
    monkeypatch.setattr(os, "chmod", lambda *_, **__: None)
    before = os.umask(0)
    try:
        with SqliteStore(tmp_path / "new" / "deep" / "sessions.db") as store:
            owner = session()
            store.put(checkpoint(owner.id, session=owner))
            files = {found.name: mode(found) for found in store.path.parent.iterdir()}
    finally:
        os.umask(before)
    assert files == {
        "sessions.db": 0o600,
        "sessions.db-shm": 0o600,
        "sessions.db-wal": 0o600,
    }


def test_closing_folds_the_log_into_the_file(store: SqliteStore, path: Path) -> None:
    store.create_session(session())
    store.close()
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.row("S0-04", "S1-92")
def test_every_connection_has_the_settings_that_durability_needs(store: SqliteStore) -> None:
    def settings(connection: apsw.Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "trusted_schema")
        return {name: connection.pragma(name) for name in names}

    expected = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "trusted_schema": 0,
    }
    assert store._file.read(settings) == expected
    assert store._file.read(lambda _: store._file.read(settings)) == expected


def test_the_url_leads_back_to_the_file(tmp_path: Path) -> None:
    odd = tmp_path / "a directory with % and ü" / "sessions.db"
    with SqliteStore(odd) as store:
        created = store.create_session(session())
    with open_store(store.url) as again:
        assert again.find_session(created.id) == created


def test_every_driver_error_has_a_meaning() -> None:
    classes = {
        found
        for found in vars(apsw).values()
        if isinstance(found, type) and issubclass(found, apsw.Error)
    }
    assert classes == ERRORS.keys()
    for kind in classes:
        assert isinstance(translated(kind("x"), Path("x.db"), "sqlite:///x.db"), HoldfastError)


# Files that are not ours


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"x", b"SQLite format 3\0"])
def test_a_file_of_another_kind_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(NotADatabase, match="Nothing was changed"):
        SqliteStore(path)
    assert path.read_bytes() == content
    assert mode(path) == 0o644
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_of_another_program_is_refused_and_left_alone(path: Path, journal: str) -> None:
    other = plain(path)
    other.pragma("journal_mode", journal)
    other.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('keep me')")
    other.close()
    before = path.read_bytes()
    with pytest.raises(NotADatabase, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before
    with pytest.raises(NotADatabase):
        SqliteStore(path, ensure_schema=False)
    assert path.read_bytes() == before


def test_the_log_of_another_program_is_left_alone(path: Path) -> None:
    other = plain(path)
    other.pragma("journal_mode", "wal")
    other.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('keep me')")
    log = Path(f"{path}-wal")
    copy = path.parent / "copy" / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    copied_log = Path(f"{copy}-wal")
    copied_log.write_bytes(log.read_bytes())
    other.close()
    before = copy.read_bytes(), copied_log.read_bytes()
    with pytest.raises(NotADatabase):
        SqliteStore(copy)
    assert (copy.read_bytes(), copied_log.read_bytes()) == before


def test_a_log_whose_database_is_empty_is_refused_and_left_alone(path: Path) -> None:
    copy = path.parent / "copy" / path.name
    copy.parent.mkdir()
    with SqliteStore(path) as store:
        store.create_session(session())
        log = Path(f"{path}-wal").read_bytes()
    copy.touch()
    Path(f"{copy}-wal").write_bytes(log)
    for create in (True, False):
        with pytest.raises(NotADatabase, match=r"its log is not. Nothing was changed: .*--salvage"):
            open_store(copy, create=create)
    assert Path(f"{copy}-wal").read_bytes() == log
    assert sorted(os.listdir(copy.parent)) == [copy.name, f"{copy.name}-wal"]


def test_a_log_that_has_lost_its_database_is_refused_and_left_alone(path: Path) -> None:
    moved = path.with_name("moved.db")
    log = Path(f"{path}-wal")
    with SqliteStore(path) as store:
        store.create_session(session(id="saved"))
        kept = log.read_bytes()
        path.rename(moved)
    log.write_bytes(kept)
    with pytest.raises(LogMisplaced, match=r"its log .*-wal is there.* Nothing was changed"):
        open_store(path)
    assert (path.exists(), log.read_bytes() == kept) == (False, True)
    moved.rename(path)
    with SqliteStore(path) as store:
        assert store.find_session("saved") is not None


def test_a_database_that_is_put_back_beside_its_log_meanwhile_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made beside the log, so there is nothing to be taken away again."""
    moved = path.with_name("moved.db")
    log = Path(f"{path}-wal")
    with SqliteStore(path) as store:
        store.create_session(session(id="saved"))
        kept = log.read_bytes()
        path.rename(moved)
    log.write_bytes(kept)

    def put_back(step: Callable[..., object]) -> Callable[..., object]:
        def stepping(file: object, *arguments: object) -> object:
            if file == path and moved.exists():
                moved.rename(path)
            return step(file, *arguments)

        return stepping

    monkeypatch.setattr(os, "unlink", put_back(os.unlink))
    with pytest.raises(LogMisplaced, match="Nothing was changed"):
        open_store(path)
    monkeypatch.undo()
    assert path.exists() != moved.exists()
    if moved.exists():
        moved.rename(path)
    with SqliteStore(path) as store:
        assert store.find_session("saved") is not None


@pytest.mark.parametrize("replaced_by", ["another store", "a copy"])
def test_the_log_of_another_file_is_refused_and_left_alone(path: Path, replaced_by: str) -> None:
    other, beside = path.parent / "other.db", path.parent / "beside.db"
    with SqliteStore(path) as store:
        if replaced_by == "a copy":
            store.back_up(other)
        store.create_session(session(id="saved"))
        for ending in ("", "-wal"):
            shutil.copyfile(f"{path}{ending}", f"{beside}{ending}")
    SqliteStore(other).close()
    other.replace(beside)
    before = beside.read_bytes(), Path(f"{beside}-wal").read_bytes()
    for create in (True, False):
        with pytest.raises(LogMisplaced, match="-wal"):
            SqliteStore(beside, ensure_schema=create)
    assert (beside.read_bytes(), Path(f"{beside}-wal").read_bytes()) == before
    for ending in ("-wal", "-shm"):
        Path(f"{beside}{ending}").unlink(missing_ok=True)
    SqliteStore(beside).close()


def test_a_pipe_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o644)
    with pytest.raises(NotADatabase, match="a device or a pipe"):
        open_store(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["pipe"]


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.touch()
    with SqliteStore(path) as store:
        store.create_session(session())


def test_a_file_that_another_process_initialises_meanwhile_is_ours(path: Path) -> None:
    path.touch()

    def initialise_after_the_first_look(connection: apsw.Connection) -> None:
        def trace(_: apsw.Cursor, statement: str, __: object) -> bool:
            if "application_id" in statement:
                connection.exec_trace = initialise
            return True

        def initialise(*_: object) -> bool:
            connection.exec_trace = None
            apsw.connection_hooks.remove(initialise_after_the_first_look)
            # Kept waiting while somebody looks, or let through: either will do.
            with suppress(StoreBusy):
                SqliteStore(path, busy_timeout=0).close()
            return True

        connection.exec_trace = trace

    apsw.connection_hooks.append(initialise_after_the_first_look)
    with SqliteStore(path) as store:
        store.create_session(session())
    assert initialise_after_the_first_look not in apsw.connection_hooks


def test_a_missing_schema_is_not_created_unasked(path: Path) -> None:
    with pytest.raises(SchemaMissing, match="ensure_schema"):
        SqliteStore(path, ensure_schema=False)
    assert path.stat().st_size == 0
    SqliteStore(path).close()
    SqliteStore(path, ensure_schema=False).close()


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        SqliteStore(tmp_path)


def test_a_damaged_database_is_refused(path: Path) -> None:
    SqliteStore(path).close()
    content = bytearray(path.read_bytes())
    content[100:200] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises(NotADatabase):
        SqliteStore(path)
    assert path.read_bytes() == content


# Trouble with the disk


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs POSIX users")
def test_a_directory_that_cannot_be_written_is_said_to_be_read_only() -> None:
    def open_as_a_stranger() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        with pytest.raises(StoreReadOnly, match="permissions"):
            SqliteStore(target)

    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "sessions.db"
        Path(directory).chmod(0o555)
        try:
            in_child(open_as_a_stranger)
        finally:
            Path(directory).chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs POSIX users")
def test_a_parent_that_cannot_be_written_is_said_to_be_read_only() -> None:
    def open_as_a_stranger() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        with pytest.raises(StoreReadOnly):
            SqliteStore(Path(directory) / "new" / "sessions.db")

    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        try:
            in_child(open_as_a_stranger)
        finally:
            Path(directory).chmod(0o755)


def test_a_full_disk_stores_nothing_and_keeps_what_was_there(path: Path) -> None:
    with SqliteStore(path) as store:
        owner = session()
        store.put(checkpoint(owner.id, "before", session=owner, contents=[b"safe" * 100]))

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        with SqliteStore(path) as store:
            with pytest.raises(StoreFull, match="intact"):
                store.put(checkpoint(owner.id, "huge", contents=[os.urandom(1_000_000)]))
            assert stored(store, owner.id) == ["before"]
            store.put(checkpoint(owner.id, "small"))

    in_child(fill)
    with SqliteStore(path) as store:
        assert stored(store, owner.id) == ["small", "before"]
        digest = digest_of(b"safe" * 100)
        assert store.read_chunks([digest]) == {digest: b"safe" * 100}


def test_a_file_that_was_removed_is_noticed(store: SqliteStore, path: Path) -> None:
    owner = store.create_session(session())
    path.unlink()
    with pytest.raises(StoreUnavailable, match="removed"):
        store.put(checkpoint(owner.id))
    Path(f"{path}-wal").unlink()
    SqliteStore(path).close()
    with pytest.raises(StoreUnavailable, match="replaced"):
        store.put(checkpoint(owner.id))


@pytest.mark.row("S1-92")
def test_waiting_for_another_writer_ends_with_the_timeout(path: Path) -> None:
    with SqliteStore(path, busy_timeout=0.2) as store:
        owner = store.create_session(session())
        other = plain(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="retry is safe"):
            store.put(checkpoint(owner.id))
        other.execute("ROLLBACK")
        assert store.put(checkpoint(owner.id)).created


def test_a_writer_waits_for_another(path: Path) -> None:
    with SqliteStore(path) as store:
        owner = store.create_session(session())
        other = plain(path)
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, lambda: other.execute("COMMIT"))
        timer.start()
        assert store.put(checkpoint(owner.id)).created
        timer.join()


# Forks


def test_a_forked_child_uses_connections_of_its_own(store: SqliteStore) -> None:
    owner = store.create_session(session())
    store.put(checkpoint(owner.id, "parent before"))

    def work() -> None:
        assert stored(store, owner.id) == ["parent before"]
        store.put(checkpoint(owner.id, "child"))
        store.close()

    in_child(work)
    store.put(checkpoint(owner.id, "parent after"))
    assert stored(store, owner.id) == ["parent after", "child", "parent before"]


def test_forks_among_writing_threads_lose_nothing(store: SqliteStore) -> None:
    owner = store.create_session(session())
    done = threading.Event()
    acknowledged: list[str] = []

    def write_on() -> None:
        while not done.is_set():
            acknowledged.append(store.put(checkpoint(owner.id)).record.id)

    threads = [threading.Thread(target=write_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(5):
            in_child(lambda number=number: _put(store, owner.id, f"child {number}"))  # type: ignore[misc]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    records = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
    assert {record.id for record in records} >= set(acknowledged)
    assert {f"child {number}" for number in range(5)} <= {record.name for record in records}
    with plain(store.path) as connection:
        assert connection.pragma("integrity_check") == "ok"


def _put(store: SqliteStore, session_id: str, name: str) -> None:
    store.put(checkpoint(session_id, name))


# Content


def test_content_is_compressed_where_that_helps(path: Path) -> None:
    with SqliteStore(path) as store:
        owner = session()
        text, noise = b"the same words again " * 500, os.urandom(5000)
        store.put(checkpoint(owner.id, session=owner, contents=[text, noise]))
        found = plain(path).execute(
            "SELECT codec, iif(length(data) < 200, 'packed', length(data)) FROM chunks ORDER BY 1"
        )
        assert found.fetchall() == [(0, 5000), (1, "packed")]
        assert store.read_chunks([digest_of(text)]) == {digest_of(text): text}


def test_compression_can_be_left_off(path: Path) -> None:
    with SqliteStore(path, compress=False) as store:
        owner = session()
        store.put(checkpoint(owner.id, session=owner, contents=[b"plain " * 100]))
        assert store.total_bytes() == 600
    assert b"plain plain plain" in path.read_bytes()


def test_chunks_that_cannot_be_unpacked_are_left_out(store: SqliteStore) -> None:
    owner = session()
    contents = [b"%d" % number * 500 for number in range(4)]
    digests = [digest_of(data) for data in contents]
    store.put(checkpoint(owner.id, session=owner, contents=contents))
    bomb = zstd.compress(b"\0" * (MAX_CHUNK_BYTES + 1))
    other = plain(store.path)
    for digest, codec, data in (
        (digests[0], 1, bomb),
        (digests[1], 1, b"garbage"),
        (digests[2], 9, b"?"),
    ):
        other.execute(
            "UPDATE chunks SET codec = ?, data = ? WHERE digest = ?", (codec, data, digest)
        )
    assert store.read_chunks(digests) == {digests[3]: contents[3]}


def test_a_bomb_without_a_declared_size_is_refused_too() -> None:
    compressor = zstd.ZstdCompressor()
    bomb = compressor.compress(b"\0" * (MAX_CHUNK_BYTES + 1)) + compressor.flush()
    assert zstd.get_frame_info(bomb).decompressed_size is None
    assert unpack(1, bomb) is None


@pytest.mark.parametrize("size", [0, 1, 47, 48, 1000, 100_000])
def test_packing_gives_back_the_same_bytes(size: int) -> None:
    for data in (os.urandom(size), b"a" * size):
        codec, packed = pack(data)
        assert unpack(codec, bytes(packed)) == data
        assert len(packed) <= size


def test_erased_content_is_gone_from_the_file(store: SqliteStore, path: Path) -> None:
    kept, gone = session(), session()
    secret = os.urandom(3000)
    store.put(checkpoint(kept.id, session=kept))
    store.put(
        checkpoint(gone.id, session=gone, contents=[secret], manifest='{"text":"my-secret-word"}')
    )
    store.append_log(gone.id, "info", "another-secret-word")
    assert store.delete_session(gone.id)
    for file in path.parent.iterdir():
        content = file.read_bytes()
        for trace in (secret[:64], b"my-secret-word", b"another-secret-word"):
            assert trace not in content


def test_the_file_shrinks_when_content_is_swept(store: SqliteStore, path: Path) -> None:
    owner = session()
    draft = checkpoint(owner.id, session=owner, contents=[os.urandom(2_000_000)])
    store.put(draft)
    store.delete_checkpoints([draft.id])
    assert store.gc().bytes == 2_000_000
    assert path.stat().st_size < 300_000


def test_gc_removes_nothing_below_an_unreadable_index(store: SqliteStore) -> None:
    owner = session()
    leaves = [b"leaf one" * 20, b"leaf two" * 20]
    data, refs = index_of(*leaves)
    chunks = {digest_of(one): one for one in (*leaves, data)}
    store.put(checkpoint(owner.id, session=owner, refs=refs, chunks=chunks))
    plain(store.path).execute("DELETE FROM chunks WHERE digest = ?", (digest_of(data),))
    with pytest.raises(StateCorrupt, match="Nothing was removed"):
        store.gc()
    assert len(store.read_chunks(list(chunks))) == 2


def test_writes_are_orphans_only_after_a_day(path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with SqliteStore(path, now=lambda: now) as store:
        owner = session()
        store.put_writes(owner, "", "orphan", [write(contents=[b"orphaned"])])
        store.put_writes(owner, "", "kept", [write(contents=[b"kept"])])
        store.put(checkpoint(owner.id, external_id="kept"))
        now += timedelta(hours=23)
        assert store.gc().writes == 0
        now += timedelta(hours=2)
        report = store.gc(dry_run=True)
        assert (report.writes, report.chunks) == (1, 1)
        report = store.gc()
        assert (report.writes, report.chunks) == (1, 1)
        assert store.list_writes(owner.id, "", ["orphan"]) == []
        assert len(store.list_writes(owner.id, "", ["kept"])) == 1


def test_a_checkpoint_that_is_being_restored_is_not_trimmed(store: SqliteStore) -> None:
    owner = session()
    for name in ("first", "second"):
        draft = checkpoint(owner.id, name, session=owner, retention_class="automatic")
        store.put(draft)
    until = datetime.now(UTC) + timedelta(minutes=1)
    plain(store.path).execute(
        "UPDATE session_checkpoints SET restoring_until = ? WHERE name = 'first'",
        (until.isoformat(timespec="microseconds").replace("+00:00", "Z"),),
    )
    store.put(checkpoint(owner.id, "third", retention_class="automatic", trim=Trim(keep=1)))
    assert stored(store, owner.id) == ["third", "first"]


def test_an_interrupted_write_leaves_nothing(store: SqliteStore) -> None:
    owner = store.create_session(session())

    def interrupted(connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM sessions")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store._file.write(interrupted)
    assert store.find_session(owner.id) == owner


def test_an_unforeseen_statement_error_becomes_ours(store: SqliteStore) -> None:
    with pytest.raises(StoreError):
        store._file.read(lambda connection: connection.execute("SELECT * FROM nowhere"))


def test_opening_does_not_import_what_it_does_not_need() -> None:
    code = (
        "import sys; import holdfast.stores.sqlite, holdfast.stores.memory; "
        "assert not {'asyncio', 'psycopg', 'pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_empty_file_becomes_its_owners_only(path: Path) -> None:
    path.touch(mode=0o644)
    path.chmod(0o644)
    with pytest.raises(SchemaMissing):
        SqliteStore(path, ensure_schema=False)
    assert mode(path) == 0o644
    with SqliteStore(path):
        assert {mode(found) for found in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize("room", [0, 1_000, 5_000, 20_000, 60_000])
def test_no_room_for_a_new_file_leaves_none(path: Path, room: int) -> None:
    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        with pytest.raises(StoreFull, match="free some space"):
            SqliteStore(path)
        assert list(path.parent.iterdir()) == []

    in_child(work)
    with SqliteStore(path) as store:
        assert store.list_sessions() == []


def test_no_room_leaves_a_file_that_was_there(path: Path) -> None:
    path.touch()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))
        with pytest.raises(StoreFull):
            SqliteStore(path)

    in_child(work)
    assert path.exists()
    SqliteStore(path).close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files cannot be counted")
def test_connections_of_many_threads_do_not_stay_open(store: SqliteStore, path: Path) -> None:
    together = threading.Barrier(64)

    def read() -> None:
        def meet(connection: apsw.Connection) -> None:
            connection.pragma("application_id")
            together.wait()

        store._file.read(meet)

    threads = [threading.Thread(target=read) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Not the database itself: SQLite keeps its descriptors, which carry locks, for later use.
    links = (os.readlink(found) for found in Path("/proc/self/fd").iterdir() if found.is_symlink())
    assert 1 <= sum(link == f"{path}-wal" for link in links) <= IDLE_CONNECTIONS
    owner = session()
    store.put(checkpoint(owner.id, "after", session=owner))
    assert stored(store, owner.id) == ["after"]


def test_a_commit_reaches_the_platter(store: SqliteStore) -> None:
    names = ("synchronous", "fullfsync", "checkpoint_fullfsync")
    assert store._file.read(lambda used: [used.pragma(name) for name in names]) == [2, 1, 1]


def test_a_count_at_its_end_is_damage_by_name(path: Path) -> None:
    with SqliteStore(path) as store:
        owner = store.create_session(session())
        plain(path).execute("UPDATE sessions SET lease_token = 9223372036854775807")
        with pytest.raises(StateCorrupt, match="cannot be understood"):
            store.acquire_lease(owner.id, "me")
        plain(path).execute("UPDATE sessions SET chain_length = 9223372036854775807")
        with pytest.raises(StateCorrupt, match="cannot be understood"):
            store.put(checkpoint(owner.id))


@pytest.mark.parametrize("zone", ["", "+02:00"])
@pytest.mark.parametrize("table", ["agents", "sessions", "session_checkpoints"])
def test_a_time_that_is_not_in_utc_is_damage_by_name(path: Path, table: str, zone: str) -> None:
    with SqliteStore(path) as store:
        owner = session()
        store.put(checkpoint(owner.id, session=owner))
        plain(path).execute(f"UPDATE {table} SET created_at = '2026-01-02T03:04:05.678901{zone}'")
        read: dict[str, Callable[[], object]] = {
            "agents": store.list_agents,
            "sessions": store.list_sessions,
            "session_checkpoints": lambda: store.list_checkpoints(CheckpointQuery()),
        }
        with pytest.raises(StateCorrupt, match="not in UTC"):
            read[table]()
