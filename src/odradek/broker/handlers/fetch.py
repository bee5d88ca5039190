"""Fetch: bytes of local logs, as they are stored, with a session or without."""

import uuid
from collections import Counter
from collections.abc import Sequence, Sized
from types import MappingProxyType
from typing import NamedTuple, cast

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import Request, Response, SendResponse
from odradek.network.send_queue import Chunk
from odradek.protocol.enums import IsolationLevel
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.fetch_request import FetchPartitionTuple, FetchView, parse_fetch_request
from odradek.protocol.hot.fetch_response import (
    FetchPartitionResult,
    encode_fetch_response_chunks,
    encode_fetch_start,
    encode_fetch_topics,
)
from odradek.purgatory import DelayedOperation
from odradek.replication import (
    FetchParams,
    FetchPartition,
    FetchResult,
    FetchResults,
)
from odradek.replication.delayed_fetch import MANY_PARTITIONS
from odradek.replication.fetch_session import FetchContext, PartitionKey, SessionPartition
from odradek.replication.fetch_values import ClientPlace, EncodedResult
from odradek.security.operations import Operation, ResourceType

__all__ = [
    "READ_COMMITTED",
    "FetchWish",
    "answer_fetch",
    "fetch_throttle_ms",
    "handle_fetch",
    "is_known_partition",
    "may_read_followers",
    "place_of",
]

_FIRST_SERVED_VERSION = 4
_FIRST_SOFT_LIMIT_VERSION = 3
_FIRST_STORAGE_ERROR_VERSION = 6
_FIRST_SESSION_VERSION = 7
_FIRST_ZSTD_VERSION = 10
_FIRST_RACK_VERSION = 11
_FIRST_ID_VERSION = 13
READ_COMMITTED = IsolationLevel.READ_COMMITTED
_NONE = ErrorCode.NONE
# The errors of an answer with one partition: its own and the partition's.
_TWO_SUCCESSES = MappingProxyType({ErrorCode.NONE: 2})


def handle_fetch(request: Request, context: BrokerContext) -> Response | None:
    """Reads and answers, now or when there are enough bytes."""
    version = request.header.api_version
    view = parse_fetch_request(request.payload, request.body_offset, version)
    if version < _FIRST_SERVED_VERSION:
        return _refuse_old_version(request, view)
    if view.replica_id >= 0:
        request.metrics_name = "FetchFollower"
    else:
        request.metrics_name = "FetchConsumer"
    try:
        session = _begin(view, version, context)
    except ApiError as error:
        return answer_fetch(request, [], 0, error.code, 0)
    if len(session.partitions) > MANY_PARTITIONS:
        wish = FetchWish(
            view.max_wait_ms,
            view.min_bytes,
            view.max_bytes,
            view.replica_id,
            view.replica_epoch,
            view.isolation_level == READ_COMMITTED,
            place_of(request, view.rack_id),
        )
        _serve_many(request, context, session, wish)
        return None
    fetching = _Fetching(request, context, session, view.replica_id)
    readable = fetching.split(version)
    max_bytes = min(view.max_bytes, context.max_fetch_bytes)
    if view.replica_id < 0:
        quota_bytes = context.quotas.max_fetch_bytes(request)
        max_bytes = max_bytes if quota_bytes is None else min(max_bytes, quota_bytes)
    params = FetchParams(
        0 if fetching.refused else view.max_wait_ms,
        view.min_bytes,
        max_bytes,
        view.replica_id,
        version < _FIRST_SOFT_LIMIT_VERSION,
        view.isolation_level == READ_COMMITTED,
        may_read_followers(request, context),
        view.replica_epoch,
        place_of(request, view.rack_id),
    )
    reads, news = context.replicas.reads, session.news
    if news is None:
        reads.fetch(params, readable, fetching.respond, on_parked=fetching.park)
    else:
        reads.fetch_news(params, readable, news, fetching)
    return None


