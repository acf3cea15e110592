"""The processes that the figures about many writers and about memory start.

python -m benchmarks.worker TASK ARGUMENTS…

Each says ``ready`` on a line of its own, waits for the starting gun (a file that appears), works, and
ends with one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.content import Writer
from benchmarks.harness import percentile, timed

if TYPE_CHECKING:
    from holdfast import CheckpointConfig, PostgresCheckpointSaver

CAP = 5
SHARED_THREAD = "shared"
_DOCUMENTS = 250
_MESSAGES = 12


def fingerprint(state: object) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def wait_for_start(gun: str) -> None:
    print("ready", flush=True)
    while not Path(gun).exists():
        time.sleep(0.005)


def save_until(
    seconds: float, ledger: str, save: Callable[[dict[str, Any]], str]
) -> dict[str, Any]:
    """Save one state after another; write down what was acknowledged, count what failed."""
    writer = Writer(seed=random.SystemRandom().randrange(1 << 32))
    messages = writer.messages(_MESSAGES, 512)
    errors: Counter[str] = Counter()
    times = []
    deadline = time.monotonic() + seconds
    with Path(ledger).open("w") as acknowledged:
        while (start := time.monotonic()) < deadline:
            messages = [*messages[1:], writer.message(512)]
            state = {"messages": messages, "step": len(times)}
            try:
                saved = save(state)
            except Exception as error:
                errors[f"{type(error).__name__}: {error}"[:120]] += 1
                continue
            times.append(time.monotonic() - start)
            acknowledged.write(f"{saved} {fingerprint(state)}\n")
            acknowledged.flush()
    return {
        "saved": len(times),
        "errors": errors,
        "median": percentile(times, 50) if times else None,
        "p99": percentile(times, 99) if times else None,
        "slowest": max(times, default=None),
    }


def sqlite_ours(path: str, gun: str, ledger: str, seconds: str) -> dict[str, Any]:
    from holdfast import SessionManager

    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session(agent_type="writer")
        wait_for_start(gun)
        return save_until(
            float(seconds), ledger, lambda state: session.save_checkpoint(state=state).id
        )


def sqlite_peer(path: str, gun: str, ledger: str, seconds: str) -> dict[str, Any]:
    from benchmarks.peers import Graph, PeerThread, open_sqlite_saver

    errors = 0
    while True:
        try:
            saver = open_sqlite_saver(Path(path))
            break
        except Exception:
            errors += 1
    thread = PeerThread(saver, f"thread-{random.SystemRandom().randrange(1 << 48)}")
    graph = Graph()
    wait_for_start(gun)

    def save(state: dict[str, Any]) -> str:
        checkpoint, metadata, versions = graph.checkpoint(state["messages"])
        thread.put(checkpoint, metadata, versions)
        saved: str = checkpoint["id"]
        return saved

    return {"opening_errors": errors, **save_until(float(seconds), ledger, save)}


def postgres_writer(url: str, gun: str, number: str, seconds: str) -> dict[str, Any]:
    """Put states of shared documents into one capped thread, now and then into one of its own.

    What stands in its own thread is read back and compared before the next put there: nobody else
    trims it, so it has to be whole.
    """
    from holdfast import CheckpointConfig, PostgresCheckpointSaver

    documents = [Writer(seed=seed).prose(3000) for seed in range(_DOCUMENTS)]
    pick = random.Random(int(number))
    errors: Counter[str] = Counter()
    times = []
    own: CheckpointConfig | None = None
    read = broken = 0
    with (
        PostgresCheckpointSaver(url, max_checkpoints_per_thread=CAP) as capped,
        PostgresCheckpointSaver(url, max_checkpoints_per_thread=2) as kept,
    ):
        wait_for_start(gun)
        deadline = time.monotonic() + float(seconds)
        while (start := time.monotonic()) < deadline:
            chosen = pick.sample(range(_DOCUMENTS), 8)
            state = {f"document-{one}": documents[one] for one in chosen}
            metadata = {"documents": fingerprint(state)}
            try:
                if len(times) % 5 == 4:
                    if own is not None:
                        read, broken = read + 1, broken + _is_broken(kept, own)
                    own = kept.put(CheckpointConfig(f"own-{number}"), state, metadata)
                else:
                    capped.put(CheckpointConfig(SHARED_THREAD), state, metadata)
            except Exception as error:
                errors[f"{type(error).__name__}: {error}"[:120]] += 1
                continue
            times.append(time.monotonic() - start)
    return {"saved": len(times), "errors": errors, "read": read, "broken": broken}


def _is_broken(saver: PostgresCheckpointSaver, config: CheckpointConfig) -> bool:
    from holdfast.errors import IntegrityError

    try:
        found = saver.get_tuple(config)
    except IntegrityError:
        return True
    return found is None or fingerprint(found.checkpoint) != found.metadata["documents"]


def postgres_watcher(url: str, gun: str, seconds: str) -> dict[str, Any]:
    """Count the capped thread's checkpoints again and again."""
    import psycopg

    most = looks = 0
    with psycopg.connect(url, autocommit=True) as connection:
        wait_for_start(gun)
        deadline = time.monotonic() + float(seconds)
        while time.monotonic() < deadline:
            row = connection.execute(
                "SELECT count(*) FROM holdfast.session_checkpoints WHERE session_id = %s",
                (SHARED_THREAD,),
            ).fetchone()
            assert row is not None
            most, looks = max(most, row[0]), looks + 1
    return {"most": most, "looks": looks}


