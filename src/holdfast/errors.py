"""Every error that Holdfast raises, as one tree.

Families end in ``Error`` and exist to be caught; leaves name the fact that happened.

    HoldfastError
    ├── InputError                 what the caller passed cannot be accepted; nothing was written
    │   ├── InvalidIdentifier
    │   ├── InvalidFilter
    │   ├── InvalidUrl
    │   ├── InvalidConfiguration
    │   ├── InvalidKey
    │   ├── InvalidState
    │   ├── StateNotSerializable
    │   ├── ClassNotAllowed
    │   ├── IllegalTransition
    │   ├── NotResumable
    │   ├── SessionNotHeld
    │   ├── SessionPaused
    │   ├── InvalidArguments
    │   ├── InvalidDecision
    │   ├── HandoffRefused
    │   ├── AgentSettingsRefused
    │   ├── NotInitialised
    │   ├── CommandNotFound
    │   ├── CommandNotTrusted
    │   ├── ProviderTooSlow
    │   ├── InvalidStep
    │   ├── ArgumentsNotFingerprintable
    │   ├── NotABundle
    │   ├── BundleRefused
    │   ├── BundleTooNew
    │   ├── BundleNotSealed
    │   ├── ExportRefused
    │   └── WorkspaceRefused
    ├── LookupFailedError          what was asked for is not there
    │   ├── SessionNotFound
    │   ├── AgentNotFound
    │   ├── CheckpointNotFound
    │   ├── NothingToResume
    │   ├── NothingToUndo
    │   ├── NoConversation
    │   ├── SnapshotNotFound
    │   └── AmbiguousReference
    ├── ConflictError              it is there already, or somebody else was faster
    │   ├── SessionExists
    │   ├── ForeignSession
    │   ├── AgentExists
    │   ├── CheckpointExists
    │   ├── CheckpointProtected
    │   ├── BundleExists
    │   ├── ConfirmationStale
    │   ├── CheckpointBusy
    │   ├── LeaseLost
    │   ├── ProgramRunning
    │   ├── AlreadyResumed
    │   ├── ThreadOccupied
    │   ├── StaleWriter
    │   ├── GateUnmet
    │   └── ChunksMissing
    ├── IntegrityError             stored data does not say what it should
    │   ├── DigestMismatch
    │   ├── CheckpointAltered
    │   ├── CheckpointQuarantined
    │   ├── EffectAltered
    │   ├── WriteAltered
    │   ├── StateCorrupt
    │   ├── StateTooLarge
    │   ├── LogDamaged
    │   ├── PackMissing
    │   ├── SealBroken
    │   ├── PlaintextRefused
    │   ├── SealRemoved
    │   ├── BundleCorrupt
    │   └── SnapshotCorrupt
    ├── StoreError                 the database cannot do its part
    │   ├── StoreUnavailable
    │   ├── StoreBusy
    │   ├── StoreFull
    │   ├── StoreReadOnly
    │   ├── NotADatabase
    │   ├── LogMisplaced
    │   ├── AccessDenied
    │   ├── StoreClosed
    │   ├── KeyRequired
    │   ├── WrongKey
    │   ├── StoreNotSealed
    │   ├── StoreNotTrusted
    │   ├── SchemaTooNew
    │   ├── SchemaMissing
    │   └── MigrationChanged
    ├── EffectError                a step with side effects was not run, or not recorded
    │   ├── EffectUnknown
    │   ├── EffectFailed
    │   ├── EffectMismatch
    │   ├── EffectUnrecognised
    │   ├── EffectRunning
    │   ├── EffectSuperseded
    │   └── ResultNotStorable
    ├── WorkspaceError             the project's files cannot be captured or put back
    │   ├── WorkspaceUnavailable
    │   ├── WorkspaceBusy
    │   ├── WorkspaceFull
    │   ├── WorkspaceTimeout
    │   └── RestoreFailed
    ├── RunError                   a run of an agent stopped; what it did is in its checkpoint
    │   ├── AgentSuspended
    │   ├── BudgetExceeded
    │   ├── InvalidReply
    │   ├── SnapshotNotSaved
    │   ├── SnapshotTooNew
    │   ├── VerdictFailed
    │   └── Escalated
    └── MissingExtra               an optional dependency is not installed

A message says what happened, what was not lost, and what to do next. ``code`` is stable: programs
may compare it, and the command line maps each family to its ``exit_code``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class HoldfastError(Exception):
    """Root of all errors raised on purpose by this package."""

    code: ClassVar[str] = "holdfast"
    exit_code: ClassVar[int] = 1


class InputError(HoldfastError, ValueError):
    """The caller's input cannot be accepted. Nothing was written."""

    code = "input"
    exit_code = 2


