"""Produce: appends batches to the leaders here; answered as `acks` demands.

A request for one partition, as clients that do not batch send it, has a path of its own: its parts
are not put into tables of one row. An unusual request of this kind takes the general path, before
anything was done for it, and so does one with a transactional batch: the first one of a transaction
waits for the coordinator (`_transactional_produces`).
"""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from struct import Struct

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.broker.slices import LONG_REQUEST_BYTES
from odradek.errors import CorruptRecordError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.network.request import (
    ONE_SUCCESS,
    CloseConnectionResponse,
    NoOpResponse,
    Request,
    Response,
    SendResponse,
)
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.produce import (
    ManyRowsError,
    PartitionProduceResult,
    ProduceView,
    encode_produce_response,
    parse_produce_request,
)
from odradek.protocol.hot.single_produce import (
    SingleProduce,
    encode_single_success,
    parse_single_produce,
)
from odradek.records.batch import (
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_MASK,
    BatchHeader,
    parse_header,
)
from odradek.replication import Partition, ProduceResult
from odradek.security.authorizer import ALLOW_EVERYTHING
from odradek.security.operations import Operation, ResourceType
from odradek.storage.log.expansion import ExpandedRecords

__all__ = [
    "answer_produce",
    "expand_batches",
    "handle_produce",
    "problem_with_transaction",
    "produce_row",
    "produce_throttle_ms",
    "split_produce",
]

logger = logging.getLogger(__name__)

_FIRST_SERVED_VERSION = 3  # Older versions cannot carry the only stored format.
_FIRST_ZSTD_VERSION = 7
# A request for more topics and partitions is served in slices.
_MANY_ROWS = 100
_ZSTD = 4  # The codec, as the attributes of a batch name it.

# Of a batch: the length at 8, the magic at 16, the attributes at 21.
_LENGTH_MAGIC_ATTRIBUTES = Struct(">8xi4xB4xh").unpack_from

_WRITE = Operation.WRITE
_TOPIC = ResourceType.TOPIC
_NONE = ErrorCode.NONE
_NO_ERROR = [_NONE]  # Of a request for one partition, as most are.
_NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def handle_produce(request: Request, context: BrokerContext) -> Response | None:
    """Appends and answers, now or when the in-sync replicas have the batches."""
    version = request.header.api_version
    single = parse_single_produce(request.payload, request.body_offset, version)
    if single is not None:
        partition = _single_partition(single, version, context)
        if partition is not None:
            return _append_single(request, partition, single, context)
    try:
        view = parse_produce_request(request.payload, request.body_offset, version)
    except ManyRowsError:
        _serve_many(request, None, context)
        return None
    size = len(request.payload)
    if size > LONG_REQUEST_BYTES and _row_count(view) > _MANY_ROWS:
        _serve_many(request, view, context)
        return None
    entries, refused, order, transactional = split_produce(request, view, context)

    def respond(results: Mapping[TopicPartition, ProduceResult]) -> None:
        throttle_ms = produce_throttle_ms(request, view.acks, size, context)
        if refused:
            results = {**refused, **results}
        request.reply(answer_produce(request, view.acks, results, order, throttle_ms, context))

    def respond_or_expand(results: Mapping[TopicPartition, ProduceResult]) -> None:
        if not expand_batches(
            request, entries, results, view.acks, view.timeout_ms, respond, context
        ):
            respond(results)

    if not entries:
        respond({})
        return None
    if transactional:
        _append_transactional(view, entries, transactional, version, respond_or_expand, context)
        return None
    context.replicas.appends.append_records(
        timeout_ms=view.timeout_ms,
        required_acks=view.acks,
        # For no client, whatever its client id (10 section 6.1): a name is no right.
        internal_topics_allowed=False,
        origin=AppendOrigin.CLIENT,
        entries=entries,
        respond=respond_or_expand,
    )
    return None


def _row_count(view: ProduceView) -> int:
    return sum([1 + len(partitions) for _, partitions in view.topics])


