"""A workflow that pays orders one after the other and asks before the last one.

It kills itself while it pays the order that it is told to die at.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from agent_framework import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)

from holdfast.integrations.agent_framework import HoldfastCheckpointStorage

LAST = 4


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True, slots=True)
class Order:
    number: int
    size: Size
    tags: tuple[str, ...] = ()


@dataclass
class Approval:
    order: Order


TYPES = (Size, Order, Approval)


class Begin(Executor):
    """Sends the first order."""

    @handler
    async def begin(self, first: int, ctx: WorkflowContext[Order]) -> None:
        await ctx.send_message(Order(first, Size.SMALL, ("new",)))


class Pay(Executor):
    """Pays an order and sends the next one to itself; asks about the last one."""

    def __init__(self, ledger: Path, die: int) -> None:
        super().__init__(id="pay")
        self._ledger = ledger
        self._die = die
        self._paid: list[int] = []

    @handler
    async def pay(self, order: Order, ctx: WorkflowContext[Order]) -> None:
        if order.number == LAST:
            await ctx.request_info(Approval(order), bool)
            return
        self._note(order)
        await ctx.send_message(Order(order.number + 1, Size.LARGE))

    @response_handler
    async def decided(
        self, asked: Approval, approved: bool, ctx: WorkflowContext[Order, str]
    ) -> None:
        if approved:
            self._note(asked.order)
        await ctx.yield_output(f"paid {self._paid}, the last one was {asked.order.size.value}")

    def _note(self, order: Order) -> None:
        if order.number == self._die:
            os.kill(os.getpid(), signal.SIGKILL)
        self._paid.append(order.number)
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(f"{order.number}\n")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"paid": self._paid}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._paid = state["paid"]


def make_workflow(storage: Any, ledger: Path, die: int = 0) -> Workflow:
    begin, pay = Begin(id="begin"), Pay(ledger, die)
    builder = WorkflowBuilder(start_executor=begin, checkpoint_storage=storage, name="shop")
    return builder.add_edge(begin, pay).add_edge(pay, pay).build()


async def go_on(url: str, ledger: Path, die: int = 0, *, approved: bool | None = None) -> Any:
    """Run the workflow from where it stands, until it ends or asks."""
    storage = HoldfastCheckpointStorage(url, types=TYPES)
    workflow = make_workflow(storage, ledger, die)
    latest = await storage.get_latest(workflow_name="shop")
    if latest is None:
        result = await workflow.run(1)
    else:
        answers: dict[str, Any] = {}
        if approved is not None:
            answers = dict.fromkeys(latest.pending_request_info_events, approved)
        result = await workflow.run(checkpoint_id=latest.checkpoint_id, responses=answers or None)
    await storage.close()
    return result
