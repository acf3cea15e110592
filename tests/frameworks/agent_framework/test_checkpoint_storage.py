"""Checkpoints of workflows come back as they were, and make objects of no class that is not allowed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    AgentExecutorRequest,
    AgentResponse,
    BaseChatClient,
    ChatResponse,
    Content,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowMessage,
    handler,
    response_handler,
)
from pydantic import AliasPath, BaseModel, ConfigDict, Field, Json, SecretStr, computed_field

from holdfast import SessionManager
from holdfast.errors import ForeignSession, InvalidIdentifier, StateNotSerializable
from holdfast.integrations import agent_framework
from holdfast.integrations.agent_framework import HoldfastCheckpointStorage, forms, storage
from holdfast.model import CheckpointQuery
from holdfast.stores import Store
from tests.docstrings import undescribed
from tests.frameworks.agent_framework.shop import TYPES, Approval, Order, Size, go_on
from tests.frameworks.programs import run_example, start
from tests.pages import ROOT, run_page

PAGE = ROOT / "docs" / "how-to" / "agent-framework.md"


class Note(BaseModel):
    text: str
    when: datetime


class Animal(BaseModel):
    name: str


class Dog(Animal):
    tail: int


class Owner(BaseModel):
    animal: Animal
    anything: Any = None


class Login(BaseModel):
    password: SecretStr


class Renamed(BaseModel):
    """Its fields have other names, each in another way, where it is written or read."""

    model_config = ConfigDict(extra="allow")
    both: str = Field(alias="first")
    read: str = Field(validation_alias="in")
    written: str = Field(validation_alias="out", serialization_alias="outside")
    down: str = Field(validation_alias=AliasPath("deep", "down"))
    document: Json[Any] = Field(alias="doc")


class Square(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class Rooms(BaseModel):
    rooms: list[Square]


class Odd:
    """Writes what it cannot read."""

    def to_dict(self) -> dict[str, Any]:
        return {"size": "large"}

    @classmethod
    def from_dict(cls, form: dict[str, Any]) -> Odd:
        raise ValueError(f"no {form}")


@dataclass
class Secret:
    word: str


def checkpoint(number: int, workflow: str = "w", **fields: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(
        workflow_name=workflow,
        graph_signature_hash="hash",
        checkpoint_id=f"c{number}",
        timestamp=datetime.fromtimestamp(number, UTC).isoformat(),
        iteration_count=number,
        **fields,
    )


async def keeping(storage: Any) -> Any:
    seen: list[Any] = [await storage.get_latest(workflow_name="w"), await storage.delete("c1")]
    seen += [await storage.save(checkpoint(number, state={"n": [number]})) for number in (1, 2, 3)]
    await storage.save(checkpoint(4, "other"))
    again = checkpoint(2, state={"n": "replaced"})
    await storage.save(again)
    again.state["n"] = "changed later"
    seen += [await storage.load(f"c{number}") for number in (1, 2, 3, 4)]
    for workflow in ("w", "other", "nowhere"):
        seen.append(await storage.list_checkpoints(workflow_name=workflow))
        seen.append(await storage.list_checkpoint_ids(workflow_name=workflow))
        seen.append(await storage.get_latest(workflow_name=workflow))
    seen += [await storage.delete("c3"), await storage.delete("c3")]
    with pytest.raises(WorkflowCheckpointException):
        await storage.load("c3")
    latest = await storage.get_latest(workflow_name="w")
    latest.state["n"] = "changed"
    return [*seen, await storage.get_latest(workflow_name="w")]


def test_it_does_what_the_storage_of_the_package_does(store: Store) -> None:
    theirs = asyncio.run(keeping(InMemoryCheckpointStorage()))
    assert asyncio.run(keeping(HoldfastCheckpointStorage(store))) == theirs


@pytest.mark.parametrize("no_id", [None, "", 2, b"c1"], ids=repr)
def test_what_is_no_id_means_no_checkpoint(store: Store, no_id: Any) -> None:
    async def work(storage: Any) -> Any:
        first = checkpoint(1)
        await storage.save(first)
        await storage.save(checkpoint(2))
        assert first.previous_checkpoint_id is None
        with pytest.raises(WorkflowCheckpointException):
            await storage.load(no_id)
        assert await storage.delete(no_id) is False
        return await storage.list_checkpoint_ids(workflow_name="w")

    theirs = asyncio.run(work(InMemoryCheckpointStorage()))
    assert asyncio.run(work(HoldfastCheckpointStorage(store))) == theirs == ["c1", "c2"]


@pytest.mark.parametrize("no_id", [None, "", 2], ids=repr)
def test_a_checkpoint_without_an_id_is_refused(store: Store, no_id: Any) -> None:
    async def work() -> None:
        storage, given = HoldfastCheckpointStorage(store), checkpoint(1)
        given.checkpoint_id = no_id
        with pytest.raises(InvalidIdentifier, match="external id"):
            await storage.save(given)
        assert await storage.list_checkpoint_ids(workflow_name="w") == []

    asyncio.run(work())


def test_everything_comes_back_as_it_was(store: Store) -> None:
    order = Order(7, Size.LARGE, ("a", "b"))
    state = {
        "plain": [1, 2.5, None, True, "ü\0", b"\xff", (1, (2,)), {3, 4}, frozenset({5})],
        "time": datetime(2026, 1, 2, tzinfo=UTC),
        "objects": {
            "order": order,
            "sizes": [Size.SMALL],
            "note": Note(text="x", when=datetime.now(UTC)),
        },
        "looks like one": {"$class": "tests:Secret", "value": {"$class": "dict", "items": {}}},
        "inner": checkpoint(9, "sub", state={"order": order}),
        "keys": {Size.SMALL: 1, 2: order, (3, order): {"4": 5}, "$class": None},
        "sets": [{Size.SMALL, Size.LARGE}, frozenset({order, 1}), {(order, 2)}],
    }
    messages = [Message(role="user", contents=["hello", Content.from_text("there")])]
    sent = WorkflowMessage(
        data=AgentExecutorRequest(messages=messages), source_id="a", target_id="b"
    )
    event = WorkflowEvent.request_info(
        request_id="r", source_executor_id="a", request_data=Approval(order), response_type=bool
    )

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, types=[*TYPES, Note])
        given = checkpoint(
            1, state=state, messages={"a": [sent]}, pending_request_info_events={"r": event}
        )
        await storage.save(given)
        found = await HoldfastCheckpointStorage(store, types=[*TYPES, Note]).load("c1")
        assert found.state == state
        [[back]] = found.messages.values()
        assert (back.source_id, back.target_id, back.type) == ("a", "b", sent.type)
        assert [one.to_dict() for one in back.data.messages] == [one.to_dict() for one in messages]
        asked = found.pending_request_info_events["r"]
        assert (asked.data, asked.request_type, asked.response_type) == (event.data, Approval, bool)

    asyncio.run(work())


def test_a_class_that_is_not_allowed_is_refused_where_it_stands(store: Store) -> None:
    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, types=[Approval])
        bad: list[tuple[dict[str, Any], str]] = [
            ({"a": [{"b": Secret("x")}]}, r"\$\.state\.a\[0\]\.b.*Secret"),
            ({"a": Approval(Order(1, Size.SMALL))}, r"\$\.state\.a\.order.*Order"),
            ({"a": Size.SMALL}, r"\$\.state\.a.*Size"),
            ({"a": defaultdict(list)}, r"\$\.state\.a.*defaultdict"),
            ({"a": Note(text="x", when=datetime.now(UTC))}, r"\$\.state\.a.*Note"),
            ({"a": object()}, r"state\.a"),
        ]
        for state, where in bad:
            with pytest.raises(StateNotSerializable, match=where):
                await storage.save(checkpoint(1, state=state))
        for kind in (
            Secret,
            list[Secret],
            Secret | None,
            Callable[[int], str],
            Annotated[int, "n"],
        ):
            event = WorkflowEvent.request_info(
                request_id="r", source_executor_id="a", request_data="?", response_type=kind
            )
            with pytest.raises(StateNotSerializable, match="asks for a"):
                await storage.save(checkpoint(1, pending_request_info_events={"r": event}))
        assert await storage.list_checkpoint_ids(workflow_name="w") == []

    asyncio.run(work())


def test_an_object_that_would_come_back_as_another_is_refused(store: Store) -> None:
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    bad: list[tuple[Any, str]] = [
        (Login(password=SecretStr("x")), r"\$\.state\.a.*Login would come back as another"),
        (Owner(animal=Dog(name="a", tail=1)), r"\$\.state\.a.*Owner would come back as another"),
        (Owner(animal=Animal(name="a"), anything=(1, 2)), "Owner would come back as another"),
        (Owner(animal=Animal(name="a"), anything=object()), "Owner does not come back"),
        (Odd(), r"\$\.state\.a.*Odd does not come back.*no \{'size': 'large'\}"),
        (holds_itself, "it holds itself"),
    ]

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, types=[Login, Owner, Animal, Dog, Odd])
        for value, why in bad:
            with pytest.raises(StateNotSerializable, match=why):
                await storage.save(checkpoint(1, state={"a": value}))
        kept = [Owner(animal=Animal(name="a"), anything=[1, "x"]), Dog(name="b", tail=1)]
        await storage.save(checkpoint(1, state={"a": kept}))
        assert (await storage.load("c1")).state == {"a": kept}

    asyncio.run(work())


def test_a_dataclass_that_could_not_be_made_again_is_refused(store: Store) -> None:
    @dataclass
    class Failed(Exception):
        step: str

    @dataclass
    class Counted(dict[str, int]):
        unit: str

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, types=[Failed, Counted])
        await storage.save(checkpoint(1))
        for value in (Failed("pay"), Counted("m")):
            with pytest.raises(StateNotSerializable, match=r"\$\.state\.a\[0\].*made again"):
                await storage.save(checkpoint(2, state={"a": [value]}))
        [found] = await storage.list_checkpoints(workflow_name="w")
        assert found.checkpoint_id == "c1"

    asyncio.run(work())


def test_models_come_back_whatever_they_are_called_elsewhere(store: Store) -> None:
    kept: list[Any] = [
        Renamed.model_validate(
            {
                "first": "a",
                "in": "b",
                "out": "c",
                "deep": {"down": "d"},
                "doc": '{"n": [1]}',
                "more": 1,
            }
        ),
        Square(side=2),
    ]
    kept.append(Rooms(rooms=kept[1:]))

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, types=[Renamed, Square, Rooms])
        await storage.save(checkpoint(1, state={"a": kept}))
        assert (await storage.load("c1")).state == {"a": kept}

    asyncio.run(work())


@pytest.mark.parametrize(
    "kind",
    [
        Any, object, str | None, Order | None, int | Size, list[str], dict[str, list[int]], tuple[int, ...],
        Literal["yes", Size.SMALL, None], list[Message] | Literal[1], date,
    ],
    ids=str,
)  # fmt: skip
def test_answers_of_every_kind_of_type_can_be_waited_for(kind: Any) -> None:
    async def work() -> None:
        storage = HoldfastCheckpointStorage("memory:", types=[*TYPES, date])
        event = WorkflowEvent.request_info(
            request_id="r", source_executor_id="a", request_data="?", response_type=kind
        )
        await storage.save(
            checkpoint(1, pending_request_info_events={"r": event}, state={"a": date.min})
        )
        found = await storage.load("c1")
        assert found.pending_request_info_events["r"].response_type == kind
        assert found.state == {"a": date.min}
        await storage.close()

    asyncio.run(work())


def test_an_answer_is_waited_for_elsewhere_though_its_type_is_no_class(store: Store) -> None:
    class Asks(Executor):
        @handler
        async def ask(self, number: int, ctx: WorkflowContext) -> None:
            await ctx.request_info("whom?", str | None)

        @response_handler
        async def answer(
            self, asked: str, whom: str | None, ctx: WorkflowContext[None, str]
        ) -> None:
            await ctx.yield_output(f"{asked} {whom}")

    def make(storage: Any) -> Any:
        return WorkflowBuilder(
            start_executor=Asks(id="asks"), checkpoint_storage=storage, name="w"
        ).build()

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store)
        await make(storage).run(1)
        latest = await storage.get_latest(workflow_name="w")
        assert latest is not None
        answers = dict.fromkeys(latest.pending_request_info_events, "Ann")
        result = await make(storage).run(checkpoint_id=latest.checkpoint_id, responses=answers)
        assert result.get_outputs() == ["whom? Ann"]

    asyncio.run(work())


def test_what_was_made_of_an_answer_is_kept(store: Store) -> None:
    text = '{"name": "Rex"}'
    said = [Message(role="assistant", contents=[text])]
    responses = [
        AgentResponse(messages=said, value={"name": "Rex"}),
        AgentResponse(messages=said, value=Animal(name="Rex")),
        AgentResponse(messages=said, response_format=Animal),
        AgentResponse(messages=said, response_format=Dog),  # which it is not
        AgentResponse(messages=said),
    ]
    expected = [{"name": "Rex"}, Animal(name="Rex"), Animal(name="Rex"), None, None]

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, types=[Animal])
        await storage.save(checkpoint(1, state={"a": responses}))
        found = (await storage.load("c1")).state["a"]
        assert [one.value for one in found] == expected
        assert [one.text for one in found] == [text] * 5
        with pytest.raises(StateNotSerializable, match="Animal"):
            await HoldfastCheckpointStorage(store).save(checkpoint(2, state={"a": responses}))

    asyncio.run(work())


def test_a_field_that_is_not_set_yet_is_not_set_then(store: Store) -> None:
    @dataclass(slots=True)
    class Job:
        name: str
        result: str = field(init=False)

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, types=[Job])
        new, done = Job("a"), Job("b")
        done.result = "done"
        await storage.save(checkpoint(1, state={"new": new, "done": done}))
        state = (await storage.load("c1")).state
        assert state["done"] == done
        assert (state["new"].name, hasattr(state["new"], "result")) == ("a", False)

    asyncio.run(work())


def test_a_class_that_has_changed_is_said_to_have(store: Store) -> None:
    @dataclass
    class Longer:
        word: str
        letters: int

    async def work() -> None:
        await HoldfastCheckpointStorage(store, types=[Secret]).save(
            checkpoint(1, state={"a": Secret("x")})
        )
        Longer.__qualname__ = Secret.__qualname__
        storage = HoldfastCheckpointStorage(store, types=[Longer])
        with pytest.raises(
            WorkflowCheckpointException, match=r"c1 .* as its class is now.*letters"
        ):
            await storage.load("c1")

    asyncio.run(work())


@pytest.mark.parametrize(
    "planted",
    [
        {"$class": "os:system", "value": "true"},
        {"$class": "subprocess:Popen", "value": {"args": ["true"]}},
        {"$class": "antigravity:", "value": {}},
        {"$class": "tests.frameworks.agent_framework.test_checkpoint_storage:Secret", "value": {}},
        {
            "$class": "event",
            "request_id": "r",
            "source_executor_id": "a",
            "data": 1,
            "response_type": "os:system",
        },
    ],
    ids=["function", "program", "module", "class", "response"],
)
def test_nothing_is_made_of_a_name_that_somebody_planted(
    store: Store, planted: dict[str, Any]
) -> None:
    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, types=[Order])
        state = {**checkpoint(1).to_dict(), "state": {"x": [planted]}}
        storage._put("c1", "w", state)
        with pytest.raises(WorkflowCheckpointException, match="not allowed"):
            await storage.load("c1")
        assert "antigravity" not in sys.modules

    asyncio.run(work())


def test_a_session_of_somebody_else_is_no_workflow(store: Store) -> None:
    with SessionManager(store, workspace=False).create_session("me", session_id="w") as session:
        session.save_checkpoint("kept", state={"mine": 1})

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store)
        for call in (
            storage.save(checkpoint(1)),
            storage.get_latest(workflow_name="w"),
            storage.list_checkpoints(workflow_name="w"),
            storage.list_checkpoint_ids(workflow_name="w"),
        ):
            with pytest.raises(ForeignSession, match=r"session w .* type me"):
                await call
        assert [one.name for one in session.list_checkpoints()] == ["kept"]

    asyncio.run(work())


def test_a_workflow_is_somebody_elses_when_its_name_is_taken_later(store: Store) -> None:
    manager = SessionManager(store, workspace=False)

    async def work() -> None:
        storage = HoldfastCheckpointStorage(store)
        await storage.save(checkpoint(1))
        manager.delete_session("w")
        with manager.create_session("me", session_id="w") as session:
            session.save_checkpoint("kept", state={"mine": 1})
        with pytest.raises(ForeignSession, match=r"session w .* type me"):
            await storage.save(checkpoint(2))
        assert [one.name for one in manager.get_session("w").list_checkpoints()] == ["kept"]

    asyncio.run(work())


def test_a_step_costs_what_it_adds(store: Store) -> None:
    async def work() -> None:
        storage = HoldfastCheckpointStorage(store)
        said = [{"role": "user", "content": f"{n} " * 300} for n in range(300)]
        for number in range(10):
            said.append({"role": "user", "content": f"new {number} " * 100})
            await storage.save(checkpoint(number, state={"said": said}))
        records = store.list_checkpoints(CheckpointQuery(session_id="w"))
        assert records[0].size_bytes > 200_000
        assert sum(record.stored_bytes for record in records[:-1]) < 100_000

    asyncio.run(work())


def test_a_bound_keeps_the_last_ones(store: Store) -> None:
    async def work() -> None:
        storage = HoldfastCheckpointStorage(store, max_checkpoints=2)
        for number in range(5):
            await storage.save(checkpoint(number))
        assert await storage.list_checkpoint_ids(workflow_name="w") == ["c3", "c4"]

    asyncio.run(work())


@pytest.mark.parametrize("approved", [True, False], ids=["approved", "rejected"])
def test_a_workflow_that_was_killed_goes_on_and_asks_elsewhere(
    shared_url: str, tmp_path: Path, approved: bool
) -> None:
    ledger = tmp_path / "ledger"
    for die in ("2", "3"):
        shop = start("tests.frameworks.agent_framework.worker", shared_url, str(ledger), die)
        shop.communicate(timeout=120)
        assert shop.returncode == -signal.SIGKILL
    assert ledger.read_text() == "1\n2\n"
    shop = start("tests.frameworks.agent_framework.worker", shared_url, str(ledger), "0")
    shop.communicate(timeout=120)
    assert (shop.returncode, ledger.read_text()) == (0, "1\n2\n3\n")
    result = asyncio.run(go_on(shared_url, ledger, approved=approved))
    paid = [1, 2, 3, 4][: 4 if approved else 3]
    assert result.get_outputs() == [f"paid {paid}, the last one was large"]
    assert ledger.read_text() == "".join(f"{number}\n" for number in paid)


def test_agents_in_a_workflow_remember_what_was_said(store: Store) -> None:
    class Scripted(BaseChatClient):
        async def _answer(self, messages: Any) -> ChatResponse:
            said = [message.text for message in messages]
            return ChatResponse(messages=[Message(role="assistant", contents=[f"heard {said}"])])

        def _inner_get_response(self, *, messages: Any, stream: bool, **options: Any) -> Any:
            assert not stream
            return self._answer(messages)

    def make() -> Any:
        agents = [
            AgentExecutor(Agent(client=Scripted(), name=name), id=name) for name in ("a", "b")
        ]
        builder = WorkflowBuilder(start_executor=agents[0], checkpoint_storage=storage, name="talk")
        return builder.add_edge(*agents).build()

    storage = HoldfastCheckpointStorage(store)

    async def work() -> None:
        result = await make().run(AgentExecutorRequest([Message(role="user", contents=["hello"])]))
        whole = [output.text for output in result.get_outputs()]
        checkpoints = await storage.list_checkpoints(workflow_name="talk")
        # From where the first agent has answered and the second has not heard it yet.
        again = await make().run(checkpoint_id=checkpoints[1].checkpoint_id)
        assert [output.text for output in again.get_outputs()][-1] == whole[-1]
        assert "heard ['hello']" in whole[-1]

    asyncio.run(work())


class Inner(Executor):
    """Asks whether an order may be paid."""

    @handler
    async def ask(self, number: int, ctx: WorkflowContext) -> None:
        await ctx.request_info(Approval(Order(number, Size.SMALL)), bool)

    @response_handler
    async def decided(
        self, asked: Approval, approved: bool, ctx: WorkflowContext[None, str]
    ) -> None:
        await ctx.yield_output(f"order {asked.order.number}: {approved}")


class Outer(Executor):
    """Asks in the name of the workflow within it, and passes the answer on."""

    _asked: SubWorkflowRequestMessage

    @handler
    async def begin(self, number: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(number)

    @handler
    async def ask(self, asked: SubWorkflowRequestMessage, ctx: WorkflowContext) -> None:
        self._asked = asked
        await ctx.request_info(asked.source_event.data, bool)

    @response_handler
    async def answer(
        self, asked: Approval, approved: bool, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        await ctx.send_message(self._asked.create_response(approved))

    @handler
    async def end(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"asked": getattr(self, "_asked", None)}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._asked = state["asked"]


def test_what_a_workflow_within_another_asks_is_answered_elsewhere(store: Store) -> None:
    def make(storage: Any) -> Any:
        inner = WorkflowBuilder(start_executor=Inner(id="inner"), name="inner").build()
        outer, within = Outer(id="outer"), WorkflowExecutor(inner, id="within")
        builder = WorkflowBuilder(start_executor=outer, checkpoint_storage=storage, name="outer")
        return builder.add_edge(outer, within).add_edge(within, outer).build()

    async def work(storage: Any) -> Any:
        await make(storage).run(7)
        latest = await storage.get_latest(workflow_name="outer")
        answers = dict.fromkeys(latest.pending_request_info_events, True)
        result = await make(storage).run(checkpoint_id=latest.checkpoint_id, responses=answers)
        return result.get_outputs(), len(await storage.list_checkpoint_ids(workflow_name="outer"))

    theirs = asyncio.run(work(InMemoryCheckpointStorage()))
    assert theirs[0] == ["order 7: True"]
    assert asyncio.run(work(HoldfastCheckpointStorage(store, types=TYPES))) == theirs


def test_every_public_name_is_described() -> None:
    for module in (agent_framework, storage, forms):
        assert undescribed(module) == []


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


def test_the_example_goes_on_in_another_process(tmp_path: Path) -> None:
    assert (
        run_example("agent-framework.py", tmp_path, "ask") == "waits: may 20 be paid for order 7?"
    )
    assert run_example("agent-framework.py", tmp_path, "yes") == "order 7: paid 20"
