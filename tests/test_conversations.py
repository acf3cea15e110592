"""Conversations grow by any number of writers, and none of them loses anything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.conversations import Change, Conversations, Draft, Version, joined
from holdfast.errors import ForeignSession, InvalidConfiguration, InvalidIdentifier, StaleWriter
from holdfast.model import CheckpointQuery
from holdfast.stores import Store, open_store
from tests.memory import holds


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else str(tmp_path / "store.db")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def conversations(store: Store) -> Conversations:
    return Conversations(store, "test")


def adding(*items: Any) -> Change:
    def add(last: Version | None) -> Draft:
        return Draft({"items": [*(last.state["items"] if last else []), *items]})

    return add


def items(conversations: Conversations, thread_id: str = "t", namespace: str = "") -> Any:
    found = conversations.read(thread_id, namespace)
    return None if found is None else found.state["items"]


def test_what_was_added_is_read_in_its_order(conversations: Conversations) -> None:
    assert conversations.read("t") is None
    for number in range(5):
        conversations.change("t", adding(number))
    assert items(conversations) == [0, 1, 2, 3, 4]


def test_a_change_that_says_nothing_stores_nothing(conversations: Conversations) -> None:
    assert conversations.change("t", lambda last: None) is None
    stored = conversations.change("t", adding(1))
    assert conversations.change("t", lambda last: None) == stored
    assert len(conversations.store.list_checkpoints(CheckpointQuery(session_id="t"))) == 1


def test_two_writers_who_take_turns_see_each_other(store: Store) -> None:
    one, other = Conversations(store, "test"), Conversations(store, "test")
    for number in range(6):
        (one if number % 2 else other).change("t", adding(number))
    assert items(one) == items(other) == [0, 1, 2, 3, 4, 5]


def test_a_change_is_repeated_on_what_came_in_between(conversations: Conversations) -> None:
    seen = []

    def late(last: Version | None) -> Draft | None:
        seen.append(None if last is None else last.state["items"])
        if len(seen) < 3:
            conversations.change("t", adding(f"faster {len(seen)}"))
        return adding("late")(last)

    conversations.change("t", late)
    assert seen == [None, ["faster 1"], ["faster 1", "faster 2"]]
    assert items(conversations) == ["faster 1", "faster 2", "late"]


def test_many_threads_add_at_once_and_all_of_it_is_there(store: Store) -> None:
    writers = [Conversations(store, "test", max_versions=3) for _ in range(4)]

    def write(number: int) -> None:
        for at in range(8):
            writers[number].change("t", adding([number, at]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = items(writers[0])
    assert sorted(found) == [[number, at] for number in range(4) for at in range(8)]
    for number in range(4):
        assert [at for writer, at in found if writer == number] == list(range(8))


WRITER = """
import sys
from holdfast.conversations import Conversations, Draft
with Conversations(sys.argv[1], "test", max_versions=2) as conversations:
    print("ready", flush=True)
    sys.stdin.readline()
    for at in range(15):
        def add(last):
            return Draft({"items": [*(last.state["items"] if last else []), [sys.argv[2], at]]})
        conversations.change("t", add)
