"""The same odd inputs on three backends, plain and sealed: the same outcome everywhere.

They are stored exactly, or refused by the same error of ours.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing
from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, EffectOutcome, SessionCopy, SessionQuery
from holdfast.testing.drafts import session as new_session
from holdfast.testing.drafts import write as new_write

ODD: Final[dict[str, Any]] = {
    # Texts that somebody takes for something else.
    "empty": "",
    "blank": " ",
    "newline": "a\nb",
    "carriage-return": "a\r\nb",
    "tab": "\t",
    "nul": "a\0b",
    "only-nul": "\0",
    "escape": "\x1b[31mred",
    "bell": "\a",
    "delete": "\x7f",
    "quote": "it's",
    "two-quotes": "''",
    "double-quote": 'say "x"',
    "backslash": "a\\b\\",
    "dollar-quote": "$$; DROP SCHEMA holdfast; $$",
    "sql": "'; DROP TABLE sessions; --",
    "sql-union": "x' UNION SELECT 1 --",
    "comment": "/* x */ -- y",
    "placeholder": "%s %(x)s ? :x $1",
    "braces": "{0.__class__} {x}",
    "like": "%_%",
    "glob": "*?[a-z]",
    "path-up": "../../etc/passwd",
    "path-absolute": "/etc/passwd",
    "path-dot": ".",
    "url": "postgresql://x@y/z?schema=w",
    "json": '{"$t": "str", "v": "eA=="}',
    "json-null": "null",
    "number": "007",
    "true": "true",
    "uuid-upper": "01A1DF2E-166C-72E3-BF44-F26B335FC456",
    "uuid": "01a1df2e-166c-72e3-bf44-f26b335fc456",
    "label": "checkpoint-20260102-030405",
    "option": "--help",
    "reserved": "default",
    # Texts of the world.
    "composed": unicodedata.normalize("NFC", "é"),
    "decomposed": unicodedata.normalize("NFD", "é"),
    "right-to-left": "\u202egnp.exe",
    "arabic": "مرحبا",
    "zero-width": "a\u200bb",
    "byte-order-mark": "\ufeffx",
    "line-separator": "a\u2028b",
    "next-line": "a\x85b",
    "emoji": "👩‍👩‍👧‍👦",
    "beyond-the-plane": "\U0010ffff",
    "no-character": "\uffff",
    "private": "\ue000",
    "surrogate": "\ud800",
    "low-surrogate": "a\udfff",
    "pair-of-surrogates": "\ud83d\ude00",
    "turkish": "İıIi",
    "sharp-s": "ß ẞ SS",
    # Sizes.
    "255-bytes": "x" * 255,
    "512-bytes": "x" * 512,
    "513-bytes": "x" * 513,
    "512-in-two-bytes": "é" * 256,
    "megabyte": "x" * 1_000_000,
    # What is no text.
    "none": None,
    "true-itself": True,
    "zero": 0,
    "negative": -1,
    "beyond-64-bits": 2**80,
    "largest": 2**63 - 1,
    "past-the-largest": 2**63,
    "fraction": 0.1,
    "whole-float": 1.0,
    "negative-zero": -0.0,
    "huge-float": 1e308,
    "nan": float("nan"),
    "infinity": float("inf"),
    "bytes": b"\x00\xff",
    "list": ["t"],
    "dict": {"$gt": ""},
    "tag": {"$t": "ref", "v": 0},
    "tuple": (1, 2),
    "set": {1},
    "decimal": Decimal("1.10"),
    "moment": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "uuid-itself": UUID("01a1df2e-166c-72e3-bf44-f26b335fc456"),
    "path": Path("a/b"),
    "object": object(),
}  # fmt: skip

Place: TypeAlias = Callable[[SessionManager, Any, str], Any]
PLACES: Final[dict[str, Place]] = {}


def place(function: Place) -> Place:
    PLACES[function.__name__] = function
    return function


@place
def session_id(manager: SessionManager, odd: Any, name: str) -> Any:
    created = manager.create_session("tester", session_id=odd)
    if odd is None:
        return "a new one"
    return created.id, manager.get_session(odd).id


@place
def unknown_session(manager: SessionManager, odd: Any, name: str) -> Any:
    return manager.get_session(odd)


@place
def agent_type_and_task(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session(odd, session_id=name, task_description="x")
    record = manager.get_session(name).record
    return record.agent_type


@place
def task(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session("tester", session_id=name, task_description=odd)
    return manager.get_session(name).record.task_description


@place
def checkpoint_name(manager: SessionManager, odd: Any, name: str) -> Any:
    session = manager.create_session("tester", session_id=name)
    saved = session.save_checkpoint(odd, state={"a": 1})
    return "named" if odd is None else (saved.name, session.load_checkpoint(odd).name)


@place
def state(manager: SessionManager, odd: Any, name: str) -> Any:
    session = manager.create_session("tester", session_id=name)
    session.save_checkpoint("x", state={"odd": odd, "list": [odd, {"deep": odd}]})
    return manager.get_session(name).latest_checkpoint().state


@place
def key_of_a_state(manager: SessionManager, odd: Any, name: str) -> Any:
    session = manager.create_session("tester", session_id=name)
    session.save_checkpoint("x", state={odd: 1} if odd.__hash__ else {"a": {repr(odd): 1}})
    return list(manager.get_session(name).latest_checkpoint().state)


@place
def metadata(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session("tester", session_id=name, metadata={"odd": odd})
    return manager.get_session(name).metadata


@place
def key_of_metadata(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session("tester", session_id=name, metadata={odd: 1} if odd.__hash__ else {})
    return manager.get_session(name).metadata


@place
def metadata_filter(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session("tester", session_id=name, metadata={"mine": name})
    found = manager.store.list_sessions(SessionQuery(metadata={"mine": odd}))
    return [record.id for record in found]


@place
def key_of_a_filter(manager: SessionManager, odd: Any, name: str) -> Any:
    key = odd if odd.__hash__ else "x"
    return manager.store.list_checkpoints(CheckpointQuery(metadata={key: "x"}))


@place
def metadata_itself(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session("tester", session_id=name, metadata=odd)
    return manager.get_session(name).metadata


@place
def change_of_metadata(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session("tester", session_id=name, metadata={"a": 1})
    return manager.store.update_session(name, metadata=odd).metadata


@place
def addition_to_metadata(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session("tester", session_id=name, metadata={"a": 1})
    return manager.store.update_session(name, merge_metadata=odd).metadata


@place
def filter_of_sessions(manager: SessionManager, odd: Any, name: str) -> Any:
    return manager.store.list_sessions(SessionQuery(metadata=odd))


@place
def filter_of_checkpoints(manager: SessionManager, odd: Any, name: str) -> Any:
    return manager.store.list_checkpoints(CheckpointQuery(metadata=odd))


@place
def session_of_a_log_line(manager: SessionManager, odd: Any, name: str) -> Any:
    return manager.store.append_log(odd, "info", "message")


@place
def data_of_a_log_line(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.create_session("tester", session_id=name)
    return manager.store.append_log(name, "info", "message", odd).data


@place
def interrupted_session(manager: SessionManager, odd: Any, name: str) -> Any:
    return manager.store.interrupt_session(odd, 1, most=3, message="message")


@place
def agent_that_changes(manager: SessionManager, odd: Any, name: str) -> Any:
    return manager.store.update_agent(odd, metadata={"a": 1})


@place
def metadata_of_an_agent(manager: SessionManager, odd: Any, name: str) -> Any:
    agent_id = manager.create_session("tester", session_id=name).record.agent_id
    return manager.store.update_agent(agent_id, metadata=odd).metadata


@place
def namespace_of_a_write(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.store.put_writes(new_session(id=name), odd, "e", [new_write()])
    return len(manager.store.list_writes(name, odd, ["e"]))


@place
def checkpoint_of_a_write(manager: SessionManager, odd: Any, name: str) -> Any:
    manager.store.put_writes(new_session(id=name), "", odd, [new_write()])
    return len(manager.store.list_writes(name, "", [odd]))


@place
def key_of_a_finished_effect(manager: SessionManager, odd: Any, name: str) -> Any:
    return manager.store.finish_effect(name, odd, 0, new_id(), EffectOutcome("done", "{}"))


@place
def task_of_a_copy(manager: SessionManager, odd: Any, name: str) -> Any:
    def changed(copy: SessionCopy) -> SessionCopy:
        return replace(copy, session=replace(copy.session, task_description=odd))

    return copied(manager, name, changed).session.task_description


@place
def description_of_a_copy(manager: SessionManager, odd: Any, name: str) -> Any:
    def changed(copy: SessionCopy) -> SessionCopy:
        return replace(copy, checkpoints=(replace(copy.checkpoints[0], description=odd),))

    return copied(manager, name, changed).checkpoints[0].description


def copied(
    manager: SessionManager, name: str, change: Callable[[SessionCopy], SessionCopy]
) -> SessionCopy:
    """Take a session out of a store and put it back in another form."""
    manager.create_session("tester", session_id=name).save_checkpoint("x", state={})
    store = manager.store
    copy = store.read_session(name)
    assert copy is not None
    payload = store.read_payload(copy.checkpoints[0].id)
    assert payload is not None
    store.delete_session(name)
    store.add_session(change(copy), lambda _: payload, indexes={}, leaves=())
    again = store.read_session(name)
    assert again is not None
    return again


@place
def log_line(manager: SessionManager, odd: Any, name: str) -> Any:
    session = manager.create_session("tester", session_id=name)
    session.log("info", odd, data={"odd": odd})
    return [(line.message, line.data) for line in session.logs()]


@place
def result_of_a_step(manager: SessionManager, odd: Any, name: str) -> Any:
    session = manager.create_session("tester", session_id=name)
    return session.step("work", lambda: odd), session.step("work", lambda: "again", key="other")


@pytest.fixture
def managers(tmp_path: Path, postgres_url: str) -> Iterator[dict[str, SessionManager]]:
    urls = {"memory": "memory:", "sqlite": str(tmp_path / "odd.db"), "postgres": postgres_url}
    ring = KeyRing.new()
    with ExitStack() as stack:

        def opened(url: str, tenant: str, keys: KeyRing | None) -> SessionManager:
            return stack.enter_context(
                SessionManager.open(url, workspace=False, tenant=tenant, keys=keys or False)
            )

        plain = {name: opened(url, "plain", None) for name, url in urls.items()}
        yield plain | {f"{name}, sealed": opened(url, "sealed", ring) for name, url in urls.items()}


def outcome(manager: SessionManager, where: Place, odd: Any, name: str) -> str:
    try:
        found = repr(where(manager, odd, name))
    except HoldfastError as error:
        return type(error).__name__
    return found if len(found) < 5000 else f"{found[:100]} and {len(found)} more"


def test_there_are_many() -> None:
    assert len(ODD) >= 60


@pytest.mark.parametrize("where", PLACES)
def test_an_odd_input_has_the_same_outcome_on_every_backend(
    where: str, managers: dict[str, SessionManager]
) -> None:
    differing = {}
    outcomes: set[str] = set()
    for name, odd in ODD.items():
        found = {
            backend: outcome(manager, PLACES[where], odd, f"at {name}")
            for backend, manager in managers.items()
        }
        outcomes.update(found.values())
        if len(set(found.values())) > 1:
            differing[name] = found
    assert differing == {}
    assert len(outcomes) > 1
