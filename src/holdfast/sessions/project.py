"""A project's own corner: the directory ``.agents`` with the database, kept private and out of git."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from holdfast.config import AGENTS_DIR, DATABASE, load_config
from holdfast.errors import SchemaMissing, StoreUnavailable
from holdfast.stores import open_store
from holdfast.stores.unwritable import writing
from holdfast.trust import remember_store

StoreFound: TypeAlias = Literal["created", "prepared", "present"]
IgnoreFound: TypeAlias = Literal["added", "present", "not_added"]

_IGNORING: Final = {f"{start}{AGENTS_DIR}{end}" for start in ("", "/") for end in ("", "/")}


@dataclass(frozen=True, slots=True)
class ProjectReport:
    """What `prepare_project` found and did.

    ``database`` is ``prepared`` when its tables were created or brought up to date. ``url`` has no
    secrets in it.
    """

    project_dir: Path
    url: str
    database: StoreFound
    gitignore: IgnoreFound


def prepare_project(
    project_dir: str | Path | None = None,
    *,
    url: str | Path | None = None,
    tenant: str | None = None,
    gitignore: bool | None = None,
    trust: bool = False,
) -> ProjectReport:
    """Create the store of a project where it is missing; doing it again changes nothing.

    ``.agents`` is made for its owner only. ``gitignore`` adds it to the project's ``.gitignore``;
    by default that is done in the top directory of a git repository. ``trust`` confirms, for this user
    and whatever project names it, the store of the project's settings; without it one that lies outside
    of the project raises `StoreNotTrusted`.
    """
    config = load_config(project_dir, url=url, tenant=tenant)
    if trust and not config.trusted:
        remember_store(config.stated_url)
        config = load_config(project_dir, url=url, tenant=tenant)
    home = config.project_dir / AGENTS_DIR
    embedded = config.url == str(home / DATABASE)
    database: StoreFound = "present"
    try:
        store = open_store(config.url, create=False)
    except (SchemaMissing, StoreUnavailable) as error:
        store = open_store(config.url)
        database = "prepared" if isinstance(error, SchemaMissing) else "created"
    with store:
        shown = store.url
    if gitignore is None:
        gitignore = embedded and (config.project_dir / ".git").exists()
    ignored = _ignore(config.project_dir / ".gitignore", add=gitignore)
    return ProjectReport(config.project_dir, shown, database, ignored)


def _ignore(path: Path, *, add: bool) -> IgnoreFound:
    # git itself does not read a .gitignore that is a link.
    text = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    if not _IGNORING.isdisjoint(line.strip() for line in text.decode(errors="replace").split("\n")):
        return "present"
    if not add or path.is_symlink():
        return "not_added"
    end = b"\r\n" if b"\r\n" in text else b"\n"
    start = end if text and not text.endswith(b"\n") else b""
    with writing(path), path.open("ab") as file:
        file.write(start + f"{AGENTS_DIR}/".encode() + end)
    return "added"
