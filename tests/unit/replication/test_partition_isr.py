"""High watermark and ISR of a leader, with changes in flight (05 section 10)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.metadata.ports import IsrAltered, IsrConflict, IsrOutcomeUnknown
from odradek.replication import FetchPartition, Partition
from odradek.replication.isr import IsrChange
from tests.support.logs import batch
from tests.support.replicas import BROKER_ID, MAX_LAG_MS, ReplicaFixture, hosted, state_of, tp


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path) as fixture:
        yield fixture


def count(fixture: ReplicaFixture, name: str) -> int:
    return fixture.count(name, type_name="ReplicaManager")


def shrink(fixture: ReplicaFixture) -> tuple[Partition, IsrChange]:
    [proposal] = fixture.isr_shrinks()
    return proposal


def test_members_leave_one_after_another(fixture: ReplicaFixture) -> None:
    """05:R26: ISR {1,2,3}, ends 10, 8, 9: 8, then 9 without 2, then 10 with the leader alone."""
    partition = fixture.lead(tp(), replicas=(1, 2, 3))
    fixture.produce({tp(): batch(10)}, acks=1)
    fixture.fetch_as(2, tp(), 8)
    fixture.fetch_as(3, tp(), 9)
    seen = [fixture.high_watermark(tp())]
    fixture.clock.advance(MAX_LAG_MS + 1)
    for version, isr in enumerate([(1, 3), (1,)], start=1):
        # As if the check had found them one by one.
        change = partition._propose(isr)
        fixture.replicas.settle_isr(partition, change, IsrAltered(version))
        seen.append(fixture.high_watermark(tp()))
    assert seen == [8, 9, 10]
    assert count(fixture, "IsrShrinksPerSec") == 2


def test_shrinking_by_the_periodic_check(fixture: ReplicaFixture) -> None:
    """05:R25 on a partition: nothing at 5 and 10 s, out at 15 s."""
    fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(3)}, acks=1)
    proposals = []
    for _ in range(3):
        fixture.clock.advance(5_000)
        proposals.append([change.isr for _, change in fixture.isr_shrinks()])
    assert proposals == [[], [], [(1,)]]


def test_a_member_being_added_counts_at_once(fixture: ReplicaFixture) -> None:
    """05:R31: the answer may be lost while the change is real, so the high watermark waits."""
    partition = fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    fixture.produce({tp(): batch(10)})
    fixture.fetch_as(2, tp(), 10)
    [(_, change)] = fixture.proposed
    assert (change.isr, partition.isr) == ((1, 2), (1,))
    answers = fixture.produce({tp(): batch(2)})
    fixture.clock.advance(10 * MAX_LAG_MS)  # Not because it was caught up lately.
    fixture.produce({tp(): batch(1)}, acks=1)
    assert (fixture.high_watermark(tp()), answers) == (10, [])
    fixture.replicas.settle_isr(partition, change, IsrOutcomeUnknown())
    fixture.produce({tp(): batch(1)}, acks=1)
    assert (fixture.high_watermark(tp()), answers) == (10, [])
    assert fixture.isr_shrinks() == []  # One change at a time.
    fixture.fetch_as(2, tp(), 12)
    assert fixture.high_watermark(tp()) == 12
    assert answers[0][tp()].error is ErrorCode.NONE
    assert fixture.replicas.settle_isr(partition, change, IsrAltered(7))
    assert (partition.isr, partition.partition_version) == ((1, 2), 7)
    assert count(fixture, "IsrExpandsPerSec") == 1


def test_a_member_being_removed_counts_until_that_is_stored(fixture: ReplicaFixture) -> None:
    """05:R32: also for min.insync.replicas, which is judged by what is committed."""
    fixture.min_insync_replicas = 2
    fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(10)}, acks=1)
    fixture.fetch_as(2, tp(), 8)
    fixture.clock.advance(MAX_LAG_MS + 1)
    partition, change = shrink(fixture)
    fixture.produce({tp(): batch(1)}, acks=1)
    assert fixture.high_watermark(tp()) == 8
    parked = fixture.produce({tp(): batch(1)})
    assert not parked
    fixture.replicas.settle_isr(partition, change, IsrAltered(1))
    assert fixture.high_watermark(tp()) == 12
    assert parked[0][tp()].error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    [refused] = fixture.produce({tp(): batch(1)})
    assert refused[tp()].error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_change_that_was_stored_by_our_own_lost_write(fixture: ReplicaFixture) -> None:
    """05:R33: the port found our own write in the node, and answers with its version."""
    fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(1)}, acks=1)
    fixture.clock.advance(MAX_LAG_MS + 1)
    partition, change = shrink(fixture)
    assert fixture.replicas.settle_isr(partition, change, IsrAltered(4))
    assert (partition.isr, partition.partition_version, partition.isr_change) == ((1,), 4, None)


def test_a_change_that_met_another_isr(fixture: ReplicaFixture) -> None:
    """05:R33: the old ISR is kept and nothing is tried until the controller has spoken.

    Ours may have been stored before the other one, so a member it added still counts.
    """
    partition = fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    fixture.produce({tp(): batch(3)})
    fixture.fetch_as(2, tp(), 3)
    [(_, change)] = fixture.proposed
    assert not fixture.replicas.settle_isr(partition, change, IsrConflict())
    assert (partition.isr, partition.partition_version) == ((1,), 0)
    assert count(fixture, "FailedIsrUpdatesPerSec") == 1
    fixture.clock.advance(10 * MAX_LAG_MS)
    fixture.produce({tp(): batch(2)}, acks=1)
    assert fixture.high_watermark(tp()) == 3
    fixture.fetch_as(2, tp(), 3)
    assert len(fixture.proposed) == 1
    fixture.lead(tp(), replicas=(1, 2), isr=(1,), leader_epoch=1, partition_version=2)
    assert fixture.high_watermark(tp()) == 5


def test_an_answer_that_comes_after_a_newer_state(fixture: ReplicaFixture) -> None:
    """15:KAFKA-12686: it is dropped, and never taken for the answer to a later change."""
    partition = fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    fixture.fetch_as(2, tp(), 0)
    [(_, old)] = fixture.proposed
    fixture.lead(tp(), replicas=(1, 2), isr=(1,), leader_epoch=1, partition_version=5)
    assert not fixture.replicas.settle_isr(partition, old, IsrAltered(1))
    fixture.fetch_as(2, tp(), 0)
    _, new = fixture.proposed[-1]
    assert new is not old
    assert not fixture.replicas.settle_isr(partition, old, IsrAltered(1))
    assert not fixture.replicas.settle_isr(partition, old, IsrConflict())
    assert (partition.isr, partition.partition_version) == ((1,), 5)
    assert partition.isr_change is new
    assert count(fixture, "FailedIsrUpdatesPerSec") == 0


def test_a_change_carries_who_made_the_leader(fixture: ReplicaFixture) -> None:
    fixture.lead(
        tp(),
        replicas=(1, 2),
        isr=(1,),
        leader_epoch=4,
        partition_version=8,
        controller_epoch=3,
    )
    fixture.fetch_as(2, tp(), 0)
    [(_, change)] = fixture.proposed
    assert change.controller_epoch == 3
    assert (change.state.leader, change.state.leader_epoch) == (1, 4)
    assert change.state.partition_version == 8


def test_a_follower_below_the_start_of_the_epoch_does_not_join(fixture: ReplicaFixture) -> None:
    """15:KAFKA-7128: it has all that is committed, but not where this leader began."""
    fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 3))
    fixture.produce({tp(): batch(5)}, acks=1)
    fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 3), leader_epoch=1)
    assert fixture.high_watermark(tp()) == 0
    fixture.fetch_as(2, tp(), 4)
    assert not fixture.proposed
    fixture.fetch_as(2, tp(), 5)
    assert [change.isr for _, change in fixture.proposed] == [(1, 3, 2)]


def test_a_dead_broker_does_not_join(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    fixture.alive.discard(2)
    fixture.fetch_as(2, tp(), 0)
    assert not fixture.proposed
    fixture.alive.add(2)
    fixture.fetch_as(2, tp(), 0)
    assert len(fixture.proposed) == 1


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        pytest.param(4, ErrorCode.FENCED_LEADER_EPOCH, id="05:R34-older"),
        pytest.param(6, ErrorCode.UNKNOWN_LEADER_EPOCH, id="05:R34-newer"),
        pytest.param(-1, ErrorCode.NONE, id="05:R34-none"),
        pytest.param(5, ErrorCode.NONE, id="same"),
    ],
)
def test_only_a_fetch_with_our_epoch_counts(
    fixture: ReplicaFixture, epoch: int, error: ErrorCode
) -> None:
    """05:R34: whoever does not say the epoch is served, but moves neither end, ISR nor mark."""
    partition = fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 2), leader_epoch=5)
    fixture.produce({tp(): batch(3)}, acks=1)
    assert fixture.fetch_as(2, tp(), 0, epoch=epoch).error is error
    result = fixture.fetch_as(2, tp(), 3, epoch=epoch)
    fixture.fetch_as(3, tp(), 3, epoch=epoch)
    assert result.error is error
    counts = epoch == 5
    assert partition.followers[2].log_end_offset == (3 if counts else -1)
    assert fixture.high_watermark(tp()) == (3 if counts else 0)
    assert len(fixture.proposed) == (1 if counts else 0)


def test_the_high_watermark_waits_for_all_that_are_or_may_be_members(
    fixture: ReplicaFixture,
) -> None:
    """15:R3: moved only by fetches with the leader's own epoch, of its largest possible ISR."""
    partition = fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 2), leader_epoch=5)
    fixture.produce({tp(): batch(4)}, acks=1)
    seen = []
    for broker_id, offset, epoch in (
        (9, 4, 5),  # No replica.
        (2, 4, 4),
        (2, 4, 6),
        (2, 4, -1),
        (3, 1, 5),  # Proposed for the ISR: from now on it may be a member.
        (2, 4, 5),
        (3, 3, 4),
        (3, 3, 5),
    ):
        fixture.fetch_as(broker_id, tp(), offset, epoch=epoch)
        seen.append(fixture.high_watermark(tp()))
    assert seen == [0, 0, 0, 0, 0, 1, 1, 3]
    [(_, change)] = fixture.proposed
    assert (partition.isr, change.isr) == ((1, 2), (1, 2, 3))


