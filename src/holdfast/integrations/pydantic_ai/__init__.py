"""Pydantic AI: conversations that are kept, and runs that survive their process without a server."""

from holdfast.errors import MissingExtra

try:
    import pydantic_ai as _  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("pydantic-ai", "An adapter for Pydantic AI") from error

from holdfast.integrations.pydantic_ai.conversations import HoldfastConversationStore
from holdfast.integrations.pydantic_ai.durability import HoldfastDurability, durable_run

__all__ = ["HoldfastConversationStore", "HoldfastDurability", "durable_run"]
