"""The calls of `odradek.aio.Producer` for transactions."""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from odradek.client.consumer.commits import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.client.lifecycle import AsyncClient
from odradek.client.producer.errors import FatalTransactionError, RetriableTransactionError
from odradek.client.producer.ticket import TransactionTicket
from odradek.client.producer.transactions import Transactions
from odradek.errors import OdradekError
from odradek.model import TopicPartition

__all__ = ["TransactionCalls", "group_of"]

logger = logging.getLogger(__name__)

Partition = TopicPartition | tuple[str, int]


class TransactionCalls(AsyncClient):
    """See the module's docstring."""

    @abstractmethod
    def _needed_transactions(self, call: str) -> Transactions:
        """The transactions of this producer.

        Raises:
            TransactionStateError: It has no `transactional.id`, or writes under a ticket.
            ClosedError: It is closed.
        """

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Takes the `transactional.id` over, and ends what its last producer has left open.

        Called once, before the first transaction; again after a `RetriableTransactionError`.

        Args:
            timeout: Seconds; `max.block.ms` if not given, as for the other calls.

        Raises:
            RetriableTransactionError: No coordinator answers.
            FatalTransactionError: The cluster refuses.
        """
        await self._needed_transactions("init_transactions").init(timeout)

    async def begin_transaction(self) -> None:
        """Begins a transaction: what is sent from now on is in it.

        Raises:
            TransactionStateError: One is open, or `init_transactions` was not called.
            FatalTransactionError: The producer is fenced.
        """
        await self._needed_transactions("begin_transaction").begin()

    async def send_offsets(
        self,
        offsets: Mapping[Partition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commits offsets of a consumer group with the transaction.

        Args:
            offsets: Of the next record to read, by partition.
            group_metadata: `Consumer.group_metadata()`: the offsets are refused if the member has
                lost its partitions meanwhile. Or the name of a group, which is not checked so.

        Raises:
            AbortableTransactionError: They are refused, or there is no answer: abort.
            FatalTransactionError: The producer is fenced.
        """
        await self._needed_transactions("send_offsets").send_offsets(
            offsets, group_of(group_metadata), timeout
        )

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Delivers every record of the transaction, then makes all of it visible, or nothing.

        Args:
            timeout: Seconds; if not given, `delivery.timeout.ms` for the records and then
                `max.block.ms` for the commit.

        Raises:
            AbortableTransactionError: A record was not delivered: abort.
            RetriableTransactionError: Its outcome is unknown: call it again.
            FatalTransactionError: The producer is fenced.
        """
        await self._needed_transactions("commit_transaction").commit(timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Ends the transaction, and nothing of it is ever visible.

        Records that are not delivered yet fail with `TransactionAbortedError`.

        Raises:
            RetriableTransactionError: There is no answer: call it again.
            FatalTransactionError: The producer is fenced.
        """
        await self._needed_transactions("abort_transaction").abort(
            timeout, "abort_transaction was called"
        )

    async def ticket(self) -> TransactionTicket:
        """The right to write in this transaction, for other producers: ``Producer(ticket=…)``.

        Below transaction.version 2 it has to be taken before the first record is sent.

        Raises:
            TransactionStateError: No transaction is open.
        """
        return await self._needed_transactions("ticket").ticket()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction around a block: committed at its end, aborted if it raises.

        Raises:
            ApiError: As `commit_transaction`, except that a transaction that has to be aborted is.
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except (FatalTransactionError, RetriableTransactionError):
            raise
        except BaseException:
            await self.abort_quietly()
            raise

    async def abort_quietly(self) -> None:
        """Aborts after a failure, which is to be raised rather than that of the abort.

        Does nothing where no abort is possible: the application has aborted, or the commit was
        interrupted when it was on its way.
        """
        try:
            transactions = self._needed_transactions("abort_transaction")
            if transactions.can_be_aborted:
                await transactions.abort(None, "its block has failed")
            else:
                logger.info("the block of a transaction failed: %s", transactions.stage)
        except OdradekError as error:
            logger.warning("a transaction could not be aborted: %s", error)


def group_of(given: ConsumerGroupMetadata | str) -> ConsumerGroupMetadata:
    """The group of an argument, which may be its name."""
    return ConsumerGroupMetadata(given) if isinstance(given, str) else given
