"""AlterReplicaLogDirs (key 34): replicas move to other data directories of their broker."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AlterReplicaLogDir",
    "AlterReplicaLogDirPartitionResult",
    "AlterReplicaLogDirTopic",
    "AlterReplicaLogDirTopicResult",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
]


class AlterReplicaLogDirTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


class AlterReplicaLogDir(Message):
    path: str = wire(STRING)
    topics: Sequence[AlterReplicaLogDirTopic] = wire(array(AlterReplicaLogDirTopic))


class AlterReplicaLogDirsRequest(Message, versions="1-2", flexible="2+"):
    """Partitions by the absolute path of their new directory."""

    # 2: flexible.

    dirs: Sequence[AlterReplicaLogDir] = wire(array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = wire(STRING)
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = wire(
        array(AlterReplicaLogDirPartitionResult)
    )


class AlterReplicaLogDirsResponse(Message, versions="1-2", flexible="2+"):
    """The outcome per partition."""

    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    results: Sequence[AlterReplicaLogDirTopicResult] = wire(array(AlterReplicaLogDirTopicResult))
