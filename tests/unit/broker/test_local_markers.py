"""Transaction markers on the leaders of a broker (10 sections 8.3 and 9.7)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.transactions.local_markers import LocalMarkers, MarkerResults
from odradek.errors import ErrorCode
from odradek.model import AppendOrigin, TopicPartition, TransactionMarker
from odradek.testing import ManualClock
from tests.support.kept_tasks import KeptTasks
from tests.support.log_scenarios import idempotent
from tests.support.replicas import ReplicaFixture, tp

A, B = tp("a"), tp("b")
OFFSETS = TopicPartition("__consumer_offsets", 3)


class EndedTransactions:
    """`StagedOffsets` that keeps what it is told."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, int, bool]] = []

    def end_transaction(self, partition: int, producer_id: int, *, is_commit: bool) -> None:
        self.ended.append((partition, producer_id, is_commit))


class Fixture(ReplicaFixture):
    """Replicas, and the markers that are written to them."""

    staged: EndedTransactions
    markers: LocalMarkers

    def write(self, *markers: TransactionMarker) -> list[MarkerResults]:
        """The outcomes; none while a marker waits for replicas."""
        told: list[MarkerResults] = []
        for _ in self.markers.steps(markers, told.append):
            pass
        return told


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[Fixture]:
    with Fixture(tmp_path) as fixture:
        fixture.staged = EndedTransactions()
        fixture.markers = LocalMarkers(
            fixture.replicas, fixture.staged, clock=ManualClock(), tasks=KeptTasks()
        )
        yield fixture


def marker(
    *partitions: TopicPartition,
    producer_epoch: int = 0,
    coordinator_epoch: int = 5,
    is_commit: bool = True,
    transaction_version: int = 0,
    producer_id: int = 4000,
) -> TransactionMarker:
    return TransactionMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=is_commit,
        transaction_version=transaction_version,
        partitions=partitions,
    )


def begin_transaction(
    fixture: Fixture, partition: TopicPartition, *, epoch: int = 0, sequence: int = 0
) -> None:
    batch = idempotent(sequence, 2, epoch=epoch, is_transactional=True)
    fixture.produce(
        {partition: batch}, origin=AppendOrigin.COORDINATOR, internal_topics_allowed=True
    )


def test_a_marker_ends_the_transaction_of_each_partition(fixture: Fixture) -> None:
    """10:TX-1: one control batch per partition; a partition that is named twice has one."""
    for partition in (A, B):
        fixture.lead(partition)
        begin_transaction(fixture, partition)
        assert fixture.log(partition).last_stable_offset == 0
    assert fixture.write(marker(A, B, A)) == [[{A: ErrorCode.NONE, B: ErrorCode.NONE}]]
    for partition in (A, B):
        assert fixture.log(partition).log_end_offset == 3
        assert fixture.log(partition).last_stable_offset == 3
        assert fixture.log(partition).producer_state.producers[4000].coordinator_epoch == 5


def test_results_wait_for_the_replicas_in_sync(fixture: Fixture) -> None:
    """10 section 9.7: acks -1; offsets are settled below the high watermark only."""
    fixture.lead(OFFSETS, replicas=(1, 2))
    begin_transaction(fixture, OFFSETS)
    told = fixture.write(marker(OFFSETS))
    assert not told
    assert not fixture.staged.ended
    fixture.fetch_as(2, OFFSETS, 2)
    assert not told
    fixture.fetch_as(2, OFFSETS, 3)
    assert told == [[{OFFSETS: ErrorCode.NONE}]]
    assert fixture.staged.ended == [(3, 4000, True)]


def test_a_marker_that_is_not_replicated_settles_no_offset(fixture: Fixture) -> None:
    """10 section 9.7: its coordinator sends it again, and a second marker does no harm."""
    fixture.lead(OFFSETS, replicas=(1, 2))
    begin_transaction(fixture, OFFSETS)
    told = fixture.write(marker(OFFSETS, is_commit=False))
    fixture.pass_time(30_001)
    assert told == [[{OFFSETS: ErrorCode.REQUEST_TIMED_OUT}]]
    assert not fixture.staged.ended
    again = fixture.write(marker(OFFSETS, is_commit=False))
    fixture.fetch_as(2, OFFSETS, 4)
    assert again == [[{OFFSETS: ErrorCode.NONE}]]
    assert fixture.staged.ended == [(3, 4000, False)]


def test_a_bad_partition_does_not_stop_the_others(fixture: Fixture) -> None:
    """10 section 9.7: each partition has its own result, so that its marker is sent elsewhere."""
    fixture.lead(A)
    fixture.known.add(B)
    begin_transaction(fixture, A)
    gone = tp("gone")
    [[result]] = fixture.write(marker(gone, B, A))
    assert result == {
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        B: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        A: ErrorCode.NONE,
    }


