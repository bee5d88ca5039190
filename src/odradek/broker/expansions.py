"""Produced batches that are too large, expanded, for the loop: checked on a thread, then appended.

One batch is expanded at a time, whoever sent it: what all clients' batches may take together is
what one may take (`odradek.storage.validation`), and a producer of such batches waits for others of
its kind. Requests wait with their connections, which are not read meanwhile, so the order of one
producer's batches stays. A client that hangs up while its batches wait is forgotten.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.storage.expansion import ExpandedRecords

__all__ = ["Expansions"]

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
                await asyncio.to_thread(expand, records)
        append({tp: records for tp, (records, _) in deferred.items()})
