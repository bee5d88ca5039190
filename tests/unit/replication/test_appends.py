"""Appending through the replica manager, and produces that wait (05 section 7, 04b section 6)."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.replication import FetchParams, FetchPartition, FetchResults, ProduceResult
from odradek.storage.log.config import LogConfig
from odradek.testing import SimDisk
from tests.support.log_scenarios import idempotent
from tests.support.logs import batch
from tests.support.replicas import ReplicaFixture, hosted, state_of, stopped, tp

A, B, C = tp("a"), tp("b"), tp("c")
_PARAMS = FetchParams(max_wait_ms=500, min_bytes=1, max_bytes=1000)


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path, config=LogConfig(max_message_bytes=1000)) as fixture:
        yield fixture


def errors(answers: list[Mapping[TopicPartition, ProduceResult]]) -> list[ErrorCode]:
    [results] = answers
    return [result.error for result in results.values()]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist(fixture: ReplicaFixture, acks: int) -> None:
    """05:R14: 21 for all, and nothing is written."""
    fixture.lead(A)
    answers = fixture.produce({A: batch(), B: batch()}, acks=acks)
    assert errors(answers) == [ErrorCode.INVALID_REQUIRED_ACKS] * 2
    assert answers[0][A] == ProduceResult(error=ErrorCode.INVALID_REQUIRED_ACKS)
    assert fixture.log(A).log_end_offset == 0


@pytest.mark.parametrize("acks", [0, 1], ids=["05:R15-acks-0", "05:R15-acks-1"])
def test_answered_at_once_unless_all_must_have_it(fixture: ReplicaFixture, acks: int) -> None:
    fixture.lead(A, replicas=(1, 2))
    assert errors(fixture.produce({A: batch()}, acks=acks)) == [ErrorCode.NONE]


def test_nothing_to_append_is_answered_at_once(fixture: ReplicaFixture) -> None:
    """05:R15: -1 with no entries."""
    assert fixture.produce({}) == [{}]


@pytest.mark.parametrize(
    ("failures", "waits"),
    [
        pytest.param(0, True, id="05:R15-none-failed"),
        pytest.param(2, True, id="05:R15-one-left"),
        pytest.param(3, False, id="05:R15-all-failed"),
    ],
)
def test_waits_if_anything_was_written(fixture: ReplicaFixture, failures: int, waits: bool) -> None:
    for partition in (A, B, C)[failures:]:
        fixture.lead(partition, replicas=(1, 2))
    answers = fixture.produce({A: batch(), B: batch(), C: batch()})
    assert (not answers) is waits
    assert fixture.purgatories.produce.num_delayed == (1 if waits else 0)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics(fixture: ReplicaFixture, topic: str) -> None:
    """05:R16: clients must not write to them, coordinators do."""
    fixture.lead(tp(topic))
    assert errors(fixture.produce({tp(topic): batch()})) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert fixture.log(tp(topic)).log_end_offset == 0
    answers = fixture.produce(
        {tp(topic): batch()}, origin=AppendOrigin.COORDINATOR, internal_topics_allowed=True
    )
    assert errors(answers) == [ErrorCode.NONE]


def test_origin_decides_what_is_checked(fixture: ReplicaFixture) -> None:
    """05 section 7: a client numbers from 0, a coordinator's sequence is not checked."""
    fixture.lead(A)
    assert errors(fixture.produce({A: batch(base_offset=5)})) == [ErrorCode.INVALID_RECORD]
    first, gap = idempotent(0, 1), idempotent(7, 1)
    assert errors(fixture.produce({A: first})) == [ErrorCode.NONE]
    assert errors(fixture.produce({A: gap})) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    answers = fixture.produce({A: idempotent(7, 1)}, origin=AppendOrigin.COORDINATOR)
    assert errors(answers) == [ErrorCode.NONE]


def test_a_cluster_of_one_never_waits(fixture: ReplicaFixture) -> None:
    """04b section 9: the high watermark moves with the append itself."""
    fixture.lead(A)
    [results] = fixture.produce({A: batch(3)})
    assert results[A] == ProduceResult(ErrorCode.NONE, 0, -1, 0)
    assert fixture.high_watermark(A) == 3
    assert fixture.purgatories.produce.watched == 0


