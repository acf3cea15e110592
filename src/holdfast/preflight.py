"""Is what a state remembers still true? So far: its references to memory outside of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

RefStatus: TypeAlias = Literal["present", "missing", "changed", "unverified"]


@dataclass(frozen=True, slots=True)
class MemoryRefReport:
    """What became of one memory reference. ``unverified``: not a file, so nobody looked."""

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
        status: RefStatus
        if path is None:
            status = "unverified"
        elif not (project_dir / path).is_file():
            status = "missing"
        elif ref.get("hash") and not _same_hash(project_dir / path, ref["hash"]):
            status = "changed"
        else:
            status = "present"
        reports.append(MemoryRefReport(ref["key"], location, status))
    return reports


def _local_path(ref: Mapping[str, Any]) -> str | None:
    if ref.get("path"):
        return str(ref["path"])
    try:
        parts = urlsplit(ref["uri"])
    except ValueError:
        return None
    return unquote(parts.path) if parts.scheme in ("", "file") else None


def _same_hash(path: Path, expected: str) -> bool:
    actual = hash_file(path)
    return expected in (actual, actual.removeprefix("sha256:"))
