"""The identity of a producer: its id and epoch, under which partitions number their records.

The id is requested when the first batch could be sent, and not before. Each partition takes the id
and epoch of the moment in which it begins to number records, and keeps them. One whose numbers are
broken (`batch`, rule 3) needs a new epoch: if it has the newest one, that is raised; else it takes
the newest one. The others keep theirs.

Example: partitions 0 and 1 have epoch 0, and the numbers of both break. Partition 0 raises the
epoch to 1. Partition 1 finds that epoch 1 is not its own, and takes it without raising it again.

After the last epoch, 32767, comes another id. Nothing is sent until the cluster has given one.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from odradek.client.client import Client
from odradek.client.leaders import api_error
from odradek.client.producer.batch import PartitionQueue
from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

__all__ = ["Identity"]

logger = logging.getLogger(__name__)

_MAX_EPOCH: Final = 32767
_NO_ID: Final = -1


class Identity:
    """See the module's docstring. All methods are called on the loop.

    Args:
        timeout_ms: How long one request may take, with all its attempts.
        start: Runs a coroutine as a task.
        on_answer: Called when a request has ended, with an id or without.
        on_refusal: Called when the cluster refuses for good.
    """

    def __init__(
        self,
        client: Client,
        timeout_ms: int,
        *,
        start: Callable[[Coroutine[Any, Any, None]], object],
        on_answer: Callable[[], None],
        on_refusal: Callable[[OdradekError], None],
    ) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._start = start
        self._on_answer = on_answer
        self._on_refusal = on_refusal
        self._loop = asyncio.get_running_loop()
        self._producer_id = _NO_ID
        self._producer_epoch = -1
        self._is_asking = False

    # Why nothing may leave: no reason ever.
    refusal: Final = None

    @property
    def has_id(self) -> bool:
        """Whether batches may get numbers now."""
        return self._producer_id >= 0

    def ask(self) -> None:
        """Asks the cluster for an id, unless that is under way."""
        if not self._is_asking:
            self._is_asking = True
            self._start(self._get_id())

    async def _get_id(self) -> None:
        async def attempt() -> InitProducerIdResponse:
            response = await self._client.ask_any(
                ApiKey.INIT_PRODUCER_ID,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1),
                InitProducerIdResponse,
                deadline,
            )
            if response.error_code != ErrorCode.NONE:
                raise api_error(response.error_code, None, "no producer id")
            return response

        deadline = self._client.deadline(self._timeout_ms)
        try:
            response = await self._client.retry("a producer id", attempt, deadline)
        except ApiError as error:
            if not error.code.retriable:
                self._on_refusal(error)
        else:
            self._producer_id = response.producer_id
            self._producer_epoch = response.producer_epoch
        finally:
            self._is_asking = False
            self._on_answer()

    def try_lend(self, queue: PartitionQueue) -> bool:
        """Gives a queue an id and an epoch, if there are any; returns whether it has them.

        The caller holds the producer's lock.
        """
        if not self.has_id:
            return False  # Another queue of the same request has used up the last epoch.
        if queue.needs_new_epoch():
            return self._try_renew(queue)
        if queue.producer_id < 0:
            queue.begin_anew(self._producer_id, self._producer_epoch)
        return True

    def _try_renew(self, queue: PartitionQueue) -> bool:
        """Gives a queue whose numbers are broken another epoch, or asks for another id."""
        if (queue.producer_id, queue.producer_epoch) == (self._producer_id, self._producer_epoch):
            self.raise_epoch()
            if not self.has_id:
                self.ask()
                return False
        # Later, because the lock is held here, and a handler of the log may use the producer.
        self._loop.call_soon(
            logger.info,
            "%s-%d: begins anew with producer epoch %d",
            queue.topic,
            queue.partition,
            self._producer_epoch,
        )
        queue.begin_anew(self._producer_id, self._producer_epoch)
        return True

    def holds(self, _queue: PartitionQueue) -> bool:
        """Whether a partition has numbers that must not be lost: it may always take an epoch."""
        return False

    def raise_epoch(self) -> None:
        """Gives partitions that begin to number records from now on an epoch that none has had."""
        if self._producer_epoch < _MAX_EPOCH:
            self._producer_epoch += 1
        else:
            self._producer_id = _NO_ID