def test_one_partition_failed_and_the_other_is_replicated(fixture: ReplicaFixture) -> None:
    """04b:D1: the answer waits for the one, and keeps the error of the other."""
    fixture.lead(A, replicas=(1, 2))
    fixture.known.add(B)
    answers = fixture.produce({B: batch(), A: batch(2)})
    assert not answers
    fixture.fetch_as(2, A, 2)
    assert errors(answers) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    assert answers[0][A].base_offset == 0
    assert fixture.purgatories.produce.num_delayed == 0


def test_one_partition_failed_and_the_other_is_never_replicated(fixture: ReplicaFixture) -> None:
    """04b:D2: at the timeout."""
    fixture.lead(A, replicas=(1, 2))
    fixture.known.add(B)
    answers = fixture.produce({B: batch(), A: batch(2)}, timeout_ms=100)
    fixture.pass_time(99)
    assert not answers
    fixture.pass_time(2)
    assert errors(answers) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]
    assert fixture.count("ExpiresPerSec", type_name="DelayedProduceMetrics") == 1
    fixture.fetch_as(2, A, 2)
    assert len(answers) == 1


def test_a_produce_waits_for_each_of_its_partitions(fixture: ReplicaFixture) -> None:
    fixture.lead(A, replicas=(1, 2))
    fixture.lead(B, replicas=(1, 2))
    answers = fixture.produce({A: batch(), B: batch(), C: batch()})
    fixture.fetch_as(2, A, 1)
    assert not answers
    fixture.fetch_as(2, B, 1)
    assert errors(answers) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("change", ["follow", "delete"])
def test_a_produce_ends_with_the_role(fixture: ReplicaFixture, change: str) -> None:
    """04b section 6: become-follower and stop-replica are checked."""
    fixture.lead(A, replicas=(1, 2))
    answers = fixture.produce({A: batch()})
    if change == "follow":
        fixture.apply(hosted(state_of(A, leader=2, replicas=(1, 2), leader_epoch=1)))
        expected = ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        fixture.apply(stopped(A))
        expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(answers) == [expected]


def test_too_few_in_sync_replicas(fixture: ReplicaFixture) -> None:
    fixture.min_insync_replicas = 2
    fixture.lead(A, replicas=(1, 2), isr=(1,))
    assert errors(fixture.produce({A: batch()})) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert errors(fixture.produce({A: batch()}, acks=1)) == [ErrorCode.NONE]
    assert fixture.log(A).log_end_offset == 1


def test_the_setting_is_taken_over_when_it_changes(fixture: ReplicaFixture) -> None:
    fixture.lead(A)
    fixture.min_insync_replicas = 2
    assert errors(fixture.produce({A: batch()})) == [ErrorCode.NONE]
    list(fixture.replicas.renew_settings(lambda topic: topic == "a"))
    assert errors(fixture.produce({A: batch()})) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_a_retry_is_answered_with_what_it_repeats(fixture: ReplicaFixture) -> None:
    """Also a retry has to wait until what it repeats is replicated."""
    fixture.lead(A, replicas=(1, 2))
    first = fixture.produce({A: idempotent(0, 2)})
    retry = fixture.produce({A: idempotent(0, 2)})
    assert (first, retry) == ([], [])
    fixture.fetch_as(2, A, 2)
    assert first == retry == [{A: ProduceResult(ErrorCode.NONE, 0, -1, 0)}]
    assert fixture.count("MessagesInPerSec") == 2


def test_record_errors_are_told(tmp_path: Path) -> None:
    with ReplicaFixture(
        tmp_path, config=LogConfig(cleanup_policy=("delete", "compact"))
    ) as fixture:
        fixture.lead(A)
        [results] = fixture.produce({A: batch(2, key=None)})
        assert results[A].error is ErrorCode.INVALID_RECORD
        assert [index for index, _ in results[A].record_errors] == [0, 1]
        assert results[A].error_message
        assert fixture.count("NoKeyCompactedTopicRecordsPerSec", "a") == 2


# One partition alone


def produce_one(
    fixture: ReplicaFixture, partition: TopicPartition, *, acks: int = -1
) -> list[ProduceResult]:
    """The answers of `append_single` and what follows it: none while it is parked, later one."""
    answers: list[ProduceResult] = []
    replicas = fixture.replicas
    found = replicas.find_online(*partition)
    assert found is not None
    stored = replicas.appends.append_single(found, batch(), acks)
    if isinstance(stored, ProduceResult):
        return [stored]
    if acks == -1 and found.has_followers:
        replicas.appends.await_replicas(found, stored, 1000, answers.append)
        return answers
    assert stored.first_offset is not None
    result = ProduceResult(
        base_offset=stored.first_offset, log_start_offset=stored.log_start_offset
    )
    return [result]


