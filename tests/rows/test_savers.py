"""Savers and the mixin on the databases: restarts, separation, and the example as it was written."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import CheckpointableMixin, CheckpointConfig
from holdfast.errors import CheckpointNotFound, NotInitialised
from holdfast.ids import is_uuid
from holdfast.savers import open_saver
from tests.rows.conftest import Database


class Agent(CheckpointableMixin):
    """An agent that does nothing but save."""


FIRST_RUN = """
    import os, sys
    from holdfast import CheckpointableMixin
    from holdfast.savers import open_saver

    class Agent(CheckpointableMixin):
        pass

    agent = Agent()
    agent.init_checkpointing(open_saver(sys.argv[1]), "job")
    for number in range(1, 4):
        print(agent.save_checkpoint(f"node-{number}", {"n": number}, ("draft",)), flush=True)
    os._exit(9)
"""


@pytest.mark.row("S2-07", "T12")
def test_an_agent_goes_on_in_another_process_with_the_next_step(database: Database) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FIRST_RUN), database.url],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 9, done.stderr
    first, second, third = done.stdout.split()
    assert all(map(is_uuid, (first, second, third)))
    with open_saver(database.url) as saver:
        agent = Agent()
        agent.init_checkpointing(saver, "job")
        assert agent.restore_checkpoint() == {"n": 3}
        fourth = agent.save_checkpoint("node-4", {"n": 4}, tags=("final", "checked"))
        assert agent.restore_checkpoint(id=first) == {"n": 1}
        assert agent.restore_checkpoint(second) == {"n": 2}
        branch = agent.save_checkpoint("node-2b", {"n": 22})

        history = agent.get_checkpoint_history()
        assert [one.config.checkpoint_id for one in history] == [
            branch, fourth, third, second, first,
        ]  # fmt: skip
        assert [one.metadata.step for one in history] == [5, 4, 3, 2, 1]
        assert history[1].metadata.tags == ("final", "checked")
        parents = [
            one.parent_config.checkpoint_id if one.parent_config else None for one in history
        ]
        assert parents == [second, third, second, first, None]
        assert [one.metadata.step for one in agent.get_checkpoint_history(limit=2)] == [5, 4]
        assert len(agent.get_checkpoint_history(2)) == 2
        with pytest.raises(CheckpointNotFound):
            agent.restore_checkpoint("01890000-0000-7000-8000-000000000000")
        elsewhere = Agent()
        elsewhere.init_checkpointing(saver, "job", namespace="other")
        assert elsewhere.restore_checkpoint() is None
        with pytest.raises(CheckpointNotFound):
            elsewhere.restore_checkpoint(first)


@pytest.mark.row("S2-07")
def test_use_before_the_beginning_raises_and_never_returns_an_empty_id() -> None:
    for use in (
        lambda: Agent().save_checkpoint("node", {}),
        lambda: Agent().restore_checkpoint(),
        lambda: Agent().restore_checkpoint("01890000-0000-7000-8000-000000000000"),
        lambda: Agent().get_checkpoint_history(),
    ):
        with pytest.raises(NotInitialised, match="init_checkpointing"):
            use()


THREADS, NAMESPACES = ("a", "b", "ab", "a/b"), ("", "a", "x")
places = st.tuples(st.sampled_from(THREADS), st.sampled_from(NAMESPACES))


@pytest.mark.row("S2-08", "T12")
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.tuples(places, st.integers(0, 6)), max_size=20))
def test_threads_and_namespaces_never_meet_however_they_are_interleaved(
    database: Database, steps: list[tuple[tuple[str, str], int]]
) -> None:
    model: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with open_saver(database.url) as saver:
        for thread in saver.list_threads():
            saver.delete_thread(thread.thread_id)
        for (thread_id, namespace), action in steps:
            config = CheckpointConfig(thread_id, namespace=namespace)
            if action == 0:
                saver.delete_thread(thread_id)
                model = {place: kept for place, kept in model.items() if place[0] != thread_id}
                continue
            state = {"of": [thread_id, namespace], "n": action}
            saved = saver.put(config, state, {"thread": thread_id})
            saver.put_writes(saved, [("channel", thread_id)], "task")
            model.setdefault((thread_id, namespace), []).append(state)
        for thread_id in THREADS:
            for namespace in NAMESPACES:
                config = CheckpointConfig(thread_id, namespace=namespace)
                expected = model.get((thread_id, namespace), [])
                found = list(saver.list(config))
                assert [one.checkpoint for one in found] == expected[::-1]
                assert saver.get(config) == (expected[-1] if expected else None)
                for one in found:
                    assert one.metadata == {"thread": thread_id}
                    assert one.pending_writes == [("task", "channel", thread_id)]


@pytest.mark.row("S2-09", "S2-10", "S2-11", "S2-12", "S2-24")
def test_the_lines_of_the_example_mean_what_they_say(database: Database) -> None:
    checkpoint_data = {"messages": ["hello"], "step": 1}
    metadata = {"source": "input", "agent": "planner"}
    with open_saver(database.url) as saver:
        config = CheckpointConfig(thread_id="session-123")
        assert saver.get_tuple(config) is None
        saved = saver.put(config, checkpoint_data, metadata)
        assert (saved.thread_id, is_uuid(str(saved.checkpoint_id))) == ("session-123", True)
        second = saver.put(config, {"step": 2}, {"agent": "coder"})
        checkpoint = saver.get_tuple(config)
        assert checkpoint is not None
        assert (checkpoint.config, checkpoint.parent_config) == (second, saved)
        assert (checkpoint.checkpoint, checkpoint.metadata) == ({"step": 2}, {"agent": "coder"})
        assert checkpoint.pending_writes == []
        exact = saver.get_tuple(saved)
        assert exact is not None
        assert (exact.checkpoint, exact.parent_config) == (checkpoint_data, None)
        history = list(saver.list(config))
        assert [one.config for one in history] == [second, saved]
        assert [one.config for one in saver.list(config, limit=1)] == [second]
        assert [one.config for one in saver.list(config, before=second)] == [saved]
        narrowed = saver.list(config, filter={"source": "input", "agent": "planner"})
        assert [one.config for one in narrowed] == [saved]
