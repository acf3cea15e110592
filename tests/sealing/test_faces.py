"""Every face of a store seals, with the key of the environment or one that it is given."""

import asyncio
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from click.testing import CliRunner
from langgraph.checkpoint.base import empty_checkpoint

from holdfast import (
    MemoryCheckpointer,
    PostgresCheckpointer,
    PostgresCheckpointSaver,
    SessionManager,
    SQLiteCheckpointer,
    SQLiteCheckpointSaver,
    ensure_checkpoints_schema,
)
from holdfast.cli import holdfast
from holdfast.crypto import KeyRing
from holdfast.doctor import salvage
from holdfast.errors import (
    BundleNotSealed,
    CheckpointAltered,
    CheckpointQuarantined,
    ExportRefused,
    IntegrityError,
    KeyRequired,
    WrongKey,
)
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.savers import CheckpointConfig
from holdfast.stores import open_store
from holdfast.stores.postgres_statements import session_document
from holdfast.stores.sealed import SealedStore
from holdfast.testing.drafts import session
from tests.postgres_server import PostgresServer
from tests.stores.postgres_drafts import connect, schema_of

CANARY = "canary-7711"
STATE: dict[str, Any] = {"small": CANARY, "large": [f"{CANARY} {n}" * 60 for n in range(40)]}


