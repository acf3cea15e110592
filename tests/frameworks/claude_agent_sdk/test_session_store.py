"""The session store keeps the SDK's contracts, and the real program resumes from it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
)
from claude_agent_sdk.testing import run_session_store_conformance

from holdfast import SessionManager
from holdfast.errors import InvalidIdentifier, StateNotSerializable
from holdfast.integrations import claude_agent_sdk
from holdfast.integrations.claude_agent_sdk import HoldfastSessionStore
from holdfast.stores import Store, open_store
from tests.docstrings import undescribed
from tests.frameworks.claude_agent_sdk.scripted_model import ScriptedModel, scripted_model
from tests.frameworks.programs import race, run_example, start
from tests.pages import ROOT, run_page

PAGE = ROOT / "docs" / "how-to" / "claude-agent-sdk.md"
KEY: Any = {"project_key": "p", "session_id": "s"}


def entry(number: int, **fields: Any) -> Any:
    return {"type": "user", "uuid": f"u{number}", "n": number, **fields}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModel]:
    """A model for the real program, which has a home of its own and calls nobody else."""
    with scripted_model() as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
        monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        monkeypatch.setenv("DISABLE_AUTOUPDATER", "1")
        yield running


def test_all_contracts_of_the_package_are_kept(url: str) -> None:
    used = set()

    class Watched(HoldfastSessionStore):
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if inspect.iscoroutinefunction(value):
                used.add(name)
            return value

    numbers = count()
    with ExitStack() as opened:

        def make() -> Watched:
            tenant = f"tenant-{next(numbers)}"
            return Watched(opened.enter_context(open_store(url, tenant=tenant)))

        asyncio.run(run_session_store_conformance(make))
    # Optional contracts are left out without a word where a method is missing: none is.
    assert used == {
        "append", "load", "list_sessions", "list_session_summaries", "delete", "list_subkeys",
    }  # fmt: skip


def test_an_entry_that_is_sent_again_is_stored_once(store: Store) -> None:
    async def work() -> None:
        sessions = HoldfastSessionStore(store)
        mode: Any = {"type": "mode"}
        await sessions.append(KEY, [entry(1), entry(2), mode])
        await sessions.append(KEY, [entry(2), entry(3), entry(3), mode])
        await sessions.append(KEY, [entry(1)])
        assert await sessions.load(KEY) == [entry(1), entry(2), mode, entry(3), mode]

    asyncio.run(work())


def test_a_text_that_was_cut_within_a_character_comes_back(store: Store) -> None:
    half = "\ud83d"
    entries = [
        entry(1, message={"role": "user", "content": f"cut {half}"}),
        entry(2, **{half: [half]}),
        entry(3, **{"$json": "[]"}),
        {"$json": '{"a": 1}'},
        entry(4, n=1 << 100, x=float("inf")),
    ]

    async def work() -> None:
        sessions = HoldfastSessionStore(store)
        await sessions.append(KEY, entries)
        await sessions.append(KEY, [*entries[:3], entry(5)])
        assert await HoldfastSessionStore(store).load(KEY) == [*entries, entry(5)]
        [summary] = await sessions.list_session_summaries("p")
        assert summary["data"]["first_prompt"] == f"cut {half}"

    asyncio.run(work())


def test_a_subagent_without_a_name_is_the_session_itself(store: Store) -> None:
    async def work() -> None:
        sessions = HoldfastSessionStore(store)
        for number, subpath in enumerate((None, "")):
            key: Any = KEY | {"subpath": subpath}
            await sessions.append(key, [entry(number)])
            assert len(await sessions.load(key) or ()) == number + 1
        assert await sessions.load(KEY) == [entry(0), entry(1)]
        [summary] = await sessions.list_session_summaries("p")
        assert summary["session_id"] == "s"
        await sessions.delete({**KEY, "subpath": None})
        assert await sessions.load(KEY) is None

    asyncio.run(work())


@pytest.mark.parametrize("bad", [None, 7, ["x"], [None], [{"x": object()}], [{"x": Lock()}]])
def test_what_are_no_entries_is_refused(bad: Any) -> None:
    async def work() -> None:
        sessions = HoldfastSessionStore("memory:")
        with pytest.raises(StateNotSerializable):
            await sessions.append(KEY, bad)
        assert await sessions.load(KEY) is None
        await sessions.close()

    asyncio.run(work())


def test_what_is_appended_at_once_is_all_kept(store: Store) -> None:
    async def work() -> None:
        writers = [HoldfastSessionStore(store) for _ in range(4)]
        await asyncio.gather(
            *(writer.append(KEY, [entry(n)]) for n, writer in enumerate(writers * 4))
        )
        found: Any = await writers[0].load(KEY)
        assert sorted(one["n"] for one in found) == list(range(16))

    asyncio.run(work())


def test_processes_append_at_once_and_all_of_it_is_there(shared_url: str) -> None:
    open_store(shared_url).close()
    worker = "tests.frameworks.claude_agent_sdk.worker"
    race([start(worker, shared_url, name) for name in ("a", "b")])

    async def look() -> None:
        sessions = HoldfastSessionStore(shared_url)
        found: Any = await sessions.load(KEY)
        assert sorted(one["uuid"] for one in found) == sorted(
            f"{name}{n}" for name in ("a", "b") for n in range(10)
        )
        [summary] = await sessions.list_session_summaries("p")
        assert summary["session_id"] == "s"
        await sessions.close()

    asyncio.run(look())


def test_keys_that_look_alike_are_apart(store: Store) -> None:
    async def work() -> None:
        sessions = HoldfastSessionStore(store)
        keys: list[Any] = [
            {"project_key": "a/b", "session_id": "c"},
            {"project_key": "a", "session_id": "b/c"},
            {"project_key": "a%2Fb", "session_id": "c"},
        ]
        for number, key in enumerate(keys):
            await sessions.append(key, [entry(number)])
        for number, key in enumerate(keys):
            assert await sessions.load(key) == [entry(number)]
        assert [one["session_id"] for one in await sessions.list_sessions("a")] == ["b/c"]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("p/s", "a dict with project_key and session_id"),
        ({"project_key": "p"}, "a dict with project_key and session_id"),
        ({"session_id": "s"}, "a dict with project_key and session_id"),
        ({"project_key": "p", "session_id": ""}, "session_id of a key must not be empty"),
        ({"project_key": "p", "session_id": 7}, "session_id of a key must be a str, not int"),
        ({"project_key": KEY, "session_id": "s"}, "project_key must be a str, not dict"),
    ],
)
def test_a_key_that_names_no_session_is_refused(key: Any, said: str) -> None:
    async def work() -> None:
        sessions = HoldfastSessionStore("memory:")
        calls = [
            sessions.append(key, [entry(1)]),
            sessions.load(key),
            sessions.delete(key),
            sessions.list_subkeys(key),
        ]
        for call in calls:
            with pytest.raises(InvalidIdentifier, match=said):
                await call
        await sessions.close()

    asyncio.run(work())


def test_a_project_that_is_no_text_is_refused() -> None:
    async def work() -> None:
        sessions = HoldfastSessionStore("memory:")
        wrong: Any = KEY
        for call in (sessions.list_sessions(wrong), sessions.list_session_summaries(wrong)):
            with pytest.raises(InvalidIdentifier, match="project_key must be a str, not dict"):
                await call
        await sessions.close()

    asyncio.run(work())


def test_after_a_rollback_the_transcript_goes_on_from_there(store: Store) -> None:
    async def work() -> None:
        sessions = HoldfastSessionStore(store)
        for number in range(3):
            await sessions.append(KEY, [entry(number, customTitle=f"title {number}")])
        with SessionManager(store, workspace=False).resume_session("p/s") as opened:
            opened.rollback(opened.list_checkpoints()[1].id)
        assert await sessions.load(KEY) == [entry(n, customTitle=f"title {n}") for n in (0, 1)]
        await sessions.append(KEY, [entry(7)])
        found: Any = await sessions.load(KEY)
        assert [one["n"] for one in found] == [0, 1, 7]
        [summary] = await sessions.list_session_summaries("p")
        assert summary["data"]["custom_title"] == "title 1"

    asyncio.run(work())


async def ask(store: Any, folder: Path, prompt: str, resume: str | None = None) -> ResultMessage:
    options = ClaudeAgentOptions(session_store=store, cwd=folder, resume=resume, max_turns=1)
    messages = [message async for message in query(prompt=prompt, options=options)]
    [result] = [message for message in messages if isinstance(message, ResultMessage)]
    return result


def test_the_real_program_resumes_where_it_never_ran(
    model: ScriptedModel, shared_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()

    async def work() -> None:
        sessions = HoldfastSessionStore(shared_url)
        first = await ask(sessions, folder, "I am Ann")
        assert first.result == "You said: I am Ann"
        await sessions.close()
        # Another machine: nothing of the first run is on its disk.
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
        sessions = HoldfastSessionStore(shared_url)
        second = await ask(sessions, folder, "Who am I?", first.session_id)
        assert second.session_id == first.session_id
        assert model.asked(-1) == ["I am Ann", "You said: I am Ann", "Who am I?"]
        [session] = await list_sessions_from_store(sessions, directory=str(folder))
        assert (session.session_id, session.first_prompt) == (first.session_id, "I am Ann")
        messages = await get_session_messages_from_store(
            sessions, first.session_id, directory=str(folder)
        )
        assert len([one for one in messages if one.type == "assistant"]) == 2
        fork = await fork_session_via_store(sessions, first.session_id, directory=str(folder))
        key: Any = {
            "project_key": project_key_for_directory(str(folder)),
            "session_id": fork.session_id,
        }
        assert await sessions.load(key)
        await sessions.close()

    asyncio.run(work())


def test_every_public_name_is_described() -> None:
    assert undescribed(claude_agent_sdk) == []


def test_the_page_runs(
    model: ScriptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


def test_the_example_goes_on_in_another_process(model: ScriptedModel, tmp_path: Path) -> None:
    assert run_example("claude-agent-sdk.py", tmp_path, "I am Ann") == "You said: I am Ann"
    assert run_example("claude-agent-sdk.py", tmp_path, "Who am I?") == "You said: Who am I?"
    assert model.asked(-1) == ["I am Ann", "You said: I am Ann", "Who am I?"]
