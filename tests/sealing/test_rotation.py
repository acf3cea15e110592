"""Another key: everything is sealed again, beside running work, and after any kill."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import apsw
import psycopg
import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing
from holdfast.errors import (
    AccessDenied,
    CheckpointAltered,
    InvalidConfiguration,
    InvalidUrl,
    StoreUnavailable,
    WrongKey,
)
from holdfast.rotation import count_keys, rotate
from holdfast.state import StateEncoder
from holdfast.stores import open_store
from holdfast.stores.chain import breaks
from holdfast.stores.sealed import SealedStore
from holdfast.stores.sealed_tables import Change, Table
from holdfast.testing.drafts import agent, checkpoint, session, write
from tests.stores.postgres_roles import role_of

STATE: dict[str, Any] = {"text": "secret " * 3000, "list": [f"line {n}" * 40 for n in range(90)]}


def fill(url: str, ring: KeyRing) -> str:
    """Store a little of everything, and return the session's id."""
    with SessionManager.open(url, workspace=False, keys=ring) as manager:
        made = manager.create_session(agent_type="t", task_description="task", metadata={"m": 1})
        made.save_checkpoint("one", state=STATE, description="first")
        made.step("charge", lambda who: {"paid": who}, "me")
        made.log("info", "line", data={"d": [1, 2], "e": None})
        made.log("error", "no data")
        made.save_checkpoint("two", state={**STATE, "n": 2})
        made.pause(reason="because")
        store = manager.store
        worker = store.create_agent(agent(metadata={"a": 1}))
        other = store.create_session(session(agent_id=worker.id))
        encoded = StateEncoder().encode(STATE)
        content: dict[str, Any] = {
            "manifest": encoded.manifest,
            "refs": encoded.refs,
            "chunks": encoded.chunks,
        }
        store.put_writes(session(id=other.id, agent_id=worker.id), "ns", "e", [write(**content)])
        store.put(checkpoint(other.id, metadata={"k": "v"}, **content))
        store.put_pack("a" * 40, needs=[], data=b"PACK" * 9)
        # A tombstone between two links.
        gone = store.put(checkpoint(other.id)).record
        store.put(checkpoint(other.id, metadata={"k": "w"}, **content))
        store.delete_checkpoints([gone.id])
        return made.id


def everything(url: str, ring: KeyRing) -> Any:
    """Return all that a store holds, opened."""
    with open_store(url, keys=ring) as store:
        copies = [store.read_session(one.id) for one in store.list_sessions()]
        states = {id_: store.load(id_) for id_ in store.iter_checkpoint_ids()}
        chains = [store.read_chain(one.id) for one in store.list_sessions()]
        assert [why for chain in chains if chain is not None for why in breaks(chain)] == []
        return copies, states, [one.data for one in store.read_packs("a" * 40)]


def test_after_a_rotation_the_new_key_alone_opens_everything(url: str, ring: KeyRing) -> None:
    fill(url, ring)
    before = everything(url, ring)
    both = ring.rotated()
    with open_store(url, keys=both) as store:
        assert count_keys(store).values.keys() == {ring.current}
        report = rotate(store)
        assert report.changed > 10
        assert report.values.keys() == {ring.current}
        assert count_keys(store).values == {both.current: report.values[ring.current]}
        assert rotate(store).changed == 0
        assert store.gc().chunks == 0
    alone = both.only(set())
    assert list(alone.keys) == [both.current]
    assert everything(url, alone) == before
    with pytest.raises(WrongKey):
        open_store(url, keys=ring)
    with SessionManager.open(url, workspace=False, keys=alone) as manager:
        assert manager.verify(deep=True).ok


def test_two_rings_work_on_one_store_meanwhile(url: str, ring: KeyRing, tmp_path: Path) -> None:
    fill(url, ring)
    file = tmp_path / "keys"
    file.write_text(ring.text())
    with open_store(url, keys=file) as running:
        both = ring.rotated()
        file.write_text(both.text())
        owner = running.create_session(session(task_description="by the old ring"))
        with open_store(url, keys=both) as store:
            rotate(store)
            late = running.create_session(session(task_description="still by the old ring"))
            # It meets the new key, reads the ring again, and seals with it from then on.
            assert running.find_session(owner.id) == owner
            running.create_session(session())
            report = count_keys(store)
            assert 0 < report.old_values < 5
            assert rotate(store).changed == 1
            assert count_keys(store).old_values == 0
            assert store.find_session(late.id) == late


