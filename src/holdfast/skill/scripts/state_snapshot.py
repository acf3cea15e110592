"""What feature list and progress file say now: ``python scripts/state_snapshot.py``."""

from holdfast.cli.scripts import agent_state, script
from holdfast.manager import capture_state

__all__ = ["capture_state"]

if __name__ == "__main__":
    script(agent_state)
