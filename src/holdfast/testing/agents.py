"""The contract of agents: a tree of who works, each with a status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import AgentExists, AgentNotFound, InputError, InvalidFilter
from holdfast.ids import new_id
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, agent


class AgentContract(Contract):
    """Who works, and below whom."""

    def test_an_agent_comes_back_as_it_was_created(self, store: Store) -> None:
        draft = agent(name="planner", agent_type="planner", metadata={"team": ["a", {"b": 1.5}]})
        created = store.create_agent(draft)
        assert store.find_agent(draft.id) == created
        assert (created.name, created.agent_type, created.status) == ("planner", "planner", "idle")
        assert created.metadata == {"team": ["a", {"b": 1.5}]}
        assert created.depth_level == 0
        assert created.completed_at is None
        assert created.created_at.tzinfo is not None
        assert abs(created.created_at - datetime.now(UTC)) < timedelta(seconds=60)

    def test_an_unknown_agent_is_none(self, store: Store) -> None:
        assert store.find_agent(new_id()) is None

    def test_a_taken_agent_id_is_refused(self, store: Store) -> None:
        draft = agent()
        store.create_agent(draft)
        with pytest.raises(AgentExists):
            store.create_agent(agent(id=draft.id, name="another"))
        found = store.find_agent(draft.id)
        assert found is not None
        assert found.name == draft.name

    def test_a_child_is_one_deeper_than_its_parent(self, store: Store) -> None:
        root = store.create_agent(agent())
        child = store.create_agent(agent(parent_id=root.id))
        grandchild = store.create_agent(agent(parent_id=child.id))
        assert [one.depth_level for one in (root, child, grandchild)] == [0, 1, 2]
        assert [one.id for one in store.list_agents(parent_id=root.id)] == [child.id]

    def test_an_unknown_parent_is_refused(self, store: Store) -> None:
        draft = agent(parent_id=new_id())
        with pytest.raises(AgentNotFound):
            store.create_agent(draft)
        assert store.find_agent(draft.id) is None

    def test_agents_are_listed_newest_first_and_by_status(self, store: Store) -> None:
        first, second, third = (
            store.create_agent(agent(status=status)) for status in ("idle", "running", "idle")
        )
        assert [one.id for one in store.list_agents()] == [third.id, second.id, first.id]
        assert [one.id for one in store.list_agents(status="idle")] == [third.id, first.id]
        assert [one.id for one in store.list_agents(limit=1)] == [third.id]
        assert store.list_agents(limit=0) == []
        with pytest.raises(InvalidFilter, match="status must be one of"):
            store.list_agents(status="asleep")
        with pytest.raises(InvalidFilter):
            store.list_agents(limit=-1)

    def test_an_agents_final_status_sets_completed_at_and_leaving_it_clears_it(
        self, store: Store
    ) -> None:
        created = store.create_agent(agent(metadata={"kept": True}))
        for final in ("completed", "failed", "terminated"):
            done = store.update_agent(created.id, status=final)
            assert (done.status, done.metadata) == (final, {"kept": True})
            assert done.completed_at is not None
            assert done.updated_at > created.updated_at
            again = store.update_agent(created.id, status="running")
            assert again.completed_at is None
            assert store.find_agent(created.id) == again

    def test_an_agents_metadata_can_change_alone(self, store: Store) -> None:
        created = store.create_agent(agent(status="running"))
        changed = store.update_agent(created.id, metadata={"k": None})
        assert (changed.status, changed.metadata) == ("running", {"k": None})

    def test_an_unknown_agent_cannot_be_updated(self, store: Store) -> None:
        with pytest.raises(AgentNotFound):
            store.update_agent(new_id(), status="running")

    def test_an_unknown_agent_status_is_refused(self, store: Store) -> None:
        created = store.create_agent(agent())
        with pytest.raises(InputError):
            store.update_agent(created.id, status="asleep")
        with pytest.raises(InputError):
            store.create_agent(agent(status="asleep"))
        assert store.list_agents() == [created]
