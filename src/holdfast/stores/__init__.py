"""Stores: where checkpoints are kept. `open_store` finds the right one for a URL.

- ``memory:`` is this process only, gone with it
- ``path/to/file.db`` or ``sqlite:///file.db?tenant=…&compress=off`` is one file, embedded, durable
- ``postgresql://…?schema=…&tenant=…`` is one server, many workers
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, unquote

from holdfast.errors import InvalidUrl, StoreUnavailable
from holdfast.stores.base import Store

__all__ = ["Store", "open_store"]


def open_store(
    url: str | Path,
    *,
    tenant: str | None = None,
    create: bool = True,
    busy_timeout: float | None = None,
) -> Store:
    """Open the store that ``url`` names, creating its tables when it is new.

    ``tenant`` overrides the URL's own. With ``create=False`` nothing is created or migrated: a
    file that is not there raises `StoreUnavailable`, missing tables `SchemaMissing`. ``busy_timeout`` is
    how many seconds a write to a file waits for others. Drivers are imported only for the backend
    in use.
    """
    text = str(url)
    scheme, separator, _ = text.partition(":")
    if text == "memory:":
        from holdfast.stores.memory import MemoryStore

        return MemoryStore(tenant=tenant or "default")
    if scheme in ("postgresql", "postgres") and separator:
        from holdfast.stores.postgres import PostgresStore

        text, options = _without_our_options(text)
        return PostgresStore(
            text,
            schema=options.get("schema", ["holdfast"])[-1],
            tenant=tenant or options.get("tenant", ["default"])[-1],
            ensure_schema=create,
        )
    file, options = file_in(url)
    if not create and not os.path.exists(file):
        raise StoreUnavailable(f"no Holdfast database here ({file}); run: holdfast init")
    from holdfast.stores.sqlite import BUSY_TIMEOUT, SqliteStore

    tenant = tenant or options.get("tenant", ["default"])[-1]
    compress = options.get("compress", ["on"])[-1]
    if compress not in ("on", "off"):
        raise InvalidUrl(f"compress must be on or off: {url}")
    return SqliteStore(
        file,
        tenant=tenant,
        ensure_schema=create,
        compress=compress == "on",
        busy_timeout=BUSY_TIMEOUT if busy_timeout is None else busy_timeout,
    )


def file_in(url: str | Path) -> tuple[Path, dict[str, list[str]]]:
    """Return the file that a URL or path names, and the URL's options."""
    text = str(url)
    scheme, separator, rest = text.partition(":")
    options: dict[str, list[str]] = {}
    if scheme == "sqlite" and separator:
        if not rest.startswith("///"):
            raise InvalidUrl(f"write sqlite:///relative/path or sqlite:////absolute/path: {text}")
        path, _, query = rest[3:].partition("?")
        text, options = unquote(path), parse_qs(query)
        if unknown := options.keys() - {"tenant", "compress"}:
            raise InvalidUrl(f"unknown option {', '.join(sorted(unknown))} in {url}")
    elif text == ":memory:":
        raise InvalidUrl("a store in memory is called memory:")
    elif "://" in text or text.startswith("file:"):
        raise InvalidUrl(
            f"unknown kind of store {scheme!r}: use a path, sqlite:///…, postgresql://… or memory:"
        )
    if not text or "\0" in text:
        raise InvalidUrl(f"not a path: {text!r}")
    return Path(text).expanduser(), options


def _without_our_options(url: str) -> tuple[str, dict[str, list[str]]]:
    """Return a PostgreSQL URL without ``schema`` and ``tenant``, and all of its options."""
    before, mark, query = url.rpartition("?")
    if not mark:
        return url, {}
    kept = [part for part in query.split("&") if part.partition("=")[0] not in ("schema", "tenant")]
    return before + (mark + "&".join(kept) if any(kept) else ""), parse_qs(query)
