"""A list of objects is stored as plain data, and only what is new in it is translated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.errors import StateNotSerializable
from holdfast.state import StateEncoder, TranslatedList
from holdfast.state import known as module
from tests.state.plain import IMPLEMENTATIONS
from tests.state.simulation import Chunks


@pytest.fixture(autouse=True, params=IMPLEMENTATIONS)
def _implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fits", "outline"):
        monkeypatch.setattr(module, name, getattr(IMPLEMENTATIONS[request.param], name))


@dataclass
class Message:
    content: Any


class Talk:
    """Saves of one growing list of messages, with what was translated for each."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.translated: list[tuple[int, int]] = []
        self.encoder = StateEncoder()
        self.chunks = Chunks()

    def add(self, count: int) -> None:
        self.messages += [Message(f"message {len(self.messages) + n} " * 40) for n in range(count)]

    def translate(self, values: list[Any], start: int) -> list[Any]:
        self.translated.append((start, len(values)))
        return [{"content": one.content} if isinstance(one, Message) else one for one in values]

    def save(self) -> Any:
        """Save it, and return what is read back."""
        given = TranslatedList(self.messages[:], self.translate, {Message: ("content",)})
        encoded = self.encoder.encode({"messages": given})
        self.chunks.put(encoded)
        self.encoder.accept(encoded)
        return self.chunks.load(encoded)["messages"]

    def plain(self) -> list[Any]:
        return [{"content": one.content} for one in self.messages]


def test_only_what_is_new_is_translated() -> None:
    talk = Talk()
    talk.add(150)
    assert talk.save() == talk.plain()
    talk.add(3)
    assert talk.save() == talk.plain()
    assert talk.save() == talk.plain()
    assert talk.translated == [(0, 150), (150, 3)]


def test_it_is_stored_as_the_plain_list_would_be() -> None:
    talk, plain = Talk(), StateEncoder()
    for _ in range(5):
        talk.add(7)
        stored = talk.save()
        encoded = plain.encode({"messages": talk.plain()})
        plain.accept(encoded)
        assert stored == talk.plain()
        assert set(encoded.chunks) <= set(talk.chunks.stored)


@pytest.mark.parametrize("at", [0, 64, 129])
def test_an_object_that_was_changed_in_place_is_noticed(at: int) -> None:
    talk = Talk()
    talk.add(130)
    talk.save()
    talk.messages[at].content = "changed"
    talk.add(1)
    assert talk.save() == talk.plain()
    assert talk.translated[-1] == (0, 131)


def test_a_change_while_it_is_translated_is_noticed_by_the_next_save() -> None:
    talk = Talk()
    talk.add(10)
    talk.save()
    talk.add(10)
    translate = talk.translate

    def meddle(values: list[Any], start: int) -> list[Any]:
        # As another thread might, before and after its object is read.
        translated = translate(values, start)
        talk.messages[2].content = "changed late"
        talk.messages[12].content = "changed as well"
        return translated

    talk.translate = meddle  # type: ignore[method-assign]
    talk.save()
    assert talk.save() == talk.plain()


def test_what_cannot_be_outlined_is_translated_each_time() -> None:
    talk = Talk()
    talk.add(20)
    talk.messages[5].content = ("a", "tuple")
    for _ in range(2):
        assert talk.save() == talk.plain()
    assert talk.translated == [(0, 20), (0, 20)]


def test_a_bad_value_is_named_by_its_place() -> None:
    talk = Talk()
    talk.add(20)
    talk.save()
    talk.add(2)
    talk.messages[21].content = object()
    with pytest.raises(StateNotSerializable, match=r"\$\.messages\[21\]\.content"):
        talk.save()
