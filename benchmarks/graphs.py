"""Real graphs of LangGraph with a checkpointer: a person and a model that take turns.

A turn is one ``invoke``: the graph reads its thread, takes a message in, runs a node that answers, and has
stored three checkpoints and what its tasks wrote when it returns.

Those that are compared talk in processes of their own. A program has one checkpointer; in one process the
garbage collector would visit the messages of all, at whose turn it is.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any, Self, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.content import Writer
from benchmarks.harness import timed


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def _added(messages: list[AnyMessage], writes: Sequence[list[AnyMessage]]) -> list[AnyMessage]:
    return [*messages, *(message for write in writes for message in write)]


class DeltaState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_added)]


class Talk:
    """One thread of a graph, with what each of its turns took."""

    def __init__(self, saver: Any, *, schema: type[Any] = State) -> None:
        self.saver = saver
        self.writer = Writer()
        self.texts: list[str] = []
        self.thread: Any = {"configurable": {"thread_id": "talk"}}
        self.times: list[float] = []
        builder = StateGraph(schema)
        builder.add_node("answer", self._answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        self.graph = builder.compile(checkpointer=saver)

    def _answer(self, state: Any) -> Any:
        number = len(state["messages"])
        return {"messages": [AIMessage(self.texts.pop(), id=f"a{number}")]}

    def _turn(self) -> None:
        asked = HumanMessage(self.texts.pop(), id=f"h{len(self.times)}")
        self.graph.invoke({"messages": [asked]}, self.thread)

    def turns(self, count: int) -> None:
        # What they say is made up before the clock runs.
        self.texts += [self.writer.prose(1024) for _ in range(2 * count)]
        for _ in range(count):
            self.times.append(timed(self._turn))

    def history(self, limit: int) -> list[Any]:
        return list(self.graph.get_state_history(self.thread, limit=limit))


class TalkApart:
    """A `Talk` in a process of its own."""

    def __init__(self, open_saver: Callable[[], Any], *, schema: type[Any] = State) -> None:
        self.times: list[float] = []
        self._process = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), _begin, (open_saver, schema)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.shutdown()

    def turns(self, count: int) -> None:
        self.times += self._process.submit(_turns, count).result()

    def messages(self) -> list[AnyMessage]:
        return self._process.submit(_messages).result()

    def time_of_history(self, limit: int) -> float:
        """List the newest states; return how long it took."""
        return self._process.submit(_time_of_history, limit).result()


_talk: Talk


def _begin(open_saver: Callable[[], Any], schema: type[Any]) -> None:
    global _talk
    _talk = Talk(open_saver(), schema=schema)


def _turns(count: int) -> list[float]:
    _talk.turns(count)
    return _talk.times[-count:]


def _messages() -> list[AnyMessage]:
    found: list[AnyMessage] = _talk.graph.get_state(_talk.thread).values["messages"]
    return found


def _time_of_history(limit: int) -> float:
    listed: list[Any] = []
    seconds = timed(lambda: listed.extend(_talk.history(limit)))
    assert len(listed) == limit
    return seconds


def talk_in_turn(turns: int, talks: Sequence[TalkApart], first: int = 0) -> None:
    """Let all talk, one whole conversation after the other, from the ``first`` one on.

    Each begins with an idle disk, or it would wait for what another one wrote. Nobody waits for the disk in the middle
    of it, as no program does: what a conversation leaves there, it may have to wait for itself.
    """
    for talk in (*talks[first:], *talks[:first]):
        os.sync()
        talk.turns(turns)
