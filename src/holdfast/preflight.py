"""Is what a checkpoint remembers still true? Compared before anybody builds on it.

An agent that resumes believes its checkpoint: this branch, these files, those tools. Meanwhile people
commit, switch branches and delete files. Each difference is a *reason* with a stable code. Reasons that
only mean "look again" make the verdict ``drifted``; those after which going on could do harm, or cannot
work at all, make it ``unsafe``. What was not compared is said too, so that ``clean`` is never a guess.

Nothing here decides what to do about it, and nothing here changes anything.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from holdfast.errors import (
    InvalidFilter,
    MigrationChanged,
    SchemaMissing,
    SchemaTooNew,
    StoreError,
)
from holdfast.workspace.base import Change, GitState, Skipped, readable

RefStatus: TypeAlias = Literal["present", "missing", "changed", "unverified"]
Severity: TypeAlias = Literal["drifted", "unsafe"]
Verdict: TypeAlias = Literal["clean", "drifted", "unsafe"]

# Codes are stable: programs compare them, and docs/reference/preflight.md explains each.
REASONS: Final[Mapping[str, Severity]] = {
    "head_moved": "drifted",
    "branch_switched": "drifted",
    "head_detached": "drifted",
    "repository_missing": "unsafe",
    "repository_appeared": "drifted",
    "git_unchecked": "drifted",
    "uncommitted_changes": "drifted",
    "uncommitted_gone": "drifted",
    "operation_in_progress": "unsafe",
    "operation_ended": "drifted",
    "file_changed": "drifted",
    "file_deleted": "drifted",
    "file_added": "drifted",
    "files_unchecked": "drifted",
    "snapshot_missing": "unsafe",
    "snapshot_damaged": "unsafe",
    "memory_missing": "drifted",
    "memory_changed": "drifted",
    "open_file_missing": "drifted",
    "tool_missing": "unsafe",
    "tool_changed": "drifted",
    "placeholder_unfilled": "drifted",
    "effect_unknown": "unsafe",
    "checkpoint_unreadable": "unsafe",
    "checkpoint_quarantined": "unsafe",
    "session_held": "unsafe",
    "session_completed": "unsafe",
    "schema_newer": "unsafe",
    "schema_older": "unsafe",
    "schema_changed": "unsafe",
    "store_unavailable": "unsafe",
}

_NAMED: Final = 100
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is no longer as the checkpoint says.

    ``subject`` is what it is about: a branch, a file, a tool. ``paths`` are the first of ``count``.
    """

    code: str
    message: str
    subject: str | None = None
    paths: tuple[str, ...] = ()
    count: int | None = None

    @property
    def severity(self) -> Severity:
        """Whether to look again, or not to go on."""
        return REASONS[self.code]

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "subject": self.subject,
            "paths": list(self.paths),
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class Preflight:
    """How a checkpoint compares with what is there now.

    ``unchecked`` maps what was not compared (``files``, ``skipped_files``, ``git``, ``tools`` …) to why.
    """

    reasons: tuple[Reason, ...]
    checkpoint: str | None = None
    checkpoint_id: str | None = None
    unchecked: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """``clean``, ``drifted`` or ``unsafe``: the worst of the reasons."""
        found = {reason.severity for reason in self.reasons}
        return "unsafe" if "unsafe" in found else "drifted" if found else "clean"

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the reasons, in order."""
        return tuple(reason.code for reason in self.reasons)

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "verdict": self.verdict,
            "checkpoint": self.checkpoint,
            "checkpoint_id": self.checkpoint_id,
            "reasons": [reason.to_document() for reason in self.reasons],
            "unchecked": dict(self.unchecked),
        }


# The repository -------------------------------------------------------------------------------


def compare_heads(then: Mapping[str, Any] | None, now: GitState | None) -> Iterator[Reason]:
    """Compare where HEAD was with where it is; ``then`` is what `Checkpoint.git` holds."""
    if then is None and now is None:
        return
    if now is None:
        yield Reason("repository_missing", "there is no git repository here any more")
        return
    if then is None:
        yield Reason("repository_appeared", "there was no git repository here, now there is one")
        return
    was, commit = then.get("branch"), then.get("commit")
    if now.detached and not then.get("detached"):
        yield Reason(
            "head_detached",
            f"HEAD is detached at {_short(now.commit)}; it was on branch {was}",
            subject=was,
        )
    elif now.branch != was:
        before = f"branch {was}" if was else f"a detached HEAD at {_short(commit)}"
        yield Reason(
            "branch_switched",
            f"the branch is {now.branch}; it was {before}",
            subject=now.branch,
        )
    if now.commit != commit:
        yield Reason(
            "head_moved",
            f"HEAD is at {_short(now.commit)}; it was at {_short(commit)}",
            subject=now.commit,
        )
    operation, earlier = now.operation, then.get("operation")
    if operation is not None and operation != earlier:
        yield Reason("operation_in_progress", f"a {operation} is in progress", subject=operation)
    elif operation is None and earlier is not None:
        yield Reason("operation_ended", f"the {earlier} has ended", subject=earlier)


def compare_uncommitted(then: Mapping[str, Any], now: GitState) -> Iterator[Reason]:
    """Compare what was not committed with what is not."""
    before, after = _uncommitted(then), _paths_of(now)
    was = bool(then.get("uncommitted"))
    if was and not now.uncommitted:
        yield Reason("uncommitted_gone", "what was uncommitted is committed or gone")
    # A list that is not whole says nothing about what is not in it.
    whole = bool(before) and not any(key.endswith("_count") for key in then)
    if now.uncommitted and (not was or whole):
        new = sorted(after - before)
        if new:
            yield _of_paths("uncommitted_changes", "uncommitted changes have appeared", new)


def compare_files(changes: Iterable[Change]) -> Iterator[Reason]:
    """Say which files differ from the checkpoint's."""
    kinds = {
        "modified": ("file_changed", "files changed"),
        "deleted": ("file_deleted", "files were deleted"),
        "added": ("file_added", "files were added"),
    }
    found: dict[str, list[str]] = {}
    for change in changes:
        found.setdefault(change.kind, []).append(readable(change.path))
    for kind, (code, what) in kinds.items():
        if kind in found:
            yield _of_paths(code, what, found[kind])


