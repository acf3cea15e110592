"""Threads of LangGraph's own checkpointers come over whole; the source is only read."""

from __future__ import annotations

import hashlib
import json
import operator
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import UUID, uuid4

import ormsgpack
import psycopg
import pytest
from click.testing import CliRunner
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, Send, interrupt
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_validator

from holdfast.cli import holdfast as cli
from holdfast.errors import (
    ClassNotAllowed,
    IntegrityError,
    NotADatabase,
    StateCorrupt,
    StoreUnavailable,
)
from holdfast.integrations.langgraph import HoldfastSaver, import_threads
from holdfast.integrations.langgraph.classes import Classes
from holdfast.integrations.langgraph.peer_values import PeerValues
from tests.integrations.langgraph.graphs import at, checkpoint, id_of
from tests.integrations.langgraph.random_graphs import build, picture, run
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: int


class Plan(BaseModel):
    title: str
    order: Any = None


@dataclass(frozen=True)
class Counted:
    number: int
    lines: list[int] = field(init=False, default_factory=list)


class Aliased(BaseModel):
    name: str = Field(alias="theName")


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int

    @computed_field
    def following(self) -> int:
        return self.number + 1


class Prefixed(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def prefix(cls, name: str) -> str:
        if name.startswith("#"):
            raise ValueError("prefixed already")
        return f"#{name}"


class Needy(BaseModel):
    name: str


TYPES = (Colour, Order, Plan, Counted, Aliased, Closed, Prefixed, Needy)
Peer = Callable[[], Any]


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """The URL of a peer's database, and its saver."""
    if request.param == "sqlite":
        path = tmp_path / "peer.sqlite"
        with SqliteSaver.from_conn_string(str(path)) as saver:
            saver.setup()
            yield str(path), saver
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database(f"peer_{uuid4().hex[:8]}")
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        yield url, saver


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[HoldfastSaver]:
    with HoldfastSaver(tmp_path / "ours.db", types=TYPES) as opened:
        yield opened


def everything(saver: Any, thread_id: str) -> list[Any]:
    return [
        (found.config, found.parent_config, found.checkpoint, found.metadata, found.pending_writes)
        for found in saver.list({"configurable": {"thread_id": thread_id}})
    ]


def test_whole_histories_come_over_and_the_graph_goes_on(
    source: tuple[str, Any], saver: HoldfastSaver
) -> None:
    url, peer = source
    from random import Random

    for seed in (1, 3):
        run(seed, peer)
    seen: list[tuple[int, int]] = []
    report = import_threads(url, saver, progress=lambda done, total: seen.append((done, total)))
    assert report.threads == 2
    assert report.checkpoints > 10
    assert seen[-1] == (report.checkpoints, report.checkpoints)
    for seed in (1, 3):
        thread: Any = {"configurable": {"thread_id": f"thread-{seed}"}}
        graphs = [build(Random(seed), one) for one in (peer, saver)]
        assert picture(graphs[1], thread) == picture(graphs[0], thread)
        results = [
            graph.invoke({"messages": [HumanMessage("on", id="on")]}, thread) for graph in graphs
        ]
        for result in results:
            asked = [one.value for one in result.pop("__interrupt__", ())]
            result["asked"] = asked
        assert results[0] == results[1]


VALUES = {
    "plain": [None, True, 1, 2.5, "text", {"k": [1]}, {1: "int key"}],
    "bytes": b"raw",
    "times": [datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 2), timedelta(1, 2), time(1, 2)],
    "others": [UUID(int=7), Decimal("1.10"), Path("/x/y"), ip_address("::1"), {1, 2}, deque([1])],
    "messages": [
        HumanMessage("a", id="1"),
        AIMessage("b", id="2", tool_calls=[{"name": "f", "args": {}, "id": "c", "type": "tool_call"}]),
        ToolMessage("c", tool_call_id="c", id="3"),
    ],
    "send": [Send("n", {"x": 1})],
    "command": Command(goto="n", resume={"a": 1}),
    "enum": Colour.RED,
    "dataclass": Order(1),
    "model": Plan(title="t"),
}  # fmt: skip


