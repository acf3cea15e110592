"""Roll back, undo, or run a command that is rolled back: ``python scripts/rollback_handler.py --help``."""

from holdfast import CheckpointManager
from holdfast.cli.scripts import rollbacks, script
from holdfast.manager import Guard, Rollback

__all__ = ["CheckpointManager", "Guard", "Rollback"]

if __name__ == "__main__":
    script(rollbacks)
