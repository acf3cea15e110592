"""The contract of tenants: two of them share a database and nothing in it."""

from __future__ import annotations

import pytest

from holdfast.errors import CheckpointNotFound, ChunksMissing, SessionNotFound
from holdfast.model import CheckpointQuery
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, agent, checkpoint, refs_to, session, write


class TenantContract(Contract):
    """Two tenants side by side."""

    def test_tenants_do_not_see_each_other(self, store: Store, neighbour: Store) -> None:
        owner = session(id="same id", metadata={"k": 1})
        draft = checkpoint(owner.id, session=owner, external_id="e", contents=[b"secret" * 20])
        record = store.put(draft).record
        store.append_log(owner.id, "info", "hello")
        assert neighbour.find_session(owner.id) is None
        assert neighbour.find_agent(owner.agent_id) is None
        assert neighbour.list_sessions() == []
        assert neighbour.list_agents() == []
        assert neighbour.list_checkpoints(CheckpointQuery()) == []
        assert neighbour.list_checkpoints(CheckpointQuery(id=record.id)) == []
        assert neighbour.latest_of_agent(owner.agent_id) is None
        assert neighbour.read_payload(record.id) is None
        assert neighbour.read_chunks(list(draft.chunks)) == {}
        assert neighbour.list_logs(owner.id) == []
        assert neighbour.session_usage() == []
        assert list(neighbour.iter_checkpoint_ids()) == []
        assert neighbour.total_bytes() == 0
        assert neighbour.delete_checkpoints([record.id]) == 0
        assert neighbour.delete_session(owner.id) is False
        with pytest.raises(CheckpointNotFound):
            neighbour.mark_restored(record.id)
        with pytest.raises(SessionNotFound):
            neighbour.put(checkpoint(owner.id))
        assert store.list_checkpoints(CheckpointQuery()) == [record]

    def test_tenants_do_not_share_chunks(self, store: Store, neighbour: Store) -> None:
        mine, theirs = session(), session()
        content = b"the same content" * 10
        store.put(checkpoint(mine.id, session=mine, contents=[content]))
        with pytest.raises(ChunksMissing):
            neighbour.put(
                checkpoint(
                    theirs.id,
                    session=theirs,
                    refs=refs_to(content),
                    expects=[digest_of(content)],
                )
            )
        neighbour.put(checkpoint(theirs.id, session=theirs, contents=[content]))
        neighbour.gc()
        assert store.delete_session(mine.id)
        assert store.total_bytes() == 0
        assert neighbour.read_chunks([digest_of(content)]) == {digest_of(content): content}

    def test_a_tenant_is_erased_whole_and_its_neighbour_keeps_everything(
        self, store: Store, neighbour: Store
    ) -> None:
        content = b"the same content" * 10
        for one in (store, neighbour):
            boss = one.create_agent(agent())
            worker = one.create_agent(agent(parent_id=boss.id))
            owner = session(id="same id", agent_id=worker.id)
            one.create_session(owner)
            one.create_session(session())
            one.put_pack("a" * 40, needs=[], data=b"pack")
            one.put(checkpoint(owner.id, contents=[content], workspace_commit="a" * 40))
            one.put_writes(owner, "", "e", [write(contents=[b"written"])])
            one.append_log(owner.id, "info", "hello")
            one.create_agent(agent(parent_id=worker.id))
        kept = neighbour.read_session("same id")
        assert store.erase_tenant() == 2
        assert store.list_sessions() == []
        assert store.list_agents() == []
        assert store.list_checkpoints(CheckpointQuery()) == []
        assert store.pack_usage().packs == 0
        assert store.total_bytes() == 0
        assert store.leftovers() == []
        assert store.erase_tenant() == 0
        assert neighbour.read_session("same id") == kept
        assert neighbour.read_chunks([digest_of(content)]) == {digest_of(content): content}
        assert neighbour.pack_usage().packs == 1
        assert len(neighbour.list_agents()) == 4
        store.put(checkpoint("same id", session=session(id="same id")))

    def test_a_neighbours_ids_stand_in_the_way_without_being_shown(
        self, store: Store, neighbour: Store
    ) -> None:
        same = session(id="same id")
        store.create_session(same)
        theirs = session(id="same id", task_description="theirs")
        neighbour.create_session(theirs)
        found = neighbour.find_session("same id")
        assert found is not None
        assert found.task_description == "theirs"
