"""With statements: what is closed at the end of a block, however the block ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Something to close, which a ``with`` statement does."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class AsyncClosing(ABC):
    """The same for ``async with``."""

    __slots__ = ()

    @abstractmethod
    async def close(self) -> None:
        """Release what is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