@pytest.mark.parametrize(
    ("late", "error"),
    [
        pytest.param(
            {"coordinator_epoch": 4}, ErrorCode.TRANSACTION_COORDINATOR_FENCED, id="10:TX-8"
        ),
        pytest.param({"producer_epoch": 0}, ErrorCode.INVALID_PRODUCER_EPOCH, id="10:9.7-epoch"),
    ],
)
def test_late_markers(fixture: Fixture, late: dict[str, Any], error: ErrorCode) -> None:
    """Nothing is written for a coordinator or a producer that was replaced."""
    fixture.lead(A)
    begin_transaction(fixture, A, epoch=1)
    fixture.write(marker(A, producer_epoch=1))
    begin_transaction(fixture, A, epoch=1, sequence=2)
    end = fixture.log(A).log_end_offset
    [[result]] = fixture.write(marker(A, **{"producer_epoch": 1, **late}))
    assert result == {A: error}
    assert fixture.log(A).log_end_offset == end
    assert fixture.log(A).last_stable_offset == 3


def test_under_version_2_a_marker_ends_only_its_own_transaction(fixture: Fixture) -> None:
    """10 section 16: its epoch exceeds that of the batches; repeated, it is written again."""
    fixture.lead(A)
    begin_transaction(fixture, A, epoch=0)
    first = marker(A, producer_epoch=1, transaction_version=2)
    for _ in range(2):
        assert fixture.write(first) == [[{A: ErrorCode.NONE}]]
    assert fixture.log(A).last_stable_offset == 4
    begin_transaction(fixture, A, epoch=1)
    assert fixture.write(first) == [[{A: ErrorCode.INVALID_PRODUCER_EPOCH}]]
    assert fixture.log(A).last_stable_offset == 4
    assert fixture.log(A).log_end_offset == 6
    following = marker(A, producer_epoch=2, transaction_version=2)
    assert fixture.write(following) == [[{A: ErrorCode.NONE}]]
    assert fixture.log(A).last_stable_offset == 7


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": -1},
        {"producer_epoch": -1},
        {"coordinator_epoch": -1},
        {"transaction_version": -1},
    ],
    ids=str,
)
def test_markers_that_no_coordinator_makes(fixture: Fixture, fields: dict[str, Any]) -> None:
    """10 section 9.7: refused by name, and the markers beside it are written."""
    fixture.lead(A)
    fixture.lead(B)
    refused, written = fixture.write(marker(A, **fields), marker(B))[0]
    assert refused == {A: ErrorCode.INVALID_REQUEST}
    assert written == {B: ErrorCode.NONE}
    assert fixture.log(A).log_end_offset == 0


def test_many_markers_are_written_in_steps(fixture: Fixture) -> None:
    """02 section 12: other tasks run in between."""
    partitions = tuple(tp("t", number) for number in range(50))
    for partition in partitions[:3]:
        fixture.lead(partition)
    told: list[MarkerResults] = []
    steps = fixture.markers.steps([marker(*partitions)] * 2, told.append)
    assert sum(1 for _ in steps) == 2 + 6
    assert [len(result) for result in told[0]] == [50, 50]


def test_a_marker_with_nothing_to_wait_for_is_written_at_once(fixture: Fixture) -> None:
    """10 section 9.7: the offsets of its transaction are settled with it."""
    for partition in (A, OFFSETS):
        fixture.lead(partition)
        begin_transaction(fixture, partition)
    end = marker(A, OFFSETS)
    assert fixture.markers.try_write(end) == {A: ErrorCode.NONE, OFFSETS: ErrorCode.NONE}
    assert fixture.log(A).last_stable_offset == 3
    assert fixture.staged.ended == [(3, 4000, True)]
    late = marker(A, coordinator_epoch=4)
    assert fixture.markers.try_write(late) == {A: ErrorCode.TRANSACTION_COORDINATOR_FENCED}


@pytest.mark.parametrize("kind", ["unknown", "not-led", "replicated", "malformed"])
def test_a_marker_is_not_begun_if_one_partition_has_to_be_waited_for(
    fixture: Fixture, kind: str
) -> None:
    fixture.lead(A)
    begin_transaction(fixture, A)
    if kind == "not-led":
        fixture.known.add(B)
    elif kind == "replicated":
        fixture.lead(B, replicas=(1, 2))
    coordinator_epoch = -1 if kind == "malformed" else 5
    end = marker(*((A,) if kind == "malformed" else (A, B)), coordinator_epoch=coordinator_epoch)
    assert fixture.markers.try_write(end) is None
    assert fixture.log(A).log_end_offset == 2
    assert fixture.log(A).last_stable_offset == 0


def test_awaited(fixture: Fixture) -> None:
    fixture.lead(A)
    assert asyncio.run(fixture.markers.write([marker(A), marker(B)])) == [
        {A: ErrorCode.NONE},
        {B: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    ]
    assert asyncio.run(fixture.markers.write([])) == []
