"""The pure parts of following: truncation, resets, states, sessions (05 sections 2, 3, 4, 16)."""

import uuid

import pytest

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.replication.following.leader_endpoint import (
    FetchAnswer,
    FetchQuestion,
    PartitionAnswer,
)
from odradek.replication.following.partition_states import (
    FollowedPartition,
    FollowedPartitions,
    ReplicaState,
)
from odradek.replication.following.reconciliation import (
    Reset,
    Truncation,
    decide_reset,
    decide_truncation,
)
from odradek.replication.following.replica_fetchers import fetcher_name
from odradek.replication.following.session import MOST_NEW_PARTITIONS, FollowerSession

A, B, C, D, E = (TopicPartition(name, 0) for name in "abcde")


def truncation(**fields: int) -> Truncation:
    given = {"own_epoch": -1, "own_epoch_end": -1, "log_end": 50, "fetch_offset": 5, **fields}
    return decide_truncation(**given)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            truncation(leader_epoch=-1, leader_end=-1), Truncation(5, True), id="05:R12-undefined"
        ),
        pytest.param(
            truncation(leader_epoch=2, leader_end=30, own_epoch=2, own_epoch_end=40),
            Truncation(30, True),
            id="05:R12-same-epoch",
        ),
        pytest.param(
            truncation(leader_epoch=2, leader_end=30, own_epoch=1, own_epoch_end=20),
            Truncation(20, False),
            id="05:R12-ask-again",
        ),
        pytest.param(
            truncation(leader_epoch=-1, leader_end=60), Truncation(50, True), id="epoch-undefined"
        ),
        pytest.param(
            truncation(leader_epoch=2, leader_end=30), Truncation(30, True), id="no-epoch-here"
        ),
        pytest.param(
            truncation(leader_epoch=2, leader_end=70, own_epoch=2, own_epoch_end=60),
            Truncation(50, True),
            id="never-above-the-end",
        ),
        pytest.param(
            truncation(leader_epoch=2, leader_end=70, own_epoch=1, own_epoch_end=60),
            Truncation(50, False),
            id="never-above-the-end-when-asking-again",
        ),
        pytest.param(
            truncation(leader_epoch=2, leader_end=-1, fetch_offset=60),
            Truncation(50, True),
            id="high-watermark-above-the-end",
        ),
    ],
)
def test_truncation(found: Truncation, expected: Truncation) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("log_end", "leader_end", "leader_start", "expected"),
    [
        pytest.param(100, 80, None, Reset(80, 0, False), id="05:R13-leader-ends-before"),
        pytest.param(10, 90, 40, Reset(40, 50, True), id="05:R13-leader-starts-behind"),
        pytest.param(60, 90, 40, Reset(60, 30, False), id="05:R13-inside"),
        pytest.param(60, 90, None, None, id="start-needed"),
        pytest.param(90, 90, 90, Reset(90, 0, False), id="both-at-the-end"),
    ],
)
def test_reset(
    log_end: int, leader_end: int, leader_start: int | None, expected: Reset | None
) -> None:
    found = decide_reset(log_end=log_end, leader_end=leader_end, leader_start=leader_start)
    assert found == expected


@pytest.mark.parametrize(
    ("prefix", "name"),
    [(None, "ReplicaFetcherThread-0-2"), ("p", "p:ReplicaFetcherThread-0-2")],
    ids=["05:R10", "05:R10-prefix"],
)
def test_names(prefix: str | None, name: str) -> None:
    assert fetcher_name(0, 2, prefix) == name


def state(
    tp: TopicPartition,
    *,
    offset: int = 0,
    epoch: int = 0,
    topic_id: uuid.UUID | None = None,
    state: ReplicaState = ReplicaState.FETCHING,
) -> FollowedPartition:
    return FollowedPartition(
        tp,
        topic_id=topic_id,
        leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        log_start_offset=0,
        state=state,
    )


def make(*states: FollowedPartition) -> FollowedPartitions:
    partitions = FollowedPartitions(set())
    for one in states:
        assert partitions.add(one)
    return partitions


def advance(partitions: FollowedPartitions, tp: TopicPartition, to: int, hw: int) -> None:
    one = partitions.get(tp)
    assert one is not None
    partitions.advance(
        one, next_offset=to, last_epoch=0, log_start_offset=0, leader_high_watermark=hw
    )


def order(partitions: FollowedPartitions) -> list[TopicPartition]:
    return [one.tp for one in partitions]


def test_the_one_that_was_read_is_last() -> None:
    """05:R1."""
    partitions = make(*map(state, (A, B, C, D, E)))
    advance(partitions, A, 1, 1)
    assert order(partitions) == [B, C, D, E, A]


