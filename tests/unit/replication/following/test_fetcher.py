"""A follower's rounds against real logs on both sides (05 sections 3, 4 and 16; 15 section 5.1)."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.errors import DisconnectedError, ErrorCode
from odradek.model import TopicPartition
from odradek.replication.fetch_session import FetchSessionCache
from odradek.replication.following.leader_endpoint import FetchAnswer, PartitionAnswer
from odradek.replication.throttles import UNLIMITED
from odradek.storage.log.config import LogConfig
from tests.support.followers import (
    BACKOFF_MS,
    FOLLOWER_ID,
    LEADER_ID,
    FollowerPair,
    LocalEndpoint,
)
from tests.support.logs import batch, offsets, read_all
from tests.support.replicas import stopped, tp

A, B, C = tp("a"), tp("b"), tp("c")
ID = uuid.UUID(int=7)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[FollowerPair]:
    with FollowerPair(tmp_path) as pair:
        yield pair


def run(pair: FollowerPair, count: int = 1) -> None:
    asyncio.run(pair.round(count))


def produce(
    pair: FollowerPair, partition: TopicPartition = A, count: int = 1, **fields: Any
) -> None:
    pair.leader.produce({partition: batch(count, **fields)}, acks=1)


def produce_one_by_one(pair: FollowerPair, count: int) -> None:
    for _ in range(count):
        produce(pair)


def test_a_follower_copies_the_bytes_of_its_leader(pair: FollowerPair) -> None:
    """08:F-24: append at the leader, fetch, append here; the high watermark is later."""
    pair.follow(A, topic_id=ID)
    for _ in range(3):
        produce(pair, count=2)
    run(pair)
    assert read_all(pair.follower.log(A)) == read_all(pair.leader.log(A))
    assert pair.follower.log(A).high_watermark == 0
    assert pair.leader.log(A).high_watermark == 0
    run(pair)  # This fetch proves that the follower has 6 records.
    assert pair.leader.log(A).high_watermark == 6
    assert pair.follower.log(A).high_watermark == 6
    assert pair.moved == [A]
    assert pair.follower.log(A).leader_epochs.entries == pair.leader.log(A).leader_epochs.entries


def test_lag_and_order(pair: FollowerPair) -> None:
    """05:R1, R3, R4: a partition that was read continues behind its records, at the end."""
    pair.follow(A, B, C)
    produce(pair, A, 10)
    run(pair)
    fetcher = pair.fetcher
    assert [one.tp for one in fetcher.partitions] == [B, C, A]
    one = fetcher.partitions.get(A)
    assert one is not None
    assert (one.fetch_offset, one.lag, one.last_fetched_epoch) == (10, 0, 0)
    assert pair.follower.count("ReplicationBytesInPerSec") == len(read_all(pair.leader.log(A)))


def test_a_request_names_only_changes(pair: FollowerPair) -> None:
    """05:R30: after the full request only partitions at another offset are named."""
    pair.follow(A, B, C, topic_id=None)
    run(pair)
    produce(pair, B)
    run(pair, 3)
    named = [[w.key for w in q.wanted] for q in pair.endpoint.questions]
    assert named == [[("a", 0), ("b", 0), ("c", 0)], [], [("b", 0)], []]
    assert [q.session_epoch for q in pair.endpoint.questions] == [0, 1, 2, 3]


def test_topics_go_by_id_if_all_have_one(pair: FollowerPair) -> None:
    pair.follow(A, topic_id=ID)
    run(pair)
    pair.follow(B)
    run(pair)
    first, second = pair.endpoint.questions
    assert (first.uses_topic_ids, first.wanted[0].key) == (True, (ID.bytes, 0))
    assert (second.uses_topic_ids, second.session_epoch) == (False, 0)
    assert {w.key for w in second.wanted} == {("a", 0), ("b", 0)}


def test_a_partition_that_is_held_back_leaves_the_session(pair: FollowerPair) -> None:
    """05 section 4: while the rate is above the limit, and until it is in sync; B goes on."""
    pair.throttled["a"] = ("0:2",)
    pair.throttle.bytes_per_second = 1
    for partition in (A, B):
        pair.follow(partition, isr=(LEADER_ID,))
        for _ in range(3):
            produce(pair, partition, 1)
    pair.endpoint.max_bytes = 1  # One batch an answer.
    run(pair, 5)
    assert [pair.follower.log(one).log_end_offset for one in (A, B)] == [1, 3]
    assert [q.forgotten for q in pair.endpoint.questions[:3]] == [[], [("a", 0)], []]
    pair.follower.clock.advance(11_001)  # The sample of the first record is over.
    run(pair, 2)
    assert pair.follower.log(A).log_end_offset == 2
    pair.throttle.bytes_per_second = UNLIMITED
    run(pair)
    assert pair.follower.log(A).log_end_offset == 3
    pair.throttle.bytes_per_second = 1
    produce(pair, A)
    run(pair)
    assert pair.follower.log(A).log_end_offset == 4  # In sync: its lag was 0.


def test_all_partitions_are_held_back_from_the_start(pair: FollowerPair) -> None:
    """No request is sent, and the full one names them once they may be fetched."""
    pair.throttled["a"] = ("*",)
    pair.throttle.bytes_per_second = 0
    pair.throttle.count(A, 1)
    pair.follow(A, isr=(LEADER_ID,))
    run(pair, 3)
    assert pair.endpoint.questions == []
    pair.throttle.bytes_per_second = UNLIMITED
    run(pair)
    assert [w.key for w in pair.endpoint.questions[0].wanted] == [("a", 0)]


def test_a_replica_in_sync_is_not_held_back_by_a_new_epoch(pair: FollowerPair) -> None:
    """05 section 4: its lag is not known before the first answer, and the role has it in sync."""
    pair.throttled["a"] = ("*",)
    pair.throttle.bytes_per_second = 0
    pair.throttle.count(A, 1)
    for epoch in (0, 1):
        pair.follow(A, epoch=epoch)
        produce(pair)
        run(pair)
        assert pair.follower.log(A).log_end_offset == epoch + 1


def test_a_partition_that_is_no_longer_followed_is_forgotten(pair: FollowerPair) -> None:
    pair.follow(A, B)
    run(pair)
    pair.follower.apply(stopped(B, deletes_log=False))
    run(pair)
    assert pair.endpoint.questions[-1].forgotten == [("b", 0)]
    assert pair.fetchers.fetcher_of(B) is None


def test_without_partitions_no_request_is_sent(pair: FollowerPair) -> None:
    """05:R7, and 05:R2: a delayed partition is not fetched until its delay is over."""
    pair.follow(A)
    run(pair)
    pair.fetcher.partitions.delay(
        [A], now_ms=pair.follower.clock.monotonic_ms(), backoff_ms=BACKOFF_MS
    )
    before = len(pair.endpoint.questions)
    run(pair)
    assert len(pair.endpoint.questions) == before
    pair.end_delays()
    run(pair)
    assert len(pair.endpoint.questions) == before + 1


def test_a_stale_answer_is_ignored(pair: FollowerPair) -> None:
    """05:R6: the partition was added again in a later epoch while the request was under way."""
    pair.follow(A)
    produce(pair, A, 3)

    def change_role(answer: FetchAnswer) -> FetchAnswer:
        pair.endpoint.on_fetch = lambda answer: answer
        pair.follow(A, epoch=1)
        return answer

    run(pair)
    produce(pair, A, 3)
    pair.endpoint.on_fetch = change_role
    run(pair)
    assert pair.follower.log(A).log_end_offset == 3
    run(pair)
    assert pair.follower.log(A).log_end_offset == 6


def test_another_writer_fails_its_partition_alone(pair: FollowerPair) -> None:
    """05:R8: the log does not end where the follower fetches; the fetcher lives."""
    pair.follow(A, B)
    run(pair)
    pair.follower.log(A).append_as_follower(batch(2, leader_epoch=0))
    produce(pair, A, 2)
    produce(pair, B, 2)
    run(pair)
    assert pair.fetchers.failed == {A}
    assert pair.follower.log(B).log_end_offset == 2
    pair.follow(A, epoch=1)  # A new role begins anew.
    assert pair.fetchers.failed == set()


def corrupted(answer: FetchAnswer, key: tuple[str, int]) -> FetchAnswer:
    def spoil(one: PartitionAnswer) -> PartitionAnswer:
        data = bytearray(one.records)
        if one.key == key and data:
            data[-1] ^= 1
        return one._replace(records=memoryview(data))

    return answer._replace(partitions=[spoil(one) for one in answer.partitions])


def test_a_corrupt_batch_is_not_appended_and_its_neighbours_go_on(pair: FollowerPair) -> None:
    pair.follow(A, B)
    produce(pair, A, 2)
    produce(pair, B, 2)
    run(pair, 0)
    pair.endpoint.on_fetch = lambda answer: corrupted(answer, ("a", 0))
    run(pair)
    assert pair.follower.log(A).log_end_offset == 0
    assert pair.follower.log(B).log_end_offset == 2
    pair.endpoint.on_fetch = lambda answer: answer
    pair.end_delays()
    run(pair)
    assert pair.follower.log(A).log_end_offset == 2
    assert pair.fetchers.failed == set()


def replaced(answer: FetchAnswer, records: bytes) -> FetchAnswer:
    return answer._replace(
        partitions=[
            one._replace(records=memoryview(records)) if one.records and one.key[0] == "a" else one
            for one in answer.partitions
        ]
    )


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(batch(2, base_offset=5, leader_epoch=0), id="gapped"),
        pytest.param(batch(2, leader_epoch=9), id="later-epoch"),
        pytest.param(
            batch(1, leader_epoch=0) + batch(1, base_offset=3, leader_epoch=0), id="gap-inside"
        ),
    ],
)
def test_batches_that_cannot_be_the_leaders(pair: FollowerPair, records: bytes) -> None:
    """Not one of them is appended, and the other partitions of the answer go on."""
    pair.follow(A, B)
    produce(pair, A, 2)
    produce(pair, B, 2)
    pair.endpoint.on_fetch = lambda answer: replaced(answer, records)
    run(pair)
    assert [pair.follower.log(p).log_end_offset for p in (A, B)] == [0, 2]
    assert pair.follower.log(A).leader_epochs.entries == ()
    pair.endpoint.on_fetch = lambda answer: answer
    run(pair)
    assert pair.follower.log(A).log_end_offset == 0, "it is delayed"
    pair.end_delays()
    run(pair)
    assert pair.follower.log(A).log_end_offset == 2


def test_a_batch_of_an_earlier_epoch_is_not_appended(pair: FollowerPair) -> None:
    pair.follow(A, B, epoch=3)
    produce(pair, A, 2)
    run(pair)
    produce(pair, A, 2)
    produce(pair, B, 2)
    foreign = bytes(batch(2, base_offset=2, leader_epoch=1))
    pair.endpoint.on_fetch = lambda answer: replaced(answer, foreign)
    run(pair)
    assert [pair.follower.log(p).log_end_offset for p in (A, B)] == [2, 2]
    assert [entry.epoch for entry in pair.follower.log(A).leader_epochs.entries] == [3]


def test_a_compacted_topic_has_gaps(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=("compact",))
    with FollowerPair(tmp_path, config=config) as pair:
        pair.follow(A)
        pair.leader.log(A).append_as_follower(batch(2, base_offset=7, leader_epoch=0))
        run(pair)
        assert offsets(read_all(pair.follower.log(A))) == [7, 8]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_errors_that_pass_delay_their_partition(pair: FollowerPair, error: ErrorCode) -> None:
    """05 section 3.5: the same state after the back-off, the others go on."""
    pair.follow(A, B)
    produce(pair, A)
    produce(pair, B)

    def refuse(answer: FetchAnswer) -> FetchAnswer:
        return answer._replace(
            partitions=[
                one._replace(error=error, records=memoryview(b"")) if one.key[0] == "a" else one
                for one in answer.partitions
            ]
        )

    pair.endpoint.on_fetch = refuse
    run(pair)
    pair.endpoint.on_fetch = lambda answer: answer
    run(pair)
    assert [pair.follower.log(p).log_end_offset for p in (A, B)] == [0, 1]
    pair.end_delays()
    run(pair)
    assert pair.follower.log(A).log_end_offset == 1


def test_a_fenced_follower_waits_for_its_next_role(pair: FollowerPair) -> None:
    """05:R34 and section 3.6: the leader is in a later epoch than the follower knows."""
    pair.follow(A)
    run(pair)
    pair.lead(A, epoch=1)
    produce(pair, A)
    run(pair)
    assert pair.fetchers.failed == {A}
    assert pair.fetcher.partitions.get(A) is None
    pair.follow_alone(A, epoch=1)
    run(pair)
    assert pair.follower.log(A).log_end_offset == 1


def test_an_unreachable_leader_delays_everything(pair: FollowerPair) -> None:
    pair.follow(A)
    produce(pair, A)
    run(pair)
    produce(pair, A)
    pair.endpoint.is_reachable = False

    async def fail_once() -> None:
        await pair.fetcher._do_work_or_pause()

    asyncio.run(fail_once())
    one = pair.fetcher.partitions.get(A)
    assert one is not None
    assert not one.is_ready_for_fetch
    pair.endpoint.is_reachable = True
    pair.end_delays()
    run(pair)
    assert pair.follower.log(A).log_end_offset == 2
    assert pair.endpoint.questions[-1].session_epoch == 0, "the session began anew"


def test_a_refused_session_begins_anew(pair: FollowerPair) -> None:
    pair.follow(A)
    run(pair)
    pair.endpoint.sessions = FetchSessionCache(10, random=Random(2))  # As a restarted leader.
    produce(pair, A)
    run(pair, 2)
    assert [q.session_epoch for q in pair.endpoint.questions] == [0, 1, 0]
    assert pair.endpoint.questions[-1].session_id == 0
    assert pair.follower.log(A).log_end_offset == 1


def test_an_answer_with_unknown_partitions_is_refused(pair: FollowerPair) -> None:
    pair.follow(A)
    produce(pair, A)

    def add_foreign(answer: FetchAnswer) -> FetchAnswer:
        foreign = answer.partitions[0]._replace(key=("other", 0))
        return answer._replace(partitions=[*answer.partitions, foreign])

    pair.endpoint.on_fetch = add_foreign
    run(pair)
    assert pair.follower.log(A).log_end_offset == 0


@pytest.mark.parametrize(("adding", "is_counted"), [((2,), True), ((3,), False)])
def test_bytes_of_a_reassignment_are_counted(
    pair: FollowerPair, adding: tuple[int, ...], is_counted: bool
) -> None:
    pair.follow(A, adding_replicas=adding)
    produce(pair, A)
    run(pair)
    assert (pair.follower.count("ReassignmentBytesInPerSec") > 0) is is_counted


# Diverged logs


@pytest.mark.parametrize("finds_divergence", [True, False], ids=["fetch-12", "epoch-request"])
def test_an_unacknowledged_tail_is_cut(pair: FollowerPair, finds_divergence: bool) -> None:
    """15:KAFKA-1211, 08:F-6: the former leader cuts what only it had, and nothing else."""
    pair.follow(A)
    produce(pair, A, 3)
    run(pair, 3)
    # Broker 2 leads epoch 1 and writes two records that broker 1 never gets.
    pair.promote_follower(A, epoch=1)
    pair.follower.produce({A: batch(2)}, acks=1)
    # Broker 1 leads again, in epoch 2.
    pair.lead(A, epoch=2)
    produce(pair, A, 1)
    pair.follow_alone(A, epoch=2)
    pair.endpoint.finds_divergence = finds_divergence
    run(pair, 4)
    assert read_all(pair.follower.log(A)) == read_all(pair.leader.log(A))
    assert [e.epoch for e in pair.follower.log(A).leader_epochs.entries] == [0, 2]
    assert bool(pair.endpoint.epoch_questions) is not finds_divergence


def test_a_restarted_follower_does_not_cut_at_its_high_watermark(pair: FollowerPair) -> None:
    """15:KAFKA-1211: it restarts with a checkpointed high watermark of 0 and keeps all records."""
    pair.follow(A)
    produce(pair, A, 3)
    run(pair)
    assert pair.follower.log(A).high_watermark == 0
    pair.restart_follower()
    pair.follow_alone(A, epoch=0, is_new=False)
    assert pair.follower.log(A).log_end_offset == 3
    run(pair)
    assert pair.follower.log(A).log_end_offset == 3
    pair.promote_follower(A, epoch=1)
    assert offsets(read_all(pair.follower.log(A))) == [0, 1, 2]


@pytest.mark.parametrize("finds_divergence", [True, False], ids=["fetch-12", "epoch-request"])
def test_epochs_that_the_leader_does_not_know(pair: FollowerPair, finds_divergence: bool) -> None:
    """15:KAFKA-6361, 05:R12: the follower walks back until its epochs meet the leader's."""
    pair.follow(A)
    produce(pair, A, 10)
    run(pair)
    log = pair.follower.log(A)
    # Epochs 1 and 3 exist on the follower only, epoch 2 on the leader only.
    log.append_as_follower(batch(5, base_offset=10, leader_epoch=1))
    log.append_as_follower(batch(5, base_offset=15, leader_epoch=3))
    pair.lead(A, epoch=2)
    produce(pair, A, 20)
    pair.follow(A, epoch=4)
    pair.endpoint.finds_divergence = finds_divergence
    run(pair, 6)
    assert read_all(log) == read_all(pair.leader.log(A))
    assert [e.epoch for e in log.leader_epochs.entries] == [0, 2]


