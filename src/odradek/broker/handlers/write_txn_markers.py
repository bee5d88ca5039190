"""WriteTxnMarkers: has the leaders of this broker write the ends of transactions.

Transaction coordinators of other brokers send it, by a listener of brokers and with CLUSTER_ACTION.
Administrators end transactions with it that no coordinator knows any more: they need ALTER on the
cluster.
"""

from collections.abc import Generator

from odradek.broker.authorization import check_is_peer, is_allowed
from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.broker.error_counts import count_errors_steps
from odradek.broker.slices import Steps, StepsOrNone, body_of, in_slices, start_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition, TransactionMarker
from odradek.network.request import Request, SendResponse
from odradek.protocol.codec import encode_message_steps
from odradek.protocol.headers import encode_response_header
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_write_txn_markers"]


@in_slices
def handle_write_txn_markers(request: Request, context: BrokerContext) -> StepsOrNone:
    """Answers when the markers are on every replica in sync; a partition's error is its own."""
    markers = yield from _parse(body_of(WriteTxnMarkersRequest, request))
    is_peer = _is_peer(request, context)
    if not is_peer and not is_allowed(context.authorizer, request, Operation.ALTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        results = []
        for marker in markers:
            results.append(dict.fromkeys(marker.partitions, denied))
            yield
        return (yield from _answer(request, markers, results, context, is_peer=is_peer))

    def respond(results: list[dict[TopicPartition, ErrorCode]]) -> None:
        answer = _answer(request, markers, results, context, is_peer=is_peer)
        start_in_slices(request, answer, context)

    assert context.markers is not None, "given to every broker that serves requests"
    yield from context.markers.steps(markers, respond)
    return None


def _is_peer(request: Request, context: BrokerContext) -> bool:
    try:
        check_is_peer(request, context)
    except ApiError:
        return False
    return True


def _parse(message: WriteTxnMarkersRequest) -> Generator[None, None, list[TransactionMarker]]:
    markers = []
    for marker in message.markers:
        partitions: dict[TopicPartition, None] = {}
        for topic in marker.topics:
            name = topic.name
            for start in range(0, len(topic.partition_indexes), 100):
                for number in topic.partition_indexes[start : start + 100]:
                    partitions[TopicPartition(name, number)] = None
                yield
            yield
        markers.append(
            TransactionMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_commit=marker.transaction_result,
                transaction_version=marker.transaction_version,
                partitions=tuple(partitions),
            )
        )
        yield
    return markers


def _answer(
    request: Request,
    markers: list[TransactionMarker],
    results: list[dict[TopicPartition, ErrorCode]],
    context: BrokerContext,
    *,
    is_peer: bool,
) -> Steps:
    rows = []
    for marker, result in zip(markers, results, strict=True):
        topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
        for tp, error in result.items():
            row = WritableTxnMarkerPartitionResult(partition_index=tp.partition, error_code=error)
            topics.setdefault(tp.topic, []).append(row)
            yield
        named = [
            WritableTxnMarkerTopicResult(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
        rows.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=named))
        yield
    response = WriteTxnMarkersResponse(markers=rows)
    header = request.header
    chunks = yield from encode_message_steps(response, header.api_version)
    request.errors = yield from count_errors_steps(response)
    if not is_peer:
        # The answer has no field for it: the client's connection is not read for that time.
        request_throttle_ms(request, context)
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return SendResponse(request, [start, *chunks])
