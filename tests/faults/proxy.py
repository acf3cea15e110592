"""A network that loses answers: a proxy in front of PostgreSQL that swallows some of them.

A client that sent a put and got no answer cannot know whether it was stored. Here it was: the answer has
come from the server, and then both connections are cut instead of handing it on.
"""

from __future__ import annotations

import random
import select
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

# What a put sends, with or without its SQL: the manifest of a state.
_PUT = b'{"v":1,"seqs":'


class LossyProxy:
    """Listens on a port of this machine and hands on to a server's unix socket."""

    def __init__(self, server: str, *, share: float, seed: int) -> None:
        self._server = server
        self._share = share
        self._coin = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closed = False
        self.swallowed = 0
        self._thread = self._start(self._accept)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        while not self._closed:
            if not select.select([self._listener], [], [], 0.1)[0]:
                continue
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._start(self._relay, client, server)

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        """Hand on in both directions until one side ends or an answer is swallowed."""
        asked = False
        with client, server:
            while not self._closed:
                for source in select.select([client, server], [], [], 0.1)[0]:
                    try:
                        data = source.recv(1 << 20)
                    except OSError:
                        return
                    if not data:
                        return
                    if source is client:
                        asked = asked or _PUT in data
                    elif asked:
                        asked = False
                        if self._coin.random() < self._share:
                            self.swallowed += 1
                            return
                    try:
                        (server if source is client else client).sendall(data)
                    except OSError:
                        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        self._thread.join()
        self._listener.close()