def put_one(peer: Any, value: Any) -> Any:
    values = {"fine": [1], "own": [value]}
    versions = dict.fromkeys(values, "1")
    config = peer.put(at(), {**checkpoint(values), "channel_versions": versions}, {}, versions)
    peer.put_writes(config, [("own", [value])], "task")
    return config


def counted() -> Counted:
    made = Counted(1)
    made.lines.append(2)
    return made


@pytest.mark.parametrize(
    "value",
    [
        Aliased(theName="n"),
        Closed(number=1),
        Prefixed(name="n"),
        counted(),
        {1, "a", (1, (2, 3))},
        frozenset({(1, 2)}),
        timezone(timedelta(hours=2), "here"),
    ],
    ids=["alias", "closed", "validator", "late", "set", "frozenset", "zone"],
)
def test_what_the_peers_own_way_of_reading_spoils_comes_over_exactly(
    source: tuple[str, Any], saver: HoldfastSaver, value: Any
) -> None:
    url, peer = source
    put_one(peer, value)
    assert import_threads(url, saver).refused == ()
    found = saver.get_tuple(at())
    assert found is not None
    assert found.pending_writes
    for [back] in (found.checkpoint["channel_values"]["own"], found.pending_writes[0][2]):
        assert (type(back), repr(back)) == (type(value), repr(value))


def test_a_value_that_cannot_be_made_is_named_with_the_channel_and_the_path(
    source: tuple[str, Any], saver: HoldfastSaver
) -> None:
    url, peer = source
    put_one(peer, {"needy": Needy.model_construct()})
    [refused] = import_threads(url, saver).refused
    assert refused.code == StateCorrupt.code
    assert refused.reason.startswith(
        "thread 't', channel 'own', $[0]['needy']: the stored value cannot be read: "
        f"no {__name__}.Needy can be made of it: 1 validation error"
    )


def test_in_old_json_it_is_named_with_the_channel_and_the_path_too() -> None:
    order = {"lc": 2, "type": "constructor", "id": [*__name__.split("."), "Order"], "args": [1, 2]}
    stored = json.dumps({"channel_values": {"fine": [1], "own": [{"x": order}]}}).encode()
    with pytest.raises(StateCorrupt, match=r"channel 'own', \$\[0\]\['x'\]: .*Order can be made"):
        PeerValues(Classes(TYPES)).read_checkpoint("json", stored, "t")


def test_metadata_are_plain_whatever_they_look_like(tmp_path: Path, saver: HoldfastSaver) -> None:
    objects = [
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
         "kwargs": {"content": "hi"}},
        {"lc": 2, "type": "constructor", "id": ["app", "models", "Order"], "method": [None, "construct"]},
    ]  # fmt: skip
    path = tmp_path / "peer.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as peer:
        for thread_id, stored in (
            ("a", json.dumps({"writes": {"n": objects}})),
            ("b", b"\xff"),
            ("c", 7),
            ("d", "["),
            ("e", None),
        ):
            peer.put(at(thread_id), checkpoint(), {}, {})
            update = "UPDATE checkpoints SET metadata = ? WHERE thread_id = ?"
            peer.conn.execute(update, (stored, thread_id))
        peer.conn.commit()
        report = import_threads(str(path), saver)
        for thread_id in "ae":
            assert everything(saver, thread_id) == everything(peer, thread_id)
    assert [(one.thread_id, one.code) for one in report.refused] == [
        (thread_id, StateCorrupt.code) for thread_id in "bcd"
    ]


def fill(peer: Any) -> Any:
    versions = dict.fromkeys(VALUES, "1")
    first = peer.put(at(), {**checkpoint(VALUES), "channel_versions": versions},
                     {"source": "input", "step": 1, "run_id": "r", "odd": ["é"]}, versions)  # fmt: skip
    peer.put_writes(first, [("x", [HumanMessage("w", id="w")]), ("__interrupt__", (Interrupt("i", id="i"),)),
                            ("y", None)], "task", "~path")  # fmt: skip
    peer.put(at(namespace="sub"), checkpoint({"s": "1"}), {"source": "loop"}, {"s": 1})
    return peer.put(first, checkpoint({"z": "2"}), {"source": "loop", "step": 2}, {"z": 1})


