"""Reading through the replica manager, and the fetches that wait (05 section 8, 04b section 6)."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.replication import DelayedFetch, FetchParams, FetchPartition, FetchResults
from odradek.storage.log.config import LogConfig
from odradek.storage.log.reader import FetchIsolation
from tests.support.log_scenarios import transactional
from tests.support.logs import batch, marker
from tests.support.replicas import ReplicaFixture, hosted, state_of, stopped, tp

A, B, C = tp("a"), tp("b"), tp("c")
SIZE = 100  # Of the batches here.


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path) as fixture:
        yield fixture


def params(**fields: int | bool) -> FetchParams:
    return FetchParams(max_wait_ms=0, min_bytes=0, max_bytes=0, **fields)  # type: ignore[arg-type]


def want(
    partition: TopicPartition,
    offset: int = 0,
    max_bytes: int = 1 << 20,
    *,
    topic_id: uuid.UUID | None = None,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchPartition:
    return FetchPartition(
        partition, topic_id, offset, max_bytes, current_leader_epoch, -1, last_fetched_epoch
    )


def sizes(answers: list[FetchResults]) -> list[int]:
    [results] = answers
    return [0 if r.records is None else len(r.records) for _, r in results]


def error_of(answers: list[FetchResults]) -> ErrorCode:
    [[(_, result)]] = answers
    return result.error


@pytest.mark.parametrize(
    ("fields", "isolation"),
    [
        pytest.param({"replica_id": 0}, FetchIsolation.LOG_END, id="05:R17-follower-0"),
        pytest.param({"replica_id": 3}, FetchIsolation.LOG_END, id="05:R17-follower"),
        pytest.param({"read_committed": True}, FetchIsolation.TXN_COMMITTED, id="05:R17-committed"),
        pytest.param({}, FetchIsolation.HIGH_WATERMARK, id="05:R17-uncommitted"),
        pytest.param({"replica_id": -3}, FetchIsolation.LOG_END, id="05:R17-future-replica"),
    ],
)
def test_how_far_a_reader_sees(fields: dict[str, int], isolation: FetchIsolation) -> None:
    assert params(**fields).isolation is isolation


@pytest.mark.parametrize(
    ("fields", "only_from_leader"),
    [
        pytest.param({"replica_id": 2}, True, id="05:R18-follower"),
        pytest.param({}, True, id="05:R18-consumer"),
        pytest.param({"has_client_metadata": True}, False, id="05:R18-consumer-with-metadata"),
        pytest.param({"replica_id": -3}, False, id="05:R18-future-replica"),
    ],
)
def test_who_reads_from_the_leader_alone(fields: dict[str, int], only_from_leader: bool) -> None:
    assert params(**fields).only_from_leader is only_from_leader


def test_followers_and_consumers_see_different_ends(fixture: ReplicaFixture) -> None:
    """05:R17 on a log: 2 records replicated, 3 written, the last 2 in an open transaction."""
    fixture.lead(A, replicas=(1, 2))
    fixture.produce({A: batch(1, size=SIZE)}, acks=1)
    fixture.produce({A: transactional(0, 1, size=SIZE)}, acks=1)
    fixture.produce({A: transactional(1, 1, size=SIZE)}, acks=1)
    fixture.fetch_as(2, A, 2)
    assert sizes(fixture.fetch(want(A), replica_id=2)) == [3 * SIZE]
    assert sizes(fixture.fetch(want(A))) == [2 * SIZE]
    assert sizes(fixture.fetch(want(A), read_committed=True)) == [SIZE]


# Now or later


@pytest.mark.parametrize(
    ("max_wait_ms", "min_bytes", "offset", "waits"),
    [
        pytest.param(500, 1, 1, True, id="05:R19-nothing-there"),
        pytest.param(0, 1, 1, False, id="05:R19-no-time"),
        pytest.param(500, 1, 0, False, id="05:R19-enough"),
        pytest.param(500, 1, 99, False, id="05:R19-error"),
        pytest.param(500, SIZE + 1, 0, True, id="too-little"),
        pytest.param(500, 0, 1, False, id="nothing-wanted"),
    ],
)
def test_now_or_later(
    fixture: ReplicaFixture, max_wait_ms: int, min_bytes: int, offset: int, waits: bool
) -> None:
    fixture.lead(A)
    fixture.produce({A: batch(1, size=SIZE)})
    answers = fixture.fetch(want(A, offset), max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    assert (not answers) is waits
    assert fixture.purgatories.fetch.num_delayed == int(waits)


def test_a_fetch_without_partitions(fixture: ReplicaFixture) -> None:
    assert fixture.fetch() == [[]]


def test_a_fetch_waits_for_enough_over_all_partitions(fixture: ReplicaFixture) -> None:
    for partition in (A, B):
        fixture.lead(partition)
    answers = fixture.fetch(want(A), want(B), min_bytes=3 * SIZE)
    fixture.produce({A: batch(1, size=SIZE)})
    fixture.produce({B: batch(1, size=SIZE)})
    assert not answers
    fixture.produce({B: batch(1, size=SIZE)})
    assert sizes(answers) == [SIZE, 2 * SIZE]
    assert fixture.purgatories.fetch.num_delayed == 0


def test_what_one_partition_may_give_counts_only(fixture: ReplicaFixture) -> None:
    """A partition whose share is small cannot make up for the others."""
    fixture.lead(A)
    answers = fixture.fetch(want(A, max_bytes=SIZE), min_bytes=SIZE + 1)
    fixture.produce({A: batch(1, size=SIZE)})
    fixture.produce({A: batch(1, size=SIZE)})
    assert not answers
    fixture.pass_time(501)
    assert sizes(answers) == [SIZE]


def test_a_fetch_that_ran_out_of_time_answers_what_is_there(fixture: ReplicaFixture) -> None:
    fixture.lead(A)
    answers = fixture.fetch(want(A), min_bytes=1000)
    fixture.produce({A: batch(1, size=SIZE)})
    fixture.pass_time(501)
    assert sizes(answers) == [SIZE]
    name = "ExpiresPerSec"
    group = fixture.registry.group("kafka.server", "DelayedFetchMetrics", fetcherType="consumer")
    assert group.meter(name).count == 1


def test_a_reader_ahead_of_the_high_watermark_waits(fixture: ReplicaFixture) -> None:
    """As after a change of leader: answering at once would make it ask again at once."""
    fixture.lead(A, replicas=(1, 2))
    fixture.produce({A: batch(3, size=SIZE)}, acks=1)
    answers = fixture.fetch(want(A, 2))
    fixture.produce({A: batch(1)}, acks=1)
    assert not answers
    fixture.fetch_as(2, A, 3)
    assert sizes(answers) == [SIZE]


def test_the_end_on_another_segment(tmp_path: Path) -> None:
    """04b section 6, case F: bytes cannot be counted over segments, so it is answered."""
    with ReplicaFixture(tmp_path, config=LogConfig(segment_bytes=150)) as fixture:
        fixture.lead(A)
        fixture.produce({A: batch(1, size=SIZE)})
        answers = fixture.fetch(want(A, 0), min_bytes=10_000)
        assert not answers
        fixture.produce({A: batch(1, size=SIZE)})
        assert sizes(answers) == [SIZE]


def test_a_roll_alone_is_no_news(tmp_path: Path) -> None:
    with ReplicaFixture(tmp_path) as fixture:
        fixture.lead(A)
        fixture.produce({A: batch(1, size=SIZE)})
        answers = fixture.fetch(want(A, 1))
        fixture.log(A).roll()
        fixture.purgatories.fetch.check_and_complete(A)
        assert not answers
        fixture.produce({A: batch(1, size=SIZE)})
        assert sizes(answers) == [SIZE]


@pytest.mark.parametrize(
    ("leader", "current_epoch", "expected"),
    [
        (2, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 0, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_fetch_ends_with_the_role(
    fixture: ReplicaFixture, leader: int, current_epoch: int, expected: ErrorCode
) -> None:
    """04b section 6, cases A and E."""
    fixture.lead(A, replicas=(1, 2))
    answers = fixture.fetch(want(A, current_leader_epoch=current_epoch))
    fixture.apply(hosted(state_of(A, leader=leader, replicas=(1, 2), leader_epoch=1)))
    assert error_of(answers) is expected


def test_a_fetch_ends_with_the_partition(fixture: ReplicaFixture) -> None:
    """04b section 6, case C."""
    fixture.lead(A)
    answers = fixture.fetch(want(A))
    fixture.apply(stopped(A))
    assert error_of(answers) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_connection_that_closes_ends_its_fetch(fixture: ReplicaFixture) -> None:
    """04b:D3: completed once, out of the timer at once and out of the lists at the next purge."""
    fixture.lead(A)
    parked: list[DelayedFetch] = []
    answers = fixture.fetch(want(A), max_wait_ms=2**31 - 1, parked=parked)
    purgatory = fixture.purgatories.fetch
    assert (answers, len(parked), purgatory.num_delayed) == ([], 1, 1)
    assert parked[0].force_complete()
    assert purgatory.num_delayed == 0
    assert len(answers) == 1  # To a connection that is gone: it drops the answer.
    assert not parked[0].force_complete()
    fixture.produce({A: batch()})
    assert len(answers) == 1
    fixture.fetch(want(A, 1), parked=parked)  # Counts towards the next purge, interval 1.
    fixture.fetch(want(A, 1), parked=parked)
    purgatory.advance_clock(0)
    assert purgatory.watched == 2


def test_a_fetch_that_is_answered_is_not_handed_out(fixture: ReplicaFixture) -> None:
    fixture.lead(A)
    fixture.produce({A: batch()})
    parked: list[DelayedFetch] = []
    fixture.fetch(want(A), parked=parked)
    assert not parked


# One read for many


def test_fetches_that_wait_for_the_same_are_read_for_once(fixture: ReplicaFixture) -> None:
    fixture.lead(A)
    alike = [fixture.fetch(want(A)) for _ in range(3)]
    others = [
        fixture.fetch(want(A, max_bytes=10)),
        fixture.fetch(want(A), max_bytes=10),
        fixture.fetch(want(A), read_committed=True),
        fixture.fetch(want(A, current_leader_epoch=fixture.partition(A).leader_epoch)),
    ]
    fixture.produce({A: batch(1, size=SIZE)})
    found = [results[0][1].records for [results] in (*alike, *others)]
    assert all(records is not None and records.length == SIZE for records in found)
    assert found[0] is found[1] is found[2]
    assert len({id(records) for records in found}) == 1 + len(others)
    assert found[0] is not None
    assert found[0].data == found[0].read(), "read into memory once, for all that share it"
    assert fixture.count("TotalFetchRequestsPerSec", "a") == 2 * len(found)
    assert fixture.count("BytesOutPerSec", "a") == fixture.count("BytesOutPerSec")
    assert fixture.count("BytesOutPerSec") == SIZE * len(found)


def test_a_read_is_not_shared_over_an_append(fixture: ReplicaFixture) -> None:
    """An answer that brings its client's next request at once: the next fetch sees that, too."""
    fixture.lead(A)
    found: list[FetchResults] = []

    def respond(results: FetchResults) -> None:
        found.append(results)
        if len(found) == 1:
            fixture.produce({A: batch(1, size=SIZE)})

    for _ in range(3):
        whole = FetchParams(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
        fixture.replicas.reads.fetch(whole, [want(A)], respond)
    fixture.produce({A: batch(1, size=SIZE)})
    assert [results[0][1].high_watermark for results in found] == [1, 2, 2]
    assert [sizes([results]) for results in found] == [[SIZE], [2 * SIZE], [2 * SIZE]]


# The byte budget


def fill(fixture: ReplicaFixture) -> None:
    for partition in (A, B, C):
        fixture.lead(partition)
        for _ in range(3):
            fixture.produce({partition: batch(1, size=SIZE)})


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes", "expected"),
    [
        pytest.param(1000, 1000, [300, 300, 300], id="all"),
        pytest.param(400, 1000, [300, 100, 0], id="in-order-of-the-request"),
        pytest.param(1000, 200, [200, 200, 200], id="by-partition"),
        pytest.param(10, 1000, [100, 0, 0], id="one-whole-batch-above-the-budget"),
        pytest.param(1000, 10, [100, 0, 0], id="one-whole-batch-above-the-share"),
        pytest.param(0, 0, [100, 0, 0], id="nothing-allowed"),
        pytest.param(-5, -5, [100, 0, 0], id="negative"),
    ],
)
def test_budget(
    fixture: ReplicaFixture, max_bytes: int, partition_max_bytes: int, expected: list[int]
) -> None:
    """05 section 8 and 11 section 6.2: whole batches, at least one, in order of the request.

    With 400 bytes the second partition has room for 100 after 300 of the first; what would be cut
    in the middle of a batch is left out unless a part of it follows a whole one.
    """
    fill(fixture)
    wanted = [want(p, max_bytes=partition_max_bytes) for p in (A, B, C)]
    assert sizes(fixture.fetch(*wanted, max_bytes=max_bytes)) == expected


