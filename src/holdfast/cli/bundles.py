"""What a bundle holds, for programs and for people."""

from __future__ import annotations

from typing import Any

from holdfast.bundle import BundleReport
from holdfast.cli.output import plural, size


def bundle_document(report: BundleReport) -> dict[str, Any]:
    """Return a bundle as commands answer with it, its checkpoints newest first."""
    return {
        "path": str(report.path),
        "session_id": report.session_id,
        "bytes": report.bytes,
        "checkpoints": [
            {"id": id_, "state": state, "tree": report.trees.get(id_)}
            for id_, state in reversed(report.states.items())
        ],
        "chunks": report.chunks,
        "logs": report.logs,
        "effects": report.effects,
        "file_bytes": report.file_bytes,
        "sealed": report.sealed,
    }


def contents(report: BundleReport) -> str:
    """Return what a bundle holds as one line."""
    parts = [size(report.bytes), plural(len(report.states), "checkpoint")]
    if report.trees:
        parts.append(f"files of {size(report.file_bytes)}")
    parts += [plural(report.logs, "log line"), plural(report.effects, "effect")]
    if report.sealed:
        parts.append("sealed")
    return ", ".join(parts)
