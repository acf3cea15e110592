"""Looking back before going on: what a session's checkpoint says, and what has become of it.

Gathers what `holdfast.preflight` compares and `holdfast.brief` tells. It reads only: the one trace that a
comparison of files leaves is a snapshot of how they are, which the next sweep takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.brief import Ancestor, Brief, Note, check_max_tokens
from holdfast.effects import is_running_here
from holdfast.errors import (
    IntegrityError,
    InvalidIdentifier,
    SnapshotCorrupt,
    SnapshotNotFound,
    StoreError,
    WorkspaceError,
    WorkspaceRefused,
)
from holdfast.ids import check_text
from holdfast.leases import is_dead
from holdfast.model import BRIEF_TOKENS, CheckpointQuery, EffectQuery, LogRecord, SessionRecord
from holdfast.preflight import (
    MemoryRefReport,
    Preflight,
    Reason,
    check_memory_refs,
    compare_files,
    compare_heads,
    compare_uncommitted,
    describe_skipped,
    memory_reasons,
    missing_files,
    open_file_reasons,
    secret_reasons,
    store_reason,
    tool_reasons,
    tools_in,
)
from holdfast.processes import owner_name
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.files import FILES, GIT, ProjectFiles
from holdfast.sessions.passed_over import PassedOver, find_passed_over
from holdfast.sessions.tasks import all_tasks
from holdfast.state.documented import documented
from holdfast.state.tags import normalise
from holdfast.stores.base import Store, first
from holdfast.stores.readable import list_readable_checkpoints, read_checkpoints
from holdfast.workspace.base import Change
from holdfast.workspace.repository import Repository, read_git_state, read_head

if TYPE_CHECKING:
    from holdfast.sessions.held import Surroundings
    from holdfast.sessions.manager import SessionManager

DECISION: Final = "decision"
LEARNING: Final = "learning"
Tools = Collection[Any] | Mapping[str, Any] | None

_ANCESTORS: Final = 20
_NOTES: Final = 200
_ERRORS: Final = 3
_TEXT_BYTES: Final = 16 * 1024


@dataclass
class _Look:
    """One look at a session: what is read for the preflight is not read again for the brief."""

    store: Store
    record: SessionRecord
    around: Surroundings
    checkpoint: Checkpoint | None
    lineage: list[Ancestor] = field(default_factory=list)
    unreadable: dict[str, IntegrityError] = field(default_factory=dict)
    passed_over: list[PassedOver] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    memory: list[MemoryRefReport] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    unchecked: dict[str, str] = field(default_factory=dict)

    def compare(self, *, tools: Tools, files: bool) -> Preflight:
        reasons = [*self._session_reasons(), *self._content_reasons(tools)]
        if self.checkpoint is None:
            self.unchecked["checkpoint"] = "nothing was saved yet"
        else:
            reasons += self._git_reasons(files)
            reasons += self._file_reasons(self.checkpoint.workspace_commit, files)
        return Preflight(
            tuple(reasons),
            checkpoint=None if self.checkpoint is None else self.checkpoint.name,
            checkpoint_id=None if self.checkpoint is None else self.checkpoint.id,
            unchecked=self.unchecked,
        )

    def _session_reasons(self) -> Iterator[Reason]:
        if self.record.status == "completed":
            yield Reason("session_completed", "the session is completed; fork it to go on")
        ours = self.around.leases.owner
        for lease in self.store.list_leases(session_id=self.record.id):
            if lease.owner != ours and not lease.expired and not is_dead(lease.owner):
                name = owner_name(lease.owner)
                yield Reason("session_held", f"{name} works on this session", subject=lease.owner)
                return
        # Nobody else works here, so nobody will record how these ended but this process of its own.
        for status in ("started", "unknown"):
            query = EffectQuery(session_id=self.record.id, status=status)
            for effect in self.store.list_effects(query):
                if not is_running_here(effect):
                    yield Reason(
                        "effect_unknown",
                        f"the step {effect.name} began, and nobody recorded how it ended",
                        subject=effect.key,
                    )

    def _content_reasons(self, tools: Tools) -> Iterator[Reason]:
        if tools is None:
            self.unchecked["tools"] = "nobody said which there are"
        for checkpoint_id, error in self.unreadable.items():
            yield Reason(
                "checkpoint_unreadable",
                f"checkpoint {checkpoint_id} cannot be read: {error}",
                subject=checkpoint_id,
            )
        for one in self.passed_over:
            if one.id not in self.unreadable:
                yield Reason(one.code, one.text, subject=one.id)
        if self.checkpoint is None:
            return
        try:
            content = self.checkpoint.content.read()
        except IntegrityError as error:
            yield Reason(
                "checkpoint_unreadable",
                f"checkpoint {self.checkpoint.name} cannot be read: {error}",
                subject=self.checkpoint.id,
            )
            return
        self.state, self.context = content.state, content.context
        project = self.around.project_dir
        known = documented(self.state)
        self.memory = check_memory_refs(_dicts(known, "memory_refs"), project)
        self.missing = missing_files(_dicts(known, "open_files"), project)
        yield from memory_reasons(self.memory)
        yield from open_file_reasons(self.missing)
        yield from secret_reasons(self.around.redaction.missing(self.state))
        if tools is not None:
            yield from tool_reasons(tools_in(known), tools)

    def _git_reasons(self, files: bool) -> Iterator[Reason]:
        """Compare HEAD always, which costs a moment, and the state of files when that was asked for."""
        if GIT not in self.context and FILES not in self.context:
            self.unchecked["git"] = "the checkpoint holds nothing about it"
            return
        if self.around.files is None:
            self.unchecked["git"] = "files and git are left alone here (workspace=False)"
            return
        project = self.around.project_dir
        then = self.context.get(GIT)
        now = read_git_state(project) if files else read_head(project)
        if now is None and then is not None and Repository.find(project) is not None:
            yield Reason("git_unchecked", "git is not installed or does not answer")
            return
        yield from compare_heads(then, now)
        if files and then is not None and now is not None:
            yield from compare_uncommitted(then, now)

    def _file_reasons(self, commit: str | None, files: bool) -> Iterator[Reason]:
        if commit is None:
            self.unchecked["files"] = "the checkpoint holds none"
        elif self.around.files is None:
            self.unchecked["files"] = "files and git are left alone here (workspace=False)"
        elif not files:
            self.unchecked["files"] = "not asked for"
        else:
            try:
                changes, skipped = _compare(self.around.files, commit)
                if skipped is not None:
                    self.unchecked["skipped_files"] = skipped
                yield from compare_files(changes)
            except SnapshotNotFound as error:
                yield Reason("snapshot_missing", str(error), subject=commit)
            except IntegrityError as error:
                yield Reason("snapshot_damaged", str(error), subject=commit)
            except (WorkspaceError, WorkspaceRefused) as error:
                yield Reason("files_unchecked", f"files cannot be compared: {error}")

    # What the brief tells beyond that ---------------------------------------------------------

    def open_files(self) -> list[dict[str, Any]]:
        listed = _dicts(documented(self.state), "open_files")
        return [{**one, "missing": one["path"] in self.missing} for one in listed]

    def decisions(self) -> list[Note]:
        """Those of this session first, newest first; then those of the sessions before it."""
        notes = list(self.notes(DECISION))
        known = {note.text for note in notes}
        of = self.record.id if self.checkpoint is None else self.checkpoint.session_id
        stated = (_stated(one, of) for one in documented(self.state).get("decisions", ()))
        return notes + [note for note in stated if note.text not in known]

    def notes(self, key: str) -> Iterator[Note]:
        until = None
        for record in (self.record, *(one.record for one in self.lineage)):
            for line in self.store.list_logs(record.id, key=key, newest=True, limit=_NOTES):
                # What a session decided after another was forked off is not known there.
                if until is None or line.created_at <= until:
                    yield _logged(line.data or {}, key, line.message, record.id, line.created_at)
            if record.forked_from is not None:
                until = record.created_at


def note_data(
    key: str, text: str, rationale: str | None = None, alternatives: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return what the log keeps of a decision, or of something learnt."""
    check_text(text, key, _TEXT_BYTES)
    if rationale is not None:
        check_text(rationale, "rationale", _TEXT_BYTES, empty=True)
    if isinstance(alternatives, str) or not isinstance(alternatives, Iterable):
        raise InvalidIdentifier(
            f"alternatives must be a list of texts, not one {type(alternatives).__name__}"
        )
    others = [check_text(one, "alternative", _TEXT_BYTES) for one in alternatives]
    return {key: {"text": text, "rationale": rationale, "alternatives": others}}


