"""Appends of a coordinator to its own topic: in an epoch, and as two events."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.internal_partitions import InternalPartitions
from odradek.errors import ErrorCode
from odradek.storage.log.config import LogConfig
from tests.support.logs import batch
from tests.support.replicas import ReplicaFixture, tp

TOPIC = "__consumer_offsets"
P = tp(TOPIC)


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path, config=LogConfig(max_message_bytes=1000)) as fixture:
        yield fixture


class Appends:
    """An internal topic, and what its appends told."""

    def __init__(self, fixture: ReplicaFixture) -> None:
        self.topic = InternalPartitions(TOPIC, fixture.replicas, timeout_ms=1000)
        self.told: list[object] = []

    def append(self, leader_epoch: int, records: bytearray | None = None) -> None:
        self.topic.append(
            0,
            leader_epoch,
            records or batch(),
            lambda *outcome: self.told.append(outcome),
            self.told.append,
        )


def test_with_no_other_replica_an_append_is_committed_at_once(fixture: ReplicaFixture) -> None:
    epoch = fixture.lead(P).leader_epoch
    appends = Appends(fixture)
    appends.append(epoch)
    appends.append(epoch)
    assert appends.told == [0, (ErrorCode.NONE, 0), 1, (ErrorCode.NONE, 1)]
    assert appends.topic.try_append(0, epoch, batch()) == (ErrorCode.NONE, 2)


def test_the_append_is_told_before_a_follower_has_it_the_commit_after(
    fixture: ReplicaFixture,
) -> None:
    epoch = fixture.lead(P, replicas=(1, 2)).leader_epoch
    appends = Appends(fixture)
    assert appends.topic.try_append(0, epoch, batch()) is None
    appends.append(epoch)
    assert appends.told == [0]
    fixture.fetch_as(2, P, 0)
    fixture.fetch_as(2, P, 1)
    assert appends.told == [0, (ErrorCode.NONE, 0)]


def test_an_append_that_other_replicas_miss_is_told_as_one_that_may_be_written(
    fixture: ReplicaFixture,
) -> None:
    epoch = fixture.lead(P, replicas=(1, 2)).leader_epoch
    appends = Appends(fixture)
    appends.append(epoch)
    fixture.pass_time(1001)
    assert [outcome[0] for outcome in appends.told[1:] if isinstance(outcome, tuple)] == [
        ErrorCode.REQUEST_TIMED_OUT
    ]


@pytest.mark.parametrize("replicas", [(1,), (1, 2)], ids=["alone", "with a follower"])
def test_nothing_is_written_in_another_epoch(
    fixture: ReplicaFixture, replicas: tuple[int, ...]
) -> None:
    epoch = fixture.lead(P, replicas=replicas).leader_epoch
    appends = Appends(fixture)
    for other in (epoch - 1, epoch + 1):
        assert appends.topic.try_append(0, other, batch()) is None
        appends.append(other)
    assert appends.told == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 2
    assert fixture.log(P).log_end_offset == 0


def test_a_batch_that_is_refused_was_not_appended(fixture: ReplicaFixture) -> None:
    epoch = fixture.lead(P).leader_epoch
    appends = Appends(fixture)
    appends.append(epoch, batch(value=b"x" * 2_000))
    [outcome] = appends.told
    assert outcome in (
        (ErrorCode.MESSAGE_TOO_LARGE, -1),
        (ErrorCode.RECORD_LIST_TOO_LARGE, -1),
    )
    assert fixture.log(P).log_end_offset == 0


def test_a_partition_that_is_not_here(fixture: ReplicaFixture) -> None:
    appends = Appends(fixture)
    assert appends.topic.try_append(0, 0, batch()) is None
    appends.append(0)
    [outcome] = appends.told
    assert isinstance(outcome, tuple)
    assert outcome[0] is not ErrorCode.NONE