class FetchWish(NamedTuple):
    """What a client wants of a fetch as a whole."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    replica_id: int
    replica_epoch: int  # Of the follower's registration; -1 if it is not known.
    is_read_committed: bool
    place: ClientPlace | None


def may_read_followers(request: Request, context: BrokerContext) -> bool:
    """Whether a consumer is served by followers, too, whether it names a rack or not.

    Its version knows of them, and the broker is one of those that send consumers to them.
    """
    is_aware = request.header.api_version >= _FIRST_RACK_VERSION
    return is_aware and context.replicas.reads.rack_of is not None


def place_of(request: Request, rack: str) -> ClientPlace | None:
    """Where a consumer is that names its rack."""
    return ClientPlace(rack, request.context.listener) if rack else None


def _serve_many(
    request: Request, context: BrokerContext, session: FetchContext, wish: FetchWish
) -> None:
    # Imported late, since it uses parts of this module.
    from odradek.broker.handlers._many_fetches import serve_many

    serve_many(request, context, session, wish)


class _Fetching:
    """A fetch under way, until it is answered."""

    __slots__ = (
        "_by_position",
        "_context",
        "_is_from_follower",
        "_replica_id",
        "_request",
        "_session",
        "refused",
    )

    def __init__(
        self, request: Request, context: BrokerContext, session: FetchContext, replica_id: int
    ) -> None:
        self._request = request
        self._context = context
        self._session = session
        self._replica_id = replica_id
        self._is_from_follower = replica_id >= 0
        self._by_position: list[SessionPartition] = []  # The partitions that are read, in order.
        self.refused: list[tuple[SessionPartition, FetchResult]] = []

    def split(self, version: int) -> list[FetchPartition]:
        """The partitions to read; the others are refused."""
        context, refused = self._context, self.refused
        readable: list[FetchPartition] = []
        may_read: dict[str, bool] = {}
        for partition in self._session.partitions:
            topic, index = partition.key
            topic_id: uuid.UUID | None = None
            name: str | None
            if isinstance(topic, str):
                name = topic
            else:
                name, topic_id = _name_of(topic, context)
            if name is None:
                refused.append((partition, FetchResult(ErrorCode.UNKNOWN_TOPIC_ID)))
                continue
            is_readable = may_read.get(name)
            if is_readable is None:
                is_readable = may_read[name] = self._may_read(name)
            if not is_readable:
                refused.append((partition, FetchResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
            elif version < _FIRST_ZSTD_VERSION and context.compression_type(name) == "zstd":
                refused.append((partition, FetchResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)))
            else:
                self._by_position.append(partition)
                readable.append(
                    FetchPartition(
                        TopicPartition(name, index),
                        topic_id,
                        partition.fetch_offset,
                        partition.max_bytes,
                        partition.current_leader_epoch,
                        partition.log_start_offset,
                        partition.last_fetched_epoch,
                    )
                )
        return readable

    def _may_read(self, topic: str) -> bool:
        """Whether the reader may read a topic."""
        authorizer = self._context.authorizer
        if self._is_from_follower:
            # Brokers are recognized by this right, never by their address.
            return is_allowed(authorizer, self._request, Operation.CLUSTER_ACTION)
        return is_allowed(authorizer, self._request, Operation.READ, ResourceType.TOPIC, topic)

    def take_again(self) -> list[FetchPartition]:
        """The partitions of a follower's session that have news by now."""
        self._session.look_again()
        self._by_position.clear()
        self.refused.clear()
        return self.split(self._request.header.api_version)

    def settle(self, results: FetchResults) -> None:
        """Lets the partitions of a follower's session tell their changes from now on."""
        find, session = self._context.replicas.find_online, self._session
        for entry, (wanted, result) in zip(self._by_position, results, strict=True):
            partition = find(*wanted.tp)
            if partition is not None:
                session.watch(entry, partition, self._replica_id)
                session.settle(entry, result)

    def park(self, operation: DelayedOperation) -> None:
        """Ends the parked fetch if its peer disconnects; its timeout may be weeks."""
        self._request.on_abandoned = operation.force_complete

    def respond(self, results: FetchResults) -> None:
        """Sends the answer."""
        request, context, session = self._request, self._context, self._session
        if session.news is not None:
            self.settle(results)
        if len(results) == 1 and not self.refused:
            told = session.select([(self._by_position[0], results[0][1])])
        else:
            read = [(p, r) for p, (_, r) in zip(self._by_position, results, strict=True)]
            told = session.select([*self.refused, *read])
        # Quotas apply to clients only.
        throttle_ms = 0 if self._is_from_follower else fetch_throttle_ms(request, told, context)
        request.reply(_finish(request, session, told, throttle_ms))


def _begin(view: FetchView, version: int, context: BrokerContext) -> FetchContext:
    # By key: a partition that is named twice is read once, by its last row, as in Kafka.
    wanted: dict[PartitionKey, SessionPartition] = {}
    for topic, partitions in view.topics:
        for row in partitions:
            partition = _wanted(topic, row)
            wanted[partition.key] = partition
    return context.fetch_sessions.begin(
        session_id=view.session_id,
        epoch=view.session_epoch,
        wanted=wanted,
        forgotten=[
            (topic, partition)
            for topic, partitions in view.forgotten_topics
            for partition in partitions
        ],
        is_from_follower=view.replica_id >= 0,
        uses_topic_ids=version >= _FIRST_ID_VERSION,
        is_known=lambda key: is_known_partition(key, context),
        now_ms=context.clock.monotonic_ms(),
    )


def is_known_partition(key: PartitionKey, context: BrokerContext) -> bool:
    """Whether this broker knows the partition that a client names."""
    topic, partition = key
    name = topic if isinstance(topic, str) else _name_of(topic, context)[0]
    return name is not None and context.cache.contains(TopicPartition(name, partition))