class InvalidIdentifier(InputError):
    """An id, name, namespace, schema or table name breaks the rules in ``holdfast.ids``."""

    code = "invalid_identifier"


class InvalidFilter(InputError):
    """A filter, limit or option of a listing is not understood."""

    code = "invalid_filter"


class InvalidUrl(InputError):
    """A store URL cannot be parsed or names an unknown backend."""

    code = "invalid_url"


class InvalidConfiguration(InputError):
    """A setting in the environment or in ``holdfast.toml`` cannot be used."""

    code = "invalid_configuration"


class InvalidKey(InputError):
    """The keys of a sealed store cannot be read: no file, no base64, too short, or none at all."""

    code = "invalid_key"


class InvalidState(InputError):
    """A documented key of the state has the wrong shape; the message names its path."""

    code = "invalid_state"


class StateNotSerializable(InputError):
    """A value in the state has no exact stored form.

    ``path`` tells where it is, for example ``$.tools[3].client``.
    """

    code = "state_not_serializable"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class ClassNotAllowed(InputError):
    """A value of a framework's state is, or was stored as, an object of a class that is not allowed.

    Nothing was stored, or read: no object is ever made of a class that is not on the list. The error
    says where it stands; a class of your own is allowed by handing it to the saver.
    """

    code = "class_not_allowed"

    def __init__(
        self,
        name: str,
        *,
        thread_id: str,
        channel: str,
        path: str,
        what: str,
        advice: str = "Allow a class of your own with HoldfastSaver(…, types=[…]), or keep plain values in "
        "the state",
    ) -> None:
        super().__init__(f"thread {thread_id!r}, channel {channel!r}, {path}: {what}. {advice}")
        self.name = name
        self.thread_id = thread_id
        self.channel = channel
        self.path = path


class IllegalTransition(InputError):
    """A session or agent cannot go from its present status to the one asked for."""

    code = "illegal_transition"


class NotResumable(InputError):
    """The checkpoint was saved as not resumable, for example in the middle of a tool call."""

    code = "not_resumable"


class SessionNotHeld(InputError):
    """The session object was opened to look, or was closed; resume the session to write to it."""

    code = "session_not_held"


class SessionPaused(InputError):
    """The session was paused through this object; resume it to go on."""

    code = "session_paused"


class InvalidArguments(InputError):
    """The arguments of a tool call do not fit the tool; the message names each one."""

    code = "invalid_arguments"


class InvalidDecision(InputError):
    """A decision cannot be understood, or is about a call that does not wait for one."""

    code = "invalid_decision"


class HandoffRefused(InputError):
    """A handoff file cannot be written without touching what is not ours. Nothing was written."""

    code = "handoff_refused"


class AgentSettingsRefused(InputError):
    """The settings of a coding agent cannot be edited without harm. Nothing was changed."""

    code = "agent_settings_refused"


class NotInitialised(InputError):
    """An object was used before the call that prepares it."""

    code = "not_initialised"


class ProviderTooSlow(InputError):
    """The function that an autosave asks for the state has not returned in time."""

    code = "provider_too_slow"


class InvalidStep(InputError):
    """A step cannot be run as it was declared: its function, policy or reconcile callback."""

    code = "invalid_step"


class ArgumentsNotFingerprintable(InputError):
    """An argument of a step has no stored form, so the step could not be recognised after a crash.

    ``path`` tells where it is, for example ``$.args[0].client``.
    """

    code = "arguments_not_fingerprintable"

    def __init__(self, step: str, path: str, reason: str) -> None:
        super().__init__(
            f"step {step!r}: {path}: {reason}. Without it the step cannot be recognised after a "
            f"crash; nothing was run. Give the step a key= of its own"
        )
        self.path = path
        self.reason = reason


class NotABundle(InputError):
    """A file that was to be imported is none that Holdfast has exported."""

    code = "not_a_bundle"


class BundleRefused(InputError):
    """A bundle holds what no export would write: foreign names, links, rows that no store has."""

    code = "bundle_refused"


class BundleTooNew(InputError):
    """A bundle was written by a newer Holdfast, in a format that this one does not know."""

    code = "bundle_too_new"


class BundleNotSealed(InputError):
    """A bundle of plain text was to come into a sealed store, and nobody asked for that."""

    code = "bundle_not_sealed"


class ExportRefused(InputError):
    """What is sealed would leave its store as plain text, and nobody asked for that."""

    code = "export_refused"