def test_an_empty_partition_does_not_use_up_the_first_batch(fixture: ReplicaFixture) -> None:
    fill(fixture)
    answers = fixture.fetch(want(A, 3), want(B, max_bytes=10), want(C), max_bytes=20)
    assert sizes(answers) == [0, SIZE, 0]


def test_a_hard_limit_is_never_exceeded(fixture: ReplicaFixture) -> None:
    """Fetch up to v2: part of a batch, from which the client sees that it must ask for more."""
    fill(fixture)
    answers = fixture.fetch(want(A), want(B), max_bytes=30, is_hard_limit=True)
    assert sum(sizes(answers)) <= 30


# Errors and ids


def test_errors_do_not_stop_the_others(fixture: ReplicaFixture) -> None:
    fixture.lead(B)
    fixture.produce({B: batch(1, size=SIZE)})
    [results] = fixture.fetch(want(A), want(B), want(B, 77))
    assert [r.error for _, r in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ]
    assert [r.high_watermark for _, r in results] == [-1, 1, -1]


def test_a_follower_serves_only_those_who_may_ask_it(fixture: ReplicaFixture) -> None:
    fixture.apply(hosted(state_of(A, leader=2, replicas=(1, 2))))
    assert error_of(fixture.fetch(want(A))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(fixture.fetch(want(A), max_wait_ms=0, has_client_metadata=True)) is (
        ErrorCode.NONE
    )


def test_a_broker_without_a_replica_sends_every_reader_away(fixture: ReplicaFixture) -> None:
    fixture.known.add(A)
    for is_modern in (False, True):
        answers = fixture.fetch(want(A), has_client_metadata=is_modern)
        assert error_of(answers) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epoch_of_a_consumer(
    fixture: ReplicaFixture, epoch: int, expected: ErrorCode
) -> None:
    fixture.lead(A, leader_epoch=3)
    answers = fixture.fetch(want(A, current_leader_epoch=epoch), max_wait_ms=0)
    assert error_of(answers) is expected


def test_topic_ids(fixture: ReplicaFixture) -> None:
    mine, other = uuid.UUID(int=5), uuid.UUID(int=6)
    fixture.apply(hosted(state_of(A), topic_id=mine))
    for topic_id, expected in [
        (None, ErrorCode.NONE),
        (mine, ErrorCode.NONE),
        (other, ErrorCode.INCONSISTENT_TOPIC_ID),
    ]:
        answers = fixture.fetch(want(A, topic_id=topic_id), max_wait_ms=0)
        assert error_of(answers) is expected


def test_a_fetch_ends_when_another_topic_takes_the_name(fixture: ReplicaFixture) -> None:
    old, new = uuid.UUID(int=5), uuid.UUID(int=6)
    fixture.apply(hosted(state_of(A), topic_id=old))
    answers = fixture.fetch(want(A, topic_id=old))
    fixture.apply(hosted(state_of(A), topic_id=new, is_new=True))
    assert error_of(answers) is ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        (-1, 4, None),
        (2, 4, None),
        (0, 2, None),
        (0, 3, (0, 2)),  # Epoch 0 ended at 2 here.
        (1, 2, (0, 2)),  # Epoch 1 never was here.
    ],
)
def test_a_reader_on_another_path(
    fixture: ReplicaFixture, last_epoch: int, offset: int, diverging: tuple[int, int] | None
) -> None:
    """11 section 6.2: no records, but where the reader's log parts from ours; at once."""
    fixture.lead(A, leader_epoch=0)
    fixture.produce({A: batch(2)})
    fixture.lead(A, leader_epoch=2)
    fixture.produce({A: batch(3)})
    answers = fixture.fetch(want(A, offset, last_fetched_epoch=last_epoch), min_bytes=1)
    [[(_, result)]] = answers
    assert (result.error, result.diverging_epoch) == (ErrorCode.NONE, diverging)
    assert (result.records is None) is (diverging is not None)


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        pytest.param(2, ErrorCode.OFFSET_OUT_OF_RANGE, id="below the log start"),
        pytest.param(3, ErrorCode.NONE, id="at the log start"),
    ],
)
def test_a_path_is_compared_from_the_log_start_on(
    fixture: ReplicaFixture, offset: int, error: ErrorCode
) -> None:
    """11 section 6.2: below it nothing is left to compare with, though the epoch is known."""
    fixture.lead(A, leader_epoch=0)
    fixture.produce({A: batch(5)})
    fixture.lead(A, leader_epoch=2)
    fixture.produce({A: batch(1)})
    fixture.delete_records({A: 3})
    [[(_, result)]] = fixture.fetch(want(A, offset, last_fetched_epoch=1))
    diverging = (0, 5) if error is ErrorCode.NONE else None
    assert (result.error, result.diverging_epoch) == (error, diverging)