def test_values_writes_and_metadata_come_over(
    source: tuple[str, Any], saver: HoldfastSaver
) -> None:
    url, peer = source
    fill(peer)
    report = import_threads(url, saver)
    assert (report.threads, report.checkpoints, report.writes) == (1, 3, 3)
    assert everything(saver, "t") == everything(peer, "t")


def test_repeating_it_stores_what_is_missing(source: tuple[str, Any], saver: HoldfastSaver) -> None:
    url, peer = source
    last = fill(peer)
    import_threads(url, saver)
    before = everything(saver, "t")
    again = import_threads(url, saver)
    assert (again.checkpoints, again.present, again.writes) == (0, 3, 0)
    assert everything(saver, "t") == before
    peer.put_writes(last, [("late", 1)], "late task")
    peer.put(last, checkpoint({"z": "3"}), {"source": "loop"}, {"z": 2})
    more = import_threads(url, saver)
    assert (more.checkpoints, more.present, more.writes) == (1, 3, 1)
    assert everything(saver, "t") == everything(peer, "t")


def test_sends_of_older_versions_stand_where_the_peer_has_them(
    source: tuple[str, Any], saver: HoldfastSaver
) -> None:
    url, peer = source
    first = peer.put(at(), {**checkpoint({"x": "1"}), "v": 3}, {}, {"x": 1})
    for task, path in (("b", "~1"), ("a", "~2")):
        sends = [
            ("__pregel_tasks", Send("n", {"from": task, "number": number})) for number in (1, 2)
        ]
        peer.put_writes(first, [("x", 1), *sends], task, path)
    second = peer.put(first, {**checkpoint({"x": "2"}), "v": 3}, {}, {"x": 2})
    peer.put(second, {**checkpoint({"x": "3"}), "v": 4}, {}, {"x": 3})
    import_threads(url, saver)
    assert everything(saver, "t") == everything(peer, "t")
    brought = saver.get_tuple(second)
    assert brought is not None
    sent = brought.checkpoint["channel_values"].get("__pregel_tasks", [])
    assert [one.arg["from"] for one in sent] == (
        ["b", "b", "a", "a"] if isinstance(peer, PostgresSaver) else []
    )


@pytest.mark.parametrize("cap", [None, 2])
def test_what_was_pruned_here_is_not_brought_again(
    source: tuple[str, Any], tmp_path: Path, cap: int | None
) -> None:
    url, peer = source
    last = at()

    def step(number: int) -> None:
        nonlocal last
        last = peer.put(last, checkpoint({"z": str(number)}), {"step": number}, {})
        peer.put_writes(last, [("x", number)], "task")

    def steps(saver: HoldfastSaver) -> list[tuple[Any, int]]:
        return [
            (found.metadata.get("step"), len(found.pending_writes or ()))
            for found in saver.list(at())
        ]

    for number in range(5):
        step(number)
    with HoldfastSaver(tmp_path / "ours.db", max_checkpoints_per_thread=cap) as saver:
        assert import_threads(url, saver).checkpoints == 5
        saver.prune(["t"], keep_last=2)
        again = import_threads(url, saver)
        assert (again.checkpoints, again.present, again.writes) == (0, 5, 0)
        assert steps(saver) == [(4, 1), (3, 1)]
        step(5)
        assert import_threads(url, saver).checkpoints == 1
        assert steps(saver)[:2] == [(5, 1), (4, 1)]


