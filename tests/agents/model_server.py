"""A model that follows a script, on loopback: real coding agents run against it without a network.

A script is a list of actions: run this command, write that file, say something. The server speaks four
dialects (Anthropic Messages, OpenAI Responses, Gemini, OpenAI chat completions), each just far enough that
its agent takes the answer for a model's. Which action is next is read from the request itself: it is the
number of tool results the conversation holds. So a repeated request gets the same answer, and requests
beside the conversation, such as one for a title, disturb nothing.

    with ModelServer([Shell("echo hello > hello.txt"), Say("done")]) as model:
        ...                    # start an agent with model.url as its base URL
        model.requests         # what the agent has sent, oldest first

`Hold` never answers: it is where an agent can be killed while it waits. `model.holding` is set by then.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from tests.agents.dialects import Action, Dialect, Hold, Say, dialect_of

MOST_REQUESTS: Final = 60
LARGEST_REQUEST: Final = 16 << 20
LONGEST_HOLD: Final = 300.0

OVER: Final = Say("The script is over.")


@dataclass(frozen=True, slots=True)
class Request:
    """What an agent has sent: the path, and the parsed body."""

    path: str
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """Everything in it as one text, to search in."""
        return json.dumps(self.body, ensure_ascii=False)


class ModelServer:
    """Answers requests by a script, and remembers them."""

    def __init__(self, script: Sequence[Action]) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.holding = threading.Event()
        self._released = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def play(self, script: Sequence[Action]) -> None:
        """Follow another script from now on, for an agent that is started again."""
        self.script = list(script)
        self.requests = []
        self.holding.clear()

    def next_action(self, request: Request, dialect: Dialect) -> Action:
        """Return what the model does in answer to this request, after holding where the script holds."""
        self.requests.append(request)
        if len(self.requests) > MOST_REQUESTS:
            return OVER
        if not dialect.offers_tools(request.body):
            return Say("Scripted")
        done = dialect.results(request.body)
        action = self.script[done] if done < len(self.script) else OVER
        if isinstance(action, Hold):
            self.holding.set()
            self._released.wait(LONGEST_HOLD)
        return action


def _handler_for(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            # Nothing is offered but the answers of the script; above all, this is no package registry.
            self.send_error(404)

        def do_HEAD(self) -> None:
            self._send("text/plain", b"")

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if length > LARGEST_REQUEST:
                self.send_error(413)
                return
            try:
                body = json.loads(self.rfile.read(length) or b"{}")
            except ValueError:
                self.send_error(400)
                return
            path = self.path.partition("?")[0]
            dialect = dialect_of(path)
            if dialect is None or not isinstance(body, dict):
                self.send_error(404)
                return
            action = server.next_action(Request(path, body), dialect)
            if isinstance(action, Hold):
                self.close_connection = True
                return
            answer = dialect.answer(action, body, path)
            if isinstance(answer, Mapping):
                self._send("application/json", json.dumps(answer).encode())
            else:
                self._send("text/event-stream", "".join(answer).encode())

        def _send(self, kind: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Say nothing: the tests look at the requests."""

    return Handler
