"""Followers' fetch sessions look only at partitions with news (`replication.follower_news`)."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperation, ManualTimer, TimerCall
from odradek.replication import FetchParams, FetchPartition, FetchResult, FetchResults
from odradek.replication.fetch_session import (
    FetchContext,
    FetchSessionCache,
    PartitionKey,
    SessionPartition,
)
from odradek.replication.follower_news import WatermarkDelay
from odradek.replication.throttles import ReplicationThrottle
from tests.support.logs import batch
from tests.support.replicas import MAX_LAG_MS, ReplicaFixture, hosted, state_of, stopped, tp

COUNT = 20
PARTITIONS = [tp("t", number) for number in range(COUNT)]
FOLLOWER = 2


class Fetch:
    """One fetch of a follower's session, as the broker's handler makes it."""

    def __init__(self, fixture: ReplicaFixture, context: FetchContext) -> None:
        self.fixture = fixture
        self.context = context
        self.told: dict[TopicPartition, FetchResult] | None = None
        self.parked: DelayedOperation | None = None
        self.taken: list[int] = []  # How many partitions each reading touched.

    @property
    def is_answered(self) -> bool:
        return self.told is not None

    def take_again(self) -> list[FetchPartition]:
        self.context.look_again()
        return self.take()

    def take(self) -> list[FetchPartition]:
        self.taken.append(len(self.context.partitions))
        return [
            FetchPartition(
                TopicPartition(str(one.key[0]), one.key[1]),
                None,
                one.fetch_offset,
                one.max_bytes,
                one.current_leader_epoch,
                one.log_start_offset,
            )
            for one in self.context.partitions
        ]

    def settle(self, results: FetchResults) -> None:
        for one, (wanted, result) in zip(self.context.partitions, results, strict=True):
            partition = self.fixture.replicas.find_online(*wanted.tp)
            if partition is not None:
                self.context.watch(one, partition, FOLLOWER)
                self.context.settle(one, result)

    def respond(self, results: FetchResults) -> None:
        self.settle(results)
        pairs = zip(self.context.partitions, results, strict=True)
        told = self.context.select([(one, result) for one, (_, result) in pairs])
        self.told = {TopicPartition(str(one.key[0]), one.key[1]): r for one, r in told}

    def park(self, operation: DelayedOperation) -> None:
        self.parked = operation


class Follower:
    """Broker 2 with a session."""

    def __init__(self, fixture: ReplicaFixture) -> None:
        self.fixture = fixture
        self.cache = FetchSessionCache(10, random=Random(1))
        self.session_id = self.epoch = 0

    def fetch(
        self,
        offsets: dict[TopicPartition, int] | None = None,
        *,
        forgotten: list[TopicPartition] | None = None,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        epoch: int = 0,
    ) -> Fetch:
        wanted: dict[PartitionKey, SessionPartition] = {}
        for partition, offset in (offsets or {}).items():
            key = (partition.topic, partition.partition)
            wanted[key] = SessionPartition(key, epoch, offset, -1, 0, 1 << 20)
        context = self.cache.begin(
            session_id=self.session_id,
            epoch=self.epoch,
            wanted=wanted,
            forgotten=[(p.topic, p.partition) for p in forgotten or ()],
            is_from_follower=True,
            uses_topic_ids=False,
            is_known=lambda _key: True,
            now_ms=self.fixture.clock.monotonic_ms(),
        )
        self.session_id, self.epoch = context.session_id, self.epoch + 1
        fetch = Fetch(self.fixture, context)
        assert context.news is not None
        params = FetchParams(max_wait_ms, min_bytes, 1 << 20, FOLLOWER)
        self.fixture.replicas.reads.fetch_news(params, fetch.take(), context.news, fetch)
        return fetch


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path) as fixture:
        for partition in PARTITIONS:
            fixture.lead(partition, replicas=(1, FOLLOWER))
        yield fixture


@pytest.fixture
def follower(fixture: ReplicaFixture) -> Follower:
    """A follower that was told everything, with a session of all partitions."""
    follower = Follower(fixture)
    first = follower.fetch(dict.fromkeys(PARTITIONS, 0), max_wait_ms=0)
    assert first.told is not None
    assert len(first.told) == COUNT
    return follower


def test_an_idle_fetch_touches_a_few(follower: Follower) -> None:
    fetch = follower.fetch()
    assert fetch.told is None
    assert fetch.taken == [4]


def test_one_append_touches_one(fixture: ReplicaFixture, follower: Follower) -> None:
    fetch = follower.fetch()
    fixture.produce({PARTITIONS[7]: batch(3)}, acks=1)
    assert fetch.told is not None
    assert list(fetch.told) == [PARTITIONS[7]]
    assert fetch.taken == [4, 1]


def test_the_fetch_behind_the_records_moves_the_high_watermark(
    fixture: ReplicaFixture, follower: Follower
) -> None:
    """08:F-24: two rounds until the follower knows that the record is committed."""
    answers = fixture.produce({PARTITIONS[7]: batch(3)})
    follower.fetch()
    assert answers == []
    second = follower.fetch({PARTITIONS[7]: 3})
    assert answers[0][PARTITIONS[7]].error is ErrorCode.NONE
    assert second.told is not None
    assert second.told[PARTITIONS[7]].high_watermark == 3
    third = follower.fetch()
    assert third.told is None, "everything is told"
    assert third.taken == [4]


class Delayed:
    """High watermarks that wait five milliseconds for records."""

    def __init__(self, fixture: ReplicaFixture) -> None:
        self.fixture = fixture
        self.timer = ManualTimer("watermarks")
        replicas = fixture.replicas
        replicas.reads.watermark_delay = WatermarkDelay(
            5,
            clock=fixture.clock,
            call_later=lambda delay_ms, call: self.timer.add(TimerCall(delay_ms, call)),
            wake=replicas.parked.wake,
        )

    def pass_time(self, time_ms: int) -> None:
        self.fixture.pass_time(time_ms)
        self.timer.advance_clock(time_ms)


@pytest.fixture
def delayed(fixture: ReplicaFixture) -> Delayed:
    return Delayed(fixture)


def test_the_next_records_carry_the_high_watermark(
    fixture: ReplicaFixture, delayed: Delayed, follower: Follower
) -> None:
    """One fetch for each record, not another one for its commit."""
    fetch = follower.fetch()
    for end in range(1, 10):
        delayed.pass_time(1)
        answers = fixture.produce({PARTITIONS[7]: batch(1)})
        assert fetch.told is not None
        assert fetch.told[PARTITIONS[7]].high_watermark == end - 1
        fetch = follower.fetch({PARTITIONS[7]: end})
        assert answers[0][PARTITIONS[7]].error is ErrorCode.NONE
        assert not fetch.is_answered


def test_a_high_watermark_without_records_is_told_in_a_moment(
    fixture: ReplicaFixture, delayed: Delayed, follower: Follower
) -> None:
    follower.fetch()
    fixture.produce({PARTITIONS[7]: batch(3)})
    fetch = follower.fetch({PARTITIONS[7]: 3})
    delayed.pass_time(4)
    assert not fetch.is_answered
    delayed.pass_time(1)
    assert fetch.told is not None
    assert fetch.told[PARTITIONS[7]].high_watermark == 3
    assert fetch.told[PARTITIONS[7]].records is None
    again = follower.fetch()
    delayed.pass_time(100)
    assert not again.is_answered


def test_the_delay_begins_anew_with_each_answer(
    fixture: ReplicaFixture, delayed: Delayed, follower: Follower
) -> None:
    follower.fetch()
    fixture.produce({PARTITIONS[7]: batch(1)})
    follower.fetch({PARTITIONS[7]: 1})
    delayed.pass_time(4)
    fixture.produce({PARTITIONS[7]: batch(1)})  # Tells the first.
    fetch = follower.fetch({PARTITIONS[7]: 2})
    delayed.pass_time(4)
    assert not fetch.is_answered
    delayed.pass_time(1)
    assert fetch.told is not None
    assert fetch.told[PARTITIONS[7]].high_watermark == 2


def test_a_high_watermark_that_waited_while_no_fetch_did_is_told_by_the_next_one(
    fixture: ReplicaFixture, delayed: Delayed, follower: Follower
) -> None:
    shared = PARTITIONS[3]
    fixture.lead(shared, replicas=(1, FOLLOWER, 3), leader_epoch=1)
    follower.fetch({shared: 0}, max_wait_ms=0, epoch=1)
    fixture.produce({shared: batch(1)})
    first = follower.fetch({shared: 1}, epoch=1)
    fixture.produce({PARTITIONS[7]: batch(1)}, acks=1)
    assert first.is_answered
    fixture.fetch_as(3, shared, 1)
    assert fixture.partition(shared).high_watermark == 1
    delayed.pass_time(5)
    second = follower.fetch({PARTITIONS[7]: 1})
    assert second.told is not None
    assert second.told[shared].high_watermark == 1


def test_a_log_start_is_told_at_once(
    fixture: ReplicaFixture, delayed: Delayed, follower: Follower
) -> None:
    follower.fetch()
    fixture.produce({PARTITIONS[7]: batch(3)})
    fetch = follower.fetch({PARTITIONS[7]: 3})
    assert not fetch.is_answered
    fixture.replicas.look_ups.delete_records(
        offsets={PARTITIONS[7]: 2}, timeout_ms=1_000, respond=lambda _results: None
    )
    assert fetch.told is not None
    told = fetch.told[PARTITIONS[7]]
    assert (told.log_start_offset, told.high_watermark) == (2, 3)


def test_a_session_that_begins_learns_high_watermarks(
    fixture: ReplicaFixture, delayed: Delayed
) -> None:
    """Also those that moved while the follower had no session."""
    fixture.produce({PARTITIONS[1]: batch(1)}, acks=1)
    follower = Follower(fixture)
    follower.fetch({PARTITIONS[1]: 1}, max_wait_ms=0)
    fixture.produce({PARTITIONS[1]: batch(1)}, acks=1)
    fixture.fetch_as(FOLLOWER, PARTITIONS[1], 2)
    fixture.partition(PARTITIONS[1]).followers[FOLLOWER].told_high_watermark = 1
    follower.session_id = follower.epoch = 0
    fetch = follower.fetch({PARTITIONS[1]: 2})
    delayed.pass_time(5)
    assert fetch.told is not None
    assert fetch.told[PARTITIONS[1]].high_watermark == 2


def test_every_partition_has_its_turn(fixture: ReplicaFixture, follower: Follower) -> None:
    """A log start that retention moved is told within as many fetches as there are turns."""
    log = fixture.log(PARTITIONS[13])
    log.append_as_follower(batch(3, leader_epoch=0))
    log.update_high_watermark(3)
    log.maybe_increment_log_start_offset(0)
    seen: set[TopicPartition] = set()
    for _ in range(COUNT // 4 + 1):
        fetch = follower.fetch(max_wait_ms=0)
        assert fetch.told is not None
        seen.update(fetch.told)
    assert seen == {PARTITIONS[13]}


def test_a_waiting_fetch_ends_in_time(fixture: ReplicaFixture, follower: Follower) -> None:
    fetch = follower.fetch()
    fixture.pass_time(500)
    assert fetch.told == {}
    assert fixture.stats._follower_fetch_expired.count == 1


def test_more_bytes_are_waited_for(fixture: ReplicaFixture, follower: Follower) -> None:
    size = len(batch(1))
    fetch = follower.fetch(min_bytes=2 * size)
    fixture.produce({PARTITIONS[1]: batch(1)}, acks=1)
    assert not fetch.is_answered
    fixture.produce({PARTITIONS[2]: batch(1)}, acks=1)
    assert fetch.told is not None
    assert set(fetch.told) == {PARTITIONS[1], PARTITIONS[2]}


def test_a_role_change_is_news(fixture: ReplicaFixture, follower: Follower) -> None:
    fetch = follower.fetch()
    state = state_of(PARTITIONS[3], leader=FOLLOWER, leader_epoch=1, replicas=(1, FOLLOWER))
    fixture.apply(hosted(state))
    assert fetch.told is not None
    assert fetch.told[PARTITIONS[3]].error is ErrorCode.FENCED_LEADER_EPOCH
    again = follower.fetch(max_wait_ms=0)
    assert again.told is not None
    assert PARTITIONS[3] in again.told, "an error is news every time"


def test_a_deleted_partition_is_news(fixture: ReplicaFixture, follower: Follower) -> None:
    fetch = follower.fetch()
    fixture.apply(stopped(PARTITIONS[3]))
    assert fetch.told is not None
    assert fetch.told[PARTITIONS[3]].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_forgotten_partition_is_not_watched(fixture: ReplicaFixture, follower: Follower) -> None:
    follower.fetch(forgotten=[PARTITIONS[5]], max_wait_ms=0)
    assert fixture.partition(PARTITIONS[5]).watches == ()
    fetch = follower.fetch()
    fixture.produce({PARTITIONS[5]: batch(1)}, acks=1)
    assert fetch.told is None


def test_the_end_of_a_session_ends_its_watches(fixture: ReplicaFixture, follower: Follower) -> None:
    assert all(len(fixture.partition(one).watches) == 1 for one in PARTITIONS)
    follower.epoch = 0
    follower.fetch(dict.fromkeys(PARTITIONS[:2], 0), max_wait_ms=0)  # A full one replaces it.
    watched = [one for one in PARTITIONS if fixture.partition(one).watches]
    assert watched == PARTITIONS[:2]


def test_an_idle_follower_stays_in_sync(fixture: ReplicaFixture, follower: Follower) -> None:
    """05:R25: fetches without news count as caught up when the leader writes again."""
    for _ in range(5):
        fixture.pass_time(MAX_LAG_MS // 2)
        follower.fetch(max_wait_ms=0)
    fixture.produce({PARTITIONS[9]: batch(1)}, acks=1)
    assert fixture.isr_shrinks() == []
    fixture.pass_time(MAX_LAG_MS)
    assert fixture.isr_shrinks() == []
    fixture.pass_time(1)
    [(partition, change)] = fixture.isr_shrinks()
    assert (partition.tp, change.isr) == (PARTITIONS[9], (1,))


def test_records_that_are_not_asked_further_stay_in_the_news(fixture: ReplicaFixture) -> None:
    follower = Follower(fixture)
    follower.fetch(dict.fromkeys(PARTITIONS[:3], 0), max_wait_ms=0)
    for partition in PARTITIONS[:3]:
        fixture.produce({partition: batch(1)}, acks=1)
    fetch = follower.fetch(max_wait_ms=0)
    assert fetch.told is not None
    assert list(fetch.told) == PARTITIONS[:3]
    # The follower does not ask further: all stay in the news.
    assert fetch.context.news is not None
    assert len(fetch.context.news.entries) == 3


class Behind:
    """A follower that is in no ISR, of a leader that limits what it sends of two partitions."""

    def __init__(self, fixture: ReplicaFixture) -> None:
        for partition in PARTITIONS:
            fixture.lead(partition, replicas=(1, FOLLOWER), isr=(1,), leader_epoch=1)
        self.throttle = ReplicationThrottle(1, lambda _topic: ("0:1", "1:1"), fixture.clock)
        self.throttle.bytes_per_second = 1
        fixture.replicas.reads.throttle = self.throttle
        self.follower = Follower(fixture)
        first = self.follower.fetch(dict.fromkeys(PARTITIONS, 0), max_wait_ms=0, epoch=1)
        assert first.told is not None

    def use_up(self) -> None:
        self.throttle.count(PARTITIONS[0], 1_000)


@pytest.fixture
def behind(fixture: ReplicaFixture) -> Behind:
    return Behind(fixture)


def test_records_that_are_held_back_end_no_fetch(fixture: ReplicaFixture, behind: Behind) -> None:
    """05 section 4: it waits its time out, and other partitions are served meanwhile."""
    behind.use_up()
    fetch = behind.follower.fetch()
    fixture.produce({PARTITIONS[0]: batch(1)}, acks=1)
    fixture.produce({PARTITIONS[1]: batch(1)}, acks=1)
    assert not fetch.is_answered
    fixture.produce({PARTITIONS[2]: batch(1)}, acks=1)
    assert fetch.told is not None
    assert [tp for tp, one in fetch.told.items() if one.records is not None] == [PARTITIONS[2]]

    behind.follower.fetch({PARTITIONS[2]: 1}, epoch=1, max_wait_ms=0)
    again = behind.follower.fetch()
    fixture.pass_time(500)
    assert again.told == {}
    fixture.pass_time(11_000)
    third = behind.follower.fetch()
    assert third.told is not None
    # The batch of the first is above the limit, and the next one of it is held back.
    assert [tp for tp, one in third.told.items() if one.records is not None] == PARTITIONS[:2]
    assert behind.throttle.is_exceeded()


def test_more_bytes_than_may_be_sent_are_not_waited_for(
    fixture: ReplicaFixture, behind: Behind
) -> None:
    size = len(batch(1))
    behind.use_up()
    fetch = behind.follower.fetch(min_bytes=2 * size)
    fixture.produce({PARTITIONS[0]: batch(5)}, acks=1)
    fixture.produce({PARTITIONS[2]: batch(1)}, acks=1)
    assert not fetch.is_answered
    fixture.produce({PARTITIONS[3]: batch(1)}, acks=1)
    assert fetch.told is not None


def test_a_follower_in_sync_is_not_held_back(fixture: ReplicaFixture, behind: Behind) -> None:
    fixture.lead(PARTITIONS[0], replicas=(1, FOLLOWER), leader_epoch=2)
    behind.use_up()
    behind.follower.fetch({PARTITIONS[0]: 0}, max_wait_ms=0, epoch=2)
    fetch = behind.follower.fetch()
    fixture.produce({PARTITIONS[0]: batch(1)}, acks=1)
    assert fetch.told is not None
    assert fetch.told[PARTITIONS[0]].records is not None


def test_a_fetch_without_a_session_is_held_back(fixture: ReplicaFixture, behind: Behind) -> None:
    behind.use_up()
    answers: list[FetchResults] = []
    wanted = [FetchPartition(one, None, 0, 1 << 20, 1, 0) for one in PARTITIONS[:3]]
    fixture.replicas.reads.fetch(FetchParams(500, 1, 1 << 20, FOLLOWER), wanted, answers.append)
    fixture.produce({PARTITIONS[0]: batch(1)}, acks=1)
    assert answers == []
    fixture.produce({PARTITIONS[2]: batch(1)}, acks=1)
    [results] = answers
    assert [wanted.tp for wanted, one in results if one.records is not None] == [PARTITIONS[2]]