def test_saves_go_on_beside_a_rotation(url: str, ring: KeyRing) -> None:
    session_id = fill(url, ring)
    both = ring.rotated()
    begun, stop = threading.Event(), threading.Event()
    saved: list[str] = []

    def work() -> None:
        # With the old key still the current one: what it saves has to be sealed again, too.
        behind = KeyRing({id_: both.keys[id_] for id_ in reversed(both.keys)}, both.names)
        with SessionManager.open(url, workspace=False, keys=behind) as manager:
            session = manager.resume_session(session_id)
            while not stop.is_set():
                name = f"during {len(saved)}"
                session.save_checkpoint(name, state={**STATE, "n": len(saved)})
                session.log("info", name, data={"n": len(saved)})
                saved.append(name)
                if len(saved) == 3:
                    begun.set()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert begun.wait(60)
        with open_store(url, keys=both) as store:
            for _ in range(3):
                rotate(store)
    finally:
        stop.set()
        worker.join()
    with open_store(url, keys=both) as store:
        rotate(store)
        assert count_keys(store).old_values == 0
    with SessionManager.open(url, workspace=False, keys=both.only(set())) as manager:
        session = manager.get_session(session_id)
        assert manager.verify(deep=True).ok
        for n, name in enumerate(saved):
            assert session.load_checkpoint(name).state["n"] == n
        messages = [line.message for line in session.logs()]
        assert [one for one in messages if one.startswith("during")] == saved


_ROTATE = """
import os, signal, sys
from pathlib import Path
from holdfast import rotation
from holdfast.state import StateEncoder
from holdfast.stores import open_store
from holdfast.stores.chain import breaks

rotation._BATCH = 1
left = int(sys.argv[3])

def count(done):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

with open_store(sys.argv[1], keys=Path(sys.argv[2])) as store:
    rotation.rotate(store, progress=count)
"""


def test_a_rotation_that_is_killed_goes_on(url: str, ring: KeyRing, tmp_path: Path) -> None:
    fill(url, ring)
    before = everything(url, ring)
    both = ring.rotated()
    file = tmp_path / "keys"
    file.write_text(both.text())
    killed = 0
    for batch in (1, 2, 3, 5, 8, 13, 21, 1000):
        arguments = [sys.executable, "-c", _ROTATE, url, str(file), str(batch)]
        done = subprocess.run(arguments, env=os.environ, capture_output=True, check=False)
        killed += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        # Half way it is all there.
        assert everything(url, both) == before
    assert killed > 3
    assert everything(url, both.only(set())) == before