class CommandNotFound(InputError):
    """The program to be run does not exist or cannot be executed."""

    code = "command_not_found"
    exit_code = 127


class CommandNotTrusted(InputError):
    """A session's command was not recorded by this user on this machine, so it was not started."""

    code = "command_not_trusted"


class WorkspaceRefused(InputError):
    """The directory is not one whose files may be captured: a home, the root, another's store."""

    code = "workspace_refused"


class LookupFailedError(HoldfastError, LookupError):
    """What was asked for is not in the store."""

    code = "not_found"
    exit_code = 3


class SessionNotFound(LookupFailedError):
    """No session has this id, prefix or name."""

    code = "session_not_found"


class AgentNotFound(LookupFailedError):
    """No agent has this id."""

    code = "agent_not_found"


class CheckpointNotFound(LookupFailedError):
    """No checkpoint of the session has this id, prefix, name or label."""

    code = "checkpoint_not_found"


class NothingToResume(LookupFailedError):
    """There is no checkpoint to resume from."""

    code = "nothing_to_resume"


class NothingToUndo(LookupFailedError):
    """No rollback was made that could be undone, or no undo that could be redone."""

    code = "nothing_to_undo"


class NoConversation(LookupFailedError):
    """A checkpoint holds no conversation with an agent that could be gone on with from there."""

    code = "no_conversation"


class SnapshotNotFound(LookupFailedError):
    """The project's private store does not hold the files of this checkpoint."""

    code = "snapshot_not_found"


class AmbiguousReference(LookupFailedError):
    """An abbreviated id fits more than one thing; the message lists them."""

    code = "ambiguous_reference"


class ConflictError(HoldfastError):
    """What is already stored stands against the request. Nothing was written."""

    code = "conflict"
    exit_code = 4


class SessionExists(ConflictError):
    """A session with this id exists already."""

    code = "session_exists"


class ForeignSession(ConflictError):
    """The session is another's: who wanted to change, copy or erase it may not do so from here."""

    code = "foreign_session"


class AgentExists(ConflictError):
    """An agent with this id exists already."""

    code = "agent_exists"


class CheckpointExists(ConflictError):
    """The session has a checkpoint with this name or external id already."""

    code = "checkpoint_exists"


class CheckpointProtected(ConflictError):
    """The checkpoint is pinned, permanent or needed by others and was not removed."""

    code = "checkpoint_protected"


class BundleExists(ConflictError):
    """The file that a bundle was to be written to exists already."""

    code = "bundle_exists"


class ConfirmationStale(ConflictError):
    """What was confirmed is not what would happen now: something changed since it was looked at."""

    code = "confirmation_stale"


class AlreadyResumed(ConflictError):
    """Somebody has gone on from this checkpoint already, so its work would be done twice."""

    code = "already_resumed"


class ThreadOccupied(ConflictError):
    """A run waits for people in the thread, where another one would bury it. Nothing was run."""

    code = "thread_occupied"


class StaleWriter(ConflictError):
    """A writer goes on from what it read as the newest checkpoint, and somebody else already did.

    Nothing was stored. Read the thread again and repeat the work, or name the old checkpoint to
    start a branch from it.
    """

    code = "stale_writer"


class GateUnmet(ConflictError):
    """Something that a gate of the project's protocol asks for is not so; the message lists it."""

    code = "gate_unmet"


class CheckpointBusy(ConflictError):
    """Somebody else holds the session; the message says who, since when and until when.

    ``lease`` is that `holdfast.model.Lease` where a lease was asked for, else None.
    """

    code = "checkpoint_busy"

    def __init__(self, message: str, lease: Any = None) -> None:
        super().__init__(message)
        self.lease = lease


class LeaseLost(ConflictError):
    """The session was taken over by another worker. Nothing was written, and nothing of it is lost."""

    code = "lease_lost"


class ProgramRunning(ConflictError):
    """The program of a session still runs, so a second one was not started beside it."""

    code = "program_running"


class ChunksMissing(ConflictError):
    """A put relied on chunks that are no longer stored; repeat it with all of them."""

    code = "chunks_missing"


class IntegrityError(HoldfastError):
    """Stored data does not say what it should. Nothing was changed.

    ``last_good`` is the id of the last good checkpoint before the one that was to be loaded, None where
    there is none or nobody looked.
    """

    code = "integrity"
    exit_code = 5
    last_good: str | None = None


class DigestMismatch(IntegrityError):
    """A chunk's bytes do not hash to its name, or the chunk is gone."""

    code = "digest_mismatch"