def _wanted(topic: str | bytes, row: FetchPartitionTuple) -> SessionPartition:
    partition, current_epoch, fetch_offset, last_epoch, log_start, max_bytes = row
    return SessionPartition(
        (topic, partition),
        current_epoch,
        fetch_offset,
        last_epoch,
        log_start,
        max_bytes,
    )


def _name_of(topic: bytes, context: BrokerContext) -> tuple[str | None, uuid.UUID]:
    topic_id = uuid.UUID(bytes=topic)
    return context.cache.get_topic_name(topic_id), topic_id


def fetch_throttle_ms(
    request: Request, told: Sequence[tuple[SessionPartition, FetchResult]], context: BrokerContext
) -> int:
    """The throttle time of the client, for its bytes or its time; see `broker.quotas`."""
    quotas = context.quotas
    if not quotas.limits_traffic:
        return 0
    size = sum([result.records.length for _, result in told if result.records is not None])
    bytes_throttle_ms = quotas.fetch_throttle_ms(request, size)
    throttle_ms = request_throttle_ms(request, context, other_ms=bytes_throttle_ms)
    if throttle_ms > 0 and bytes_throttle_ms == 0:
        quotas.uncount_fetch(request, size)  # The answer will be empty.
    return throttle_ms


def _finish(
    request: Request,
    session: FetchContext,
    told: Sequence[tuple[SessionPartition, FetchResult]],
    throttle_ms: int,
) -> Response:
    version = request.header.api_version
    if session.error is not ErrorCode.NONE:
        return answer_fetch(request, [], 0, session.error, throttle_ms)
    if len(told) == 1 and throttle_ms == 0:
        shared = _share_answer(request, session.session_id, *told[0])
        if shared is not None:
            return shared
    topics: dict[str | bytes, list[FetchPartitionResult]] = {}
    errors = [ErrorCode.NONE]  # That of the answer; then that of each partition.
    for partition, result in told:
        topic, index = partition.key
        error = result.error
        if version < _FIRST_STORAGE_ERROR_VERSION and error is ErrorCode.KAFKA_STORAGE_ERROR:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        errors.append(error)
        rows = topics.get(topic)
        if rows is None:
            rows = topics[topic] = []
        records: Sized | None = None
        # A client over its quota gets a throttle time now, and its bytes later.
        if throttle_ms == 0 and result.records is not None:
            records = result.records if result.records.data is None else result.records.data
        rows.append(_row(index, error, result, records))
    if errors.count(ErrorCode.NONE) == len(errors):
        request.errors = {ErrorCode.NONE: len(errors)}
    else:
        request.errors = Counter(errors)
    return answer_fetch(
        request, list(topics.items()), session.session_id, ErrorCode.NONE, throttle_ms
    )


def _share_answer(
    request: Request, session_id: int, partition: SessionPartition, result: FetchResult
) -> Response | None:
    """The answer with one result whose records are kept in memory; None for any other.

    Other consumers wait for the same records: the bytes of the result are made once for all.
    """
    header = request.header
    version = header.api_version
    if result.records is None or result.error is not _NONE or version < _FIRST_SESSION_VERSION:
        return None
    data = result.records.data
    if data is None:
        return None
    topic, index = partition.key
    encoded = result.encoded
    if encoded is None or encoded.version != version or encoded.topic != topic:
        body = encode_fetch_topics(version, [(topic, [_row(index, _NONE, result, data)])])
        if body is None:
            return None
        encoded = result.encoded = EncodedResult(version, topic, body)
    request.errors = _TWO_SUCCESSES
    start = encode_fetch_start(
        version, header.correlation_id, throttle_time_ms=0, error_code=0, session_id=session_id
    )
    return SendResponse(request, [start + encoded.body])


def _row(
    index: int, error: ErrorCode, result: FetchResult, records: Sized | None
) -> FetchPartitionResult:
    return FetchPartitionResult(
        index,
        error,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        records,
        result.aborted_transactions,
        result.preferred_read_replica,
        result.diverging_epoch,
    )


def answer_fetch(
    request: Request,
    topics: Sequence[tuple[str | bytes, Sequence[FetchPartitionResult]]],
    session_id: int,
    error: ErrorCode,
    throttle_ms: int,
) -> SendResponse:
    """The answer to a fetch: an error, or the rows of its topics."""
    if request.errors is None:
        request.errors = {error: 1}
    header = request.header
    chunks, _ = encode_fetch_response_chunks(
        header.api_version,
        topics,
        throttle_time_ms=throttle_ms,
        error_code=error,
        session_id=session_id,
    )
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    # Chunks other than bytes are slices of segment files, as the log returned them.
    return SendResponse(request, [start, *cast("list[Chunk]", chunks)])


def _refuse_old_version(request: Request, view: FetchView) -> Response:
    """Answers a version that expects an older record format with an error, and no records."""
    topics = [
        (
            topic,
            [
                FetchPartitionResult(row[0], ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1, None)
                for row in partitions
            ],
        )
        for topic, partitions in view.topics
    ]
    return answer_fetch(request, topics, 0, ErrorCode.NONE, 0)