def test_a_missed_epoch_of_the_same_leader(pair: FollowerPair) -> None:
    """15:KAFKA-7164: epoch 1 never reached the follower, epoch 2 has the same leader."""
    pair.follow(A)
    produce(pair, A, 3)
    run(pair)
    log = pair.follower.log(A)
    pair.leader.log(A).truncate_to(2)  # Lost in an unclean stop of the leader.
    pair.lead(A, epoch=1)
    produce(pair, A, 2, value=b"other")
    pair.follow(A, epoch=2)
    run(pair, 3)
    assert read_all(log) == read_all(pair.leader.log(A))


def test_an_epoch_answer_that_is_too_late(pair: FollowerPair) -> None:
    """15:KAFKA-7786: the epoch changed between question and answer: the answer is not used."""
    pair.follow(A)
    produce(pair, A, 3)
    run(pair)
    pair.endpoint.finds_divergence = False
    pair.follow(A, epoch=1)
    before = pair.fetcher.partitions.get(A)

    def change() -> None:
        pair.endpoint.on_epochs = lambda: None
        pair.follow(A, epoch=2)

    pair.endpoint.on_epochs = change
    run(pair)
    after = pair.fetcher.partitions.get(A)
    assert after is not None
    assert after is not before
    assert after.is_truncating
    assert pair.follower.log(A).log_end_offset == 3
    run(pair)
    assert after.is_ready_for_fetch


