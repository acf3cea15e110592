"""A process that puts under load: it reads a task, opens its store and says so, is told when, and answers a line.

A task names the store, the size of states, whose thread is written to, and a ledger in which every acknowledged
put stands before the next one begins. Our savers and LangGraph's are driven in the same way.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from benchmarks.content import Writer

# Thread, state, step: puts it and returns the id under which it is found again.
Put = Callable[[str, dict[str, Any], int], str]
# Thread and id: returns the state, or None.
Get = Callable[[str, str], dict[str, Any] | None]

_MESSAGE = 1024
_RETRY_SECONDS = 0.01
# More than a process puts in a second or two.
_READY = 800
_WARM = 2


def open_ours(url: str, threads: int, stack: ExitStack) -> tuple[Put, Get]:
    from holdfast.savers import CheckpointConfig, open_saver

    saver = stack.enter_context(open_saver(url))

    def put(thread: str, state: dict[str, Any], step: int) -> str:
        return str(saver.put(CheckpointConfig(thread), state, {"step": step}).checkpoint_id)

    def get(thread: str, checkpoint_id: str) -> dict[str, Any] | None:
        found = saver.get_tuple(CheckpointConfig(thread, checkpoint_id=checkpoint_id))
        return None if found is None else dict(found.checkpoint)

    return put, get


def open_peer(url: str, threads: int, stack: ExitStack) -> tuple[Put, Get]:
    from langgraph.checkpoint.base import empty_checkpoint

    saver = _peer_saver(url, threads, stack)

    def put(thread: str, state: dict[str, Any], step: int) -> str:
        version = f"{step:032}.{random.random()}"
        checkpoint: Any = {
            **empty_checkpoint(),
            "channel_values": {"state": state},
            "channel_versions": {"state": version},
        }
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        stored = saver.put(config, checkpoint, {"step": step}, {"state": version})
        return str(stored["configurable"]["checkpoint_id"])

    def get(thread: str, checkpoint_id: str) -> dict[str, Any] | None:
        names = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
        found = saver.get_tuple({"configurable": names})
        return None if found is None else found.checkpoint["channel_values"].get("state")

    return put, get


def _peer_saver(url: str, threads: int, stack: ExitStack) -> Any:
    if not url.startswith("postgresql:"):
        from benchmarks.peers import open_sqlite_saver

        saver = open_sqlite_saver(Path(url))
        stack.callback(saver.conn.close)
        return saver
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    # As its documentation has it for programs with several threads.
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: Any = ConnectionPool(url, min_size=1, max_size=max(2, threads), kwargs=options, open=True)
    stack.callback(pool.close)
    return PostgresSaver(pool)


OPEN = {"ours": open_ours, "peer": open_peer}


def thread_name(task: dict[str, Any], number: int) -> str:
    return "shared" if task["shared"] else f"{task['process']}-{number}"


@cache
def _beginning(seed: int, size: int) -> list[dict[str, Any]]:
    return Writer(seed=seed).messages(max(1, size // (_MESSAGE + 80)), _MESSAGE)


class _Conversation:
    """What one thread puts: as it goes on, the oldest message leaves and a new one comes.

    As many as ``ready`` are made up before the clock runs: that takes a processor as long as a put.
    """

    def __init__(self, seed: int, size: int, ready: int) -> None:
        self._messages = _beginning(seed, size)
        writer = Writer(seed=-1 - seed)
        further = (writer.message(_MESSAGE) for _ in repeat(None))
        self._coming = chain(writer.messages(ready, _MESSAGE), further)

    def next(self) -> list[dict[str, Any]]:
        self._messages = [*self._messages[1:], next(self._coming)]
        return self._messages


def _work(
    task: dict[str, Any], number: int, talk: _Conversation, put: Put, found: dict[str, Any]
) -> None:
    thread = thread_name(task, number)
    step = 0
    with Path(f"{task['ledger']}.{number}").open("w") as ledger:
        while time.monotonic() < task["until"]:
            step += 1
            token = f"{task['process']}-{number}-{step}"
            state = {"token": token, "messages": talk.next()}
            start = time.monotonic()
            try:
                stored = put(thread, state, step)
            except Exception as error:
                found["errors"].append(f"{type(error).__name__}: {error}"[:100])
                time.sleep(_RETRY_SECONDS)
                continue
            end = time.monotonic()
            found["puts"].append((start, end - start))
            ledger.write(f"{thread} {stored} {token}\n")
            ledger.flush()


def work(task: dict[str, Any]) -> dict[str, Any]:
    """Put until the time is over; return when each put began and how long it took, and what failed."""
    found: dict[str, Any] = {"puts": [], "errors": []}
    with ExitStack() as stack:
        put, _ = OPEN[task["who"]](task["url"], task["threads"], stack)
        # Not measured: the first puts plan their statements and fill caches. A small state takes other ways.
        warm = _Conversation(-1 - task["process"], task["bytes"], _WARM)
        for step in range(_WARM):
            put(f"warm-{task['process']}", {"token": "", "messages": warm.next()}, step)
        talks = [
            _Conversation(task["process"] * 100 + number, task["bytes"], _READY // task["threads"])
            for number in range(task["threads"])
        ]
        print("open", flush=True)
        # All begin together, when the last one is ready.
        task |= json.loads(sys.stdin.readline())
        time.sleep(max(0.0, task["start"] - time.monotonic()))
        threads = [
            threading.Thread(target=_work, args=(task, number, talk, put, found))
            for number, talk in enumerate(talks)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {"puts": found["puts"], "errors": Counter(found["errors"])}


def main() -> None:
    # That a killed server cannot be reached is no news.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    print("ready", flush=True)
    while line := sys.stdin.readline():
        print(json.dumps(work(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
