"""Fetch of many partitions: read and answered in slices.

A request is long because it names many partitions, or short and of a session that has many; both
are served here (`handle_long_fetch`, `serve_many`). Each partition is read once, in the order of
the request; records that are appended to one meanwhile wait for the next fetch, which is answered
at once if there are any.
"""

import uuid
from collections import Counter
from collections.abc import Generator, Sequence, Sized
from functools import partial

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.handlers.fetch import (
    READ_COMMITTED,
    FetchWish,
    answer_fetch,
    fetch_throttle_ms,
    is_known_partition,
    may_read_followers,
    place_of,
)
from odradek.broker.slices import (
    Steps,
    StepsOrNone,
    body_of,
    in_slices,
    portions,
    start_in_slices,
)
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import CloseConnectionResponse, Request, SendResponse
from odradek.protocol.codec import encode_message_steps
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.fetch_response import FetchPartitionResult, fetch_partition_message
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.replication import DelayedFetch, FetchParams, FetchPartition, FetchResult, FetchResults
from odradek.replication.fetch_session import FetchContext, PartitionKey, SessionPartition
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_long_fetch", "serve_many"]

_FIRST_SERVED_VERSION = 4
_FIRST_STORAGE_ERROR_VERSION = 6
_FIRST_ZSTD_VERSION = 10
_FIRST_ID_VERSION = 13
_FIRST_REPLICA_STATE_VERSION = 15
# Partitions whose results are selected and counted in one step.
_SELECTED_AT_ONCE = 100


@in_slices
def handle_long_fetch(request: Request, context: BrokerContext) -> StepsOrNone:
    """Serves a long request, whose session begins or changes with it."""
    version = request.header.api_version
    if version < _FIRST_SERVED_VERSION:
        return CloseConnectionResponse(request, f"{request}: many partitions in an old version")
    message = body_of(FetchRequest, request)
    by_id = version >= _FIRST_ID_VERSION
    replica_id, replica_epoch = message.replica_id, -1
    if version >= _FIRST_REPLICA_STATE_VERSION:
        replica_id = message.replica_state.replica_id
        replica_epoch = message.replica_state.replica_epoch
    request.metrics_name = "FetchFollower" if replica_id >= 0 else "FetchConsumer"
    # By key: a partition that is named twice is read once, by its last row, as in Kafka.
    wanted: dict[PartitionKey, SessionPartition] = {}
    known: dict[PartitionKey, bool] = {}
    for topic in message.topics:
        name = topic.topic_id if by_id else topic.topic
        for row in topic.partitions:
            key = (name, row.partition)
            wanted[key] = SessionPartition(
                key,
                row.current_leader_epoch,
                row.fetch_offset,
                row.last_fetched_epoch,
                row.log_start_offset,
                row.partition_max_bytes,
            )
            known[key] = is_known_partition(key, context)
            yield
        yield
    forgotten: list[PartitionKey] = []
    for gone in message.forgotten_topics_data:
        name = gone.topic_id if by_id else gone.topic
        forgotten += [(name, partition) for partition in gone.partitions]
        yield
    try:
        session = context.fetch_sessions.begin(
            session_id=message.session_id,
            epoch=message.session_epoch,
            wanted=wanted,
            forgotten=forgotten,
            is_from_follower=replica_id >= 0,
            uses_topic_ids=by_id,
            is_known=known.__getitem__,
            now_ms=context.clock.monotonic_ms(),
        )
    except ApiError as error:
        return answer_fetch(request, [], 0, error.code, 0)
    yield
    wish = FetchWish(
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        replica_id,
        replica_epoch,
        message.isolation_level == READ_COMMITTED,
        place_of(request, message.rack_id),
    )
    return (yield from _serve(request, context, session, wish))


def serve_many(
    request: Request, context: BrokerContext, session: FetchContext, wish: FetchWish
) -> None:
    """Serves a fetch of a session that has many partitions."""
    start_in_slices(request, _serve(request, context, session, wish), context)


def _serve(
    request: Request, context: BrokerContext, session: FetchContext, wish: FetchWish
) -> StepsOrNone:
    fetching = _ManyFetching(request, context, session, wish.replica_id)
    readable = yield from fetching.split()
    max_bytes = min(wish.max_bytes, context.max_fetch_bytes)
    if wish.replica_id < 0:
        quota_bytes = context.quotas.max_fetch_bytes(request)
        max_bytes = max_bytes if quota_bytes is None else min(max_bytes, quota_bytes)
    fetching.params = FetchParams(
        0 if fetching.refused else wish.max_wait_ms,
        wish.min_bytes,
        max_bytes,
        wish.replica_id,
        False,
        wish.is_read_committed,
        may_read_followers(request, context),
        wish.replica_epoch,
        wish.place,
    )
    yield from context.replicas.reads.fetch_many(
        fetching.params,
        readable,
        fetching.answer,
        resume=fetching.resume,
        is_wanted=lambda: not request.connection.is_closed,
        on_parked=fetching.park,
    )
    return None