@pytest.mark.parametrize(
    ("offset", "is_alive", "broker_epoch", "joins"),
    [
        pytest.param(5, True, 11, True, id="caught-up"),
        pytest.param(4, True, 11, False, id="below-the-epochs-start"),
        pytest.param(5, False, 11, False, id="fenced"),
        pytest.param(5, True, 10, False, id="of-a-former-life"),
    ],
)
def test_who_may_join(
    fixture: ReplicaFixture, offset: int, is_alive: bool, broker_epoch: int, joins: bool
) -> None:
    """15:R4: an ISR grows by a live follower of this life that reached the epoch's start.

    It shrinks by any member that lags, and the high watermark does not fall.
    """
    fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 3))
    fixture.produce({tp(): batch(5)}, acks=1)
    fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 3), leader_epoch=1)
    fixture.fetch_as(3, tp(), 2)
    fixture.fetch_as(2, tp(), 0, broker_epoch=11)
    assert (fixture.high_watermark(tp()), fixture.proposed) == (2, [])
    if not is_alive:
        fixture.alive.discard(2)
    fixture.fetch_as(2, tp(), offset, broker_epoch=broker_epoch)
    assert [change.isr for _, change in fixture.proposed] == ([(1, 3, 2)] if joins else [])
    if not joins:
        fixture.clock.advance(MAX_LAG_MS + 1)
        _, change = shrink(fixture)
        assert (change.isr, fixture.high_watermark(tp())) == ((1,), 2)


