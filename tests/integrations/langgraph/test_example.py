"""The example runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "langgraph_agent.py"


def test_the_example_stops_for_approval_and_pays_once() -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stdout.splitlines() == [
        "asks: {'refund': {'order': 7, 'euros': 40}}",
        "says: Order 7 is refunded.",
        "paid: [40]",
        "checkpoints: 5",
    ]
