"""Writing a coordinator's state: what is one batch, in which epoch, and what failures mean."""

from collections.abc import Sequence

import pytest

from odradek.coordinator.writing import (
    APPEND_ERRORS,
    Asked,
    Record,
    StateWriter,
    append_error,
    cut_records,
)
from odradek.errors import ErrorCode
from odradek.records.builder import build_batch
from odradek.records.record import read_records
from odradek.testing import ManualClock
from tests.unit.coordinator.coordinator_fakes import MemoryTopic

P = 3
EPOCH = 5


def make(codec: int = 0) -> tuple[MemoryTopic, StateWriter]:
    topic = MemoryTopic()
    topic.lead(P, EPOCH)
    return topic, StateWriter(topic, now_ms=ManualClock().now_ms, codec=codec)


def write(
    writer: StateWriter, records: Sequence[Record], leader_epoch: int = EPOCH
) -> list[object]:
    """What was told, in its order: offsets of appends, then errors and offsets of commits."""
    told: list[object] = []
    writer.write(P, leader_epoch, records, lambda *outcome: told.append(outcome), told.append)
    return told


@pytest.mark.parametrize("codec", [0, 4])
def test_a_decision_is_one_batch_however_many_records_it_has(codec: int) -> None:
    topic, writer = make(codec)
    topic.max_batch_bytes = 1 << 30
    many = [(b"k%d" % number, b"v" * 1_000) for number in range(2_000)]
    assert write(writer, [(b"first", None)]) == [0, (ErrorCode.NONE, 0)]
    assert write(writer, many) == [1, (ErrorCode.NONE, 1)]
    assert len(topic.batches[P]) == 2
    assert [(record.key, record.value) for record in read_records(topic.batches[P][1])] == many


def test_a_decision_that_is_too_large_is_refused_as_a_whole() -> None:
    topic, writer = make()
    topic.max_batch_bytes = 10_000
    too_large = [(b"k%d" % number, b"v" * 1_000) for number in range(20)]
    assert write(writer, too_large) == [(ErrorCode.RECORD_LIST_TOO_LARGE, -1)]
    assert topic.batches[P] == []


def test_a_decision_of_an_earlier_epoch_is_not_written() -> None:
    topic, writer = make()
    assert write(writer, [(b"k", b"v")], EPOCH - 1) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert topic.batches[P] == []


def test_the_append_is_told_before_the_commit() -> None:
    topic, writer = make()
    topic.is_replicated = True
    told = write(writer, [(b"k", b"v")])
    assert told == [0]
    topic.replicate()
    assert told == [0, (ErrorCode.NONE, 0)]


def test_what_was_collected_is_appended_before() -> None:
    topic, _ = make()
    collected = build_batch([(0, b"collected", None, ())])
    writer = StateWriter(
        topic,
        now_ms=ManualClock().now_ms,
        before_append=lambda: topic.store(P, collected),
    )
    assert write(writer, [(b"k", b"v")]) == [1, (ErrorCode.NONE, 1)]


def test_records_that_may_stand_alone_are_cut_into_batches() -> None:
    records: list[Record] = [(b"k%d" % number, b"v" * 1_000) for number in range(2_000)]
    pieces = list(cut_records(records))
    assert [record for piece in pieces for record in piece] == records
    assert 2 < len(pieces) < 8
    assert list(cut_records([])) == []
    huge: Record = (b"k", b"v" * (1 << 20))
    assert list(cut_records([huge, huge])) == [[huge], [huge]]


@pytest.mark.parametrize(
    ("error", "membership", "offsets", "transaction"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3),
        (ErrorCode.NOT_ENOUGH_REPLICAS, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3),
        (
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, *[ErrorCode.NOT_COORDINATOR] * 3),
        (ErrorCode.KAFKA_STORAGE_ERROR, *[ErrorCode.NOT_COORDINATOR] * 3),
        (
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (
            ErrorCode.RECORD_LIST_TOO_LARGE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (
            ErrorCode.INVALID_FETCH_SIZE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ErrorCode.INVALID_FETCH_SIZE,
        ),
        (
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NETWORK_EXCEPTION,
        ),
        (ErrorCode.CORRUPT_MESSAGE, *[ErrorCode.CORRUPT_MESSAGE] * 3),
        (ErrorCode.NONE, *[ErrorCode.NONE] * 3),
    ],
)
def test_what_an_append_error_means_to_a_client(
    error: ErrorCode, membership: ErrorCode, offsets: ErrorCode, transaction: ErrorCode
) -> None:
    assert append_error(error, Asked.MEMBERSHIP) is membership
    assert append_error(error, Asked.OFFSETS) is offsets
    assert append_error(error, Asked.TRANSACTION) is transaction


def test_every_row_has_a_column_for_everything_that_can_be_asked() -> None:
    assert {len(row) for row in APPEND_ERRORS.values()} == {len(Asked)}
