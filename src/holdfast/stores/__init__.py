"""Stores: where checkpoints are kept. `open_store` finds the right one for a URL.

- ``memory:`` is this process only, gone with it
- ``path/to/file.db`` or ``sqlite:///file.db?tenant=…&compress=off`` is one file, embedded, durable
- ``postgresql://…?schema=…&tenant=…`` is one server, many workers

With a key, given or in the environment, each of them is sealed: see `holdfast.stores.sealed`.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote

from holdfast.config import key_in_environment, project_of_database, url_text
from holdfast.errors import InvalidUrl, StoreUnavailable
from holdfast.stores.base import Store

if TYPE_CHECKING:
    from holdfast.crypto import GivenKeys, Keys
    from holdfast.stores.sealed_rows import Seal

__all__ = ["Store", "file_of", "keys_at_hand", "open_store", "sealing"]

_NO_FILE: Final = ("memory:", "postgresql:", "postgres:")


def open_store(
    url: str | Path,
    *,
    tenant: str | None = None,
    create: bool = True,
    busy_timeout: float | None = None,
    keys: GivenKeys = None,
    as_it_is: bool = False,
) -> Store:
    """Open the store that ``url`` names, creating its tables when it is new.

    ``tenant`` overrides the URL's own. With ``create=False`` nothing is created or migrated: a
    file that is not there raises `StoreUnavailable`, missing tables `SchemaMissing`. ``busy_timeout`` is
    how many seconds a write to a file waits for others. Drivers are imported only for the backend
    in use. Raises `InvalidUrl` for what names no store.

    ``keys`` seal the store; by default those of the environment, and with False there are none. A
    new store is sealed with them. For one that is not theirs `KeyRequired`, `WrongKey` or
    `StoreNotSealed` is raised; with ``as_it_is`` a store of plain text is opened all the same, to be
    read.
    """
    ring = keys_at_hand(keys)
    if ring is None:
        return _open(url, tenant, create, busy_timeout, sealed=False)
    from holdfast.stores.sealed import SealedStore

    inner = _open(url, tenant, create, busy_timeout, sealed=True)
    try:
        if as_it_is and inner.read_seal() is None:
            return inner
        return SealedStore(inner, ring)
    except BaseException:
        inner.close()
        raise


def sealing(tenant: str, keys: GivenKeys = None) -> Seal | None:
    """Return what seals the rows of a tenant with the keys that `open_store` would use, if any."""
    ring = keys_at_hand(keys)
    if ring is None:
        return None
    from holdfast.stores.sealed_rows import Seal

    return Seal(ring, tenant)


def keys_at_hand(given: GivenKeys = None) -> Keys | None:
    """Return the keys that `open_store` would use: those given, or of the environment, if any."""
    if given is False:
        return None
    if given is None:
        found = key_in_environment()
        if found is None:
            return None
        given = found
    from holdfast.crypto import keys_from

    return keys_from(given)


def _open(
    url: str | Path,
    tenant: str | None,
    create: bool,
    busy_timeout: float | None,
    *,
    sealed: bool,
) -> Store:
    text = url_text(url)
    scheme, separator, _ = text.partition(":")
    if text == "memory:":
        from holdfast.stores.memory import MemoryStore

        return MemoryStore(tenant="default" if tenant is None else tenant)
    if scheme in ("postgresql", "postgres") and separator:
        from holdfast.sql import schema_in
        from holdfast.stores.postgres import PostgresStore

        schema = schema_in(text)
        text, options = _without_our_options(text)
        return PostgresStore(
            text,
            schema=schema,
            tenant=options.get("tenant", ["default"])[-1] if tenant is None else tenant,
            ensure_schema=create,
            sealed=sealed,
        )
    file, options = file_in(url)
    # Whose log is there, the store itself tells what to do.
    if not create and not os.path.exists(file) and not has_content(f"{file}-wal"):
        if project_of_database(file) is not None:
            message = f"no Holdfast database here ({file}); run: holdfast init"
        else:
            message = f"there is no file {file}; to make it a database: holdfast init --url {shlex.quote(str(file))}"
        raise StoreUnavailable(message, absent=True)
    from holdfast.stores.sqlite import BUSY_TIMEOUT, SqliteStore

    if tenant is None:
        tenant = options.get("tenant", ["default"])[-1]
    compress = options.get("compress", ["on"])[-1]
    if compress not in ("on", "off"):
        raise InvalidUrl(f"compress must be on or off: {url}")
    return SqliteStore(
        file,
        tenant=tenant,
        ensure_schema=create,
        # What is sealed cannot be compressed any more: it was before.
        compress=compress == "on" and not sealed,
        sealed=sealed,
        busy_timeout=BUSY_TIMEOUT if busy_timeout is None else busy_timeout,
    )


def has_content(path: str | Path) -> bool:
    """Tell whether a file is there and not empty."""
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def file_of(url: str | Path) -> Path | None:
    """Return the file that a store is in; None for a store that is no file."""
    return None if url_text(url).startswith(_NO_FILE) else file_in(url)[0]


def file_in(url: str | Path) -> tuple[Path, dict[str, list[str]]]:
    """Return the file that a URL or path names, and the URL's options."""
    text = url_text(url)
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