def test_an_error_counts_for_nothing(fixture: ReplicaFixture) -> None:
    partition = fixture.lead(tp(), replicas=(1, 2))
    result = fixture.fetch_as(2, tp(), 99)
    assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.followers[2].log_end_offset == -1


def test_a_broker_that_is_no_replica(fixture: ReplicaFixture) -> None:
    """15:KAFKA-5758: it gets nothing of that partition; the others it asks for are served."""
    a, b = tp("a"), tp("b")
    fixture.lead(a, replicas=(1, 2))
    fixture.lead(b, replicas=(1, 3))
    fixture.produce({a: batch(2), b: batch(2)}, acks=1)
    wanted = [FetchPartition(p, None, 0, 1 << 20, 0, 0) for p in (a, b)]
    [results] = fixture.fetch(*wanted, replica_id=3)
    assert [result.error for _, result in results] == [ErrorCode.NONE] * 2
    assert [result.records is not None for _, result in results] == [False, True]
    assert 3 not in fixture.partition(a).followers


def test_a_follower_that_waits_is_told_a_new_high_watermark(fixture: ReplicaFixture) -> None:
    """04b section 6, case H."""
    fixture.lead(tp(), replicas=(1, 2, 3))
    fixture.produce({tp(): batch(4)}, acks=1)
    fixture.fetch_as(2, tp(), 4)
    wanted = FetchPartition(tp(), None, 4, 1 << 20, 0, 0)
    answers = fixture.fetch(wanted, replica_id=2)
    assert not answers
    fixture.fetch_as(3, tp(), 4)
    [[(_, result)]] = answers
    assert (result.high_watermark, result.records) == (4, None)
    assert not fixture.fetch(wanted, replica_id=2)


