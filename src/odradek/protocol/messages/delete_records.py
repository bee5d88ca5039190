"""DeleteRecords (key 21): raise the log start offset of partitions."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
]


class DeleteRecordsPartition(Message):
    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


class DeleteRecordsTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[DeleteRecordsPartition] = wire(array(DeleteRecordsPartition))


class DeleteRecordsRequest(Message, versions="0-2", flexible="2+"):
    """New log start offsets; -1 is the high watermark."""

    # 2: flexible.

    topics: Sequence[DeleteRecordsTopic] = wire(array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)


class DeleteRecordsPartitionResult(Message):
    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


class DeleteRecordsTopicResult(Message):
    name: str = wire(STRING)
    partitions: Sequence[DeleteRecordsPartitionResult] = wire(array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Message, versions="0-2", flexible="2+"):
    """The low watermark after it."""

    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    topics: Sequence[DeleteRecordsTopicResult] = wire(array(DeleteRecordsTopicResult))