@pytest.mark.parametrize("finds_divergence", [True, False], ids=["fetch-12", "epoch-request"])
@pytest.mark.parametrize(("of_leader", "of_follower"), [(2, 1), (1, 2)], ids=["later", "earlier"])
def test_a_leader_in_another_epoch_reconciles_nothing(
    pair: FollowerPair, of_leader: int, of_follower: int, finds_divergence: bool
) -> None:
    """15:R2: what it says of its log is not used; the leader of the same epoch is heard."""
    pair.follow(A)
    produce(pair, A, 3)
    run(pair, 3)
    log = pair.follower.log(A)
    log.append_as_follower(batch(2, base_offset=3, leader_epoch=0))  # Which only it has.
    pair.lead(A, epoch=of_leader)
    produce(pair, A, 1, value=b"other")
    pair.follow_alone(A, epoch=of_follower)
    pair.endpoint.finds_divergence = finds_divergence

    async def rounds() -> None:
        for _ in range(3):
            await pair.round()
            pair.end_delays()
        assert log.log_end_offset == 5
        pair.follow(A, epoch=3)
        await pair.round(4)

    asyncio.run(rounds())
    assert read_all(log) == read_all(pair.leader.log(A))


def test_cutting_below_the_high_watermark_is_reported(
    pair: FollowerPair, caplog: pytest.LogCaptureFixture
) -> None:
    """05:R9."""
    pair.follow(A)
    produce_one_by_one(pair, 10)
    run(pair, 3)
    assert pair.follower.log(A).high_watermark == 10
    pair.leader.log(A).truncate_to(8)
    pair.follow(A, epoch=1)
    with caplog.at_level(logging.WARNING):
        run(pair, 2)
    assert pair.follower.log(A).log_end_offset == 8
    assert "below its high watermark 10" in caplog.text