def test_a_follower_is_told_of_each_committed_record(fixture: ReplicaFixture) -> None:
    partition = fixture.lead(tp(), replicas=(1, 2, 3))
    fixture.produce({tp(): batch(4)}, acks=1)
    fixture.fetch_as(2, tp(), 4)
    fixture.fetch_as(3, tp(), 3)
    fixture.fetch_as(2, tp(), 4)
    assert not partition.is_high_watermark_news_to(2)
    fixture.fetch_as(3, tp(), 4)
    assert partition.is_high_watermark_news_to(2)


def test_the_high_watermark_is_that_of_the_log(fixture: ReplicaFixture) -> None:
    partition = Partition(
        tp(),
        local_id=BROKER_ID,
        clock=fixture.clock,
        max_lag_ms=MAX_LAG_MS,
        stats=fixture.stats.topic("t"),
    )
    assert partition.high_watermark == -1
    led = fixture.lead(tp())
    fixture.produce({tp(): batch(4)})
    assert led.high_watermark == 4


def test_without_followers_the_end_is_committed(fixture: ReplicaFixture) -> None:
    partition = fixture.lead(tp())
    fixture.log(tp()).append_as_leader(batch(2), leader_epoch=0)
    moves = [partition.maybe_increment_high_watermark() for _ in range(2)]
    assert (moves, partition.high_watermark) == ([True, False], 2)


def test_the_leader_epoch_never_falls(fixture: ReplicaFixture) -> None:
    partition = fixture.lead(tp(), replicas=(1, 2), leader_epoch=3)
    with pytest.raises(AssertionError):
        partition.make_follower(
            state_of(tp(), leader=2, replicas=(1, 2), leader_epoch=2), fixture.log(tp())
        )
    assert (partition.leader_epoch, partition.is_leader) == (3, True)


def test_taking_the_lead_moves_the_high_watermark(fixture: ReplicaFixture) -> None:
    state = state_of(tp(), leader=2, replicas=(1, 2))
    fixture.apply(hosted(state))
    fixture.log(tp()).append_as_follower(batch(3, base_offset=0, leader_epoch=0))
    fixture.lead(tp(), replicas=(1, 2), isr=(1,), leader_epoch=1)
    assert fixture.high_watermark(tp()) == 3


def test_a_follower_with_an_empty_disk_does_not_join(fixture: ReplicaFixture) -> None:
    """15:KAFKA-15221: its first fetch in another life counts, not those before."""
    partition = fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    fixture.produce({tp(): batch(3)})
    fixture.fetch_as(2, tp(), 1, broker_epoch=10)
    assert partition.followers[2].log_end_offset == 1
    fixture.fetch_as(2, tp(), 0, broker_epoch=11)
    assert partition.followers[2].log_end_offset == 0
    fixture.fetch_as(2, tp(), 3, broker_epoch=10)  # Sent by the earlier life, delivered late.
    assert partition.followers[2].log_end_offset == 0
    assert fixture.proposed == []
    fixture.fetch_as(2, tp(), 3, broker_epoch=11)
    [(_, change)] = fixture.proposed
    assert (change.isr, change.broker_epochs) == ((1, 2), {2: 11})


