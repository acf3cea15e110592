"""The contract of checkpoints: puts, order, listings, chunks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.errors import (
    AgentNotFound,
    AlreadyResumed,
    CheckpointExists,
    CheckpointNotFound,
    ChunksMissing,
    InputError,
    InvalidFilter,
    SessionNotFound,
)
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, CheckpointRecord, NewCheckpoint, Trim
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store, first
from holdfast.testing.drafts import Contract, agent, checkpoint, names, refs_to, session, stored

NOT_IN_THE_RECORD = {
    "manifest",
    "refs",
    "chunks",
    "expects",
    "pack_required",
    "fence",
    "replace",
    "consumes",
    "follows",
    "trim",
    "session",
}


def moment(text: str) -> datetime:
    """Return a moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class CheckpointContract(Contract):
    """Putting, listing and reading checkpoints."""

    def test_a_checkpoint_comes_back_as_it_was_put(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(
            owner.id,
            "before refactor",
            contents=[b"one" * 100, b"two"],
            checkpoint_type="failure",
            retention_class="failure",
            namespace="sub",
            external_id="1ef-external",
            parent_id=new_id(),
            label="checkpoint-20260102-030405",
            description="a description\nof two lines",
            run_id="run 1",
            version=7,
            git_branch="feature/ü",
            git_commit="a" * 40,
            git_uncommitted=True,
            workspace_commit="b" * 40,
            resumable=False,
            pinned=True,
            expires_at=moment("2099-01-01T00:00:00.000001"),
            metadata={"nested": {"list": [1, 2.5, None, True, "ü"]}, "big": 2**70},
            created_at=moment("2025-12-31T23:59:59.999999"),
        )
        result = store.put(draft)
        assert result.created is True
        assert result.removed == ()
        for field in fields(NewCheckpoint):
            if field.name not in NOT_IN_THE_RECORD:
                assert getattr(result.record, field.name) == getattr(draft, field.name), field.name
        assert result.record.agent_id == owner.agent_id
        assert result.record.restored_at is None
        assert store.list_checkpoints(CheckpointQuery(id=draft.id)) == [result.record]
        payload = store.read_payload(draft.id)
        assert payload is not None
        assert (payload.manifest, payload.refs) == (draft.manifest, draft.refs)
        assert store.read_chunks(list(draft.chunks)) == dict(draft.chunks)

    def test_a_manifest_comes_back_byte_for_byte(self, store: Store) -> None:
        owner = store.create_session(session())
        text = (
            '{ "z":1,\n "a": [1e16, -0.0, 1.10, 123456789012345678901234567890], "é\\u0041": "🦀"}'
        )
        draft = checkpoint(owner.id, manifest=text)
        store.put(draft)
        payload = store.read_payload(draft.id)
        assert payload is not None
        assert payload.manifest == text

    def test_unset_fields_have_their_defaults(self, store: Store) -> None:
        owner = store.create_session(session())
        record = store.put(checkpoint(owner.id, "plain")).record
        assert (record.checkpoint_type, record.retention_class) == ("manual", "manual")
        assert (record.namespace, record.version) == ("", 1)
        assert (record.resumable, record.pinned, record.git_uncommitted) == (True, False, False)
        assert abs(record.created_at - datetime.now(UTC)) < timedelta(seconds=60)
        assert first(store.list_checkpoints(CheckpointQuery(session_id=owner.id))) == record

    def test_times_keep_microseconds_and_become_utc(self, store: Store) -> None:
        owner = store.create_session(session())
        east = timezone(timedelta(hours=5, minutes=30))
        local = datetime(2026, 3, 4, 1, 2, 3, 4, tzinfo=east)
        store.put(checkpoint(owner.id, created_at=local))
        (record,) = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert record.created_at == local
        assert record.created_at.utcoffset() == timedelta(0)

    # Order

    def test_order_is_by_seq_and_not_by_clock_or_id(self, store: Store) -> None:
        owner = store.create_session(session())
        ids = sorted((new_id() for _ in range(4)), reverse=True)
        moments = [moment(f"202{5 - number}-01-01T00:00:00") for number in range(4)]
        for number, (id_, created_at) in enumerate(zip(ids, moments, strict=True)):
            store.put(checkpoint(owner.id, f"n{number}", id=id_, created_at=created_at))
        records = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert names(records) == ["n3", "n2", "n1", "n0"]
        sequence = [record.seq for record in records]
        assert sequence == sorted(set(sequence), reverse=True)

    def test_seq_is_shared_by_all_sessions(self, store: Store) -> None:
        owners = [store.create_session(session()) for _ in range(2)]
        records = [store.put(checkpoint(owners[n % 2].id)).record for n in range(6)]
        assert store.list_checkpoints(CheckpointQuery()) == records[::-1]
        assert list(store.iter_checkpoint_ids()) == [record.id for record in records]

    def test_a_seq_is_never_used_again(self, store: Store) -> None:
        owner = store.create_session(session())
        gone = store.put(checkpoint(owner.id)).record
        store.delete_checkpoints([gone.id])
        assert store.put(checkpoint(owner.id)).record.seq > gone.seq

    def test_the_latest_of_an_agent_is_by_time_then_by_id(self, store: Store) -> None:
        worker = agent()
        one = store.create_session(session(agent_id=worker.id, agent=worker))
        other = store.create_session(session(agent_id=worker.id))
        same = moment("2026-01-01T00:00:00")
        low, high = new_id(), new_id()
        store.put(checkpoint(one.id, id=high, created_at=same))
        store.put(checkpoint(other.id, id=low, created_at=same))
        store.put(checkpoint(one.id, created_at=same - timedelta(days=1)))
        found = store.latest_of_agent(worker.id)
        assert found is not None
        assert found.id == high
        assert store.latest_of_agent(new_id()) is None

    # Idempotence and replacement

    def test_putting_an_id_again_changes_nothing(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id, "same", contents=[b"content"], metadata={"try": 1})
        once = store.put(draft)
        again = store.put(replace(draft, description="a retry", metadata={"try": 2}))
        assert (again.created, again.removed) == (False, ())
        assert again.record == once.record
        assert store.list_checkpoints(CheckpointQuery(session_id=owner.id)) == [once.record]

    def test_a_retry_creates_no_second_session(self, store: Store) -> None:
        owner = session()
        draft = checkpoint(owner.id, session=owner)
        store.put(draft)
        assert store.put(draft).created is False
        assert len(store.list_sessions()) == 1

    def test_an_id_of_another_session_is_refused(self, store: Store) -> None:
        owners = [store.create_session(session()) for _ in range(2)]
        draft = checkpoint(owners[0].id)
        store.put(draft)
        with pytest.raises(CheckpointExists):
            store.put(replace(draft, session_id=owners[1].id))
        assert stored(store, owners[1].id) == []

    def test_a_taken_name_is_refused_and_nothing_is_left_behind(self, store: Store) -> None:
        owner = store.create_session(session())
        old = store.put(checkpoint(owner.id, "taken", contents=[b"old"])).record
        new = checkpoint(owner.id, "taken", contents=[b"new content"])
        with pytest.raises(CheckpointExists, match="overwrite=True"):
            store.put(new)
        assert store.list_checkpoints(CheckpointQuery(session_id=owner.id)) == [old]
        assert store.read_payload(new.id) is None
        assert store.read_chunks(list(new.chunks)) == {}

    def test_a_name_is_free_in_another_session_and_namespace(self, store: Store) -> None:
        owner, other = (store.create_session(session()) for _ in range(2))
        for session_id, namespace in ((owner.id, ""), (owner.id, "sub"), (other.id, "")):
            store.put(checkpoint(session_id, "same", namespace=namespace, external_id="same"))
        assert stored(store, owner.id) == ["same", "same"]

    def test_replacing_a_name_makes_the_new_one_the_latest(self, store: Store) -> None:
        owner = store.create_session(session())
        old = store.put(checkpoint(owner.id, "draft")).record
        store.put(checkpoint(owner.id, "between"))
        new = store.put(checkpoint(owner.id, "draft", replace=True))
        assert new.removed == (old.id,)
        assert new.record.seq > old.seq
        assert stored(store, owner.id) == ["draft", "between"]
        assert store.read_payload(old.id) is None

    def test_replacing_an_external_id_hands_its_seq_on(self, store: Store) -> None:
        owner = store.create_session(session())
        old = store.put(checkpoint(owner.id, "a", external_id="e")).record
        store.put(checkpoint(owner.id, "b", external_id="f"))
        new = store.put(checkpoint(owner.id, "c", external_id="e", replace=True))
        assert new.removed == (old.id,)
        assert (new.record.seq, new.record.id) == (old.seq, new.record.id)
        assert stored(store, owner.id) == ["b", "c"]

    def test_a_taken_external_id_is_refused(self, store: Store) -> None:
        owner = store.create_session(session())
        store.put(checkpoint(owner.id, "a", external_id="e"))
        with pytest.raises(CheckpointExists):
            store.put(checkpoint(owner.id, "b", external_id="e"))
        assert stored(store, owner.id) == ["a"]

    def test_one_draft_may_replace_two_checkpoints(self, store: Store) -> None:
        owner = store.create_session(session())
        named = store.put(checkpoint(owner.id, "name", external_id="e1")).record
        external = store.put(checkpoint(owner.id, "other", external_id="e2")).record
        new = store.put(checkpoint(owner.id, "name", external_id="e2", replace=True))
        assert set(new.removed) == {named.id, external.id}
        assert new.record.seq == external.seq
        assert stored(store, owner.id) == ["name"]

    # Sessions in a put

    # Going on from a checkpoint

    def test_a_checkpoint_is_consumed_once_and_a_retry_is_no_second_time(
        self, store: Store
    ) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record
        after = checkpoint(owner.id, "after", consumes=origin.id.upper())
        assert store.put(after).created is True
        assert store.put(after).created is False
        with pytest.raises(AlreadyResumed, match=origin.id):
            store.put(checkpoint(owner.id, "late", consumes=origin.id))
        store.put(checkpoint(owner.id, "next", consumes=after.id))
        assert stored(store, owner.id) == ["next", "after", "origin"]

    def test_a_copy_of_a_consumed_checkpoint_is_consumed(self, store: Store) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record
        store.put(checkpoint(owner.id, "after", consumes=origin.id))
        copy = store.copy_session(owner.id, session())
        newest, oldest = store.list_checkpoints(CheckpointQuery(session_id=copy.id))
        with pytest.raises(AlreadyResumed):
            store.put(checkpoint(copy.id, consumes=oldest.id))
        store.put(checkpoint(copy.id, consumes=newest.id))

    def test_what_another_line_or_tenant_has_cannot_be_consumed(
        self, store: Store, neighbour: Store
    ) -> None:
        owner = store.create_session(session())
        other = neighbour.create_session(session())
        for elsewhere in (
            store.put(checkpoint(owner.id, namespace="sub")).record.id,
            neighbour.put(checkpoint(other.id)).record.id,
            new_id(),
        ):
            with pytest.raises(CheckpointNotFound, match=elsewhere):
                store.put(checkpoint(owner.id, "late", contents=[b"chunk"], consumes=elsewhere))
        assert stored(store, owner.id, namespace="") == []
        assert store.total_bytes() == 0

    def test_a_put_that_fails_consumes_nothing(self, store: Store) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record
        missing = checkpoint(owner.id, "after", expects=[digest_of(b"gone")], consumes=origin.id)
        with pytest.raises(ChunksMissing):
            store.put(missing)
        with pytest.raises(CheckpointExists):
            store.put(checkpoint(owner.id, "origin", consumes=origin.id))
        assert store.put(replace(missing, expects=())).created is True

    def test_of_eight_threads_exactly_one_goes_on(self, store: Store) -> None:
        owner = store.create_session(session())
        origin = store.put(checkpoint(owner.id, "origin")).record

        def go_on(number: int) -> bool:
            try:
                return store.put(checkpoint(owner.id, f"n{number}", consumes=origin.id)).created
            except AlreadyResumed:
                return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(go_on, range(24))) == 1
        assert len(stored(store, owner.id)) == 2

    def test_a_put_creates_the_session_it_brings(self, store: Store) -> None:
        owner = session(task_description="brought")
        record = store.put(checkpoint(owner.id, session=owner)).record
        found = store.find_session(owner.id)
        assert found is not None
        assert (found.task_description, found.agent_id) == ("brought", record.agent_id)
        store.put(checkpoint(owner.id, session=replace(owner, task_description="ignored")))
        again = store.find_session(owner.id)
        assert again is not None
        assert (again.task_description, again.created_at) == ("brought", found.created_at)

    def test_a_put_moves_updated_at_of_its_session_and_a_retry_does_not(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id)
        store.put(draft)
        after = store.find_session(owner.id)
        assert after is not None
        assert after.updated_at > owner.updated_at
        store.put(draft)
        assert store.find_session(owner.id) == after

    def test_a_put_into_an_unknown_session_is_refused(self, store: Store) -> None:
        draft = checkpoint("nobody", contents=[b"content"])
        with pytest.raises(SessionNotFound):
            store.put(draft)
        assert store.read_chunks(list(draft.chunks)) == {}

    def test_a_put_that_brings_a_session_of_an_unknown_agent_is_refused(self, store: Store) -> None:
        owner = session(agent_id=new_id())
        with pytest.raises(AgentNotFound):
            store.put(checkpoint(owner.id, session=owner))
        assert store.find_session(owner.id) is None

    def test_a_put_must_bring_its_own_session(self, store: Store) -> None:
        with pytest.raises(InputError):
            store.put(checkpoint("one", session=session(id="another")))
        assert store.list_sessions() == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"checkpoint_type": "x"},
            {"checkpoint_type": ""},
            {"checkpoint_type": "Manual"},
            {"retention_class": "forever"},
            {"refs": b"not whole"},
            {"version": "1"},
            {"description": "nul\0"},
            {"pinned": "yes"},
            {"pinned": 1},
            {"resumable": None},
            {"git_uncommitted": "no"},
            {"replace": "x"},
        ],
    )
    def test_an_impossible_draft_is_refused_before_anything_is_written(
        self, store: Store, changes: dict[str, Any]
    ) -> None:
        owner = session()
        with pytest.raises(InputError) as caught:
            store.put(checkpoint(owner.id, session=owner, **changes))
        assert isinstance(caught.value, ValueError)
        assert store.list_sessions() == []

    # Tenants

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

    # Listings

    def test_each_filter_narrows_a_listing(self, store: Store) -> None:
        worker = agent()
        owner = store.create_session(session(agent_id=worker.id, agent=worker))
        other = store.create_session(session())
        chosen = store.put(
            checkpoint(
                owner.id,
                "chosen",
                id="abcdef00-0000-7000-8000-000000000001",
                namespace="sub",
                external_id="e",
                label="checkpoint-20260101-000000",
                checkpoint_type="failure",
                retention_class="failure",
                run_id="run",
                version=3,
                resumable=False,
                metadata={"k": "v"},
            )
        ).record
        rest = store.put(checkpoint(other.id, "rest", created_at=moment("2020-01-01T00:00:00")))
        filters: dict[str, Any] = {
            "session_id": owner.id,
            "namespace": "sub",
            "agent_id": worker.id,
            "id": chosen.id,
            "id_prefix": chosen.id[:8],
            "name": "chosen",
            "label": "checkpoint-20260101-000000",
            "external_id": "e",
            "checkpoint_type": "failure",
            "retention_class": "failure",
            "run_id": "run",
            "version": 3,
            "resumable": False,
            "before_seq": rest.record.seq,
            "metadata": {"k": "v"},
        }
        unlimited = {field.name for field in fields(CheckpointQuery)} - {"limit"}
        assert filters.keys() == unlimited, "every filter is tried"
        for name, value in filters.items():
            query = CheckpointQuery(**{name: value})
            assert names(store.list_checkpoints(query)) == ["chosen"], name
        assert names(store.list_checkpoints(CheckpointQuery(**filters))) == ["chosen"]
        for name in filters.keys() - {"id_prefix", "before_seq", "metadata", "id"}:
            contradiction = CheckpointQuery(**{name: filters[name], "id": rest.record.id})
            assert store.list_checkpoints(contradiction) == [], name
        assert names(store.list_checkpoints(CheckpointQuery(resumable=True))) == ["rest"]
        assert names(store.list_checkpoints(CheckpointQuery(namespace=""))) == ["rest"]

    def test_limits_cut_a_listing(self, store: Store) -> None:
        owner = store.create_session(session())
        for number in range(4):
            store.put(checkpoint(owner.id, f"n{number}"))
        assert stored(store, owner.id, limit=2) == ["n3", "n2"]
        assert stored(store, owner.id, limit=100) == ["n3", "n2", "n1", "n0"]
        assert stored(store, owner.id, limit=0) == []
        for bad in (-1, 1.5, "1", True):
            with pytest.raises(InvalidFilter):
                stored(store, owner.id, limit=bad)

    def test_a_listing_can_be_paged_with_before_seq(self, store: Store) -> None:
        owner = store.create_session(session())
        for number in range(5):
            store.put(checkpoint(owner.id, f"n{number}"))
        seen: list[CheckpointRecord] = []
        while page := store.list_checkpoints(
            CheckpointQuery(session_id=owner.id, limit=2, before_seq=seen[-1].seq if seen else None)
        ):
            seen += page
        assert names(seen) == ["n4", "n3", "n2", "n1", "n0"]

    @pytest.mark.parametrize(
        ("metadata", "wanted", "fits"),
        [
            ({"k": "v"}, {"k": "v"}, True),
            ({"k": "v"}, {"k": "V"}, False),
            ({"k": "v"}, {"K": "v"}, False),
            ({"k": 1}, {"k": 1.0}, True),
            ({"k": 1.0}, {"k": 1}, True),
            ({"k": 1}, {"k": True}, False),
            ({"k": True}, {"k": 1}, False),
            ({"k": True}, {"k": True}, True),
            ({"k": False}, {"k": False}, True),
            ({"k": 0}, {"k": False}, False),
            ({"k": 1}, {"k": "1"}, False),
            ({"k": "1"}, {"k": 1}, False),
            ({"k": None}, {"k": None}, True),
            ({}, {"k": None}, False),
            ({"k": "null"}, {"k": None}, False),
            ({"k": 0.1}, {"k": 0.1}, True),
            ({"k": 0.30000000000000004}, {"k": 0.3}, False),
            ({"k": 2**62}, {"k": 2**62}, True),
            ({"k": 2**62 + 1}, {"k": 2**62}, False),
            ({"k": ["v"]}, {"k": "v"}, False),
            ({"k": {"j": 1}}, {"k": 1}, False),
            ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
            ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
            ({"a.b": 1}, {"a.b": 1}, True),
            ({"a": {"b": 1}}, {"a.b": 1}, False),
            ({"q\"uo'te\\": "x"}, {"q\"uo'te\\": "x"}, True),
            ({"$.k": "% _"}, {"$.k": "% _"}, True),
            ({"é": "🦀\n"}, {"é": "🦀\n"}, True),
            ({"": ""}, {"": ""}, True),
            (None, {"k": 1}, False),
        ],
    )
    def test_metadata_is_compared_by_top_level_scalars(
        self,
        store: Store,
        metadata: dict[str, Any] | None,
        wanted: dict[str, Any],
        fits: bool,
    ) -> None:
        owner = store.create_session(session())
        store.put(checkpoint(owner.id, "one", metadata=metadata))
        assert stored(store, owner.id, metadata=wanted) == (["one"] if fits else [])

    @pytest.mark.parametrize(
        "value", [[1], {"a": 1}, (1,), {1}, b"x", object(), float("nan"), 2**70]
    )
    def test_metadata_cannot_be_compared_with_more_than_scalars(
        self, store: Store, value: object
    ) -> None:
        with pytest.raises(InvalidFilter):
            store.list_checkpoints(CheckpointQuery(metadata={"k": value}))

    @pytest.mark.parametrize("bad", [{"name": 1}, {"session_id": "lone \ud800"}, {"version": "1"}])
    def test_a_filter_of_the_wrong_kind_is_refused(self, store: Store, bad: dict[str, Any]) -> None:
        with pytest.raises(InvalidFilter):
            store.list_checkpoints(CheckpointQuery(**bad))

    def test_what_a_caller_does_to_a_record_does_not_reach_the_store(self, store: Store) -> None:
        owner = store.create_session(session())
        given: dict[str, Any] = {"list": [1]}
        record = store.put(checkpoint(owner.id, metadata=given)).record
        given["list"].append(2)
        assert record.metadata is not None
        record.metadata["list"].append(3)
        (listed,) = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert listed.metadata == {"list": [1]}

    # Restoring and deleting

    def test_reading_does_not_mark_a_checkpoint_as_restored(self, store: Store) -> None:
        owner = store.create_session(session())
        draft = checkpoint(owner.id)
        store.put(draft)
        store.read_payload(draft.id)
        store.latest_of_agent(owner.agent_id)
        (record,) = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert record.restored_at is None

    def test_marking_a_checkpoint_as_restored_sets_the_time(self, store: Store) -> None:
        owner = store.create_session(session())
        record = store.put(checkpoint(owner.id, metadata={"k": 1})).record
        once = store.mark_restored(record.id)
        assert once.restored_at is not None
        assert once == replace(record, restored_at=once.restored_at)
        assert abs(once.restored_at - datetime.now(UTC)) < timedelta(seconds=60)
        twice = store.mark_restored(record.id)
        assert twice.restored_at is not None
        assert twice.restored_at > once.restored_at
        assert store.list_checkpoints(CheckpointQuery(id=record.id)) == [twice]
        with pytest.raises(CheckpointNotFound):
            store.mark_restored(new_id())

    def test_what_is_being_restored_is_neither_trimmed_nor_pruned(self, store: Store) -> None:
        owner = store.create_session(session())
        first, second = (store.put(checkpoint(owner.id, name=name)).record for name in "ab")
        store.mark_restoring(first.id, seconds=600)
        trimmed = store.put(checkpoint(owner.id, name="c", trim=Trim(keep=1)))
        assert trimmed.removed == (second.id,)
        assert store.delete_checkpoints([first.id], spare_restoring=True) == 0
        store.mark_restoring(first.id, seconds=0)
        assert store.delete_checkpoints([first.id], spare_restoring=True) == 1
        with pytest.raises(CheckpointNotFound):
            store.mark_restoring(first.id, seconds=600)

    def test_deleting_checkpoints_counts_those_that_were_there(self, store: Store) -> None:
        owner = store.create_session(session())
        ids = [store.put(checkpoint(owner.id)).record.id for _ in range(3)]
        assert store.delete_checkpoints([ids[0], ids[2], new_id(), ids[0]]) == 2
        assert list(store.iter_checkpoint_ids()) == [ids[1]]
        assert store.read_payload(ids[0]) is None
        assert store.delete_checkpoints([]) == 0

    # Threads

    def test_eight_threads_put_into_one_session(self, store: Store) -> None:
        owner = store.create_session(session())
        shared = b"shared by all" * 30

        def work(worker: int) -> list[CheckpointRecord]:
            return [
                store.put(
                    checkpoint(
                        owner.id,
                        f"{worker}/{number}",
                        contents=[shared, b"%d/%d" % (worker, number) * 30],
                    )
                ).record
                for number in range(12)
            ]

        with ThreadPoolExecutor(8) as pool:
            puts = [record for batch in pool.map(work, range(8)) for record in batch]
        listed = store.list_checkpoints(CheckpointQuery(session_id=owner.id))
        assert {record.id for record in listed} == {record.id for record in puts}
        assert len({record.seq for record in puts}) == 96
        for worker in range(8):
            own = [record.seq for record in puts if record.name.startswith(f"{worker}/")]
            assert own == sorted(own)

    def test_threads_that_put_one_id_store_it_once(self, store: Store) -> None:
        owner = session()
        draft = checkpoint(owner.id, session=owner)
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: store.put(draft), range(16)))
        assert sum(result.created for result in results) == 1
        assert len({result.record.seq for result in results}) == 1

    def test_threads_that_put_one_name_agree_on_a_winner(self, store: Store) -> None:
        owner = store.create_session(session())

        def work(_: int) -> bool:
            try:
                return store.put(checkpoint(owner.id, "one")).created
            except CheckpointExists:
                return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(work, range(16))) == 1
        assert stored(store, owner.id) == ["one"]
