"""Producer ids: blocks that belong to this broker alone, handed out one by one.

The next block is fetched in the background once nine tenths of the current one are used, so that
clients rarely wait for the store. One fetch is under way at a time; requests that find no id wait
for it. A block is never returned: its unused ids are lost when the broker stops.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.errors import ApiError, ErrorCode, StoreError
from odradek.metadata.ports import ProducerIds
from odradek.tasks import Tasks

__all__ = ["ProducerIdAllocator"]

logger = logging.getLogger(__name__)

_PREFETCH_SHARE = 0.9


class ProducerIdAllocator:
    """Hands out producer ids.

    Args:
        allocate: Allocates the next block of the cluster.
        tasks: Runs the fetches in the background.
    """

    def __init__(
        self,
        allocate: Callable[[], Awaitable[ProducerIds]],
        *,
        tasks: Tasks,
    ) -> None:
        self._allocate = allocate
        self._tasks = tasks
        self._block = ProducerIds(0, -1)
        self._next_id = 0
        self._reserve: ProducerIds | None = None
        self._is_prefetching = False
        self._fetching = asyncio.Lock()

    async def next_id(self) -> int:
        """The next id.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, no id is available now; clients try again.
        """
        if self._next_id > self._block.last_id:
            async with self._fetching:
                if self._next_id > self._block.last_id:
                    self._take(self._reserve or await self._fetch())
        producer_id = self._next_id
        self._next_id += 1
        self._maybe_prefetch()
        return producer_id

    def _take(self, block: ProducerIds) -> None:
        self._block, self._reserve = block, None
        self._next_id = block.first_id

    async def _fetch(self) -> ProducerIds:
        try:
            return await self._allocate()
        except (StoreError, ApiError) as error:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids available: {error}"
            ) from error

    @property
    def _needs_reserve(self) -> bool:
        size = self._block.last_id - self._block.first_id + 1
        used = self._next_id - self._block.first_id
        return self._reserve is None and used >= size * _PREFETCH_SHARE

    def _maybe_prefetch(self) -> None:
        if not self._is_prefetching and self._needs_reserve:
            self._is_prefetching = True
            self._tasks.spawn(self._prefetch())

    async def _prefetch(self) -> None:
        try:
            async with self._fetching:
                if self._needs_reserve:  # A request without an id may have fetched before.
                    self._reserve = await self._fetch()
        except ApiError as error:
            logger.warning("%s", error)
        finally:
            self._is_prefetching = False
