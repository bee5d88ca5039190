"""Batches that are too large, expanded, for the loop: opened on a thread.

Those that are produced are checked there, then appended; those that are searched by time are read.
One batch is expanded at a time, whoever asked for it: what all clients' batches may take together
is what one may take (`odradek.storage.log.validation`), and a producer of such batches waits for
others of its kind. Requests wait with their connections, which are not read meanwhile, so the order
of one producer's batches stays. A client that hangs up while its batches wait is forgotten. A batch
whose expansion fails, for want of memory, is refused like one that is wrong.
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
    """Runs what has to be expanded.

    Args:
        tasks: Runs what takes a while.
        executor: Where batches are expanded; one thread is enough.
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
        """Expands records, and calls `append` with them unless their client has gone."""
        self._tasks.spawn(self._run(request, deferred, append))

    async def run(self, job: Callable[[], None]) -> None:
        """Does a job that expands a batch, when its turn comes."""
        async with self._turn:
            await asyncio.to_thread(job)

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
