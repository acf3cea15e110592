"""Gates: what a project's protocol asks for before work starts and before it ends.

    # .agents/holdfast.toml
    [gates.start]
    must = ["session", "safe"]
    should = ["clean"]

    [gates.end]
    must = ["checkpoint"]
    should = ["tasks", "handoff"]

What must hold stops whoever asks; what should hold is a warning. A gate that the settings do not mention asks
for nothing and does nothing, so gates can be added to any protocol.

An open start gate saves a checkpoint of class ``session`` and notes it in the session's log. The end gate's
``checkpoint`` asks for a later one that has the project's files as they are. A program gets both, with
autosave in between, from `gated`; on the command line every save is somebody's, so it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from holdfast.autosave import Autosave
from holdfast.config import GATES, GateSettings, load_config
from holdfast.errors import (
    CheckpointBusy,
    CheckpointNotFound,
    GateUnmet,
    HandoffRefused,
    InvalidConfiguration,
    InvalidFilter,
    NothingToResume,
    StoreError,
)
from holdfast.handoff import handoff_path, listed_checkpoints, read_handoff
from holdfast.handoff.session_log import last_session_log
from holdfast.leases import AGENT
from holdfast.model import LogRecord
from holdfast.preflight import Preflight
from holdfast.sessions import Checkpoint, Session, SessionManager
from holdfast.sessions.briefing import DECISION, is_decision
from holdfast.sessions.status import read_status

MUST: Final = "MUST"
SHOULD: Final = "SHOULD"
_GATE: Final = "gate"
_STARTED: Final = "the start gate is open"
_FILES: Final = ("file_changed", "file_deleted", "file_added", "files_unchecked")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that a gate asks for, whether it is so, and how that is known."""

    name: str
    level: str
    met: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class GateReport:
    """What a gate found. ``checkpoint`` is what an open start gate has saved."""

    gate: str
    items: tuple[Item, ...] = ()
    configured: bool = False
    session_id: str | None = None
    checkpoint: Checkpoint | None = None

    @property
    def unmet(self) -> list[Item]:
        """What must hold and does not."""
        return [item for item in self.items if item.level == MUST and not item.met]

    @property
    def warnings(self) -> list[Item]:
        """What should hold and does not."""
        return [item for item in self.items if item.level == SHOULD and not item.met]

    @property
    def ok(self) -> bool:
        """Whether the gate is open."""
        return not self.unmet

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "gate": self.gate,
            "configured": self.configured,
            "ok": self.ok,
            "session_id": self.session_id,
            "checkpoint_id": None if self.checkpoint is None else self.checkpoint.id,
            "items": [
                {"item": one.name, "level": one.level, "met": one.met, "evidence": one.evidence}
                for one in self.items
            ],
        }


def check_gate(
    gate: str,
    open_manager: Callable[[], SessionManager],
    *,
    project_dir: str | None = None,
    session_id: str | None = None,
    save: bool = True,
) -> GateReport:
    """Answer a gate of the project for a session, the latest unfinished one by default.

    An open start gate saves its checkpoint, unless ``save`` is false. A database that cannot be opened
    is an answer too.
    """
    settings = _settings(gate, project_dir)
    if settings is None:
        return GateReport(gate)
    try:
        manager = open_manager()
    except StoreError as error:
        return GateReport(gate, _without_store(settings, error), configured=True)
    with manager:
        facts = _Facts(manager, open_manager, session_id)
        report = _answer(gate, settings, facts)
        if gate == "start" and save and report.ok and facts.session is not None:
            return _begin(report, manager, facts.session.id)
        return report


@contextmanager
def gated(
    manager: SessionManager, session: Session, provider: Callable[[], Any], **options: Any
) -> Iterator[Autosave[Checkpoint]]:
    """Work between the gates: the start gate, autosave, a final checkpoint, the end gate.

    ``options`` are those of `Session.autosave`. Raises `GateUnmet` before the block if the start gate
    is closed, and after it if the end gate is: everything is saved by then. Where the project has no
    gates this is autosave alone.
    """
    start = _settings("start", manager.project_dir)
    end = _settings("end", manager.project_dir)
    first = None
    if start is not None:
        report = _answer("start", start, _Facts(manager, None, session.id))
        _insist(report)
        first = _save_start(session)
    with session.autosave(provider, **options) as saver:
        yield saver
    if end is not None:
        if first is not None and session.latest_checkpoint().seq <= first.seq:
            session.save_checkpoint(state=provider(), retention_class="automatic")
        _insist(_answer("end", end, _Facts(manager, None, session.id)))


