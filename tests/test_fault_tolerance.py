"""Agents survive: metadata, savers in memory and in a file, and the mixin on top of them."""

from __future__ import annotations

import stat
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    CheckpointableMixin,
    CheckpointConfig,
    MemoryCheckpointSaver,
    SQLiteCheckpointSaver,
)
from holdfast.errors import InputError, NotInitialised, StateNotSerializable
from holdfast.savers import CheckpointMetadata

pytestmark = pytest.mark.row("S2-18")


@pytest.mark.row("S2-15")
class TestCheckpointMetadata:
    def test_it_is_a_dict_that_keeps_unknown_keys(self) -> None:
        metadata = CheckpointMetadata({"step": 1, "run": "r-7"})
        assert metadata == {"step": 1, "run": "r-7"}
        assert metadata["run"] == "r-7"

    def test_the_usual_keys_are_properties(self) -> None:
        metadata = CheckpointMetadata(source="loop", step=3, node="plan", tags=["a", "b"])
        assert (metadata.source, metadata.step, metadata.node) == ("loop", 3, "plan")
        assert metadata.tags == ("a", "b")

    def test_everything_is_optional(self) -> None:
        metadata = CheckpointMetadata()
        assert (metadata.source, metadata.step, metadata.node, metadata.tags) == (
            None, None, None, (),
        )  # fmt: skip
        assert metadata.created_at is None

    def test_a_step_that_is_no_number_is_none(self) -> None:
        assert CheckpointMetadata(step="three").step is None
        assert CheckpointMetadata(step=True).step is None

    def test_it_comes_back_as_it_was_put(self) -> None:
        saver = MemoryCheckpointSaver()
        put = {"source": "input", "scores": (0.5, 1.0), "at": datetime(2026, 1, 1, tzinfo=UTC)}
        found = saver.get_tuple(saver.put(CheckpointConfig("t"), {}, put))
        assert found is not None
        assert found.metadata == put
        assert isinstance(found.metadata, CheckpointMetadata)

    def test_the_time_of_storing_is_beside_the_keys(self) -> None:
        saver = MemoryCheckpointSaver()
        found = saver.get_tuple(saver.put(CheckpointConfig("t"), {}, {"created_at": "mine"}))
        assert found is not None
        assert found.metadata == {"created_at": "mine"}
        assert found.metadata.created_at is not None
        assert found.metadata.created_at.tzinfo is not None

    def test_without_metadata_it_is_empty(self) -> None:
        saver = MemoryCheckpointSaver()
        found = saver.get_tuple(saver.put(CheckpointConfig("t"), {}))
        assert found is not None
        assert found.metadata == {}

    def test_what_has_no_stored_form_is_refused(self) -> None:
        with pytest.raises(StateNotSerializable, match="metadata"):
            MemoryCheckpointSaver().put(CheckpointConfig("t"), {}, {"client": object()})


