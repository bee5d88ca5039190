"""A store whose reads and deletions are repeated while the link to it is broken.

An event of the controller that meets a broken link waits where it is, and goes on when the link is
back: it is neither dropped nor begun anew. Reads and deletions may be repeated, so they are; the
outcome of another write is unknown, and its caller reads back and compares.

A session that ends ends the wait with `SessionExpired`. Should a link be gone for longer than
`MAX_ATTEMPTS` allow and the session be neither restored nor ended, the controller gives leadership
up: the next one reads everything.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from odradek.coordination.store import (
    CoordinationStore,
    Created,
    Operation,
    OperationResult,
    Session,
    Stat,
    Watch,
)
from odradek.errors import ConnectionLost, NoNode, StoreUnreachable

__all__ = ["MAX_ATTEMPTS", "RETRY_PAUSE_S", "PatientStore"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

RETRY_PAUSE_S = 0.1
# A minute: longer than the session timeout of any cluster that wants a controller soon.
MAX_ATTEMPTS = 600


class PatientStore:
    """A `CoordinationStore` over another one; see the module's docstring."""

    def __init__(
        self,
        store: CoordinationStore,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._sleep = sleep

    @property
    def session(self) -> Session:
        return self._store.session

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        return await self._repeat(lambda: self._store.get(path, watch), path)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._repeat(lambda: self._store.exists(path, watch), path)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        return await self._repeat(lambda: self._store.children(path, watch), path)

    async def sync(self) -> None:
        await self._repeat(self._store.sync, "/")

    async def delete(self, path: str, version: int, *, fence: int | None = None) -> None:
        is_repeated = False

        async def attempt() -> None:
            nonlocal is_repeated
            try:
                await self._store.delete(path, version, fence=fence)
            except NoNode:
                if not is_repeated:
                    raise
            except ConnectionLost:
                is_repeated = True
                raise

        await self._repeat(attempt, path)

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        fence: int | None = None,
    ) -> Created:
        return await self._store.create(
            path, data, ephemeral=ephemeral, sequential=sequential, fence=fence
        )

    async def set(
        self, path: str, data: bytes | None, version: int, *, fence: int | None = None
    ) -> Stat:
        return await self._store.set(path, data, version, fence=fence)

    async def multi(
        self, operations: Sequence[Operation], *, fence: int | None = None
    ) -> list[OperationResult]:
        return await self._store.multi(operations, fence=fence)

    async def _repeat(self, call: Callable[[], Awaitable[_T]], path: str) -> _T:
        for attempt in range(MAX_ATTEMPTS):
            try:
                return await call()
            except ConnectionLost as error:
                if attempt == 0:
                    logger.info("%s: the link to the store is broken, will retry: %s", path, error)
                await self._sleep(RETRY_PAUSE_S)
        raise StoreUnreachable(
            f"{path}: the store did not answer in {MAX_ATTEMPTS} attempts", path=path
        )
