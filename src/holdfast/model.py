"""The values that stores keep and hand out: plain, frozen, without behaviour of their own.

A *draft* (``New…``) is what a caller wants stored; a *record* is what a store says it has. Records
never carry payload: a checkpoint's manifest and chunks are read separately, so that listing stays
cheap however large the states are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

CheckpointType: TypeAlias = Literal["manual", "auto", "failure"]
RetentionClass: TypeAlias = Literal["automatic", "manual", "feature", "session", "step", "failure"]
SessionStatus: TypeAlias = Literal[
    "active", "paused", "interrupted", "completed", "failed", "stopped"
]
AgentStatus: TypeAlias = Literal["idle", "running", "paused", "completed", "failed", "terminated"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
EffectStatus: TypeAlias = Literal["started", "done", "failed", "unknown"]
Buffer: TypeAlias = bytes | memoryview

# How long a brief is unless somebody says otherwise, in tokens.
BRIEF_TOKENS: Final = 2000

CHECKPOINT_TYPES: Final = ("manual", "auto", "failure")
SESSION_STATUSES: Final = ("active", "paused", "interrupted", "completed", "failed", "stopped")
AGENT_STATUSES: Final = ("idle", "running", "paused", "completed", "failed", "terminated")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
EFFECT_STATUSES: Final = ("started", "done", "failed", "unknown")

# How long a lease lasts without being renewed.
LEASE_TTL: Final = timedelta(seconds=30)

# Each retention class belongs to one checkpoint type, so a caller gives the class only.
TYPE_OF_CLASS: Final[Mapping[str, CheckpointType]] = {
    "automatic": "auto",
    "manual": "manual",
    "feature": "auto",
    "session": "auto",
    "step": "auto",
    "failure": "failure",
}

# Completed is final: continue such a session by forking it. Pausing again changes reason and time.
SESSION_TRANSITIONS: Final[Mapping[str, frozenset[str]]] = {
    "active": frozenset({"paused", "interrupted", "completed", "failed", "stopped"}),
    "paused": frozenset({"paused", "active", "completed", "failed", "stopped"}),
    "interrupted": frozenset({"active", "completed", "failed", "stopped"}),
    "failed": frozenset({"active"}),
    "stopped": frozenset({"active"}),
    "completed": frozenset(),
}


def utc_now() -> datetime:
    """Return the present moment, aware, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to be stored."""

    id: str
    name: str
    agent_type: str
    status: AgentStatus = "idle"
    parent_id: str | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent: who works. ``depth_level`` is 0 for a root and its parent's plus one below."""

    id: str
    name: str
    agent_type: str
    status: AgentStatus
    parent_id: str | None
    depth_level: int
    metadata: Mapping[str, Any] | None
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to be stored. Its agent must exist, or be given as ``agent`` to be stored with it.

    With ``lease_owner`` the session is held by that owner from its first moment on.
    """

    id: str
    agent_id: str
    agent_type: str
    task_description: str | None = None
    continues_id: str | None = None
    forked_from: str | None = None
    project_dir: str | None = None
    metadata: Mapping[str, Any] | None = None
    agent: NewAgent | None = None
    lease_owner: str | None = None
    lease_ttl: timedelta = LEASE_TTL


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session (a thread): one line of work of one agent.

    ``lease_expires_at`` is for people; whether a lease has expired is for the store to say.
    ``recoveries`` counts how often its worker was found dead.
    """

    id: str
    agent_id: str
    agent_type: str
    task_description: str | None
    status: SessionStatus
    continues_id: str | None
    forked_from: str | None
    paused_at: datetime | None
    paused_until: datetime | None
    pause_reason: str | None
    resumed_at: datetime | None
    metadata: Mapping[str, Any] | None
    created_at: datetime
    updated_at: datetime
    lease_owner: str | None
    lease_token: int
    lease_since: datetime | None
    lease_expires_at: datetime | None
    recoveries: int
    project_dir: str | None


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may write to a session, and the token that proves it.

    ``expired`` is the store's judgement when it was asked. An expired lease still stands, token and
    all, until somebody else takes the session.
    """

    session_id: str
    owner: str
    token: int
    since: datetime
    expires_at: datetime
    expired: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """A process of a database server that waits, for which others, and for how many seconds already."""

    pid: int
    blockers: tuple[int, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class Trim:
    """What one put may remove from its session and namespace, in the same transaction.

    ``keep`` bounds the unpinned checkpoints of the draft's own class; ``max_age`` maps a class to
    the age past which its unpinned checkpoints go. The newest resumable checkpoint of the session
    and namespace stays in any case, and so does one that is being restored.
    """

    keep: int | None = None
    max_age: Mapping[str, timedelta] = field(default_factory=dict)


# Not frozen: every put makes one, and to freeze its fields takes five times as long as to set them.
@dataclass(slots=True)
class NewCheckpoint:
    """A checkpoint to be stored: its row, the chunks to add, and the chunks it relies on.

    ``chunks`` holds plain bytes by digest; ``expects`` names the chunks that are referenced but not
    sent. ``session`` creates the session if it is missing. ``created_at=None`` means the store's
    clock. ``replace`` says what to do about an earlier checkpoint with the same name or
    ``external_id``: replace it, or raise `CheckpointExists`. ``consumes`` names the checkpoint that
    this one goes on from: it must be there, and can be consumed only once.

    ``follows`` is the external id that the writer read as the newest of session and namespace, empty
    where it found none: if another one is the newest by now the put raises `StaleWriter`. A put that
    replaces its own external id follows nothing. ``parent_is_newest`` asks no such thing: whichever is
    the newest when this one is stored becomes its parent.

    ``fence`` is the token of the session's lease; without one nobody may hold the session.

    ``label`` is a wish: where the session and namespace have it already, the stored one ends in
    ``-2``, then ``-3`` and so on. ``workspace_commit`` names the snapshot of the files, a git object
    id; with ``pack_required`` the put is refused unless the store holds that commit's pack.
    """

    id: str
    session_id: str
    name: str
    manifest: str
    refs: bytes
    chunks: Mapping[bytes, Buffer]
    expects: Sequence[bytes]
    size_bytes: int
    checkpoint_type: CheckpointType = "manual"
    retention_class: RetentionClass = "manual"
    namespace: str = ""
    external_id: str | None = None
    parent_id: str | None = None
    parent_is_newest: bool = False
    label: str | None = None
    description: str | None = None
    run_id: str | None = None
    version: int = 1
    git_branch: str | None = None
    git_commit: str | None = None
    git_uncommitted: bool = False
    workspace_commit: str | None = None
    pack_required: bool = False
    resumable: bool = True
    pinned: bool = False
    expires_at: datetime | None = None
    metadata: Mapping[str, Any] | None = None
    created_at: datetime | None = None
    replace: bool = False
    consumes: str | None = None
    follows: str | None = None
    fence: int | None = None
    trim: Trim = Trim()
    session: NewSession | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint without its payload. ``seq`` orders checkpoints; clocks and ids do not."""

    id: str
    session_id: str
    agent_id: str
    namespace: str
    seq: int
    external_id: str | None
    parent_id: str | None
    name: str
    label: str | None
    description: str | None
    checkpoint_type: CheckpointType
    retention_class: RetentionClass
    run_id: str | None
    version: int
    size_bytes: int
    stored_bytes: int
    git_branch: str | None
    git_commit: str | None
    git_uncommitted: bool
    workspace_commit: str | None
    resumable: bool
    pinned: bool
    expires_at: datetime | None
    metadata: Mapping[str, Any] | None
    created_at: datetime
    restored_at: datetime | None


