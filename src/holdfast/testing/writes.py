"""The contract of pending writes."""

from __future__ import annotations

import pytest

from holdfast.errors import AgentNotFound, ChunksMissing, InputError, InvalidFilter
from holdfast.ids import new_id
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, checkpoint, session, write


class WriteContract(Contract):
    """Pending writes of tasks."""

    def test_writes_come_before_their_checkpoint_and_their_session(self, store: Store) -> None:
        owner = session()
        store.put_writes(owner, "", "e", [write("task", 0, contents=[b"value" * 30])])
        assert store.find_session(owner.id) is not None
        (found,) = store.list_writes(owner.id, "", ["e"])
        assert (found.external_id, found.task_id, found.index) == ("e", "task", 0)
        assert (found.channel, found.task_path) == ("messages", "")
        digest = digest_of(b"value" * 30)
        assert store.read_chunks([digest]) == {digest: b"value" * 30}

    def test_writes_are_ordered_by_path_task_and_index(self, store: Store) -> None:
        owner = session()
        drafts = [
            write("b", 1),
            write("b", 0),
            write("b", -1),
            write("b", 10),
            write("a", 0, task_path="~later"),
            write("Z", 0),
            write("é", 0),
        ]
        store.put_writes(owner, "", "e", drafts)
        found = [(one.task_id, one.index) for one in store.list_writes(owner.id, "", ["e"])]
        assert found == [("Z", 0), ("b", -1), ("b", 0), ("b", 1), ("b", 10), ("é", 0), ("a", 0)]

    def test_writing_again_is_ignored_or_replaces(self, store: Store) -> None:
        owner = session()
        store.put_writes(owner, "", "e", [write(manifest='{"n":1}')])
        store.put_writes(owner, "", "e", [write(manifest='{"n":2}')])
        (found,) = store.list_writes(owner.id, "", ["e"])
        assert found.payload.manifest == '{"n":1}'
        changed = write(manifest='{"n":3}', channel="other", task_path="path", replace=True)
        store.put_writes(owner, "", "e", [changed])
        (found,) = store.list_writes(owner.id, "", ["e"])
        assert (found.payload.manifest, found.channel) == ('{"n":3}', "other")
        assert found.task_path == "path"

    def test_writes_are_found_by_session_namespace_and_checkpoint(self, store: Store) -> None:
        owner, other = session(), session()
        store.put_writes(owner, "", "e1", [write("a")])
        store.put_writes(owner, "", "e2", [write("b")])
        store.put_writes(owner, "sub", "e1", [write("c")])
        store.put_writes(other, "", "e1", [write("d")])
        assert [one.task_id for one in store.list_writes(owner.id, "", ["e1"])] == ["a"]
        both = store.list_writes(owner.id, "", ["e1", "e2", "e3"])
        assert [(one.task_id, one.external_id) for one in both] == [("a", "e1"), ("b", "e2")]
        assert [one.task_id for one in store.list_writes(owner.id, "sub", ["e1"])] == ["c"]
        assert store.list_writes(owner.id, "", []) == []
        assert store.list_writes("nobody", "", ["e1"]) == []
        places = [(owner.id, "", "e1"), (owner.id, "sub", "e1"), (other.id, "", "e1")]
        absent = [(owner.id, "sub", "e2"), (other.id, "sub", "e1"), ("nobody", "", "e1")]
        found = store.read_writes([*places, *absent, places[0]])
        assert {place: [one.task_id for one in at] for place, at in found.items()} == dict(
            zip(places, (["a"], ["c"], ["d"]), strict=True)
        )
        assert store.read_writes([]) == {}
        with pytest.raises(InvalidFilter):
            store.read_writes([(owner.id, "", 7)])  # type: ignore[list-item]

    def test_writes_that_rely_on_missing_chunks_leave_nothing(self, store: Store) -> None:
        owner = session()
        good = write("good", contents=[b"sent"])
        bad = write("bad", expects=[digest_of(b"absent")])
        with pytest.raises(ChunksMissing):
            store.put_writes(owner, "", "e", [good, bad])
        assert store.find_session(owner.id) is None
        assert store.list_writes(owner.id, "", ["e"]) == []
        assert store.read_chunks([digest_of(b"sent")]) == {}

    def test_writes_may_rely_on_chunks_that_are_stored_or_sent(self, store: Store) -> None:
        owner = session()
        store.put(checkpoint(owner.id, session=owner, contents=[b"stored"]))
        expects = [digest_of(b"stored"), digest_of(b"sent")]
        store.put_writes(owner, "", "e", [write(contents=[b"sent"], expects=expects)])
        assert len(store.list_writes(owner.id, "", ["e"])) == 1

    def test_writes_of_an_unknown_agent_are_refused(self, store: Store) -> None:
        owner = session(agent_id=new_id())
        with pytest.raises(AgentNotFound):
            store.put_writes(owner, "", "e", [write()])
        assert store.find_session(owner.id) is None

    def test_an_impossible_write_is_refused(self, store: Store) -> None:
        owner = session()
        with pytest.raises(InputError):
            store.put_writes(owner, "", "", [write()])
        with pytest.raises(InputError):
            store.put_writes(owner, "", "e", [write(task_id="nul\0")])
        assert store.find_session(owner.id) is None

    def test_replacing_a_checkpoint_keeps_its_writes(self, store: Store) -> None:
        owner = session()
        store.put(checkpoint(owner.id, "a", session=owner, external_id="e"))
        store.put_writes(owner, "", "e", [write()])
        store.put(checkpoint(owner.id, "a", external_id="e", replace=True))
        assert len(store.list_writes(owner.id, "", ["e"])) == 1
