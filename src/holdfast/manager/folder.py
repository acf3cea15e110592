"""``.claude/checkpoints``: what readers without Holdfast see of the save points.

    .claude/checkpoints/
    ├── .gitignore                      everything here stays out of the user's git
    └── checkpoint-20260102-030405/
        ├── metadata.json               the document
        ├── feature_list.json           the copy, if there was one
        ├── claude-progress.txt         likewise
        └── .holdfast                   whose it is

The names of save points of another session than the usual one end in a number made from that session's id, and
where progress files share a name their copies are named by the whole path.

It is a picture of what is stored, made anew from there where it is missing or out of date. Nothing is read
back from it, and no folder without our mark is ever removed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.errors import IntegrityError
from holdfast.ids import new_id
from holdfast.manager.documents import FEATURE_COPY, FOLDER, save_point
from holdfast.regular_files import read_small_file
from holdfast.sessions import Checkpoint

METADATA: Final = "metadata.json"
_MARK: Final = ".holdfast"
_MAKING: Final = ".making-"


class Folder:
    """The folder of one project, as far as it shows the save points of one session."""

    def __init__(self, root: Path, session_id: str) -> None:
        self.path = root / FOLDER
        self._root = root
        self._session_id = session_id

    def show(self, wanted: Mapping[str, Checkpoint], log: Callable[[str], object]) -> None:
        """Make the folder show exactly these save points, by name. What fails is logged.

        A folder that cannot be written is no reason to lose a checkpoint that is stored.
        """
        try:
            if not self._is_inside():
                log(f"{FOLDER} leads out of the project, so nothing is written there")
                return
            shown = self._shown()
            for name in shown.keys() - wanted.keys():
                shutil.rmtree(self.path / name)
            for name, checkpoint in wanted.items():
                if shown.get(name) != checkpoint.id and not os.path.lexists(self.path / name):
                    self._write(name, checkpoint)
        except OSError as error:
            log(f"{FOLDER} cannot be written: {error}")

    def _is_inside(self) -> bool:
        return self.path.resolve().is_relative_to(self._root.resolve())

    def _shown(self) -> dict[str, str]:
        """Return the folders of this session with their checkpoints' ids; leftovers are removed."""
        found: dict[str, str] = {}
        if not self.path.is_dir():
            return found
        for entry in sorted(os.scandir(self.path), key=lambda one: one.name):
            if not entry.is_dir(follow_symlinks=False):
                continue
            if entry.name.startswith(_MAKING):
                shutil.rmtree(entry.path)
                continue
            with suppress(OSError, ValueError, AttributeError, RecursionError):
                mark = json.loads(read_small_file(Path(entry.path, _MARK)))
                if mark.get("session") == self._session_id:
                    found[entry.name] = str(mark.get("checkpoint"))
        return found

    def _write(self, folder: str, checkpoint: Checkpoint) -> None:
        """Write one save point's files, whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        keep_out_of_git(self.path)
        making = self.path / f"{_MAKING}{new_id()}"
        making.mkdir()
        document = json.dumps(save_point(checkpoint).to_document(), indent=2, ensure_ascii=False)
        (making / METADATA).write_text(f"{document}\n", encoding="utf-8")
        mark = {"session": self._session_id, "checkpoint": checkpoint.id}
        (making / _MARK).write_text(f"{json.dumps(mark)}\n", encoding="utf-8")
        for name, content in _copies(checkpoint).items():
            (making / name).write_bytes(content)
        making.rename(self.path / folder)


def keep_out_of_git(folder: Path) -> None:
    """Have git ignore a directory of ours, the rule itself included."""
    rule = folder / ".gitignore"
    if not os.path.lexists(rule):
        rule.write_text("*\n", encoding="utf-8")


def _copies(checkpoint: Checkpoint) -> dict[str, bytes]:
    try:
        state = checkpoint.state
    except IntegrityError:
        # The document says that it is damaged; there is nothing to copy.
        return {}
    progress: Mapping[str, bytes] = state.get("progress_files") or {}
    copies = {Path(path).name: content for path, content in progress.items()}
    if len(copies) < len(progress):
        # Not in directories: whoever wrote the state could let a path lead anywhere.
        copies = {Path(path.replace("/", "__")).name: data for path, data in progress.items()}
    features = state.get("features")
    if isinstance(features, Mapping) and features.get("content") is not None:
        copies[FEATURE_COPY] = features["content"]
    return {name: data for name, data in copies.items() if name not in (METADATA, _MARK)}