@pytest.mark.row("S2-16")
class TestMemoryCheckpointSaver:
    def test_what_is_put_can_be_got(self) -> None:
        saver = MemoryCheckpointSaver()
        config = saver.put(CheckpointConfig("t"), {"n": 1})
        assert saver.get(config) == {"n": 1}

    def test_an_empty_thread_has_no_tuple(self) -> None:
        assert MemoryCheckpointSaver().get_tuple(CheckpointConfig("t")) is None

    def test_the_latest_is_the_last_put(self) -> None:
        saver = MemoryCheckpointSaver()
        for number in range(100):
            saver.put(CheckpointConfig("t"), {"n": number})
        assert saver.get(CheckpointConfig("t")) == {"n": 99}

    @pytest.mark.row("S2-05")
    def test_the_cap_is_exact(self) -> None:
        saver = MemoryCheckpointSaver(max_checkpoints_per_thread=3)
        for number in range(10):
            config = saver.put(CheckpointConfig("t"), {"n": number})
            saver.put_writes(config, [("a", 1)], "task")
            saver.put(CheckpointConfig("t", namespace="sub"), {"n": number})
            assert len(list(saver.list(CheckpointConfig("t")))) == min(number + 1, 3)
        kept = [found.checkpoint["n"] for found in saver.list(CheckpointConfig("t"))]
        assert kept == [9, 8, 7]

    @pytest.mark.parametrize("cap", [0, -1, 2.5, "3", True])
    def test_a_cap_that_keeps_nothing_is_refused(self, cap: Any) -> None:
        with pytest.raises(ValueError, match="max_checkpoints_per_thread"):
            MemoryCheckpointSaver(max_checkpoints_per_thread=cap)

    def test_memory_does_not_grow_with_the_history_of_a_thread(self) -> None:
        saver = MemoryCheckpointSaver()
        messages = []
        for number in range(300):
            messages.append({"content": f"{number} " + "x" * 1000})
            saver.put(CheckpointConfig("t"), {"messages": messages})
        [thread] = saver.list_threads()
        assert thread.size_bytes > 40_000_000
        assert thread.stored_bytes < 4_000_000

    def test_trimmed_and_deleted_content_is_freed(self) -> None:
        saver = MemoryCheckpointSaver(max_checkpoints_per_thread=2)
        for number in range(200):
            saver.put(CheckpointConfig("t"), {"text": f"{number}" * 10_000})
        assert sum(map(len, saver._chunks.values())) < 5_000_000
        assert saver.get(CheckpointConfig("t")) == {"text": "199" * 10_000}
        saver.delete_thread("t")
        assert saver._chunks == {}

    def test_threads_of_a_process_may_share_it(self) -> None:
        saver = MemoryCheckpointSaver()

        def work(name: int) -> None:
            for number in range(50):
                saver.put(CheckpointConfig("shared"), {"from": name, "n": number})
                saver.put(CheckpointConfig(f"own-{name}"), {"fill": "z" * 9000, "n": number})

        workers = [threading.Thread(target=work, args=(name,)) for name in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(list(saver.list_summaries(CheckpointConfig("shared")))) == 300
        for name in range(6):
            assert saver.get(CheckpointConfig(f"own-{name}")) == {"fill": "z" * 9000, "n": 49}

    @pytest.mark.row("S2-05")
    def test_every_get_returns_the_put_before_it(self) -> None:
        saver = MemoryCheckpointSaver(max_checkpoints_per_thread=10)
        config = CheckpointConfig("t")
        for number in range(1000):
            state: dict[str, Any] = {"messages": ["hi"], "step": number, "vars": {"a": [number]}}
            saver.put(config, state, {"step": number})
            state["vars"]["a"].append("later")
            found = saver.get_tuple(config)
            assert found is not None
            assert found.checkpoint == {"messages": ["hi"], "step": number, "vars": {"a": [number]}}
            assert found.metadata.step == number


@pytest.mark.row("S2-17")
class TestSQLiteCheckpointSaver:
    @pytest.mark.row("S2-03", "S2-09", "S2-10", "S2-11", "S2-12", "T12")
    def test_the_example_runs_as_it_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        checkpoint_data = {"messages": ["hello"], "step": 1}
        metadata = {"source": "input"}

        # Create persistent checkpointer
        saver = SQLiteCheckpointSaver("checkpoints.db")

        # Save checkpoint with thread isolation
        config = CheckpointConfig(thread_id="session-123")
        saver.put(config, checkpoint_data, metadata)

        # Resume from checkpoint
        checkpoint = saver.get_tuple(config)

        # List all checkpoints for thread
        history = list(saver.list(config))

        assert checkpoint is not None
        assert checkpoint.checkpoint == checkpoint_data
        assert checkpoint.metadata == metadata
        assert history == [checkpoint]
        saver.close()

    @pytest.mark.row("S2-03")
    def test_another_process_reads_what_was_put(self, tmp_path: Path) -> None:
        path = tmp_path / "checkpoints.db"
        program = """
            import sys
            from holdfast import CheckpointConfig, SQLiteCheckpointSaver

            saver = SQLiteCheckpointSaver(sys.argv[1])
            print(saver.put(CheckpointConfig("t"), {"n": 1, "text": "x" * 5000}).checkpoint_id, flush=True)
            import os
            os._exit(9)
        """
        done = _python(program, str(path))
        assert done.returncode == 9, done.stderr
        with SQLiteCheckpointSaver(path) as saver:
            found = saver.get_tuple(CheckpointConfig("t"))
            assert found is not None
            assert found.config.checkpoint_id == done.stdout.strip()
            assert found.checkpoint == {"n": 1, "text": "x" * 5000}

    def test_it_is_reopened_and_continued(self, tmp_path: Path) -> None:
        for number in range(3):
            with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
                saver.put(CheckpointConfig("t"), {"n": number})
        with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
            history = list(saver.list(CheckpointConfig("t")))
            assert [found.checkpoint["n"] for found in history] == [2, 1, 0]
            assert history[0].parent_config == history[1].config

    @pytest.mark.row("S2-22")
    @pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
    def test_only_its_owner_can_read_the_file(self, tmp_path: Path) -> None:
        with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
            saver.put(CheckpointConfig("t"), {"n": 1})
            for path in tmp_path.iterdir():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path

    @pytest.mark.row("S2-22")
    @pytest.mark.parametrize(
        "thread_id", ["x'; DROP TABLE chunks; --", "../../../tmp/x", '" OR ""="']
    )
    def test_hostile_ids_are_data(self, tmp_path: Path, thread_id: str) -> None:
        with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
            saver.put(CheckpointConfig("kept"), {"n": 0})
            config = saver.put(CheckpointConfig(thread_id, namespace=thread_id), {"n": 1})
            saver.put_writes(config, [(thread_id, 1)], thread_id, thread_id)
            assert saver.get(config) == {"n": 1}
            list(saver.list(config, filter={thread_id: thread_id}))
            saver.delete_thread(thread_id)
            assert saver.get(CheckpointConfig("kept")) == {"n": 0}
        assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"c"}

    def test_a_name_for_memory_is_refused(self) -> None:
        with pytest.raises(InputError, match="file"):
            SQLiteCheckpointSaver(":memory:")

    def test_the_cap_is_exact(self, tmp_path: Path) -> None:
        with SQLiteCheckpointSaver(tmp_path / "c.db", max_checkpoints_per_thread=2) as saver:
            for number in range(5):
                saver.put(CheckpointConfig("t"), {"n": number})
                assert len(list(saver.list(CheckpointConfig("t")))) == min(number + 1, 2)

    def test_tenants_are_apart(self, tmp_path: Path) -> None:
        with (
            SQLiteCheckpointSaver(tmp_path / "c.db", tenant="a") as first,
            SQLiteCheckpointSaver(tmp_path / "c.db", tenant="b") as second,
        ):
            config = first.put(CheckpointConfig("t"), {"n": 1})
            assert second.get_tuple(config) is None
            assert list(second.list_threads()) == []
            second.put(CheckpointConfig("t"), {"n": 2})
            assert first.get(CheckpointConfig("t")) == {"n": 1}

    @pytest.mark.row("S2-06")
    def test_threads_of_a_process_may_share_it(self, tmp_path: Path) -> None:
        with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:

            def work(name: int) -> None:
                for number in range(10):
                    saver.put(CheckpointConfig("shared"), {"from": name, "n": number})

            workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            found = [one.checkpoint for one in saver.list(CheckpointConfig("shared"))]
            assert len(found) == 40
            for name in range(4):
                own = [one["n"] for one in found if one["from"] == name]
                assert own == list(range(10))[::-1]

    @pytest.mark.row("S2-06")
    def test_processes_may_share_it(self, tmp_path: Path) -> None:
        path = tmp_path / "c.db"
        program = """
            import sys
            from holdfast import CheckpointConfig, SQLiteCheckpointSaver

            with SQLiteCheckpointSaver(sys.argv[1]) as saver:
                for n in range(15):
                    saver.put(CheckpointConfig("shared"), {"from": sys.argv[2], "n": n})
        """
        workers = [_start(program, str(path), str(name)) for name in range(3)]
        for worker in workers:
            _, errors = worker.communicate(timeout=60)
            assert worker.returncode == 0, errors
        with SQLiteCheckpointSaver(path) as saver:
            found = [one.checkpoint for one in saver.list(CheckpointConfig("shared"))]
        assert len(found) == 45
        for name in range(3):
            assert [one["n"] for one in found if one["from"] == str(name)] == list(range(15))[::-1]

    def test_states_that_change_in_one_place_come_back_whole(self, tmp_path: Path) -> None:
        state = {"messages": [{"content": "x" * 1000} for _ in range(10)]}
        with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
            for number in range(40):
                state["messages"][number % 10] = {"content": f"{number} " + "y" * 1000}
                config = saver.put(CheckpointConfig("t"), state)
                assert saver.get(config) == state

    def test_a_closed_saver_says_so(self, tmp_path: Path) -> None:
        saver = SQLiteCheckpointSaver(tmp_path / "c.db")
        saver.close()
        saver.close()
        with pytest.raises(Exception, match="closed"):
            saver.put(CheckpointConfig("t"), {"n": 1})


