"""Random graphs, and random things done to them: the same for the same seed, with any checkpointer.

`run` does them with one checkpointer and tells what it saw after each: results, states, histories. Ids of
checkpoints and tasks differ from run to run, so they are told by their place in the history.
"""

from __future__ import annotations

import operator
from random import Random
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt


def extended(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]
    notes: Annotated[list[Any], DeltaChannel(extended, snapshot_frequency=3)]
    count: int


def _plain(name: str) -> Any:
    def node(state: State) -> State:
        count = state.get("count", 0) + 1
        said = AIMessage(f"{name} {count}", id=f"{name}-{count}")
        return {"messages": [said], "log": [name], "notes": [{name: count}], "count": count}

    return node


def _forgetful(name: str) -> Any:
    def node(state: State) -> State:
        messages = state.get("messages", [])
        gone: list[Any] = [RemoveMessage(id=str(messages[0].id))] if messages else []
        return {"messages": gone, "log": [name]}

    return node


def _asking(name: str) -> Any:
    def node(state: State) -> State:
        first = interrupt({"asks": name, "count": state.get("count", 0)})
        second = interrupt("sure?") if first == "maybe" else first
        return {"log": [f"{name}: {first}, {second}"], "notes": [second]}

    return node


def _worker(state: Any) -> State:
    return {"log": [f"worker {state['part']}"], "notes": [state["part"]]}


def _inner(random: Random) -> Any:
    builder = StateGraph(State)
    builder.add_node("inner one", _plain("inner one"))
    builder.add_node("inner two", _asking("inner two") if random.random() < 0.5 else _plain("two"))
    builder.add_edge(START, "inner one").add_edge("inner one", "inner two")
    return builder.compile()


def build(random: Random, checkpointer: Any) -> Any:
    """Return a random graph of a few nodes in a row, some of which ask, fan out or are graphs."""
    builder = StateGraph(State)
    names: list[str] = []
    for number in range(random.randint(2, 4)):
        kind = random.choice(["plain", "plain", "asking", "forgetful", "graph", "parallel", "send"])
        name = f"{kind}{number}"
        before = names[-1] if names else START
        if kind == "plain":
            builder.add_node(name, _plain(name))
        elif kind == "forgetful":
            builder.add_node(name, _forgetful(name))
        elif kind == "asking":
            builder.add_node(name, _asking(name))
        elif kind == "graph":
            builder.add_node(name, _inner(random))
        elif kind == "parallel":
            builder.add_node(f"{name}a", _asking(f"{name}a"))
            builder.add_node(f"{name}b", lambda state, name=name: {"log": [name], "notes": [name]})
            builder.add_node(name, lambda state: {})
            builder.add_edge(before, f"{name}a").add_edge(before, f"{name}b")
            builder.add_edge([f"{name}a", f"{name}b"], name)
        else:
            builder.add_node(f"worker{number}", _worker)
            builder.add_node(name, lambda state: {})
            parts = [Send(f"worker{number}", {"part": part}) for part in range(3)]
            builder.add_conditional_edges(before, lambda state, parts=parts: parts)
            builder.add_edge(f"worker{number}", name)
        if kind not in ("parallel", "send"):
            builder.add_edge(before, name)
        names.append(name)
    builder.add_edge(names[-1], END)
    return builder.compile(checkpointer=checkpointer)


def run(seed: int, checkpointer: Any, durability: str = "async") -> list[Any]:
    """Do eight random things to a random graph and return what was seen after each."""
    random = Random(seed)
    graph = build(random, checkpointer)
    thread: Any = {"configurable": {"thread_id": f"thread-{seed}"}}
    seen: list[Any] = []
    for turn in range(8):
        history = list(graph.get_state_history(thread))
        config = thread
        if len(history) > 2 and random.random() < 0.35:
            config = history[random.randrange(len(history))].config
        choice = random.choice(["say", "say", "answer", "answer", "go on", "edit"])
        done: Any
        if choice == "say" or not history:
            done = _invoke(
                graph, {"messages": [HumanMessage(f"h{turn}", id=f"h{turn}")]}, config, durability
            )
        elif choice == "answer":
            done = _invoke(
                graph, Command(resume=random.choice(["yes", "maybe"])), config, durability
            )
        elif choice == "go on":
            done = _invoke(graph, None, config, durability)
        else:
            done = _edit(graph, config, turn)
        seen.append((choice, done, picture(graph, thread)))
    return seen


def _invoke(graph: Any, given: Any, config: Any, durability: str) -> Any:
    try:
        result = graph.invoke(given, config, durability=durability)
    except Exception as error:
        # What a graph refuses it refuses with every checkpointer.
        return type(error).__name__
    asked = [one.value for one in result.pop("__interrupt__", ())]
    return result, asked


def _edit(graph: Any, config: Any, turn: int) -> Any:
    try:
        graph.update_state(config, {"log": [f"edit {turn}"], "notes": [turn], "count": 100 + turn})
    except Exception as error:
        return type(error).__name__
    return "edited"


def picture(graph: Any, thread: Any) -> list[Any]:
    """Return the whole history of a thread, newest first, without ids."""
    history = list(graph.get_state_history(thread))
    place = {
        one.config["configurable"]["checkpoint_id"]: at for at, one in enumerate(history[::-1])
    }
    return [
        {
            "values": one.values,
            "next": one.next,
            "source": one.metadata.get("source"),
            "step": one.metadata.get("step"),
            # LangGraph's own serializer makes lists of tuples; ours leaves them alone.
            "counters": {
                name: list(pair)
                for name, pair in one.metadata.get("counters_since_delta_snapshot", {}).items()
            },
            "parent": None
            if one.parent_config is None
            else place[one.parent_config["configurable"]["checkpoint_id"]],
            "tasks": [
                (task.name, task.path, task.error, [asked.value for asked in task.interrupts])
                for task in one.tasks
            ],
        }
        for one in history
    ]
