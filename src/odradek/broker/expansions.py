"""Expansion, on a thread, of compressed batches that are too large for the loop.

Produced batches are checked there and then appended; batches of a search by time are read.
One batch of all requests is expanded at a time: the memory limit of all clients' batches is that of
one (`odradek.storage.log.validation`), and producers of such batches wait for each other. The
connections of waiting requests are not read, so the order of one producer's batches stays. The
request of a client that disconnects is dropped. A batch whose expansion fails, for lack of memory,
is refused like an invalid one.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TypeAlias

from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.storage.log.expansion import ExpandedRecords
from odradek.tasks import Tasks

__all__ = ["Expansions"]

logger = logging.getLogger(__name__)

Deferred: TypeAlias = Mapping[TopicPartition, tuple[ExpandedRecords, Callable[..., None]]]


class Expansions:
    """Expands batches, one at a time.

    Args:
        tasks: Runs the requests that wait.
        executor: Expands the batches; one thread is enough.
    """

    __slots__ = ("_executor", "_tasks", "_turn")

    def __init__(self, tasks: Tasks, executor: Executor) -> None:
        self._tasks = tasks
        self._executor = executor
        self._turn = asyncio.Lock()

    def start(
        self,
        request: Request,
        deferred: Deferred,
        append: Callable[[Mapping[TopicPartition, ExpandedRecords]], None],
    ) -> None:
        """Expands records, and calls `append` with them unless their client has disconnected."""
        self._tasks.spawn(self._run(request, deferred, append))

    async def run(self, job: Callable[[], None]) -> None:
        """Runs a job that expands a batch, after those before it."""
        async with self._turn:
            await asyncio.get_running_loop().run_in_executor(self._executor, job)

    async def _run(
        self,
        request: Request,
        deferred: Deferred,
        append: Callable[[Mapping[TopicPartition, ExpandedRecords]], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        for records, expand in deferred.values():
            async with self._turn:
                if request.connection.is_closed:
                    return
                try:
                    await loop.run_in_executor(self._executor, expand, records)
                except Exception as error:  # one request must not end others
                    logger.exception("A batch of %s could not be expanded", request)
                    records.walks[0] = ApiError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"the batch could not be expanded: {type(error).__name__}",
                    )
        append({tp: records for tp, (records, _) in deferred.items()})
