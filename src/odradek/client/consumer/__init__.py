"""Reading records: as a member of a consumer group, or partitions by hand.

`consumer` is the awaited client, `blocking` its face for plain scripts. The modules that decide are
pure: `membership`, `commits`, `fetch_session`, `fetched`, `partition_state`, `subscription`.
"""

from odradek.client.consumer.commits import CommitCallback, ConsumerGroupMetadata, OffsetAndMetadata
from odradek.client.consumer.errors import (
    CommitFailedError,
    ConcurrentModificationError,
    FencedInstanceIdError,
    InvalidGroupError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetsError,
    OffsetsOutOfRangeError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    WakeupError,
)
from odradek.client.consumer.subscription import RebalanceListener

__all__ = [
    "CommitCallback",
    "CommitFailedError",
    "ConcurrentModificationError",
    "ConsumerGroupMetadata",
    "FencedInstanceIdError",
    "InvalidGroupError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "OffsetAndMetadata",
    "OffsetsError",
    "OffsetsOutOfRangeError",
    "RebalanceInProgressError",
    "RebalanceListener",
    "RetriableCommitFailedError",
    "WakeupError",
]