# Out of range


def test_a_follower_ahead_of_its_leader(pair: FollowerPair) -> None:
    """15:KAFKA-7414, 05:R13: truncated to the leader's end, and the process lives."""
    pair.follow(A)
    produce_one_by_one(pair, 10)
    run(pair)
    pair.leader.log(A).truncate_to(6)
    one = pair.fetcher.partitions.get(A)
    assert one is not None
    one.last_fetched_epoch = -1  # As an older leader, which does not compare epochs.
    pair.endpoint.finds_divergence = False
    pair.fetcher.session.fail(None)
    run(pair, 2)
    assert pair.follower.log(A).log_end_offset == 6
    assert read_all(pair.follower.log(A)) == read_all(pair.leader.log(A))


def test_records_were_deleted_before_the_follower_came(pair: FollowerPair) -> None:
    """05:R13: the leader starts above the end of the follower, whose log begins anew there."""
    pair.lead(A)
    for _ in range(10):
        produce(pair, A, 1)
    pair.leader.log(A).update_high_watermark(10)
    pair.leader.log(A).maybe_increment_log_start_offset(4)
    pair.follow_alone(A, epoch=0)
    run(pair, 3)
    log = pair.follower.log(A)
    assert (log.log_start_offset, log.log_end_offset) == (4, 10)


