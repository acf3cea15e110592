"""What may be stored and asked for: one set of rules, so that every store refuses alike.

A draft or a query is checked before a store does anything, which is why a refusal never leaves a
trace and why no database has to be the judge of what a user typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.errors import (
    AlreadyResumed,
    CheckpointExists,
    CheckpointNotFound,
    InvalidFilter,
    InvalidIdentifier,
    StaleWriter,
    StateNotSerializable,
)
from holdfast.ids import (
    NAME_BYTES,
    check_external_id,
    check_name,
    check_namespace,
    check_session_id,
    check_text,
    check_uuid,
    is_uuid,
)
from holdfast.model import (
    AGENT_STATUSES,
    CHECKPOINT_TYPES,
    EFFECT_STATUSES,
    LOG_LEVELS,
    SESSION_STATUSES,
    TYPE_OF_CLASS,
    EffectOutcome,
    EffectQuery,
    NewAgent,
    NewCheckpoint,
    NewEffect,
    NewSession,
    NewWrite,
    WritePlace,
)
from holdfast.state.codec import dump_document, load_document
from holdfast.state.refs import DIGEST_BYTES, RECORD_BYTES
from holdfast.stores.rules import LONGEST_LEASE

FREE_TEXT_BYTES: Final = 1 << 28
LEASE_OWNER_BYTES: Final = 1024
# Every database holds a value of this size; none of them much more than a gigabyte.
PACK_BYTES: Final = 1 << 29
# A name, and a digest where no key was given.
EFFECT_KEY_BYTES: Final = NAME_BYTES + 64
_INT64_MAX: Final = (1 << 63) - 1
_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


def check_free_text(value: object, what: str) -> None:
    """Refuse text that not every database can hold: NUL characters and lone surrogates."""
    if value is None or (type(value) is str and value.isascii() and "\0" not in value):
        return
    check_text(value, what, FREE_TEXT_BYTES, empty=True)


def check_choice(value: object, what: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise InvalidIdentifier(f"{what} must be one of {', '.join(choices)}: {value!r}")


def check_integer(value: object, what: str) -> None:
    """Refuse what is not an integer of 64 bits."""
    if type(value) is not int or not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise InvalidIdentifier(f"{what} must be an integer of 64 bits: {value!r}")


def check_flag(value: object, what: str) -> None:
    """Refuse what is neither true nor false: every database would read it in its own way."""
    if type(value) is not bool:
        raise InvalidIdentifier(f"{what} must be True or False: {value!r}")


def check_agent(draft: NewAgent) -> NewAgent:
    """Return the draft with canonical ids, or raise."""
    agent_id = check_uuid(draft.id, "agent id")
    parent_id = None if draft.parent_id is None else check_uuid(draft.parent_id, "parent id")
    check_free_text(draft.name or None, "agent name")
    check_text(draft.agent_type, "agent type", FREE_TEXT_BYTES)
    check_choice(draft.status, "agent status", AGENT_STATUSES)
    if (agent_id, parent_id) != (draft.id, draft.parent_id):
        return replace(draft, id=agent_id, parent_id=parent_id)
    return draft


_last_session: NewSession | None = None


def check_session(draft: NewSession) -> NewSession:
    """Return the draft with canonical ids, or raise."""
    global _last_session
    if draft is _last_session:
        # A thread brings the same one, which nobody can change, with everything that it puts.
        return draft
    checked = _checked_session(draft)
    _last_session = checked
    return checked


def _checked_session(draft: NewSession) -> NewSession:
    check_session_id(draft.id)
    agent_id = check_uuid(draft.agent_id, "agent id")
    check_text(draft.agent_type, "agent type", FREE_TEXT_BYTES)
    check_free_text(draft.task_description, "task description")
    check_free_text(draft.continues_id, "continued session id")
    check_free_text(draft.forked_from, "fork origin")
    check_free_text(draft.project_dir, "project directory")
    if draft.lease_owner is not None:
        check_lease(draft.lease_owner, draft.lease_ttl)
    agent = None if draft.agent is None else check_agent(draft.agent)
    if agent is not None and agent.id != agent_id:
        raise InvalidIdentifier(f"the session names agent {agent_id} but brings {agent.id}")
    if agent_id != draft.agent_id or agent is not draft.agent:
        return replace(draft, agent_id=agent_id, agent=agent)
    return draft


def check_checkpoint(draft: NewCheckpoint) -> NewCheckpoint:
    """Return the draft with a canonical id, or raise."""
    # Every put comes here: what is usually in order is looked at before anything is called.
    check_session_id(draft.session_id)
    check_name(draft.name)
    if draft.namespace != "":
        check_namespace(draft.namespace)
    if draft.external_id is not None:
        check_external_id(draft.external_id)
    if draft.checkpoint_type not in CHECKPOINT_TYPES:
        check_choice(draft.checkpoint_type, "checkpoint type", CHECKPOINT_TYPES)
    if draft.retention_class not in TYPE_OF_CLASS:
        check_choice(draft.retention_class, "retention class", tuple(TYPE_OF_CLASS))
    for value, what in (
        (draft.parent_id, "parent id"),
        (draft.label, "label"),
        (draft.description, "description"),
        (draft.run_id, "run id"),
        (draft.git_branch, "git branch"),
        (draft.git_commit, "git commit"),
        (draft.follows, "followed checkpoint"),
    ):
        if value is not None:
            check_free_text(value, what)
    check_integer(draft.version, "version")
    check_integer(draft.size_bytes, "size")
    for flag, what in (
        (draft.pinned, "pinned"),
        (draft.resumable, "resumable"),
        (draft.git_uncommitted, "git_uncommitted"),
        (draft.replace, "overwrite"),
        (draft.pack_required, "pack_required"),
        (draft.parent_is_newest, "parent_is_newest"),
    ):
        if type(flag) is not bool:
            check_flag(flag, what)
    if draft.parent_is_newest and draft.parent_id is not None:
        raise InvalidIdentifier("a checkpoint whose parent is the newest names no other parent")
    if draft.fence is not None:
        check_fence(draft.fence)
    if draft.workspace_commit is not None:
        check_commit(draft.workspace_commit, "workspace commit")
    elif draft.pack_required:
        raise InvalidIdentifier("a checkpoint without a workspace commit requires no pack")
    _check_content(draft)
    if draft.trim.keep is not None and draft.trim.keep < 0:
        raise InvalidFilter(f"a cap cannot be negative: {draft.trim.keep}")
    if draft.session is not None and draft.session.id != draft.session_id:
        raise InvalidIdentifier("the checkpoint and the session it brings name different sessions")
    if draft.consumes is not None and not is_uuid(draft.consumes):
        draft = replace(draft, consumes=check_uuid(draft.consumes, "id of the consumed checkpoint"))
    if not is_uuid(draft.id):
        return replace(draft, id=check_uuid(draft.id, "checkpoint id"))
    return draft


def already_consumed(draft: NewCheckpoint) -> AlreadyResumed:
    """Return the error of a draft that comes second."""
    return AlreadyResumed(
        f"checkpoint {draft.consumes} of session {draft.session_id!r} was resumed already. "
        f"Nothing was stored: go on from the session's newest checkpoint"
    )


def name_taken(draft: NewCheckpoint, column: str) -> CheckpointExists:
    """Return the error of a draft whose name, or other ``column``, a checkpoint has that stays."""
    return CheckpointExists(
        f"session {draft.session_id!r} has a checkpoint with the {column.replace('_', ' ')} "
        f"{getattr(draft, column)!r} already. Nothing was stored: choose another, or replace it with "
        f"overwrite=True (on the command line: --overwrite)"
    )


def stale_writer(draft: NewCheckpoint) -> StaleWriter:
    """Return the error of a draft whose writer does not know the newest checkpoint."""
    read = f"checkpoint {draft.follows!r} is not" if draft.follows else "no checkpoint is no longer"
    return StaleWriter(
        f"{read} the newest of session {draft.session_id!r}, namespace {draft.namespace!r}: somebody "
        f"else went on from there. Nothing was stored: read the newest and repeat the work"
    )


def nothing_to_consume(draft: NewCheckpoint) -> CheckpointNotFound:
    """Return the error of a draft that goes on from nothing."""
    return CheckpointNotFound(
        f"session {draft.session_id!r} has no checkpoint {draft.consumes} to go on from: it was "
        f"trimmed, deleted or has expired. Nothing was stored"
    )


def check_commit(value: object, what: str) -> None:
    """Refuse what is not a whole git object id."""
    if type(value) is not str or _COMMIT.fullmatch(value) is None:
        raise InvalidIdentifier(f"{what} must be 40 or 64 hexadecimal digits: {value!r:.80}")


def check_pack(commit: str, needs: Sequence[str], data: object) -> None:
    """Raise unless the workspace pack can be stored."""
    check_commit(commit, "commit")
    for base in needs:
        check_commit(base, "needed commit")
    if commit in needs:
        raise InvalidIdentifier(f"the pack of commit {commit} cannot need itself")
    if type(data) is not bytes:
        raise InvalidIdentifier(f"a pack must be bytes, not {type(data).__name__}")
    if len(data) > PACK_BYTES:
        raise InvalidIdentifier(
            f"the pack of commit {commit} has {len(data)} bytes; a pack may have {PACK_BYTES}. "
            f"Nothing was stored"
        )


def check_write(draft: NewWrite) -> None:
    """Raise unless the pending write can be stored."""
    check_text(draft.task_id, "task id", FREE_TEXT_BYTES, empty=True)
    check_text(draft.task_path, "task path", FREE_TEXT_BYTES, empty=True)
    check_text(draft.channel, "channel", FREE_TEXT_BYTES, empty=True)
    check_integer(draft.index, "index of a write")
    check_flag(draft.replace, "replace")
    _check_content(draft)


def check_effect(draft: NewEffect) -> None:
    """Raise unless the effect can be stored."""
    check_session_id(draft.session_id)
    check_text(draft.key, "key of an effect", EFFECT_KEY_BYTES)
    check_integer(draft.occurrence, "occurrence")
    if not 0 <= draft.occurrence < 1 << 31:
        raise InvalidIdentifier(f"occurrence must fit into 31 bits: {draft.occurrence}")
    check_text(draft.name, "name of an effect", NAME_BYTES)
    for attempt_id in (draft.attempt_id, draft.instead_of):
        if attempt_id is not None and not is_uuid(attempt_id):
            raise InvalidIdentifier(f"an attempt id must be a UUID: {attempt_id!r}")
    check_fence(draft.fence)
    check_outcome(draft.outcome)


def check_outcome(outcome: EffectOutcome) -> None:
    """Raise unless the outcome of an effect can be stored."""
    check_choice(outcome.status, "effect status", EFFECT_STATUSES)
    _check_content(outcome)


def check_finish(session_id: str, key: str, outcome: EffectOutcome, fence: int | None) -> None:
    """Raise unless an effect can be finished like that."""
    check_filter(session_id, "session id", str)
    check_filter(key, "key", str)
    check_outcome(outcome)
    check_fence(fence)


def check_effect_query(query: EffectQuery) -> int | None:
    """Return the limit of a listing of effects, or raise."""
    for value, what in ((query.session_id, "session id"), (query.key, "key")):
        if value is not None:
            check_filter(value, what, str)
    check_known(query.status, "status", EFFECT_STATUSES)
    if query.occurrence is not None and (
        type(query.occurrence) is not int or not 0 <= query.occurrence < 1 << 31
    ):
        raise InvalidFilter(f"occurrence must be a number of 31 bits: {query.occurrence!r}")
    return check_limit(query.limit)


def _check_content(draft: NewCheckpoint | NewWrite | EffectOutcome) -> None:
    if len(draft.refs) % RECORD_BYTES:
        raise InvalidIdentifier(f"references of {len(draft.refs)} bytes are not whole records")
    expects = () if isinstance(draft, EffectOutcome) else draft.expects
    for digests in (draft.chunks, expects):
        for digest in digests:
            if len(digest) != DIGEST_BYTES:
                raise InvalidIdentifier(f"a digest has {DIGEST_BYTES} bytes, not {len(digest)}")


def check_log(level: str, message: str) -> None:
    """Raise unless the log line can be stored."""
    check_choice(level, "log level", LOG_LEVELS)
    check_text(message, "log message", FREE_TEXT_BYTES, empty=True)


def check_level(level: str | None) -> None:
    """Refuse to look for lines of a level that there is not."""
    check_known(level, "level", LOG_LEVELS)


def check_agent_filters(status: str | None, parent_id: str | None) -> None:
    """Refuse to look for agents of a status that there is not, or of a parent that is no text."""
    check_known(status, "status", AGENT_STATUSES)
    if parent_id is not None:
        check_filter(parent_id, "parent_id", str)


def check_agent_status(status: str | None) -> None:
    """Refuse an unknown status of an agent."""
    if status is not None:
        check_choice(status, "agent status", AGENT_STATUSES)


def check_session_status(status: str | None) -> None:
    """Refuse an unknown status of a session."""
    if status is not None:
        check_choice(status, "session status", SESSION_STATUSES)


def check_session_change(
    session_id: str,
    status: str | None,
    pause_reason: str | None,
    task_description: str | None,
    fence: int | None,
) -> None:
    """Raise unless a session can be changed like that."""
    check_filter(session_id, "session id", str)
    check_session_status(status)
    check_free_text(pause_reason, "pause reason")
    check_free_text(task_description, "task_description")
    check_fence(fence)


def check_lease(owner: object, ttl: timedelta) -> None:
    """Refuse an owner that cannot be stored, or a lease that lasts no time or too long."""
    check_text(owner, "lease owner", LEASE_OWNER_BYTES)
    check_lease_ttl(ttl)


def check_lease_ttl(ttl: object) -> None:
    """Refuse a lease that lasts no time or too long."""
    if not isinstance(ttl, timedelta) or not timedelta(0) < ttl <= LONGEST_LEASE:
        raise InvalidIdentifier(
            f"a lease lasts a timedelta of at most {LONGEST_LEASE}, and some time: {ttl!r}"
        )


def check_fence(fence: object) -> None:
    """Refuse what is no token of a lease."""
    if fence is not None:
        check_integer(fence, "fence")


def check_limit(limit: int | None, what: str = "limit") -> int | None:
    """Return the limit of a listing; None means all."""
    if limit is None:
        return None
    if type(limit) is not int or limit < 0:
        raise InvalidFilter(f"{what} must be a whole number, not negative: {limit!r}")
    return min(limit, _INT64_MAX)


def check_filter(value: object, what: str, kind: type) -> None:
    """Refuse a filter of another type than its column, or one that no column can equal."""
    if type(value) is not kind:
        raise InvalidFilter(f"{what} must be {kind.__name__}, not {type(value).__name__}")
    if kind is str:
        try:
            check_free_text(value, what)
        except InvalidIdentifier as error:
            raise InvalidFilter(str(error)) from None
    elif kind is int and not -_INT64_MAX - 1 <= value <= _INT64_MAX:  # type: ignore[operator]
        raise InvalidFilter(f"{what} does not fit into 64 bits: {value!r}")


def check_known(value: str | None, what: str, choices: tuple[str, ...]) -> None:
    """Refuse a filter that nothing ever fits: who mistyped it would take nothing for the answer."""
    if value is not None and value not in choices:
        raise InvalidFilter(f"{what} must be one of {', '.join(choices)}, not {value!r:.80}")


def checkpoint_keys(checkpoint_ids: Iterable[str]) -> list[str]:
    """Return ids of checkpoints as they are stored, each checked as a filter is."""
    keys = []
    for checkpoint_id in checkpoint_ids:
        check_filter(checkpoint_id, "checkpoint id", str)
        keys.append(checkpoint_id.lower())
    return keys


def check_place(place: WritePlace) -> WritePlace:
    """Refuse the place of pending writes unless it is three texts."""
    for value, what in zip(place, ("session id", "namespace", "external id"), strict=True):
        check_filter(value, what, str)
    return place


def metadata_filter(wanted: Mapping[str, Any]) -> str:
    """Return a metadata filter as the text of a document, written as stored metadata is.

    Keys are compared with top-level keys, values with scalars: ``True`` never equals 1, and 1
    equals 1.0. Raises `InvalidFilter` for anything else.
    """
    if not isinstance(wanted, Mapping):
        raise InvalidFilter(f"a metadata filter must be a dict, not {type(wanted).__name__}")
    for key, value in wanted.items():
        if type(key) is not str:
            raise InvalidFilter(f"a metadata key must be a str, not {type(key).__name__}")
        if value is None or type(value) in (bool, str):
            continue
        if type(value) is int and -_INT64_MAX - 1 <= value <= _INT64_MAX:
            continue
        if type(value) is float and value - value == 0.0:
            continue
        raise InvalidFilter(f"metadata can be compared with scalars only: {key!r} = {value!r:.80}")
    try:
        return dump_document(wanted, "metadata filter")
    except StateNotSerializable as error:
        raise InvalidFilter(str(error)) from None


def document_text(document: Mapping[str, Any] | None, what: str = "metadata") -> str | None:
    """Return metadata or a log line's data as it is stored. Raises `StateNotSerializable`."""
    return None if document is None else dump_document(document, what)


def merged_text(stored: str | None, changes: str) -> str:
    """Return a stored document with the top-level keys of another set in it."""
    # As values, not as text: a document with unusual keys is tagged as a whole.
    present = {} if stored is None else load_document(stored)
    return dump_document(present | load_document(changes), "metadata")


def as_utc(moment: datetime, what: str) -> datetime:
    """Return an aware moment in UTC; a naive one could mean any hour and is refused."""
    if type(moment) is not datetime and not isinstance(moment, datetime):
        raise InvalidIdentifier(f"{what} must be a datetime, not {type(moment).__name__}")
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise InvalidIdentifier(f"{what} must have a time zone: {moment.isoformat()}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidIdentifier(f"{what} is no moment in UTC: {moment.isoformat()}") from None
