"""The contract of a checkpointer as a test suite, for every `holdfast.checkpointers.BaseCheckpointer`.

class TestMyCheckpointer(CheckpointerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        return lambda **options: MyCheckpointer(database, **options)
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar

import orjson
import pytest

from holdfast.checkpointers import BaseCheckpointer
from holdfast.errors import (
    AlreadyResumed,
    CheckpointNotFound,
    InputError,
    InvalidFilter,
    InvalidState,
    NothingToResume,
    StateNotSerializable,
    StoreError,
)

T = TypeVar("T")
Connect: TypeAlias = Callable[..., BaseCheckpointer]

_UNKNOWN = "01890000-0000-7000-8000-000000000000"


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(coroutine)


class CheckpointerContract:
    """Everything that a checkpointer promises. Override the fixture ``connect``."""

    @pytest.fixture
    def connect(self) -> Connect:
        """Return what makes a checkpointer, with the options given, over one empty database."""
        raise NotImplementedError("override the fixture connect")

    # Put and get -----------------------------------------------------------------------------

    def test_a_put_returns_a_uuid_of_version_seven(self, connect: Connect) -> None:
        made = uuid.UUID(run(connect().put("t", {"n": 1})))
        assert made.version == 7
        assert made.variant == uuid.RFC_4122

    def test_get_returns_the_latest_the_exact_one_or_none(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            assert await checkpointer.get("t") is None
            first = await checkpointer.put("t", {"n": 1})
            await checkpointer.put("t", {"n": 2})
            other = await checkpointer.put("other", {"n": 3})
            assert await checkpointer.get("t") == {"n": 2}
            assert await checkpointer.get("t", first) == {"n": 1}
            assert await checkpointer.get("t", _UNKNOWN) is None
            assert await checkpointer.get("t", "no id") is None
            assert await checkpointer.get("t", other) is None
            assert await checkpointer.get("unknown") is None

        run(scenario(connect()))

    def test_another_object_reads_the_same(self, connect: Connect) -> None:
        messages = [{"role": "user", "content": "m" * 300, "n": n} for n in range(100)]
        first = run(connect().put("t", {"messages": messages}))
        reader = connect()
        assert run(reader.get("t", first)) == {"messages": messages}
        messages.append({"role": "assistant", "content": "new", "n": 100})
        run(reader.put("t", {"messages": messages}))
        assert run(connect().get("t")) == {"messages": messages}

    def test_the_second_of_two_puts_in_one_millisecond_is_the_latest(
        self, connect: Connect
    ) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            ids = [await checkpointer.put("t", {"n": n}) for n in range(20)]
            assert ids == sorted(ids)
            assert await checkpointer.get("t") == {"n": 19}
            assert [found.id for found in await checkpointer.list("t")] == ids[::-1]

        run(scenario(connect(now=lambda: 1_700_000_000.0)))

    def test_a_clock_that_steps_back_changes_no_order(self, connect: Connect) -> None:
        clock = iter(range(1_700_000_000, 1_600_000_000, -3600))

        async def scenario(checkpointer: BaseCheckpointer) -> None:
            ids = [await checkpointer.put("t", {"n": n}) for n in range(6)]
            assert ids == sorted(ids)
            assert await checkpointer.get("t") == {"n": 5}
            assert [found.id for found in await checkpointer.list("t")] == ids[:2:-1]

        run(scenario(connect(now=lambda: next(clock), max_checkpoints_per_thread=3)))

    def test_the_given_clock_makes_ids_and_times(self, connect: Connect) -> None:
        moment = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
        for now in (moment.timestamp, lambda: moment):
            checkpointer = connect(now=now)
            made = run(checkpointer.put("t", {"n": 1}))
            assert uuid.UUID(made).int >> 80 == int(moment.timestamp() * 1000)
            assert run(checkpointer.list("t"))[0].created_at == moment

    def test_the_own_clock_is_right(self, connect: Connect) -> None:
        checkpointer = connect()
        run(checkpointer.put("t", {"n": 1}))
        created_at = run(checkpointer.list("t"))[0].created_at
        assert abs(created_at - datetime.now(UTC)) < timedelta(minutes=1)

    def test_snapshots_come_back_exactly(self, connect: Connect) -> None:
        snapshot = {
            "text": "☃ and \0",
            "float": 1e16,
            "zero": -0.0,
            "tuple": (1, 2),
            "bytes": b"\xff",
            "when": datetime(2026, 1, 2, tzinfo=UTC),
            "z": {"b": 1, "a": [None, True]},
        }
        checkpointer = connect()
        run(checkpointer.put("t", snapshot))
        found = run(checkpointer.get("t"))
        assert found == snapshot
        assert math.copysign(1, found["zero"]) == -1
        assert type(found["tuple"]) is tuple

    def test_what_has_no_stored_form_is_refused_and_nothing_is_stored(
        self, connect: Connect
    ) -> None:
        checkpointer = connect()
        with pytest.raises(StateNotSerializable, match=r"\$\.tool"):
            run(checkpointer.put("t", {"tool": object()}))
        with pytest.raises(StateNotSerializable):
            run(checkpointer.put("t", ["no dict"]))  # type: ignore[arg-type]
        with pytest.raises(InputError):
            run(checkpointer.put("", {"n": 1}))
        assert run(checkpointer.list("t")) == []

    def test_what_the_caller_changes_later_changes_nothing(self, connect: Connect) -> None:
        checkpointer = connect()
        snapshot = {"items": [1]}
        run(checkpointer.put("t", snapshot))
        snapshot["items"].append(2)
        found = run(checkpointer.get("t"))
        assert found == {"items": [1]}
        found["items"].append(3)
        assert run(checkpointer.get("t")) == {"items": [1]}

    def test_nothing_to_resume_is_no_database_error(self, connect: Connect) -> None:
        checkpointer = connect()
        with pytest.raises(NothingToResume, match="nothing to resume from") as raised:
            run(checkpointer.load("t"))
        assert not isinstance(raised.value, StoreError)
        made = run(checkpointer.put("t", {"n": 1}))
        assert run(checkpointer.load("t", made)) == {"n": 1}
        with pytest.raises(NothingToResume):
            run(checkpointer.load("t", _UNKNOWN))

    def test_find_returns_the_snapshot_and_what_the_listing_says(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            assert await checkpointer.find("t") is None
            first = await checkpointer.put("t", {"version": 3, "n": 1})
            await checkpointer.put("t", {"n": 2})
            newest, oldest = await checkpointer.list("t")
            assert await checkpointer.find("t") == (newest, {"n": 2})
            assert await checkpointer.find("t", first) == (oldest, {"version": 3, "n": 1})
            assert await checkpointer.find("t", _UNKNOWN) is None

        run(scenario(connect()))

    # Going on from a checkpoint ----------------------------------------------------------------

    def test_a_checkpoint_is_consumed_once(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer, other: BaseCheckpointer) -> None:
            first = await checkpointer.put("t", {"n": 1})
            second = await checkpointer.put("t", {"n": 2}, consumes=first)
            for late in (checkpointer, other):
                with pytest.raises(AlreadyResumed, match=first):
                    await late.put("t", {"n": 3}, consumes=first)
            assert [found.id for found in await checkpointer.list("t")] == [second, first]
            assert await other.get("t", first) == {"n": 1}
            third = await other.put("t", {"n": 3}, consumes=second)
            assert (await checkpointer.list("t"))[0].id == third

        run(scenario(connect(), connect()))

    def test_what_is_not_there_cannot_be_consumed(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            elsewhere = await checkpointer.put("other", {"n": 1})
            gone = await checkpointer.put("t", {"n": 1})
            await checkpointer.delete("t", gone)
            for missing in (_UNKNOWN, elsewhere, gone):
                with pytest.raises(CheckpointNotFound, match=missing):
                    await checkpointer.put("t", {"n": 2}, consumes=missing)
            with pytest.raises(InputError):
                await checkpointer.put("t", {"n": 2}, consumes="no id")
            assert await checkpointer.list("t") == []
            assert await checkpointer.get("t") is None

        run(scenario(connect()))

    def test_a_refused_snapshot_consumes_nothing(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            first = await checkpointer.put("t", {"n": 1})
            with pytest.raises(StateNotSerializable):
                await checkpointer.put("t", {"n": object()}, consumes=first)
            await checkpointer.put("t", {"n": 2}, consumes=first)
            assert await checkpointer.get("t") == {"n": 2}

        run(scenario(connect()))

    def test_the_cap_may_remove_what_was_consumed_and_it_stays_so(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            first = await checkpointer.put("t", {"n": 1})
            second = await checkpointer.put("t", {"n": 2}, consumes=first)
            with pytest.raises(CheckpointNotFound):
                await checkpointer.put("t", {"n": 3}, consumes=first)
            assert [found.id for found in await checkpointer.list("t")] == [second]

        run(scenario(connect(max_checkpoints_per_thread=1)))

    def test_an_expired_checkpoint_cannot_be_consumed(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer, lasting: BaseCheckpointer) -> None:
            first = await checkpointer.put("t", {"n": 1})
            await asyncio.sleep(0.3)
            for late in (lasting, checkpointer):
                with pytest.raises(CheckpointNotFound):
                    await late.put("t", {"n": 2}, consumes=first)

        run(scenario(connect(ttl_seconds=0.2), connect()))

    def test_of_many_at_once_exactly_one_goes_on(self, connect: Connect) -> None:
        async def scenario(several: list[BaseCheckpointer]) -> None:
            for number in range(5):
                first = await several[0].put("t", {"n": number, "fill": "f" * 3000})
                outcomes = await asyncio.gather(
                    *(
                        one.put("t", {"n": number, "by": at, "fill": "f" * 3000}, consumes=first)
                        for at, one in enumerate(several)
                    ),
                    return_exceptions=True,
                )
                winners = [one for one in outcomes if isinstance(one, str)]
                assert len(winners) == 1
                assert sum(isinstance(one, AlreadyResumed) for one in outcomes) == 5
                assert (await several[0].list("t"))[0].id == winners[0]

        run(scenario([connect() for _ in range(6)]))

    # Listing ---------------------------------------------------------------------------------

    def test_a_listing_is_newest_first_and_has_no_snapshots(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            ids = [await checkpointer.put("t", {"version": n, "n": n}) for n in range(1, 5)]
            found = await checkpointer.list("t")
            assert [one.id for one in found] == ids[::-1]
            assert [one.version for one in found] == [4, 3, 2, 1]
            assert {one.thread_id for one in found} == {"t"}
            assert not hasattr(found[0], "snapshot")
            assert [one.id for one in await checkpointer.list("t", 2)] == ids[:1:-1]
            assert [one.id for one in await checkpointer.list("t", limit=99)] == ids[::-1]
            assert await checkpointer.list("t", 0) == []
            assert await checkpointer.list("unknown") == []
            for limit in (-1, 1.5, True):
                with pytest.raises(InvalidFilter):
                    await checkpointer.list("t", limit)  # type: ignore[arg-type]

        run(scenario(connect()))

    @pytest.mark.parametrize(
        ("snapshot", "version"),
        [({}, 1), ({"version": 7}, 7), ({"version": "2"}, 1), ({"version": True}, 1),
         ({"version": None}, 1), ({"version": -3}, -3)],
    )  # fmt: skip
    def test_the_version_is_the_snapshots_own(
        self, connect: Connect, snapshot: dict[str, Any], version: int
    ) -> None:
        checkpointer = connect()
        run(checkpointer.put("t", snapshot))
        assert run(checkpointer.list("t"))[0].version == version
        assert run(checkpointer.get("t")) == snapshot

    def test_a_version_can_be_asked_for(self, connect: Connect) -> None:
        checkpointer = connect()
        for version in (1, 2, 1):
            run(checkpointer.put("t", {"version": version}))
        assert len(run(checkpointer.list("t", version=1))) == 2
        assert len(run(checkpointer.list("t", version=2))) == 1
        with pytest.raises(InvalidState):
            run(checkpointer.put("t", {"version": 1 << 40}))

    @pytest.mark.parametrize(
        "snapshot",
        [
            {},
            {"mood": "😀🚀", "ünïcode": "é"},
            {"messages": ["🙂" * 50 for _ in range(200)], "text": 'quoted "\\" \n' * 500},
            {"deep": {"list": [{"k": "v" * 600}], "n": 1.5}},
        ],
    )
    def test_the_size_is_that_of_the_json_in_utf8(
        self, connect: Connect, snapshot: dict[str, Any]
    ) -> None:
        checkpointer = connect()
        for _ in range(2):
            run(checkpointer.put("t", snapshot))
            assert run(checkpointer.list("t"))[0].size_bytes == len(orjson.dumps(snapshot))
        grown = {**snapshot, "messages": [*snapshot.get("messages", []), "😀" * 100]}
        run(checkpointer.put("t", grown))
        assert run(checkpointer.list("t"))[0].size_bytes == len(orjson.dumps(grown))

    # The cap ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("cap", [1, 2, 5])
    def test_the_cap_is_exact_after_every_put(self, connect: Connect, cap: int) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            ids: list[str] = []
            for number in range(8):
                ids.append(await checkpointer.put("t", {"n": number, "fill": "f" * 2000}))
                found = [one.id for one in await checkpointer.list("t")]
                assert found == ids[::-1][:cap]
                assert await checkpointer.get("t") == {"n": number, "fill": "f" * 2000}
            await checkpointer.put("other", {"n": 0})
            assert len(await checkpointer.list("t")) == cap

        run(scenario(connect(max_checkpoints_per_thread=cap)))

    def test_a_hundred_are_kept_by_default(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            for number in range(103):
                await checkpointer.put("t", {"n": number})
            assert len(await checkpointer.list("t")) == 100

        run(scenario(connect()))

    @pytest.mark.parametrize("cap", [None, math.inf])
    def test_without_a_cap_everything_is_kept(self, connect: Connect, cap: float | None) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            for number in range(130):
                await checkpointer.put("t", {"n": number})
            assert len(await checkpointer.list("t")) == 130

        run(scenario(connect(max_checkpoints_per_thread=cap)))

    @pytest.mark.parametrize("cap", [0, -1, -math.inf, 1.5, "7", True, math.nan])
    def test_a_cap_that_keeps_nothing_is_refused(self, connect: Connect, cap: Any) -> None:
        with pytest.raises(ValueError, match="max_checkpoints_per_thread"):
            connect(max_checkpoints_per_thread=cap)

    # Deleting --------------------------------------------------------------------------------

    def test_one_checkpoint_is_deleted(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            first = await checkpointer.put("t", {"n": 1})
            second = await checkpointer.put("t", {"n": 2})
            other = await checkpointer.put("other", {"n": 3})
            assert await checkpointer.delete("t", other) == 0
            assert await checkpointer.delete("t", second) == 1
            assert await checkpointer.delete("t", second) == 0
            assert await checkpointer.delete("t", "no id") == 0
            assert await checkpointer.get("t") == {"n": 1}
            assert [one.id for one in await checkpointer.list("t")] == [first]
            assert await checkpointer.get("other") == {"n": 3}

        run(scenario(connect()))

    def test_ids_are_texts(self, connect: Connect) -> None:
        async def scenario(checkpointer: Any) -> None:
            made = await checkpointer.put("t", {"n": 1})
            for ask in (checkpointer.get, checkpointer.delete):
                with pytest.raises(InputError, match="checkpoint id"):
                    await ask("t", 5)
            for threads in ("t", 5):
                with pytest.raises(InputError, match="thread_ids"):
                    await checkpointer.delete_threads(threads)
            assert await checkpointer.get("t", made) == {"n": 1}

        run(scenario(connect()))

    def test_threads_are_deleted_whole(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            shared = {"same": ["s" * 700] * 40}
            for thread_id in ("a", "b", "c"):
                await checkpointer.put(thread_id, shared)
                await checkpointer.put(thread_id, {**shared, "own": thread_id * 3000})
            assert await checkpointer.delete("a") == 2
            assert await checkpointer.delete("a") == 0
            assert await checkpointer.get("a") is None
            assert await checkpointer.get("b") == {**shared, "own": "b" * 3000}
            assert await checkpointer.delete_threads(["a", "b", "unknown"]) == 2
            assert await checkpointer.delete_threads([]) == 0
            assert await checkpointer.list("b") == []
            assert await checkpointer.get("c") == {**shared, "own": "c" * 3000}
            await checkpointer.put("a", shared)
            assert await checkpointer.get("a") == shared

        run(scenario(connect()))

    # Expiry ----------------------------------------------------------------------------------

    def test_an_expired_checkpoint_is_not_returned(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            made = await checkpointer.put("t", {"n": 1})
            assert await checkpointer.get("t") == {"n": 1}
            assert len(await checkpointer.list("t")) == 1
            await asyncio.sleep(0.6)
            assert await checkpointer.get("t") is None
            assert await checkpointer.get("t", made) is None
            assert await checkpointer.list("t") == []
            await checkpointer.put("t", {"n": 2})
            assert await checkpointer.get("t") == {"n": 2}

        run(scenario(connect(ttl_seconds=0.5)))

    def test_what_has_expired_is_purged(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer, lasting: BaseCheckpointer) -> None:
            await lasting.put("lasting", {"n": 0})
            await checkpointer.put("t", {"n": 1})
            await checkpointer.put("abandoned", {"n": 2})
            assert await checkpointer.purge_expired() == 0
            await asyncio.sleep(0.4)
            last = await checkpointer.put("t", {"n": 3})
            assert [found.id for found in await checkpointer.list("t")] == [last]
            assert await checkpointer.get("abandoned") is None
            await checkpointer.purge_expired()
            assert await checkpointer.purge_expired() == 0
            assert await lasting.get("lasting") == {"n": 0}

        run(scenario(connect(ttl_seconds=0.3), connect()))

    def test_expiry_follows_the_given_clock(self, connect: Connect) -> None:
        clock = [1_700_000_000.0]

        async def scenario(checkpointer: BaseCheckpointer) -> None:
            await checkpointer.put("t", {"n": 1})
            clock[0] += 59
            assert await checkpointer.get("t") == {"n": 1}
            clock[0] += 1
            assert await checkpointer.get("t") is None
            assert await checkpointer.list("t") == []

        run(scenario(connect(ttl_seconds=60, now=lambda: clock[0])))

    @pytest.mark.parametrize("ttl", [0, -1, math.inf, math.nan, "1", 1e12, 1e30])
    def test_a_life_that_never_begins_or_ends_is_refused(self, connect: Connect, ttl: Any) -> None:
        with pytest.raises(ValueError, match="ttl_seconds"):
            connect(ttl_seconds=ttl)

    # Concurrency -----------------------------------------------------------------------------

    def test_concurrent_puts_keep_the_cap_and_lose_nothing(self, connect: Connect) -> None:
        async def scenario(checkpointer: BaseCheckpointer) -> None:
            async def writer(name: int) -> list[str]:
                return [
                    await checkpointer.put("t", {"writer": name, "n": n, "fill": "f" * 1500})
                    for n in range(10)
                ]

            made = await asyncio.gather(*(writer(name) for name in range(6)))
            ids = [one for several in made for one in several]
            assert len(set(ids)) == 60
            found = await checkpointer.list("t")
            assert len(found) == 20
            assert {one.id for one in found} <= set(ids)
            latest = await checkpointer.get("t")
            assert latest is not None
            assert latest == await checkpointer.get("t", found[0].id)

        run(scenario(connect(max_checkpoints_per_thread=20)))