def describe_skipped(then: Iterable[Skipped], now: Iterable[Skipped]) -> str | None:
    """Say which files are not in the checkpoint's snapshot or not in one of now, None when all are."""
    reasons = {one.path: one.reason for one in (*now, *then)}
    if not reasons:
        return None
    named = [f"{readable(path)} ({reason})" for path, reason in sorted(reasons.items())]
    return f"left out of a snapshot: {_some(named)}"


def _of_paths(code: str, what: str, paths: Sequence[str]) -> Reason:
    message = f"{what}: {_some(paths)}"
    return Reason(code, message, paths=tuple(paths[:_NAMED]), count=len(paths))


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}"


def _uncommitted(document: Mapping[str, Any]) -> set[str]:
    lists = ("staged", "unstaged", "untracked", "unmerged")
    return {path for name in lists for path in document.get(name) or ()}


def _paths_of(git: GitState) -> set[str]:
    paths = (*git.staged, *git.unstaged, *git.untracked, *git.unmerged)
    return {readable(path) for path in paths}


def _short(commit: str | None) -> str:
    return commit[:10] if commit else "no commit"


# What the state names -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryRefReport:
    """What became of one memory reference.

    ``unverified``: there is nothing known to compare with. It names no file, or has a hash of another
    kind than `hash_file` makes.
    """

    key: str
    location: str
    status: RefStatus


def hash_file(path: Path) -> str:
    """Return a file's digest as memory references carry it."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def check_memory_refs(
    refs: Iterable[Mapping[str, Any]], project_dir: Path
) -> list[MemoryRefReport]:
    """Compare memory references with the files they name; relative paths are the project's."""
    reports = []
    for ref in refs:
        location = ref.get("path") or ref["uri"]
        path = _local_path(ref)
        status: RefStatus = "unverified"
        if path is not None:
            status = _status_of(project_dir / path, ref.get("hash"))
        reports.append(MemoryRefReport(ref["key"], location, status))
    return reports


