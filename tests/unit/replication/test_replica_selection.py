"""Which replica a consumer should read from (KIP-392; 05 section 8, read_from_local_log)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.replication import FetchPartition, FetchResult
from odradek.replication.fetch_values import ClientPlace
from odradek.replication.isr import FollowerState
from odradek.replication.replica_selection import NO_REPLICA, select_replica
from tests.support.logs import batch
from tests.support.replicas import ReplicaFixture, hosted, state_of, tp

A = tp("a")
LEADER = 1
RACKS = {1: "a", 2: "b", 3: "b", 4: "c", 5: None}


def follower(broker_id: int, end: int, *, start: int = 0, caught_up_ms: int = 0) -> FollowerState:
    made = FollowerState(broker_id)
    made.log_start_offset, made.log_end_offset = start, end
    made.last_caught_up_ms = caught_up_ms
    return made


def select(
    rack: str, offset: int, *followers: FollowerState, isr: tuple[int, ...] = (1, 2, 3, 4, 5)
) -> int:
    return select_replica(
        rack, offset, leader_id=LEADER, followers=followers, isr=isr, rack_of=RACKS.get
    )


@pytest.mark.parametrize(
    ("rack", "offset", "selected"),
    [
        pytest.param("b", 100, 3, id="the furthest of the rack"),
        pytest.param("b", 125, 3, id="the only one that has the offset"),
        pytest.param("b", 130, 3, id="at its end"),
        pytest.param("b", 131, NO_REPLICA, id="beyond all ends"),
        pytest.param("c", 100, 4, id="another rack"),
        pytest.param("c", 49, NO_REPLICA, id="before the follower's start"),
        pytest.param("c", 50, 4, id="at the follower's start"),
        pytest.param("a", 100, NO_REPLICA, id="the leader's rack"),
        pytest.param("d", 100, NO_REPLICA, id="a rack without a replica"),
    ],
)
def test_a_rack_and_an_offset(rack: str, offset: int, selected: int) -> None:
    followers = [follower(2, 120), follower(3, 130), follower(4, 130, start=50), follower(5, 130)]
    assert select(rack, offset, *followers) == selected


def test_a_follower_out_of_sync_is_not_read() -> None:
    assert select("b", 0, follower(2, 120), follower(3, 130), isr=(1, 2)) == 2
    assert select("b", 0, follower(2, 120), follower(3, 130), isr=(1, 4)) == NO_REPLICA


def test_a_follower_that_has_not_fetched_yet_is_not_read() -> None:
    assert select("b", 0, FollowerState(2)) == NO_REPLICA


@pytest.mark.parametrize(
    ("caught_up_ms", "selected"),
    [
        pytest.param({2: 9, 3: 7}, 2, id="the one that was caught up last"),
        pytest.param({2: 7, 3: 7}, 3, id="then the larger id"),
    ],
)
def test_of_equal_ends(caught_up_ms: dict[int, int], selected: int) -> None:
    followers = [follower(b, 120, caught_up_ms=ms) for b, ms in caught_up_ms.items()]
    assert select("b", 0, *followers) == selected
    assert select("b", 0, *reversed(followers)) == selected


# In a fetch


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    """Broker 1 leads; 2 and 3 are in rack b, but broker 3 is not reached by listener OUTSIDE."""
    with ReplicaFixture(tmp_path) as fixture:
        fixture.replicas.use_racks(
            lambda broker, listener: None if (broker, listener) == (3, "OUTSIDE") else RACKS[broker]
        )
        fixture.lead(A, replicas=(1, 2, 3), leader_epoch=4)
        fixture.produce({A: batch(3)}, acks=1)
        for broker_id in (2, 3):
            fixture.fetch_as(broker_id, A, 3)
        yield fixture


def consume(
    fixture: ReplicaFixture, offset: int, rack: str, listener: str = "INSIDE", epoch: int = -1
) -> list[FetchResult]:
    """The result of a consumer's fetch; none while it is parked."""
    answers = fixture.fetch(
        FetchPartition(A, None, offset, 1 << 20, epoch),
        has_client_metadata=True,
        place=ClientPlace(rack, listener),
    )
    return [result for results in answers for _, result in results]