def test_a_member_of_another_life_counts_as_a_member(fixture: ReplicaFixture) -> None:
    """The high watermark waits for it; it has the usual time to catch up."""
    partition = fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(3)}, acks=1)
    fixture.fetch_as(2, tp(), 2, broker_epoch=0)
    fixture.clock.advance(MAX_LAG_MS)
    fixture.fetch_as(2, tp(), 1, broker_epoch=1)
    assert partition.followers[2].broker_epoch == 1
    assert fixture.isr_shrinks() == []
    assert fixture.high_watermark(tp()) == 2, "it never falls"


def test_a_leader_without_a_session(fixture: ReplicaFixture) -> None:
    """08:K-18: no acknowledgement of acks=all and no ISR change until the role is confirmed."""
    partition = fixture.lead(tp(), replicas=(1, 2), isr=(1,), partition_version=3)
    waiting = fixture.produce({tp(): batch(1)}, acks=-1)
    assert waiting[0][tp()].error is ErrorCode.NONE
    fixture.replicas.settle_isr(partition, partition._propose((1, 2)), IsrAltered(4))
    parked = fixture.produce({tp(): batch(1)})
    fixture.replicas.suspend_leaders()
    refused = fixture.produce({tp(): batch(1)})
    assert refused[0][tp()].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fixture.log(tp()).log_end_offset == 2
    assert fixture.produce({tp(): batch(1)}, acks=1)[0][tp()].error is ErrorCode.NONE
    fixture.fetch_as(2, tp(), 3)
    assert fixture.high_watermark(tp()) == 3
    assert parked == [], "committed here, but perhaps not in the cluster"
    fixture.produce({tp(): batch(1)}, acks=1)
    fixture.clock.advance(2 * MAX_LAG_MS)
    assert fixture.isr_shrinks() == []
    # The controller sends the role once more.
    same = state_of(tp(), replicas=(1, 2), isr=(1, 2), partition_version=4)
    assert fixture.apply(hosted(same))[tp()] is ErrorCode.NONE
    assert parked[0][tp()].error is ErrorCode.NONE
    assert [change.isr for _, change in fixture.isr_shrinks()] == [(1,)]
    assert fixture.apply(hosted(same))[tp()] is ErrorCode.STALE_CONTROLLER_EPOCH


def test_a_follower_does_not_join_a_leader_without_a_session(fixture: ReplicaFixture) -> None:
    """08:K-18."""
    fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    fixture.replicas.suspend_leaders()
    fixture.fetch_as(2, tp(), 0)
    assert fixture.proposed == []
    fixture.lead(tp(), replicas=(1, 2), isr=(1,), leader_epoch=1)
    fixture.fetch_as(2, tp(), 0)
    assert len(fixture.proposed) == 1


def test_an_earlier_version_confirms_nothing(fixture: ReplicaFixture) -> None:
    """08:K-18: it was decided before this leader's own changes."""
    partition = fixture.lead(tp(), replicas=(1, 2), partition_version=5)
    fixture.replicas.suspend_leaders()
    earlier = state_of(tp(), replicas=(1, 2), partition_version=4)
    assert fixture.apply(hosted(earlier))[tp()] is ErrorCode.STALE_CONTROLLER_EPOCH
    assert partition.is_suspended


def test_the_only_replica_needs_no_session(fixture: ReplicaFixture) -> None:
    """No other broker can lead the partition meanwhile."""
    fixture.lead(tp())
    fixture.replicas.suspend_leaders()
    assert fixture.produce({tp(): batch(1)})[0][tp()].error is ErrorCode.NONE


def test_the_first_epoch_of_a_broker_is_0(fixture: ReplicaFixture) -> None:
    """An epoch of 0 is one: it is passed on with the change; one that is not known is left out."""
    fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 3))
    fixture.fetch_as(3, tp(), 0)
    fixture.fetch_as(2, tp(), 0, broker_epoch=0)
    [(_, change)] = fixture.proposed
    assert change.broker_epochs == {2: 0}
