"""Create, list and delete checkpoints: ``python scripts/checkpoint_manager.py --help``."""

from holdfast import CheckpointManager
from holdfast.cli.scripts import checkpoints, script

__all__ = ["CheckpointManager"]

if __name__ == "__main__":
    script(checkpoints)
