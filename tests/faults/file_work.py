"""The work on files during which the power is cut, and what must be true after it: a program of its own.

    python -m tests.faults.file_work do PROJECT SEED STEPS
    python -m tests.faults.file_work check PROJECT LEDGER

What was acknowledged goes to standard output, a ledger a line, so that a trace of the program has it between the
calls that came before and after.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast import SessionManager
from holdfast.errors import NothingToUndo

# Digests of files by path; of a link, where it leads.
Files: TypeAlias = dict[str, str]
# Number and files by checkpoint; what the last rollback put where; a checkpoint of the bundle, with its files.
Ledger: TypeAlias = dict[str, Any]

ACKNOWLEDGED: Final = b"acknowledged "
_BUNDLE: Final = "session.holdfast"
_OWN: Final = frozenset({".agents", ".git"})


def files_of(project: Path) -> Files:
    """Return what a checkpoint of the project has to bring back."""
    found = {}
    for path in sorted(project.rglob("*")):
        name = path.relative_to(project)
        if name.parts[0] in _OWN:
            continue
        if path.is_symlink():
            found[str(name)] = os.readlink(path)
        elif path.is_file():
            found[str(name)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def git(project: Path, *arguments: str) -> None:
    # The user's own git is not ours to vouch for, so here it syncs whatever it writes.
    subprocess.run(["git", "-c", "core.fsync=all", *arguments], cwd=project, check=True)


class FileWork:
    """An agent that changes files, saves, goes back and cleans up, in random order."""

    def __init__(self, project: Path, coin: random.Random) -> None:
        self._project = project
        self._coin = coin
        self._manager = SessionManager.open(project_dir=project)
        self._session = self._manager.create_session("worker")
        self._ledger: Ledger = {"saved": {}, "restored": {}, "bundle": None}
        self._number = 0

    def step(self) -> None:
        """Do one thing, and say so once it has been acknowledged."""
        self._number += 1
        kinds = (
            self._save,
            self._save,
            self._save_told,
            self._save_staged,
            self._roll_back,
            self._undo,
        )
        rare = (self._clean_up, self._export)
        self._coin.choice(kinds if self._coin.random() < 0.85 else rare)()
        self._acknowledge()

    def _acknowledge(self) -> None:
        os.write(1, ACKNOWLEDGED + json.dumps(self._ledger).encode() + b"\n")
        self._ledger["restored"] = {}

    def _change(self) -> Path:
        for _ in range(self._coin.randrange(1, 5)):
            path = (
                self._project / self._coin.choice(("", "a", "a/b")) / f"f{self._coin.randrange(8)}"
            )
            kind = self._coin.randrange(8)
            if kind == 0:
                path.unlink(missing_ok=True)
            elif kind == 1 and not path.is_symlink():
                path.unlink(missing_ok=True)
                path.symlink_to(f"{self._number}")
            elif not path.is_symlink():
                path.write_bytes(self._coin.randbytes(self._coin.choice((10, 5_000, 200_000))))
        told = self._project / "a" / "told"
        told.write_text(str(self._number))
        return told

    def _saved(self) -> None:
        name = f"s{self._number}"
        self._session.save_checkpoint(name, state={"number": self._number})
        self._ledger["saved"][name] = [self._number, files_of(self._project)]

    def _save(self) -> None:
        self._change()
        self._saved()

    def _save_told(self) -> None:
        told = self._project / "a" / "told"
        told.write_text(f"told {self._number}")
        self._session.wrote(told)
        self._saved()

    def _save_staged(self) -> None:
        self._change()
        git(self._project, "add", "-A")
        if self._coin.random() < 0.5:
            git(self._project, "commit", "-q", "--allow-empty", "-m", "more")
        self._change()
        self._saved()

    def _roll_back(self) -> None:
        if not self._ledger["saved"]:
            return
        name = self._coin.choice(sorted(self._ledger["saved"]))
        before = files_of(self._project)
        self._session.rollback(name, move_head=self._coin.random() < 0.5)
        self._restored(before)

    def _undo(self) -> None:
        before = files_of(self._project)
        try:
            self._session.undo()
        except NothingToUndo:
            return
        self._restored(before)

    def _restored(self, before: Files) -> None:
        now = files_of(self._project)
        changed = (path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
        self._ledger["restored"] = {path: now.get(path) for path in changed}

    def _clean_up(self) -> None:
        if len(self._ledger["saved"]) > 2:
            name = self._coin.choice(sorted(self._ledger["saved"]))
            # From here on it may be there or not.
            del self._ledger["saved"][name]
            self._acknowledge()
            self._session.delete_checkpoint(name, force=True)
        self._manager.gc()

    def _export(self) -> None:
        if self._ledger["saved"]:
            # The one that is replaced is not promised any more.
            self._ledger["bundle"] = None
            self._acknowledge()
            bundle = self._project.with_name(_BUNDLE)
            self._manager.export_session(self._session.id, bundle, overwrite=True)
            name = self._coin.choice(sorted(self._ledger["saved"]))
            self._ledger["bundle"] = [name, self._ledger["saved"][name][1]]

    def close(self) -> None:
        self._manager.close()


def check(project: Path, ledger: Ledger) -> list[str]:
    """Use what a power cut left; return what of the ledger is not true."""
    wrong = []
    now = files_of(project)
    wrong += [
        f"not put back: {path}"
        for path, said in ledger["restored"].items()
        if now.get(path) != said
    ]
    told = subprocess.run(
        ["git", "fsck", "--full"], cwd=project, capture_output=True, text=True, check=False
    )
    if told.returncode:
        wrong.append(f"the user's repository: {told.stderr}")
    with SessionManager.open(project_dir=project) as manager:
        if not manager.list_sessions():
            assert not ledger["saved"]
            manager.create_session("worker")
        session = manager.resume_session(manager.list_sessions()[0].id)
        report = manager.verify(deep=True)
        if not report.ok:
            wrong.append(f"verify: {report}")
        for name, (number, files) in ledger["saved"].items():
            session.rollback(name)
            if session.state != {"number": number}:
                wrong.append(f"{name}: the state is {session.state}")
            if (found := files_of(project)) != files:
                wrong.append(f"{name}: {sorted(set(found.items()) ^ set(files.items()))}")
        session.save_checkpoint("afterwards")
        manager.gc()
        if ledger["bundle"] is not None:
            name, files = ledger["bundle"]
            elsewhere = project.with_name("elsewhere")
            elsewhere.mkdir()
            with SessionManager.open(project_dir=elsewhere) as other:
                other.import_bundle(project.with_name(_BUNDLE))
                other.resume_session(session.id).rollback(name)
            if files_of(elsewhere) != files:
                wrong.append("the bundle brings other files")
    return wrong


def main() -> None:
    what, directory, *rest = sys.argv[1:]
    project = Path(directory)
    if what == "do":
        work = FileWork(project, random.Random(int(rest[0])))
        for _ in range(int(rest[1])):
            work.step()
        work.close()
    else:
        wrong = check(project, json.loads(Path(rest[0]).read_text()))
        print("\n".join(wrong))
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
