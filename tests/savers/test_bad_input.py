"""What a saver cannot take is refused alike on every backend, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import BaseCheckpointSaver, CheckpointableMixin, CheckpointConfig
from holdfast.errors import InputError, StateNotSerializable
from holdfast.savers import open_saver


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseCheckpointSaver]:
    url = {"memory": "memory:", "sqlite": str(tmp_path / "s.db")}.get(request.param)
    with open_saver(url or request.getfixturevalue("postgres_url")) as opened:
        yield opened


@pytest.mark.parametrize("writes", [None, 5, "ab", ["ab"], [("a", 1, 2)], [5]], ids=repr)
def test_writes_are_pairs(saver: BaseCheckpointSaver, writes: Any) -> None:
    config = saver.put(CheckpointConfig("t"), {"n": 1})
    with pytest.raises(InputError, match="pairs"):
        saver.put_writes(config, writes, "task")
    found = saver.get_tuple(config)
    assert found is not None
    assert found.pending_writes == []


@pytest.mark.parametrize("metadata", [[1], [], "text", 5], ids=repr)
def test_metadata_is_a_dict(saver: BaseCheckpointSaver, metadata: Any) -> None:
    with pytest.raises(StateNotSerializable, match="metadata"):
        saver.put(CheckpointConfig("t"), {"n": 1}, metadata)
    assert saver.get_tuple(CheckpointConfig("t")) is None


def test_the_id_of_a_thread_is_a_text(saver: BaseCheckpointSaver) -> None:
    saver.put(CheckpointConfig("t"), {"n": 1})
    wrong: Any = ((["t"], "copy"), (5, "copy"), ("t", 5))
    for names in wrong:
        with pytest.raises(InputError):
            saver.copy_thread(*names)
    with pytest.raises(InputError):
        saver.delete_thread(["t"])  # type: ignore[arg-type]
    assert [one.thread_id for one in saver.list_threads()] == ["t"]


@pytest.mark.parametrize("config", ["t", ("t",), {"configurable": {"thread_id": "t"}}], ids=repr)
def test_a_config_is_no_bare_id(saver: BaseCheckpointSaver, config: Any) -> None:
    known = saver.put(CheckpointConfig("t"), {"n": 1})
    calls: list[Callable[[], object]] = [
        lambda: saver.put(config, {"n": 2}),
        lambda: saver.put_writes(config, [("c", 1)], "task"),
        lambda: saver.get_tuple(config),
        lambda: saver.get(config),
        lambda: list(saver.list(config)),
        lambda: list(saver.list(None, before=config)),
        lambda: list(saver.list_summaries(config)),
    ]
    for call in calls:
        with pytest.raises(InputError, match="must be a CheckpointConfig"):
            call()
    assert [one.config for one in saver.list(None)] == [known]


def test_tags_are_no_single_text(saver: BaseCheckpointSaver) -> None:
    class Planner(CheckpointableMixin):
        pass

    planner = Planner()
    planner.init_checkpointing(saver, "t")
    with pytest.raises(InputError, match=r"tags are a list.*\['draft'\]"):
        planner.save_checkpoint("plan", {"n": 1}, tags="draft")
    assert saver.list_threads() == []
    planner.save_checkpoint("plan", {"n": 1}, tags=["draft"])
    assert planner.get_checkpoint_history()[0].metadata.tags == ("draft",)
