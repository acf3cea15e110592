"""What was not sealed here, for this place and with these keys, is refused, every time."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.crypto import KeyRing
from holdfast.errors import (
    IntegrityError,
    KeyRequired,
    PlaintextRefused,
    SealBroken,
    SealRemoved,
    StateCorrupt,
    StoreNotSealed,
    WrongKey,
)
from holdfast.ids import new_id
from holdfast.model import (
    CheckpointQuery,
    EffectOutcome,
    EffectQuery,
    NewEffect,
    Payload,
    SessionRecord,
)
from holdfast.state import StateEncoder
from holdfast.state.document import write_manifest
from holdfast.state.refs import digest_of
from holdfast.stores import open_store
from holdfast.stores.sealed import SealedStore
from holdfast.testing.drafts import agent, checkpoint, session, write
from tests.stores.postgres_drafts import connect

STATE = {"secret": "correct horse", "messages": [{"role": "user", "content": "x" * 900}] * 9}
MARKED = {"$sealed": "sealed:"}
FORGED = '{"sealed":"as if"}'


def saved(store: SealedStore, owner: SessionRecord, **changes: Any) -> str:
    """Save a real state and return the checkpoint's id."""
    encoded = StateEncoder().encode(STATE)
    draft = checkpoint(
        owner.id,
        manifest=encoded.manifest,
        refs=encoded.refs,
        chunks=encoded.chunks,
        size_bytes=encoded.size_bytes,
        **changes,
    )
    return store.put(draft).record.id


def stored(store: SealedStore, checkpoint_id: str) -> Payload:
    """Return a payload as the database has it."""
    payload = store.inner.read_payload(checkpoint_id)
    assert payload is not None
    return payload


@pytest.mark.row("T21")
def test_plain_text_in_a_sealed_store_is_refused_wherever_it_stands(sealed: SealedStore) -> None:
    owner = sealed.create_session(session())
    plain = sealed.inner
    # A session that was written past the key does not get in, and a forged mark does not help it.
    with pytest.raises(KeyRequired):
        plain.create_session(session())
    forged = plain.create_session(session(metadata=MARKED))
    with pytest.raises(PlaintextRefused):
        sealed.find_session(forged.id)
    with pytest.raises(PlaintextRefused):
        sealed.list_sessions()
    plain.delete_session(forged.id)

    encoded = StateEncoder().encode(STATE)
    content: dict[str, Any] = {
        "manifest": encoded.manifest,
        "refs": encoded.refs,
        "chunks": encoded.chunks,
    }
    if plain.shared:
        # PostgreSQL looks at what it is given, since a checkpointer may come without opening a store.
        with pytest.raises(KeyRequired):
            plain.put(checkpoint(owner.id, **content))
        content["manifest"] = FORGED
    put = plain.put(checkpoint(owner.id, **content)).record.id
    for read in (sealed.read_payload, sealed.load, lambda id_: sealed.read_payloads([id_])):
        with pytest.raises(PlaintextRefused):
            read(put)
    with pytest.raises(PlaintextRefused):
        sealed.load_all([put])
    # Under the name that it would have here.
    plain.stage_chunks({sealed.rows.name(digest_of(b"plain")): b"plain"})
    with pytest.raises(PlaintextRefused):
        sealed.read_chunks([digest_of(b"plain")])
    for changes in ({"description": "plain"}, {"metadata": {"a": 1}}, {"metadata": {"a": "b"}}):
        record = plain.put(checkpoint(owner.id, manifest=FORGED, **changes)).record
        with pytest.raises(PlaintextRefused):
            sealed.list_checkpoints(CheckpointQuery(id=record.id))
    plain.put_writes(session(id=owner.id), "", "e", [write()])
    with pytest.raises(PlaintextRefused):
        sealed.list_writes(owner.id, "", ["e"])
    done = EffectOutcome("done", encoded.manifest, encoded.refs, encoded.chunks)
    plain.begin_effect(NewEffect(owner.id, "key", 0, "name", b"", new_id(), done))
    with pytest.raises(PlaintextRefused):
        sealed.list_effects(EffectQuery(owner.id))
    plain.append_log(owner.id, "info", "plain")
    with pytest.raises(PlaintextRefused):
        sealed.list_logs(owner.id)
    plain.put_pack("a" * 40, needs=[], data=b"PACK")
    with pytest.raises(PlaintextRefused):
        list(sealed.read_packs("a" * 40))
    worker = plain.create_agent(agent(metadata={"note": "plain"}))
    with pytest.raises(PlaintextRefused):
        sealed.find_agent(worker.id)
    with pytest.raises(PlaintextRefused):
        sealed.list_agents()
    plain.update_session(owner.id, task_description="plain")
    with pytest.raises(PlaintextRefused):
        sealed.find_session(owner.id)