@pytest.fixture
def key(tmp_path: Path, ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key file that the environment names."""
    file = tmp_path / "keys"
    file.write_text(ring.text())
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(file))
    return file


def in_files(folder: Path) -> bytes:
    """Return all bytes of the databases in a directory."""
    return b"".join(one.read_bytes() for one in folder.glob("*.db*"))


def in_postgres(url: str, server: PostgresServer) -> str:
    """Return all that a schema's tables hold, as text."""
    schema = url.rpartition("schema=")[2]
    tables = ("agents", "sessions", "session_checkpoints", "checkpoint_writes", "effects")
    found = []
    with psycopg.connect(server.url("holdfast")) as connection:
        for table in (*tables, "session_logs"):
            rows = connection.execute(f'SELECT t::text FROM "{schema}".{table} AS t').fetchall()
            found += [str(row) for row in rows]
        chunks = connection.execute(f'SELECT data FROM "{schema}".chunks').fetchall()
        found += [bytes(data).decode("latin-1") for (data,) in chunks]
    return "".join(found)


def test_savers_and_checkpointers_in_a_file(key: Path, tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    config = CheckpointConfig(thread_id="t")

    async def use() -> None:
        checkpointer = SQLiteCheckpointer(path)
        await checkpointer.put("t", STATE)
        assert await checkpointer.get("t") == STATE
        await checkpointer.close()

    asyncio.run(use())
    with SQLiteCheckpointSaver(path) as saver:
        saved = saver.put(config, STATE, {"note": CANARY})
        saver.put_writes(saved, [("channel", CANARY)], "task")
        found = saver.get_tuple(saved)
        assert found is not None
        assert found.checkpoint["large"] == STATE["large"]
        listed = list(saver.list(config, filter={"note": CANARY}))
        assert [one.metadata["note"] for one in listed] == [CANARY]
        assert list(saver.list(config, filter={"note": "other"})) == []
    with HoldfastSaver(path) as graph:
        at: Any = {"configurable": {"thread_id": "g", "checkpoint_ns": ""}}
        values = {**empty_checkpoint(), "channel_values": {"text": CANARY}}
        graph.put(at, values, {"source": "input"}, {})  # type: ignore[arg-type]
    assert CANARY.encode() not in in_files(tmp_path)
    with pytest.raises(KeyRequired):
        open_store(path, keys=False)


def test_a_checkpointer_of_a_sealed_tenant_begins_beside_writers(
    ring: KeyRing, postgres_url: str
) -> None:
    with open_store(postgres_url, keys=ring) as store:
        store.create_session(session(id="sealed"))
    with connect(postgres_url) as writer, writer.transaction(), connect(postgres_url) as own:
        writer.execute("SELECT create_session('another', %s::jsonb)", [session_document(session())])
        # Who has to wait for the writer is told so.
        own.execute("SET lock_timeout = 1000")
        checkpointer = PostgresCheckpointer(own, holdfast_schema=schema_of(postgres_url), keys=ring)
        assert asyncio.run(checkpointer.list("t")) == []


def test_a_saver_in_postgres(key: Path, postgres_url: str, postgres_server: PostgresServer) -> None:
    with PostgresCheckpointSaver(postgres_url) as saver:
        config = saver.put(CheckpointConfig(thread_id="t"), STATE, {"note": CANARY})
        assert saver.get_tuple(config) is not None
        saver.copy_thread("t", "u")
        again = saver.get_tuple(CheckpointConfig(thread_id="u"))
        assert again is not None
        assert again.checkpoint["large"] == STATE["large"]
    assert CANARY not in in_postgres(postgres_url, postgres_server)


def test_a_checkpointer_through_the_callers_own_connection(
    ring: KeyRing, postgres_url: str, postgres_server: PostgresServer
) -> None:
    schema = postgres_url.rpartition("schema=")[2]

    async def use(keys: Any, work: Callable[[PostgresCheckpointer], Any]) -> Any:
        where = postgres_server.url("holdfast")
        async with await psycopg.AsyncConnection.connect(where, autocommit=True) as connection:
            await ensure_checkpoints_schema(connection, schema, holdfast_schema=schema)
            checkpointer = PostgresCheckpointer(
                connection, schema, holdfast_schema=schema, keys=keys
            )
            return await work(checkpointer)

    asyncio.run(use(ring, lambda one: one.put("t", STATE)))
    assert asyncio.run(use(ring, lambda one: one.get("t"))) == STATE
    assert len(asyncio.run(use(ring, lambda one: one.list("t")))) == 1
    assert CANARY not in in_postgres(postgres_url, postgres_server)
    with pytest.raises(KeyRequired):
        asyncio.run(use(False, lambda one: one.get("t")))
    with pytest.raises(KeyRequired):
        asyncio.run(use(False, lambda one: one.put("new", {})))
    with pytest.raises(KeyRequired):
        asyncio.run(use(False, lambda one: one.put("t", {})))
    with pytest.raises(WrongKey):
        asyncio.run(use(KeyRing.new(), lambda one: one.get("t")))
    # The store and the checkpointer are one and the same database.
    with open_store(postgres_url, keys=ring) as store:
        [record] = store.list_sessions()
        assert record.id == "t"
    with (
        psycopg.connect(postgres_server.url("holdfast")) as connection,
        pytest.raises(psycopg.Error, match="is sealed; read it with Holdfast and its key"),
    ):
        connection.execute(
            f'SELECT "{schema}".checkpoint_state(id) FROM "{schema}".session_checkpoints'
        )


def test_a_checkpointer_in_memory(key: Path) -> None:
    async def use() -> None:
        checkpointer = MemoryCheckpointer()
        await checkpointer.put("t", STATE)
        assert await checkpointer.get("t") == STATE

    asyncio.run(use())


def filled(manager: SessionManager) -> str:
    """Make a session with a little of everything, and return its id."""
    session = manager.create_session(agent_type="t", task_description=CANARY, metadata={"m": 1})
    session.save_checkpoint("one", state=STATE, description=CANARY)
    session.log("info", CANARY, data={"d": CANARY})
    assert session.step("charge", lambda who: {"paid": who}, CANARY) == {"paid": CANARY}
    session.save_checkpoint("two", state={**STATE, "more": [CANARY] * 9})
    return session.id


def test_sessions_fork_resume_and_replay(key: Path, tmp_path: Path) -> None:
    with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
        session_id = filled(manager)
    with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
        session = manager.resume_session(session_id)
        assert session.state["more"] == [CANARY] * 9
        assert session.step("charge", lambda who: {"paid": "twice"}, CANARY) == {"paid": CANARY}
        fork = session.fork("one")
        assert fork.load_checkpoint("one").state == STATE
        assert manager.verify().ok
        assert manager.gc().chunks == 0
        found = manager.list_sessions(metadata={"m": 1})
        assert session_id in [one.id for one in found]
    assert CANARY.encode() not in in_files(tmp_path)


def test_a_copy_seals_and_unseals(
    tmp_path: Path, ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, sealed, back = (tmp_path / name for name in ("plain.db", "sealed.db", "back.db"))
    with SessionManager.open(plain, workspace=False) as manager:
        session_id = filled(manager)
    assert CANARY.encode() in in_files(tmp_path)
    monkeypatch.setenv("HOLDFAST_KEY", ring.text())
    done = CliRunner().invoke(holdfast, ["copy", str(plain), str(sealed), "--no-files"])
    assert done.exit_code == 0, done.output
    with pytest.raises(KeyRequired):
        open_store(sealed, keys=False)
    assert CANARY.encode() not in sealed.read_bytes()
    with SessionManager.open(sealed, workspace=False) as manager:
        assert manager.get_session(session_id).load_checkpoint("one").state == STATE
        assert next(iter(manager.get_session(session_id).logs())).message == CANARY
        with pytest.raises(ExportRefused, match="is not"):
            manager.copy_to(back, keys=False)
    done = CliRunner().invoke(
        holdfast, ["copy", str(sealed), str(back), "--no-files", "--unsealed"]
    )
    assert done.exit_code == 0, done.output
    with SessionManager.open(back, workspace=False, keys=False) as manager:
        assert manager.get_session(session_id).load_checkpoint("two").state["small"] == CANARY


def test_a_bundle_of_plain_text_is_asked_for_on_both_ends(key: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "one.holdfast.tar"
    with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
        session_id = filled(manager)
        assert manager.export_session(session_id, tmp_path / "sealed").sealed
    assert CANARY.encode() not in (tmp_path / "sealed").read_bytes()
    arguments = ["export", session_id, "--no-files", "-o", str(bundle), "--unsealed"]
    done = CliRunner().invoke(holdfast, [*arguments, "--url", str(tmp_path / "s.db")])
    assert done.exit_code == 0, done.output
    assert CANARY.encode() in bundle.read_bytes()
    with SessionManager.open(tmp_path / "t.db", workspace=False) as manager:
        with pytest.raises(BundleNotSealed, match="--unsealed"):
            manager.import_bundle(bundle)
        assert manager.list_sessions() == []
        manager.import_bundle(bundle, unsealed=True)
        assert manager.get_session(session_id).load_checkpoint("one").state == STATE
    assert CANARY.encode() not in in_files(tmp_path)


def damage(path: Path, what: str) -> None:
    """Change a file past Holdfast."""
    connection = apsw.Connection(str(path))
    connection.execute(_DAMAGE[what])
    connection.close()


@pytest.mark.parametrize("lost", ["nothing", "the seal", "a session", "a state"])
def test_a_salvaged_store_stays_sealed(
    lost: str, key: Path, ring: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, saved = tmp_path / "s.db", tmp_path / "saved.db"
    with SessionManager.open(path, workspace=False) as manager:
        session_id = filled(manager)
    damage(path, lost)
    report = salvage(path, saved)
    assert report.complete is (lost in ("nothing", "the seal"))
    with SessionManager.open(saved, workspace=False) as manager:
        assert isinstance(manager.store, SealedStore)
        session = manager.get_session(session_id)
        assert manager.verify().ok
        name = "two" if lost == "a state" else "one"
        assert session.load_checkpoint(name).state["small"] == CANARY
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    with pytest.raises(KeyRequired):
        salvage(path, tmp_path / "other.db")


def test_a_result_that_does_not_open_hides_no_other_and_is_salvaged_around(
    key: Path, tmp_path: Path
) -> None:
    path, saved = tmp_path / "s.db", tmp_path / "saved.db"
    with SessionManager.open(path, workspace=False) as manager:
        for name in ("one", "other"):
            session = manager.create_session("worker", session_id=name)
            session.save_checkpoint("one", state=STATE)
            for _ in range(2):
                session.step("pay", lambda: CANARY)
    damage(path, "a result")
    with SessionManager.open(path, workspace=False) as manager:
        report = manager.verify()
        assert (report.effects, report.damaged_besides) == (4, {"effect": 1})
        [found] = report.damaged
        assert (found.session_id, found.occurrence) == ("one", 1)
    report_of_loss = salvage(path, saved)
    [lost] = report_of_loss.lost
    assert (lost.session_id, lost.effect_key) == ("one", found.effect_key)
    assert "result of pay#" in lost.what
    with SessionManager.open(saved, workspace=False) as manager:
        assert manager.verify(deep=True).ok
        statuses = [one.status for one in manager.get_session("one").effects()]
        assert statuses == ["done", "unknown"]
        assert [one.result for one in manager.get_session("other").effects()] == [CANARY, CANARY]


@pytest.mark.parametrize("what", ["a task", "a log"])
def test_what_cannot_be_opened_of_a_session_is_said_to_be_lost(
    what: str, key: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    with SessionManager.open(path, workspace=False) as manager:
        session_id = filled(manager)
    damage(path, what)
    report = salvage(path, tmp_path / "saved.db")
    assert not report.complete
    assert [one.what for one in report.lost] == [f"something of session {session_id}"]


@pytest.mark.row("B8")
def test_a_checkpoint_that_does_not_open_is_passed_over_once_it_is_in_quarantine(
    key: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session("worker", session_id="s")
        session.save_checkpoint("before", state={"n": 1}, description="d")
        bad = session.save_checkpoint("one", state={"n": 2}, description="d", metadata={"m": 1})
    damage(path, "a description")
    with SessionManager.open(path, workspace=False) as manager:
        looked_at = manager.get_session("s")
        assert [one.name for one in looked_at.list_checkpoints()] == ["before"]
        assert looked_at.unreadable_checkpoints().keys() == {bad.id}
        with pytest.raises(IntegrityError):
            looked_at.get_checkpoint("one")
        assert manager.verify(deep=True).quarantined == (bad.id,)
        found = manager.get_session("s").list_checkpoints()
        assert [(one.name, one.description) for one in found] == [("one", None), ("before", "d")]
        session = manager.resume_session("s")
        assert session.state == {"n": 1}
        assert any("'one'" in notice for notice in session.notices)
        with pytest.raises(CheckpointQuarantined):
            session.load_checkpoint("one")
        assert not manager.verify(deep=True).ok


def test_files_are_verified_past_a_checkpoint_that_does_not_open(key: Path, tmp_path: Path) -> None:
    path, project = tmp_path / "s.db", tmp_path / "project"
    project.mkdir()
    with SessionManager.open(path, project_dir=project) as manager:
        (project / "code.py").write_text("print(1)\n")
        first = manager.create_session("worker").save_checkpoint("one", state={}, description="d")
        (project / "code.py").write_text("print(2)\n")
        second = manager.create_session("worker").save_checkpoint("two", state={})
    damage(path, "a description")
    for stored in (project / ".agents" / "workspace.git" / "objects").rglob("*"):
        if stored.is_file() and b"print(2)" in _inflated(stored):
            stored.unlink()
    with SessionManager.open(path, project_dir=project) as manager:
        found = {one.checkpoint_id: one.code for one in manager.verify().damaged}
    assert found == {first.id: "checkpoint_altered", second.id: "snapshot_corrupt"}


def _inflated(path: Path) -> bytes:
    try:
        return zlib.decompress(path.read_bytes())
    except zlib.error:
        return b""


def test_a_stray_checkpoint_that_does_not_open_is_found(key: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SessionManager.open(path, workspace=False) as manager:
        filled(manager)
        ids = set(manager.store.iter_checkpoint_ids())
    damage(path, "a session")
    damage(path, "a description")
    with SessionManager.open(path, workspace=False) as manager:
        damaged = manager.verify(deep=True).damaged
    assert {one.checkpoint_id for one in damaged} - {None} == ids


_DAMAGE = {
    # That of another effect: whole, and not in its place.
    "a result": (
        "UPDATE effects SET result = (SELECT result FROM effects WHERE session_id = 'other' "
        "LIMIT 1) WHERE session_id = 'one' AND occurrence = 1"
    ),
    "a task": "UPDATE sessions SET task_description = 'written past the key'",
    "a log": "UPDATE session_logs SET message = 'written past the key'",
    "a description": (
        "UPDATE session_checkpoints SET description = 'written past the key' WHERE name = 'one'"
    ),
    "nothing": "SELECT 1",
    "the seal": "DELETE FROM sealing",
    "a session": "DELETE FROM sessions",
    "a state": (
        "UPDATE session_checkpoints SET state_snapshot = replace(state_snapshot, '\"}', 'A\"}') "
        "WHERE name = 'one'"
    ),
}


def test_verify_names_what_does_not_open(key: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SessionManager.open(path, workspace=False) as manager:
        filled(manager)
        damage(path, "a state")
        report = manager.verify()
        assert [one.code for one in report.damaged] == [CheckpointAltered.code]
