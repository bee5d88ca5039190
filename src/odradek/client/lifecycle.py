"""The life cycle that the awaited clients share: `async with` opens them, its end closes them."""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["AsyncClient"]


class AsyncClient(ABC):
    """A client that is started and closed; an async context manager."""

    @abstractmethod
    async def start(self) -> None:
        """Begins, on the running loop."""

    @abstractmethod
    async def close(self, timeout: float | None = None) -> None:
        """Ends within `timeout` seconds, even if no broker answers; a second call does nothing."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