def postgres_sweeper(url: str, gun: str, seconds: str) -> dict[str, Any]:
    """Run gc again and again."""
    from holdfast.stores import open_store

    errors: Counter[str] = Counter()
    sweeps = swept = 0
    with open_store(url) as store:
        wait_for_start(gun)
        deadline = time.monotonic() + float(seconds)
        while time.monotonic() < deadline:
            try:
                swept += store.gc().chunks
            except Exception as error:
                errors[f"{type(error).__name__}: {error}"[:120]] += 1
            sweeps += 1
            time.sleep(0.02)
    return {"sweeps": sweeps, "swept": swept, "errors": errors}


def list_all(path: str, session_id: str, rounds: str) -> dict[str, Any]:
    """List all checkpoints of a session, in a process that did nothing else before."""
    from holdfast import SessionManager

    with SessionManager.open(path, workspace=False) as manager:
        session = manager.get_session(session_id)
        return {"times": [timed(session.list_checkpoints) for _ in range(int(rounds))]}


def memory_peak(path: str, kind: str, size: str) -> dict[str, Any]:
    """Save and load one large state; tell how far the process grew."""
    from holdfast import SessionManager

    writer = Writer(seed=3)
    count = int(size) // 1080
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session(agent_type="large")
        session.save_checkpoint("small", state={"step": 0})
        before = _memory("VmRSS")
        state: dict[str, Any] = (
            {"messages": writer.messages(count)}
            if kind == "messages"
            else {"text": writer.prose(int(size))}
        )
        held = _memory("VmRSS") - before
        start = time.perf_counter()
        record = session.save_checkpoint("large", state=state)
        saving = time.perf_counter() - start
        peak = _memory("VmHWM") - before
    with SessionManager.open(path, workspace=False) as manager:
        start = time.perf_counter()
        loaded = manager.get_session(session.id).latest_checkpoint().state
        loading = time.perf_counter() - start
    assert loaded == state
    return {
        "size": record.size_bytes,
        "held": held,
        "peak": peak,
        "saving": saving,
        "loading": loading,
    }


def _memory(field: str) -> int:
    """Return a figure of /proc about this process in bytes."""
    # VmHWM belongs to this process alone; ru_maxrss also remembers its parent from before exec.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "sqlite-ours": sqlite_ours,
    "sqlite-peer": sqlite_peer,
    "postgres-writer": postgres_writer,
    "postgres-watcher": postgres_watcher,
    "postgres-sweeper": postgres_sweeper,
    "list-all": list_all,
    "memory-peak": memory_peak,
}


if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
