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
# What Holdfast itself keeps in ``.agents``. Other programs keep things there that people commit.
_IGNORED = """\
# What Holdfast keeps here for itself; everything else is yours.
/.gitignore*
/*.db*
/workspace.git*/
/hooks/
/briefs/
/redaction.key*
/holdfast-errors.log*
"""
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


def keep_out_of_git(home: str) -> None:
    """Have git ignore what Holdfast keeps in an ``.agents``, by a file in there; no other directory gets one.

    For whoever is about to put something there: conversations are not to be committed by ``git add``. A
    ``.gitignore`` that is there is somebody's, and stays as it is. Where nothing can be written there is
    nothing to keep out either.
    """
    path = os.path.join(home, ".gitignore")
    if os.path.basename(home) != AGENTS_DIR or os.path.lexists(path) or os.path.islink(home):
        return
    # Whole or not at all: half of it would be taken for somebody's.
    aside = f"{path}.{os.getpid()}"
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            file.write(_IGNORED.encode())
        os.replace(aside, path)
    except OSError:
        return


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