@pytest.mark.row("T21")
@pytest.mark.parametrize("tag", ["pickle", "msgpack", "holdfast.model:Payload"])
def test_sealed_content_constructs_no_objects(sealed: SealedStore, tag: str) -> None:
    # Whoever has the key may still be hostile: a tag names a kind of value and never a class.
    owner = sealed.create_session(session())
    payload = write_manifest(
        b'{"a":{"$t":"%s","v":["os.system","true"]}}' % tag.encode(), b"", [], []
    )
    draft = checkpoint(owner.id, manifest=payload.manifest, refs=payload.refs)
    id_ = sealed.put(draft).record.id
    with pytest.raises(StateCorrupt, match="unknown tag"):
        sealed.load(id_)


def test_a_state_opens_in_its_own_checkpoint_only(sealed: SealedStore) -> None:
    owner, other = sealed.create_session(session()), sealed.create_session(session())
    here = stored(sealed, saved(sealed, owner))
    content: dict[str, Any] = {"manifest": here.manifest, "refs": here.refs}
    for place in (owner, other):
        moved = sealed.inner.put(checkpoint(place.id, **content)).record.id
        with pytest.raises(SealBroken):
            sealed.load(moved)
    # The same id in another session: the row itself was moved.
    id_ = saved(sealed, owner)
    taken = stored(sealed, id_)
    sealed.inner.delete_checkpoints([id_])
    draft = checkpoint(other.id, id=id_, manifest=taken.manifest, refs=taken.refs)
    sealed.inner.put(draft)
    with pytest.raises(SealBroken):
        sealed.load(id_)
    with pytest.raises(SealBroken):
        sealed.load_all([id_])


def test_another_tenant_does_not_open_it(url: str, ring: KeyRing) -> None:
    with (
        open_store(url, keys=ring) as ours,
        open_store(url, tenant="theirs", keys=ring) as theirs,
    ):
        assert isinstance(ours, SealedStore)
        assert isinstance(theirs, SealedStore)
        id_ = saved(ours, ours.create_session(session(id="same")))
        theirs.create_session(session(id="same"))
        row = stored(ours, id_)
        chunks = ours.inner.read_chunks([row.refs[:33]])
        ours.inner.delete_session("same")
        theirs.inner.put(
            checkpoint("same", id=id_, manifest=row.manifest, refs=row.refs, chunks=chunks)
        )
        with pytest.raises(SealBroken):
            theirs.load(id_)
        # Equal content has another name there: nobody can tell that both have it.
        assert theirs.rows.name(digest_of(b"x")) != ours.rows.name(digest_of(b"x"))


def test_a_field_opens_in_its_own_column_only(sealed: SealedStore) -> None:
    owner = sealed.create_session(session(task_description="task", metadata={"a": 1, "b": 2}))
    raw = sealed.inner.find_session(owner.id)
    assert raw is not None
    assert raw.metadata is not None
    a, b = raw.metadata["a"], raw.metadata["b"]
    for changes in (
        {"merge_metadata": {"a": b}},
        {"merge_metadata": {"c": a}},
        {"merge_metadata": {"a": raw.task_description}},
        {"task_description": a},
    ):
        sealed.inner.update_session(owner.id, **changes)
        with pytest.raises(SealBroken):
            sealed.find_session(owner.id)
        metadata = dict(raw.metadata)
        sealed.inner.update_session(
            owner.id, metadata=metadata, task_description=raw.task_description
        )
        assert sealed.find_session(owner.id) is not None
    line = sealed.append_log(owner.id, "info", "one", {"k": 1})
    sealed.append_log(owner.id, "error", "two", {"k": 2})
    first, second = sealed.inner.list_logs(owner.id)
    for message, data in ((first.message, second.data), (second.message, first.data)):
        sealed.inner.append_log(owner.id, "info", message, data)
        with pytest.raises(SealBroken):
            sealed.list_logs(owner.id, newest=True, limit=1)
    assert sealed.list_logs(owner.id, limit=1) == [line]


def test_a_chunk_opens_under_its_own_name_only(sealed: SealedStore) -> None:
    contents = [b"first " * 300, b"second " * 300]
    owner = sealed.create_session(session())
    sealed.put(checkpoint(owner.id, contents=contents[:1]))
    one, two = (sealed.rows.name(digest_of(data)) for data in contents)
    sealed.inner.stage_chunks({two: sealed.inner.read_chunks([one])[one]})
    with pytest.raises(SealBroken):
        sealed.read_chunks([digest_of(contents[1])])


