"""State: how a dict becomes a manifest and chunks, and how it comes back exactly."""

from holdfast.state.encoder import EncodedState, StateEncoder
from holdfast.state.reader import DecodedState, decode_state

__all__ = ["DecodedState", "EncodedState", "StateEncoder", "decode_state"]