def test_a_log_start_inside_a_batch(pair: FollowerPair) -> None:
    """15:KAFKA-6975: the new follower accepts the whole batch that contains the log start."""
    pair.lead(A)
    produce(pair, A, 10)
    pair.leader.log(A).update_high_watermark(10)
    pair.leader.log(A).maybe_increment_log_start_offset(4)
    pair.follow_alone(A, epoch=0)
    run(pair, 4)
    log = pair.follower.log(A)
    assert log.log_end_offset == 10
    assert log.log_start_offset == 4
    assert pair.fetchers.failed == set()


def test_a_stale_leader_does_not_empty_its_follower(pair: FollowerPair) -> None:
    """15:KAFKA-2143: a leader of an earlier epoch answers with an error, never with its low end."""
    pair.follow(A)
    produce(pair, A, 10)
    run(pair)
    pair.leader.log(A).truncate_to(0)
    pair.follow_alone(A, epoch=1)  # The leader has not heard of epoch 1.
    run(pair)
    assert pair.follower.log(A).log_end_offset == 10
    assert pair.fetchers.failed == set()


def test_a_role_that_changes_during_a_reset(pair: FollowerPair) -> None:
    """After each await the state is compared again: the reset of an earlier epoch is not done."""
    pair.follow(A)
    produce(pair, A, 10)
    run(pair)
    pair.leader.log(A).truncate_to(6)
    one = pair.fetcher.partitions.get(A)
    assert one is not None
    one.last_fetched_epoch = -1
    pair.endpoint.finds_divergence = False
    pair.fetcher.session.fail(None)
    pair.endpoint.on_offset = lambda: pair.promote_follower(A, epoch=1)
    run(pair)
    assert pair.follower.log(A).log_end_offset == 10
    assert pair.follower.partition(A).is_leader


