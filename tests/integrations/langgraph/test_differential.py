"""Random graphs go, step by step, as they do with LangGraph's own checkpointers."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from holdfast.integrations.langgraph import HoldfastSaver
from tests.integrations.langgraph.random_graphs import run

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")


def compare(seen: list[Any], expected: list[Any]) -> None:
    for number, (mine, theirs) in enumerate(zip_longest(seen, expected)):
        assert mine[:2] == theirs[:2], f"turn {number}"
        for place, (one, other) in enumerate(zip_longest(mine[2], theirs[2])):
            assert one == other, f"turn {number}, {place} before the newest"


@pytest.mark.row("S2-01")
@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_go_as_with_the_checkpointer_in_memory(url: str, seed: int) -> None:
    with HoldfastSaver(url) as saver:
        compare(run(seed, saver), run(seed, InMemorySaver()))


@pytest.mark.parametrize("seed", range(10, 12))
def test_random_graphs_go_as_with_langgraphs_sqlite(tmp_path: Path, seed: int) -> None:
    with (
        HoldfastSaver(tmp_path / "ours.db") as saver,
        SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as peer,
    ):
        compare(run(seed, saver), run(seed, peer))


@pytest.mark.parametrize("seed", [204, 212])
def test_random_graphs_that_store_at_their_end_only_go_the_same_way(
    tmp_path: Path, seed: int
) -> None:
    with HoldfastSaver(tmp_path / "ours.db") as saver:
        compare(run(seed, saver, "exit"), run(seed, InMemorySaver(), "exit"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_graphs_go_as_with_the_checkpointer_in_memory(
    tmp_path: Path, seed: int
) -> None:
    with HoldfastSaver(tmp_path / "ours.db") as saver:
        compare(run(seed, saver), run(seed, InMemorySaver()))
