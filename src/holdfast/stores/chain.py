"""The hash chain of a session: every stored checkpoint is one link of it.

    content = row digest of what the writer says: ids, names, class, git, manifest, references
    link    = SHA-256(previous link, number, what the store adds: seq, agent, parent, time …, content)

A row keeps its number, the link before it and its own, so one row proves itself when it is read, and all
rows of a session prove that none was taken out, put in or exchanged. A link that a trim, a deletion or a
replacement takes away leaves a tombstone; a run of such links leaves one for all of them, so there are
never more tombstones than checkpoints that stay, and one. Erasing a session drops its chain.

What may change later is not in it: ``pinned``, ``consumed_at``, ``restored_at``, ``restoring_until`` and
``quarantined_at``. The digest of the content is the one place for a key (`RowDigest`): it is stored
nowhere, so who has no key can neither alter a row nor compute any link that follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias

import orjson

from holdfast.errors import CheckpointAltered, CheckpointQuarantined
from holdfast.model import Chain, ChainLink, CheckpointRecord, NewCheckpoint, Tombstone
from holdfast.stores.checks import as_utc
from holdfast.stores.sqlite_rows import Row, stamp

RowDigest: TypeAlias = Callable[[bytes], bytes]

# The link before a session's first: nothing.
GENESIS: Final = b""

_COLUMNS: Final = [one.name for one in fields(CheckpointRecord)]
_before_expiry = attrgetter(*_COLUMNS[: _COLUMNS.index("expires_at")])
# What a writer says, but for flags: the store adds agent, seq, parent, label, bytes, metadata and time.
_said = itemgetter(0, 1, 3, 5, 7, 9, 10, 11, 12, 13, 14, 16, 17, 19, 22)


def plain_digest(content: bytes) -> bytes:
    """Return the digest of a row's content where there is no key."""
    return hashlib.sha256(content).digest()


def content_digest(
    row_digest: RowDigest, tenant: str, row: Row, manifest: bytes, refs: bytes
) -> bytes:
    """Return the digest of what the writer of a checkpoint says.

    ``row`` has the columns of a `CheckpointRecord` in their order, times as SQLite stores them.
    """
    # SQLite keeps flags as numbers.
    head = (tenant, row[18] == 1, row[20] == 1, len(manifest), *_said(row))
    return row_digest(orjson.dumps(head) + manifest + refs)


def link_of(
    row_digest: RowDigest,
    tenant: str,
    row: Row,
    number: int,
    previous: bytes,
    manifest: bytes,
    refs: bytes,
) -> bytes:
    """Return the link that a row is, its metadata as the text that is stored."""
    content = content_digest(row_digest, tenant, row, manifest, refs)
    return link_hash(
        previous, number, row[4], row[2], row[15], row[24], row[6], row[8], row[23], content
    )


def record_row(record: CheckpointRecord, metadata: str | None) -> Row:
    """Return a record as a row to digest, with its metadata as the text that is stored."""
    return (
        *_before_expiry(record),
        None if record.expires_at is None else stamp(record.expires_at),
        metadata,
        stamp(record.created_at),
    )


def draft_row(draft: NewCheckpoint) -> Row:
    """Return a checked draft as a row to digest; what the store adds is not in it."""
    expires = None if draft.expires_at is None else stamp(as_utc(draft.expires_at, "expires_at"))
    return (
        draft.id,
        draft.session_id,
        None,
        draft.namespace,
        None,
        draft.external_id,
        None,
        draft.name,
        None,
        draft.description,
        draft.checkpoint_type,
        draft.retention_class,
        draft.run_id,
        draft.version,
        draft.size_bytes,
        None,
        draft.git_branch,
        draft.git_commit,
        draft.git_uncommitted,
        draft.workspace_commit,
        draft.resumable,
        None,
        expires,
    )


def link_hash(
    previous: bytes,
    number: int,
    seq: int,
    agent_id: str,
    stored_bytes: int,
    created_at: str,
    parent_id: str | None,
    label: str | None,
    metadata: str | None,
    content: bytes,
) -> bytes:
    """Return a link: the one before it, what the store adds to a row, and the row's content.

    PostgreSQL does the same in ``holdfast.link_hash``. Texts are preceded by their sizes, so no two
    rows are written alike; the content, which may be keyed, comes last.
    """
    texts = [None if text is None else text.encode() for text in (parent_id, label, metadata)]
    sizes = "\n".join("-" if text is None else str(len(text)) for text in texts)
    added = f"{number}\n{seq}\n{agent_id}\n{stored_bytes}\n{created_at}\n{sizes}\n"
    return hashlib.sha256(
        b"".join((previous, added.encode(), *filter(None, texts), content))
    ).digest()


def altered(checkpoint_id: str) -> CheckpointAltered:
    """Return the error of a row that does not fit its own link."""
    return CheckpointAltered(
        f"checkpoint {checkpoint_id} is not as it was stored: its row does not fit its link in the "
        f"session's hash chain. Nothing else is affected; `holdfast verify --deep` looks at all of them"
    )


def in_quarantine(checkpoint_id: str) -> CheckpointQuarantined:
    """Return the error of a checkpoint that failed verification before."""
    return CheckpointQuarantined(
        f"checkpoint {checkpoint_id} failed verification and is in quarantine. Nothing was removed; "
        f"`holdfast verify --deep` releases it once it verifies again"
    )


def runs(links: Iterable[ChainLink]) -> Iterator[Tombstone]:
    """Yield what is left of links that go: one tombstone for each run of numbers."""
    found: Tombstone | None = None
    for link in sorted(links, key=lambda one: one.number):
        if found is not None and link.number == found.last_number + 1:
            found = Tombstone(found.first_number, link.number, link.seq, link.hash)
            continue
        if found is not None:
            yield found
        found = Tombstone(link.number, link.number, link.seq, link.hash)
    if found is not None:
        yield found


def breaks(chain: Chain) -> Iterator[tuple[str | None, str]]:
    """Yield where a chain is not whole: the checkpoint where that shows, if any, and why.

    Whether each link fits its own row is for whoever reads the rows.
    """
    for checkpoint_id in chain.unlinked:
        yield checkpoint_id, "it has no link in the session's hash chain"
    reached, last = 0, GENESIS
    for first, number, piece in _pieces(chain):
        here = piece.checkpoint_id if isinstance(piece, ChainLink) else None
        if first <= reached:
            yield here, f"link {first} of the session is there twice"
        elif first > reached + 1:
            yield (
                here,
                f"{_links(reached + 1, first - 1)} of the session {_gone(first - reached - 1)}",
            )
        elif isinstance(piece, ChainLink) and piece.previous != last:
            yield here, f"link {first} of the session does not follow link {reached}"
        reached, last = max(reached, number), piece.hash
    if reached < chain.length:
        yield (
            None,
            f"{_links(reached + 1, chain.length)} of the session {_gone(chain.length - reached)}",
        )
    elif (reached, last) != (chain.length, chain.head):
        yield None, f"the session's chain does not end with link {reached}"


def _pieces(chain: Chain) -> list[tuple[int, int, ChainLink | Tombstone]]:
    links = [(one.number, one.number, one) for one in chain.links]
    runs = [(one.first_number, one.last_number, one) for one in chain.tombstones]
    return sorted([*links, *runs], key=lambda one: one[:2])


def _links(first: int, last: int) -> str:
    return f"link {first}" if first == last else f"links {first} to {last}"


def _gone(count: int) -> str:
    return f"{'was' if count == 1 else 'were'} removed without a trace"
