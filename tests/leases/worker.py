"""A worker in a process of its own: reads orders, a JSON list a line, and answers with JSON.

Run as ``python -m tests.leases.worker URL [SECONDS [OWNER]]``. At the end of its orders it ends as any
program does, without closing anything.
"""

import json
import sys
from datetime import timedelta
from typing import Any

from holdfast import SessionManager
from holdfast.errors import HoldfastError
from holdfast.sessions import Session


class Worker:
    """What it can be told to do. Each method answers with what can be said in JSON."""

    def __init__(self, url: str, seconds: str = "30", owner: str | None = None) -> None:
        ttl = timedelta(seconds=float(seconds))
        self.manager = SessionManager.open(url, workspace=False, lease_ttl=ttl, owner=owner)
        self.sessions: dict[str, Session] = {}

    def create(self, session_id: str) -> str:
        self.sessions[session_id] = self.manager.create_session("worker", session_id=session_id)
        return session_id

    def resume(self, session_id: str) -> Any:
        self.sessions[session_id] = self.manager.resume_session(session_id)
        return self.sessions[session_id].state

    def contest(self, *session_ids: str) -> list[str]:
        """Try to resume each; answer with those that were won."""
        won = []
        for session_id in session_ids:
            try:
                self.sessions[session_id] = self.manager.resume_session(session_id)
            except HoldfastError as error:
                if error.code != "checkpoint_busy":
                    raise
            else:
                won.append(session_id)
        return won

    def save(self, session_id: str, name: str) -> str:
        return self.sessions[session_id].save_checkpoint(name, state={"by": name}).name

    def complete(self, session_id: str) -> str:
        self.sessions[session_id].complete()
        return "completed"

    def step(self, session_id: str, name: str) -> Any:
        return self.sessions[session_id].step(name, lambda: f"{name} happened")

    def recover(self) -> list[str]:
        return [record.id for record in self.manager.recover()]


def main() -> None:
    worker = Worker(*sys.argv[1:])
    say("ready")
    for line in sys.stdin:
        order, *words = json.loads(line)
        try:
            say(getattr(worker, order)(*words))
        except HoldfastError as error:
            say({"error": error.code, "message": str(error)})


def say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