@pytest.mark.parametrize(
    ("to", "high_watermark", "lag"),
    [
        pytest.param(100, 120, 20, id="05:R3"),
        pytest.param(100, 95, 0, id="05:R4"),
        pytest.param(90, 120, 30, id="05:R5-nothing-appended"),
    ],
)
def test_lag(to: int, high_watermark: int, lag: int) -> None:
    partitions = make(state(A, offset=90), state(B))
    advance(partitions, A, to, high_watermark)
    one = partitions.get(A)
    assert one is not None
    assert (one.fetch_offset, one.lag) == (to, lag)
    assert order(partitions) == ([A, B] if to == 90 else [B, A])


def test_delays() -> None:
    """05:R2: not ready until the time, then ready; a running delay is not extended."""
    partitions = make(state(A), state(B))
    partitions.delay([A], now_ms=0, backoff_ms=10)
    partitions.delay([A], now_ms=9, backoff_ms=90)
    assert partitions.next_wake_ms() == 10
    assert order(partitions) == [B, A]
    partitions.wake(9)
    assert [one.tp for one in partitions.ready()] == [B]
    partitions.wake(10)
    assert [one.tp for one in partitions.ready()] == [B, A]
    assert partitions.next_wake_ms() is None


def test_delays_double_up_to_the_back_off() -> None:
    partitions = make(state(A))
    one = partitions.get(A)
    assert one is not None
    found = []
    for _ in range(6):
        partitions.delay([A], now_ms=0, backoff_ms=1000)
        found.append(one.delayed_until_ms)
        partitions.wake(1000)
    assert found == [50, 100, 200, 400, 800, 1000]
    advance(partitions, A, 1, 1)
    partitions.delay([A], now_ms=0, backoff_ms=1000)
    assert one.delayed_until_ms == 50


def test_what_an_answer_must_match() -> None:
    """05:R6."""
    partitions = make(state(A, offset=40, epoch=3))
    assert partitions.is_expected(A, asked_offset=40, asked_epoch=3)
    assert not partitions.is_expected(A, asked_offset=50, asked_epoch=3)
    assert not partitions.is_expected(A, asked_offset=40, asked_epoch=2)
    assert not partitions.is_expected(B, asked_offset=40, asked_epoch=3)
    partitions.delay([A], now_ms=0, backoff_ms=10)
    assert not partitions.is_expected(A, asked_offset=40, asked_epoch=3)


def test_the_same_epoch_keeps_its_state() -> None:
    partitions = make(state(A, offset=7))
    assert not partitions.add(state(A, offset=1))
    assert partitions.add(state(A, offset=1, epoch=1))
    one = partitions.get(A)
    assert one is not None
    assert one.fetch_offset == 1


def test_fencing() -> None:
    """05 section 3.6: an unchanged epoch fails, a newer one is tried again, unknown is nothing."""
    partitions = make(state(A, epoch=4), state(B, epoch=4))
    assert partitions.handle_fenced(A, 3)
    assert not partitions.handle_fenced(B, 4)
    assert not partitions.handle_fenced(C, 4)
    assert partitions.failed == {B}
    assert order(partitions) == [A]


def test_truncation_continues_the_partition() -> None:
    """05 section 3.3: complete is FETCHING, incomplete asks again; other states are unchanged."""
    first, second = (state(tp, state=ReplicaState.TRUNCATING) for tp in (A, B))
    partitions = make(first, second)
    assert [one.tp for one in partitions.truncating()] == [A, B]
    partitions.begin_work(first)
    assert [one.tp for one in partitions.truncating()] == [B]
    done = {"fetch_offset": 20, "last_epoch": 1, "log_start_offset": 0}
    partitions.end_work(first, state=ReplicaState.TRUNCATING, **done)
    assert [one.tp for one in partitions.truncating()] == [A, B]
    partitions.end_work(first, state=ReplicaState.FETCHING, **done)
    assert [one.tp for one in partitions.truncating()] == [B]
    assert (first.fetch_offset, first.is_ready_for_fetch) == (20, True)
    partitions.remove([B])
    partitions.end_work(second, state=ReplicaState.FETCHING, **done)
    assert second.fetch_offset == 0, "it is no longer followed"


def answer(session_id: int, *keys: tuple[str | bytes, int]) -> FetchAnswer:
    rows = [PartitionAnswer(key, ErrorCode.NONE, 0, 0, None, memoryview(b"")) for key in keys]
    return FetchAnswer(ErrorCode.NONE, session_id, rows)


