"""Transactions, seen from outside: those of all coordinators, and the end of one in a partition.

A coordinator knows the transaction of an id; the leader of a partition knows which producers have
one open there. An abort by hand goes to the leader alone, as with Kafka's tool: it is for a
transaction of which no coordinator knows, and which no coordinator would ever end.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from odradek.client.admin.producers import ProducerState
from odradek.client.client import Client
from odradek.client.errors import CallTimeoutError
from odradek.client.leaders import LeaderCall, api_error, ask_leaders
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import CoordinatorType
from odradek.protocol.messages import describe_transactions as described
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.schema import Message

__all__ = [
    "TRANSACTION_STATES",
    "OpenTransaction",
    "TransactionDescription",
    "TransactionListing",
    "abort_transactions",
    "describe_transactions",
    "list_transactions",
]

# As brokers name them.
TRANSACTION_STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
    "PrepareEpochFence", "Dead",
)  # fmt: skip

_ANY_DURATION: Final = -1
# FindCoordinator: the first version that names several ids.
_SEVERAL_KEYS: Final = 4
# Ids that one request names: an answer has to fit into the memory of both sides.
_BATCH: Final = 500


class TransactionListing(NamedTuple):
    """A transactional id, and the broker that coordinates its transactions."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator knows it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    # When the transaction began, in milliseconds since 1970; None if none is open.
    start_time_ms: int | None
    # Those that it has written to and whose marker is not written yet.
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """A transaction that a producer has open in a partition, as the partition's leader knows it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    # -1: no transaction of this producer has ended here yet.
    coordinator_epoch: int
    start_offset: int
    # Of the producer's last batch.
    last_timestamp_ms: int

    @classmethod
    def among(
        cls, partition: TopicPartition, producers: Iterable[ProducerState]
    ) -> "list[OpenTransaction]":
        """Those of the producers of a partition, in order of their starts."""
        return sorted(
            (
                cls(
                    partition,
                    one.producer_id,
                    one.producer_epoch,
                    one.coordinator_epoch,
                    one.current_transaction_start_offset,
                    one.last_timestamp_ms,
                )
                for one in producers
                if one.is_in_transaction
            ),
            key=lambda one: one.start_offset,
        )


async def list_transactions(
    client: Client,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    min_duration_ms: int | None = None,
    id_pattern: str | None = None,
    deadline: Deadline,
) -> list[TransactionListing]:
    """The transactional ids of all coordinators, by name.

    Raises:
        ApiError: A broker refuses, does not know a filter, or does not answer.
        ValueError: The duration is negative.
    """
    if min_duration_ms is not None and min_duration_ms < 0:
        raise ValueError(f"min_duration_ms={min_duration_ms}: expected at least 0, or None")
    await client.refresh((), deadline)
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=_ANY_DURATION if min_duration_ms is None else min_duration_ms,
        transactional_id_pattern=id_pattern or None,
    )

    async def ask(node_id: int) -> list[TransactionListing]:
        async def attempt() -> ListTransactionsResponse:
            response = await client.ask_broker(
                node_id, ApiKey.LIST_TRANSACTIONS, request, ListTransactionsResponse, deadline
            )
            if response.error_code != ErrorCode.NONE:
                raise api_error(response.error_code, None, f"transactions of broker {node_id}")
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"broker {node_id} knows no state {unknown}"
                )
            return response

        response = await client.retry("LIST_TRANSACTIONS", attempt, deadline)
        return [
            TransactionListing(
                one.transactional_id, node_id, one.producer_id, one.transaction_state
            )
            for one in response.transaction_states
        ]

    answers = await asyncio.gather(*map(ask, sorted(client.cluster.nodes)))
    return sorted(one for answer in answers for one in answer)


# Descriptions


async def describe_transactions(
    client: Client, transactional_ids: Iterable[str], *, deadline: Deadline
) -> dict[str, TransactionDescription | ApiError]:
    """Each id with its transaction; one that no coordinator knows is TRANSACTIONAL_ID_NOT_FOUND."""
    wanted = list(dict.fromkeys(transactional_ids))
    results: dict[str, TransactionDescription | ApiError] = {}
    for start in range(0, len(wanted), _BATCH):
        results |= await _describe_batch(client, wanted[start : start + _BATCH], deadline)
    return results


async def _describe_batch(
    client: Client, wanted: Sequence[str], deadline: Deadline
) -> dict[str, TransactionDescription | ApiError]:
    results: dict[str, TransactionDescription | ApiError] = {}
    pending = list(wanted)
    for pause_ms in client.pauses_ms():
        results |= await _describe_once(client, pending, deadline)
        pending = [
            one
            for one in pending
            if isinstance(failed := results[one], ApiError) and failed.code.retriable
        ]
        if not pending or deadline.left_ms() <= pause_ms:
            break
        await asyncio.sleep(pause_ms / 1000)
        await client.refresh((), deadline)
    for one in pending:
        results[one] = CallTimeoutError(
            f"transactional id {one!r}: gave up after {deadline.timeout_ms} ms: {results[one]}"
        )
    return {one: results[one] for one in wanted}


async def _describe_once(
    client: Client, transactional_ids: Sequence[str], deadline: Deadline
) -> dict[str, TransactionDescription | ApiError]:
    results: dict[str, TransactionDescription | ApiError] = {}
    by_coordinator: dict[int, list[str]] = {}
    for name, found in (await _find_coordinators(client, transactional_ids, deadline)).items():
        if isinstance(found, ApiError):
            results[name] = found
        else:
            by_coordinator.setdefault(found, []).append(name)
    answers = await asyncio.gather(
        *(_ask_coordinator(client, one, names, deadline) for one, names in by_coordinator.items())
    )
    for answer in answers:
        results |= answer
    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its answer")
    return {name: results.get(name, missing) for name in transactional_ids}


async def _find_coordinators(
    client: Client, transactional_ids: Sequence[str], deadline: Deadline
) -> dict[str, int | ApiError]:
    """The coordinator of each id, by one request if the broker can."""
    try:
        connection = await client.any_connection(deadline)
        if connection.version_for(ApiKey.FIND_COORDINATOR) < _SEVERAL_KEYS:
            found = {}
            for name in transactional_ids:
                alone = FindCoordinatorRequest(key=name, key_type=CoordinatorType.TRANSACTION)
                response = await client.ask(
                    connection, ApiKey.FIND_COORDINATOR, alone, FindCoordinatorResponse, deadline
                )
                found[name] = _coordinator(name, response.error_code, response.node_id)
            return found
        together = FindCoordinatorRequest(
            key_type=CoordinatorType.TRANSACTION, coordinator_keys=tuple(transactional_ids)
        )
        response = await client.ask(
            connection, ApiKey.FIND_COORDINATOR, together, FindCoordinatorResponse, deadline
        )
    except ApiError as error:
        return dict.fromkeys(transactional_ids, error)
    return {
        one.key: _coordinator(one.key, one.error_code, one.node_id) for one in response.coordinators
    }


def _coordinator(name: str, code: int, node_id: int) -> int | ApiError:
    if code == ErrorCode.NONE:
        return node_id
    return api_error(code, None, f"coordinator of transactional id {name!r}")


async def _ask_coordinator(
    client: Client, node_id: int, transactional_ids: Sequence[str], deadline: Deadline
) -> dict[str, TransactionDescription | ApiError]:
    request = described.DescribeTransactionsRequest(transactional_ids=transactional_ids)
    try:
        connection = await client.connection_to(node_id, deadline)
        response = await client.ask(
            connection,
            ApiKey.DESCRIBE_TRANSACTIONS,
            request,
            described.DescribeTransactionsResponse,
            deadline,
        )
    except ApiError as error:
        return dict.fromkeys(transactional_ids, error)
    return {one.transactional_id: _description(node_id, one) for one in response.transaction_states}


def _description(
    node_id: int, one: described.TransactionState
) -> TransactionDescription | ApiError:
    name = one.transactional_id
    if one.error_code != ErrorCode.NONE:
        return api_error(one.error_code, None, f"transactional id {name!r}")
    return TransactionDescription(
        name,
        node_id,
        one.producer_id,
        one.producer_epoch,
        one.transaction_state,
        one.transaction_timeout_ms,
        one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
        tuple(
            sorted(
                TopicPartition(topic.topic, number)
                for topic in one.topics
                for number in topic.partitions
            )
        ),
    )


# Aborts


async def abort_transactions(
    client: Client, transactions: Iterable[OpenTransaction], *, deadline: Deadline
) -> dict[OpenTransaction, ApiError | None]:
    """Lets the leaders write abort markers; None for each transaction whose marker is written.

    Not repeated after a lost answer: the producer may have begun another one in the same epoch.
    """

    async def abort(one: OpenTransaction) -> ApiError | None:
        call: LeaderCall[None, None] = LeaderCall(
            api_key=ApiKey.WRITE_TXN_MARKERS,
            answer_type=WriteTxnMarkersResponse,
            build=lambda _work, _cluster: _marker(one),
            read=lambda response, _cluster: _read_markers(response, one),
            repeatable=False,
        )
        results = await ask_leaders(client, call, {one.partition: None}, deadline)
        return results[one.partition]

    wanted = list(dict.fromkeys(transactions))
    return dict(zip(wanted, await asyncio.gather(*map(abort, wanted)), strict=True))


def _marker(one: OpenTransaction) -> Message:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                transaction_result=False,
                # No coordinator has written here yet: 0 is at most the epoch of any.
                coordinator_epoch=max(one.coordinator_epoch, 0),
                topics=[
                    WritableTxnMarkerTopic(
                        name=one.partition.topic, partition_indexes=[one.partition.partition]
                    )
                ],
            )
        ]
    )


def _read_markers(
    response: Message, wanted: OpenTransaction
) -> Iterator[tuple[TopicPartition, ApiError | None]]:
    assert isinstance(response, WriteTxnMarkersResponse)
    for marker in response.markers:
        if marker.producer_id != wanted.producer_id:
            continue
        for topic in marker.topics:
            for answer in topic.partitions:
                tp = TopicPartition(topic.name, answer.partition_index)
                is_done = answer.error_code == ErrorCode.NONE
                what = f"the transaction of producer {wanted.producer_id} in {tp}"
                yield tp, None if is_done else api_error(answer.error_code, None, what)
