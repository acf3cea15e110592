"""A workflow of Microsoft Agent Framework that waits for an answer, which another process brings.

    pip install 'holdfast[agent-framework]'
    python examples/agent-framework.py ask
    python examples/agent-framework.py yes      # or: no

Checkpoints are kept in workflows.db.
"""

import asyncio
import sys
from dataclasses import dataclass

from agent_framework import Executor, WorkflowBuilder, WorkflowContext, handler, response_handler

from holdfast.integrations.agent_framework import HoldfastCheckpointStorage


@dataclass
class Payment:
    order: int
    amount: int


class Clerk(Executor):
    """Asks before it pays."""

    @handler
    async def ask(self, order: int, ctx: WorkflowContext) -> None:
        await ctx.request_info(Payment(order, 20), bool)

    @response_handler
    async def pay(self, asked: Payment, yes: bool, ctx: WorkflowContext[None, str]) -> None:
        outcome = f"paid {asked.amount}" if yes else "not paid"
        await ctx.yield_output(f"order {asked.order}: {outcome}")


async def main(command):
    # Objects are stored for classes that are named here, and made of no others.
    storage = HoldfastCheckpointStorage("workflows.db", types=[Payment])
    clerk = Clerk(id="clerk")
    workflow = WorkflowBuilder(
        start_executor=clerk, checkpoint_storage=storage, name="payments"
    ).build()
    if command == "ask":
        result = await workflow.run(7)
        for event in result.get_request_info_events():
            print(f"waits: may {event.data.amount} be paid for order {event.data.order}?")
    else:
        latest = await storage.get_latest(workflow_name="payments")
        answers = dict.fromkeys(latest.pending_request_info_events, command == "yes")
        result = await workflow.run(checkpoint_id=latest.checkpoint_id, responses=answers)
        print(*result.get_outputs())
    await storage.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
