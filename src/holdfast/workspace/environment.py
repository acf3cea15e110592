"""The environment that every git of ours runs in, made without importing anything large.

Git reads settings from many places, and a repository may name programs in them. So nothing is inherited
(``GIT_*`` is dropped), no user's or system's settings are read, and what remains dangerous is switched off by
settings that are handed over in the environment, where they win over any file.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# What holds for every call, whatever repository it is about.
_SAFE = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.excludesFile": os.devnull,
    "core.attributesFile": os.devnull,
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "core.pager": "cat",
    # Without this the commands sync next to nothing. An index can be made anew.
    "core.fsync": "committed,reference",
    "core.quotePath": "false",
    "diff.external": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}
# For the private store: handed over with every command, what stands in its own file counts for nothing.
STORE_SETTINGS = {
    "core.bare": "false",
    "core.autocrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    # Names that mean something on other systems are plain names here. What a restore must not write, it
    # refuses by itself, and a capture lists as skipped.
    "core.protectNTFS": "false",
    "core.protectHFS": "false",
    "core.logAllRefUpdates": "false",
    "core.fsyncMethod": "batch",
    "core.compression": "1",
    "pack.compression": "6",
    "pack.threads": "2",
    "index.version": "4",
    # What other files say about objects: which belong to a commit, where they are. This store makes no such
    # files, and with one from elsewhere git would not see what is missing.
    "core.commitGraph": "false",
    "core.multiPackIndex": "false",
    "pack.useBitmaps": "false",
}
# That file, for either kind of names that objects have. Any other could name programs, and no list of ours has
# the names of all filters that somebody might think of.
STORE_CONFIG = b"[core]\n\trepositoryformatversion = 0\n"
STORE_CONFIG_SHA256 = (
    b"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"
)
# What is asked about files that the private index knows. It knows no submodule, and where somebody has put one
# into it, git must not start another git there, by settings of the submodule's own.
DIRTY = ("diff-files", "-z", "--name-only", "--ignore-submodules=dirty")


def variables_for(
    git_dir: str, *, common_dir: str | None = None, settings: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables for a repository, with settings of ours on top of what is safe."""
    return {
        "GIT_DIR": git_dir,
        # Without it, a file named `commondir` could send git to read other settings.
        "GIT_COMMON_DIR": common_dir or git_dir,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        # A partial clone would fetch what it lacks, with a program of the repository's choice.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_FLUSH": "0",
        "LC_ALL": "C",
        **_as_variables({**_SAFE, **(settings or {})}),
    }


def inherited() -> dict[str, str]:
    """Return what a git of ours inherits of this process's environment."""
    return {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}


def _as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings as git takes them from the environment, where a name may contain anything."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