def _status_of(path: Path, expected: str | None) -> RefStatus:
    # os.path: a path that no system call takes is a missing one.
    if not os.path.exists(path):
        return "missing"
    if not os.path.isfile(path):
        return "unverified"
    if not expected:
        return "present"
    digest = _sha256_in(expected)
    if digest is None:
        return "unverified"
    return "present" if _has_digest(path, digest) else "changed"


def memory_reasons(reports: Iterable[MemoryRefReport]) -> Iterator[Reason]:
    """Say which memory references no longer hold."""
    for one in reports:
        if one.status in ("missing", "changed"):
            what = "is missing" if one.status == "missing" else "has changed"
            yield Reason(
                f"memory_{one.status}", f"memory {one.key} ({one.location}) {what}", subject=one.key
            )


def _local_path(ref: Mapping[str, Any]) -> str | None:
    if ref.get("path"):
        return str(ref["path"])
    try:
        parts = urlsplit(ref["uri"])
    except ValueError:
        return None
    return unquote(parts.path) if parts.scheme in ("", "file") else None


def _sha256_in(expected: str) -> str | None:
    """Return the digest that a hash states, None for a hash of another kind."""
    algorithm, colon, digest = expected.lower().rpartition(":")
    if algorithm == "sha256" or (not colon and re.fullmatch(r"[0-9a-f]{64}", digest)):
        return digest
    return None


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return hash_file(path) == f"sha256:{digest}"
    except OSError:
        # What cannot be read cannot be what it was.
        return False


def missing_files(open_files: Iterable[Mapping[str, Any]], project_dir: Path) -> set[str]:
    """Return the paths among open files where there is no file any more."""
    paths = (one["path"] for one in open_files)
    # os.path.isfile: a path that no system call takes is a missing one.
    return {path for path in paths if not os.path.isfile(project_dir / path)}


def open_file_reasons(missing: Iterable[str]) -> Iterator[Reason]:
    """Say which open files are gone."""
    for path in sorted(missing):
        yield Reason("open_file_missing", f"the open file {path} is missing", subject=path)


def tools_in(state: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the tools that a state relies on, with their versions where they have any.

    They are ``execution_context["tools"]``: names, dicts with ``name`` and ``version``, or a dict of
    versions by name.
    """
    tools = state.get("execution_context", {}).get("tools")
    return _versions(tools) if isinstance(tools, Collection) else {}


def tool_reasons(
    needed: Mapping[str, str | None], available: Collection[Any] | Mapping[str, Any]
) -> Iterator[Reason]:
    """Say which tools the checkpoint relies on and that are not available, or are others now."""
    if not isinstance(available, Iterable):
        raise InvalidFilter(
            f"tools must be names, or versions by name, not {type(available).__name__}"
        )
    present = _versions(available)
    for name, version in needed.items():
        if name not in present:
            yield Reason("tool_missing", f"the tool {name} is not available", subject=name)
        elif version is not None and present[name] not in (None, version):
            yield Reason(
                "tool_changed",
                f"the tool {name} has version {present[name]}; it had {version}",
                subject=name,
            )


def secret_reasons(missing: Collection[Any]) -> Iterator[Reason]:
    """Say which secrets were taken out of the state and are not at hand now."""
    for placeholder in missing:
        yield Reason(
            "placeholder_unfilled",
            f"the secret behind {placeholder} is not in the environment",
            subject=str(placeholder),
        )


def _versions(tools: Collection[Any] | Mapping[str, Any]) -> dict[str, str | None]:
    if isinstance(tools, Mapping):
        return {str(name): _version(value) for name, value in tools.items()}
    found: dict[str, str | None] = {}
    for tool in tools if not isinstance(tools, (str, bytes)) else (tools,):
        if isinstance(tool, Mapping):
            if tool.get("name") is not None:
                found[str(tool["name"])] = _version(tool)
        else:
            found[str(tool)] = None
    return found


def _version(value: Any) -> str | None:
    version = value.get("version") if isinstance(value, Mapping) else value
    return None if version is None else str(version)


# The store ------------------------------------------------------------------------------------


def store_reason(error: StoreError) -> Reason:
    """Return why nothing could be compared at all."""
    codes = {
        SchemaTooNew: "schema_newer",
        SchemaMissing: "schema_older",
        MigrationChanged: "schema_changed",
    }
    return Reason(codes.get(type(error), "store_unavailable"), str(error), subject=error.code)
