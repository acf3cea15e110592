"""Conversations of Pydantic AI are kept as its own store keeps them, durably."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel

from holdfast import SessionManager
from holdfast.errors import StateNotSerializable
from holdfast.integrations.pydantic_ai import HoldfastConversationStore
from holdfast.stores import Store

Plan = Callable[[ConversationStore], Any]


def asked(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def said(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def texts(conversation: Conversation | None) -> Any:
    if conversation is None:
        return None
    return [part.content for message in conversation.messages for part in message.parts]


async def begin(store: ConversationStore, name: str, *words: str, scope: str | None = None) -> Any:
    conversation = Conversation(conversation_id=name, messages=[asked(word) for word in words])
    await store.save(conversation, scope=scope)
    return conversation


async def growing(store: ConversationStore) -> Any:
    seen: list[Any] = [await store.load("c"), await store.load_entries("c")]
    conversation = await begin(store, "c", "a", "b", scope="ann")
    loaded = await store.load("c", scope="ann")
    assert loaded is not None
    loaded.messages.append(said("c"))
    seen.append(len(await store.save(loaded)))
    seen.append(len(await store.save(loaded)))
    seen += [texts(await store.load("c", limit=limit)) for limit in (None, 0, 1, 2, 9)]
    seen += [texts(await store.load("c", scope="bob"))]
    conversation.messages.append(asked("lost"))
    with pytest.raises(ConversationConflict):
        await store.save(conversation)
    with pytest.raises(ConversationConflict):
        await begin(store, "c", "again")
    with pytest.raises(UserError):
        await store.load("c", limit=-1)
    return [*seen, texts(await store.load("c"))]


async def branching(store: ConversationStore) -> Any:
    conversation = await begin(store, "c", "a", "b", "c")
    branched = await store.branch("c", at=1, expected_revision=conversation.revision)
    branched.messages.append(said("instead"))
    await store.save(branched)
    [record] = await store.list_conversations()
    back = await store.branch(
        "c", from_entry=record.branches[0], expected_revision=branched.revision
    )
    seen = [texts(branched), len(record.branches), texts(back), texts(await store.load("c"))]
    with pytest.raises(ConversationConflict):
        await store.branch("c", at=0, expected_revision=branched.revision)
    rewritten = Conversation(
        conversation_id="c", messages=[asked("a"), said("rewritten")], revision=back.revision
    )
    await store.save(rewritten)
    return [
        *seen,
        texts(await store.load("c")),
        len((await store.list_conversations())[0].branches),
    ]


async def forking(store: ConversationStore) -> Any:
    await begin(store, "c", "a", "b", "c", scope="ann")
    fork = await store.fork("c", at=2, new_conversation_id="f")
    fork.messages.append(said("d"))
    await store.save(fork)
    whole = await store.fork("c", new_conversation_id="w", scope="bob")
    of_fork = await store.fork("f", at=1, new_conversation_id="g")
    with pytest.raises(ConversationConflict):
        await store.fork("c", new_conversation_id="f")
    seen = [texts(fork), texts(whole), texts(of_fork)]
    await store.delete("c", scope="bob")
    seen.append(texts(await store.load("c")))
    await store.delete("c", scope="ann")
    await store.delete("c")
    seen += [texts(await store.load(name)) for name in ("c", "f", "w", "g")]
    listed = await store.list_conversations()
    seen.append([(one.conversation_id, one.scope, one.forked_from) for one in listed])
    seen.append(
        [one.conversation_id for one in await store.list_conversations(scope="ann", limit=1)]
    )
    await begin(store, "c", "new")
    return [*seen, texts(await store.load("c"))]


async def deleting(store: ConversationStore) -> Any:
    conversation = await begin(store, "c", "a")
    with pytest.raises(ConversationConflict):
        await store.delete_record("c", expected_revision="another")
    await store.delete("c")
    with pytest.raises(ConversationConflict):
        await store.delete_record("c", expected_revision=str(conversation.revision))
    conversation.messages.append(asked("b"))
    with pytest.raises(ConversationConflict):
        await store.save(conversation)
    head = ConversationRecord(conversation_id="x", head_id="nowhere")
    with pytest.raises(ConversationConflict):
        await store.write_record(head, expected_revision=None)
    return [await store.load("c"), await store.load("x"), list(await store.list_conversations())]


@pytest.mark.parametrize("plan", [growing, branching, forking, deleting])
def test_it_does_what_the_store_of_the_package_does(store: Store, plan: Plan) -> None:
    theirs = asyncio.run(plan(InMemoryConversationStore()))
    assert asyncio.run(plan(HoldfastConversationStore(store))) == theirs


class Fresh(ConversationStore):
    """Asks a new adapter each time, as processes that share nothing but the store would."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("read_") or name in ("write_record", "delete_record"):
            return getattr(HoldfastConversationStore(object.__getattribute__(self, "_store")), name)
        return object.__getattribute__(self, name)


Fresh.__abstractmethods__ = frozenset()