class _ManyFetching:
    """A fetch under way, until it is answered."""

    __slots__ = (
        "_by_position",
        "_context",
        "_replica_id",
        "_request",
        "_session",
        "params",
        "refused",
    )

    params: FetchParams

    def __init__(
        self, request: Request, context: BrokerContext, session: FetchContext, replica_id: int
    ) -> None:
        self._request = request
        self._context = context
        self._session = session
        self._replica_id = replica_id
        self._by_position: list[SessionPartition] = []  # The partitions that are read, in order.
        self.refused: list[tuple[SessionPartition, FetchResult]] = []

    def split(self) -> Generator[None, None, list[FetchPartition]]:
        """The partitions to read; the others are refused."""
        context, version = self._context, self._request.header.api_version
        readable: list[FetchPartition] = []
        refusals: dict[str | bytes, ErrorCode | None] = {}
        for wanted in self._session.partitions:
            topic, index = wanted.key
            topic_id: uuid.UUID | None = None
            name: str | None
            if isinstance(topic, str):
                name = topic
            else:
                topic_id = uuid.UUID(bytes=topic)
                name = context.cache.get_topic_name(topic_id)
            if topic not in refusals:
                refusals[topic] = self._refusal(name, version)
            refusal = refusals[topic]
            if name is None:  # It may have been deleted since the last step.
                refusal = ErrorCode.UNKNOWN_TOPIC_ID
            if refusal is not None or name is None:
                assert refusal is not None
                self.refused.append((wanted, FetchResult(refusal)))
            else:
                self._by_position.append(wanted)
                readable.append(
                    FetchPartition(
                        TopicPartition(name, index),
                        topic_id,
                        wanted.fetch_offset,
                        wanted.max_bytes,
                        wanted.current_leader_epoch,
                        wanted.log_start_offset,
                        wanted.last_fetched_epoch,
                    )
                )
            yield
        return readable

    def _refusal(self, name: str | None, version: int) -> ErrorCode | None:
        """Why a topic is not read; None if it is."""
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        may = partial(is_allowed, self._context.authorizer, self._request)
        if self._replica_id >= 0:
            # Brokers are recognized by this right, never by their address.
            may_read = may(Operation.CLUSTER_ACTION)
        else:
            may_read = may(Operation.READ, ResourceType.TOPIC, name)
        if not may_read:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if version < _FIRST_ZSTD_VERSION and self._context.compression_type(name) == "zstd":
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return None

    def park(self, operation: DelayedFetch) -> None:
        """Ends the parked fetch if its peer disconnects; its timeout may be weeks."""
        self._request.on_abandoned = operation.force_complete

    def resume(self, steps: Generator[None, None, None]) -> None:
        """Continues after a wait."""

        def rest() -> StepsOrNone:
            yield from steps
            return None

        start_in_slices(self._request, rest(), self._context, outlives_client=True)

    def answer(self, results: FetchResults) -> None:
        """Sends the answer."""
        start_in_slices(self._request, self._answer(results), self._context)

    def _answer(self, results: FetchResults) -> Steps:
        request, session = self._request, self._session
        told: list[tuple[SessionPartition, FetchResult]] = []
        if self.refused:
            for refused in portions(self.refused, _SELECTED_AT_ONCE):
                told += session.select(refused)
                yield
        by_position = iter(self._by_position)
        for some in portions(results, _SELECTED_AT_ONCE):
            self._context.replicas.reads.count_answered(self.params, some)
            entries = [next(by_position) for _ in some]
            if session.news is not None:
                self._watch(entries, some)
            told += session.select(
                [(entry, result) for entry, (_, result) in zip(entries, some, strict=True)]
            )
            yield
        # Quotas apply to clients only.
        throttle_ms = 0
        if self._replica_id < 0:
            throttle_ms = fetch_throttle_ms(request, told, self._context)
        if session.error is not ErrorCode.NONE:
            return answer_fetch(request, [], 0, session.error, throttle_ms)
        return (yield from self._encode(told, throttle_ms))

    def _watch(self, entries: Sequence[SessionPartition], results: FetchResults) -> None:
        """Lets the partitions of a follower's session tell their changes from now on."""
        find, session = self._context.replicas.find_online, self._session
        for entry, (wanted, _) in zip(entries, results, strict=True):
            partition = find(*wanted.tp)
            if partition is not None:
                session.watch(entry, partition, self._replica_id)

    def _encode(
        self, told: Sequence[tuple[SessionPartition, FetchResult]], throttle_ms: int
    ) -> Steps:
        request = self._request
        header = request.header
        topics: dict[str | bytes, list[PartitionData]] = {}
        errors = Counter({ErrorCode.NONE: 1})  # That of the answer; then that of each partition.
        for wanted, result in told:
            error = result.error
            if (
                error is ErrorCode.KAFKA_STORAGE_ERROR
                and header.api_version < _FIRST_STORAGE_ERROR_VERSION
            ):
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            errors[error] += 1
            topic, index = wanted.key
            topics.setdefault(topic, []).append(_row(index, error, result, throttle_ms))
            yield
        responses = []
        for topic, rows in topics.items():
            if isinstance(topic, str):
                responses.append(FetchableTopicResponse(topic=topic, partitions=rows))
            else:
                responses.append(FetchableTopicResponse(topic_id=topic, partitions=rows))
            yield
        request.errors = errors
        response = FetchResponse(
            throttle_time_ms=throttle_ms,
            error_code=ErrorCode.NONE,
            session_id=self._session.session_id,
            responses=responses,
        )
        chunks = yield from encode_message_steps(response, header.api_version)
        start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        return SendResponse(request, [start, *chunks])


def _row(index: int, error: ErrorCode, result: FetchResult, throttle_ms: int) -> PartitionData:
    records: Sized | None = None
    # A client over its quota gets a throttle time now, and its bytes later.
    if throttle_ms == 0 and result.records is not None:
        records = result.records if result.records.data is None else result.records.data
    return fetch_partition_message(
        FetchPartitionResult(
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
    )
