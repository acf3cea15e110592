"""State: how a dict becomes a manifest and chunks, and how it comes back exactly."""

from holdfast.state.encoder import EncodedState, StateEncoder
from holdfast.state.reader import (
    DecodedState,
    decode_state,
    decode_states,
    outline_state,
)
from holdfast.state.stored import StoredList
from holdfast.state.translated import TranslatedList

__all__ = [
    "DecodedState",
    "EncodedState",
    "StateEncoder",
    "StoredList",
    "TranslatedList",
    "decode_state",
    "decode_states",
    "outline_state",
]