def is_decision(line: LogRecord) -> bool:
    """Tell whether a line of the log was written to record a decision, not by a program that uses the key."""
    said = (line.data or {}).get(DECISION)
    return line.message.startswith(f"{DECISION}: ") and isinstance(said, Mapping)


def preflight_of(
    store: Store,
    record: SessionRecord,
    around: Surroundings,
    *,
    head: str | None = None,
    tools: Tools = None,
    files: bool = True,
) -> Preflight:
    """See `Session.preflight`. ``head`` is the checkpoint that the session object goes on from."""
    return _look(store, record, around, head).compare(tools=tools, files=files)


def brief_of(
    store: Store,
    record: SessionRecord,
    around: Surroundings,
    *,
    head: str | None = None,
    max_tokens: int = BRIEF_TOKENS,
    tools: Tools = None,
    files: bool = False,
) -> Brief:
    """See `Session.brief`."""
    check_max_tokens(max_tokens)
    look = _look(store, record, around, head)
    compared = look.compare(tools=tools, files=files)
    return Brief(
        session=record,
        checkpoint=None if look.checkpoint is None else look.checkpoint.record,
        preflight=compared,
        tasks=[normalise(task) for task in all_tasks(look.state, look.context)],
        progress=documented(look.state).get("progress"),
        decisions=look.decisions(),
        learnings=list(look.notes(LEARNING)),
        open_files=look.open_files(),
        memory=look.memory,
        errors=store.list_logs(record.id, level="error", newest=True, limit=_ERRORS),
        lineage=look.lineage,
        max_tokens=max_tokens,
    )