def _serve_many(request: Request, view: ProduceView | None, context: BrokerContext) -> None:
    # Imported late, since it uses parts of this module.
    from odradek.broker.handlers._many_produces import serve_many

    serve_many(request, view, context)


def _append_transactional(
    view: ProduceView,
    entries: Mapping[TopicPartition, memoryview],
    transactional: Mapping[TopicPartition, BatchHeader],
    version: int,
    respond: Callable[[Mapping[TopicPartition, ProduceResult]], None],
    context: BrokerContext,
) -> None:
    # Imported late: most producers have no transactions.
    from odradek.broker.handlers._transactional_produces import append_transactional

    append_transactional(view, entries, transactional, version, respond, context)


def expand_batches(
    request: Request,
    entries: Mapping[TopicPartition, memoryview],
    results: Mapping[TopicPartition, ProduceResult],
    acks: int,
    timeout_ms: int,
    respond: Callable[[Mapping[TopicPartition, ProduceResult]], None],
    context: BrokerContext,
) -> bool:
    """Starts to expand batches that need it; returns whether the request is answered later."""
    deferred = {
        tp: (ExpandedRecords(entries[tp]), result.expand)
        for tp, result in results.items()
        if result.expand is not None
    }
    if not deferred or context.expansions is None:
        return False

    def append(expanded: Mapping[TopicPartition, ExpandedRecords]) -> None:
        context.replicas.appends.append_records(
            timeout_ms=timeout_ms,
            required_acks=acks,
            internal_topics_allowed=False,
            origin=AppendOrigin.CLIENT,
            entries=expanded,
            respond=lambda appended: respond({**results, **appended}),
        )

    context.expansions.start(request, deferred, append)
    return True


def _single_partition(
    single: SingleProduce, version: int, context: BrokerContext
) -> Partition | None:
    """The partition of a request for one partition; None if it needs the general path."""
    acks, _, topic, index, records = single
    if (acks != -1 and acks != 1) or len(records) < HEADER_SIZE:
        return None
    name = topic if isinstance(topic, str) else _name_of(topic, context)
    if name is None or name in context.internal_topics:
        return None
    length, magic, attributes = _LENGTH_MAGIC_ATTRIBUTES(records)
    if (
        magic != CURRENT_MAGIC
        or length + LOG_OVERHEAD != len(records)
        or attributes & TRANSACTIONAL_MASK
        or (version < _FIRST_ZSTD_VERSION and attributes & CODEC_MASK)
    ):
        return None
    # A hosted partition exists. For any other the general path finds the error.
    return context.replicas.find_online(name, index)


