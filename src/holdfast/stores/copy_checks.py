"""What a session from elsewhere may be: one that some store could have had, whole and without doubles.

Each row is held against the rules for a draft of its kind (`holdfast.stores.checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from holdfast.errors import InvalidIdentifier
from holdfast.ids import check_external_id, check_namespace, is_uuid
from holdfast.model import (
    CheckpointRecord,
    EffectOutcome,
    EffectRecord,
    NewAgent,
    NewCheckpoint,
    NewEffect,
    NewSession,
    NewWrite,
    Payload,
    SessionCopy,
    WriteCopy,
)
from holdfast.stores.checks import (
    check_agent,
    check_checkpoint,
    check_effect,
    check_free_text,
    check_integer,
    check_log,
    check_session,
    check_session_status,
    check_write,
)


def check_copy(copy: SessionCopy) -> None:
    """Raise unless a session from another store can be stored. `check_copied` looks at each checkpoint."""
    session = copy.session
    check_session(
        NewSession(
            id=session.id,
            agent_id=session.agent_id,
            agent_type=session.agent_type,
            task_description=session.task_description,
            continues_id=session.continues_id,
            forked_from=session.forked_from,
            project_dir=session.project_dir,
        )
    )
    check_session_status(session.status)
    check_free_text(session.pause_reason, "pause reason")
    _check_number(session.recoveries, "recoveries")
    _check_agents(copy)
    for one in copy.checkpoints:
        if not is_uuid(one.id):
            raise InvalidIdentifier(f"a checkpoint's id must be a UUID: {one.id!r:.80}")
    for what, keys in (
        ("id", [one.id for one in copy.checkpoints]),
        ("name", [(one.namespace, one.name) for one in copy.checkpoints]),
        ("label", [(one.namespace, one.label) for one in copy.checkpoints if one.label]),
        (
            "external id",
            [(one.namespace, one.external_id) for one in copy.checkpoints if one.external_id],
        ),
        ("effect", [(one.key, one.occurrence) for one in copy.effects]),
        ("write", [_place(one) for one in copy.writes]),
    ):
        _check_once(keys, what)
    for effect in copy.effects:
        _check_copied_effect(session.id, effect)
    for write in copy.writes:
        _check_copied_write(write)
    for line in copy.logs:
        check_log(line.level, line.message)


def check_copied(copy: SessionCopy, record: CheckpointRecord, payload: Payload) -> NewCheckpoint:
    """Return a checkpoint from another store as a draft, or raise."""
    if (record.session_id, record.agent_id) != (copy.session.id, copy.session.agent_id):
        raise InvalidIdentifier(f"checkpoint {record.id} is not of session {copy.session.id!r}")
    check_integer(record.stored_bytes, "stored size")
    return check_checkpoint(
        NewCheckpoint(
            id=record.id,
            session_id=record.session_id,
            name=record.name,
            manifest=payload.manifest,
            refs=payload.refs,
            chunks={},
            expects=(),
            size_bytes=record.size_bytes,
            checkpoint_type=record.checkpoint_type,
            retention_class=record.retention_class,
            namespace=record.namespace,
            external_id=record.external_id,
            parent_id=record.parent_id,
            label=record.label,
            description=record.description,
            run_id=record.run_id,
            version=record.version,
            git_branch=record.git_branch,
            git_commit=record.git_commit,
            git_uncommitted=record.git_uncommitted,
            workspace_commit=record.workspace_commit,
            resumable=record.resumable,
            pinned=record.pinned,
        )
    )


def _check_agents(copy: SessionCopy) -> None:
    above = None
    for agent in copy.agents:
        check_agent(NewAgent(agent.id, agent.name, agent.agent_type, agent.status, agent.parent_id))
        _check_number(agent.depth_level, "depth of an agent")
        if agent.parent_id != above:
            raise InvalidIdentifier(f"agent {agent.id} does not follow its parent")
        above = agent.id
    if above != copy.session.agent_id:
        raise InvalidIdentifier(f"session {copy.session.id!r} does not bring its agent")


def _check_copied_effect(session_id: str, effect: EffectRecord) -> None:
    payload = effect.payload
    outcome = EffectOutcome(
        effect.status,
        manifest=None if payload is None else payload.manifest,
        refs=b"" if payload is None else payload.refs,
    )
    check_effect(
        NewEffect(
            session_id,
            effect.key,
            effect.occurrence,
            effect.name,
            effect.fingerprint,
            effect.attempt_id,
            outcome,
        )
    )
    _check_number(effect.attempts, "attempts of an effect")


def _check_copied_write(copy: WriteCopy) -> None:
    record = copy.record
    if copy.namespace != "":
        check_namespace(copy.namespace)
    check_external_id(record.external_id)
    check_write(
        NewWrite(
            record.task_id,
            record.index,
            record.channel,
            record.payload.manifest,
            record.payload.refs,
            {},
            (),
            record.task_path,
        )
    )


def _check_number(value: object, what: str) -> None:
    check_integer(value, what)
    if type(value) is int and not 0 <= value < 1 << 31:
        raise InvalidIdentifier(f"{what} must fit into 31 bits: {value}")


def _place(copy: WriteCopy) -> tuple[str, str, str, int]:
    record = copy.record
    return copy.namespace, record.external_id, record.task_id, record.index


def _check_once(keys: Iterable[Hashable], what: str) -> None:
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise InvalidIdentifier(f"the session has the {what} {twice[0]!r:.200} twice")