def brief_to_go(
    store: Store, record: SessionRecord, around: Surroundings, *, checkpoint: str | None = None
) -> Brief:
    """Return a brief that compares nothing and knows this session only: the same wherever it is made.

    ``checkpoint`` is the id of the one to go on from, the latest by default.
    """
    look = replace(_look(store, record, around, checkpoint), lineage=[])
    if look.checkpoint is not None and look.checkpoint.session_id != record.id:
        look.checkpoint = None
    if look.checkpoint is not None:
        content = look.checkpoint.content.read()
        look.state, look.context = content.state, content.context
    return Brief(
        session=record,
        checkpoint=None if look.checkpoint is None else look.checkpoint.record,
        preflight=Preflight(()),
        tasks=[normalise(task) for task in all_tasks(look.state, look.context)],
        progress=documented(look.state).get("progress"),
        decisions=look.decisions(),
        learnings=list(look.notes(LEARNING)),
        open_files=look.open_files(),
        errors=store.list_logs(record.id, level="error", newest=True, limit=_ERRORS),
    )


def preflight_of_project(
    open_manager: Callable[[], SessionManager],
    *,
    session_id: str | None = None,
    tools: Tools = None,
    files: bool = True,
    parked: bool = False,
) -> Preflight:
    """Compare a session of a project, the latest unfinished one by default.

    With ``parked`` that may be one that is paused until later, as `latest_unfinished_session` has it.
    A database that cannot be opened, for example because its schema is newer than this Holdfast, is a
    reason like any other.
    """
    try:
        manager = open_manager()
    except StoreError as error:
        return Preflight((store_reason(error),), unchecked={"everything": str(error)})
    with manager:
        if session_id is None:
            session_id = manager.latest_unfinished_session(parked=parked).id
        return manager.get_session(session_id).preflight(tools=tools, files=files)


def _look(store: Store, record: SessionRecord, around: Surroundings, head: str | None) -> _Look:
    lineage = list(_ancestors(store, record))
    queries = [CheckpointQuery(id=head)] if head is not None else []
    queries += [
        CheckpointQuery(one.id, namespace="", resumable=True, limit=1)
        for one in (record, *(ancestor.record for ancestor in lineage))
    ]
    # The first that has any: a session that has saved nothing goes on from the one before it.
    checkpoint = None
    unreadable: dict[str, IntegrityError] = {}
    for query in queries:
        found, damaged = read_checkpoints(store, query)
        unreadable |= damaged
        if found:
            checkpoint = Checkpoint.of(found[0], store)
            break
    passed_over = find_passed_over(store, record.id, resumable=True)
    return _Look(store, record, around, checkpoint, lineage, unreadable, passed_over)


def _ancestors(store: Store, record: SessionRecord) -> Iterator[Ancestor]:
    """Yield the sessions before this one, the nearest first."""
    seen = {record.id}
    for _ in range(_ANCESTORS):
        before, relation = record.continues_id, "continues"
        if before is None and record.forked_from is not None:
            relation = "forked from"
            query = CheckpointQuery(id=record.forked_from)
            source = first(list_readable_checkpoints(store, query))
            before = None if source is None else source.session_id
        found = None if before is None or before in seen else store.find_session(before)
        if found is None:
            return
        yield Ancestor(found, relation)
        seen.add(found.id)
        record = found


def _compare(files: ProjectFiles, commit: str) -> tuple[list[Change], str | None]:
    """Return what differs between a snapshot and the project as it is, and what nobody can tell of."""
    workspace = files.workspace
    if commit not in workspace.snapshots():
        files.fetch(commit)
    problems = workspace.verify([commit])
    if problems:
        raise SnapshotCorrupt(f"the stored files are damaged: {problems[0].problem}")
    with workspace.saving():
        now = workspace.snapshot()
        skipped = describe_skipped(workspace.skipped(commit), now.skipped)
        return workspace.diff(commit, now.commit), skipped


def _dicts(state: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return [dict(one) for one in state.get(key, ())]


def _stated(one: Any, session_id: str) -> Note:
    if not isinstance(one, Mapping):
        return Note(str(one), session_id)
    return Note(
        str(one["text"]),
        session_id,
        rationale=one.get("rationale"),
        alternatives=_texts(one.get("alternatives")),
    )


def _logged(data: Mapping[str, Any], key: str, message: str, session_id: str, at: Any) -> Note:
    said = data.get(key)
    if not isinstance(said, Mapping):
        # Anybody may log with this key; what it says then is the line itself.
        return Note(message, session_id, at=at)
    rationale = said.get("rationale")
    return Note(
        str(said.get("text") or message),
        session_id,
        rationale=None if rationale is None else str(rationale),
        alternatives=_texts(said.get("alternatives")),
        at=at,
    )


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(one) for one in value) if isinstance(value, (list, tuple)) else ()


__all__ = [
    "DECISION",
    "LEARNING",
    "brief_of",
    "brief_to_go",
    "is_decision",
    "note_data",
    "preflight_of",
    "preflight_of_project",
]