def test_one_pack_at_a_time_is_in_memory(
    url: str, ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    with open_store(url, keys=ring) as store:
        for number in range(3):
            store.put_pack(f"{number:040x}", needs=[], data=b"a pack")
    with open_store(url, keys=ring.rotated()) as store:
        reseal = store.reseal

        def counted(table: Table, change: Change, **options: Any) -> Any:
            if table.name == "workspace_packs":
                asked.append(options["limit"])
            return reseal(table, change, **options)

        monkeypatch.setattr(store, "reseal", counted)
        assert rotate(store).changed == 4  # the seal is one
        assert not count_keys(store).damaged
    assert set(asked) == {1}


def test_the_key_of_the_seal_is_counted_as_needed(url: str, ring: KeyRing) -> None:
    open_store(url, keys=ring).close()
    both = ring.rotated()
    with open_store(url, keys=both) as store:
        store.create_session(session(task_description="by the new key"))
        report = count_keys(store)
        assert report.values[ring.current] == report.old_values == 1
    # Without it the store is not opened, although the new key has sealed all that is in it.
    with pytest.raises(WrongKey):
        open_store(url, keys=both.only(set()))
    with open_store(url, keys=both) as store:
        assert rotate(store).changed == 1
        assert count_keys(store).old_values == 0
    open_store(url, keys=both.only(set())).close()


def test_values_are_counted_beside_a_writer(tmp_path: Path, ring: KeyRing) -> None:
    path = tmp_path / "sealed.db"
    fill(str(path), ring)
    with open_store(path, keys=ring, busy_timeout=0.1) as store:
        before = count_keys(store)
        writer = apsw.Connection(str(path))
        writer.execute("BEGIN IMMEDIATE")
        assert count_keys(store) == before
        writer.close()


def test_values_are_counted_by_a_role_that_may_not_change_logs(
    postgres_url: str, ring: KeyRing
) -> None:
    reading = f"{postgres_url}&options=-c%20default_transaction_read_only%3Don"
    with role_of(postgres_url, "app") as url:
        fill(url, ring)
        with open_store(postgres_url, keys=ring) as store:
            before = count_keys(store)
        with open_store(reading, keys=ring, create=False) as store:
            assert count_keys(store) == before
        with open_store(url, keys=ring.rotated()) as store:
            assert count_keys(store).values == before.values
            with pytest.raises(AccessDenied) as refused:
                rotate(store)
            assert not hasattr(refused.value, "__notes__")
            assert count_keys(store).values == before.values
        assert len(everything(url, ring)) == 3


@pytest.mark.parametrize("error", [StoreUnavailable, KeyboardInterrupt])
def test_an_interrupted_rotation_says_that_both_keys_are_needed(
    url: str, ring: KeyRing, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(url, ring)
    before = everything(url, ring)
    both = ring.rotated()
    with open_store(url, keys=both) as store:
        with monkeypatch.context() as broken:
            broken.setattr(
                SealedStore, "reseal_checkpoints", Mock(side_effect=error("the server is gone"))
            )
            with pytest.raises(error) as stopped:
                rotate(store)
        [note] = stopped.value.__notes__
        assert both.current in note
        assert "Keep all keys of the ring, and rotate again" in note
        assert count_keys(store).values.keys() == set(both.keys)
        assert everything(url, both) == before
        rotate(store)
    assert everything(url, both.only(set())) == before


def test_a_rotation_killed_before_the_seal_is_not_done(
    url: str, ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(url, ring)
    both = ring.rotated()
    with open_store(url, keys=both) as store:
        with monkeypatch.context() as killed:
            killed.setattr(SealedStore, "write_seal", killed_here)
            with pytest.raises(KeyboardInterrupt):
                rotate(store)
        assert count_keys(store).old_values == 1
        assert rotate(store).changed == 1
        assert count_keys(store).old_values == 0


def killed_here(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_only_a_sealed_store_that_lasts_has_keys_to_change(ring: KeyRing) -> None:
    with open_store("memory:") as plain, pytest.raises(InvalidConfiguration, match="not sealed"):
        rotate(plain)
    with open_store("memory:", keys=ring) as store, pytest.raises(InvalidUrl, match="process"):
        rotate(store)


@pytest.mark.parametrize("before", [True, False], ids=["old key", "current key"])
def test_what_was_altered_is_not_made_right(url: str, ring: KeyRing, before: bool) -> None:
    both = ring.rotated()
    session_id = fill(url, ring)
    with SessionManager.open(url, workspace=False, keys=both) as manager:
        late = manager.resume_session(session_id)
        late.save_checkpoint("three", state={"n": 3})
        late.save_checkpoint("four", state={"n": 4})
    alter(url, "one" if before else "three")
    with open_store(url, keys=both) as store:
        # All others are done, and the old key is still needed for the one that was altered.
        report = rotate(store)
        assert report.changed > 5
        assert (count_keys(store).old_values > 0) is before
        assert [one.code for one in report.damaged] == [CheckpointAltered.code] * before
    with SessionManager.open(url, workspace=False, keys=both) as manager:
        session = manager.get_session(session_id)
        [damage] = manager.verify().damaged
        assert damage.code == CheckpointAltered.code
        assert session.load_checkpoint("two").state["n"] == 2
        assert session.load_checkpoint("four").state["n"] == 4
        chain = manager.store.read_chain(session_id)
        assert chain is not None
        assert {where for where, _ in breaks(chain)} <= {damage.checkpoint_id}


def alter(url: str, name: str) -> None:
    """Change a checkpoint past Holdfast."""
    past_holdfast(
        url, f"UPDATE SCHEMA.session_checkpoints SET version = version + 1 WHERE name = '{name}'"
    )


def past_holdfast(url: str, statement: str) -> None:
    """Run a statement on the database itself, with the name of the schema where it says SCHEMA."""
    if url.startswith("postgresql"):
        plain, _, schema = url.partition("&schema=")
        with psycopg.connect(plain, autocommit=True) as server:
            server.execute(statement.replace("SCHEMA", f'"{schema}"').encode())
        return
    file = apsw.Connection(url)
    file.execute(statement.replace("SCHEMA.", ""))
    file.close()
