"""What is saved: conversations that look like an agent's, the same on every run.

Prose is made of a few hundred common words in uneven proportion, with the paths, numbers and
identifiers that agents talk about, so that it compresses about as well as real text does. The
incompressible kind is random base64 and is the worst case for any store that compresses.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

# The first line has the small words that hold a sentence together.
_FIRST, *_OTHERS = Path(__file__).with_name("words.txt").read_text().splitlines()
_JOINING, _STEMS = _FIRST.split(), " ".join(_OTHERS).split()
_ENDINGS = ("", "", "", "", "s", "s", "ed", "ing", "er", "ly", "ment", "able")
_ROLES = ("user", "assistant", "tool", "assistant")
_DIRECTORIES = ("src", "tests", "lib", "docs", "app", "core", "api", "web")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

Message = dict[str, Any]


class Writer:
    """Writes messages; the same seed writes the same ones."""

    def __init__(self, seed: int = 7, *, compressible: bool = True) -> None:
        self._random = random.Random(seed)
        self._compressible = compressible
        self._count = 0
        # Words of a language are far from equally frequent.
        self._weights = [1.0 / (rank + 20) for rank in range(len(_STEMS))]
        self._stems = self._random.sample(_STEMS, len(_STEMS))

    def message(self, size: int = 1024) -> Message:
        """Return the next message, its content ``size`` characters long."""
        role = _ROLES[self._count % len(_ROLES)]
        self._count += 1
        content = self.prose(size) if self._compressible else self.noise(size)
        return {"id": f"msg_{self._random.getrandbits(96):024x}", "role": role, "content": content}

    def messages(self, count: int, size: int = 1024) -> list[Message]:
        return [self.message(size) for _ in range(count)]

    def prose(self, size: int) -> str:
        parts: list[str] = []
        length = 0
        while length < size:
            sentence = self._sentence()
            parts.append(sentence)
            length += len(sentence) + 1
        return " ".join(parts)[:size]

    def noise(self, size: int) -> str:
        return "".join(self._random.choices(_ALPHABET, k=size))

    def _sentence(self) -> str:
        pick = self._random
        words: list[str] = []
        for stem in pick.choices(self._stems, self._weights, k=pick.randint(5, 14)):
            chance = pick.random()
            if chance < 0.42:
                words.append(pick.choice(_JOINING))
            elif chance < 0.46:
                words.append(f"{pick.choice(_DIRECTORIES)}/{stem}_{pick.choice(_STEMS)}.py")
            elif chance < 0.49:
                words.append(str(pick.randint(2, 99_999)))
            elif chance < 0.50:
                words.append(f"{pick.getrandbits(28):07x}")
            words.append(stem + pick.choice(_ENDINGS))
        return " ".join(words).capitalize() + pick.choice((".", ".", ".", "?", ":", ",\n"))
