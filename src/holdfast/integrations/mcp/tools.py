"""The tools, each a translation of one call into one method of a session."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from holdfast.integrations.mcp import answers
from holdfast.integrations.mcp.answers import (
    BriefAnswer,
    CheckpointDiff,
    CheckpointList,
    DecisionAnswer,
    PausedSession,
    RollbackAnswer,
    SavedCheckpoint,
    ShownCheckpoint,
)
from holdfast.integrations.mcp.place import Place
from holdfast.model import BRIEF_TOKENS
from holdfast.sessions import Session
from holdfast.sessions.confirming import Confirmations


class Tools:
    """The tools of one server. What they say of themselves is what the model reads."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._confirmations = Confirmations()

    def save_checkpoint(
        self,
        name: str | None = None,
        description: str | None = None,
        state: dict[str, Any] | None = None,
        session: str | None = None,
    ) -> SavedCheckpoint:
        """Save the project's files, and a state, as a checkpoint that can be gone back to.

        Without a state the session's latest one is kept. A session is started where there is none.
        """
        with self._place.writing(session, create=True) as (_, held):
            saved = held.save_checkpoint(
                name,
                state=held.present_state() if state is None else state,
                description=description,
            )
            return answers.saved_checkpoint(saved)

    def list_checkpoints(self, limit: int = 20, session: str | None = None) -> CheckpointList:
        """List the checkpoints of the session, newest first, up to 200.

        One that is `quarantined` failed verification and cannot be used.
        """
        with self._place.reading(session) as (manager, found):
            listed = found.list_checkpoints(limit=min(limit, answers.MOST))
            return answers.checkpoint_list(found.id, listed, manager.list_quarantined(found.id))

    def show_checkpoint(
        self,
        checkpoint: str | None = None,
        keys: list[str] | None = None,
        session: str | None = None,
    ) -> ShownCheckpoint:
        """Show a checkpoint: its state (only some of its top-level keys, if named) and its files.

        It is given by name, id or label; the latest one by default. Nothing is changed.
        """
        with self._place.reading(session) as (manager, found):
            one = _checkpoint(found, checkpoint)
            files = manager.list_files(one) if one.workspace_commit is not None else []
            return answers.shown_checkpoint(one, keys, files)

    def diff_checkpoints(
        self,
        before: str | None = None,
        after: str | None = None,
        paths: list[str] | None = None,
        session: str | None = None,
    ) -> CheckpointDiff:
        """Tell what differs between two checkpoints, or between one and the project as it is now.

        Without `before` the latest checkpoint is meant, without `after` the present. `paths` are files or
        directories of the project.
        """
        with self._place.reading(session) as (manager, found):
            old = _checkpoint(found, before)
            new = None if after is None else found.get_checkpoint(after)
            difference = manager.diff(old, new, paths=self._place.inside(manager, paths) or ())
            return answers.checkpoint_diff(difference, old.name, "now" if new is None else new.name)

    def rollback(
        self,
        checkpoint: str | None = None,
        paths: list[str] | None = None,
        confirmation: str | None = None,
        session: str | None = None,
    ) -> RollbackAnswer:
        """Put files and state back to a checkpoint, in two steps.

        Called without `confirmation` it changes nothing: it shows what would change and answers with a
        confirmation for exactly that. Called again with it and the same arguments, it does it. With `paths`
        only those files come back, and the state stays. `undo` takes it back.
        """
        with self._place.reading(session) as (manager, found):
            chosen = self._place.inside(manager, paths)
            look = partial(found.rollback, checkpoint, paths=chosen, dry_run=True)
            if confirmation is None:
                report, token = self._confirmations.preview(found, look, paths=chosen)
                return answers.rollback_answer(report, confirmation=token, session=found.record)
            shown = self._confirmations.confirmed(found, look, confirmation, paths=chosen)
        target = shown.checkpoint.name
        with self._place.writing(found.id, back_to=target) as (_, held):
            done = held.rollback(target, paths=chosen)
            return answers.rollback_answer(done, session=held.record)

    def undo(self, session: str | None = None) -> RollbackAnswer:
        """Take back the last rollback: files and state are again what they were before it."""
        with self._place.writing(session) as (_, held):
            return answers.rollback_answer(held.undo(), session=held.record)

    def resume_brief(
        self, max_tokens: int = BRIEF_TOKENS, session: str | None = None
    ) -> BriefAnswer:
        """Tell what to know before going on: task, progress, decisions, and what is no longer true."""
        with self._place.reading(session) as (_, found):
            return answers.brief_answer(found.brief(max_tokens=max_tokens))

    def record_decision(
        self,
        text: str,
        rationale: str | None = None,
        alternatives: list[str] | None = None,
        session: str | None = None,
    ) -> DecisionAnswer:
        """Record a decision for those who come next. A rollback does not take it back."""
        with self._place.reading(session) as (_, found):
            line = found.decision(text, rationale=rationale, alternatives=alternatives or ())
            return answers.decision_answer(line, text)

    def pause_session(self, reason: str | None = None, session: str | None = None) -> PausedSession:
        """Save the session and pause it, saying why; it is resumed from there."""
        with self._place.writing(session) as (_, held):
            saved = held.pause(reason)
            info = answers.checkpoint_info(saved)
            return PausedSession(held.id, held.record.status, reason, info)


NAMES: Final = tuple(name for name in vars(Tools) if not name.startswith("_"))


def _checkpoint(session: Session, reference: str | None) -> Any:
    return session.latest_checkpoint() if reference is None else session.get_checkpoint(reference)
