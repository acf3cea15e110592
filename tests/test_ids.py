"""Ids that we make, and the rules for those that others choose."""

from __future__ import annotations

import multiprocessing
import os
import threading
import unicodedata
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.errors import InvalidIdentifier
from holdfast.ids import (
    EXTERNAL_ID_BYTES,
    NAME_BYTES,
    NAMESPACE_BYTES,
    SESSION_ID_BYTES,
    TENANT_BYTES,
    IdFactory,
    check_external_id,
    check_name,
    check_namespace,
    check_session_id,
    check_sql_name,
    check_tenant,
    check_uuid,
    is_uuid,
    label_for,
    new_id,
    thread_agent_id,
    thread_agents,
)


@pytest.mark.row("S3-03")
def test_ids_are_version_7_uuids_of_now() -> None:
    before = datetime.now(UTC)
    made = uuid.UUID(new_id())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    at = datetime.fromtimestamp((made.int >> 80) / 1000, UTC)
    assert abs(at - before) < timedelta(seconds=60)
    assert is_uuid(str(made))


@pytest.mark.row("S3-03")
def test_ten_thousand_ids_are_in_order_and_unlike() -> None:
    made = [new_id() for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert all(uuid.UUID(one).version == 7 for one in made)


@pytest.mark.row("S3-03")
def test_ids_stay_in_order_when_the_clock_stands_still_or_steps_back() -> None:
    times = iter([1_700_000_000.0] * 500 + [1_699_999_000.0] * 500 + [1_700_000_000.001] * 500)
    factory = IdFactory(lambda: next(times))
    made = [factory() for _ in range(1500)]
    assert made == sorted(set(made))
    assert all(uuid.UUID(one).variant == uuid.RFC_4122 for one in made)
    assert uuid.UUID(made[-1]).int >> 80 == 1_700_000_000_001


def test_a_clock_that_was_never_set_gives_ids_too() -> None:
    factory = IdFactory(lambda: -12.5)
    made = [factory() for _ in range(3)]
    assert made == sorted(set(made))
    assert all(is_uuid(one) and one.startswith("00000000-0000-7") for one in made)


def test_a_millisecond_that_runs_out_of_numbers_borrows_from_the_next() -> None:
    factory = IdFactory(lambda: 1.0)
    first = factory()
    factory._counter = (1 << 74) - 1
    second = factory()
    assert uuid.UUID(second).int >> 80 == (uuid.UUID(first).int >> 80) + 1
    assert uuid.UUID(second).version == 7


def test_an_id_that_a_signals_handler_draws_meanwhile_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factory = IdFactory(lambda: 1.0)
    made = [factory()]

    def interrupted(size: int) -> bytes:
        monkeypatch.setattr(os, "urandom", bytes)
        made.append(factory())
        return bytes(size)

    monkeypatch.setattr(os, "urandom", interrupted)
    made.append(factory())
    assert len(set(made)) == len(made) == 3


def test_threads_draw_from_one_order() -> None:
    factory = IdFactory(lambda: 5.0)
    drawn: list[list[str]] = [[] for _ in range(8)]
    workers = [
        threading.Thread(target=lambda own=own: own.extend(factory() for _ in range(500)))
        for own in drawn
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(own == sorted(own) for own in drawn)
    assert len({one for own in drawn for one in own}) == 8 * 500


def _make_ids(count: int) -> list[str]:
    return [new_id() for _ in range(count)]


@pytest.mark.row("S3-03")
def test_eight_processes_make_no_duplicates() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(8) as pool:
        made = pool.map(_make_ids, [1000] * 8)
    assert len({one for own in made for one in own}) == 8000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_its_own_way() -> None:
    """With the clock standing still a copied counter would repeat the parent's ids."""
    factory = IdFactory(lambda: 7.0)
    factory()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        made = "\n".join([factory() for _ in range(50)] + [new_id() for _ in range(50)])
        os.write(writer, made.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = pipe.read().split()
    assert os.waitpid(child, 0)[1] == 0
    ours = [factory() for _ in range(50)] + [new_id() for _ in range(50)]
    assert len(set(theirs)) == 100
    assert not set(theirs) & set(ours)


CHECKS: list[tuple[Callable[[object], str], int]] = [
    (check_session_id, SESSION_ID_BYTES),
    (check_namespace, NAMESPACE_BYTES),
    (check_name, NAME_BYTES),
    (check_external_id, EXTERNAL_ID_BYTES),
    (check_tenant, TENANT_BYTES),
]

ACCEPTED = [
    "a",
    " ",
    "x'; DROP TABLE sessions; --",
    "two\nlines",
    "../../etc/passwd",
    "-rf",
    "%",
    "😀",
    "\u202e",
    "a/b\\c:d",
]

REFUSED: list[Any] = [
    "nul \0 inside",
    "\0",
    "lone \ud800 surrogate",
    "x" * 1_000_000,
    "é" * 1000,
    None,
    1,
    1.5,
    True,
    b"bytes",
    ["list"],
    ("tuple",),
    object,
    uuid.UUID(int=0),
]


@pytest.mark.parametrize(("check", "limit"), CHECKS)
@pytest.mark.parametrize("value", ACCEPTED)
def test_odd_ids_are_taken_as_they_are(
    check: Callable[[object], str], limit: int, value: str
) -> None:
    assert check(value) == value


@pytest.mark.parametrize(("check", "limit"), CHECKS)
@pytest.mark.parametrize("value", REFUSED, ids=lambda value: f"{value!a:.20}")
def test_ids_that_some_backend_could_not_keep_are_refused(
    check: Callable[[object], str], limit: int, value: Any
) -> None:
    with pytest.raises(InvalidIdentifier) as caught:
        check(value)
    assert len(str(caught.value)) < 5000
    str(caught.value).encode()


@pytest.mark.parametrize(("check", "limit"), CHECKS)
def test_lengths_count_in_bytes_and_end_where_they_say(
    check: Callable[[object], str], limit: int
) -> None:
    assert check("x" * limit)
    assert check("é" * (limit // 2))
    for long in ("x" * (limit + 1), "é" * (limit // 2 + 1)):
        with pytest.raises(InvalidIdentifier, match="longer than"):
            check(long)


@pytest.mark.parametrize(("check", "limit"), CHECKS)
def test_two_spellings_are_two_ids(check: Callable[[object], str], limit: int) -> None:
    composed = "café"
    decomposed = unicodedata.normalize("NFD", composed)
    assert check(composed) == composed
    assert check(decomposed) == decomposed
    assert check(composed) != check(decomposed)


def test_only_a_namespace_may_be_empty() -> None:
    assert check_namespace("") == ""
    for check in (check_session_id, check_name, check_external_id, check_tenant):
        with pytest.raises(InvalidIdentifier, match="must not be empty"):
            check("")


@pytest.mark.parametrize(
    "value",
    [
        *(value for value in REFUSED if not isinstance(value, uuid.UUID)),
        "",
        "00000000-0000-0000-0000-00000000000",
        "00000000-0000-0000-0000-000000000000\n",
        "{00000000-0000-0000-0000-000000000000}",
        "00000000000000000000000000000000",
        "0000000g-0000-0000-0000-000000000000",
        "٠0000000-0000-0000-0000-000000000000",
    ],
    ids=lambda value: f"{value!a:.40}",
)
def test_what_is_no_uuid_is_refused(value: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        check_uuid(value, "checkpoint id")


def test_a_uuid_is_returned_in_its_canonical_form() -> None:
    made = new_id()
    assert check_uuid(made.upper(), "checkpoint id") == made


@pytest.mark.parametrize("value", ["holdfast", "_x", "A1", "x" * 63])
def test_schema_names_are_plain_identifiers(value: str) -> None:
    assert check_sql_name(value, "schema") == value


@pytest.mark.parametrize(
    "value",
    [
        *REFUSED,
        "",
        "1x",
        "a-b",
        "a b",
        'a"b',
        "a;b",
        "a.b",
        "é",
        "x" * 64,
        "a\n",
        "x'; DROP TABLE y",
    ],
    ids=lambda value: f"{value!a:.20}",
)
def test_other_schema_names_are_refused(value: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        check_sql_name(value, "schema")


def test_a_label_is_the_moment_in_utc() -> None:
    moment = datetime(2024, 3, 1, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    assert label_for(moment) == "checkpoint-20240229-230203"


def test_agents_of_one_kind_of_thread_have_ids_that_begin_alike() -> None:
    ids = [thread_agent_id("t", "saver", name) for name in ("a", "b", "\ud800")]
    assert len({*ids}) == 3
    assert ids == [thread_agent_id("t", "saver", name) for name in ("a", "b", "\ud800")]
    for one in ids:
        assert one.startswith(thread_agents("saver"))
        assert (uuid.UUID(one).version, uuid.UUID(one).variant) == (8, uuid.RFC_4122)
        assert is_uuid(one)
    assert not ids[0].startswith(thread_agents("langgraph"))
    # In a database they are told apart between tenants too, and begin alike wherever they are copied to.
    other = thread_agent_id("u", "saver", "a")
    assert other not in ids
    assert other.startswith(thread_agents("saver"))