def test_every_flipped_bit_and_every_cut_is_found(sealed: SealedStore) -> None:
    owner = sealed.create_session(session())
    whole = sealed.rows.seal(b"a secret", "state", owner.id)
    assert sealed.rows.open(whole, "state", owner.id) == b"a secret"
    for at in range(len(whole)):
        for bit in range(8):
            changed = whole[:at] + bytes((whole[at] ^ 1 << bit,)) + whole[at + 1 :]
            with pytest.raises(IntegrityError):
                sealed.rows.open(changed, "state", owner.id)
        with pytest.raises(IntegrityError):
            sealed.rows.open(whole[:at], "state", owner.id)
    with pytest.raises(IntegrityError):
        sealed.rows.open(whole + b"\0", "state", owner.id)
    # The same through the store: the manifest with one digit changed, and cut in half.
    id_ = saved(sealed, owner)
    row = stored(sealed, id_)
    middle = len(row.manifest) // 2
    digit = "A" if row.manifest[middle] != "A" else "B"
    for manifest in (
        row.manifest[:middle] + digit + row.manifest[middle + 1 :],
        row.manifest[:middle] + '"}',
    ):
        # In its own place, so that only the damage is to be found.
        sealed.inner.delete_checkpoints([id_])
        sealed.inner.put(checkpoint(owner.id, id=id_, manifest=manifest, refs=row.refs))
        with pytest.raises(SealBroken):
            sealed.load(id_)
    sealed.inner.delete_checkpoints([id_])
    sealed.inner.put(checkpoint(owner.id, id=id_, manifest=row.manifest, refs=row.refs))
    assert sealed.load(id_) is not None


def test_what_is_sealed_twice_has_nothing_in_common(sealed: SealedStore) -> None:
    """A nonce that came again, or came from the content, would tell what is equal, and then more."""
    owner = sealed.create_session(session())
    begin = 2 + len(sealed.keys.ring.current)
    twice = [sealed.rows.seal(b"a secret", "state", owner.id) for _ in range(2000)]
    assert len({whole[begin : begin + 12] for whole in twice}) == len(twice)


def test_references_of_another_state_are_refused(sealed: SealedStore) -> None:
    owner = sealed.create_session(session())
    id_ = saved(sealed, owner)
    row = stored(sealed, id_)
    sealed.inner.delete_checkpoints([id_])
    turned = row.refs[40:] + row.refs[:40] if len(row.refs) > 40 else row.refs[:-1] + b"\1"
    sealed.inner.put(checkpoint(owner.id, id=id_, manifest=row.manifest, refs=turned))
    with pytest.raises(IntegrityError):
        sealed.load(id_)


def test_a_sealed_store_is_not_opened_without_its_key(url: str, ring: KeyRing) -> None:
    with open_store(url, keys=ring) as store:
        owner = store.create_session(session(task_description="secret"))
    with pytest.raises(KeyRequired, match="HOLDFAST_KEY"):
        open_store(url)
    others = KeyRing.new()
    same_id = KeyRing({ring.current: others.keys[others.current]}, ring.names)
    other_names = KeyRing(ring.keys, others.names)
    for wrong in (others, same_id, other_names):
        with pytest.raises(WrongKey):
            open_store(url, keys=wrong)
    with open_store(url, keys=ring) as store:
        assert store.find_session(owner.id) == owner
    # Another tenant is another store.
    with open_store(url, tenant="open", keys=False) as store:
        store.create_session(session())


def past_the_key(url: str, statement: str) -> Any:
    """Run a statement on the database itself; return the value that it finds."""
    with connect(url) if url.startswith("postgresql:") else apsw.Connection(url) as connection:
        found = connection.execute(statement)
        return found.fetchone() if statement.startswith("SELECT") else None


@pytest.mark.parametrize("plain", [None, "a", "z"])
def test_a_sealed_store_whose_seal_was_removed_is_not_opened(
    url: str, ring: KeyRing, plain: str | None
) -> None:
    with open_store(url) as opened_before:
        with open_store(url, keys=ring) as store:
            assert isinstance(store, SealedStore)
            owner = store.create_session(session(id="m"))
            saved(store, owner)
        [seal] = past_the_key(url, "SELECT seal FROM sealing")
        past_the_key(url, "DELETE FROM sealing")
        if plain is not None:
            opened_before.put(checkpoint(opened_before.create_session(session(id=plain)).id))
    for changes in ({"keys": False}, {"keys": ring}, {"keys": ring, "as_it_is": True}):
        with pytest.raises(SealRemoved, match="put that row back from a copy"):
            open_store(url, **changes)
    past_the_key(url, f"INSERT INTO sealing (tenant, seal) VALUES ('default', '{seal}')")
    with open_store(url, keys=ring) as store:
        assert store.find_session("m") is not None


def test_a_seal_is_read_whatever_is_missing_beside_it(url: str, ring: KeyRing) -> None:
    open_store(url, keys=ring).close()
    cascade = " CASCADE" if url.startswith("postgresql:") else ""
    past_the_key(url, f"DROP TABLE session_checkpoints{cascade}")
    with pytest.raises(KeyRequired):
        open_store(url, create=False)
    open_store(url, keys=ring, create=False).close()


