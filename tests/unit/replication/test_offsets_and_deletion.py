"""Offsets by time, ends of epochs, DeleteRecords (05 sections 8.1 and 10)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.protocol.enums import EARLIEST, LATEST, MAX_TIMESTAMP
from odradek.replication import DeleteRecordsResult
from odradek.storage.log.config import LogConfig
from tests.support.log_scenarios import transactional
from tests.support.logs import T0, batch
from tests.support.replicas import ReplicaFixture, hosted, state_of, tp


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path) as fixture:
        yield fixture


def offset_at(
    fixture: ReplicaFixture,
    timestamp: int,
    *,
    read_committed: bool = False,
    is_from_consumer: bool = True,
    epoch: int = -1,
) -> int | None:
    found = fixture.replicas.look_ups.list_offset(
        tp(),
        timestamp,
        current_leader_epoch=epoch,
        read_committed=read_committed,
        is_from_consumer=is_from_consumer,
    )
    return None if found is None else found.offset


def test_ends_as_each_reader_sees_them(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(2)}, acks=1)
    fixture.produce({tp(): transactional(0, 2)}, acks=1)
    fixture.produce({tp(): batch(1)}, acks=1)
    fixture.fetch_as(2, tp(), 4)
    assert offset_at(fixture, EARLIEST) == 0
    assert offset_at(fixture, LATEST) == 4
    assert offset_at(fixture, LATEST, read_committed=True) == 2
    assert offset_at(fixture, LATEST, is_from_consumer=False) == 5


def test_what_is_not_visible_is_not_found(fixture: ReplicaFixture) -> None:
    """Beyond the high watermark there is nothing, also for the largest timestamp."""
    fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(2, timestamp=T0)}, acks=1)
    fixture.fetch_as(2, tp(), 2)
    fixture.produce({tp(): batch(1, timestamp=T0 + 1000)}, acks=1)
    assert offset_at(fixture, T0 + 1) == 1
    assert offset_at(fixture, T0 + 1000) is None
    assert offset_at(fixture, MAX_TIMESTAMP) is None
    assert offset_at(fixture, MAX_TIMESTAMP, is_from_consumer=False) == 2
    fixture.fetch_as(2, tp(), 3)
    assert offset_at(fixture, MAX_TIMESTAMP) == 2


def test_a_new_leader_that_does_not_know_how_far_it_is(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(3)}, acks=1)
    fixture.fetch_as(2, tp(), 1)
    fixture.lead(tp(), replicas=(1, 2), leader_epoch=1)
    for timestamp in (LATEST, T0 + 2):
        with pytest.raises(ApiError) as caught:
            offset_at(fixture, timestamp)
        assert caught.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert offset_at(fixture, T0) == 0
    assert offset_at(fixture, EARLIEST) == 0
    assert offset_at(fixture, LATEST, is_from_consumer=False) == 3
    fixture.fetch_as(2, tp(), 3)
    assert offset_at(fixture, LATEST) == 3


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_epochs_are_checked(fixture: ReplicaFixture, epoch: int, code: ErrorCode) -> None:
    fixture.lead(tp(), leader_epoch=5)
    with pytest.raises(ApiError) as caught:
        offset_at(fixture, LATEST, epoch=epoch)
    assert caught.value.code is code
    with pytest.raises(ApiError) as caught:
        fixture.replicas.look_ups.end_offset_for_epoch(
            tp(), current_leader_epoch=epoch, leader_epoch=5
        )
    assert caught.value.code is code


def test_a_follower_does_not_answer(fixture: ReplicaFixture) -> None:
    fixture.apply(hosted(state_of(tp(), leader=2, replicas=(1, 2))))
    with pytest.raises(ApiError) as caught:
        offset_at(fixture, LATEST)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_ends_of_epochs(fixture: ReplicaFixture) -> None:
    for epoch in (1, 3):
        fixture.lead(tp(), leader_epoch=epoch)
        fixture.produce({tp(): batch(2)})
    ends = [
        fixture.replicas.look_ups.end_offset_for_epoch(
            tp(), current_leader_epoch=-1, leader_epoch=epoch
        )
        for epoch in (1, 2, 3, 4)
    ]
    assert ends == [(1, 2), (1, 2), (3, 4), (-1, -1)]


# DeleteRecords


def test_deleting_on_a_cluster_of_one(fixture: ReplicaFixture) -> None:
    fixture.lead(tp())
    fixture.produce({tp(): batch(5)})
    assert fixture.delete_records({tp(): 3}) == [{tp(): DeleteRecordsResult(ErrorCode.NONE, 3)}]
    assert fixture.delete_records({tp(): -1}) == [{tp(): DeleteRecordsResult(ErrorCode.NONE, 5)}]
    assert fixture.log(tp()).log_start_offset == 5
    # Asking for less than what is gone already changes nothing.
    assert fixture.delete_records({tp(): 2}) == [{tp(): DeleteRecordsResult(ErrorCode.NONE, 5)}]


@pytest.mark.parametrize(
    ("topic", "offset", "code"),
    [
        ("t", 6, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("__consumer_offsets", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("missing", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refused(fixture: ReplicaFixture, topic: str, offset: int, code: ErrorCode) -> None:
    fixture.lead(tp())
    fixture.lead(tp("__consumer_offsets"))
    fixture.produce({tp(): batch(5)})
    assert fixture.delete_records({tp(topic): offset}) == [{tp(topic): DeleteRecordsResult(code)}]


def test_a_compacted_topic_keeps_its_records(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=("compact",))
    with ReplicaFixture(tmp_path, config=config) as fixture:
        fixture.lead(tp())
        fixture.produce({tp(): batch(5)})
        [results] = fixture.delete_records({tp(): 1})
        assert results[tp()].error is ErrorCode.POLICY_VIOLATION


def test_nothing_is_deleted_below_offset_0(fixture: ReplicaFixture) -> None:
    fixture.lead(tp())
    fixture.produce({tp(): batch(5)})
    assert fixture.delete_records({tp(): 0}) == [{tp(): DeleteRecordsResult(ErrorCode.NONE, 0)}]


def follow_with(fixture: ReplicaFixture, broker_id: int, log_start: int) -> None:
    partition = fixture.partition(tp())
    partition.apply_follower_fetch(
        broker_id, fetch_offset=5, log_start_offset=log_start, leader_epoch=partition.leader_epoch
    )
    fixture.purgatories.delete_records.check_and_complete(tp())


def test_deleting_waits_for_live_replicas(fixture: ReplicaFixture) -> None:
    """04b section 6: until the lowest log start of live replicas has come so far."""
    fixture.lead(tp(), replicas=(1, 2, 3))
    fixture.produce({tp(): batch(5)}, acks=1)
    follow_with(fixture, 2, 0)
    follow_with(fixture, 3, 0)
    fixture.alive.discard(3)
    answers = fixture.delete_records({tp(): 4, tp("missing"): 1})
    assert not answers
    follow_with(fixture, 2, 3)
    assert not answers
    follow_with(fixture, 2, 4)
    assert answers == [
        {
            tp(): DeleteRecordsResult(ErrorCode.NONE, 4),
            tp("missing"): DeleteRecordsResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        }
    ]


def test_a_follower_that_deletes_moves_the_low_watermark(fixture: ReplicaFixture) -> None:
    """By a single record as well; a fetch that says the same again moves nothing."""
    partition = fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(5)}, acks=1)
    fixture.fetch_as(2, tp(), 5)
    fixture.delete_records({tp(): 4})
    moves = [
        partition.apply_follower_fetch(
            2, fetch_offset=5, log_start_offset=log_start, leader_epoch=partition.leader_epoch
        )
        for log_start in (0, 1, 1, 3)
    ]
    assert (moves, partition.low_watermark) == ([False, True, False, True], 3)


def test_a_live_replica_that_has_not_been_heard_of_is_waited_for(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    fixture.produce({tp(): batch(5)})
    answers = fixture.delete_records({tp(): 4}, timeout_ms=100)
    assert not answers
    fixture.pass_time(101)
    assert answers == [{tp(): DeleteRecordsResult(ErrorCode.REQUEST_TIMED_OUT)}]


def test_a_change_of_role_ends_the_wait(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    fixture.produce({tp(): batch(5)})
    answers = fixture.delete_records({tp(): 4})
    fixture.apply(hosted(state_of(tp(), leader=2, replicas=(1, 2), leader_epoch=1)))
    assert answers == [{tp(): DeleteRecordsResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)}]
