"""The contract of a saver as a test suite, for every `holdfast.savers.BaseCheckpointSaver`.

class TestMySaver(SaverContract):
    @pytest.fixture
    def saver(self) -> Iterator[BaseCheckpointSaver]:
        yield MySaver()
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast.errors import (
    CheckpointNotFound,
    InputError,
    InvalidFilter,
    SessionExists,
    SessionNotFound,
    StateNotSerializable,
)
from holdfast.savers import (
    BaseCheckpointSaver,
    CheckpointableMixin,
    CheckpointConfig,
    CheckpointMetadata,
)


class SaverContract:
    """Everything that a saver promises. Override the fixture ``saver``."""

    @pytest.fixture
    def saver(self) -> Iterator[BaseCheckpointSaver]:
        """Return an empty saver."""
        raise NotImplementedError("override the fixture saver")

    # Put and get -----------------------------------------------------------------------------

    def test_a_put_returns_the_config_of_the_new_checkpoint(
        self, saver: BaseCheckpointSaver
    ) -> None:
        config = CheckpointConfig(thread_id="session-123")
        saved = saver.put(config, {"step": 1}, {"source": "input"})
        assert saved.thread_id == "session-123"
        assert saved.checkpoint_id
        assert saved.namespace == ""

    def test_get_returns_the_latest_the_exact_one_or_none(self, saver: BaseCheckpointSaver) -> None:
        config = CheckpointConfig("t")
        assert saver.get_tuple(config) is None
        first = saver.put(config, {"n": 1})
        second = saver.put(config, {"n": 2})
        latest = saver.get_tuple(config)
        assert latest is not None
        assert latest.checkpoint == {"n": 2}
        assert latest.config == second
        exact = saver.get_tuple(first)
        assert exact is not None
        assert exact.checkpoint == {"n": 1}
        assert saver.get(first) == {"n": 1}
        for absent in ("01890000-0000-7000-8000-000000000000", "no such id"):
            assert saver.get_tuple(CheckpointConfig("t", absent)) is None
        assert saver.get_tuple(CheckpointConfig("t", namespace="elsewhere")) is None
        assert saver.get(CheckpointConfig("unknown")) is None

    def test_a_tuple_has_everything_that_belongs_to_it(self, saver: BaseCheckpointSaver) -> None:
        config = CheckpointConfig("t")
        first = saver.put(config, {"n": 1}, {"step": 1, "user": "ada"})
        second = saver.put(config, {"n": 2})
        found = saver.get_tuple(first)
        assert found is not None
        assert found.metadata == {"step": 1, "user": "ada"}
        assert found.parent_config is None
        assert found.pending_writes == []
        child = saver.get_tuple(second)
        assert child is not None
        assert child.metadata == {}
        assert child.parent_config == first

    def test_the_parent_is_the_checkpoint_that_the_config_names(
        self, saver: BaseCheckpointSaver
    ) -> None:
        config = CheckpointConfig("t")
        first = saver.put(config, {"n": 1})
        saver.put(config, {"n": 2})
        branch = saver.put(first, {"n": 3})
        found = saver.get_tuple(config)
        assert found is not None
        assert found.config == branch
        assert found.parent_config == first

    def test_values_come_back_exactly(self, saver: BaseCheckpointSaver) -> None:
        state = {
            "text": "snow ☃ and \0",
            "nothing": None,
            "float": 0.1,
            "big": 2**100,
            "bytes": b"\0\xff",
            "tuple": (1, [2, {"three": 3.0}]),
            "set": {1, 2},
            "when": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            "price": Decimal("1.10"),
            "$t": "not a tag",
            "long": [{"role": "user", "content": "x" * 100, "n": n} for n in range(300)],
        }
        config = saver.put(CheckpointConfig("t"), state, {"at": state["when"], "tags": ("a", "b")})
        found = saver.get_tuple(config)
        assert found is not None
        assert found.checkpoint == state
        assert type(found.checkpoint["tuple"]) is tuple
        assert list(found.checkpoint) == list(state)
        assert found.metadata["at"] == state["when"]
        assert found.metadata.tags == ("a", "b")

    @pytest.mark.parametrize("size", [1, 400])
    def test_what_the_caller_changes_later_changes_nothing(
        self, saver: BaseCheckpointSaver, size: int
    ) -> None:
        state: dict[str, Any] = {"items": ["x" * 100] * size, "inner": {"a": [1]}}
        metadata = {"tags": ["kept"]}
        config = saver.put(CheckpointConfig("t"), state, metadata)
        state["items"].append("later")
        state["inner"]["a"].append(2)
        metadata["tags"].append("later")
        found = saver.get_tuple(config)
        assert found is not None
        assert len(found.checkpoint["items"]) == size
        found.checkpoint["inner"]["a"].append(3)
        found.metadata["tags"].append("later")
        again = saver.get_tuple(config)
        assert again is not None
        assert again.checkpoint["inner"] == {"a": [1]}
        assert again.metadata["tags"] == ["kept"]

    def test_a_thread_that_grows_keeps_every_checkpoint_whole(
        self, saver: BaseCheckpointSaver
    ) -> None:
        messages: list[dict[str, Any]] = []
        saved = []
        for number in range(30):
            messages.append({"role": "user", "content": f"{number} " + "y" * 700})
            saved.append(saver.put(CheckpointConfig("t"), {"messages": messages, "n": number}))
        for number, config in enumerate(saved):
            found = saver.get_tuple(config)
            assert found is not None
            assert found.checkpoint == {"messages": messages[: number + 1], "n": number}

    def test_what_has_no_stored_form_is_refused_and_named(self, saver: BaseCheckpointSaver) -> None:
        with pytest.raises(StateNotSerializable, match=r"\$\.tools\[0\]"):
            saver.put(CheckpointConfig("t"), {"tools": [object()]})
        with pytest.raises(StateNotSerializable):
            saver.put(CheckpointConfig("t"), {"n": 1}, {"client": object()})
        with pytest.raises(StateNotSerializable):
            saver.put(CheckpointConfig("t"), [1])  # type: ignore[arg-type]
        assert list(saver.list(CheckpointConfig("t"))) == []

    @pytest.mark.parametrize("thread_id", ["", "a\0b", "x" * 513, "\ud800", 7])
    def test_a_thread_id_that_cannot_be_stored_is_refused(self, thread_id: Any) -> None:
        with pytest.raises(InputError):
            CheckpointConfig(thread_id)

    @pytest.mark.parametrize("thread_id", ["'; DROP TABLE sessions; --", "../../etc/passwd", "é ☃"])
    def test_a_thread_id_is_only_ever_data(
        self, saver: BaseCheckpointSaver, thread_id: str
    ) -> None:
        saver.put(CheckpointConfig(thread_id), {"n": 1})
        assert saver.get(CheckpointConfig(thread_id)) == {"n": 1}
        assert [thread.thread_id for thread in saver.list_threads()] == [thread_id]

    # Separation ------------------------------------------------------------------------------

    def test_threads_and_namespaces_are_apart(self, saver: BaseCheckpointSaver) -> None:
        places = [("a", ""), ("b", ""), ("a", "sub"), ("b", "sub")]
        for number, (thread_id, namespace) in enumerate(places):
            saver.put(CheckpointConfig(thread_id, namespace=namespace), {"n": number})
        for number, (thread_id, namespace) in enumerate(places):
            config = CheckpointConfig(thread_id, namespace=namespace)
            found = list(saver.list(config))
            assert [one.checkpoint for one in found] == [{"n": number}]
            assert found[0].parent_config is None
            other = CheckpointConfig("b" if thread_id == "a" else "a", namespace=namespace)
            elsewhere = CheckpointConfig(
                other.thread_id, found[0].config.checkpoint_id, other.namespace
            )
            assert saver.get_tuple(elsewhere) is None

    # Listing ---------------------------------------------------------------------------------

    def test_a_listing_is_newest_first(self, saver: BaseCheckpointSaver) -> None:
        config = CheckpointConfig("t")
        saved = [saver.put(config, {"n": number}, {"step": number}) for number in range(5)]
        found = list(saver.list(config))
        assert [one.checkpoint["n"] for one in found] == [4, 3, 2, 1, 0]
        assert [one.config for one in found] == saved[::-1]
        summaries = list(saver.list_summaries(config))
        assert [one.config for one in summaries] == saved[::-1]
        assert [one.metadata.step for one in summaries] == [4, 3, 2, 1, 0]
        assert [one.parent_config for one in summaries] == [*saved[:-1][::-1], None]

    def test_a_listing_can_be_narrowed(self, saver: BaseCheckpointSaver) -> None:
        config = CheckpointConfig("t")
        saved = [
            saver.put(
                config, {"n": number}, {"agent": "ab"[number % 2], "step": number, "on": True}
            )
            for number in range(6)
        ]

        def numbers(**narrowed: Any) -> list[int]:
            return [one.checkpoint["n"] for one in saver.list(config, **narrowed)]

        assert numbers(limit=2) == [5, 4]
        assert numbers(limit=0) == []
        assert numbers(before=saved[3]) == [2, 1, 0]
        assert numbers(before=saved[3], limit=1) == [2]
        assert numbers(filter={"agent": "a"}) == [4, 2, 0]
        assert numbers(filter={"agent": "a", "step": 2}) == [2]
        assert numbers(filter={"agent": "a"}, before=saved[4], limit=1) == [2]
        assert numbers(filter={"on": 1}) == []
        assert numbers(filter={"absent": None}) == []
        assert [one.checkpoint["n"] for one in saver.list(saved[2])] == [2]
        assert len(list(saver.list(None))) == 6

    def test_a_listing_is_as_long_as_it_is(self, saver: BaseCheckpointSaver) -> None:
        config = CheckpointConfig("t")
        for number in range(205):
            saver.put(config, {"n": number})
        assert [one.checkpoint["n"] for one in saver.list(config)] == list(range(205))[::-1]
        assert len(list(saver.list_summaries(config, limit=150))) == 150

    def test_a_listing_without_sense_is_refused(self, saver: BaseCheckpointSaver) -> None:
        config = saver.put(CheckpointConfig("t"), {"n": 1})
        with pytest.raises(InvalidFilter):
            list(saver.list(CheckpointConfig("t"), limit=-1))
        with pytest.raises(InvalidFilter):
            list(saver.list(CheckpointConfig("t"), filter={"step": {"$gt": 1}}))
        with pytest.raises(CheckpointNotFound):
            list(saver.list(CheckpointConfig("t"), before=CheckpointConfig("t", "gone")))
        assert saver.get(config) == {"n": 1}

    # Pending writes --------------------------------------------------------------------------

    def test_pending_writes_come_with_their_checkpoint(self, saver: BaseCheckpointSaver) -> None:
        first = saver.put(CheckpointConfig("t"), {"n": 1})
        second = saver.put(CheckpointConfig("t"), {"n": 2})
        saver.put_writes(first, [("out", {"x": (1, 2)}), ("log", "z" * 2000)], "task-1")
        found = saver.get_tuple(first)
        assert found is not None
        assert found.pending_writes == [
            ("task-1", "out", {"x": (1, 2)}),
            ("task-1", "log", "z" * 2000),
        ]
        other = saver.get_tuple(second)
        assert other is not None
        assert other.pending_writes == []
        assert [len(one.pending_writes) for one in saver.list(CheckpointConfig("t"))] == [0, 2]

    def test_a_write_is_kept_once_per_task_and_position(self, saver: BaseCheckpointSaver) -> None:
        config = saver.put(CheckpointConfig("t"), {"n": 1})
        saver.put_writes(config, [("a", 1), ("b", 2)], "task-1")
        saver.put_writes(config, [("a", 8), ("b", 9), ("c", 3)], "task-1")
        saver.put_writes(config, [("a", 4)], "task-2")
        found = saver.get_tuple(config)
        assert found is not None
        assert found.pending_writes == [
            ("task-1", "a", 1),
            ("task-1", "b", 2),
            ("task-1", "c", 3),
            ("task-2", "a", 4),
        ]

    def test_writes_need_to_know_their_checkpoint(self, saver: BaseCheckpointSaver) -> None:
        with pytest.raises(InputError):
            saver.put_writes(CheckpointConfig("t"), [("a", 1)], "task")
        assert list(saver.list_threads()) == []

    # Threads ---------------------------------------------------------------------------------

    def test_threads_are_listed_with_what_they_hold(self, saver: BaseCheckpointSaver) -> None:
        assert list(saver.list_threads()) == []
        saver.put(CheckpointConfig("one"), {"n": 1})
        latest = saver.put(CheckpointConfig("one"), {"n": 22})
        saver.put(CheckpointConfig("two"), {"n": 333})
        threads = {thread.thread_id: thread for thread in saver.list_threads()}
        assert set(threads) == {"one", "two"}
        assert threads["one"].checkpoints == 2
        assert threads["one"].size_bytes == len('{"n":1}{"n":22}')
        assert threads["one"].latest_checkpoint_id == latest.checkpoint_id
        assert threads["two"].checkpoints == 1

    def test_a_deleted_thread_is_gone_and_others_are_not(self, saver: BaseCheckpointSaver) -> None:
        state = {"shared": ["w" * 900] * 30}
        gone = saver.put(CheckpointConfig("gone"), state)
        saver.put(CheckpointConfig("gone", namespace="sub"), state)
        saver.put_writes(gone, [("a", 1)], "task")
        saver.put(CheckpointConfig("kept"), state)
        saver.delete_thread("gone")
        saver.delete_thread("gone")
        assert saver.get_tuple(gone) is None
        assert saver.get_tuple(CheckpointConfig("gone", namespace="sub")) is None
        assert [thread.thread_id for thread in saver.list_threads()] == ["kept"]
        assert saver.get(CheckpointConfig("kept")) == state
        again = saver.put(CheckpointConfig("gone"), state)
        found = saver.get_tuple(again)
        assert found is not None
        assert found.parent_config is None
        assert found.pending_writes == []
        assert found.checkpoint == state

    def test_a_copied_thread_stands_on_its_own(self, saver: BaseCheckpointSaver) -> None:
        state = {"items": ["v" * 900] * 30}
        first = saver.put(CheckpointConfig("source"), {"n": 1}, {"step": 1})
        second = saver.put(CheckpointConfig("source"), state, {"step": 2})
        saver.put(CheckpointConfig("source", namespace="sub"), {"n": 3})
        saver.put_writes(second, [("out", "pending")], "task")
        saver.copy_thread("source", "copy")
        saver.delete_thread("source")
        copies = list(saver.list(CheckpointConfig("copy")))
        assert [one.checkpoint for one in copies] == [state, {"n": 1}]
        assert [one.metadata for one in copies] == [{"step": 2}, {"step": 1}]
        assert copies[0].parent_config == copies[1].config
        assert copies[0].pending_writes == [("task", "out", "pending")]
        assert {first.checkpoint_id, second.checkpoint_id}.isdisjoint(
            one.config.checkpoint_id for one in copies
        )
        assert saver.get(CheckpointConfig("copy", namespace="sub")) == {"n": 3}
        saver.put_writes(copies[0].config, [("out", "ignored"), ("more", 2)], "task")
        found = saver.get_tuple(copies[0].config)
        assert found is not None
        assert found.pending_writes == [("task", "out", "pending"), ("task", "more", 2)]

    def test_a_copy_needs_a_source_and_a_free_name(self, saver: BaseCheckpointSaver) -> None:
        saver.put(CheckpointConfig("a"), {"n": 1})
        saver.put(CheckpointConfig("b"), {"n": 2})
        with pytest.raises(SessionNotFound):
            saver.copy_thread("nowhere", "c")
        with pytest.raises(SessionExists):
            saver.copy_thread("a", "b")
        assert saver.get(CheckpointConfig("b")) == {"n": 2}

    # Metadata, async, the mixin --------------------------------------------------------------

    def test_metadata_knows_when_it_was_stored(self, saver: BaseCheckpointSaver) -> None:
        before = datetime.now(UTC)
        metadata = CheckpointMetadata(source="loop", step=3, node="plan", tags=["x"], other=1)
        config = saver.put(CheckpointConfig("t"), {"n": 1}, metadata)
        found = saver.get_tuple(config)
        assert found is not None
        assert found.metadata == {
            "source": "loop", "step": 3, "node": "plan", "tags": ["x"], "other": 1,
        }  # fmt: skip
        assert found.metadata.created_at is not None
        assert abs((found.metadata.created_at - before).total_seconds()) < 60

    def test_the_async_twins_do_the_same(self, saver: BaseCheckpointSaver) -> None:
        async def scenario() -> None:
            config = CheckpointConfig("t")
            first = await saver.aput(config, {"n": 1}, {"step": 1})
            await saver.aput_writes(first, [("a", 1)], "task")
            await saver.aput(config, {"n": 2}, {"step": 2})
            latest = await saver.aget_tuple(config)
            assert latest is not None
            assert latest.checkpoint == {"n": 2}
            assert await saver.aget(first) == {"n": 1}
            listed = [one async for one in saver.alist(config, limit=5)]
            assert [one.checkpoint["n"] for one in listed] == [2, 1]
            assert listed[1].pending_writes == [("task", "a", 1)]
            summaries = [one async for one in saver.alist_summaries(config, filter={"step": 1})]
            assert [one.config for one in summaries] == [first]
            await saver.acopy_thread("t", "u")
            assert {one.thread_id for one in await saver.alist_threads()} == {"t", "u"}
            await saver.adelete_thread("t")
            assert await saver.aget_tuple(config) is None
            assert await saver.aget(CheckpointConfig("u")) == {"n": 2}

        asyncio.run(scenario())

    def test_an_agent_with_the_mixin_continues_after_a_restart(
        self, saver: BaseCheckpointSaver
    ) -> None:
        agent = _Agent()
        agent.init_checkpointing(saver, "job")
        assert agent.restore_checkpoint() is None
        first = agent.save_checkpoint("plan", {"n": 1}, tags=("draft",))
        agent.save_checkpoint("act", {"n": 2})

        restarted = _Agent()
        restarted.init_checkpointing(saver, "job")
        assert restarted.restore_checkpoint() == {"n": 2}
        restarted.save_checkpoint("act", {"n": 3})
        assert restarted.restore_checkpoint(first) == {"n": 1}
        branch = restarted.save_checkpoint("act", {"n": 4})

        history = restarted.get_checkpoint_history()
        assert [one.metadata.step for one in history] == [4, 3, 2, 1]
        assert [one.metadata.node for one in history] == ["act", "act", "act", "plan"]
        assert history[3].metadata.tags == ("draft",)
        assert history[0].config.checkpoint_id == branch
        assert history[0].parent_config == history[3].config
        assert history[1].parent_config == history[2].config
        assert len(restarted.get_checkpoint_history(limit=2)) == 2
        with pytest.raises(CheckpointNotFound):
            restarted.restore_checkpoint("01890000-0000-7000-8000-000000000000")


class _Agent(CheckpointableMixin):
    """An agent that does nothing but save."""
