"""The calls of `odradek.aio.Admin` about transactions."""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

from collections.abc import Iterable

from odradek.client.admin import hanging_transactions, transactions
from odradek.client.admin.transactions import (
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.client import Client
from odradek.client.lifecycle import AsyncClient
from odradek.client.retry import Deadline
from odradek.errors import ApiError
from odradek.model import TopicPartition

__all__ = ["TransactionAdministration"]


class TransactionAdministration(AsyncClient):
    """A client that lists, describes and ends transactions."""

    _client: Client

    def _until(self, timeout: float | None) -> Deadline:
        return self._client.deadline_after(timeout)

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
        id_pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, by name; those that match every filter.

        Args:
            states: Any of `TRANSACTION_STATES`.
            producer_ids: Any of these.
            min_duration_ms: Only transactions that have been open for longer.
            id_pattern: A regular expression for the id, in the syntax of the broker.

        Raises:
            ApiError: A broker refuses, or is too old to know a filter.
        """
        return await transactions.list_transactions(
            self._client,
            states=states,
            producer_ids=producer_ids,
            min_duration_ms=min_duration_ms,
            id_pattern=id_pattern,
            deadline=self._until(timeout),
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription | ApiError]:
        """Each transactional id with its producer, its state and its partitions."""
        return await transactions.describe_transactions(
            self._client, transactional_ids, deadline=self._until(timeout)
        )

    async def find_hanging_transactions(
        self,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] = (),
        broker: int | None = None,
        max_timeout_ms: int = hanging_transactions.DEFAULT_MAX_TIMEOUT_MS,
        timeout: float | None = None,
    ) -> list[OpenTransaction]:
        """Finds open transactions that are too old and that no coordinator knows, by Kafka's rule.

        Args:
            topics: All partitions of these, besides those named; all if neither is named.
            partitions: More of them.
            broker: Only partitions with a replica on this broker, as that replica knows them.
            max_timeout_ms: The largest ``transaction.max.timeout.ms`` of the cluster.

        Raises:
            ApiError: A broker refuses or does not answer.
        """
        return await hanging_transactions.find_hanging_transactions(
            self._client,
            topics=topics,
            partitions=partitions,
            broker=broker,
            max_timeout_ms=max_timeout_ms,
            deadline=self._until(timeout),
        )

    async def abort_transactions(
        self, open_transactions: Iterable[OpenTransaction], *, timeout: float | None = None
    ) -> dict[OpenTransaction, ApiError | None]:
        """Ends transactions in their partitions by hand; None for each that is aborted there.

        For hanging ones. A coordinator that knows of such a transaction is not told, and may commit
        it elsewhere.
        """
        return await transactions.abort_transactions(
            self._client, open_transactions, deadline=self._until(timeout)
        )
