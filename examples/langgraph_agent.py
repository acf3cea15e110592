"""A LangGraph agent with a tool, stopped for approval and continued by a saver that was opened anew.

    pip install 'holdfast[langgraph]' langgraph
    python examples/langgraph_agent.py

The model is a script, so it needs no key and no network.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from holdfast.integrations.langgraph import HoldfastSaver

CALL = {"name": "refund", "args": {"order": 7, "euros": 40}, "id": "call-1"}
SCRIPT = [
    AIMessage("", tool_calls=[CALL]),
    AIMessage("Order 7 is refunded."),
]


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def build(model: GenericFakeChatModel, paid: list[int], saver: HoldfastSaver) -> Any:
    def think(state: State) -> State:
        return {"messages": [model.invoke(state["messages"])]}

    def refund(state: State) -> State:
        (call,) = state["messages"][-1].tool_calls  # type: ignore[union-attr]
        if interrupt({"refund": call["args"]}) != "approved":
            return {"messages": [ToolMessage("refused", tool_call_id=call["id"])]}
        paid.append(call["args"]["euros"])
        return {"messages": [ToolMessage("done", tool_call_id=call["id"])]}

    def asks_for_a_tool(state: State) -> str:
        return "refund" if state["messages"][-1].tool_calls else END  # type: ignore[union-attr]

    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("refund", refund)
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", asks_for_a_tool)
    builder.add_edge("refund", "think")
    return builder.compile(checkpointer=saver)


def main() -> None:
    thread: Any = {"configurable": {"thread_id": "customer-7"}}
    model = GenericFakeChatModel(messages=iter(SCRIPT))
    paid: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "agent.db"
        with HoldfastSaver(database) as saver:
            graph = build(model, paid, saver)
            stopped = graph.invoke({"messages": [HumanMessage("Refund order 7")]}, thread)
            print("asks:", stopped["__interrupt__"][0].value)

        # Nothing of the first graph is used any more; another process would do the same.
        with HoldfastSaver(database) as saver:
            graph = build(model, paid, saver)
            ended = graph.invoke(Command(resume="approved"), thread)
            print("says:", ended["messages"][-1].content)
            print("paid:", paid)
            print("checkpoints:", len(list(saver.list(thread))))


if __name__ == "__main__":
    main()
