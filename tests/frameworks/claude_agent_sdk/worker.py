"""A writer that appends ten entries when it is told to: ``worker URL NAME``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from holdfast.integrations.claude_agent_sdk import HoldfastSessionStore


async def work(url: str, name: str) -> None:
    sessions = HoldfastSessionStore(url)
    key: Any = {"project_key": "p", "session_id": "s"}
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(10):
        entry: Any = {"type": "user", "uuid": f"{name}{number}"}
        await sessions.append(key, [entry])
    await sessions.close()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
