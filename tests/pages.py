"""The programs in the documentation, and where each of them is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Pages that need a package which only the environment of `make test-frameworks` has, each with the
# directory of tests/frameworks whose tests run it.
ELSEWHERE = {
    ROOT / "docs" / "how-to" / "agent-framework.md": "agent_framework",
    ROOT / "docs" / "how-to" / "google-adk.md": "google_adk",
    ROOT / "docs" / "how-to" / "pydantic-ai.md": "pydantic_ai",
    ROOT / "docs" / "how-to" / "claude-agent-sdk.md": "claude_agent_sdk",
    ROOT / "docs" / "how-to" / "openai-agents.md": "openai_agents",
}


def blocks_of(page: Path) -> list[str]:
    """Return the Python of a page, block by block."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def run_page(page: Path) -> None:
    """Run a page as one program, as a reader would type it: later blocks use earlier ones."""
    text = "\n".join(blocks_of(page))
    # Without the future statements of this module: a reader's annotations are what they say.
    program = compile(text, str(page.relative_to(ROOT)), "exec", dont_inherit=True)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(program, scope)  # noqa: S102 - the project's own documentation
