"""Where a project begins, which store is meant, and where this user's own notes are, found with nothing but `os`.

Agents' hooks ask on every tool call. `holdfast.config` does the rest, and is the only other module that reads
the environment.
"""

from __future__ import annotations

import os

AGENTS_DIR = ".agents"
DATABASE = "sessions.db"
CONFIG_FILE = "holdfast.toml"

URL = "HOLDFAST_URL"
TENANT = "HOLDFAST_TENANT"

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_NAME_CHARACTERS = 100
_said: tuple[str | None, str | None] = (None, None)
_MARKS = (f"{AGENTS_DIR}/{DATABASE}", f"{AGENTS_DIR}/{CONFIG_FILE}", ".git")


def find_marked(start: str) -> str | None:
    """Return the nearest directory upwards of an absolute one that is a project's top.

    That is one with a Holdfast database or settings, or the top of a git repository.
    """
    here = start
    while True:
        # os.path.exists: what may not be looked at is not ours.
        if any(os.path.exists(os.path.join(here, mark)) for mark in _MARKS):
            return here
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


def file_name(text: str) -> str:
    """Return the name of a file for any text: the text itself where it is plain, else a digest of it.

    An id may come from elsewhere, and then be a path.
    """
    if 0 < len(text) <= _NAME_CHARACTERS and _PLAIN.issuperset(text):
        return text
    from hashlib import sha256

    return "x" + sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def stated_store() -> tuple[str | None, str | None]:
    """Return the URL and the tenant that the environment asks for; None where it says nothing.

    What `state_store` said comes first.
    """
    url, tenant = _said
    return url or os.environ.get(URL) or None, tenant or os.environ.get(TENANT) or None


def state_store(url: str | None, tenant: str | None) -> None:
    """Say for all of this process which store is meant; None leaves it to the environment."""
    global _said
    _said = (url, tenant)


def user_state_dir() -> str | None:
    """Return where Holdfast keeps what belongs to this user and to no project; None without a home."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    state = chosen if os.path.isabs(chosen) else os.path.expanduser("~/.local/state")
    return os.path.join(state, "holdfast") if os.path.isabs(state) else None