def _append_single(
    request: Request, partition: Partition, single: SingleProduce, context: BrokerContext
) -> Response | None:
    """Appends to one partition; returns the answer, or None if it waits for in-sync replicas."""
    acks, timeout_ms, topic, index, records = single
    tp = partition.tp
    authorizer = context.authorizer
    sender = request.context
    if authorizer is not ALLOW_EVERYTHING and not authorizer.is_allowed(
        sender.principal, sender.client_address, _WRITE, _TOPIC, tp.topic
    ):
        denied = ProduceResult(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _answer_single(request, tp, single, denied, context)
    appends = context.replicas.appends
    stored = appends.append_single(partition, records, acks)
    if isinstance(stored, ProduceResult):

        def answer_expanded(results: Mapping[TopicPartition, ProduceResult]) -> None:
            request.reply(_answer_single(request, tp, single, results[tp], context))

        if stored.expand is not None and expand_batches(
            request, {tp: records}, {tp: stored}, acks, timeout_ms, answer_expanded, context
        ):
            return None
        return _answer_single(request, tp, single, stored, context)
    if acks == -1 and partition.has_followers:

        def respond(result: ProduceResult) -> None:
            request.reply(_answer_single(request, tp, single, result, context))

        appends.await_replicas(partition, stored, timeout_ms, respond)
        return None
    throttle_ms = 0
    if context.quotas.limits_traffic:
        throttle_ms = produce_throttle_ms(request, acks, len(request.payload), context)
    first_offset = stored.first_offset
    assert first_offset is not None, "a batch of the current format has one"
    request.errors = ONE_SUCCESS
    header = request.header
    answer = encode_single_success(
        header.api_version,
        header.correlation_id,
        topic,
        index,
        first_offset,
        stored.log_append_time,
        stored.log_start_offset,
        throttle_ms,
    )
    return SendResponse(request, [answer])


def _answer_single(
    request: Request,
    tp: TopicPartition,
    single: SingleProduce,
    result: ProduceResult,
    context: BrokerContext,
) -> Response:
    """The answer of the general path to a request for one partition."""
    acks, _, topic, _, _ = single
    throttle_ms = produce_throttle_ms(request, acks, len(request.payload), context)
    return answer_produce(request, acks, {tp: result}, [(topic, [tp])], throttle_ms, context)


# (topic as the client names it, its partitions) in the order of the request.
_Order = list[tuple[str | bytes, list[TopicPartition]]]


def split_produce(
    request: Request,
    view: ProduceView,
    context: BrokerContext,
    denial: ProduceResult | None = None,
) -> tuple[
    dict[TopicPartition, memoryview],
    dict[TopicPartition, ProduceResult],
    _Order,
    dict[TopicPartition, BatchHeader],
]:
    """Returns the batches to append, the refused partitions, the order of the answer.

    And the headers of the transactional ones of these batches. `denial` is that of a request of
    which the view is a part.
    """
    entries: dict[TopicPartition, memoryview] = {}
    transactional: dict[TopicPartition, BatchHeader] = {}
    refused: dict[TopicPartition, ProduceResult] = {}
    order: _Order = []
    version = request.header.api_version
    is_known = context.cache.contains
    denial = denial or _denial_of_transaction(request, view, context)
    for topic, partitions in view.topics:
        name = topic if isinstance(topic, str) else _name_of(topic, context)
        known = name if name is not None else str(topic)
        may_write = name is None or is_allowed(
            context.authorizer, request, Operation.WRITE, ResourceType.TOPIC, name
        )
        named: list[TopicPartition] = []
        for partition, records in partitions:
            tp = TopicPartition(known, partition)
            named.append(tp)
            if denial is not None:
                refused[tp] = denial
            elif not may_write:
                refused[tp] = ProduceResult(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif name is None:
                refused[tp] = ProduceResult(error=ErrorCode.UNKNOWN_TOPIC_ID)
            elif tp in entries or tp in refused:
                entries.pop(tp, None)
                refused[tp] = ProduceResult(
                    error=ErrorCode.INVALID_REQUEST,
                    error_message=f"{tp} is named twice in the request",
                )
            elif (found := _check(records, version)) is not None and not isinstance(
                found, BatchHeader
            ):
                refused[tp] = found
            elif not is_known(tp):
                refused[tp] = ProduceResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                assert records is not None
                entries[tp] = records
                if found is not None:
                    transactional[tp] = found
        order.append((topic, named))
    if transactional:
        denial = problem_with_transaction(
            view.transactional_id,
            {(header.producer_id, header.producer_epoch) for header in transactional.values()},
        )
        if denial is not None:
            refused.update(dict.fromkeys(entries, denial))
            return {}, refused, order, {}
        transactional = {tp: transactional[tp] for tp in transactional if tp in entries}
    return entries, refused, order, transactional


def problem_with_transaction(
    transactional_id: str | None, producers: Collection[tuple[int, int]]
) -> ProduceResult | None:
    """The refusal of a whole request with transactional batches of these producers and epochs."""
    if not transactional_id:
        return ProduceResult(
            error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            error_message="the request has a transactional batch and no transactional id",
        )
    if len(producers) > 1:
        return ProduceResult(
            error=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            error_message="the transactional batches of the request have several producers:"
            f" {sorted(producers)[:10]}",
        )
    return None


def _denial_of_transaction(
    request: Request, view: ProduceView, context: BrokerContext
) -> ProduceResult | None:
    """The error if the client may not use the transactional id of its request."""
    transactional_id = view.transactional_id
    if transactional_id is None or is_allowed(
        context.authorizer,
        request,
        Operation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        transactional_id,
    ):
        return None
    return ProduceResult(error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _name_of(topic_id: bytes, context: BrokerContext) -> str | None:
    return context.cache.get_topic_name(uuid.UUID(bytes=topic_id))


def _check(records: memoryview | None, version: int) -> ProduceResult | BatchHeader | None:
    """The refusal of records that a version cannot carry; None if they are accepted.

    The header of a batch that is accepted as part of a transaction.
    """
    if records is not None and len(records) >= HEADER_SIZE and version >= _FIRST_ZSTD_VERSION:
        # The usual case: one batch of the current format, with the length it states.
        length, magic, attributes = _LENGTH_MAGIC_ATTRIBUTES(records)
        if (
            magic == CURRENT_MAGIC
            and length + LOG_OVERHEAD == len(records)
            and not attributes & TRANSACTIONAL_MASK
        ):
            return None
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
    if header.attributes & CODEC_MASK == _ZSTD and version < _FIRST_ZSTD_VERSION:
        return ProduceResult(
            error=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            error_message=f"zstd needs Produce {_FIRST_ZSTD_VERSION}, this is {version}",
        )
    if not header.attributes & TRANSACTIONAL_MASK:
        return None
    if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        return ProduceResult(
            error=ErrorCode.INVALID_RECORD,
            error_message="a transactional batch has a producer id, epoch and sequence; found"
            f" {header.producer_id}, {header.producer_epoch} and {header.base_sequence}",
        )
    return header


def answer_produce(
    request: Request,
    acks: int,
    results: Mapping[TopicPartition, ProduceResult],
    order: _Order,
    throttle_ms: int,
    context: BrokerContext,
) -> Response:
    """The answer to a request, in the order of its topics; none without acks."""
    if acks == 0:
        failed = {tp: r.error.name for tp, r in results.items() if r.error is not _NONE}
        if not failed:
            return NoOpResponse(request)
        # The client expects no answer; a closed connection makes it refresh its metadata.
        return CloseConnectionResponse(request, f"a produce with acks=0 failed: {failed}")
    request.errors = _count_errors(results)
    header = request.header
    topics = [
        (topic, [produce_row(tp, results[tp], context) for tp in partitions])
        for topic, partitions in order
    ]
    body = encode_produce_response(header.api_version, topics, throttle_time_ms=throttle_ms)
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return SendResponse(request, [start + body])


def produce_throttle_ms(request: Request, acks: int, size: int, context: BrokerContext) -> int:
    """The throttle time of the client, for its bytes or its time; see `broker.quotas`."""
    quotas = context.quotas
    if not quotas.limits_traffic:
        return 0
    throttle_ms = quotas.produce_throttle_ms(request, size)
    if acks != 0:
        return request_throttle_ms(request, context, other_ms=throttle_ms)
    if throttle_ms > 0:
        request.throttle(throttle_ms)
    return throttle_ms


def _count_errors(results: Mapping[TopicPartition, ProduceResult]) -> Mapping[ErrorCode, int]:
    errors = [result.error for result in results.values()]
    return ONE_SUCCESS if errors == _NO_ERROR else Counter(errors)


def produce_row(
    tp: TopicPartition, result: ProduceResult, context: BrokerContext
) -> PartitionProduceResult:
    """The row of a partition in the answer."""
    error, base_offset, log_append_time_ms, log_start_offset, record_errors, message, _ = result
    leader = None
    if error is _NOT_LEADER:
        state = context.cache.get_partition_info(tp.topic, tp.partition)
        leader = (state.leader, state.leader_epoch) if state is not None else None
    return PartitionProduceResult(
        tp.partition,
        error,
        base_offset,
        log_append_time_ms,
        log_start_offset,
        record_errors,
        message,
        leader,
    )
