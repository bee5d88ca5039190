"""A metadata feed whose deltas the test gives."""

import asyncio
from collections.abc import AsyncGenerator, Mapping

from odradek.errors import ErrorCode
from odradek.metadata.delta import ClusterDelta, ImageDelta
from odradek.metadata.ports import FeedItem
from odradek.model import TopicPartition

Results = Mapping[TopicPartition, ErrorCode]


class OfferedItem:
    def __init__(self, delta: ImageDelta) -> None:
        self.delta = delta
        self.outcome: asyncio.Future[Results] = asyncio.get_running_loop().create_future()

    def complete(self, results: Results) -> None:
        if not self.outcome.done():
            self.outcome.set_result(results)

    def fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class OfferedFeed:
    """Brings what is offered; first of all, empty settings."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[OfferedItem] = asyncio.Queue()
        self._is_closed = False

    async def offer(self, delta: ImageDelta) -> Results:
        """Returns what became of the delta."""
        item = OfferedItem(delta)
        if self._is_closed:
            item.outcome.cancel()
        else:
            self._waiting.put_nowait(item)
        return await item.outcome

    async def items(self) -> AsyncGenerator[FeedItem, None]:
        item = OfferedItem(ImageDelta(cluster=ClusterDelta()))
        try:
            while True:
                if not item.outcome.done():
                    yield item
                item = await self._waiting.get()
        finally:
            self._is_closed = True
            item.outcome.cancel()
            while not self._waiting.empty():
                self._waiting.get_nowait().outcome.cancel()
