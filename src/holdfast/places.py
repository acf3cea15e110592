"""Where a project begins, found with nothing but `os`: agents' hooks ask on every tool call."""

from __future__ import annotations

import os

AGENTS_DIR = ".agents"
DATABASE = "sessions.db"
CONFIG_FILE = "holdfast.toml"

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