# Log start


def test_the_log_start_follows_up_to_the_high_watermark(pair: FollowerPair) -> None:
    """05:R37: a log start above the own high watermark is applied as far as that reaches."""
    pair.follow(A)
    produce(pair, A, 1)
    produce(pair, A, 1)
    run(pair, 3)
    assert pair.follower.log(A).high_watermark == 2
    produce(pair, A, 2)

    def raise_start(answer: FetchAnswer) -> FetchAnswer:
        return answer._replace(
            partitions=[
                one._replace(log_start_offset=3, high_watermark=2) for one in answer.partitions
            ]
        )

    pair.endpoint.on_fetch = raise_start
    run(pair)
    assert pair.follower.log(A).log_start_offset == 2
    assert pair.fetchers.failed == set()
    pair.endpoint.on_fetch = lambda answer: answer
    run(pair, 2)
    assert pair.follower.log(A).log_end_offset == 4


def test_deleted_records_are_deleted_here(pair: FollowerPair) -> None:
    pair.follow(A)
    for _ in range(4):
        produce(pair, A, 1)
    run(pair, 3)
    pair.leader.delete_records({A: 3})
    run(pair, 2)
    assert pair.follower.log(A).log_start_offset == 3
    assert pair.leader.partition(A).followers[FOLLOWER_ID].log_start_offset == 3