def test_an_epoch_that_cannot_be_compared(fixture: ReplicaFixture) -> None:
    fixture.lead(A, leader_epoch=2)
    fixture.produce({A: batch(3)})
    answers = fixture.fetch(want(A, 1, last_fetched_epoch=5))
    assert error_of(answers) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_aborted_transactions_are_listed(fixture: ReplicaFixture) -> None:
    fixture.lead(A)
    fixture.produce({A: transactional(0, 2, producer_id=7)})
    fixture.produce({A: marker(commit=False, producer_id=7)}, origin=AppendOrigin.COORDINATOR)
    [[(_, result)]] = fixture.fetch(want(A), read_committed=True)
    assert result.aborted_transactions == [(7, 0)]
    [[(_, result)]] = fixture.fetch(want(A))
    assert result.aborted_transactions is None


def test_meters_of_a_fetch(fixture: ReplicaFixture) -> None:
    fixture.lead(A, replicas=(1, 2))
    fixture.produce({A: batch(1, size=SIZE)}, acks=1)
    fixture.fetch_as(2, A, 0)
    fixture.fetch_as(2, A, 1)
    fixture.fetch(want(A))
    fixture.fetch(want(B))
    assert fixture.count("TotalFetchRequestsPerSec", "a") == 3
    assert fixture.count("TotalFetchRequestsPerSec") == 4
    assert fixture.count("BytesOutPerSec", "a") == SIZE
    assert fixture.count("BytesOutPerSec") == SIZE
    assert fixture.count("ReplicationBytesOutPerSec") == SIZE
    assert fixture.count("FailedFetchRequestsPerSec") == 0
