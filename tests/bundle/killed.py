"""A program that imports or copies, and kills itself with SIGKILL just before its n-th step of some kind.

python -m tests.bundle.killed STEP NUMBER PROJECT URL import FILE
python -m tests.bundle.killed STEP NUMBER PROJECT URL restore FILE
python -m tests.bundle.killed STEP NUMBER PROJECT URL copy TARGET_URL
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from holdfast import SessionManager
from holdfast.bundle import moving
from holdfast.sessions.rollback import Rollbacks
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.workspace import packs
from holdfast.workspace.apply import Applier
from holdfast.workspace.incoming import Incoming
from holdfast.workspace.references import References

STEPS: dict[str, list[tuple[Any, str]]] = {
    "pack": [(packs, "_index")],
    "deliver": [(Incoming, "deliver")],
    "reference": [(References, "keep")],
    "shared pack": [(SqliteStore, "put_pack"), (PostgresStore, "put_pack")],
    "content": [(SqliteStore, "stage_chunks"), (PostgresStore, "stage_chunks")],
    "rows": [(SqliteStore, "add_session"), (PostgresStore, "add_session")],
    "within rows": [(SqliteStore, "_add_rest"), (PostgresStore, "_many")],
    "safety": [(Rollbacks, "_save_safety")],
    "files": [(Applier, "_write_one")],
    "landing": [(Rollbacks, "_land")],
    "comparing": [(moving, "payload_digest"), (moving, "decode_state")],
}


def kill_at(step: str, number: int) -> None:
    """Have this process end without a word at a step."""
    left = number

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    for owner, name in STEPS[step]:
        setattr(owner, name, counted(getattr(owner, name)))


def main() -> None:
    step, number, project, url, what, argument = sys.argv[1:]
    with SessionManager.open(url, project_dir=project) as manager:
        kill_at(step, int(number))
        if what in ("import", "restore"):
            print(manager.import_bundle(argument, restore=what == "restore").outcome)
        else:
            print([one.outcome for one in manager.copy_to(argument)])


if __name__ == "__main__":
    main()
