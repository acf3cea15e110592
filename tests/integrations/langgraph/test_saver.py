"""What `HoldfastSaver` promises beyond LangGraph's suite."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph

from holdfast import SessionManager
from holdfast.errors import (
    CheckpointBusy,
    CheckpointProtected,
    ForeignSession,
    InvalidFilter,
    SessionExists,
    SessionNotFound,
    StaleWriter,
    StoreClosed,
)
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.model import CheckpointQuery
from holdfast.stores import open_store
from tests.integrations.langgraph.graphs import Questions, at, checkpoint, id_of
from tests.meanwhile import meanwhile
from tests.memory import holds


def ids(saver: HoldfastSaver, *args: Any, **kwargs: Any) -> list[str]:
    return [id_of(found.config) for found in saver.list(*args, **kwargs)]


def chain(saver: HoldfastSaver, *names: str, thread_id: str = "t", namespace: str = "") -> None:
    parent = None
    for name in names:
        saver.put(at(thread_id, parent, namespace), checkpoint({"n": name}, name), {}, {})
        parent = name


def test_the_latest_is_the_last_put_whatever_its_id(saver: HoldfastSaver) -> None:
    chain(saver, "9", "5", "1")
    assert ids(saver, at()) == ["1", "5", "9"]
    latest = saver.get_tuple(at())
    assert latest is not None
    assert id_of(latest.config) == "1"
    assert ids(saver, at(), before=at(checkpoint_id="5")) == ["9"]


def test_putting_an_id_again_replaces_it_and_keeps_its_place(saver: HoldfastSaver) -> None:
    chain(saver, "a", "b")
    saver.put_writes(at(checkpoint_id="a"), [("c", 1)], "task")
    saver.put(at(), checkpoint({"n": "new"}, "a"), {"step": 7}, {})
    assert ids(saver, at()) == ["b", "a"]
    found = saver.get_tuple(at(checkpoint_id="a"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"n": "new"}
    assert found.pending_writes == [("task", "c", 1)]


def test_metadata_keeps_everything_and_takes_the_config_in(saver: HoldfastSaver) -> None:
    config = at()
    config["configurable"]["user"] = "ada"
    config["metadata"] = {"tries": 2}
    metadata: Any = {
        "source": "loop", "step": 1, "parents": {"": "x"}, "run_id": "r",
        "$o": "odd", "counters_since_delta_snapshot": {"c": (1, 2)}, "message": HumanMessage("m"),
    }  # fmt: skip
    found = saver.get_tuple(saver.put(config, checkpoint(), metadata, {}))
    assert found is not None
    assert found.metadata == {**metadata, "user": "ada", "tries": 2}


def test_pending_writes_have_their_order_and_rules(saver: HoldfastSaver) -> None:
    stored = saver.put(at(), checkpoint(), {}, {})
    saver.put_writes(stored, [("c", 2), ("d", 3)], "b", "~2")
    saver.put_writes(stored, [("c", 1), ("__interrupt__", "first")], "z", "~1")
    saver.put_writes(stored, [("c", "ignored"), ("__interrupt__", "second")], "z", "~1")
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.pending_writes == [
        ("z", "__interrupt__", "second"), ("z", "c", 1), ("b", "c", 2), ("b", "d", 3),
    ]  # fmt: skip


def test_writes_may_come_before_their_checkpoint(saver: HoldfastSaver) -> None:
    saver.put_writes(at(checkpoint_id="later"), [("c", 1)], "task")
    assert saver.get_tuple(at()) is None
    saver.put(at(), checkpoint({}, "later"), {}, {})
    found = saver.get_tuple(at())
    assert found is not None
    assert found.pending_writes == [("task", "c", 1)]


def test_filters_compare_any_value(saver: HoldfastSaver) -> None:
    for number in range(3):
        notes: Any = {"step": number, "parents": {"": str(number)}}
        saver.put(at(), checkpoint({}, str(number)), notes, {})
    assert ids(saver, at(), filter={"step": 1}) == ["1"]
    assert ids(saver, at(), filter={"parents": {"": "2"}}, limit=1) == ["2"]
    assert ids(saver, at(), filter={"parents": {"": "0"}}) == ["0"]
    assert ids(saver, None, limit=2) == ["2", "1"]
    assert ids(saver, at(), limit=0) == []


def test_pages_go_on_until_the_limit(saver: HoldfastSaver) -> None:
    for number in range(230):
        notes: Any = {"odd": [number % 2]}
        saver.put(at(), checkpoint({}, f"{number:03}"), notes, {})
    assert len(ids(saver, at())) == 230
    odd = ids(saver, at(), filter={"odd": [1]}, limit=110)
    assert odd == [f"{number:03}" for number in range(229, 9, -2)]


def test_a_cursor_may_be_of_another_namespace(saver: HoldfastSaver) -> None:
    saver.put(at(), checkpoint({}, "p1"), {}, {})
    child: Any = {"parents": {"": "p1"}}
    saver.put(at(namespace="sub"), checkpoint({}, "s1"), child, {})
    # The subgraph was quicker than the background put of the checkpoint that it runs under.
    early: Any = {"parents": {"": "p2"}}
    saver.put(at(namespace="sub"), checkpoint({}, "s2"), early, {})
    saver.put(at(checkpoint_id="p1"), checkpoint({}, "p2"), {}, {})
    sub = at(namespace="sub")
    assert ids(saver, sub, before={"configurable": {"checkpoint_id": "p2"}}, limit=1) == ["s1"]


def test_a_cursor_that_is_not_stored_is_compared_by_its_id(saver: HoldfastSaver) -> None:
    chain(saver, "a1", "a3", "a5")
    assert ids(saver, at(), before=at(checkpoint_id="a4")) == ["a3", "a1"]
    assert ids(saver, at(), before={"configurable": {"checkpoint_id": "a2"}}, limit=1) == ["a1"]
    assert ids(saver, at(), before=at(checkpoint_id="a4"), limit=1) == ["a3"]
    with Questions(saver.store).counted() as asked:
        assert ids(saver, at(), before=at(checkpoint_id="a2"), limit=1) == ["a1"]
    assert asked.count("list_checkpoints") == 2  # the cursor, and one page


def test_bad_limits_are_typed_errors(saver: HoldfastSaver) -> None:
    for limit in (-1, "1", True):
        with pytest.raises(InvalidFilter):
            list(saver.list(at(), limit=limit))  # type: ignore[arg-type]


def test_reading_asks_once_for_each_part_and_never_for_each_checkpoint(url: str) -> None:
    with HoldfastSaver(url) as saver:
        messages = []
        stored = at()
        for number in range(60):
            messages.append(HumanMessage(f"{number}" * 700, id=str(number)))
            stored = saver.put(stored, checkpoint({"messages": messages.copy()}), {}, {})
            saver.put_writes(stored, [("messages", [messages[-1]]), ("x", None)], "task")
        for limit, allowed in ((1, 8), (20, 8), (60, 8)):
            saver.store.cache.clear()
            with Questions(saver.store).counted() as asked:
                found = list(saver.list(at(), limit=limit))
            assert len(found) == limit
            assert len(found[0].checkpoint["channel_values"]["messages"]) == 60
            assert asked.count("list_checkpoints") == 1
            assert asked.count("read_payloads") == 1
            assert asked.count("read_writes") == 1
            # One a level of references, one for the content, one for that of the writes.
            assert asked.count("read_chunks") <= 5
            assert len(asked) <= allowed
        saver.store.cache.clear()
        with Questions(saver.store).counted() as asked:
            saver.get_tuple(at())
        assert len(asked) <= 8


def test_threads_and_namespaces_are_read_with_as_many_questions_as_one(url: str) -> None:
    with HoldfastSaver(url) as saver:
        for number in range(40):
            config: Any = {
                "configurable": {"thread_id": f"t{number % 8}", "checkpoint_ns": f"n{number}"}
            }
            stored = saver.put(config, checkpoint({"n": number}), {}, {})
            saver.put_writes(stored, [("x", number)], "task")
        with Questions(saver.store).counted() as asked:
            found = list(saver.list(None))
        assert sorted(asked) == ["list_checkpoints", "read_payloads", "read_writes"]
        for one in found:
            [(_, _, written)] = one.pending_writes or []
            assert written == one.checkpoint["channel_values"]["n"]


def test_a_step_costs_what_it_added(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "a.db") as saver:
        messages: list[Any] = []
        stored = at()
        sizes = []
        for number in range(200):
            messages = [*messages, HumanMessage(f"{number} " + "x" * 1000, id=str(number))]
            stored = saver.put(stored, checkpoint({"messages": messages}), {}, {})
            sizes.append(saver.store.session_usage(["t"])[0].stored_bytes)
        steps = [after - before for before, after in pairwise(sizes)]
        assert sum(steps[-50:]) < 2 * sum(steps[:50])


def test_another_process_continues_at_the_cost_of_what_it_adds(tmp_path: Path) -> None:
    messages = [HumanMessage(f"{number} " + "x" * 1000, id=str(number)) for number in range(200)]
    with HoldfastSaver(tmp_path / "a.db") as saver:
        saver.put(at(), checkpoint({"messages": messages}), {}, {})
    with HoldfastSaver(tmp_path / "a.db") as saver:
        before = saver.store.session_usage(["t"])[0].stored_bytes
        found = saver.get_tuple(at())
        assert found is not None
        more = [*found.checkpoint["channel_values"]["messages"], HumanMessage("more", id="more")]
        saver.put(found.config, checkpoint({"messages": more}), {}, {})
        assert saver.store.session_usage(["t"])[0].stored_bytes - before < 4000


class TestTwoWriters:
    def test_the_second_that_goes_on_from_the_newest_is_refused(self, url: str) -> None:
        with HoldfastSaver(url) as saver, HoldfastSaver(saver.store) as other:
            stored = saver.put(at(), checkpoint({}, "a"), {}, {})
            saver.get_tuple(at())
            other.get_tuple(at())
            other.put(stored, checkpoint({}, "b"), {}, {})
            with pytest.raises(StaleWriter, match="read the newest"):
                saver.put(stored, checkpoint({}, "c"), {}, {})
            assert ids(saver, at()) == ["b", "a"]
            # Reading again is all it takes.
            found = saver.get_tuple(at())
            assert found is not None
            saver.put(found.config, checkpoint({}, "c"), {}, {})
            assert ids(saver, at()) == ["c", "b", "a"]

    def test_two_that_begin_the_same_thread_are_noticed(self, saver: HoldfastSaver) -> None:
        def begin(name: str) -> None:
            saver.get_tuple(at())
            contexts.append(copy_context())

        contexts: list[Any] = []
        for name in ("a", "b"):
            copy_context().run(begin, name)
        contexts[0].run(saver.put, at(), checkpoint({}, "a"), {}, {})
        with pytest.raises(StaleWriter):
            contexts[1].run(saver.put, at(), checkpoint({}, "b"), {}, {})

    def test_runs_of_one_process_are_told_apart(self, saver: HoldfastSaver) -> None:
        stored = saver.put(at(), checkpoint({}, "a"), {}, {})

        async def run(name: str, read: asyncio.Barrier) -> str:
            await saver.aget_tuple(at())
            await read.wait()
            try:
                # As LangGraph does: the put is a task of its own.
                await asyncio.create_task(saver.aput(stored, checkpoint({}, name), {}, {}))
            except StaleWriter:
                return "stale"
            return "stored"

        async def race() -> list[str]:
            await saver.aget_tuple(at())
            read = asyncio.Barrier(3)
            return await asyncio.gather(*(run(f"n{number}", read) for number in range(3)))

        assert sorted(asyncio.run(race())) == ["stale", "stale", "stored"]

    @pytest.mark.parametrize("durability", ["sync", "async"])
    def test_runs_that_take_turns_in_one_context_are_told_apart(
        self, saver: HoldfastSaver, durability: Any
    ) -> None:
        graph = notes_graph(saver)
        config: Any = at()
        graph.invoke({"notes": ["first"]}, config)
        runs = {
            name: graph.stream({"notes": [name]}, config, durability=durability)
            for name in ("one", "two")
        }
        ends = {}
        while runs:
            for name, run in list(runs.items()):
                try:
                    next(run)
                except (StopIteration, StaleWriter) as end:
                    ends[name] = type(end)
                    del runs[name]
        assert set(ends.values()) == {StopIteration, StaleWriter}
        parents = [one.parent_config for one in saver.list(config)]
        assert all(parents.count(one) == 1 for one in parents), "the thread was forked"

    @pytest.mark.parametrize("durability", ["sync", "async"])
    @pytest.mark.parametrize("how", ["copied context", "thread", "task", "task with a timeout"])
    def test_runs_whose_every_step_has_a_context_of_its_own_are_told_apart(
        self, saver: HoldfastSaver, how: str, durability: Any
    ) -> None:
        """As web servers and timeouts go through a stream."""

        async def step(run: Any) -> Any:
            if how == "copied context":
                return copy_context().run(next, run, None)
            if how == "thread":
                return await asyncio.to_thread(next, run, None)
            if how == "task":
                return await asyncio.create_task(anext(run, None))
            return await asyncio.wait_for(anext(run, None), 60)

        async def race() -> dict[str, str]:
            graph = notes_graph(saver)
            graph.invoke({"notes": ["first"]}, at())
            stream = graph.astream if how.startswith("task") else graph.stream
            runs = {
                name: stream({"notes": [name]}, at(), durability=durability)
                for name in ("one", "two")
            }
            ends = {}
            while runs:
                for name, run in list(runs.items()):
                    try:
                        if await step(run) is not None:
                            continue
                        ends[name] = "done"
                    except StaleWriter:
                        ends[name] = "stale"
                    del runs[name]
            return ends

        assert sorted(asyncio.run(race()).values()) == ["done", "stale"]
        parents = [one.parent_config for one in saver.list(at())]
        assert all(parents.count(one) == 1 for one in parents), "the thread was forked"

    def test_a_run_follows_its_own_puts_in_any_thread(self, saver: HoldfastSaver) -> None:
        saver.get_tuple(at())
        parent = None
        with ThreadPoolExecutor(2) as pool:
            for name in ("a", "b", "c"):
                put: Any = copy_context().run
                config = at(checkpoint_id=parent)
                pool.submit(put, saver.put, config, checkpoint({}, name), {}, {}).result()
                parent = name
        assert ids(saver, at()) == ["c", "b", "a"]

    def test_time_travel_is_free(self, saver: HoldfastSaver) -> None:
        chain(saver, "a", "b", "c")
        saver.get_tuple(at())
        saver.put(at(checkpoint_id="b"), checkpoint({}, "on b"), {}, {})
        latest = saver.get_tuple(at())
        saver.get_tuple(at(checkpoint_id="on b"))
        with HoldfastSaver(saver.store) as other:
            other.put(at(checkpoint_id="on b"), checkpoint({}, "d"), {}, {})
        # It named the one that it goes on from, so that this is no longer the newest is no news.
        assert latest is not None
        saver.put(latest.config, checkpoint({}, "e"), {}, {})
        assert ids(saver, at()) == ["e", "d", "on b", "c", "b", "a"]


class TestThreads:
    def test_a_copy_has_everything_and_shares_the_content(self, saver: HoldfastSaver) -> None:
        chain(saver, "a", "b")
        chain(saver, "s", namespace="sub")
        saver.put_writes(at(checkpoint_id="b"), [("c", [1])], "task")
        before = saver.store.total_bytes()
        saver.copy_thread("t", "copy")
        assert saver.store.total_bytes() == before
        for namespace in ("", "sub"):
            pairs = zip(
                saver.list(at(namespace=namespace)),
                saver.list(at("copy", namespace=namespace)),
                strict=True,
            )
            for mine, copied in pairs:
                assert (copied.checkpoint, copied.metadata) == (mine.checkpoint, mine.metadata)
                assert copied.pending_writes == mine.pending_writes
                parents = [
                    found.parent_config and id_of(found.parent_config) for found in (mine, copied)
                ]
                assert parents[0] == parents[1]
        saver.delete_thread("t")
        assert ids(saver, at("copy")) == ["b", "a"]

    def test_copies_need_a_source_and_a_free_target(self, saver: HoldfastSaver) -> None:
        chain(saver, "a")
        with pytest.raises(SessionNotFound):
            saver.copy_thread("unknown", "x")
        with pytest.raises(SessionExists):
            saver.copy_thread("t", "t")

    def test_deleting_erases_the_content(self, saver: HoldfastSaver) -> None:
        saver.put(at(), checkpoint({"big": "x" * 5000}), {}, {})
        assert saver.store.total_bytes() > 0
        saver.delete_thread("t")
        saver.delete_thread("t")
        assert saver.store.total_bytes() == 0
        assert saver.get_tuple(at()) is None

    @pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
    def test_a_session_that_is_no_thread_of_a_graph_is_left_alone(
        self, saver: HoldfastSaver, strategy: str
    ) -> None:
        chain(saver, *"abc")
        session = SessionManager(saver.store, workspace=False).create_session("me", session_id="s")
        for number in range(2):
            session.save_checkpoint(f"n{number}", state={"n": number})
        with pytest.raises(ForeignSession, match=r"session s .* type me\."):
            saver.delete_thread("s")
        with pytest.raises(ForeignSession, match=r"session s .* me\. Nothing was copied"):
            saver.copy_thread("s", "copy")
        with pytest.raises(ForeignSession, match="session s "):
            saver.prune(["t", "s"], strategy=strategy)
        assert [one.name for one in session.list_checkpoints()] == ["n1", "n0"]
        assert session.save_checkpoint("n2", state={}).name == "n2"
        assert ids(saver, None) == ["c", "b", "a"]
        assert [one.thread_id for one in saver.list_threads()] == ["t"]

    def test_pruning_keeps_the_last_of_each_namespace(self, saver: HoldfastSaver) -> None:
        chain(saver, *"abcd")
        chain(saver, *"uvw", namespace="sub")
        saver.put_writes(at(checkpoint_id="c"), [("__interrupt__", "wait")], "task")
        saver.put_writes(at(checkpoint_id="to come"), [("c", 1)], "task")
        saver.prune(["t"], keep_last=2)
        assert ids(saver, at()) == ["d", "c"]
        assert ids(saver, at(namespace="sub")) == ["w", "v"]
        found = saver.get_tuple(at(checkpoint_id="c"))
        assert found is not None
        assert found.pending_writes == [("task", "__interrupt__", "wait")]
        saver.prune(["t", "unknown"])
        assert ids(saver, {"configurable": {"thread_id": "t"}}) == ["w", "d"]
        saver.put(at(checkpoint_id="d"), checkpoint({}, "to come"), {}, {})
        found = saver.get_tuple(at())
        assert found is not None
        assert found.pending_writes == [("task", "c", 1)]
        saver.prune(["t"], strategy="delete")
        assert ids(saver, {"configurable": {"thread_id": "t"}}) == []

    def test_pruning_frees_the_content(self, saver: HoldfastSaver) -> None:
        for number in range(5):
            saver.put(at(), checkpoint({"big": f"{number}" * 5000}), {}, {})
        before = saver.store.total_bytes()
        saver.prune(["t"])
        assert saver.store.total_bytes() < before
        found = saver.get_tuple(at())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"big": "4" * 5000}
        # What the saver remembers of the thread may be gone from the store: it sends it again.
        saver.put(found.config, checkpoint({"big": "3" * 5000}), {}, {})
        found = saver.get_tuple(at())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"big": "3" * 5000}

    def test_what_a_delta_channel_needs_stays(self, saver: HoldfastSaver) -> None:
        counted: Any = {"counters_since_delta_snapshot": {"c": (1, 1)}}
        parent = None
        for name, notes in (("a", {}), ("b", {}), ("c", counted), ("d", counted), ("e", counted)):
            metadata: Any = {"run_id": name, **notes}
            saver.put(at(checkpoint_id=parent), checkpoint({}, name), metadata, {})
            parent = name
        saver.delete_for_runs(["a", "c"])
        assert ids(saver, at()) == ["e", "d", "c", "b"]
        saver.prune(["t"])
        assert ids(saver, at()) == ["e", "d", "c", "b"]
        saver.put(at(checkpoint_id="e"), checkpoint({}, "f"), {}, {})
        saver.prune(["t"])
        assert ids(saver, at()) == ["f"]

    def test_what_goes_on_from_a_run_while_it_is_erased_keeps_what_it_needs(
        self, saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph, values = notes_graph(saver), []
        graph.invoke({"notes": ["asked"]}, {**at(), "metadata": {"run_id": "r"}})

        def go_on() -> None:
            graph.update_state(at(), {"notes": ["later"]})
            values.append(graph.get_state(at()).values)

        meanwhile(saver.store, go_on, monkeypatch)
        saver.delete_for_runs(["r"])
        assert [graph.get_state(at()).values] == values == [{"notes": ["asked", "answer", "later"]}]

    def test_what_of_a_run_is_still_there_is_told(
        self, saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config: Any = at()
        for name in "abc":
            config = saver.put(config, checkpoint({}, name), {"run_id": "r"}, {})
        [stored] = saver.store.list_checkpoints(CheckpointQuery("t", external_id="a"))
        saver.store.mark_restoring(stored.id, seconds=600)
        with pytest.raises(CheckpointBusy, match=r"'t'.*Erase the runs again"):
            saver.delete_for_runs(["r", "another"])
        assert ids(saver, at()) == ["a"]
        saver.store.mark_restoring(stored.id, seconds=0)
        saver.delete_for_runs(["r", "another"])
        assert ids(saver, at()) == []

    def test_a_cap_trims_but_never_a_delta_channel(self, url: str) -> None:
        counted: Any = {"counters_since_delta_snapshot": {"c": (1, 1)}}
        with HoldfastSaver(url, max_checkpoints_per_thread=2) as saver:
            chain(saver, *"abcd")
            assert ids(saver, at()) == ["d", "c"]
            for name in "efgh":
                saver.put(at(), checkpoint({}, name), counted, {})
            assert ids(saver, at()) == [*"hgfedc"]

    @pytest.mark.parametrize("cap", [1, 2, 3])
    def test_a_cap_leaves_every_state_of_a_delta_channel_whole(self, url: str, cap: int) -> None:
        histories = []
        for thread, keep in (("all", None), ("capped", cap)):
            with HoldfastSaver(url, max_checkpoints_per_thread=keep) as saver:
                graph = notes_graph(saver)
                config: Any = at(thread)
                for number in range(5):
                    graph.invoke({"notes": [f"asked {number}"]}, config)
                histories.append(
                    [(one.next, one.values) for one in graph.get_state_history(config)]
                )
        everything, capped = histories
        assert capped == everything[: len(capped)]
        assert capped[0][1] == {"notes": [w for n in range(5) for w in (f"asked {n}", "answer")]}

    @pytest.mark.parametrize(
        "bound", [{"keep": 1}, {"max_age": timedelta(0)}, {"max_bytes": 0}], ids=lambda one: [*one]
    )
    def test_pruning_all_sessions_leaves_a_delta_channel_whole(self, url: str, bound: Any) -> None:
        with SessionManager.open(url, workspace=False) as manager, HoldfastSaver(manager) as saver:
            graph = notes_graph(saver)
            for number in range(5):
                graph.invoke({"notes": [f"asked {number}"]}, at())
            graph.update_state(at(), {"notes": ["not stored whole"]})
            before = graph.get_state(at()).values
            decisions = manager.prune(**bound)
            assert {one.keep for one in decisions} == {True, False}
            assert graph.get_state(at()).values == before

    @pytest.mark.parametrize("by", ["manager", "saver"])
    def test_pruning_leaves_what_is_forked_from_meanwhile(
        self, url: str, by: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counted: Any = {"counters_since_delta_snapshot": {"c": (1, 1)}}
        with SessionManager.open(url, workspace=False) as manager, HoldfastSaver(manager) as saver:
            chain(saver, "a")
            saver.put(at(checkpoint_id="a"), checkpoint({}, "b"), counted, {})
            saver.put(at(checkpoint_id="b"), checkpoint({}, "c"), {}, {})
            saver.put(at(checkpoint_id="c"), checkpoint({}, "d"), {}, {})

            def fork() -> None:
                saver.put(at(checkpoint_id="b"), checkpoint({}, "e"), counted, {})

            meanwhile(manager.store, fork, monkeypatch)
            if by == "manager":
                manager.prune(keep=2)
            else:
                saver.prune(["t"], keep_last=2)
            assert ids(saver, at()) == ["e", "d", "b", "a"]

    @pytest.mark.parametrize("how", ["quarantined", "deleted"])
    @pytest.mark.parametrize("when", ["before", "meanwhile"])
    def test_pruning_leaves_the_newest_that_is_good(
        self, url: str, how: str, when: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with SessionManager.open(url, workspace=False) as manager, HoldfastSaver(manager) as saver:
            chain(saver, *"abcd")
            newest = manager.get_session("t").latest_checkpoint().id
            remove = (
                manager.store.quarantine
                if how == "quarantined"
                else (manager.store.delete_checkpoints)
            )
            if when == "before":
                remove([newest])
            else:
                meanwhile(manager.store, lambda: remove([newest]), monkeypatch)
            saver.prune(["t"])
            assert manager.get_session("t").latest_checkpoint(resumable=True).external_id == "c"

    def test_one_checkpoint_travels_with_what_it_is_computed_from(
        self, url: str, tmp_path: Path
    ) -> None:
        with SessionManager.open(url, workspace=False) as manager, HoldfastSaver(manager) as saver:
            graph = notes_graph(saver)
            for number in range(5):
                graph.invoke({"notes": [f"asked {number}"]}, at())
            graph.update_state(at(), {"notes": ["not stored whole"]})
            before = graph.get_state(at()).values
            latest = manager.get_session("t").latest_checkpoint().id
            report = manager.export_session("t", tmp_path / "t.tar", checkpoint=latest)
            assert 1 < len(report.states) < len(ids(saver, at()))
        elsewhere = str(tmp_path / "elsewhere.db")
        with SessionManager.open(elsewhere, workspace=False) as manager:
            manager.import_bundle(tmp_path / "t.tar")
        with HoldfastSaver(elsewhere) as saver:
            assert notes_graph(saver).get_state(at()).values == before

    def test_what_others_are_computed_from_is_deleted_by_force_only(self, url: str) -> None:
        counted: Any = {"counters_since_delta_snapshot": {"c": (1, 1)}}
        with SessionManager.open(url, workspace=False) as manager, HoldfastSaver(manager) as saver:
            saver.put(at(), checkpoint({}, "a"), {}, {})
            saver.put(at(checkpoint_id="a"), checkpoint({}, "b"), counted, {})
            newest, oldest = (one.id for one in manager.get_session("t").list_checkpoints())
            session = manager.hold_session("t")
            with pytest.raises(CheckpointProtected, match="delta channels"):
                session.delete_checkpoint(oldest)
            session.delete_checkpoint(newest)
            session.delete_checkpoint(oldest)
            assert ids(saver, at()) == []

    @pytest.mark.parametrize(
        "wrong",
        [{"strategy": "all"}, {"keep_last": 0}, {"keep_last": "2"}],
        ids=["strategy", "none", "text"],
    )
    def test_a_wrong_wish_prunes_nothing(self, saver: HoldfastSaver, wrong: Any) -> None:
        chain(saver, "a", "b")
        with pytest.raises(InvalidFilter):
            saver.prune(["t"], **wrong)
        assert ids(saver, at()) == ["b", "a"]

    @pytest.mark.parametrize("how", ["delete_thread", "delete_for_runs", "prune"])
    def test_what_is_erased_does_not_stay_in_memory(self, saver: HoldfastSaver, how: str) -> None:
        gone, kept = (f"{word} for good" for word in ("gone", "kept"))
        for thread_id, name, text in (("t", "a", gone), ("other", "b", kept), ("t", "c", "newest")):
            messages = [HumanMessage(f"{n} {text} " * 100, id=str(n)) for n in range(40)]
            values = {"messages": messages, "text": f"{text} " * 2000}
            saver.put(at(thread_id), checkpoint(values, name), {"run_id": name}, {})
            stored = at(thread_id, name)
            saver.put_writes(stored, [("messages", messages)], "task")
            assert saver.get_tuple(stored) is not None
        del messages, values
        assert holds(saver, gone)
        if how == "delete_thread":
            saver.delete_thread("t")
        elif how == "delete_for_runs":
            saver.delete_for_runs(["a"])
        else:
            saver.prune(["t"])
        assert not holds(saver, gone)
        assert ids(saver, at()) == ([] if how == "delete_thread" else ["c"])
        found = saver.get_tuple(at("other"))
        assert found is not None
        assert kept in found.checkpoint["channel_values"]["text"]


def test_of_all_threads_only_those_of_graphs_are_listed(saver: HoldfastSaver) -> None:
    chain(saver, "a")
    manager = SessionManager(saver.store, workspace=False)
    with manager.create_session("me") as session:
        session.save_checkpoint("first", state={"k": 1})
    chain(saver, "b", thread_id="other")
    assert ids(saver, None) == ["b", "a"]
    assert ids(saver, None, limit=1) == ["b"]
    assert ids(saver, None, filter={"step": {"no": 1}}) == []
    cursor: Any = {"configurable": {"checkpoint_id": "b"}}
    assert ids(saver, None, before=cursor) == ["a"]


class TestOpening:
    def test_it_closes_what_it_opened_and_nothing_else(self, tmp_path: Path) -> None:
        with HoldfastSaver(tmp_path / "a.db") as saver:
            chain(saver, "a")
        with pytest.raises(StoreClosed):
            saver.get_tuple(at())
        with open_store(tmp_path / "a.db") as store:
            with HoldfastSaver(store) as saver:
                assert ids(saver, at()) == ["a"]
            store.list_sessions()

        async def use() -> None:
            async with HoldfastSaver(tmp_path / "a.db") as twin:
                assert await twin.aget(at()) is not None
            with pytest.raises(StoreClosed):
                await twin.aget_tuple(at())

        asyncio.run(use())

    def test_a_thread_is_a_session_that_the_manager_sees(self, tmp_path: Path) -> None:
        with SessionManager.open(tmp_path / "a.db", workspace=False) as manager:
            saver = HoldfastSaver(manager)
            chain(saver, "a", "b")
            saver.close()
            (session,) = manager.list_sessions()
            assert (session.id, session.agent_type) == ("t", "langgraph")
            names = [found.name for found in manager.get_session("t").list_checkpoints()]
            assert names == ["b", "a"]

    def test_a_held_session_is_not_written_to(self, tmp_path: Path) -> None:
        with SessionManager.open(tmp_path / "a.db", workspace=False) as manager:
            session = manager.create_session(agent_type="worker")
            with pytest.raises(CheckpointBusy):
                HoldfastSaver(manager).put(at(session.id), checkpoint(), {}, {})

    def test_tenants_see_their_own_threads(self, tmp_path: Path) -> None:
        with HoldfastSaver(tmp_path / "a.db", tenant="one") as saver:
            chain(saver, "a")
        with HoldfastSaver(tmp_path / "a.db", tenant="two") as saver:
            assert saver.get_tuple(at()) is None


def test_versions_go_on_as_a_thread_began(saver: HoldfastSaver) -> None:
    assert saver.get_next_version(None, None) == 1
    assert saver.get_next_version(41, None) == 42
    text = f"{9:032}.{0.25:016}"
    following = saver.get_next_version(text, None)
    assert following > text
    assert following.startswith(f"{10:032}.")


def test_every_method_has_a_twin_with_its_signature() -> None:
    for name, method in inspect.getmembers(HoldfastSaver, inspect.isfunction):
        if name.startswith("_") or f"a{name}" not in dir(HoldfastSaver):
            continue
        twin = getattr(HoldfastSaver, f"a{name}")
        wanted, found = (list(inspect.signature(one).parameters.values()) for one in (method, twin))
        assert [str(one).partition(":")[0] for one in wanted] == [
            str(one).partition(":")[0] for one in found
        ], name
    ours = {name for name in dir(HoldfastSaver) if not name.startswith("_")}
    assert {name for name in dir(BaseCheckpointSaver) if not name.startswith("_")} <= ours


class Notes(TypedDict):
    notes: Annotated[
        list[str],
        DeltaChannel(lambda known, runs: [*known, *chain_of(runs)], snapshot_frequency=3),
    ]


def chain_of(runs: Sequence[list[str]]) -> list[str]:
    return [note for run in runs for note in run]


def notes_graph(saver: HoldfastSaver) -> Any:
    """Return a graph with a channel that is stored whole now and then only."""
    builder = StateGraph(Notes)
    builder.add_sequence(
        [("think", lambda _: {"notes": []}), ("answer", lambda _: {"notes": ["answer"]})]
    )
    builder.add_edge(START, "think")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)
