"""What it adds to the file when one message in the middle of a long conversation is rewritten."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.content import Writer
from benchmarks.harness import Row, Run, show_bytes, show_times
from benchmarks.peers import sqlite_file_bytes

TARGET_BYTES = 20_000
_EDITS = 20


def measure(run: Run) -> list[Row]:
    growth = run.sqlite_growth
    assert growth.file is not None
    peer_before = sqlite_file_bytes(growth.peer.saver, run.directory / "peer.db")
    sizes = [growth.file.file_bytes()]
    writer = Writer(seed=9)
    count = len(growth.messages)
    for number in range(_EDITS):
        # All around the middle, each at another place and another length.
        at = count // 4 + number * count // (2 * _EDITS)
        growth.messages[at] = writer.message(900 + 13 * number)
        growth.save()
        sizes.append(growth.file.file_bytes())
    peer_added = sqlite_file_bytes(growth.peer.saver, run.directory / "peer.db") - peer_before
    added = [after - before for before, after in pairwise(sizes)]
    mean, most = sum(added) / _EDITS, max(added)
    return [
        Row(
            figure=f"SQLite: a message edited in the middle of {count:,}",
            peer=f"SqliteSaver adds {show_bytes(peer_added / _EDITS)}",
            ours=f"adds {show_bytes(mean)}, at most {show_bytes(most)}",
            ratio=f"{show_times(peer_added / sum(added))} less",
            target=f"adds ≤ {show_bytes(TARGET_BYTES)}",
            met=mean <= TARGET_BYTES,
            note=f"growth of the file, mean of {_EDITS} edits at different places",
            values={"our_bytes": added, "peer_mean_bytes": peer_added / _EDITS},
        )
    ]
