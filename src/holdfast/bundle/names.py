"""What stands in a bundle, in this order.

holdfast-bundle     the format's version, and the digest of the manifest
manifest.json       what the bundle is of, and name, size and digest of everything below
BRIEF.md            what to know before going on, for people and agents
session.jsonl       the session, then its agents, the topmost first
checkpoints.jsonl   oldest first, each with the manifest of its state and the references to chunks
writes.jsonl        pending writes of tasks
effects.jsonl       steps with side effects, and what came of them
logs.jsonl          what was logged; decisions are among it
chunks/000001 …     the content of states: digest, length and bytes, over and over
files.pack          the files of all snapshots as one git pack, if there are any

A sealed bundle is all of this in envelopes, see `holdfast.bundle.sealed`.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = 1
SEALED_FORMAT: Final = 1
SEALED: Final = "holdfast-sealed-bundle "
START: Final = "holdfast-bundle"
MANIFEST: Final = "manifest.json"
BRIEF: Final = "BRIEF.md"
SESSION: Final = "session.jsonl"
CHECKPOINTS: Final = "checkpoints.jsonl"
WRITES: Final = "writes.jsonl"
EFFECTS: Final = "effects.jsonl"
LOGS: Final = "logs.jsonl"
CHUNKS: Final = "chunks/"
FILES: Final = "files.pack"

TEXTS: Final = (BRIEF, SESSION, CHECKPOINTS, WRITES, EFFECTS, LOGS)


def chunks_name(number: int) -> str:
    """Return the name of the n-th list of chunks."""
    return f"{CHUNKS}{number:06}"
