"""Eight writers on one capped PostgreSQL thread, with a watcher that counts and a sweep running.

The states share documents, so chunks lose their last reference and gain a new one all the time:
what a sweep that is not careful destroys.
"""

from __future__ import annotations

from benchmarks.harness import Row, Run, race
from benchmarks.worker import CAP, fingerprint
from holdfast.errors import HoldfastError
from holdfast.model import CheckpointQuery
from holdfast.state import decode_state
from holdfast.stores import open_store


def measure(run: Run) -> list[Row]:
    url, seconds = run.new_database(), str(run.size(20, 4))
    gun = str(run.directory / "postgres.go")
    # The tables exist before the watcher asks for them.
    open_store(url).close()
    writers = [("postgres-writer", url, gun, str(number), seconds) for number in range(8)]
    *written, watched, swept = race(
        [
            *writers,
            ("postgres-watcher", url, gun, seconds),
            ("postgres-sweeper", url, gun, seconds),
        ],
        run.directory / "postgres.go",
    )
    saved = sum(result["saved"] for result in written)
    errors = [text for result in (*written, swept) for text in result["errors"]]
    survivors, broken = _check_survivors(url)
    checked = survivors + sum(result["read"] for result in written)
    broken += sum(result["broken"] for result in written)
    return [
        Row(
            figure=f"8 writers on one PostgreSQL thread capped at {CAP}, gc running, {seconds} s",
            peer="PostgresSaver has neither cap nor gc",
            ours=(
                f"{saved:,} puts, at most {watched['most']} seen, {broken} of {checked:,}"
                f" broken, {len(errors)} errors"
            ),
            target=f"never over {CAP}, 0 broken",
            met=watched["most"] <= CAP and broken == 0 and not errors,
            note=(
                f"{watched['looks']:,} counts by the watcher, {swept['sweeps']} sweeps removed"
                f" {swept['swept']:,} chunks; a fifth of the puts were read back meanwhile, all"
                " survivors at the end, every state compared"
                + (f"; errors: {'; '.join(errors)}" if errors else "")
            ),
            values={"saved": saved, "errors": errors, "broken": broken, **watched, **swept},
        )
    ]


def _check_survivors(url: str) -> tuple[int, int]:
    survivors = broken = 0
    with open_store(url) as store:
        for record in store.list_checkpoints(CheckpointQuery()):
            survivors += 1
            payload = store.read_payload(record.id)
            assert payload is not None
            try:
                state = decode_state(payload, store.read_chunks).state
            except HoldfastError:
                broken += 1
                continue
            broken += fingerprint(state) != (record.metadata or {})["documents"]
    return survivors, broken
