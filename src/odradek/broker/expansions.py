"""Batches that are too large, expanded, for the loop: opened on a thread.

Those that are produced are checked there, then appended; those that are searched by time are read.
One batch is expanded at a time, whoever asked for it: what all clients' batches may take together
is what one may take (`odradek.storage.validation`), and a producer of such batches waits for others
of its kind. Requests wait with their connections, which are not read meanwhile, so the order of one
producer's batches stays. A client that hangs up while its batches wait is forgotten. A batch whose
expansion fails, for want of memory, is refused like one that is wrong.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.storage.expansion import ExpandedRecords

__all__ = ["Expansions"]

_log = logging.getLogger(__name__)

Deferred: TypeAlias = Mapping[TopicPartition, tuple[ExpandedRecords, Callable[..., None]]]


class Expansions:
    """Runs what has to be expanded.

    Args:
        spawn: Runs a coroutine as a task that somebody owns.
    """

    __slots__ = ("_spawn", "_turn")

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._spawn = spawn
        self._turn = asyncio.Lock()

    def start(
        self,
        request: Request,
        deferred: Deferred,
        append: Callable[[Mapping[TopicPartition, ExpandedRecords]], None],
    ) -> None:
        """Expands records, and calls `append` with them unless their client has gone."""
        self._spawn(self._run(request, deferred, append))

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
        for records, expand in deferred.values():
            async with self._turn:
                if request.connection.is_closed:
                    return
                try:
                    await asyncio.to_thread(expand, records)
                except Exception as error:  # noqa: BLE001 - one request must not end others
                    _log.exception("A batch of %s could not be expanded", request)
                    records.walks[0] = ApiError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"the batch could not be expanded: {type(error).__name__}",
                    )
        append({tp: records for tp, (records, _) in deferred.items()})
