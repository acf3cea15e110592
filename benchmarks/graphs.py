"""Real graphs of LangGraph with a checkpointer: a person and a model that take turns.

A turn is one ``invoke``: the graph reads its thread, takes a message in, runs a node that answers, and has
stored three checkpoints and what its tasks wrote when it returns.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

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


def take_turns_talking(count: int, *talks: Talk, run: int = 25) -> None:
    """Let all talk for so many turns, in runs, with an idle disk before each.

    A turn after the other's writes would wait for them.
    """
    for begun in range(0, count, run):
        for talk in talks:
            os.sync()
            talk.turns(min(run, count - begun))