def test_one_that_was_stopped_anywhere_is_simply_repeated(
    source: tuple[str, Any], saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, peer = source
    fill(peer)

    @contextmanager
    def broken(name: str, after: int) -> Iterator[None]:
        method = getattr(saver.store, name)
        left = [after]

        def failing(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return method(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(saver.store, name, failing)
            yield

    for name, after in (("put_writes", 0), ("put", 0), ("put", 1)):
        with broken(name, after), pytest.raises(KeyboardInterrupt):
            import_threads(url, saver)
    import_threads(url, saver)
    assert everything(saver, "t") == everything(peer, "t")


def test_a_thread_that_went_on_here_is_left_alone(
    source: tuple[str, Any], saver: HoldfastSaver
) -> None:
    url, peer = source
    last = fill(peer)
    import_threads(url, saver)
    saver.put(last, checkpoint({}, "mine"), {}, {})
    peer.put(last, checkpoint(), {}, {})
    assert import_threads(url, saver).diverged == ("t",)
    latest = saver.get_tuple(at())
    assert latest is not None
    assert id_of(latest.config) == "mine"


class Answers(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def asks_three_times(state: Answers) -> Answers:
    name = interrupt("to whom?")
    sure = interrupt(f"really, {name}?")
    return {"log": [name, sure, interrupt("and then?")]}


def compiled(checkpointer: Any) -> Any:
    builder = StateGraph(Answers).add_node("ask", asks_three_times).add_edge(START, "ask")
    return builder.compile(checkpointer=checkpointer)


def asked(saver: Any) -> list[str]:
    return [one.value for one in compiled(saver).get_state(at()).interrupts]


def test_repeating_it_brings_the_next_question_within_a_checkpoint(
    source: tuple[str, Any], saver: HoldfastSaver
) -> None:
    url, peer = source
    compiled(peer).invoke({"log": []}, at())
    import_threads(url, saver)
    for answer, question in (("ann", "really, ann?"), ("yes", "and then?")):
        compiled(peer).invoke(Command(resume=answer), at())
        report = import_threads(url, saver)
        assert (report.checkpoints, report.diverged) == (0, ())
        assert asked(saver) == [question]
        assert everything(saver, "t") == everything(peer, "t")
        assert import_threads(url, saver).writes == 0
    done = compiled(saver).invoke(Command(resume="rest"), at())
    assert done == {"log": ["ann", "yes", "rest"]}


@pytest.mark.parametrize("answers", [(), ("bob",), ("bob", "yes", "rest")])
def test_an_answer_that_was_given_here_is_not_buried(
    source: tuple[str, Any], saver: HoldfastSaver, answers: tuple[str, ...]
) -> None:
    url, peer = source
    compiled(peer).invoke({"log": []}, at())
    import_threads(url, saver)
    compiled(saver).invoke(Command(resume="carl"), at())
    before = everything(saver, "t")
    for answer in answers:
        compiled(peer).invoke(Command(resume=answer), at())
    report = import_threads(url, saver)
    assert (report.diverged, report.writes) == (("t",), 0)
    assert everything(saver, "t") == before
    assert asked(saver) == ["really, carl?"]


def test_an_error_of_the_source_that_follows_another_comes_over(
    source: tuple[str, Any], saver: HoldfastSaver
) -> None:
    url, peer = source
    last = peer.put(at(), checkpoint(), {}, {})
    for error in ("first", "second"):
        peer.put_writes(last, [("__error__", error)], "task")
        assert import_threads(url, saver).writes == 1
        assert everything(saver, "t") == everything(peer, "t")
    saver.put_writes(last, [("__error__", "here")], "task")
    assert import_threads(url, saver).diverged == ("t",)


def test_the_file_of_the_source_is_not_changed(tmp_path: Path, saver: HoldfastSaver) -> None:
    path = tmp_path / "peer.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as peer:
        fill(peer)
    before = hashlib.sha256(path.read_bytes()).digest()
    path.chmod(0o400)
    import_threads(str(path), saver)
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_a_class_that_is_not_allowed_is_named_and_not_made(
    source: tuple[str, Any], tmp_path: Path
) -> None:
    url, peer = source
    fill(peer)
    with HoldfastSaver(tmp_path / "strict.db") as strict:
        [refused] = import_threads(url, strict).refused
        assert (refused.thread_id, refused.code) == ("t", ClassNotAllowed.code)
        assert "thread 't', channel" in refused.reason
        assert list(strict.list(None)) == []
    # With the class allowed it goes on from there.
    with HoldfastSaver(tmp_path / "strict.db", types=TYPES) as wide:
        import_threads(url, wide)
        assert everything(wide, "t") == everything(peer, "t")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Order(1), "$"),
        ([1, {"plans": (Order(1),)}], "$[1]['plans'][0]"),
        ({"next": [Command(update={"order": Order(1)})]}, "$['next'][0].update['order']"),
    ],
)
@pytest.mark.parametrize("written", [False, True])
def test_a_class_that_is_not_allowed_is_found_where_it_stands(
    source: tuple[str, Any], tmp_path: Path, value: Any, path: str, written: bool
) -> None:
    url, peer = source
    values = {"fine": [Path("/x")], **({} if written else {"checkpoint": "x", "own": value})}
    versions = dict.fromkeys(values, "1")
    config = peer.put(at(), {**checkpoint(values), "channel_versions": versions}, {}, versions)
    if written:
        peer.put_writes(config, [("own", value)], "task")
    with HoldfastSaver(tmp_path / "strict.db") as strict:
        [refused] = import_threads(url, strict).refused
    where = f"thread 't', channel 'own', {path}: it holds an object of {__name__}.Order"
    assert refused.reason.startswith(where)


def test_in_old_json_it_is_found_where_it_stands_too() -> None:
    values = PeerValues(Classes())
    order = {"lc": 2, "type": "constructor", "id": [*__name__.split("."), "Order"]}
    said = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
            "kwargs": {"content": [{"order": order}]}}  # fmt: skip
    stored = json.dumps({"channel_values": {"fine": [1], "own": [said]}}).encode()
    with pytest.raises(ClassNotAllowed) as caught:
        values.read_checkpoint("json", stored, "t")
    assert (caught.value.channel, caught.value.path) == ("own", "$[0].content[0]['order']")
    stored = json.dumps({"channel_values": {"own": 1}, "versions_seen": order}).encode()
    with pytest.raises(ClassNotAllowed) as caught:
        values.read_checkpoint("json", stored, "t")
    assert (caught.value.channel, caught.value.path) == ("checkpoint", "$['versions_seen']")


