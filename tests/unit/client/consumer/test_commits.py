"""Commits: what answers mean, and in which order callbacks come."""

import pytest

from odradek.client.consumer.commits import (
    CommitQueue,
    OffsetAndMetadata,
    check_offsets,
    decide_outcome,
    wrap_for_callback,
)
from odradek.client.consumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {TP: OffsetAndMetadata(5)}


@pytest.mark.parametrize(
    ("code", "forgets"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
    ],
)
def test_passing_troubles_are_tried_again_and_wrapped_for_callbacks(
    code: ErrorCode, forgets: bool
) -> None:
    """09:TV-11d."""
    outcome = decide_outcome([(TP, code)])
    assert outcome.is_retriable
    assert outcome.forgets_coordinator == forgets
    error = wrap_for_callback(outcome)
    assert isinstance(error, RetriableCommitFailedError)
    assert error.code is code


@pytest.mark.parametrize(
    ("code", "error", "resets"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, True),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError, False),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError, False),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, ApiError, False),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ApiError, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, ApiError, False),
    ],
)
def test_others_are_raised_as_what_they_mean(
    code: ErrorCode, error: type[ApiError], resets: bool
) -> None:
    outcome = decide_outcome([(TP, 0), (OTHER, code)])
    assert type(outcome.error) is error
    assert not outcome.is_retriable
    assert outcome.resets_generation == resets
    assert wrap_for_callback(outcome) is outcome.error


def test_a_member_that_left_has_no_rebalance_to_wait_for() -> None:
    outcome = decide_outcome([(TP, ErrorCode.REBALANCE_IN_PROGRESS)], has_left=True)
    assert isinstance(outcome.error, CommitFailedError)


def test_topics_that_are_refused_are_all_named() -> None:
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    outcome = decide_outcome([(OTHER, refused), (TP, refused)])
    assert "t-0, t-1" in str(outcome.error)


def test_success_is_no_error() -> None:
    assert decide_outcome([(TP, 0)]).error is None
    assert decide_outcome([(TP, 12345)]).error is not None


def test_a_callback_waits_for_those_before_it() -> None:
    """09:TV-11b."""
    queue = CommitQueue()
    first, second, third = (queue.add(OFFSETS, None) for _ in range(3))
    second.is_done = third.is_done = True
    assert queue.pop_completed() is None
    first.is_done = True
    assert [queue.pop_completed() for _ in range(4)] == [first, second, third, None]


def test_offsets_are_brought_into_one_form() -> None:
    assert check_offsets({TP: 5, OTHER: OffsetAndMetadata(7, "m", 3)}) == {
        TP: OffsetAndMetadata(5),
        OTHER: OffsetAndMetadata(7, "m", 3),
    }
    with pytest.raises(ValueError, match="t-0: offset -1"):
        check_offsets({TP: -1})