def test_a_key_does_not_seal_plain_text_afterwards(url: str, ring: KeyRing) -> None:
    with open_store(url) as plain:
        owner = plain.create_session(session(task_description="plain"))
        with pytest.raises(StoreNotSealed, match="holdfast copy"):
            open_store(url, keys=ring)
        assert plain.find_session(owner.id) == owner
    with open_store(url, keys=ring, as_it_is=True) as again:
        assert not isinstance(again, SealedStore)


def test_in_a_plain_store_the_mark_of_a_sealed_session_is_a_key_like_others(url: str) -> None:
    with open_store(url) as plain:
        owner = plain.create_session(session(metadata={"$sealed": "sealed: by hand"}))
        assert plain.put(checkpoint(owner.id)).created
        assert [one.metadata for one in plain.list_sessions()] == [owner.metadata]


def test_whoever_opened_it_before_it_was_sealed_adds_no_plain_text(url: str, ring: KeyRing) -> None:
    with open_store(url) as early, open_store(url, keys=ring) as store:
        with pytest.raises(KeyRequired):
            early.create_session(session())
        new = session()
        with pytest.raises(KeyRequired):
            early.put(checkpoint(new.id, session=new))
        assert store.list_sessions() == []
        assert store.list_agents() == []


def test_a_plain_reader_is_told_that_a_state_is_sealed(sealed: SealedStore) -> None:
    id_ = saved(sealed, sealed.create_session(session()))
    with pytest.raises(KeyRequired, match="sealed"):
        sealed.inner.load(id_)


def test_a_sweep_needs_no_key(sealed: SealedStore) -> None:
    owner = sealed.create_session(session())
    kept, gone = saved(sealed, owner), saved(sealed, owner)
    contents = [f"{n} " * 900 for n in range(200)]
    encoded = StateEncoder().encode({"list": contents})
    assert any(ref >= 0x10 for ref in encoded.refs[33::40]), "it is to have index chunks"
    large = checkpoint(
        owner.id, manifest=encoded.manifest, refs=encoded.refs, chunks=encoded.chunks
    )
    sealed.put(large)
    sealed.inner.delete_checkpoints([gone])
    assert sealed.inner.gc().chunks == 0, "the other one needs them all"
    found = sealed.load(large.id)
    assert found is not None
    assert found[1].state == {"list": contents}
    sealed.inner.delete_checkpoints([large.id])
    assert sealed.inner.gc().chunks == len(encoded.chunks)
    assert sealed.load(kept) is not None


def test_the_file_shows_nothing_of_what_was_saved(tmp_path: Path, ring: KeyRing) -> None:
    path = tmp_path / "sealed.db"
    canary = "canary-5150"
    long = f"{canary} and more of it. " * 400
    with open_store(path, keys=ring) as store:
        worker = store.create_agent(agent(metadata={"note": canary}))
        store.update_agent(worker.id, metadata={"again": canary})
        draft = session(task_description=canary, metadata={"note": canary})
        owner = store.create_session(draft)
        encoded = StateEncoder().encode({"small": canary, "long": long, "list": [long] * 40})
        id_ = store.put(
            checkpoint(
                owner.id,
                description=canary,
                metadata={"why": canary},
                manifest=encoded.manifest,
                refs=encoded.refs,
                chunks=encoded.chunks,
            )
        ).record.id
        store.append_log(owner.id, "info", canary, {"data": canary})
        store.update_session(owner.id, status="paused", pause_reason=canary)
        small = StateEncoder().encode({"value": canary})
        pending = write(manifest=small.manifest, contents=[long.encode()])
        store.put_writes(session(id=owner.id), "", "e", [pending])
        done = EffectOutcome("done", small.manifest, small.refs, small.chunks)
        store.begin_effect(NewEffect(owner.id, "pay", 0, "pay", b"", new_id(), done))
        outcome = EffectOutcome("failed", error={"message": canary})
        digest = digest_of(canary.encode())
        key = f"charge#{digest[1:].hex()[:32]}"
        attempt = new_id()
        store.begin_effect(NewEffect(owner.id, key, 0, "charge", digest, attempt, outcome))
        store.put_pack("a" * 40, needs=[], data=b"PACK" + canary.encode())
        found = store.load(id_)
        assert found is not None
        assert found[1].state["list"] == [long] * 40
        assert [one.key for one in store.list_effects(EffectQuery(owner.id, key=key))] == [key]
        assert store.gc().chunks == 0
    written = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert canary.encode() not in written
    digests = [*encoded.chunks, digest_of(long.encode()), digest]
    assert not [one for one in digests if one[1:] in written]
    assert digest[1:].hex()[:32].encode() not in written