def _insist(report: GateReport) -> None:
    if not report.ok:
        unmet = "; ".join(f"{item.name}: {item.evidence}" for item in report.unmet)
        raise GateUnmet(f"the {report.gate} gate is closed: {unmet}")


def _settings(gate: str, project_dir: Any) -> GateSettings | None:
    if gate not in GATES:
        raise InvalidFilter(f"there are the gates {' and '.join(GATES)}, not {gate!r}")
    found = load_config(project_dir).gates.get(gate)
    for name in () if found is None else (*found.must, *found.should):
        if name not in CHECKS:
            raise InvalidConfiguration(
                f"gates.{gate} asks for {name!r}; known are {', '.join(CHECKS)}"
            )
    return found


def _levels(settings: GateSettings) -> list[tuple[str, str]]:
    return [(name, MUST) for name in settings.must] + [(name, SHOULD) for name in settings.should]


def _without_store(settings: GateSettings, error: StoreError) -> tuple[Item, ...]:
    return tuple(Item(name, level, False, str(error)) for name, level in _levels(settings))


def _answer(gate: str, settings: GateSettings, facts: _Facts) -> GateReport:
    items = []
    for name, level in _levels(settings):
        met, evidence = (
            CHECKS[name](facts) if facts.session or name in _ALONE else (False, facts.why)
        )
        items.append(Item(name, level, met, evidence))
    session_id = None if facts.session is None else facts.session.id
    return GateReport(gate, tuple(items), configured=True, session_id=session_id)


def _begin(report: GateReport, manager: SessionManager, session_id: str) -> GateReport:
    try:
        with manager.hold_session(session_id) as session:
            saved = _save_start(session)
    except CheckpointBusy as error:
        # Whoever holds it saves it: there is nothing to add.
        item = Item("free", SHOULD, False, str(error))
        return GateReport(report.gate, (*report.items, item), True, session_id)
    return GateReport(report.gate, report.items, True, session_id, saved)


def _save_start(session: Session) -> Checkpoint:
    try:
        state = session.state
    except CheckpointNotFound:
        state = {}
    saved = session.save_checkpoint(
        state=state, retention_class="session", description="start of work"
    )
    session.log("info", _STARTED, data={_GATE: "start", "seq": saved.seq})
    return saved


# What can be asked for ------------------------------------------------------------------------


class _Facts:
    """What is known about a session, found out when it is asked for and once."""

    def __init__(
        self,
        manager: SessionManager,
        open_manager: Callable[[], SessionManager] | None,
        session_id: str | None,
    ) -> None:
        self.manager = manager
        self.open_manager = open_manager
        self.why = "there is no session"
        self.session = self._find(session_id)

    def _find(self, session_id: str | None) -> Session | None:
        if session_id is not None:
            return self.manager.get_session(session_id)
        try:
            return self.manager.get_session(self.manager.latest_unfinished_session().id)
        except NothingToResume as error:
            self.why = str(error)
        newest = self.manager.list_sessions(limit=1)
        return self.manager.get_session(newest[0].id) if newest else None

    @property
    def known(self) -> Session:
        if self.session is None:
            raise NothingToResume(self.why)
        return self.session

    @cached_property
    def preflight(self) -> Preflight:
        return self.known.preflight()

    @cached_property
    def latest(self) -> Checkpoint | None:
        found = self.known.list_checkpoints(limit=1)
        return found[0] if found else None

    @cached_property
    def handoff_name(self) -> str:
        project_dir = self.manager.project_dir
        path = handoff_path(project_dir, load_config(project_dir).handoff)
        return path.relative_to(project_dir.resolve()).as_posix()

    def reasons(self, *codes: str) -> list[str]:
        found = self.preflight.reasons
        return [f"{one.code}: {one.message}" for one in found if not codes or one.code in codes]


Check = Callable[[_Facts], tuple[bool, str]]


def _database(facts: _Facts) -> tuple[bool, str]:
    return True, f"{facts.manager.store.url} opens"


def _session(facts: _Facts) -> tuple[bool, str]:
    if facts.session is None:
        return False, facts.why
    return facts.session.status != "completed", f"{facts.session.id} is {facts.session.status}"


