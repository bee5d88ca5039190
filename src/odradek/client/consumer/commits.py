"""Commits of offsets: requests, the meaning of answers, and the order of callbacks. Pure.

A commit that waits (`commit_sync`) is tried again until it succeeds, fails for good or its time is
over. One that does not wait (`commit_async`) is tried once: tried again, it could overtake a later
one and put an older offset in its place. Its callback is called by the application's own calls, in
the order in which the commits were made, never by a background task.

The meaning of a partition's error:

================================================  ==================================================
COORDINATOR_LOAD_IN_PROGRESS,                     again
UNKNOWN_TOPIC_OR_PARTITION
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,       look the coordinator up again, then again
REQUEST_TIMED_OUT, a lost connection
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION             the group went on without us: CommitFailedError
REBALANCE_IN_PROGRESS                             poll first: RebalanceInProgressError
FENCED_INSTANCE_ID                                the end of this consumer
others                                            raised as they are
================================================  ==================================================
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from odradek.client.consumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition

__all__ = [
    "CommitCallback",
    "CommitQueue",
    "ConsumerGroupMetadata",
    "OffsetAndMetadata",
    "OffsetCommitOutcome",
    "PendingCommit",
    "check_offsets",
    "decide_outcome",
    "wrap_for_callback",
]


class OffsetAndMetadata(NamedTuple):
    """A committed offset: of the next record to read, not of the last one read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None  # Of the record before it.


class ConsumerGroupMetadata(NamedTuple):
    """A consumer as its group knows it: it may commit offsets only as long as this is right."""

    group_id: str
    generation: int = -1  # -1: of no member, for partitions that are assigned by hand.
    member_id: str = ""
    instance_id: str | None = None


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[
    [Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object
]

_FORGET_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_GENERATION_IS_OVER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitOutcome:
    """The meaning of an answer for the commit, and for the member."""

    error: ApiError | None = None
    is_retriable: bool = False
    forgets_coordinator: bool = False
    # Whether the member has to join anew.
    resets_generation: bool = False


def check_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of an application's commit, in one form.

    Raises:
        ValueError: One is negative; nothing is sent then.
    """
    checked = {}
    for tp, given in offsets.items():
        value = OffsetAndMetadata(given) if isinstance(given, int) else given
        if value.offset < 0:
            raise ValueError(f"{tp}: offset {value.offset} cannot be committed, expected 0 or more")
        checked[TopicPartition(*tp)] = value
    return checked


def decide_outcome(
    codes: Iterable[tuple[TopicPartition, int]], *, has_left: bool = False
) -> OffsetCommitOutcome:
    """Decides the meaning of an answer; the first partition with an error decides it.

    Args:
        has_left: Whether this member is no longer in the group.
    """
    retriable: OffsetCommitOutcome | None = None
    refused: dict[ErrorCode, list[TopicPartition]] = {}
    for tp, number in codes:
        if number == ErrorCode.NONE:
            continue
        code = _known(number)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return OffsetCommitOutcome(error=FencedInstanceIdError())
        if code in _GENERATION_IS_OVER:
            return OffsetCommitOutcome(error=CommitFailedError(), resets_generation=True)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            error = CommitFailedError() if has_left else RebalanceInProgressError()
            return OffsetCommitOutcome(error=error)
        if code in _FORGET_COORDINATOR or code.retriable:
            retriable = retriable or OffsetCommitOutcome(
                error=ApiError(code, f"commit of {tp}: {code.name}"),
                is_retriable=True,
                forgets_coordinator=code in _FORGET_COORDINATOR,
            )
        else:
            refused.setdefault(code, []).append(tp)
    for code, partitions in refused.items():
        names = ", ".join(map(str, sorted(partitions)))
        return OffsetCommitOutcome(error=ApiError(code, f"commit of {names}: {code.name}"))
    return retriable or OffsetCommitOutcome()


def wrap_for_callback(outcome: OffsetCommitOutcome) -> Exception | None:
    """The error for the callback of an asynchronous commit."""
    if outcome.error is not None and outcome.is_retriable:
        return RetriableCommitFailedError(outcome.error)
    return outcome.error


@dataclass(slots=True, eq=False)
class PendingCommit:
    """An asynchronous commit, from the call until its callback has run."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    callback: CommitCallback | None
    is_done: bool = False
    error: Exception | None = None


class CommitQueue:
    """Asynchronous commits in the order in which they were made."""

    def __init__(self) -> None:
        self._pending: deque[PendingCommit] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None
    ) -> PendingCommit:
        """Adds a commit that is about to be sent."""
        pending = PendingCommit(offsets, callback)
        self._pending.append(pending)
        return pending

    @property
    def has_completed(self) -> bool:
        """Whether a callback is due: its commit is done, and so are all before it."""
        return bool(self._pending) and self._pending[0].is_done

    def pop_completed(self) -> PendingCommit | None:
        """The next commit whose callback is due."""
        return self._pending.popleft() if self.has_completed else None


def _known(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
