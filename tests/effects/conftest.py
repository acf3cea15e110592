"""Sessions on every backend, through the async twin too."""

from tests.sessions.conftest import backend, manager, reopen, url

__all__ = ["backend", "manager", "reopen", "url"]