def _safe(facts: _Facts) -> tuple[bool, str]:
    unsafe = [
        one
        for one in facts.preflight.reasons
        # The agent at whose gate this is may be the one that holds the session.
        if one.severity == "unsafe" and not (one.subject or "").startswith(AGENT)
    ]
    said = "; ".join(f"{one.code}: {one.message}" for one in unsafe)
    return not unsafe, said or f"the preflight says {facts.preflight.verdict}"


def _clean(facts: _Facts) -> tuple[bool, str]:
    return facts.preflight.verdict == "clean", "; ".join(facts.reasons()) or "nothing differs"


def _checkpoint(facts: _Facts) -> tuple[bool, str]:
    """A checkpoint later than the start gate's, with the files as they are."""
    if facts.latest is None:
        return False, "nothing was saved; run: holdfast save"
    noted = facts.manager.store.list_logs(facts.known.id, key=_GATE, newest=True)
    since = next((line.data for line in noted if _is_start(line)), None)
    if since is not None and facts.latest.seq <= since["seq"]:
        return False, "nothing was saved since the start gate; run: holdfast save"
    changed = [
        f"{one.code}: {one.message}"
        for one in facts.preflight.reasons
        # The handoff names the final checkpoint, so it is always written after it.
        if one.code in _FILES and one.paths != (facts.handoff_name,)
    ]
    if changed:
        return False, f"files changed after {facts.latest.name}: {'; '.join(changed)}"
    return True, f"{facts.latest.name} ({facts.latest.id})"


def _is_start(line: LogRecord) -> bool:
    """Tell the start gate's own line from others of the log: programs use the same keys for theirs."""
    data = line.data or {}
    return line.message == _STARTED and data.get(_GATE) == "start" and type(data.get("seq")) is int


def _saves(facts: _Facts) -> tuple[bool, str]:
    opener = facts.open_manager
    if opener is None:
        return True, "the program itself saves"
    failed = [
        one.message
        for one in read_status(opener, project_dir=facts.manager.project_dir).failures
        if not one.resolved and one.session_id == facts.known.id
    ]
    return not failed, "; ".join(failed) or "no save has failed"


def _effects(facts: _Facts) -> tuple[bool, str]:
    unknown = facts.reasons("effect_unknown")
    return not unknown, "; ".join(unknown) or "every step has an end"


def _tasks(facts: _Facts) -> tuple[bool, str]:
    left = facts.known.brief().tasks_with("in_progress", "blocked", "failed")
    titles = ", ".join(str(task.get("title") or task["id"]) for task in left)
    return not left, f"not finished: {titles}" if left else "no task is half done"


def _decisions(facts: _Facts) -> tuple[bool, str]:
    noted = facts.manager.store.list_logs(facts.known.id, key=DECISION)
    found = [line for line in noted if is_decision(line)]
    return bool(found), f"{len(found)} recorded" if found else "none; run: holdfast decide"


def _committed(facts: _Facts) -> tuple[bool, str]:
    git = facts.manager.workspace.git_state()
    if git is None:
        return True, "there is no git repository"
    return not git.uncommitted, "files are uncommitted" if git.uncommitted else "all is committed"


def _handoff(facts: _Facts) -> tuple[bool, str]:
    project_dir = facts.manager.project_dir
    try:
        found = read_handoff(handoff_path(project_dir, load_config(project_dir).handoff))
    except HandoffRefused as error:
        return False, str(error)
    # Behind an autosave the latest checkpoint of all is none that a handoff would ever list.
    latest = next(iter(listed_checkpoints(facts.manager, facts.known, most=1)), None)
    if latest is None:
        return False, "nothing was saved that a handoff lists; run: holdfast save"
    met = latest.id in {row["id"] for row in found.checkpoints}
    return met, f"{found.path.name} lists the latest checkpoint" if met else (
        f"{found.path.name} does not list the latest checkpoint; run: holdfast handoff --write"
    )


def _session_log(facts: _Facts) -> tuple[bool, str]:
    path = last_session_log(facts.manager, facts.known.id)
    return path is not None, path or "none; run: holdfast handoff --session-log"


CHECKS: Final[Mapping[str, Check]] = {
    "database": _database,
    "session": _session,
    "safe": _safe,
    "clean": _clean,
    "checkpoint": _checkpoint,
    "saves": _saves,
    "effects": _effects,
    "tasks": _tasks,
    "decisions": _decisions,
    "committed": _committed,
    "handoff": _handoff,
    "session_log": _session_log,
}
# These have an answer without a session too.
_ALONE: Final = ("database", "session")