def test_sessions() -> None:
    """05 section 4: full, incremental, int32 wraps to 1, id 0 ends it."""
    partitions = make(state(A), state(B))
    session = FollowerSession()
    question = session.build(partitions, uses_topic_ids=False)
    assert question is not None
    assert (question.session_id, question.session_epoch, len(question.wanted)) == (0, 0, 2)
    assert session.accept(question, answer(77, ("a", 0), ("b", 0))) is None
    session._epoch = 2**31 - 1
    question = session.build(partitions, uses_topic_ids=False)
    assert question is not None
    assert (question.session_id, question.session_epoch) == (77, 2**31 - 1)
    assert (question.wanted, question.forgotten) == ([], [])
    assert session.accept(question, answer(77)) is None
    question = session.build(partitions, uses_topic_ids=False)
    assert question is not None
    assert question.session_epoch == 1
    assert session.accept(question, answer(0)) is None
    question = session.build(partitions, uses_topic_ids=False)
    assert question is not None
    assert (question.session_id, question.session_epoch, len(question.wanted)) == (0, 0, 2)


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
        (None, 77),
    ],
)
def test_a_session_that_failed(code: ErrorCode | None, session_id: int) -> None:
    partitions = make(state(A))
    session = FollowerSession()
    question = session.build(partitions, uses_topic_ids=False)
    assert question is not None
    session.accept(question, answer(77, ("a", 0)))
    session.fail(code)
    question = session.build(partitions, uses_topic_ids=False)
    assert question is not None
    assert (question.session_id, question.session_epoch) == (session_id, 0)


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        pytest.param([("a", 0)], "names 1", id="partition-omitted"),
        pytest.param([("a", 0), ("b", 0), ("c", 0)], "not asked for", id="partition-unknown"),
    ],
)
def test_answers_that_do_not_fit(keys: list[tuple[str | bytes, int]], word: str) -> None:
    partitions = make(state(A), state(B))
    session = FollowerSession()
    question = session.build(partitions, uses_topic_ids=False)
    assert question is not None
    assert word in (session.accept(question, answer(77, *keys)) or "")


def test_a_topic_of_the_same_name_and_another_id() -> None:
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    partitions = make(state(A, topic_id=old), state(B, topic_id=uuid.UUID(int=3)))
    session = FollowerSession()
    question = session.build(partitions, uses_topic_ids=True)
    assert question is not None
    keys = [(old.bytes, 0), (uuid.UUID(int=3).bytes, 0)]
    assert session.accept(question, answer(7, *keys)) is None
    partitions.add(state(A, epoch=1, topic_id=new))
    question = session.build(partitions, uses_topic_ids=True)
    assert question is not None
    assert [w.key for w in question.wanted] == [(new.bytes, 0)]
    assert question.forgotten == [(old.bytes, 0)]
    assert session.asked((old.bytes, 0)) is None


def enter(session: FollowerSession, partitions: FollowedPartitions) -> list[FetchQuestion]:
    """Builds requests, each of which is answered, until one names all that is left."""
    questions: list[FetchQuestion] = []
    while not questions or not questions[-1].is_last:
        question = session.build(partitions, uses_topic_ids=False)
        assert question is not None
        keys = [one.key for one in question.wanted] if not questions else []
        assert session.accept(question, answer(7, *keys)) is None
        questions.append(question)
    return questions


def test_new_partitions_enter_a_session_a_few_at_a_time() -> None:
    """Records of others would wait for a request that names a thousand."""
    many = [TopicPartition("t", n) for n in range(2 * MOST_NEW_PARTITIONS)]
    partitions = make(*map(state, many))
    session = FollowerSession()
    first = session.build(partitions, uses_topic_ids=False)
    assert first is not None
    assert len(first.wanted) == MOST_NEW_PARTITIONS
    assert not first.is_last, "it must not wait for records"
    assert session.accept(first, answer(7, *(one.key for one in first.wanted))) is None
    # One that is known moves on and has its place at once; one that is left is removed.
    advance(partitions, many[0], 3, 3)
    partitions.remove([many[-1]])
    second = session.build(partitions, uses_topic_ids=False)
    assert second is not None
    assert second.is_last
    named = [one.key for one in second.wanted]
    assert len(named) == MOST_NEW_PARTITIONS
    assert ("t", 0) in named
    assert many[-1] not in named
    assert second.forgotten == []
    assert session.accept(second, answer(7)) is None
    third = session.build(partitions, uses_topic_ids=False)
    assert third is not None
    assert (third.wanted, third.is_last) == ([], True)


def test_a_session_that_begins_anew_names_all_again() -> None:
    many = [TopicPartition("t", n) for n in range(3 * MOST_NEW_PARTITIONS)]
    partitions = make(*map(state, many))
    session = FollowerSession()
    enter(session, partitions)
    session.fail(None)
    named = [one.key for question in enter(session, partitions) for one in question.wanted]
    assert sorted(named) == many


def test_a_request_costs_what_changed() -> None:
    """05:R30: with 10,000 partitions an incremental request looks at the changed ones alone."""
    partitions = make(*(state(TopicPartition("t", n)) for n in range(10_000)))
    session = FollowerSession()
    assert len(enter(session, partitions)) == 10_000 // MOST_NEW_PARTITIONS
    advance(partitions, TopicPartition("t", 5), 3, 3)
    assert partitions.take_changed() == [TopicPartition("t", 5)]
    assert partitions.take_changed() == []
