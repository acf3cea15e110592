"""The session service does what those of ADK do, and notices a writer that was overtaken."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from holdfast import SessionManager
from holdfast.conversations import Conversations, Draft
from holdfast.errors import (
    CheckpointBusy,
    ForeignSession,
    InvalidIdentifier,
    StateNotSerializable,
)
from holdfast.integrations import google_adk
from holdfast.integrations.google_adk import HoldfastSessionService, documents, service
from holdfast.stores import Store
from tests.docstrings import undescribed
from tests.frameworks.google_adk.shop import WHO, content, make_runner, say
from tests.frameworks.programs import race, run_example, start
from tests.pages import ROOT, run_page

PAGE = ROOT / "docs" / "how-to" / "google-adk.md"
Plan = Callable[[Any], Any]


def event(number: int, **delta: Any) -> Event:
    return Event(
        id=f"e{number}",
        author="clerk",
        timestamp=1000.0 + number,
        actions=EventActions(state_delta={key.replace("_", ":"): delta[key] for key in delta}),
    )


def picture(session: Session | None) -> Any:
    if session is None:
        return None
    document = session.model_dump(mode="json", exclude_none=True)
    document.pop("last_update_time" if not session.events else "", None)
    return document


async def appending(service: Any) -> Any:
    session = await service.create_session(
        **WHO, state={"a": 1, "user:b": 2, "app:c": 3, "temp:d": 4}
    )
    seen = [picture(session)]
    for one in (
        event(1, a=2, x={"k": [None, "ü"]}),
        event(2, user_b=3, app_c=None),
        event(3, temp_t=1),
    ):
        assert await service.append_event(session, one) is one
        seen += [picture(session), picture(await service.get_session(**WHO))]
    partial = event(4, a=9)
    partial.partial = True
    await service.append_event(session, partial)
    again = event(2, user_b=3, app_c=None)
    again.timestamp = session.events[1].timestamp
    await service.append_event(session, again)
    seen += [picture(session), picture(await service.get_session(**WHO))]
    return [*seen, await service.get_user_state(app_name="shop", user_id="ann")]


async def choosing(service: Any) -> Any:
    session = await service.create_session(**WHO)
    for number in (1, 2, 3, 5, 4):
        await service.append_event(session, event(number))
    configs = [
        GetSessionConfig(num_recent_events=recent, after_timestamp=after)
        for recent in (None, 0, 2, 9)
        for after in (None, 0.0, 1003.0, 1004.5, 2000.0)
    ]
    found = [await service.get_session(**WHO, config=config) for config in configs]
    return [[one.id for one in session.events] for session in found]


async def listing(service: Any) -> Any:
    for number, (app, user, name) in enumerate(
        [
            ("shop", "ann", "s1"),
            ("shop", "bob", "s1"),
            ("shop", "ann", " s2 "),
            ("bank", "ann", "s1"),
        ]
    ):
        session = await service.create_session(app_name=app, user_id=user, session_id=name)
        await service.append_event(
            session, event(9 - number, n=number, user_n=number, big="x" * 5000 * number)
        )
    seen = []
    asked: list[tuple[str, str | None]] = [
        ("shop", None),
        ("shop", "ann"),
        ("bank", None),
        ("shop", "nobody"),
        ("x", None),
    ]
    for app, whose in asked:
        listed = (await service.list_sessions(app_name=app, user_id=whose)).sessions
        seen.append([(one.user_id, one.id, one.state, one.last_update_time) for one in listed])
    await service.delete_session(app_name="shop", user_id="ann", session_id="s2")
    await service.delete_session(app_name="shop", user_id="ann", session_id="never")
    gone = await service.get_session(app_name="shop", user_id="ann", session_id="s2")
    unknown = await service.get_session(app_name="shop", user_id="x", session_id="s1")
    left = (await service.list_sessions(app_name="shop")).sessions
    kept = await service.get_user_state(app_name="shop", user_id="ann")
    return [seen, gone, unknown, [one.id for one in left], kept]


async def refusing(service: Any) -> Any:
    session = await service.create_session(**WHO)
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**WHO, state={"app:x": "not stored"})
    await service.delete_session(**WHO)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, event(1, app_x="not stored"))
    new = await service.create_session(app_name="shop", user_id="ann")
    return [await service.get_session(**WHO), new.state, len(new.id)]


async def running(service: Any) -> Any:
    runner = make_runner(service)
    await service.create_session(**WHO, state={"given": 1})
    invocations = []
    for text in ("one", "two", "three"):
        events = await say(runner, text)
        invocations.append(events[0].invocation_id)
    before = await service.get_session(**WHO)
    await runner.rewind_async(
        user_id="ann", session_id="s", rewind_before_invocation_id=invocations[1]
    )
    after = await service.get_session(**WHO)
    await say(runner, "four")
    last = await service.get_session(**WHO)
    texts = [
        part.text for one in last.events for part in (one.content.parts if one.content else [])
    ]
    return [before.state, len(before.events), after.state, len(after.events), last.state, texts]


@pytest.mark.parametrize("plan", [appending, choosing, listing, refusing, running])
def test_it_does_what_the_service_of_the_package_does(store: Store, plan: Plan) -> None:
    theirs = asyncio.run(plan(InMemorySessionService()))
    assert asyncio.run(plan(HoldfastSessionService(store))) == theirs


def test_contents_come_back_exactly(store: Store) -> None:
    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**WHO)
        blob = types.Blob(data=b"\x00\xff" * 9, mime_type="image/png")
        for part in ({"inline_data": blob}, {"text": "x\0ü"}, {"thought_signature": b"\xfe"}):
            await service.append_event(session, Event(author="a", content=content("user", **part)))
        found = await HoldfastSessionService(store).get_session(**WHO)
        assert found is not None
        assert found.events == session.events

    asyncio.run(work())


def test_a_writer_that_was_overtaken_is_refused_and_changes_nothing(store: Store) -> None:
    async def work() -> None:
        service = HoldfastSessionService(store)
        await service.create_session(**WHO, state={"n": 0})
        one, other = [await HoldfastSessionService(store).get_session(**WHO) for _ in range(2)]
        assert one is not None
        assert other is not None
        await service.append_event(one, event(1, n=1, app_n=1))
        before = picture(other)
        with pytest.raises(StaleSessionError):
            await service.append_event(other, event(2, n=2, app_n=2, temp_n=2))
        assert picture(other) == before
        # Reading a session makes nobody stale.
        for _ in range(2):
            await HoldfastSessionService(store).get_session(**WHO)
        await service.append_event(one, event(3, user_n=3))
        found = await service.get_session(**WHO)
        assert found is not None
        assert [item.id for item in found.events] == ["e1", "e3"]
        assert found.state == {"n": 1, "app:n": 1, "user:n": 3}
        # A session that somebody made by hand is judged by its time.
        made = Session(app_name="shop", user_id="ann", id="s", last_update_time=1.0)
        with pytest.raises(StaleSessionError):
            await service.append_event(made, event(4))
        made.last_update_time = found.last_update_time
        await service.append_event(made, event(5))

    asyncio.run(work())


class Killed(BaseException):
    pass


async def left_by_a_killed_process(service: Any, session: Session, said: Event) -> None:
    """Store an event and not what it says about user and app."""

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service._shared, "tell", die)
        with pytest.raises(Killed):
            await service.append_event(session, said)


def test_what_is_changed_in_a_session_object_alone_is_not_stored(store: Store) -> None:
    async def work() -> None:
        service, said = HoldfastSessionService(store), {"x": [1], "app:x": [1], "user:x": [1]}
        session = await service.create_session(**WHO, state=said)
        for number in (1, 2):
            for value in session.state.values():
                value.append(number)
            await service.append_event(session, event(number, **{f"n{number}": [1]}))
        found = await service.get_session(**WHO)
        assert found is not None
        assert found.state == said | {"n1": [1], "n2": [1]}

    asyncio.run(work())


async def crowding(service: Any) -> Any:
    session = await service.create_session(**WHO)
    delta = {
        f"n{number}": event(number, **{f"n{number}": number, "app_n": 1}) for number in range(8)
    }
    await asyncio.gather(*(service.append_event(session, one) for one in delta.values()))
    found = await service.get_session(**WHO)
    for one in (session, found):
        one.events.sort(key=lambda said: said.id)
        one.last_update_time = 0
    return picture(session), picture(found)


def test_events_of_one_session_object_may_be_appended_at_once(store: Store) -> None:
    theirs = asyncio.run(crowding(InMemorySessionService()))
    service = HoldfastSessionService(store)
    for _ in range(2):  # in event loops of their own
        assert asyncio.run(crowding(service)) == theirs
        asyncio.run(service.delete_session(**WHO))


def test_a_cancelled_append_is_whole_or_absent_in_the_store_and_in_the_session_object(
    store: Store,
) -> None:
    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**WHO)
        began, go_on, append = asyncio.Event(), threading.Event(), service._append
        loop = asyncio.get_running_loop()

        def slow(*args: Any) -> Any:
            loop.call_soon_threadsafe(began.set)
            assert go_on.wait(60)
            return append(*args)

        service._append = slow  # type: ignore[assignment, method-assign]
        events = [event(number, n=number, app_n=number) for number in range(1, 5)]
        tasks = [asyncio.create_task(service.append_event(session, one)) for one in events]
        await began.wait()
        for task in tasks[:2]:  # the one that is stored now, and one that waits for its turn
            task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in done[:2]] == [asyncio.CancelledError] * 2
        assert done[2:] == events[2:]
        await service.append_event(session, events[0])
        await service.append_event(session, events[1])
        assert [one.id for one in session.events] == ["e1", "e3", "e4", "e2"]
        assert picture(session) == picture(await service.get_session(**WHO))

    asyncio.run(work())


def test_an_event_whose_storing_nobody_heard_of_is_repeated(store: Store) -> None:
    async def work() -> None:
        service = HoldfastSessionService(store)
        session, other = await service.create_session(**WHO), await service.get_session(**WHO)
        change = service._sessions.change

        def lost(*args: Any) -> None:
            change(*args)
            raise ConnectionError

        for number in (1, 2):
            said = event(number, n=number, app_n=number)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(service._sessions, "change", lost)
                with pytest.raises(ConnectionError):
                    await service.append_event(session, said)
            for _ in range(2):
                await service.append_event(session, said)
                assert picture(session) == picture(await service.get_session(**WHO))
        # It is no news for an object that has missed more than that.
        assert other is not None
        await service.append_event(other, said)
        assert other.events == []
        with pytest.raises(StaleSessionError):
            await service.append_event(other, event(3))
        await service.append_event(session, event(3))
        assert picture(session) == picture(await service.get_session(**WHO))

    asyncio.run(work())


def test_processes_append_at_once_and_all_of_it_is_there(shared_url: str) -> None:
    async def prepare() -> None:
        service = HoldfastSessionService(shared_url)
        await service.create_session(**WHO)
        await service.close()

    asyncio.run(prepare())
    shop = "tests.frameworks.google_adk.shop"
    race([start(shop, "append", shared_url, name) for name in ("a", "b")])

    async def look() -> None:
        service = HoldfastSessionService(shared_url)
        session = await service.get_session(**WHO)
        assert session is not None
        expected = {f"{name}{n}": n for name in ("a", "b") for n in range(10)}
        assert session.state == expected | {f"app:{key}": n for key, n in expected.items()}
        assert len(session.events) == 20
        await service.close()

    asyncio.run(look())


def test_what_a_killed_process_left_half_is_finished_by_the_next(shared_url: str) -> None:
    async def prepare() -> None:
        service = HoldfastSessionService(shared_url)
        await service.create_session(**WHO)
        await service.close()

    asyncio.run(prepare())
    worker = start("tests.frameworks.google_adk.shop", "die", shared_url)
    worker.communicate(timeout=120)
    assert worker.returncode == -signal.SIGKILL

    async def look() -> None:
        service = HoldfastSessionService(shared_url)
        [listed] = (await service.list_sessions(app_name="shop")).sessions
        assert listed.state == {"own": 1, "user:mine": 2, "app:ours": 3}
        session = await service.get_session(**WHO)
        assert session is not None
        assert session.state == listed.state
        assert await service.append_event(session, event(1))
        await service.close()

    asyncio.run(look())


@pytest.mark.parametrize(
    "names",
    [("", "u", "s"), (None, "u", "s"), ("a", 7, "s"), ("a", None, "s"), ("a", "u", 7), ("a", "\0", "s"), ("a", "u", "x" * 600)],
    ids=str,
)  # fmt: skip
def test_names_that_nothing_is_stored_under_are_refused(names: Any) -> None:
    async def work() -> None:
        service = HoldfastSessionService("memory:")
        who: Any = dict(zip(("app_name", "user_id", "session_id"), names, strict=True))
        for call in (service.create_session, service.get_session, service.delete_session):
            with pytest.raises(InvalidIdentifier):
                await call(**who)
        del who["session_id"]
        if names[2] == "s":
            with pytest.raises(InvalidIdentifier):
                await service.get_user_state(**who)
        assert service._sessions.threads() == []
        await service.close()

    asyncio.run(work())


def test_what_an_event_says_late_undoes_nothing_of_later_ones(store: Store) -> None:
    async def work() -> None:
        late, quick = HoldfastSessionService(store), HoldfastSessionService(store)
        other: Any = WHO | {"session_id": "other"}
        session = await late.create_session(**WHO)
        await late.create_session(**other)
        stored, go_on, tell = asyncio.Event(), threading.Event(), late._shared.tell
        loop = asyncio.get_running_loop()

        def wait(*args: Any) -> None:
            loop.call_soon_threadsafe(stored.set)
            assert go_on.wait(60)
            tell(*args)

        late._shared.tell = wait  # type: ignore[assignment, method-assign]
        first = asyncio.create_task(
            late.append_event(session, event(1, app_n=1, app_m=1, user_n=1))
        )
        await stored.wait()
        # Meanwhile others say something else: of the key n in both, and of m in neither.
        for who, number in ((WHO, 2), (other, 3)):
            found = await quick.get_session(**who)
            assert found is not None
            await quick.append_event(found, event(number, app_n=number, user_n=number))
        go_on.set()
        await first
        found = await quick.get_session(**WHO)
        assert found is not None
        assert found.state == {"app:n": 3, "app:m": 1, "user:n": 3}

    asyncio.run(work())


def test_what_a_killed_process_left_undoes_nothing_of_later_events(store: Store) -> None:
    async def work() -> None:
        quick, other = HoldfastSessionService(store), WHO | {"session_id": "other"}
        first, second = await quick.create_session(**WHO), await quick.create_session(**other)
        dying = HoldfastSessionService(store)
        await left_by_a_killed_process(dying, first, event(1, app_n=1, app_m=1))
        await quick.append_event(second, event(2, app_n=2))
        found = await quick.get_session(**WHO)
        assert found is not None
        assert found.state == {"app:n": 2, "app:m": 1}
        # A session that somebody made by hand goes on from what was left, too.
        await left_by_a_killed_process(dying, found, event(4, app_n=4, app_m=4))
        made = Session(app_name="shop", user_id="ann", id="s", last_update_time=9000.0)
        await quick.append_event(made, event(5, app_m=5))
        found = await quick.get_session(**WHO)
        assert found is not None
        assert found.state == {"app:n": 4, "app:m": 5}
        # An event that is stored later wins, although the earlier one is the last to be told.
        await quick.append_event(second, event(3, app_n=3))
        found = await quick.get_session(**WHO)
        assert found is not None
        assert found.state["app:n"] == 3

    asyncio.run(work())


def test_what_a_killed_process_left_undoes_nothing_however_long_ago_it_was(store: Store) -> None:
    async def work() -> None:
        capped = HoldfastSessionService(store, max_versions=1)
        other = WHO | {"session_id": "other"}
        first, second = await capped.create_session(**WHO), await capped.create_session(**other)
        await left_by_a_killed_process(capped, first, event(1, app_n=1, app_m=1))
        for number in (2, 3, 4):
            await capped.append_event(second, event(number, **{"app_n": 2, f"app_x{number}": 0}))
        await capped.append_event(second, event(5, app_y=0))
        found = await capped.get_session(**WHO)
        assert found is not None
        assert (found.state["app:n"], found.state["app:m"]) == (2, 1)

    asyncio.run(work())


def test_a_copy_in_another_database_goes_on_where_its_places_are_others(
    store: Store, tmp_path: Path
) -> None:
    async def work() -> None:
        service, url = HoldfastSessionService(store), str(tmp_path / "copy.db")
        apart = await service.create_session(app_name="shop", user_id="bob", session_id="s")
        for number in range(20):
            await service.append_event(apart, event(number))
        session = await service.create_session(**WHO, state={"app:n": 4})
        await left_by_a_killed_process(service, session, event(5, app_m=5, app_n=5))
        SessionManager(store, workspace=False).copy_to(url, ["shop/ann/s", "shop"])
        copy = HoldfastSessionService(url)
        for number in (5, 6):
            found = await copy.get_session(**WHO)
            assert found is not None
            assert (found.state["app:n"], found.state["app:m"]) == (number, 5)
            await copy.append_event(found, event(number + 1, app_n=number + 1))
        await copy.close()

    asyncio.run(work())


@pytest.mark.parametrize("thread", ["shop", "shop/ann"])
@pytest.mark.parametrize("whose", ["conversation", "empty session"])
def test_an_id_that_something_else_has_is_in_the_way_of_nothing_but_what_is_shared(
    store: Store, thread: str, whose: str
) -> None:
    async def work() -> None:
        service, other = HoldfastSessionService(store), WHO | {"session_id": "other"}
        session = await service.create_session(**WHO, state={"n": 0})
        if whose == "conversation":
            Conversations(store, "another").change(thread, lambda last: Draft({"items": []}))
        else:
            SessionManager(store, workspace=False).create_session("me", session_id=thread).close()
        said = {"app_n" if thread == "shop" else "user_n": 1}
        with pytest.raises(ForeignSession, match=f"session {thread} belongs to another"):
            await service.append_event(session, event(1, **said))
        with pytest.raises(ForeignSession):
            await service.create_session(**other, state={"app:n": 1, "user:n": 1})
        # Nothing was stored, so both go on without it.
        await service.append_event(session, event(2, n=1))
        created = await service.create_session(**other, state={"n": 1})
        listed = (await service.list_sessions(app_name="shop")).sessions
        assert [one.state for one in (created, *listed)] == [{"n": 1}] * 3
        found = await service.get_session(**WHO)
        assert found is not None
        assert [one.id for one in found.events] == ["e2"]
        assert await service.get_user_state(app_name="shop", user_id="ann") == {}

    asyncio.run(work())


def test_what_is_shared_is_stored_when_who_holds_it_lets_it_go(store: Store) -> None:
    async def work() -> None:
        service, other = HoldfastSessionService(store), WHO | {"session_id": "other"}
        session = await service.create_session(**WHO, state={"app:n": 0})
        second = await service.create_session(**other, state={"user:n": 0})
        expected = {"app:n": 2, "app:m": 1, "user:n": 1}
        with SessionManager(store, workspace=False).resume_session("shop"):
            await service.append_event(session, event(1, app_n=1, app_m=1, user_n=1))
            await service.append_event(session, event(2, app_n=2))
            listed = (await service.list_sessions(app_name="shop")).sessions
            assert {one.id: one.state for one in listed}["s"] == expected
            with pytest.raises(AlreadyExistsError):
                await service.create_session(**WHO, state={"app:n": 3})
        # Said later of what has not been told yet, and more of the same session.
        await service.append_event(second, event(3, app_n=3))
        await service.append_event(session, event(4, user_n=4))
        for who in (WHO, other):
            found = await HoldfastSessionService(store).get_session(**who)
            assert found is not None
            assert found.state == {"app:n": 3, "app:m": 1, "user:n": 4}

    asyncio.run(work())


def test_what_was_not_told_yet_outlives_its_session(store: Store) -> None:
    async def work() -> None:
        service, other = HoldfastSessionService(store), WHO | {"session_id": "other"}
        session = await service.create_session(**WHO, state={"app:n": 0})
        await service.create_session(**other)
        with SessionManager(store, workspace=False).resume_session("shop"):
            await service.append_event(session, event(1, app_n=1, user_n=1))
        await service.delete_session(**WHO)
        found = await service.get_session(**other)
        assert found is not None
        assert found.state == {"app:n": 1, "user:n": 1}

    asyncio.run(work())


def test_a_session_is_read_while_somebody_holds_it(store: Store) -> None:
    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**WHO)
        await left_by_a_killed_process(service, session, event(1, app_n=1))
        with SessionManager(store, workspace=False).resume_session("shop/ann/s"):
            for _ in range(2):
                found = await service.get_session(**WHO)
                assert found is not None
                assert found.state == {"app:n": 1}
            with pytest.raises(CheckpointBusy):
                await service.append_event(found, event(2, app_n=2))
        assert await service.append_event(found, event(2, app_n=2))

    asyncio.run(work())


def test_a_rollback_takes_a_session_back(store: Store) -> None:
    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**WHO)
        for number in (1, 2):
            await service.append_event(session, event(number, n=number))
        with SessionManager(store, workspace=False).resume_session("shop/ann/s") as opened:
            opened.rollback(opened.list_checkpoints()[1].id)
        [listed] = (await service.list_sessions(app_name="shop")).sessions
        assert listed.state == {"n": 1}
        with pytest.raises(StaleSessionError):
            await service.append_event(session, event(3))
        found = await service.get_session(**WHO)
        assert found is not None
        await service.append_event(found, event(3, n=3))
        assert [one.id for one in found.events] == ["e1", "e3"]

    asyncio.run(work())


def test_state_comes_back_as_json_has_it_however_it_was_said(store: Store) -> None:
    given = {
        "whole": 1 << 100,
        "infinite": float("-inf"),
        "bytes": b"\xff\0",
        "text": "\0\U0001f600",
        "nested": {"n": [1 << 64, None, 1.5]},
    }
    expected = given | {"bytes": "_wA="}

    async def work() -> None:
        service = HoldfastSessionService(store)
        created = await service.create_session(app_name="shop", user_id="a", state=given)
        assert created.state == expected
        session = await service.create_session(app_name="shop", user_id="b")
        said = event(1, **given)
        answer = {"n": 1 << 100}
        said.content = content("user", function_response={"name": "f", "response": answer})
        await service.append_event(session, said)
        await service.append_event(session, said)
        found = await HoldfastSessionService(store).get_session(
            app_name="shop", user_id="b", session_id=session.id
        )
        assert found is not None
        assert found.state == expected
        assert [one.get_function_responses()[0].response for one in found.events] == [answer]
        listed = (await service.list_sessions(app_name="shop")).sessions
        assert [one.state for one in listed] == [expected] * 2

    asyncio.run(work())


def test_numbers_that_json_has_not_are_null_where_adk_writes_them_so(store: Store) -> None:
    given = {"n": float("nan"), "i": float("inf")}

    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**WHO)
        said = Event(author="a", custom_metadata=given)
        said.content = content("user", function_call={"name": "f", "args": given})
        await service.append_event(session, said)
        found = await service.get_session(**WHO)
        assert found is not None
        [stored] = found.events
        assert stored.custom_metadata == {"n": None, "i": None}
        assert stored.get_function_calls()[0].args == {"n": None, "i": None}

    asyncio.run(work())


def test_a_rollback_takes_back_nothing_of_app_and_user(store: Store) -> None:
    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**WHO)
        for number in (1, 2):
            await service.append_event(
                session, event(number, n=number, app_n=number, user_n=number)
            )
        with SessionManager(store, workspace=False).resume_session("shop/ann/s") as opened:
            versions = [one.id for one in opened.list_checkpoints()]
        for version in versions:
            with SessionManager(store, workspace=False).resume_session("shop/ann/s") as opened:
                opened.rollback(version)
            found = await service.get_session(**WHO)
            assert found is not None
            assert (found.state["app:n"], found.state["user:n"]) == (2, 2)
            assert len(found.events) <= 2
        assert (await service.list_sessions(app_name="shop")).sessions[0].state["app:n"] == 2

    asyncio.run(work())


def test_what_cannot_be_stored_is_refused_and_nothing_changes(store: Store) -> None:
    endless: list[Any] = []
    endless.append(endless)

    async def work() -> None:
        service = HoldfastSessionService(store)
        for value in (object(), endless, "\ud800", {"\ud800": 1}):
            with pytest.raises(StateNotSerializable):
                await service.create_session(**WHO, state={"x": value})
        session = await service.create_session(**WHO)
        for value in (object(), endless, "\ud800", {"\ud800": 1}):
            with pytest.raises(StateNotSerializable):
                await service.append_event(session, event(1, x=value))
        assert picture(await service.get_session(**WHO)) == picture(session)

    asyncio.run(work())


def test_every_public_name_is_described() -> None:
    for module in (google_adk, documents, service):
        assert undescribed(module) == []


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


def test_the_example_goes_on_in_another_process(tmp_path: Path) -> None:
    assert run_example("google-adk.py", tmp_path, "milk") == "noted; the list: milk"
    assert run_example("google-adk.py", tmp_path, "bread") == "noted; the list: milk, bread"
    assert run_example("google-adk.py", tmp_path, "--rewind") == "the list: milk"
