"""Produce to many partitions: appended and answered in portions.

Each portion is served like a request of its own, in the order of the request; the answer leaves
when all are done. A request that arrived whole is served to its end, whether its client waits or
not, since a client without acks may disconnect at once.
"""

from collections.abc import Generator, Mapping
from typing import Final, NamedTuple, cast

from odradek.broker.context import BrokerContext
from odradek.broker.handlers._transactional_produces import append_transactional, find_denial
from odradek.broker.handlers.produce import (
    answer_produce,
    expand_batches,
    produce_row,
    produce_throttle_ms,
    split_produce,
)
from odradek.broker.slices import Gathering, Steps, StepsOrNone, portions, start_in_slices
from odradek.errors import ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.network.request import Request, SendResponse
from odradek.protocol.codec import encode_message_steps, parse_message_steps
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.produce import PartitionRecords, ProduceView, produce_partition_message
from odradek.protocol.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.replication import ProduceResult

__all__ = ["serve_many"]

# Partitions of a portion: some twenty microseconds each.
_APPENDED_AT_ONCE: Final = 20
_FIRST_HINTS_VERSION: Final = 10
_FIRST_ID_VERSION: Final = 13


class _Row(NamedTuple):
    """A partition of the request."""

    topic: str | bytes
    partition: PartitionRecords


def serve_many(request: Request, view: ProduceView | None, context: BrokerContext) -> None:
    """Serves a request for many partitions; one that is not parsed yet is parsed in slices.

    Raises:
        DecodeError: It is malformed.
    """
    steps = _append_all(request, view, context)
    start_in_slices(request, steps, context, outlives_client=True)


def _parse(request: Request) -> Generator[None, None, ProduceView]:
    message = yield from parse_message_steps(
        ProduceRequest, request.payload, request.header.api_version, request.body_offset
    )
    by_id = request.header.api_version >= _FIRST_ID_VERSION
    topics: list[tuple[str | bytes, list[PartitionRecords]]] = []
    for topic in message.topic_data:
        partitions: list[PartitionRecords] = []
        for row in topic.partition_data:
            # The codec leaves records as they are: a view of the request.
            partitions.append((row.index, cast("memoryview | None", row.records)))
            yield
        topics.append((topic.topic_id if by_id else topic.name, partitions))
        yield
    return ProduceView(message.transactional_id, message.acks, message.timeout_ms, topics)


def _append_all(request: Request, view: ProduceView | None, context: BrokerContext) -> StepsOrNone:
    if view is None:
        view = yield from _parse(request)
    rows, repeated = yield from _rows_of(view)
    denial = yield from find_denial(view)
    results: dict[tuple[str | bytes, int], tuple[TopicPartition, ProduceResult]] = {}
    gathering = Gathering(
        lambda: start_in_slices(
            request, _answer(request, view, results, context), context, outlives_client=True
        )
    )
    for portion in portions(rows, _APPENDED_AT_ONCE):
        gathering.begin()
        _append(request, view, portion, repeated, denial, results, gathering, context)
        yield
    gathering.end()
    return None


def _rows_of(
    view: ProduceView,
) -> Generator[None, None, tuple[list[_Row], set[tuple[str | bytes, int]]]]:
    """The partitions of the request, each once, and those that are named twice."""
    rows: dict[tuple[str | bytes, int], _Row] = {}
    repeated: set[tuple[str | bytes, int]] = set()
    for topic, partitions in view.topics:
        for partition in partitions:
            key = (topic, partition[0])
            if key in rows:
                repeated.add(key)
            rows[key] = _Row(topic, partition)
            yield
        yield
    return list(rows.values()), repeated


def _append(
    request: Request,
    view: ProduceView,
    portion: list[_Row],
    repeated: set[tuple[str | bytes, int]],
    denial: ProduceResult | None,
    results: dict[tuple[str | bytes, int], tuple[TopicPartition, ProduceResult]],
    gathering: Gathering,
    context: BrokerContext,
) -> None:
    topics: dict[str | bytes, list[PartitionRecords]] = {}
    for topic, partition in portion:
        topics.setdefault(topic, []).append(partition)
    entries, refused, order, transactional = split_produce(
        request, view._replace(topics=list(topics.items())), context, denial
    )
    for topic, named in order:
        for tp in named:
            if (topic, tp.partition) in repeated:
                entries.pop(tp, None)
                transactional.pop(tp, None)
                refused[tp] = ProduceResult(
                    error=ErrorCode.INVALID_REQUEST,
                    error_message=f"{tp} is named twice in the request",
                )

    def respond(appended: Mapping[TopicPartition, ProduceResult]) -> None:
        for topic, named in order:
            for tp in named:
                results[topic, tp.partition] = tp, refused.get(tp) or appended[tp]
        gathering.end()

    def respond_or_expand(appended: Mapping[TopicPartition, ProduceResult]) -> None:
        if not expand_batches(
            request, entries, appended, view.acks, view.timeout_ms, respond, context
        ):
            respond(appended)

    if not entries:
        respond({})
        return
    if transactional:
        version = request.header.api_version
        append_transactional(view, entries, transactional, version, respond_or_expand, context)
        return
    context.replicas.appends.append_records(
        timeout_ms=view.timeout_ms,
        required_acks=view.acks,
        internal_topics_allowed=False,
        origin=AppendOrigin.CLIENT,
        entries=entries,
        respond=respond_or_expand,
    )


def _answer(
    request: Request,
    view: ProduceView,
    results: Mapping[tuple[str | bytes, int], tuple[TopicPartition, ProduceResult]],
    context: BrokerContext,
) -> Steps:
    header = request.header
    version = header.api_version
    throttle_ms = produce_throttle_ms(request, view.acks, len(request.payload), context)
    if view.acks == 0:
        return answer_produce(request, 0, dict(results.values()), [], throttle_ms, context)
    hints = version >= _FIRST_HINTS_VERSION
    errors: dict[ErrorCode, int] = {}
    responses = []
    for topic, partitions in view.topics:
        rows = []
        for number, _ in partitions:
            tp, result = results[topic, number]
            errors[result.error] = errors.get(result.error, 0) + 1
            row = produce_row(tp, result, context)
            rows.append(produce_partition_message(row, hints=hints))
            yield
        if isinstance(topic, str):
            responses.append(TopicProduceResponse(name=topic, partition_responses=rows))
        else:
            responses.append(TopicProduceResponse(topic_id=topic, partition_responses=rows))
        yield
    request.errors = errors
    response = ProduceResponse(responses=responses, throttle_time_ms=throttle_ms)
    chunks = yield from encode_message_steps(response, version)
    start = encode_response_header(header.api_key, version, header.correlation_id)
    return SendResponse(request, [start, *chunks])
