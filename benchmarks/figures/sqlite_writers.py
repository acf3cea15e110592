"""Many processes saving to one SQLite file: what fails, and whether anything acknowledged is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Run, race, show_time
from benchmarks.peers import open_sqlite_saver
from benchmarks.worker import fingerprint
from holdfast.errors import HoldfastError
from holdfast.state import decode_state
from holdfast.stores import open_store


def measure(run: Run) -> list[Row]:
    count, seconds = run.size(18, 6), run.size(30, 3)
    ours = _compete(run, "sqlite-ours", count, seconds)
    peer = _compete(run, "sqlite-peer", count, seconds)
    our_lost = _missing_from_ours(run.directory / "sqlite-ours.db", ours["ledger"])
    peer_lost = _missing_from_peer(run.directory / "sqlite-peer.db", peer["ledger"])
    our_errors, peer_errors = sum(ours["errors"].values()), sum(peer["errors"].values())
    return [
        Row(
            figure=f"{count} processes saving to one SQLite file for {seconds} s",
            peer=f"SqliteSaver {peer_errors} errors, {peer_lost} lost of {peer['saved']:,}",
            ours=f"{our_errors} errors, {our_lost} lost of {ours['saved']:,}",
            target="0 errors, 0 lost",
            met=our_errors == our_lost == 0,
            note=(
                "every acknowledged id was read back and its state compared; slowest save"
                f" {show_time(ours['slowest'])}, the peer's {show_time(peer['slowest'])};"
                f" the peer's errors: {_told(peer['errors'])}"
            ),
            values={
                side: {key: value for key, value in found.items() if key != "ledger"}
                for side, found in (("ours", ours), ("peer", peer))
            },
        )
    ]


def _compete(run: Run, task: str, count: int, seconds: int) -> dict[str, Any]:
    path = run.directory / f"{task}.db"
    ledgers = [run.directory / f"{task}.{number}.ledger" for number in range(count)]
    gun = run.directory / f"{task}.go"
    commands = [(task, str(path), str(gun), str(ledger), str(seconds)) for ledger in ledgers]
    results = race(commands, gun)
    return {
        "saved": sum(result["saved"] for result in results),
        "errors": sum((Counter(result["errors"]) for result in results), Counter()),
        "slowest": max(result["slowest"] or 0 for result in results),
        "median": sorted(result["median"] or 0 for result in results)[count // 2],
        "least_saved": min(result["saved"] for result in results),
        "ledger": [line.split() for ledger in ledgers for line in _lines(ledger)],
    }


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _missing_from_ours(path: Path, ledger: list[list[str]]) -> int:
    lost = 0
    with open_store(path) as store:
        for checkpoint_id, expected in ledger:
            payload = store.read_payload(checkpoint_id)
            try:
                found = payload and decode_state(payload, store.read_chunks).state
            except HoldfastError:
                found = None
            lost += fingerprint(found) != expected
    return lost


def _missing_from_peer(path: Path, ledger: list[list[str]]) -> int:
    saver = open_sqlite_saver(path)
    stored = {row[0] for row in saver.conn.execute("SELECT checkpoint_id FROM checkpoints")}
    saver.conn.close()
    return sum(checkpoint_id not in stored for checkpoint_id, _ in ledger)


def _told(errors: Counter[str]) -> str:
    return "; ".join(f"{count} × {text}" for text, count in errors.most_common(3)) or "none"