class CheckpointAltered(IntegrityError):
    """The row of a checkpoint does not fit its link in the session's hash chain."""

    code = "checkpoint_altered"


class CheckpointQuarantined(IntegrityError):
    """The checkpoint failed verification and is not used until it verifies again."""

    code = "checkpoint_quarantined"


class EffectAltered(IntegrityError):
    """What is recorded of a step does not fit its sums: altered, or moved from another. It was not run."""

    code = "effect_altered"


class WriteAltered(IntegrityError):
    """A pending write does not fit its sum: altered, or moved from another place."""

    code = "write_altered"


class StateCorrupt(IntegrityError):
    """A manifest, its references or an index chunk cannot be understood."""

    code = "state_corrupt"


class StateTooLarge(IntegrityError):
    """Reading the state would exceed the configured bounds."""

    code = "state_too_large"


class LogDamaged(IntegrityError):
    """The log of a SQLite file is damaged, and has commits that SQLite would drop. It was not opened."""

    code = "log_damaged"


class PackMissing(IntegrityError):
    """A workspace pack that is needed is not stored; the message names its commit."""

    code = "pack_missing"


class SealBroken(IntegrityError):
    """A sealed value does not open: changed, cut short, moved from elsewhere, or of an unknown key."""

    code = "seal_broken"


class PlaintextRefused(IntegrityError):
    """A sealed store or bundle holds a value that is not sealed: somebody wrote it past the key."""

    code = "plaintext_refused"


class SealRemoved(IntegrityError):
    """A database holds sealed checkpoints, and what says that it is sealed is gone. It was not opened."""

    code = "seal_removed"


class BundleCorrupt(IntegrityError):
    """A bundle was cut off, or a part of it has other bytes than were written. Nothing was imported."""

    code = "bundle_corrupt"


class SnapshotCorrupt(IntegrityError):
    """The stored files of a checkpoint are damaged. The project was not touched."""

    code = "snapshot_corrupt"


class StoreError(HoldfastError):
    """The database cannot do its part.

    ``absent`` tells that there is none yet, so that nothing is stored: no file, or no tables in it.
    """

    code = "store"
    exit_code = 6

    def __init__(self, message: str = "", *, absent: bool = False) -> None:
        super().__init__(message)
        self.absent = absent


class StoreUnavailable(StoreError):
    """The database cannot be reached or opened."""

    code = "store_unavailable"


class StoreBusy(StoreError):
    """Other writers held the database for longer than the timeout. A retry is safe."""

    code = "store_busy"


class StoreFull(StoreError):
    """No room is left on the disk. The earlier checkpoints are intact."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The database, or a file that was asked for, cannot be written where it is to be."""

    code = "store_read_only"


class NotADatabase(StoreError):
    """The file is not a Holdfast database, or it is damaged."""

    code = "not_a_database"


class LogMisplaced(StoreError):
    """The log of a SQLite file has lost it, or lies beside another one. Nothing was opened."""

    code = "log_misplaced"


class AccessDenied(StoreError):
    """The server refused the user, the password or the permission."""

    code = "access_denied"


class StoreClosed(StoreError):
    """The store was used after it was closed."""

    code = "store_closed"


class KeyRequired(StoreError):
    """The store, the bundle, or what was read from it, is sealed, and no key was given."""

    code = "key_required"


class WrongKey(StoreError):
    """The keys that were given are not those of the sealed store or bundle."""

    code = "wrong_key"


class StoreNotSealed(StoreError):
    """A key was given for a store that holds plain text; copy it into a new store, which is sealed."""

    code = "store_not_sealed"


class StoreNotTrusted(StoreError):
    """Only a project's own settings name the store, it lies elsewhere, and this user has not confirmed it."""

    code = "store_not_trusted"


class SchemaTooNew(StoreError):
    """A newer Holdfast wrote this database; this one refuses to write to it."""

    code = "schema_too_new"


class SchemaMissing(StoreError):
    """The tables are not there and were not asked to be created."""

    code = "schema_missing"


class MigrationChanged(StoreError):
    """An applied migration differs from the one in this package."""

    code = "migration_changed"


class EffectError(HoldfastError):
    """A step with side effects was not run, or what came of it was not recorded."""

    code = "effect"
    exit_code = 8


class EffectUnknown(EffectError):
    """The step began in an earlier run and nobody recorded its end: it may have happened or not."""

    code = "effect_unknown"