@dataclass(frozen=True, slots=True)
class Payload:
    """What is read to restore a state: the manifest's exact text and its references.

    ``session_id`` says of which session a checkpoint's payload was read.
    """

    manifest: str
    refs: bytes
    session_id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A checkpoint's place in the hash chain of its session; see `holdfast.stores.chain`."""

    checkpoint_id: str
    seq: int
    number: int
    previous: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Links that were taken away: a run of numbers, and the seq and the hash of the last of them."""

    first_number: int
    last_number: int
    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Chain:
    """The hash chain of a session: its length and last link, what is there, and what was there.

    ``links`` and ``tombstones`` are by number. ``unlinked`` are checkpoints that have no link.
    """

    session_id: str
    length: int
    head: bytes
    links: tuple[ChainLink, ...]
    tombstones: tuple[Tombstone, ...]
    unlinked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PutResult:
    """What a put did. ``created`` is false when the id was stored already (a safe retry).

    ``read`` makes the record for those who ask for it, which a thread's writers do not.
    """

    read: Callable[[], CheckpointRecord]
    created: bool
    removed: tuple[str, ...] = ()

    @property
    def record(self) -> CheckpointRecord:
        """The checkpoint as it is stored."""
        return self.read()


@dataclass(frozen=True, slots=True)
class CheckpointQuery:
    """Which checkpoints to list, newest first. Every field that is given narrows the answer.

    ``metadata`` compares top-level keys with scalar values. ``id_prefix`` is an abbreviated id, and
    ``agent_prefix`` how the ids of several agents begin. What is in quarantine is not ``resumable``, whatever
    it was saved as.
    Expired checkpoints are never listed.
    """

    session_id: str | None = None
    namespace: str | None = None
    agent_id: str | None = None
    agent_prefix: str | None = None
    id: str | None = None
    id_prefix: str | None = None
    name: str | None = None
    label: str | None = None
    external_id: str | None = None
    checkpoint_type: str | None = None
    retention_class: str | None = None
    run_id: str | None = None
    version: int | None = None
    resumable: bool | None = None
    quarantined: bool | None = None
    before_seq: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """Which sessions to list, most recently created first.

    ``continued`` ones are those that another session continues. ``agent_prefix`` is how the ids of several
    agents begin.
    """

    status: str | None = None
    agent_type: str | None = None
    agent_id: str | None = None
    agent_prefix: str | None = None
    id_prefix: str | None = None
    continued: bool | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class NewWrite:
    """A pending write of a task: a value for a channel, encoded like a state."""

    task_id: str
    index: int
    channel: str
    manifest: str
    refs: bytes
    chunks: Mapping[bytes, Buffer]
    expects: Sequence[bytes]
    task_path: str = ""
    replace: bool = False


WritePlace: TypeAlias = tuple[str, str, str]
"""Where pending writes stand: session, namespace and external id of their checkpoint."""


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """A stored pending write with its payload."""

    external_id: str
    task_id: str
    task_path: str
    index: int
    channel: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class WorkspacePack:
    """A git pack that brings one commit of a workspace, given that ``needs`` are there already."""

    commit: str
    needs: tuple[str, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class PackReport:
    """Workspace packs that are stored, or that a sweep removed: how many, and their bytes."""

    packs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class EffectOutcome:
    """How an effect stands: what it returned, encoded like a state, or the error as a document."""

    status: EffectStatus
    manifest: str | None = None
    refs: bytes = b""
    chunks: Mapping[bytes, Buffer] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NewEffect:
    """One attempt at an effect, to be recorded: as started, or with what came of it at once.

    ``instead_of`` names the recorded attempt that this one takes the place of. ``fence`` is the token
    of the session's lease.
    """

    session_id: str
    key: str
    occurrence: int
    name: str
    fingerprint: bytes
    attempt_id: str
    outcome: EffectOutcome = EffectOutcome("started")
    instead_of: str | None = None
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """A recorded effect. ``payload`` is what it returned, None unless it is done with a result."""

    session_id: str
    key: str
    occurrence: int
    name: str
    fingerprint: bytes
    status: EffectStatus
    attempt_id: str
    attempts: int
    payload: Payload | None
    error: Mapping[str, Any] | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class EffectQuery:
    """Which effects to list. Every field that is given narrows the answer."""

    session_id: str | None = None
    key: str | None = None
    occurrence: int | None = None
    status: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line of a session's log; ids grow in the order of the calls."""

    id: int
    session_id: str
    level: LogLevel
    message: str
    data: Mapping[str, Any] | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WriteCopy:
    """A pending write on its way to another store: where it belongs, and when it was made."""

    namespace: str
    record: WriteRecord
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SessionCopy:
    """All rows of one session as of one moment, without content: what another store is given.

    ``agents`` begin with the topmost and end with the session's own. ``checkpoints`` are oldest first;
    ``consumed`` has the times at which some of them were, by id. Effects have their payload; those
    of checkpoints, and all chunks, are read one by one.
    """

    session: SessionRecord
    agents: tuple[AgentRecord, ...]
    checkpoints: tuple[CheckpointRecord, ...]
    consumed: Mapping[str, datetime]
    writes: tuple[WriteCopy, ...]
    effects: tuple[EffectRecord, ...]
    logs: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """What one session holds: counts and sizes, read without touching payload."""

    session_id: str
    checkpoints: int
    size_bytes: int
    stored_bytes: int
    latest_id: str | None


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A row that cannot be read, does not open, or was altered: where it is and why.

    ``row`` has the columns that name it in its ``table``.
    """

    table: str
    row: Mapping[str, str | int]
    code: str
    reason: str

    @property
    def what(self) -> str:
        """What is damaged, for people."""
        return " ".join([self.table, *(f"{name}={value}" for name, value in self.row.items())])


@dataclass(frozen=True, slots=True)
class KeyReport:
    """Which keys have sealed how many values of a tenant, before a rotation, and how many rows it changed.

    ``current`` is the key that seals now; ``known`` are all of the ring. Rows that are ``damaged`` stay
    as they are, and what does not open of them is not among the values. Other tenants of the same database
    have reports of their own.
    """

    tenant: str
    current: str
    known: tuple[str, ...]
    values: dict[str, int]
    changed: int = 0
    damaged: tuple[DamagedRow, ...] = ()

    @property
    def ok(self) -> bool:
        """True when no row is damaged, and no value has a key that is not in the ring."""
        return not self.damaged and not self.missing

    @property
    def missing(self) -> dict[str, int]:
        """How many values each key has that is not in the ring."""
        return {key: count for key, count in self.values.items() if key not in self.known}

    @property
    def old_values(self) -> int:
        """How many values another key than the current one had sealed."""
        return sum(count for key, count in self.values.items() if key != self.current)


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a sweep found: chunks that nothing refers to, and orphaned pending writes.

    ``snapshots`` and ``packs`` are file snapshots that no checkpoint names, in the project's private
    store and on their way to other machines; ``file_bytes`` is the room that both took. ``held_again`` are
    snapshots that checkpoints name and that had lost their reference; where there are any, no snapshot is
    freed this time. ``in_quarantine`` are checkpoints that failed verification: what they need may not be
    what their rows say, so while there are any nothing is removed. ``notes`` say why files were left alone
    that should not have been.
    """

    chunks: int
    bytes: int
    writes: int
    dry_run: bool
    snapshots: int = 0
    packs: int = 0
    file_bytes: int = 0
    held_again: int = 0
    in_quarantine: int = 0
    notes: tuple[str, ...] = ()
