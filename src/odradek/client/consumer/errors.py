"""The errors of a consumer besides those of all clients and of the wire.

::

    ApiError
    ├── CommitFailedError           the member is no longer in its group; others have its partitions
    ├── RebalanceInProgressError    poll first, then commit the partitions still assigned
    ├── FencedInstanceIdError       another consumer has this group.instance.id; this one is done
    └── RetriableCommitFailedError  commit_async failed for the moment; commit later offsets instead
    OdradekError
    ├── WakeupError                 `wakeup` was called
    ├── ConcurrentModificationError two threads use one consumer
    ├── InvalidGroupError           a call that needs group.id
    └── OffsetsError(partitions)
        ├── NoOffsetForPartitionError   nothing committed, and auto.offset.reset is none
        ├── OffsetsOutOfRangeError      the position is gone, and auto.offset.reset is none
        └── LogTruncationError          the log was cut below the position
"""

from collections.abc import Iterable, Mapping

from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.model import TopicPartition

__all__ = [
    "CommitFailedError",
    "ConcurrentModificationError",
    "FencedInstanceIdError",
    "InvalidGroupError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "OffsetsError",
    "OffsetsOutOfRangeError",
    "RebalanceInProgressError",
    "RetriableCommitFailedError",
    "WakeupError",
]


class CommitFailedError(ApiError):
    """The group removed this member, so its offsets were refused."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            ErrorCode.UNKNOWN_MEMBER_ID,
            message
            or "the group has rebalanced and given the partitions to other members; poll more "
            "often, raise max.poll.interval.ms or lower max.poll.records",
        )


class RebalanceInProgressError(ApiError):
    """The group is rebalancing: poll until it is done, then commit partitions still assigned."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.REBALANCE_IN_PROGRESS,
            "the group is rebalancing; poll until that is over, then commit again",
        )


class FencedInstanceIdError(ApiError):
    """Another consumer joined with the same group.instance.id: this one must be closed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            ErrorCode.FENCED_INSTANCE_ID,
            message or "another consumer has joined the group with the same group.instance.id",
        )


class RetriableCommitFailedError(ApiError):
    """An asynchronous commit failed for a reason that may pass; it was not tried again."""

    def __init__(self, cause: ApiError) -> None:
        super().__init__(cause.code, f"offsets were not committed, commit again: {cause}")
        self.__cause__ = cause


class WakeupError(OdradekError):
    """The call was ended by `wakeup`."""


class ConcurrentModificationError(OdradekError, RuntimeError):
    """A consumer belongs to one thread at a time."""


class InvalidGroupError(OdradekError, RuntimeError):
    """The call needs a group, and none is configured."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs group.id, which is not set")


class OffsetsError(OdradekError):
    """Partitions that are not read until the application seeks them."""

    def __init__(self, message: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(message)
        self.partitions = tuple(partitions)


class NoOffsetForPartitionError(OffsetsError):
    """Nothing is committed for a partition, and `auto.offset.reset` is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        partitions = tuple(partitions)
        names = ", ".join(map(str, partitions))
        super().__init__(
            f"no committed offset for {names} and auto.offset.reset is none; seek them", partitions
        )


class OffsetsOutOfRangeError(OffsetsError):
    """A position lies outside its log, and `auto.offset.reset` is none."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        places = ", ".join(f"{tp} at {offset}" for tp, offset in offsets.items())
        super().__init__(f"positions out of range: {places}; seek them", offsets)
        self.offsets = dict(offsets)


class LogTruncationError(OffsetsError):
    """A log was truncated below the position: it has lost records that were read."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        places = ", ".join(f"{tp} now ends at {offset}" for tp, offset in offsets.items())
        super().__init__(f"logs were truncated below the position: {places}; seek them", offsets)
        # Where the common history ends, by partition.
        self.offsets = dict(offsets)
