"""What the parts of a sealed store stand on: the store inside, and what seals its rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.crypto.keys import Keys
from holdfast.state.codec import dump_document
from holdfast.stores.base import Store
from holdfast.stores.memory_tables import has_values
from holdfast.stores.sealed_rows import Seal


class SealedAccess(Store):
    """A store around ``inner`` whose rows are sealed with ``keys``."""

    keys: Keys

    def __init__(self, inner: Store, keys: Keys) -> None:
        self.inner = inner
        self.keys = keys
        self.tenant = inner.tenant
        self.url = inner.url
        self.rows = Seal(keys, inner.tenant)
        self.row_digest = inner.row_digest = self.rows.names.digest_row
        self._agree()

    def _agree(self) -> None:
        """Find out that these are the keys of the store, or make them so if it is empty."""
        self.rows.check(
            self.inner.read_seal() or self.inner.write_seal(self.rows.proof()), self.url
        )

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """Whether other machines read the same store."""
        return self.inner.shared

    @property
    def passing(self) -> bool:  # type: ignore[override]
        """Whether all of it is gone with the store inside."""
        return self.inner.passing

    @property
    def path(self) -> Path | None:
        """The file that the store is in, where it is one."""
        return getattr(self.inner, "path", None)

    @property
    def identity(self) -> tuple[Any, ...]:
        return self.inner.identity


def has_metadata(metadata: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    """Tell whether an opened document has these values at its top."""
    return metadata is not None and has_values(dump_document(metadata, "metadata"), wanted)
