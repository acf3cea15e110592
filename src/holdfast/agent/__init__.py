"""A small agent whose runs survive crashes, deploys, and people who take their time.

    from holdfast import Agent, AgentSuspended, SQLiteCheckpointer
    from holdfast.agent import Reply, ToolCall, tool

    @tool(needs_approval=True)
    def refund(order: str, amount: float) -> str: ...

    agent = Agent(model=model, tools=[refund], checkpointer=SQLiteCheckpointer("agent.db"))

A tool that needs approval suspends the run with `AgentSuspended`, which is stored by then. Any process
resumes it with an approver or with decisions, once. `holdfast.agent.messages` describes what a model is,
`holdfast.agent.snapshot` what is stored, `holdfast.agent.run` in which order.
"""

from holdfast.agent.agent import Agent
from holdfast.agent.approvals import decide, pending_calls
from holdfast.agent.decisions import Approver, Decidable, Decision, PendingCall
from holdfast.agent.messages import (
    Budget,
    Message,
    Model,
    Reply,
    RunResult,
    ToolCall,
    ToolSpec,
    Usage,
)
from holdfast.agent.saving import Checkpointer, SaveOn, Step, Trigger
from holdfast.agent.snapshot import Migration
from holdfast.agent.tools import NeedsApproval, Tool, tool
from holdfast.errors import AgentSuspended

__all__ = [
    "Agent",
    "AgentSuspended",
    "Approver",
    "Budget",
    "Checkpointer",
    "Decidable",
    "Decision",
    "Message",
    "Migration",
    "Model",
    "NeedsApproval",
    "PendingCall",
    "Reply",
    "RunResult",
    "SaveOn",
    "Step",
    "Tool",
    "ToolCall",
    "ToolSpec",
    "Trigger",
    "Usage",
    "decide",
    "pending_calls",
    "tool",
]