# Roles


def test_swapped_roles(pair: FollowerPair) -> None:
    """05:R22: a follower that leads loses its fetcher and accepts writes; the other way round."""
    pair.follow(A)
    pair.promote_follower(B, epoch=0)
    assert pair.fetchers.fetcher_of(A) is not None
    assert pair.fetchers.fetcher_of(B) is None
    pair.promote_follower(A, epoch=1)
    pair.follow_alone(B, epoch=1)
    assert pair.fetchers.fetcher_of(A) is None
    assert pair.fetchers.fetcher_of(B) is not None
    assert pair.follower.partition(B).isr == ()
    pair.follower.produce({A: batch(1)}, acks=1)
    assert pair.follower.log(A).log_end_offset == 1


def test_a_leader_that_is_not_alive(pair: FollowerPair) -> None:
    """05:R23: the log is created, there is no fetcher; it is followed once it lives."""
    pair.follower.alive.discard(LEADER_ID)
    pair.follow(A)
    assert pair.follower.log(A).log_end_offset == 0
    assert len(pair.fetchers) == 0
    pair.follower.alive.add(LEADER_ID)
    pair.follower.replicas.start_following()
    assert pair.fetchers.fetcher_of(A) is not None


def test_a_later_version_of_the_role_does_not_restart_the_fetcher(pair: FollowerPair) -> None:
    """15:KAFKA-13790."""
    pair.follow(A)
    run(pair)
    before = pair.fetcher.partitions.get(A)
    pair.follow_alone(A, epoch=0, partition_version=1, isr=(1,))
    assert pair.fetcher.partitions.get(A) is before


def test_an_idle_fetcher_is_stopped(pair: FollowerPair) -> None:
    pair.follow(A)
    fetcher = pair.fetcher
    pair.promote_follower(A, epoch=1)
    assert fetcher.is_stopped
    assert len(pair.fetchers) == 0


@contextlib.asynccontextmanager
async def running(pair: FollowerPair) -> AsyncIterator[LocalEndpoint]:
    """The fetcher's task runs, and its first question is held."""
    endpoint = pair.endpoint
    endpoint.held = []
    fetcher = pair.fetcher
    async with asyncio.TaskGroup() as group:
        group.create_task(fetcher.run())
        await until(lambda: bool(endpoint.held))
        yield endpoint
        fetcher.stop()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to hold")


