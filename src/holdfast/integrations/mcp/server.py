"""The tools as a server of the official SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Final, ParamSpec, TypeVar

from holdfast import __version__
from holdfast.errors import HoldfastError, MissingExtra
from holdfast.integrations.mcp.place import Place
from holdfast.integrations.mcp.tools import NAMES, Tools

try:
    from anyio import Lock
    from anyio.to_thread import run_sync
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ModuleNotFoundError as error:
    raise MissingExtra("mcp", "The MCP server") from error

P = ParamSpec("P")
R = TypeVar("R")

_INSTRUCTIONS: Final = (
    "Save points for your work on this project: its files, and a state of your choice. Save before anything "
    "risky; roll back when it went wrong. `rollback` shows first what it would do and gives a confirmation "
    "to do it with; `undo` takes a rollback back. Call `resume_brief` when you begin, to learn where the last "
    "session stopped, and `record_decision` for whatever those after you have to know."
)


def build_server(place: Place) -> MCPServer:
    """Return a server whose tools work in a place."""
    server = MCPServer("holdfast", version=__version__, instructions=_INSTRUCTIONS)
    tools, turn = Tools(place), Lock()
    for name in NAMES:
        server.tool(name)(_told(getattr(tools, name), turn))
    return server


def _told(call: Callable[P, R], turn: Lock) -> Callable[P, Awaitable[R]]:
    """Have errors of ours reach the model with their code and message.

    An agent may make several calls at once, which would run in threads: of two first saves each would start a
    session, and what was shown to be confirmed would be done twice. So they take turns. One that waits for its
    turn waits in no thread, where nobody could cancel it; one that has begun is carried out.
    """

    @wraps(call)
    async def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            async with turn:
                return await run_sync(partial(call, *args, **kwargs))
        except HoldfastError as error:
            raise ToolError(f"{error.code}: {error}") from error

    return told
