"""Google ADK: sessions with their events and state in a Holdfast store."""

from holdfast.errors import MissingExtra

try:
    import google.adk as _  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("google-adk", "An adapter for Google ADK") from error

from holdfast.integrations.google_adk.service import HoldfastSessionService

__all__ = ["HoldfastSessionService"]