class Reversed(CipherProtocol):
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


@pytest.mark.parametrize(
    ("serializer", "value", "reason"),
    [
        (EncryptedSerializer(Reversed()), [1], "it is encrypted (msgpack+reversed), with a key"),
        (
            JsonPlusSerializer(pickle_fallback=True),
            1j,
            "it is stored in a way that is not read here, pickle",
        ),
    ],
)
def test_what_no_class_makes_readable_is_not_said_to_need_one(
    source: tuple[str, Any], saver: HoldfastSaver, serializer: Any, value: Any, reason: str
) -> None:
    url, peer = source
    first = peer.put(at(), checkpoint(), {}, {})
    peer.serde = serializer
    peer.put_writes(first, [("own", value)], "task")
    [refused] = import_threads(url, saver).refused
    assert refused.reason.startswith(f"thread 't', channel 'own', $: {reason}")
    assert "types" not in refused.reason


def test_a_way_to_store_that_is_not_known_is_named_where_it_stands() -> None:
    array = ormsgpack.packb([1, ormsgpack.Ext(6, b"\x90")])
    with pytest.raises(ClassNotAllowed, match=r"\$\[1\]: it is stored in a way .* the extension 6"):
        PeerValues(Classes()).read("msgpack", array, "t", "c")


def test_a_file_may_be_given_as_a_path(tmp_path: Path, saver: HoldfastSaver) -> None:
    path = tmp_path / "peer.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as peer:
        fill(peer)
    assert import_threads(path, saver).checkpoints == 3


def test_threads_that_cannot_be_brought_do_not_keep_the_others_away(
    source: tuple[str, Any], tmp_path: Path
) -> None:
    url, peer = source
    for thread_id, value in (("a", 1), ("b", Order(1)), ("c", 2), ("d", Order(2)), ("e", 3)):
        first = peer.put(at(thread_id), checkpoint({"x": "1"}), {}, {"x": "1"})
        peer.put_writes(first, [("x", value)], "task")
    target = tmp_path / "ours.db"
    command = ["import", "--from", "langgraph", url, "--to", str(target)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == IntegrityError.exit_code, done.output
    assert "imported 3 checkpoints and 3 writes of 3 threads" in done.output
    for thread_id in "bd":
        assert f"left out {thread_id}  thread '{thread_id}', channel 'x', $" in done.output
    again = CliRunner().invoke(cli, [*command, "--json"])
    assert again.exit_code == IntegrityError.exit_code
    report = json.loads(again.output)["import"]
    assert (report["threads"], report["checkpoints"], report["present"]) == (3, 0, 3)
    assert [(one["thread_id"], one["code"]) for one in report["refused"]] == [
        ("b", ClassNotAllowed.code), ("d", ClassNotAllowed.code)
    ]  # fmt: skip
    with HoldfastSaver(target, types=TYPES) as saver:
        assert import_threads(url, saver).refused == ()
        for thread_id in "abcde":
            assert everything(saver, thread_id) == everything(peer, thread_id)


class Bomb:
    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Bomb.made += 1


def ext(code: int, *parts: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))


