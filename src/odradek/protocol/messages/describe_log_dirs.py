"""DescribeLogDirs (key 35): sizes of replicas by data directory."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
]


class DescribableLogDirTopic(Message):
    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


class DescribeLogDirsRequest(Message, versions="1-5", flexible="2+"):
    """Partitions to describe; null is all."""

    # 2: flexible.

    topics: Sequence[DescribableLogDirTopic] | None = wire(
        array(DescribableLogDirTopic), nullable="0+"
    )


class DescribeLogDirsPartition(Message):
    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)


class DescribeLogDirsTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[DescribeLogDirsPartition] = wire(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Message):
    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: Sequence[DescribeLogDirsTopic] = wire(array(DescribeLogDirsTopic))
    total_bytes: int = wire(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = wire(INT64, "4+", default=-1, ignorable=True)
    # Whether no new replicas are placed there.
    is_cordoned: bool = wire(BOOL, "5+", ignorable=True)


class DescribeLogDirsResponse(Message, versions="1-5", flexible="2+"):
    """Data directories with their replicas."""

    # 2: flexible.
    # 3: an error for the whole answer. 4: size of the volume (KIP-827). 5: cordoned
    # directories (KIP-1066).

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "3+", ignorable=True)
    results: Sequence[DescribeLogDirsResult] = wire(array(DescribeLogDirsResult))
