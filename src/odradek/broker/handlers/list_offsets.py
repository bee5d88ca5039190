"""ListOffsets: offsets by time, and the ends of a partition."""

from collections.abc import Generator

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Job, Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.protocol.enums import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    IsolationLevel,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.security.operations import Operation, ResourceType
from odradek.storage.segments.timestamp_search import OpenedBatches, SearchDeferredError

__all__ = ["handle_list_offsets"]

# The first version of each negative timestamp.
_KNOWN_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_LEADER_EPOCH_VERSION = 4
_FIRST_NOT_AVAILABLE_VERSION = 5
_TIERED = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)  # Of storage that does not exist here.


@in_slices
def handle_list_offsets(request: Request, context: BrokerContext) -> Steps:
    """Looks up each partition that is led here; one that is named twice is refused, as in Kafka."""
    version = request.header.api_version
    message = body_of(ListOffsetsRequest, request)
    repeated = yield from _find_repeated(message)
    topics: list[ListOffsetsTopicResponse] = []
    for topic in message.topics:
        may_describe = is_allowed(
            context.authorizer, request, Operation.DESCRIBE, ResourceType.TOPIC, topic.name
        )
        rows: list[ListOffsetsPartitionResponse] = []
        for wanted in topic.partitions:
            tp = TopicPartition(topic.name, wanted.partition_index)
            if not may_describe:
                rows.append(_refuse(tp, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif tp in repeated:
                rows.append(_refuse(tp, ErrorCode.INVALID_REQUEST))
            else:
                rows.append((yield from _look_up(tp, wanted, message, version, context)))
            yield
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        yield
    return (yield from reply_in_slices(request, ListOffsetsResponse(topics=topics), context))


def _find_repeated(message: ListOffsetsRequest) -> Generator[None, None, set[TopicPartition]]:
    seen: set[TopicPartition] = set()
    repeated: set[TopicPartition] = set()
    for topic in message.topics:
        for wanted in topic.partitions:
            tp = TopicPartition(topic.name, wanted.partition_index)
            if tp in seen:
                repeated.add(tp)
            seen.add(tp)
            yield
        yield
    return repeated


def _refuse(tp: TopicPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=tp.partition, error_code=error, timestamp=-1, offset=-1
    )


def _look_up(
    tp: TopicPartition,
    wanted: ListOffsetsPartition,
    message: ListOffsetsRequest,
    version: int,
    context: BrokerContext,
) -> Generator[Job, None, ListOffsetsPartitionResponse]:
    def answer(
        error: ErrorCode, timestamp: int = -1, offset: int = -1, epoch: int | None = None
    ) -> ListOffsetsPartitionResponse:
        return ListOffsetsPartitionResponse(
            partition_index=tp.partition,
            error_code=error,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=-1 if epoch is None or version < _FIRST_LEADER_EPOCH_VERSION else epoch,
        )

    timestamp = wanted.timestamp
    if timestamp < 0 and version < _KNOWN_SINCE.get(timestamp, version + 1):
        return answer(ErrorCode.UNSUPPORTED_VERSION)
    opened: OpenedBatches = {}
    try:
        if timestamp in _TIERED:
            context.replicas.find_partition(tp, expect_leader=True).leader_log()
            return answer(ErrorCode.NONE)
        while True:
            try:
                found = context.replicas.look_ups.list_offset(
                    tp,
                    EARLIEST if timestamp == EARLIEST_LOCAL else timestamp,
                    current_leader_epoch=wanted.current_leader_epoch,
                    read_committed=message.isolation_level == IsolationLevel.READ_COMMITTED,
                    is_from_consumer=message.replica_id < 0,
                    opened=opened,
                )
                break
            except SearchDeferredError as deferred:
                yield deferred.open_batch
    except ApiError as error:
        if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _FIRST_NOT_AVAILABLE_VERSION:
            return answer(ErrorCode.LEADER_NOT_AVAILABLE)  # Makes older clients try again.
        return answer(error.code)
    except StorageError:
        return answer(ErrorCode.KAFKA_STORAGE_ERROR)
    if found is None:
        return answer(ErrorCode.NONE)
    return answer(ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch)