class EffectFailed(EffectError):
    """The step raised in an earlier run and is not run again by itself.

    ``error_type``, ``error_message`` and ``error_traceback`` are what was recorded then.
    """

    code = "effect_failed"

    def __init__(self, message: str, error: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.error_type = error.get("type")
        self.error_message = error.get("message")
        self.error_traceback = error.get("traceback")


class EffectMismatch(EffectError):
    """The key of the step is recorded with other arguments. Nothing was run."""

    code = "effect_mismatch"


class EffectUnrecognised(EffectError):
    """A step may be recorded already, with secrets taken out by another redaction key. Nothing was run."""

    code = "effect_unrecognised"


class EffectRunning(EffectError):
    """This very step is running in the session at this moment. Nothing was run."""

    code = "effect_running"


class EffectSuperseded(EffectError):
    """While the body ran, the step was begun anew elsewhere or its session was erased."""

    code = "effect_superseded"


class ResultNotStorable(EffectError):
    """The step did happen and is recorded as done, but what it returned has no stored form."""

    code = "result_not_storable"


class WorkspaceError(HoldfastError):
    """The project's files cannot be captured or put back."""

    code = "workspace"
    exit_code = 9


class WorkspaceUnavailable(WorkspaceError):
    """Git is missing, too old, or failed at its work."""

    code = "workspace_unavailable"


class WorkspaceBusy(WorkspaceError):
    """Another process works on the same files or repository. A retry is safe."""

    code = "workspace_busy"


class WorkspaceFull(WorkspaceError):
    """No room is left on the disk for the project's files."""

    code = "workspace_full"


class WorkspaceTimeout(WorkspaceError):
    """Capturing the files took longer than its time budget."""

    code = "workspace_timeout"


class RestoreFailed(WorkspaceError):
    """A restore was refused, or stopped and reverted; the message says which, and why."""

    code = "restore_failed"


class RunError(HoldfastError):
    """A run of an agent stopped before its end."""

    code = "run"
    exit_code = 10


class AgentSuspended(RunError):
    """Calls of tools wait for a decision. The snapshot is stored when this is raised.

    ``pending`` has the calls, ``checkpoint_id`` names the snapshot. Where it could not be stored,
    ``persist_error`` is the reason, ``checkpoint_id`` is None, and ``snapshot`` is still here.
    """

    code = "agent_suspended"

    def __init__(
        self,
        thread_id: str,
        pending: Sequence[Any],
        snapshot: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        persist_error: BaseException | None = None,
    ) -> None:
        waiting = ", ".join(f"{call.name} ({call.id}: {call.reason})" for call in pending)
        where = (
            f"It is stored as {checkpoint_id}: resume_from_checkpoint({thread_id!r}, …) with an "
            f"approver or decisions goes on"
            if persist_error is None
            else f"It could NOT be stored ({persist_error}): the snapshot is on this exception"
        )
        super().__init__(f"thread {thread_id!r} waits for decisions on {waiting}. {where}")
        self.thread_id = thread_id
        self.pending = tuple(pending)
        self.snapshot = snapshot
        self.checkpoint_id = checkpoint_id
        self.persist_error = persist_error


class BudgetExceeded(RunError):
    """A cap of the run's budget is reached. Resuming with a larger budget goes on."""

    code = "budget_exceeded"


class InvalidReply(RunError):
    """What the model returned is no reply."""

    code = "invalid_reply"


class SnapshotNotSaved(RunError):
    """A step could not be stored, so the run stopped; ``snapshot`` is what was to be stored."""

    code = "snapshot_not_saved"

    def __init__(self, thread_id: str, snapshot: Mapping[str, Any], reason: str) -> None:
        super().__init__(
            f"thread {thread_id!r} stopped, since a step could not be stored ({reason}). What was "
            f"stored before is intact, and the snapshot is on this exception"
        )
        self.thread_id = thread_id
        self.snapshot = snapshot


class SnapshotTooNew(RunError):
    """A newer program wrote this snapshot; this one does not guess what it means."""

    code = "snapshot_too_new"


class VerdictFailed(RunError):
    """What a guarded block did was judged a failure, and rolled back."""

    code = "verdict_failed"


class Escalated(RunError):
    """A guarded block failed and its recovery strategy was to call for help; it was rolled back.

    ``report`` tells what failed, what was rolled back, and from where to go on.
    """

    code = "escalated"

    def __init__(self, message: str, report: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.report = report


class MissingExtra(HoldfastError, ImportError):
    """An optional dependency is not installed; the message has the command that installs it."""

    code = "missing_extra"
    exit_code = 7

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs an optional part: pip install 'holdfast[{extra}]'")
        self.extra = extra
