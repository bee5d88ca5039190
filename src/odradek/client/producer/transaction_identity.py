"""The identity of a producer in a transaction: its numbers, and the partitions it writes to.

Takes the place of `identity` where there is a transactional id. Rules:

1. Batches leave in an open transaction only. After its first failure none leaves any more, and
   those that are not on their way fail (`refusal`).
2. A partition begins anew under numbers that it has not had yet, from 0; under the same numbers it
   goes on, in the next transaction as well.
3. Below transaction.version 2 a partition's first batch waits until the coordinator has added the
   partition to the transaction. Partitions that wait at the same time are added together.
4. A batch with a number that was given up leaves a hole: the next transaction needs a new epoch. An
   answer that comes too late, or never, belongs to the old one.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from odradek.client.client import Client
from odradek.client.producer.batch import NO_SEQUENCE, Batch, PartitionQueue
from odradek.client.producer.config import ProducerOptions
from odradek.client.producer.errors import FatalTransactionError, TransactionAbortedError
from odradek.client.producer.ticket import TransactionTicket
from odradek.client.producer.transaction_requests import NO_NUMBERS, Numbers, TransactionRequests
from odradek.client.producer.transaction_states import (
    TABLE,
    Step,
    TransactionProgress,
    TransactionStage,
    decide_failure,
)
from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.model import TopicPartition

__all__ = ["TransactionIdentity"]

_V2: Final = 2
_IN_TRANSACTION: Final = frozenset(
    {TransactionStage.OPEN, TransactionStage.FLUSHING, TransactionStage.WRITING}
)


class TransactionIdentity:
    """See the module's docstring. All methods are called on the loop.

    Args:
        start: Runs a coroutine as a task.
        look_soon: Called when a batch may be sent, or has to fail.
    """

    def __init__(
        self,
        client: Client,
        options: ProducerOptions,
        *,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        look_soon: Callable[[], None],
    ) -> None:
        assert options.transactional_id is not None, "the caller has looked"
        self._client = client
        self._options = options
        self._start = start
        self._look_soon = look_soon
        self._loop = asyncio.get_running_loop()
        self.transactional_id = options.transactional_id
        self.requests = TransactionRequests(client, options.transactional_id)
        self.state = TransactionProgress()
        self.numbers = NO_NUMBERS
        # Whether the protocol is that of transaction.version 2: see `transaction_requests`.
        self.is_v2 = False
        # Whether the coordinator has confirmed that something is in the transaction, and whether
        # something may be.
        self.is_begun = False
        self.is_maybe_begun = False
        # Whether the next transaction needs other numbers: rule 4.
        self.needs_new_epoch = False
        # Why nothing leaves any more, the error of everything that was to be sent.
        self.refusal: OdradekError | None = None
        # Whether the numbers are being replaced: nothing leaves meanwhile.
        self.is_changing = False
        self._added: set[PartitionQueue] = set()
        self._to_add: dict[PartitionQueue, None] = {}
        self._adding: asyncio.Task[None] | None = None

    @property
    def has_id(self) -> bool:
        """Whether batches may get numbers now."""
        return self.state.now in _IN_TRANSACTION and not self.is_changing

    def ask(self) -> None:
        """Does nothing: `init_transactions` has asked for the numbers."""

    def raise_epoch(self) -> None:
        """Does nothing: numbers of the present epoch are never lost, see `holds`."""

    def holds(self, queue: PartitionQueue) -> bool:
        """Whether a partition has numbers that must not be lost."""
        return _numbers_of(queue) == self.numbers

    # One transaction

    def begin(self, *, is_v2: bool) -> None:
        """Begins a transaction with the numbers that are there."""
        self.is_v2 = is_v2
        self.is_begun = False
        self.is_maybe_begun = False
        self.needs_new_epoch = False
        self.refusal = None
        self._added.clear()
        self._to_add.clear()

    def use(self, ticket: TransactionTicket) -> None:
        """Writes in the transaction of another producer from now on."""
        self.state = TransactionProgress(TransactionStage.WRITING)
        self.numbers = Numbers(ticket.producer_id, ticket.producer_epoch)
        self.begin(is_v2=ticket.transaction_version >= _V2)

    def refuse(self, reason: object) -> None:
        """Lets nothing leave any more."""
        if self.refusal is None:
            self.refusal = TransactionAbortedError(reason)
        self._look_soon()

    def try_lend(self, queue: PartitionQueue) -> bool:
        """Prepares a queue to send under the present numbers; returns whether it can.

        The caller holds the producer's lock.
        """
        if self.refusal is not None or not self.has_id:
            return False
        if _numbers_of(queue) != self.numbers:
            # A partition that knows the producer takes no number but 0 under a higher epoch, so
            # several batches may be sent at once.
            is_known = queue.is_known and queue.producer_id == self.numbers.producer_id
            queue.begin_anew(*self.numbers)
            queue.is_known = is_known
        elif queue.is_broken:
            # Later, because the lock is held here.
            self._loop.call_soon(self.fail, _hole_in(queue))
            return False
        if queue in self._added:
            return True
        if self.is_v2:
            self._added.add(queue)
            self.is_maybe_begun = True
            return True
        self._to_add[queue] = None
        if self._adding is None:
            self._adding = self._start(self._add_partitions())
        return False

    async def _add_partitions(self) -> None:
        try:
            while self._to_add and self.refusal is None:
                await asyncio.sleep(0)  # Those of the same look are added together.
                queues = list(self._to_add)
                self._to_add.clear()
                self.is_maybe_begun = True
                await self.requests.add_partitions(
                    self.numbers,
                    [TopicPartition(queue.topic, queue.partition) for queue in queues],
                    self._client.deadline(self._options.delivery_timeout_ms),
                )
                self.is_begun = True
                self._added.update(queues)
                self._look_soon()
        except ApiError as error:
            self.fail(error, is_from_coordinator=True)
        finally:
            self._adding = None

    @property
    def is_adding(self) -> bool:
        """Whether partitions are being added."""
        return self._adding is not None

    async def stop_adding(self) -> None:
        """Adds no more partitions; those that are being added may be in the transaction."""
        self._to_add.clear()
        task = self._adding
        if task is not None:
            # The request may be served later, if the connection is lost.
            self.needs_new_epoch = True
            task.cancel()
            await asyncio.wait([task])

    # Failures

    def on_batch_failed(self, batch: Batch, error: OdradekError) -> None:
        """Takes note of a batch that was given up."""
        if batch.sequence != NO_SEQUENCE:
            self.needs_new_epoch = True
        if not isinstance(error, TransactionAbortedError):
            self.fail(error)

    def fail(self, error: OdradekError, *, is_from_coordinator: bool = False) -> ApiError:
        """Ends the transaction, or the producer, with an error; returns what to raise."""
        failure = decide_failure(
            error, self.transactional_id, is_from_coordinator=is_from_coordinator
        )
        is_fatal = isinstance(failure, FatalTransactionError)
        if (
            self.state.now,
            Step.FAIL_FOR_GOOD if is_fatal else Step.FAIL,
        ) in TABLE:
            self.state.fail(failure)
            if is_fatal:
                self.refusal = failure
            self.refuse(error)
        return failure


def _numbers_of(queue: PartitionQueue) -> Numbers:
    return Numbers(queue.producer_id, queue.producer_epoch)


def _hole_in(queue: PartitionQueue) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{queue.topic}-{queue.partition}: the log lacks a batch that was sent, "
        "or another topic has the name now",
    )
