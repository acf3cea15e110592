"""Runs the shop from where it stands: ``worker URL LEDGER DIE``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.frameworks.agent_framework.shop import go_on

if __name__ == "__main__":
    asyncio.run(go_on(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
