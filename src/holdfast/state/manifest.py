"""The two directions of the format, under the name of what they write and read."""

from holdfast.state.encoder import EncodedState, StateEncoder
from holdfast.state.reader import DecodedState, decode_state

__all__ = ["DecodedState", "EncodedState", "StateEncoder", "decode_state"]