def test_the_turn_that_brings_records_asks_for_the_next_ones(pair: FollowerPair) -> None:
    """A producer waits for that request: it tells the leader that the record is here."""

    async def scenario() -> None:
        async with running(pair) as endpoint:
            for end in range(1, 4):
                produce(pair)
                endpoint.answer_held()
                # No other turn was taken.
                assert pair.follower.log(A).log_end_offset == end
                [(question, _)] = endpoint.held or []
                [wanted] = question.wanted
                assert wanted.fetch_offset == end

    pair.follow(A)
    asyncio.run(scenario())


def test_what_has_to_wait_is_left_to_the_task(pair: FollowerPair) -> None:
    """A refused session, a link that breaks, a log to be cut: the task goes on with each."""

    async def scenario() -> None:
        async with running(pair) as endpoint:
            endpoint.answer_held()
            endpoint.sessions = FetchSessionCache(10, random=Random(2))
            endpoint.answer_held()
            assert endpoint.held == []
            await until(lambda: bool(endpoint.held))
            assert endpoint.questions[-1].session_epoch == 0
            endpoint.answer_held()

            [(_, on_answer)] = endpoint.held
            endpoint.held.clear()
            on_answer(DisconnectedError("the link is cut"))
            await until(lambda: not pair.fetcher.partitions.ready())
            pair.end_delays()
            pair.fetcher.wake()
            await until(lambda: bool(endpoint.held))
            produce(pair)
            endpoint.answer_held()
            assert pair.follower.log(A).log_end_offset == 1

    pair.follow(A)
    asyncio.run(scenario())


def test_a_large_answer_lets_other_tasks_run(pair: FollowerPair) -> None:
    async def scenario() -> None:
        async with running(pair) as endpoint:
            endpoint.answer_held()  # To 50 of them, and the next request names the others.
            assert len(pair.fetcher.partitions) == 60
            for number in range(60):
                produce(pair, tp("many", number))
            endpoint.answer_held()
            assert endpoint.held == []
            assert pair.follower.log(tp("many", 59)).log_end_offset == 0
            await until(lambda: bool(endpoint.held))
            assert pair.follower.log(tp("many", 59)).log_end_offset == 1

    pair.follow(*(tp("many", number) for number in range(60)))
    asyncio.run(scenario())


def test_a_fetcher_that_stops_uses_no_later_answer(pair: FollowerPair) -> None:
    async def scenario() -> None:
        async with running(pair) as endpoint:
            [(question, on_answer)] = endpoint.held or []
            produce(pair)
            answer = endpoint._answer(question)
            pair.fetcher.stop()
            on_answer(answer)
        assert pair.follower.log(A).log_end_offset == 0
        assert endpoint.held is None

    pair.follow(A)
    asyncio.run(scenario())


def test_a_directory_that_fails_stops_its_partitions_alone(pair: FollowerPair) -> None:
    """05:R24 on a follower."""
    pair.follow(A, B)
    run(pair)
    directory = pair.follower.log(A).log_directory
    pair.follower.replicas.handle_directory_failure(directory)
    assert pair.fetchers.fetcher_of(A) is None


def test_partitions_spread_over_fetchers(tmp_path: Path) -> None:
    """05:R11."""
    with FollowerPair(tmp_path, fetcher_count=3) as pair:
        pair.follow(*(tp("test", n) for n in range(4)))
        spread = {
            fetcher.name: sorted(one.tp.partition for one in fetcher.partitions)
            for fetcher in pair.fetchers.fetchers
        }
    assert spread == {
        "ReplicaFetcherThread-1-1": [0, 3],
        "ReplicaFetcherThread-2-1": [1],
        "ReplicaFetcherThread-0-1": [2],
    }


def test_another_number_of_fetchers(pair: FollowerPair) -> None:
    partitions = [tp("test", n) for n in range(4)]
    pair.follow(*partitions)
    run(pair)
    pair.fetchers.resize(3, partitions)
    assert len(pair.fetchers) == 3
    produce(pair, partitions[0])
    run(pair, 2)
    assert pair.follower.log(partitions[0]).log_end_offset == 1
