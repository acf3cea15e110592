"""LangGraph's checkpoints in Holdfast; needs the extra ``langgraph``.

    from holdfast.integrations.langgraph import HoldfastSaver

    with HoldfastSaver("agent.db") as saver:
        graph = builder.compile(checkpointer=saver)

Every step of every thread is kept, and a step costs what it added. What comes back is made of known
classes only.
"""

from __future__ import annotations

from holdfast.errors import MissingExtra

try:
    from holdfast.integrations.langgraph.importing import (
        ImportReport,
        RefusedThread,
        import_threads,
    )
    from holdfast.integrations.langgraph.saver import HoldfastSaver
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("langgraph", "langchain_core"):
        raise
    raise MissingExtra("langgraph", "HoldfastSaver") from error

__all__ = ["HoldfastSaver", "ImportReport", "RefusedThread", "import_threads"]
