"""What git says of the project now: ``python scripts/git_snapshot.py``."""

from holdfast.cli.scripts import git_state, script
from holdfast.manager import capture_git_state

__all__ = ["capture_git_state"]

if __name__ == "__main__":
    script(git_state)
