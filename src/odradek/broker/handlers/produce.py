"""Produce: batches to the leaders here, answered as `acks` asks."""

import logging
import uuid
from collections.abc import Mapping

from odradek.broker.context import BrokerContext
from odradek.errors import CorruptRecordError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.network.request import (
    CloseConnectionResponse,
    NoOpResponse,
    Request,
    Response,
    SendResponse,
)
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.produce import (
    PartitionProduceResult,
    ProduceView,
    encode_produce_response,
    parse_produce_request,
)
from odradek.records.batch import CODEC_MASK, CURRENT_MAGIC, HEADER_SIZE, parse_header
from odradek.records.compression import Codec
from odradek.replication import ProduceResult

__all__ = ["handle_produce"]

logger = logging.getLogger(__name__)

_FIRST_SERVED_VERSION = 3  # Older ones cannot carry the only format that is stored.
_FIRST_ZSTD_VERSION = 7
_FIRST_ID_VERSION = 13
_ADMIN_CLIENT_ID = "__admin_client"  # May write to internal topics.


def handle_produce(request: Request, context: BrokerContext) -> Response | None:
    """Appends and answers, now or when the in-sync replicas have followed."""
    version = request.header.api_version
    view = parse_produce_request(request.payload, request.body_offset, version)
    size = len(request.payload)
    entries, refused, order = _split(view, version, context)

    def respond(results: Mapping[TopicPartition, ProduceResult]) -> None:
        throttle_ms = context.quotas.produce_throttle_ms(request, size)
        if throttle_ms > 0:
            context.throttle(request, throttle_ms)
        context.send(_answer(request, view, {**refused, **results}, order, throttle_ms, context))

    if not entries:
        respond({})
        return None
    context.replicas.append_records(
        timeout_ms=view.timeout_ms,
        required_acks=view.acks,
        internal_topics_allowed=request.header.client_id == _ADMIN_CLIENT_ID,
        origin=AppendOrigin.CLIENT,
        entries=entries,
        respond=respond,
    )
    return None


# (topic as the client names it, [(partition, its key here)]) in the order of the request.
_Order = list[tuple[str | bytes, list[tuple[int, TopicPartition]]]]


def _split(
    view: ProduceView, version: int, context: BrokerContext
) -> tuple[dict[TopicPartition, memoryview], dict[TopicPartition, ProduceResult], _Order]:
    """What to append, what is refused before that, and the order of the answer."""
    entries: dict[TopicPartition, memoryview] = {}
    refused: dict[TopicPartition, ProduceResult] = {}
    order: _Order = []
    for topic, partitions in view.topics:
        name = _name_of(topic, context)
        rows: list[tuple[int, TopicPartition]] = []
        for partition, records in partitions:
            tp = TopicPartition(name if name is not None else str(topic), partition)
            rows.append((partition, tp))
            if name is None:
                refused[tp] = ProduceResult(error=ErrorCode.UNKNOWN_TOPIC_ID)
            elif tp in entries or tp in refused:
                entries.pop(tp, None)
                refused[tp] = ProduceResult(
                    error=ErrorCode.INVALID_REQUEST,
                    error_message=f"{tp} comes twice in the request",
                )
            elif (problem := _problem_with(records, version)) is not None:
                refused[tp] = problem
            elif not context.cache.contains(tp):
                refused[tp] = ProduceResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                assert records is not None
                entries[tp] = records
        order.append((topic, rows))
    return entries, refused, order


def _name_of(topic: str | bytes, context: BrokerContext) -> str | None:
    if isinstance(topic, str):
        return topic
    return context.cache.get_topic_name(uuid.UUID(bytes=topic))


def _problem_with(records: memoryview | None, version: int) -> ProduceResult | None:
    """Why a client's records cannot be taken, by the version it speaks; None if they can."""
    if version < _FIRST_SERVED_VERSION:
        return ProduceResult(
            error=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            error_message="messages before format v2 are not stored; use a client since 0.11",
        )
    if records is None or len(records) < HEADER_SIZE:
        return ProduceResult(
            error=ErrorCode.INVALID_RECORD,
            error_message="expected exactly one record batch of format v2",
        )
    try:
        header = parse_header(records)
    except CorruptRecordError as error:
        return ProduceResult(error=error.code, error_message=str(error))
    if header is None or header.size != len(records) or header.magic != CURRENT_MAGIC:
        return ProduceResult(
            error=ErrorCode.INVALID_RECORD,
            error_message="expected exactly one record batch of format v2",
        )
    if header.attributes & CODEC_MASK == Codec.ZSTD and version < _FIRST_ZSTD_VERSION:
        return ProduceResult(
            error=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            error_message=f"zstd needs Produce {_FIRST_ZSTD_VERSION}, this is {version}",
        )
    return None


def _answer(
    request: Request,
    view: ProduceView,
    results: Mapping[TopicPartition, ProduceResult],
    order: _Order,
    throttle_ms: int,
    context: BrokerContext,
) -> Response:
    if view.acks == 0:
        failed = {tp: r.error.name for tp, r in results.items() if r.error is not ErrorCode.NONE}
        if not failed:
            return NoOpResponse(request)
        # There is nobody to tell; a closed connection makes the client look again.
        return CloseConnectionResponse(request, f"a produce with acks=0 failed: {failed}")
    header = request.header
    topics = [
        (topic, [_row(partition, results[tp], tp, context) for partition, tp in rows])
        for topic, rows in order
    ]
    body = encode_produce_response(header.api_version, topics, throttle_time_ms=throttle_ms)
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return SendResponse(request, [start + body])


def _row(
    partition: int, result: ProduceResult, tp: TopicPartition, context: BrokerContext
) -> PartitionProduceResult:
    leader = None
    if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        state = context.cache.get_partition_info(tp.topic, tp.partition)
        leader = (state.leader, state.leader_epoch) if state is not None else None
    return PartitionProduceResult(
        partition,
        result.error,
        result.base_offset,
        result.log_append_time_ms,
        result.log_start_offset,
        result.record_errors,
        result.error_message,
        leader,
    )