def test_a_consumer_is_sent_to_the_follower_of_its_rack(fixture: ReplicaFixture) -> None:
    """11 section 6.2: no error, the leader's watermarks, no records; and nothing is counted."""
    [result] = consume(fixture, 0, "b")
    assert (result.error, result.preferred_read_replica) == (ErrorCode.NONE, 3)
    assert (result.records, result.high_watermark, result.log_start_offset) == (None, 3, 0)
    assert fixture.count("BytesOutPerSec", "a") == 0


def test_a_consumer_at_the_end_is_sent_there_without_a_wait(fixture: ReplicaFixture) -> None:
    [result] = consume(fixture, 3, "b")
    assert result.preferred_read_replica == 3
    assert fixture.purgatories.fetch.num_delayed == 0


def test_only_a_follower_that_the_consumer_reaches(fixture: ReplicaFixture) -> None:
    [result] = consume(fixture, 0, "b", "OUTSIDE")
    assert result.preferred_read_replica == 2


def test_the_leader_serves_other_racks_and_readers_without_one(fixture: ReplicaFixture) -> None:
    for rack in ("a", "c"):
        [result] = consume(fixture, 0, rack)
        assert (result.records is not None, result.preferred_read_replica) == (True, NO_REPLICA)
    [[(_, result)]] = fixture.fetch(FetchPartition(A, None, 0, 1 << 20), has_client_metadata=True)
    assert (result.records is not None, result.preferred_read_replica) == (True, NO_REPLICA)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_the_epoch_is_compared_before_a_consumer_is_sent_away(
    fixture: ReplicaFixture, epoch: int, expected: ErrorCode
) -> None:
    [result] = consume(fixture, 0, "b", epoch=epoch)
    assert (result.error, result.preferred_read_replica) == (expected, NO_REPLICA)


def test_without_a_selector_the_leader_serves_every_rack(tmp_path: Path) -> None:
    with ReplicaFixture(tmp_path) as fixture:
        fixture.lead(A, replicas=(1, 2))
        fixture.produce({A: batch(3)}, acks=1)
        fixture.fetch_as(2, A, 3)
        [result] = consume(fixture, 0, "b")
        assert (result.records is not None, result.preferred_read_replica) == (True, NO_REPLICA)


def test_a_fetch_that_waited_is_sent_away_when_its_follower_is_in_sync(
    fixture: ReplicaFixture,
) -> None:
    """And consumers of other racks that wait at the same offset get the records."""
    fixture.lead(A, replicas=(1, 2, 3), isr=(1,), leader_epoch=5)
    waiting = [
        fixture.fetch(
            FetchPartition(A, None, 3, 1 << 20),
            has_client_metadata=True,
            place=ClientPlace(rack, "INSIDE"),
        )
        for rack in ("b", "a", "b")
    ]
    assert not any(waiting)
    fixture.lead(A, replicas=(1, 2, 3), isr=(1, 2), leader_epoch=5, partition_version=1)
    fixture.fetch_as(2, A, 3)
    fixture.produce({A: batch(1)}, acks=1)
    fixture.fetch_as(2, A, 4)
    found = [result for [results] in waiting for _, result in results]
    assert [one.preferred_read_replica for one in found] == [2, NO_REPLICA, 2]
    assert [one.records is None for one in found] == [True, False, True]


# On a follower


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(0, (ErrorCode.NONE, True), id="committed"),
        pytest.param(2, (ErrorCode.NONE, False), id="not committed here yet"),
        pytest.param(4, (ErrorCode.OFFSET_OUT_OF_RANGE, False), id="not here yet"),
    ],
)
def test_a_follower_serves_up_to_its_high_watermark(
    tmp_path: Path, offset: int, expected: tuple[ErrorCode, bool]
) -> None:
    """Three records are here, two of them committed as far as the leader has told."""
    with ReplicaFixture(tmp_path) as fixture:
        fixture.replicas.use_racks(lambda broker, _listener: RACKS[broker])
        fixture.apply(hosted(state_of(A, leader=2, replicas=(1, 2))))
        log = fixture.log(A)
        for number in range(3):
            log.append_as_follower(batch(1, base_offset=number))
        log.update_high_watermark(2)
        [[(_, result)]] = fixture.fetch(
            FetchPartition(A, None, offset, 1 << 20),
            max_wait_ms=0,
            has_client_metadata=True,
            place=ClientPlace("a", "INSIDE"),
        )
        assert (result.error, result.records is not None) == expected
        assert fixture.count("TotalFetchRequestsPerSec", "a") == 1