@pytest.mark.parametrize("code", range(8))
def test_forged_msgpack_makes_nothing(code: int) -> None:
    values = PeerValues(Classes(TYPES))
    Bomb.made = 0
    for name in ("Bomb", "os.system"):
        forged = ext(code, __name__, name, ["x"], "fromisoformat")
        if code == 7:
            forged = ormsgpack.packb(ormsgpack.Ext(7, ext(2, __name__, name, {})))
        with pytest.raises((ClassNotAllowed, StateCorrupt), match="thread 't', channel 'c'"):
            values.read("msgpack", forged, "t", "c")
    with pytest.raises((ClassNotAllowed, StateCorrupt)):
        values.read("msgpack", ext(3, "datetime", "datetime", "x", "__class__"), "t", "c")
    assert Bomb.made == 0


def test_pickles_and_forged_json_make_nothing() -> None:
    values = PeerValues(Classes())
    Bomb.made = 0
    constructor = {
        "lc": 2,
        "type": "constructor",
        "id": [*__name__.split("."), "Bomb"],
        "kwargs": {},
    }
    for kind, data in (
        ("pickle", b"cos\nsystem\n(S'x'\ntR."),
        ("json", json.dumps([constructor]).encode()),
        ("json", b'{"lc": 1, "type": "constructor", "id": 7}'),
        ("unknown", b""),
    ):
        with pytest.raises(ClassNotAllowed):
            values.read(kind, data, "t", "c")
    for kind in ("msgpack", "json"):
        with pytest.raises(StateCorrupt, match="thread 't', channel 'c'"):
            values.read(kind, b"\xc1 no", "t", "c")
    old = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
           "kwargs": {"content": "hi"}}  # fmt: skip
    assert values.read("json", json.dumps(old).encode(), "t", "c") == HumanMessage("hi")
    assert Bomb.made == 0


def test_what_is_no_database_of_langgraph_is_refused(
    tmp_path: Path, saver: HoldfastSaver, postgres_server: PostgresServer
) -> None:
    with pytest.raises(StoreUnavailable):
        import_threads(str(tmp_path / "missing"), saver)
    (tmp_path / "text").write_text("not a database" * 100)
    with pytest.raises(NotADatabase):
        import_threads(str(tmp_path / "text"), saver)
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(NotADatabase):
        import_threads(str(tmp_path / "empty.db"), saver)
    empty = postgres_server.create_database(f"empty_{uuid4().hex[:8]}")
    with pytest.raises(NotADatabase):
        import_threads(empty, saver)
    with pytest.raises(StoreUnavailable):
        import_threads("postgresql://localhost:1/none", saver)
    assert psycopg.__version__


def test_the_command_brings_threads_over(tmp_path: Path) -> None:
    path, target = tmp_path / "peer.sqlite", tmp_path / "ours.db"
    with SqliteSaver.from_conn_string(str(path)) as peer:
        peer.put(at("a thread"), checkpoint({"x": "1"}), {"source": "input"}, {})
    command = ["import", "--from", "langgraph", str(path), "--to", str(target)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "imported 1 checkpoints and 0 writes of 1 threads" in done.output
    again = CliRunner().invoke(cli, [*command, "--json"])
    assert json.loads(again.output)["import"]["present"] == 1
    with HoldfastSaver(target) as saver:
        assert [one.thread_id for one in saver.list_threads()] == ["a thread"]
    assert CliRunner().invoke(cli, [*command, "--restore"]).exit_code == 2
    assert CliRunner().invoke(cli, ["import", str(path), "--to", "x"]).exit_code == 2
