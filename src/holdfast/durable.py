"""Files that outlast a power cut: one is safe only when its directory, too, knows it for good."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_AT_ONCE: Final = 8


def sync_file(path: Path) -> None:
    """Put the content of a file on the disk, whoever wrote it. Raises `OSError` where that fails."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Put the names in a directory on the disk.

    Raises `OSError` where that fails. Windows does not open directories; there the file system keeps
    the order of names itself.
    """
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_directories(paths: Iterable[Path]) -> None:
    """Put the names in several directories on the disk, in no order.

    Waiting is all there is to do, and a drive takes what is asked at the same time in one go: together
    they take hardly longer than one. Raises as `sync_directory` does, when all have been tried.
    """
    waiting = list(paths)
    failures: list[OSError] = []

    def work() -> None:
        while True:
            try:
                path = waiting.pop()
            except IndexError:
                return
            try:
                sync_directory(path)
            except OSError as error:
                failures.append(error)

    helpers = [threading.Thread(target=work) for _ in range(min(_AT_ONCE, len(waiting)) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
