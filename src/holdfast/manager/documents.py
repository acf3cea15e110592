"""A save point as its readers know it: one small JSON document, and an object with the same fields.

The document's shape is fixed by ``checkpoint.schema.json`` beside this module. It says what is known and
null where nothing is: numbers that nobody reported are not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias, TypedDict

from holdfast.errors import IntegrityError
from holdfast.sessions import Checkpoint
from holdfast.sessions.files import GIT
from holdfast.sessions.rollback_request import is_of_rollback
from holdfast.state.documented import documented
from holdfast.workspace.base import NEVER_CAPTURED

CheckpointKind: TypeAlias = Literal["automatic", "manual", "feature", "session"]

KINDS: Final = ("automatic", "manual", "feature", "session")
FOLDER: Final = ".claude/checkpoints"
AGENT_TYPE: Final = "checkpoint-manager"
FEATURE_COPY: Final = "feature_list.json"
TITLE: Final = "title"
_DIRTY: Final = ("staged", "unstaged", "untracked", "deleted", "unmerged")


class GitDocument(TypedDict):
    """Where the repository stood; the paths of everything that was not committed."""

    commit_hash: str | None
    branch: str | None
    dirty_files: list[str]


class FeatureDocument(TypedDict):
    """What the feature list said. ``snapshot_path`` is null when there was none."""

    current: str | None
    completed: list[str]
    snapshot_path: str | None


class ContextDocument(TypedDict):
    """The agent's own session, as far as somebody reported it."""

    session_number: int | None
    token_usage: int | None


@dataclass(frozen=True, slots=True)
class SavePoint:
    """What `CheckpointManager` hands out: the document's fields, and a little beside them.

    ``type`` is its retention class and ``checkpoint_id`` the id that all other faces use. ``files``
    tells whether the project's files were captured with it; ``problem`` tells why they were not, or
    what is damaged.
    """

    id: str
    name: str
    description: str | None
    timestamp: str
    git_state: GitDocument
    feature_state: FeatureDocument
    context: ContextDocument
    type: str
    checkpoint_id: str
    files: bool
    problem: str | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "timestamp": self.timestamp,
            "git_state": dict(self.git_state),
            "feature_state": dict(self.feature_state),
            "context": dict(self.context),
        }


def read_schema() -> dict[str, Any]:
    """Return the JSON schema of the document."""
    text = (files("holdfast.manager") / "checkpoint.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def save_point(checkpoint: Checkpoint) -> SavePoint:
    """Return a stored checkpoint as a save point. One that is damaged says so and knows less."""
    state: Mapping[str, Any] = {}
    context: Mapping[str, Any] = {}
    problem = None
    try:
        content = checkpoint.content.read()
        state, context = content.state, content.context
        if checkpoint.workspace_commit is None:
            problem = context.get("workspace", {}).get("problem")
    except IntegrityError as error:
        problem = str(error)
    label = checkpoint.label or checkpoint.id
    # What a rollback stores for itself has no folder.
    own = is_of_rollback(checkpoint.record)
    features = state.get("features") if isinstance(state.get("features"), Mapping) else None
    numbers = documented(state).get("context", {})
    return SavePoint(
        id=label,
        name=(checkpoint.metadata or {}).get(TITLE) or label,
        description=checkpoint.description,
        timestamp=checkpoint.created_at.isoformat(),
        git_state=git_document(
            context.get(GIT) or {"branch": checkpoint.git_branch, "commit": checkpoint.git_commit}
        ),
        feature_state=_feature_state(features or {}, None if own else folder_name(checkpoint)),
        context={
            "session_number": numbers.get("session_number"),
            "token_usage": numbers.get("token_usage"),
        },
        type=checkpoint.retention_class,
        checkpoint_id=checkpoint.id,
        files=checkpoint.workspace_commit is not None,
        problem=problem,
    )


def folder_name(checkpoint: Checkpoint) -> str:
    """Return the name of a save point's folder: its id, if it is of the project's usual session.

    Ids are unique in a session only, and all sessions of a project share one place.
    """
    label = checkpoint.label or checkpoint.id
    session = checkpoint.session_id
    if session.partition(":")[0] == AGENT_TYPE:
        return label
    digest = int.from_bytes(sha256(session.encode()).digest()[:5])
    return f"{label}-{digest:013d}"


def git_document(git: Mapping[str, Any]) -> GitDocument:
    """Return what a checkpoint keeps of the repository in the document's words."""
    dirty = {path for kind in _DIRTY for path in git.get(kind, ())}
    dirty |= {path for pair in git.get("renamed", ()) for path in pair}
    return {
        "commit_hash": git.get("commit"),
        "branch": git.get("branch"),
        "dirty_files": sorted(path for path in dirty if not _is_ours(path)),
    }


def _is_ours(path: str) -> bool:
    return any(f"/{name}/" in f"/{path}" for name in NEVER_CAPTURED)


def _feature_state(features: Mapping[str, Any], folder: str | None) -> FeatureDocument:
    found = features.get("content") is not None and folder is not None
    return {
        "current": features.get("current"),
        "completed": list(features.get("completed", ())),
        "snapshot_path": f"{FOLDER}/{folder}/{FEATURE_COPY}" if found else None,
    }