"""


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_processes_add_at_once_and_all_of_it_is_there(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "store.db")
    if backend == "postgres":
        url = request.getfixturevalue("postgres_url")
    open_store(url).close()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in ("a", "b")
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=120)
    assert [writer.returncode for writer in writers] == [0, 0]
    with Conversations(url, "test") as conversations:
        assert sorted(items(conversations)) == [
            [name, at] for name in ("a", "b") for at in range(15)
        ]


def test_a_version_is_gone_on_from_once(conversations: Conversations) -> None:
    first = conversations.replace("t", Draft({"items": [1]}), after=None)
    with pytest.raises(StaleWriter):
        conversations.replace("t", Draft({"items": [9]}), after=None)
    second = conversations.replace("t", Draft({"items": [1, 2]}), after=first)
    with pytest.raises(StaleWriter):
        conversations.replace("t", Draft({"items": [1, 9]}), after=first)
    conversations.erase("t")
    with pytest.raises(StaleWriter):
        conversations.replace("t", Draft({"items": [1, 2, 9]}), after=second)
    assert conversations.read("t") is None


def test_of_many_who_go_on_from_one_version_one_does(store: Store) -> None:
    writers = [Conversations(store, "test") for _ in range(4)]
    first = writers[0].replace("t", Draft({"items": []}), after=None)

    def go_on(number: int) -> bool:
        try:
            writers[number].replace("t", Draft({"items": [number]}), after=first)
        except StaleWriter:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(go_on, range(4))) == 1


def test_it_goes_on_where_the_last_versions_were_deleted(conversations: Conversations) -> None:
    versions = [conversations.change("t", adding(number)) for number in range(4)]
    conversations.store.delete_checkpoints([one.id for one in versions[2:] if one is not None])
    assert items(conversations) == [0, 1]
    conversations.change("t", adding("again"))
    conversations.change("t", adding("and again"))
    assert items(conversations) == [0, 1, "again", "and again"]


def test_it_goes_on_in_a_fork_from_an_older_version(conversations: Conversations) -> None:
    versions = [conversations.change("t", adding(number)) for number in range(3)]
    manager = SessionManager(conversations.store, workspace=False)
    middle = versions[1]
    assert middle is not None
    fork = manager.get_session("t").fork(middle.id)
    fork.close()
    conversations.change(fork.id, adding("instead"))
    assert items(conversations, fork.id) == [0, 1, "instead"]
    assert items(conversations) == [0, 1, 2]
    # It is a thread like any other, also for those who list and erase.
    assert {thread.id for thread in conversations.threads()} == {"t", fork.id}
    conversations.erase("t")
    conversations.erase(fork.id)
    assert (conversations.threads(), conversations.store.list_agents()) == ([], [])


def test_each_thread_has_an_agent_of_its_own(conversations: Conversations) -> None:
    for thread_id in ("one", "two"):
        for number in range(2):
            conversations.change(thread_id, adding(number))
    agents = {thread.id: thread.agent_id for thread in conversations.threads()}
    assert agents.keys() == {"one", "two"}
    assert sorted(agents.values()) == sorted(one.id for one in conversations.store.list_agents())
    assert len({*agents.values()}) == 2


def test_namespaces_are_conversations_of_their_own(conversations: Conversations) -> None:
    for namespace in ("", "b", "a"):
        conversations.change("t", adding(namespace), namespace=namespace)
    assert conversations.namespaces("t") == ["", "a", "b"]
    conversations.erase("t", "a")
    assert [items(conversations, "t", name) for name in ("", "a", "b")] == [[""], None, ["b"]]
    conversations.erase("t")
    assert (conversations.namespaces("t"), conversations.threads()) == ([], [])
    conversations.change("t", adding("new"))
    assert items(conversations) == ["new"]


def test_the_versions_before_one_are_forgotten(conversations: Conversations) -> None:
    versions = [conversations.change("t", adding(number)) for number in range(4)]
    conversations.change("t", adding("other"), namespace="apart")
    conversations.forget_before(versions[2])
    conversations.forget_before(None)
    kept = conversations.store.list_checkpoints(CheckpointQuery(session_id="t", namespace=""))
    assert [record.id for record in kept] == [one.id for one in versions[:1:-1] if one is not None]
    assert items(conversations) == [0, 1, 2, 3]
    assert items(conversations, "t", "apart") == ["other"]


def test_threads_are_listed_by_what_is_said_about_them(store: Store) -> None:
    ours, others = Conversations(store, "test"), Conversations(store, "another")
    ours.change("one", adding(1), about={"user": "ann"})
    ours.change("two", adding(1), about={"user": "bob"})
    others.change("three", adding(1), about={"user": "ann"})
    assert [thread.id for thread in ours.threads()] == ["two", "one"]
    assert [thread.id for thread in ours.threads({"user": "ann"})] == ["one"]


def test_metadata_is_read_without_the_state(conversations: Conversations) -> None:
    conversations.change("t", lambda last: Draft({"items": []}, {"title": "a"}))
    head = conversations.head("t")
    assert head is not None
    assert (head.metadata, conversations.head("u")) == ({"title": "a"}, None)


def test_what_a_reader_changes_is_the_readers_own(conversations: Conversations) -> None:
    conversations.change("t", adding({"text": "hello"}))
    read = items(conversations)
    read[0]["text"] = "changed"
    conversations.change("t", adding({"text": "there"}))
    assert items(conversations) == [{"text": "hello"}, {"text": "there"}]


def test_an_addition_costs_what_was_added(store: Store) -> None:
    writer = Conversations(store, "test")
    message = {"role": "user", "content": "x" * 1000}
    writer.change("t", adding(*[message | {"n": n} for n in range(500)]))

    def stored() -> int:
        query = CheckpointQuery(session_id="t")
        return sum(record.stored_bytes for record in store.list_checkpoints(query))

    before = stored()
    for number in range(10):
        writer.change("t", adding(message | {"n": number, "content": f"{number} " * 400}))
    assert stored() - before < 100_000  # the whole conversation again each time would be 5 MB
    fresh = Conversations(store, "test")
    before = stored()
    fresh.change("t", adding(message))
    assert stored() - before < 50_000
    assert len(items(fresh)) == 511


def test_versions_are_capped(store: Store) -> None:
    capped = Conversations(store, "test", max_versions=2)
    for number in range(6):
        capped.change("t", adding(number))
    assert len(store.list_checkpoints(CheckpointQuery(session_id="t"))) == 2
    # A writer that saw an empty conversation long ago cannot begin it once more.
    with pytest.raises(StaleWriter):
        capped.replace("t", Draft({"items": ["late"]}), after=None)
    assert items(capped) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(InvalidConfiguration):
        Conversations(store, "test", max_versions=0)


def test_nothing_to_do_is_said_of_the_newest_version(store: Store) -> None:
    one, other = Conversations(store, "test"), Conversations(store, "test")
    one.change("t", adding())
    other.change("t", adding("new"))
    taken: list[Any] = []

    def take(last: Version | None) -> Draft | None:
        taken[:] = last.state["items"] if last else []
        return Draft({"items": []}) if taken else None

    one.change("t", take)
    assert (taken, items(other)) == (["new"], [])


def test_a_change_is_refused_for_what_is_so_now(store: Store) -> None:
    one, other = Conversations(store, "test"), Conversations(store, "test")

    def add_to(expected: list[Any]) -> Change:
        def add(last: Version | None) -> Draft | None:
            found = last.state["items"] if last else []
            if found != expected:
                raise ValueError(f"{found}")
            return Draft({"items": [*found, len(found)]})

        return add

    for number in range(6):
        (one if number % 2 else other).change("t", add_to(list(range(number))))
    with pytest.raises(ValueError, match="0, 1, 2, 3, 4, 5"):
        other.change("t", add_to([0]))
    assert items(one) == [0, 1, 2, 3, 4, 5]


def test_what_another_face_stored_is_gone_on_from(conversations: Conversations) -> None:
    for number in range(3):
        conversations.change("t", adding(number))
    manager = SessionManager(conversations.store, workspace=False)
    with manager.resume_session("t") as session:
        session.save_checkpoint("by-hand", state={"items": ["by hand"]})
    conversations.change("t", adding("after"))
    assert items(conversations) == ["by hand", "after"]


@pytest.mark.parametrize("whose", ["session", "empty session", "conversation"])
def test_a_session_of_somebody_else_is_neither_read_nor_gone_on_from(
    store: Store, whose: str
) -> None:
    manager, conversations = SessionManager(store, workspace=False), Conversations(store, "test")
    if whose == "conversation":
        Conversations(store, "other").change("t", adding("theirs"))
    else:
        with manager.create_session("me", session_id="t") as session:
            if whose == "session":
                session.save_checkpoint("kept", state={"items": ["theirs"]})
    before = store.list_checkpoints(CheckpointQuery(session_id="t"))
    if whose != "empty session":
        with pytest.raises(ForeignSession, match=r"session t .* type (me|other)"):
            conversations.read("t")
    with pytest.raises(ForeignSession, match="use an id that nothing else has"):
        conversations.change("t", adding("mine"))
    with pytest.raises(ForeignSession):
        conversations.replace("t", Draft({"items": []}), after=None)
    assert store.list_checkpoints(CheckpointQuery(session_id="t")) == before
    # A namespace of it is for anybody.
    conversations.change("t", adding("mine"), namespace="runs")
    assert items(conversations, namespace="runs") == ["mine"]


def test_only_its_own_part_of_anothers_session_is_erased(conversations: Conversations) -> None:
    manager = SessionManager(conversations.store, workspace=False)
    with manager.create_session("me", session_id="t") as session:
        session.save_checkpoint("kept", state={}, pinned=True)
    conversations.change("t", adding(1), namespace="runs")
    for namespace in (None, ""):
        with pytest.raises(ForeignSession, match=r"session t .* type me"):
            conversations.erase("t", namespace)
    assert items(conversations, namespace="runs") == [1]
    conversations.erase("t", "runs")
    assert items(conversations, namespace="runs") is None
    assert [one.name for one in session.list_checkpoints()] == ["kept"]


def test_bad_ids_are_refused(conversations: Conversations) -> None:
    for bad in ("", "\0", "x" * 513):
        with pytest.raises(InvalidIdentifier):
            conversations.change(bad, adding(1))


def test_a_store_is_closed_by_who_opened_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        with Conversations(store, "test") as conversations:
            conversations.change("t", adding(1))
        assert items(Conversations(store, "test")) == [1]


def test_ids_of_several_parts_stay_apart() -> None:
    assert joined("a", "b") == "a/b"
    assert len({joined("a/b", "c"), joined("a", "b/c"), joined("a%2Fb", "c")}) == 3


@pytest.mark.parametrize("namespace", [None, ""], ids=["all namespaces", "one namespace"])
def test_what_is_erased_does_not_stay_in_memory(
    conversations: Conversations, namespace: str | None
) -> None:
    gone = "gone for good " * 500
    conversations.change("t", adding(gone))
    conversations.change("other", adding("kept"))
    assert items(conversations) == [gone]
    assert holds(conversations, gone)
    conversations.erase("t", namespace)
    assert not holds(conversations, gone)
    assert items(conversations, "other") == ["kept"]
    conversations.change("t", adding("anew"))
    assert items(conversations) == ["anew"]
