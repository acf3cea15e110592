"""A session keeps a conversation of OpenAI Agents, item for item."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from agents import Agent, Runner, Session, SessionSettings, SQLiteSession
from agents.testing import ScriptedModel

from holdfast import SessionManager
from holdfast.errors import StateNotSerializable
from holdfast.integrations import openai_agents
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.stores import Store
from tests.docstrings import undescribed
from tests.frameworks.openai_agents.worker import asks, make_agent, says
from tests.frameworks.programs import run_example
from tests.pages import ROOT, run_page

PAGE = ROOT / "docs" / "how-to" / "openai-agents.md"


def message(text: str) -> Any:
    return {"role": "user", "content": text}


def test_it_is_a_session(store: Store) -> None:
    assert isinstance(HoldfastSession("s", store), Session)


def test_it_behaves_as_the_session_of_the_package(store: Store) -> None:
    async def calls(session: Any) -> list[Any]:
        seen: list[Any] = [await session.get_items(), await session.pop_item()]
        await session.add_items([])
        await session.add_items([message("a"), message("b")])
        await session.add_items([message("ü\0€"), {"type": "reasoning", "summary": [], "n": 1.5}])
        seen += [await session.get_items(limit) for limit in (None, 0, 1, 3, 9, -1)]
        seen += [await session.pop_item(), await session.get_items()]
        await session.clear_session()
        seen += [await session.get_items(), await session.pop_item()]
        await session.add_items([message("new")])
        return [*seen, await session.get_items()]

    theirs = asyncio.run(calls(SQLiteSession("s")))
    assert asyncio.run(calls(HoldfastSession("s", store))) == theirs


def test_settings_give_the_limit(store: Store) -> None:
    async def work() -> None:
        session = HoldfastSession("s", store, session_settings=SessionSettings(limit=2))
        await session.add_items([message(text) for text in "abc"])
        assert await session.get_items() == [message("b"), message("c")]
        assert await session.get_items(1) == [message("c")]

    asyncio.run(work())


def test_items_are_copies(store: Store) -> None:
    async def work() -> None:
        session = HoldfastSession("s", store)
        mine = message("a")
        await session.add_items([mine])
        mine["content"] = "changed"
        (await session.get_items())[0]["content"] = "changed"
        await session.add_items([message("b")])
        assert await session.get_items() == [message("a"), message("b")]

    asyncio.run(work())


def test_additions_at_once_are_all_kept(store: Store) -> None:
    async def work() -> None:
        sessions = [HoldfastSession("s", store) for _ in range(4)]
        await asyncio.gather(
            *(session.add_items([message(f"{n}")]) for n, session in enumerate(sessions * 4))
        )
        items: list[Any] = await sessions[0].get_items()
        assert sorted(item["content"] for item in items) == sorted(str(n) for n in range(16))

    asyncio.run(work())


def test_what_cannot_be_stored_is_refused_and_nothing_changes(store: Store) -> None:
    async def work() -> None:
        session = HoldfastSession("s", store)
        await session.add_items([message("a")])
        bad: list[Any] = [[{"content": object()}], [{"content": Lock()}], ["b"], "b", None]
        for items in bad:
            with pytest.raises(StateNotSerializable):
                await session.add_items(items)
        assert await session.get_items() == [message("a")]

    asyncio.run(work())


def test_a_run_goes_on_with_what_was_said(store: Store) -> None:
    async def work() -> None:
        model = ScriptedModel([[says("Hello Ann")], [says("Your name is Ann")]])
        agent = Agent(name="a", model=model)
        await Runner.run(agent, "I am Ann", session=HoldfastSession("s", store))
        result = await Runner.run(agent, "Who am I?", session=HoldfastSession("s", store))
        assert result.final_output == "Your name is Ann"
        last = model.last_call
        assert last is not None
        assert [item["role"] for item in last.input] == ["user", "assistant", "user"]

    asyncio.run(work())


def test_holdfast_takes_a_conversation_back(store: Store) -> None:
    async def work() -> None:
        session = HoldfastSession("s", store)
        for text in ("a", "b", "c"):
            await session.add_items([message(text)])
        with SessionManager(store, workspace=False).resume_session("s") as opened:
            opened.rollback(opened.list_checkpoints()[1].id)
        assert await session.get_items() == [message("a"), message("b")]
        await session.add_items([message("d")])
        assert await session.get_items() == [message(text) for text in "abd"]

    asyncio.run(work())


def test_a_session_closes_the_store_that_it_opened(tmp_path: Path) -> None:
    async def work() -> None:
        for text in ("a", "b"):
            session = HoldfastSession("s", tmp_path / "agents.db")
            await session.add_items([message(text)])
            await session.close()
        session = HoldfastSession("s", tmp_path / "agents.db")
        assert await session.get_items() == [message("a"), message("b")]
        await session.close()

    asyncio.run(work())


def test_every_public_name_is_described() -> None:
    assert undescribed(openai_agents) == []


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


def test_the_example_goes_on_in_another_process(tmp_path: Path) -> None:
    def say(command: str) -> str:
        return run_example("openai-agents.py", tmp_path, command)

    assert say("ask").endswith('waits for a decision: refund {"order":"7"}')
    assert say("approve") == "… paying order 7 back\nOrder 7 was paid back"
    assert "has taken the run" in say("approve")
    assert say("show").splitlines()[0] == "user: Please refund order 7"


def test_the_scripts_of_these_tests_ask_before_the_tool_runs(tmp_path: Path) -> None:
    agent = make_agent(asks("7"), ledger=tmp_path / "ledger")
    result = asyncio.run(Runner.run(agent, "refund 7"))
    assert [item.tool_name for item in result.interruptions] == ["refund"]
    assert not (tmp_path / "ledger").exists()