class Worker(CheckpointableMixin):
    """An agent whose every node counts how often it ran."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    def run(self, *, until: int) -> None:
        state = self.restore_checkpoint() or {"done": 0}
        for node in range(state["done"] + 1, until + 1):
            self.ran.append(node)
            self.save_checkpoint(f"node-{node}", {"done": node})


@pytest.mark.row("S2-07")
class TestCheckpointableMixin:
    @pytest.mark.parametrize(
        "use",
        [
            lambda agent: agent.save_checkpoint("node", {}),
            lambda agent: agent.restore_checkpoint(),
            lambda agent: agent.get_checkpoint_history(),
        ],
    )
    def test_use_before_the_beginning_raises(self, use: Any) -> None:
        with pytest.raises(NotInitialised, match="init_checkpointing"):
            use(Worker())

    def test_an_agent_resumes_where_it_stopped(self, tmp_path: Path) -> None:
        with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
            first = Worker()
            first.init_checkpointing(saver, "job")
            first.run(until=6)
        with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
            second = Worker()
            second.init_checkpointing(saver, "job")
            second.run(until=10)
            assert (first.ran, second.ran) == ([1, 2, 3, 4, 5, 6], [7, 8, 9, 10])
            steps = [found.metadata.step for found in second.get_checkpoint_history()]
            assert steps == list(range(1, 11))[::-1]

    @pytest.mark.row("T12")
    def test_the_count_of_steps_goes_on_after_the_highest(self) -> None:
        saver = MemoryCheckpointSaver()
        one, two = Worker(), Worker()
        one.init_checkpointing(saver, "job")
        two.init_checkpointing(saver, "job")
        for _ in range(3):
            one.save_checkpoint("a", {})
        two.save_checkpoint("b", {})
        third = Worker()
        third.init_checkpointing(saver, "job")
        third.save_checkpoint("c", {})
        assert third.get_checkpoint_history(1)[0].metadata.step == 4

    @pytest.mark.row("T12")
    def test_namespaces_of_one_thread_are_apart(self) -> None:
        saver = MemoryCheckpointSaver()
        one, two = Worker(), Worker()
        one.init_checkpointing(saver, "job", namespace="one")
        two.init_checkpointing(saver, "job", namespace="two")
        made = one.save_checkpoint("a", {"of": "one"})
        assert two.restore_checkpoint() is None
        two.save_checkpoint("a", {"of": "two"})
        assert one.restore_checkpoint() == {"of": "one"}
        with pytest.raises(LookupError):
            two.restore_checkpoint(made)


def _start(program: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _python(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
