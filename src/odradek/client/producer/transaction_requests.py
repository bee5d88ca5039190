"""The requests of transactions to their coordinators, each tried until its answer is definite.

Two generations of the protocol, chosen for each transaction by the feature `transaction.version`:

=================  =============================================  ==================================
                   below 2                                        2
=================  =============================================  ==================================
partitions         AddPartitionsToTxn before the first batch      added by Produce 12 and later
offsets            AddOffsetsToTxn, TxnOffsetCommit up to 4       TxnOffsetCommit 5
end                EndTxn up to 4; the epoch stays                EndTxn 5; its answer has the next
                                                                  epoch, or another id
=================  =============================================  ==================================
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from odradek.client.client import Client
from odradek.client.consumer.commits import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.client.coordinators import CoordinatorLink
from odradek.client.errors import CallTimeoutError
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode, RequestTimedOutError
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import CoordinatorType
from odradek.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.protocol.versions import VersionRange

__all__ = ["NO_NUMBERS", "Numbers", "TransactionRequests"]

T = TypeVar("T")

_LANE: Final = "transactions"
# AddPartitionsToTxn: later versions are for brokers.
_OF_CLIENTS: Final = VersionRange(0, 3)
_UNTIL_V4: Final = VersionRange(0, 4)
_FROM_V5: Final = VersionRange(5, 32767)
# The coordinator completes the transaction before, which takes it a moment.
_CONCURRENT_PAUSE_MS: Final = 20


class Numbers(NamedTuple):
    """What a producer numbers its batches under."""

    producer_id: int
    producer_epoch: int


NO_NUMBERS: Final = Numbers(-1, -1)


class _TransactionCoordinator(CoordinatorLink):
    _type = CoordinatorType.TRANSACTION
    _lane = _LANE


class _GroupCoordinator(CoordinatorLink):
    _type = CoordinatorType.GROUP
    _lane = _LANE


class TransactionRequests:
    """See the module's docstring.

    Every method raises `ApiError` when the request is refused for good, and `CallTimeoutError` when
    there is no definite answer in time.
    """

    def __init__(self, client: Client, transactional_id: str) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._coordinator = _TransactionCoordinator(client, transactional_id)
        # That of the group whose offsets were committed last.
        self._group: _GroupCoordinator | None = None

    async def init(self, numbers: Numbers, timeout_ms: int, deadline: Deadline) -> Numbers:
        """Gets id and epoch, and with them the end of what the predecessor has left open.

        Args:
            numbers: Those that this producer has, to go on with the next epoch; else `NO_NUMBERS`.
            timeout_ms: How long the coordinator leaves a transaction open.
        """

        async def attempt() -> Numbers:
            request = InitProducerIdRequest(
                transactional_id=self._transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=numbers.producer_id,
                producer_epoch=numbers.producer_epoch,
            )
            answer = await self._coordinator.ask(
                ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse, deadline
            )
            self._coordinator.check(answer.error_code, "INIT_PRODUCER_ID")
            return Numbers(answer.producer_id, answer.producer_epoch)

        return await self._until_definite("init_transactions", attempt, deadline)

    async def add_partitions(
        self, numbers: Numbers, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> None:
        """Adds partitions to the transaction, all or none."""
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=numbers.producer_id,
            v3_and_below_producer_epoch=numbers.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=found)
                for name, found in topics.items()
            ],
        )

        async def attempt() -> None:
            answer = await self._coordinator.ask(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                request,
                AddPartitionsToTxnResponse,
                deadline,
                within=_OF_CLIENTS,
            )
            told = [
                (TopicPartition(topic.name, one.partition_index), one.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
            # Not the error of the others of a partition that was refused.
            told.sort(key=lambda one: one[1] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for tp, code in told:
                self._coordinator.check(code, f"ADD_PARTITIONS_TO_TXN of {tp}")

        await self._until_definite("adding partitions to the transaction", attempt, deadline)

    async def add_offsets(self, numbers: Numbers, group_id: str, deadline: Deadline) -> None:
        """Adds the offsets of a group to the transaction."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=numbers.producer_id,
            producer_epoch=numbers.producer_epoch,
            group_id=group_id,
        )

        async def attempt() -> None:
            answer = await self._coordinator.ask(
                ApiKey.ADD_OFFSETS_TO_TXN, request, AddOffsetsToTxnResponse, deadline
            )
            self._coordinator.check(answer.error_code, f"ADD_OFFSETS_TO_TXN of group {group_id!r}")

        await self._until_definite("adding offsets to the transaction", attempt, deadline)

    async def commit_offsets(
        self,
        numbers: Numbers,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        deadline: Deadline,
        *,
        adds_them: bool,
    ) -> None:
        """Stores offsets, which count when the transaction is committed.

        Args:
            adds_them: Whether this adds them to the transaction, too.
        """
        if self._group is None or self._group.key != group.group_id:
            self._group = _GroupCoordinator(self._client, group.group_id)
        coordinator = self._group
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group.group_id,
            producer_id=numbers.producer_id,
            producer_epoch=numbers.producer_epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=_offset_topics(offsets.items()),
        )

        async def attempt() -> None:
            answer = await coordinator.ask(
                ApiKey.TXN_OFFSET_COMMIT,
                request,
                TxnOffsetCommitResponse,
                deadline,
                within=_FROM_V5 if adds_them else _UNTIL_V4,
            )
            for topic in answer.topics:
                for one in topic.partitions:
                    what = f"TXN_OFFSET_COMMIT of {topic.name}-{one.partition_index}"
                    coordinator.check(one.error_code, what)

        await self._until_definite("send_offsets", attempt, deadline)

    async def end(
        self, numbers: Numbers, deadline: Deadline, *, is_commit: bool, raises_epoch: bool
    ) -> Numbers:
        """Ends the transaction; returns the numbers for the next one."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=numbers.producer_id,
            producer_epoch=numbers.producer_epoch,
            committed=is_commit,
        )

        async def attempt() -> Numbers:
            answer = await self._coordinator.ask(
                ApiKey.END_TXN,
                request,
                EndTxnResponse,
                deadline,
                within=_FROM_V5 if raises_epoch else _UNTIL_V4,
            )
            self._coordinator.check(answer.error_code, "END_TXN")
            if answer.producer_id < 0:
                return numbers
            return Numbers(answer.producer_id, answer.producer_epoch)

        what = "commit_transaction" if is_commit else "abort_transaction"
        return await self._until_definite(what, attempt, deadline)

    async def _until_definite(
        self, what: str, attempt: Callable[[], Awaitable[T]], deadline: Deadline
    ) -> T:
        before: ApiError | None = None
        for longest_pause_ms in self._client.pauses_ms():
            try:
                return await attempt()
            except ApiError as error:
                if not error.code.retriable:
                    raise
                pause_ms = longest_pause_ms
                if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    pause_ms = min(pause_ms, _CONCURRENT_PAUSE_MS)
                if deadline.left_ms() <= pause_ms:
                    # The failure before it explains more than the end of the time does.
                    is_cut = isinstance(error, RequestTimedOutError)
                    reason = before if is_cut and before is not None else error
                    raise CallTimeoutError(
                        f"{what}: no definite answer in {deadline.timeout_ms} ms: {reason}", reason
                    ) from reason
                before = error
                needs_metadata = error.code.refresh_metadata
            await asyncio.sleep(pause_ms / 1000)
            if needs_metadata:
                await self._client.refresh((), deadline)
        raise AssertionError("pauses never end")


def _offset_topics(
    offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]],
) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for tp, value in offsets:
        topics.setdefault(tp.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=value.offset,
                committed_leader_epoch=-1 if value.leader_epoch is None else value.leader_epoch,
                committed_metadata=value.metadata,
            )
        )
    return [
        TxnOffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()
    ]
