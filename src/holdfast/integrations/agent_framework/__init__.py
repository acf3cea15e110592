"""Microsoft Agent Framework: checkpoints of workflows in a Holdfast store."""

from holdfast.errors import MissingExtra

try:
    import agent_framework as _  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("agent-framework", "An adapter for Microsoft Agent Framework") from error

from holdfast.integrations.agent_framework.storage import HoldfastCheckpointStorage

__all__ = ["HoldfastCheckpointStorage"]