def test_one_partition_is_answered_as_among_others(fixture: ReplicaFixture) -> None:
    fixture.lead(A)
    fixture.lead(B)
    for acks in (-1, 1):
        [among] = fixture.produce({A: batch()}, acks=acks)
        assert produce_one(fixture, B, acks=acks) == [among[A]]
    assert fixture.replicas.find_online(*C) is None


def test_one_partition_waits_for_its_replicas(fixture: ReplicaFixture) -> None:
    fixture.lead(A, replicas=(1, 2))
    assert [answer.error for answer in produce_one(fixture, A, acks=1)] == [ErrorCode.NONE]

    waiting = produce_one(fixture, A)
    assert waiting == []
    fixture.fetch_as(2, A, 2)
    assert waiting == [ProduceResult(base_offset=1, log_start_offset=0)]

    late = produce_one(fixture, A)
    fixture.pass_time(1001)
    assert [answer.error for answer in late] == [ErrorCode.REQUEST_TIMED_OUT]


# Order of answers


def test_the_own_answer_comes_before_those_it_makes_possible(fixture: ReplicaFixture) -> None:
    """04b section 9: what an append makes readable is checked behind its answer."""
    fixture.lead(A)
    order: list[str] = []

    def fetch(name: str) -> None:
        def respond(_results: FetchResults) -> None:
            order.append(name)

        fixture.replicas.reads.fetch(
            _PARAMS, [FetchPartition(A, None, fixture.log(A).log_end_offset, 1000)], respond
        )

    fetch("fetch")
    fixture.replicas.appends.append_records(
        timeout_ms=0,
        required_acks=-1,
        internal_topics_allowed=False,
        origin=AppendOrigin.CLIENT,
        entries={A: batch()},
        respond=lambda _results: order.append("produce"),
    )
    assert order == ["produce", "fetch"]


def test_what_a_single_append_makes_possible_comes_after_the_answers(
    fixture: ReplicaFixture,
) -> None:
    """04b section 9: not before its caller has answered, each once, however many appends."""
    fixture.lead(A)
    later: list[Callable[[], None]] = []
    fixture.replicas.use_answers(later.append)
    fetched: list[int] = []
    for _ in range(3):
        fixture.replicas.reads.fetch(
            _PARAMS,
            [FetchPartition(A, None, 0, 1000)],
            lambda results: fetched.append(results[0][1].high_watermark),
        )
    produce_one(fixture, A)
    produce_one(fixture, A)
    assert (fetched, len(later)) == ([], 1)

    later.pop()()
    assert fetched == [2, 2, 2]
    assert fixture.purgatories.fetch.num_delayed == 0
    produce_one(fixture, A)
    assert not later, "nobody waits"


def test_a_fetch_does_not_wait_for_answers_that_another_call_gave(fixture: ReplicaFixture) -> None:
    """04b section 9: whoever works off the notes first does, and nothing is left to do twice."""
    fixture.lead(A)
    later: list[Callable[[], None]] = []
    fixture.replicas.use_answers(later.append)
    fetched: list[FetchResults] = []
    fixture.replicas.reads.fetch(_PARAMS, [FetchPartition(A, None, 0, 1000)], fetched.append)
    produce_one(fixture, A)
    fixture.produce({A: batch()})
    assert len(fetched) == 1
    later.pop()()
    assert len(fetched) == 1


def test_answers_that_ask_for_more_do_not_pile_up(fixture: ReplicaFixture) -> None:
    """04b section 9: two pipelined clients, each answer of one making the other's possible."""
    fixture.lead(A)
    rounds = 500  # Each would take several frames, and the stack holds 1000.
    fetched = 0

    def on_fetched(_results: FetchResults) -> None:
        nonlocal fetched
        fetched += 1
        if fetched < rounds:
            fetch()
            fixture.produce({A: batch()})

    def fetch() -> None:
        wanted = FetchPartition(A, None, fixture.log(A).log_end_offset, 1000)
        fixture.replicas.reads.fetch(_PARAMS, [wanted], on_fetched)

    fetch()
    fixture.produce({A: batch()})
    assert fetched == rounds


