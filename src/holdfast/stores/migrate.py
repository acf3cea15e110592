"""Which migrations a database still needs: the part that every dialect shares, without a database.

A database remembers the version and checksum of each migration that was applied to it. One that
remembers a version unknown to this package was written by a newer Holdfast, and one that remembers
another checksum was built from other text: both are refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.errors import MigrationChanged, SchemaMissing, SchemaTooNew
from holdfast.sql import Dialect, Migration, schema_objects


def pending(
    available: Sequence[Migration], applied: Mapping[int, str], url: str
) -> list[Migration]:
    """Return what is still to be applied, in order.

    ``applied`` maps versions to checksums. Raises `SchemaTooNew` and `MigrationChanged`.
    """
    known = {migration.version: migration for migration in available}
    newer = sorted(version for version in applied if version not in known)
    if newer:
        raise SchemaTooNew(
            f"{url} has schema version {newer[-1]}; this Holdfast knows versions up to "
            f"{max(known, default=0)}. Nothing was changed. Update with: pip install -U holdfast"
        )
    for version, checksum in sorted(applied.items()):
        if known[version].checksum != checksum:
            raise MigrationChanged(
                f"migration {known[version].name} was applied to {url} with other text than this "
                f"Holdfast has. Nothing was changed. Use the version that created the database, or "
                f"start with a new one"
            )
    return [migration for migration in available if migration.version not in applied]


def require_current(available: Sequence[Migration], applied: Mapping[int, str], url: str) -> None:
    """Raise `SchemaMissing` unless everything was applied: for stores that may not migrate."""
    missing = pending(available, applied, url)
    if missing:
        raise SchemaMissing(
            f"{url} lacks {', '.join(migration.name for migration in missing)}. Nothing was "
            f"changed. Run holdfast init, or open it with ensure_schema=True",
            absent=not applied,
        )


def missing_objects(dialect: Dialect, there: Collection[tuple[Any, ...]]) -> list[str]:
    """Name what the schema is made of and the database has not, of which ``there`` has kinds and names."""
    found = set(there)
    missing = [made for made in schema_objects(dialect) if made not in found]
    # A table that is missing says so for all of its columns.
    return [
        f"{kind} {name}"
        for kind, name in missing
        if kind != "column" or ("table", name.partition(".")[0]) not in missing
    ]
