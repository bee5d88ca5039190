"""The feed of a store engine: the controller's requests and configuration, in one order.

Two sources fill one queue, in the order of arrival:

* a control request (`handle`), whose sender waits for the answer;
* the config feed's notice that configuration was altered, queued once for any number of
  alterations. The first item of all is the whole configuration.

A delta is made when the publisher takes it, and not before: the state it is read from and checked
against then includes all earlier deltas. So a topic that was deleted and created again while an
alteration of its overrides waited gets its present overrides.

Duties towards the publisher, which takes an item only after it has completed the one before:

1. A request whose sender has given up before its delta is made is dropped.
2. A request whose delta cannot be made fails alone; the publisher never sees it.
3. When the iteration is closed, senders that wait are cancelled, and later ones at once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TypeAlias

from odradek.clock import Clock
from odradek.coordination.store import CoordinationStore
from odradek.errors import ErrorCode
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.metadata.delta import ImageDelta
from odradek.metadata.image import ClusterImage
from odradek.metadata.ports import FeedItem
from odradek.metadata_store.config_feed import ConfigFeed
from odradek.metadata_store.control_feed import ControlFeed
from odradek.metadata_store.controller_check import ControllerCheck
from odradek.model import TopicPartition

__all__ = ["StoreFeed"]

Results: TypeAlias = Mapping[TopicPartition, ErrorCode]


class _RequestItem:
    """A control request in the queue, then the delta made of it."""

    __slots__ = ("_make", "_published", "delta")

    def __init__(
        self, make: Callable[[], Awaitable[ImageDelta]], published: asyncio.Future[Results]
    ) -> None:
        self._make = make
        self._published = published
        self.delta = ImageDelta()

    async def prepare(self) -> bool:
        """Makes the delta; returns whether there is something to publish."""
        if self._published.done():
            return False
        try:
            self.delta = await self._make()
        except Exception as error:  # noqa: BLE001 - it belongs to the sender of this request
            self.fail(error)
        return not self._published.done()

    def complete(self, results: Results) -> None:
        if not self._published.done():
            self._published.set_result(results)

    def fail(self, error: Exception) -> None:
        if not self._published.done():
            self._published.set_exception(error)

    def drop(self) -> None:
        self._published.cancel()


class _ConfigItem:
    """A notice of altered configuration in the queue, then the delta read for it."""

    __slots__ = ("_configs", "delta")

    def __init__(self, configs: ConfigFeed) -> None:
        self._configs = configs
        self.delta = ImageDelta()

    async def prepare(self) -> bool:
        """Reads the altered entities; returns whether there is something to publish."""
        cluster = await self._configs.read()
        self.delta = ImageDelta(cluster=cluster)
        return cluster is not None

    def complete(self, results: Results) -> None:
        assert not results, "configuration gives no replica a role"

    def fail(self, error: Exception) -> None:
        """Raises the error: no request waits for it, and settings read must not be lost."""
        raise error

    def drop(self) -> None:
        """Does nothing: no sender waits for it."""


class StoreFeed:
    """`MetadataFeed` over a coordination store.

    Args:
        store: This broker's session.
        clock: For the age of notifications.
        broker_epoch: The epoch of this broker's registration.
        image: The image that all deltas so far have made.
    """

    def __init__(
        self,
        store: CoordinationStore,
        *,
        clock: Clock,
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
    ) -> None:
        self._configs = ConfigFeed(store, clock=clock, on_change=self._configs_changed)
        self._control = ControlFeed(
            self._offer,
            read_topic_configs=self._configs.read_topic,
            broker_epoch=broker_epoch,
            image=image,
        )
        self._check = ControllerCheck(store, image)
        self._queue: deque[_RequestItem | _ConfigItem] = deque([_ConfigItem(self._configs)])
        self._is_filled = asyncio.Event()
        self._is_config_queued = True
        self._is_closed = False

    async def handle(self, request: ControlRequest) -> ControlResponse:
        """Serves one request of the controller; its caller is an ordered sender.

        Raises:
            StoreError: The configs of a topic could not be read: send the request again.
            asyncio.CancelledError: The broker stops.
        """
        return await self._control.handle(request)

    async def handle_remote(self, request: ControlRequest) -> ControlResponse:
        """Serves a request that came through a socket, if the store names its sender.

        Raises:
            StoreError: As `handle`; or the store does not name the sender as the controller.
        """
        await self._check.check(request)
        return await self.handle(request)

    async def items(self) -> AsyncGenerator[FeedItem, None]:
        """The items to publish, in order. There is one iteration, which ends when it is closed."""
        item: _RequestItem | _ConfigItem | None = None
        try:
            while True:
                while not self._queue:
                    self._is_filled.clear()
                    await self._is_filled.wait()
                item = self._queue.popleft()
                if isinstance(item, _ConfigItem):
                    self._is_config_queued = False
                if await item.prepare():
                    yield item
        finally:
            self._is_closed = True
            if item is not None:
                item.drop()
            for waiting in self._queue:
                waiting.drop()
            self._queue.clear()

    async def _offer(self, make: Callable[[], Awaitable[ImageDelta]]) -> Results:
        published: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            published.cancel()
        else:
            self._put(_RequestItem(make, published))
        return await published

    def _configs_changed(self) -> None:
        if not self._is_config_queued and not self._is_closed:
            self._is_config_queued = True
            self._put(_ConfigItem(self._configs))

    def _put(self, item: _RequestItem | _ConfigItem) -> None:
        self._queue.append(item)
        self._is_filled.set()
