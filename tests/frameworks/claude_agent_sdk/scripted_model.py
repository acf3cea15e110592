"""A model on loopback that the real program talks to: it repeats what it was last asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class ScriptedModel:
    """What the model was sent, request by request, and where it listens."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[dict[str, Any]] = []

    def asked(self, request: int) -> list[str]:
        """Return what the people and the model have said in a request, without what surrounds it."""
        texts = []
        for message in self.requests[request]["messages"]:
            content = message["content"]
            blocks = [{"text": content}] if isinstance(content, str) else content
            texts += [block["text"] for block in blocks if "text" in block]
        return [text for text in texts if len(text) < 100 and not text.startswith("<")]


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    """Run a model until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

        def do_HEAD(self) -> None:
            self.answer(b"", "text/plain")

        def do_GET(self) -> None:
            self.answer(b"", "text/plain")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
            if "count_tokens" in self.path:
                self.answer(b'{"input_tokens": 1}', "application/json")
                return
            model.requests.append(request)
            reply = f"You said: {model.asked(-1)[-1]}"
            self.answer("".join(_events(request["model"], reply)).encode(), "text/event-stream")

        def answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model = ScriptedModel(server.server_port)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


def _events(model: str, text: str) -> Iterator[str]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