def test_a_disk_that_fails_in_the_middle_of_a_request(tmp_path: Path) -> None:
    """What waits for the lost partition ends after the produce is answered; others are served."""
    disk = SimDisk(tmp_path)
    with ReplicaFixture(tmp_path, directories=("one", "two"), disk=disk) as fixture:
        fixture.lead(A)
        fixture.lead(B)
        order: list[list[ErrorCode]] = []
        fixture.replicas.reads.fetch(
            _PARAMS, [FetchPartition(A, None, 0, 1000)], lambda r: order.append([r[0][1].error])
        )
        disk.fail("write", path_contains="a-0/")
        fixture.replicas.appends.append_records(
            timeout_ms=0,
            required_acks=-1,
            internal_topics_allowed=False,
            origin=AppendOrigin.CLIENT,
            entries={A: batch(), B: batch()},
            respond=lambda results: order.append([r.error for r in results.values()]),
        )
        lost = ErrorCode.KAFKA_STORAGE_ERROR
        assert order == [[lost, ErrorCode.NONE], [lost]]


def test_a_disk_that_fails_under_one_partition(tmp_path: Path) -> None:
    """Its produce is refused, who waits for it hears of it, and it is not found any more."""
    disk = SimDisk(tmp_path)
    with ReplicaFixture(tmp_path, directories=("one", "two"), disk=disk) as fixture:
        fixture.lead(A)
        fixture.lead(B)
        woken: list[ErrorCode] = []
        fixture.replicas.reads.fetch(
            _PARAMS, [FetchPartition(A, None, 0, 1000)], lambda r: woken.append(r[0][1].error)
        )
        disk.fail("write", path_contains="a-0/")

        [refused] = produce_one(fixture, A)
        assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert woken == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert fixture.replicas.find_online(*A) is None
        assert [result.error for result in produce_one(fixture, B)] == [ErrorCode.NONE]


# Meters


def test_meters_of_an_append(fixture: ReplicaFixture) -> None:
    fixture.lead(A)
    fixture.lead(B)
    data = batch(3)
    fixture.produce({A: data, B: batch(1)})
    assert fixture.count("BytesInPerSec", "a") == len(data)
    assert fixture.count("MessagesInPerSec", "a") == 3
    assert fixture.count("MessagesInPerSec") == 4
    assert fixture.count("TotalProduceRequestsPerSec", "a") == 1
    assert fixture.count("TotalProduceRequestsPerSec") == 2
    assert fixture.count("FailedProduceRequestsPerSec") == 0


def test_meters_of_refusals(fixture: ReplicaFixture) -> None:
    """05 section 7: what a client did wrong in ordinary ways is no failure of the broker."""
    fixture.lead(A)
    too_large = batch(size=1200)
    corrupt = batch()
    corrupt[-1] ^= 1
    fixture.produce({A: too_large})
    fixture.produce({A: corrupt})
    fixture.produce({B: batch()})
    for topic in ("a", None):
        assert fixture.count("BytesRejectedPerSec", topic) == 1200
        assert fixture.count("InvalidMessageCrcRecordsPerSec", topic) == 1
        assert fixture.count("FailedProduceRequestsPerSec", topic) == 0
    fixture.produce({A: batch(base_offset=3)})
    fixture.produce({A: idempotent(0, 1)})
    fixture.produce({A: idempotent(5, 1)})
    for topic in ("a", None):
        assert fixture.count("InvalidOffsetOrSequenceRecordsPerSec", topic) == 1
        assert fixture.count("FailedProduceRequestsPerSec", topic) == 2
    assert fixture.count("TotalProduceRequestsPerSec", "a") == 5
    assert fixture.count("TotalProduceRequestsPerSec") == 6


def test_a_topic_that_clients_only_name_has_no_meters(fixture: ReplicaFixture) -> None:
    """Names from outside have no end, so they must not be remembered."""
    series = len(fixture.registry)
    for i in range(20):
        fixture.produce({tp(f"x{i}"): batch()})
        fixture.fetch(FetchPartition(tp(f"x{i}"), None, 0, 100))
    assert len(fixture.registry) == series


def test_meters_go_with_the_topic(fixture: ReplicaFixture) -> None:
    fixture.lead(A)
    fixture.lead(tp("a", 1))
    fixture.apply(stopped(A))
    assert fixture.count("BytesInPerSec", "a") == 0
    fixture.apply(hosted(state_of(tp("a", 1), leader=2, replicas=(1, 2), leader_epoch=1)))
    assert fixture.count("BytesInPerSec", "a") == -1
    fixture.lead(tp("a", 1), leader_epoch=2)
    fixture.produce({tp("a", 1): batch(2)})
    assert fixture.count("MessagesInPerSec", "a") == 2
    fixture.apply(stopped(tp("a", 1)))
    assert fixture.count("BytesInPerSec", "a") == -1