@pytest.mark.parametrize("plan", [growing, branching, forking, deleting])
def test_it_remembers_nothing_that_matters(store: Store, plan: Plan) -> None:
    theirs = asyncio.run(plan(InMemoryConversationStore()))
    assert asyncio.run(plan(Fresh(store))) == theirs


def test_what_a_run_said_is_equal_when_it_is_loaded(store: Store) -> None:
    async def work() -> None:
        agent = Agent(TestModel(), name="a")

        @agent.tool_plain
        def look(name: str) -> dict[str, Any]:
            return {"found": name, "n": [1, 2.5, None]}

        conversations = HoldfastConversationStore(store)
        picture = BinaryContent(b"\x00\xff", media_type="image/png")
        result = await agent.run(
            ["What is this?", picture], conversation=Conversation(conversation_id="c")
        )
        entries = await conversations.save(result)
        fresh = HoldfastConversationStore(store)
        loaded = await fresh.load("c")
        assert loaded is not None
        json = ModelMessagesTypeAdapter.dump_json(result.all_messages())
        assert loaded.messages == ModelMessagesTypeAdapter.validate_json(json)
        assert loaded.usage == result.usage
        found = await fresh.load_entries("c")
        assert found is not None
        assert [one.id for one in found] == [one.id for one in entries]
        assert await HoldfastConversationStore(store).read_entry(entries[1].id) == found[1]
        with pytest.raises(LookupError):
            await fresh.read_entry("nowhere")
        again = await agent.run("More", conversation=loaded)
        assert len(await fresh.save(again)) == len(again.new_messages())

    asyncio.run(work())


def test_of_savers_at_once_one_wins_and_the_others_hear_of_it(store: Store) -> None:
    async def work() -> None:
        await begin(HoldfastConversationStore(store), "c", "a")

        async def save(number: int) -> bool:
            mine = HoldfastConversationStore(store)
            conversation = await mine.load("c")
            assert conversation is not None
            conversation.messages.append(said(str(number)))
            loaded.append(number)
            if len(loaded) == 4:
                all_loaded.set()
            await all_loaded.wait()
            try:
                await mine.save(conversation)
            except ConversationConflict:
                return False
            return True

        loaded: list[int] = []
        all_loaded = asyncio.Event()
        assert sum(await asyncio.gather(*(save(number) for number in range(4)))) == 1
        assert len(texts(await HoldfastConversationStore(store).load("c"))) == 2

    asyncio.run(work())


def test_stores_that_take_turns_do_not_take_each_other_for_conflicts(store: Store) -> None:
    async def work() -> None:
        stores = [HoldfastConversationStore(store), HoldfastConversationStore(store)]
        await begin(stores[0], "c", "0")
        for number in range(1, 6):
            mine = stores[number % 2]
            conversation = await mine.load("c")
            assert conversation is not None
            conversation.messages.append(said(str(number)))
            await mine.save(conversation)
        assert texts(await stores[0].load("c")) == ["0", "1", "2", "3", "4", "5"]
        await stores[0].delete("c")
        assert await stores[1].load("c") is None
        await begin(stores[1], "c", "new")
        assert texts(await stores[0].load("c")) == ["new"]

    asyncio.run(work())


@pytest.mark.parametrize("value", [object(), "\ud800"], ids=["object", "text"])
def test_what_cannot_be_stored_is_refused_and_nothing_changes(store: Store, value: Any) -> None:
    async def work() -> None:
        conversations = HoldfastConversationStore(store)
        conversation = await begin(conversations, "c", "a")
        answer = ToolReturnPart("look", value, tool_call_id="1")
        conversation.messages.append(ModelRequest(parts=[answer]))
        with pytest.raises(StateNotSerializable):
            await conversations.save(conversation)
        assert texts(await conversations.load("c")) == ["a"]

    asyncio.run(work())


def test_numbers_that_json_has_not_are_null_where_the_package_writes_them_so(store: Store) -> None:
    async def work() -> None:
        conversations = HoldfastConversationStore(store)
        answer = {"n": float("nan"), "i": float("inf")}
        part = ToolReturnPart("f", answer, tool_call_id="1")
        given = Conversation(conversation_id="c", messages=[ModelRequest(parts=[part])])
        await conversations.save(given)
        [stored] = texts(await conversations.load("c"))
        assert stored == {"n": None, "i": None}

    asyncio.run(work())


def test_a_rollback_takes_a_conversation_back(store: Store) -> None:
    async def work() -> None:
        conversations = HoldfastConversationStore(store)
        conversation = await begin(conversations, "c", "a", scope="ann")
        conversation.messages.append(said("b"))
        await conversations.save(conversation)
        with SessionManager(store, workspace=False).resume_session("c") as opened:
            opened.rollback(opened.list_checkpoints()[1].id)
        [record] = await conversations.list_conversations(scope="ann")
        assert record.conversation_id == "c"
        loaded = await conversations.load("c")
        assert texts(loaded) == ["a"]
        conversation.messages.append(said("late"))
        with pytest.raises(ConversationConflict):
            await conversations.save(conversation)

    asyncio.run(work())
