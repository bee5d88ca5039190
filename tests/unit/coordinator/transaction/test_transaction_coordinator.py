"""The transaction coordinator over a log in memory: durable first, then answered, then finished."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from odradek.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.coordinator.transaction.decisions import Answer, ProducerIdentity
from odradek.coordinator.transaction.markers import (
    DELETED_AFTER_MS,
    RETRY_MS,
    SUPERSEDED_RETRY_MS,
)
from odradek.coordinator.transaction.records import (
    TransactionRecord,
    encode_transaction_key,
    encode_transaction_value,
)
from odradek.coordinator.transaction.state import TransactionState
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.records.builder import build_batch
from tests.support.transaction_world import TransactionWorld, answered, settle

S = TransactionState
NONE = ErrorCode.NONE
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PARTITIONS = {"t": frozenset({0, 1})}


def run(scenario: Callable[[TransactionWorld], Awaitable[None]], **options: Any) -> None:
    async def live() -> None:
        world = TransactionWorld(**options)
        await settle()
        await scenario(world)
        assert world.tasks.failures == []
        world.tasks.stop()

    asyncio.run(live())


async def init(
    world: TransactionWorld, given: ProducerIdentity | None = None, timeout_ms: int = 60_000
) -> Answer:
    outcome = await answered(partial(world.coordinator.init_producer_id, "tx", timeout_ms, given))
    await settle()
    return outcome


def add(
    world: TransactionWorld,
    producer: ProducerIdentity,
    coordinator: TransactionCoordinator | None = None,
) -> list[ErrorCode]:
    answers: list[ErrorCode] = []
    (coordinator or world.coordinator).begin_adding("tx", producer, PARTITIONS, answers.append)
    return answers


def end(
    world: TransactionWorld,
    producer: ProducerIdentity,
    *,
    is_commit: bool = True,
    gets_epoch: bool = False,
) -> list[Answer]:
    answers: list[Answer] = []
    assert world.coordinator.begin_ending(
        "tx", producer, is_commit=is_commit, gets_epoch=gets_epoch, answer=answers.append
    )
    return answers


async def begun(world: TransactionWorld) -> ProducerIdentity:
    """A producer with an open transaction in both partitions."""
    producer = (await init(world)).identity
    assert add(world, producer) == [NONE]
    for tp in (T0, T1):
        world.partition(tp).append(*producer, "record")
    return producer


def state_of(world: TransactionWorld) -> TransactionState:
    record = world.stored("tx")
    assert record is not None
    return record.state


def test_a_transaction_is_committed_everywhere() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        assert producer == (4000, 0)
        assert end(world, producer) == [Answer(NONE)]
        await settle()
        for tp in (T0, T1):
            assert world.partition(tp).committed == ["record"]
        assert state_of(world) is S.COMPLETE_COMMIT
        assert end(world, producer) == [Answer(NONE)], "10:TX-10"
        [refused] = end(world, producer, is_commit=False)
        assert refused.error is ErrorCode.INVALID_TXN_STATE, "10:TX-9"
        assert [marker.coordinator_epoch for marker in world.sent] == [0]

    run(scenario)


@pytest.mark.parametrize("is_commit", [True, False])
def test_without_replicas_a_transaction_is_completed_within_its_decision(is_commit: bool) -> None:
    """The producer's next transaction need not wait for the end of this one."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        assert end(world, producer, is_commit=is_commit) == [Answer(NONE)]
        assert state_of(world) is (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)
        assert add(world, producer) == [NONE]
        assert len(world.sent) == 1
        for tp in (T0, T1):
            ended = world.partition(tp)
            assert (ended.committed if is_commit else ended.aborted) == ["record"]

    run(scenario, is_replicated=False)


def test_the_decision_is_durable_before_a_marker_is_written_at_once() -> None:
    """10:TX-6."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        states: list[TransactionState] = []
        world.before_marker = lambda _marker, _tp: states.append(state_of(world))
        end(world, producer)
        assert states == [S.PREPARE_COMMIT] * 2
        producer = (await init(world)).identity
        add(world, producer)
        world.topic.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert end(world, producer) == [Answer(ErrorCode.NOT_COORDINATOR)]
        assert len(states) == 2

    run(scenario, is_replicated=False)


def test_a_partition_that_refuses_a_marker_at_once_gets_it_later() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.refusals[T1] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert end(world, producer) == [Answer(NONE)]
        assert state_of(world) is S.PREPARE_COMMIT
        assert world.partition(T0).committed == ["record"]
        await world.tasks.advance(RETRY_MS)
        assert world.partition(T1).committed == ["record"]
        assert state_of(world) is S.COMPLETE_COMMIT
        assert world.partition(T0).marker_count == 1

    run(scenario, is_replicated=False)


def test_a_marker_that_fails_at_once_is_sent() -> None:
    """The decision is durable, and its producer gets its answer."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        failures = [RuntimeError("a bug")]

        def fail_once(_marker: object, _tp: TopicPartition) -> None:
            if failures:
                raise failures.pop()

        world.before_marker = fail_once
        assert end(world, producer) == [Answer(NONE)]
        await settle()
        assert state_of(world) is S.COMPLETE_COMMIT
        assert len(world.sent) == 2

    run(scenario, is_replicated=False)


@pytest.mark.parametrize("leader", [1, -1, None])
def test_a_marker_for_elsewhere_is_not_written_at_once(leader: int | None) -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        for tp in (T0, T1):
            world.leaders[tp] = 0 if tp == T0 else leader
        assert end(world, producer) == [Answer(NONE)]
        assert state_of(world) is S.PREPARE_COMMIT
        assert not world.sent
        world.leaders.clear()
        await world.tasks.advance(RETRY_MS)
        assert state_of(world) is S.COMPLETE_COMMIT

    run(scenario, is_replicated=False)


def test_an_end_that_cannot_be_stored_at_once_is_stored_later() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)

        def fail_next(_marker: object, _tp: TopicPartition) -> None:
            world.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS

        world.before_marker = fail_next
        assert end(world, producer) == [Answer(NONE)]
        assert state_of(world) is S.PREPARE_COMMIT
        world.topic.error = NONE
        await world.tasks.advance(RETRY_MS)
        assert state_of(world) is S.COMPLETE_COMMIT
        assert len(world.sent) == 1

    run(scenario, is_replicated=False)


@pytest.mark.parametrize("is_replicated", [False, True])
def test_a_leader_asks_at_once_where_no_replica_is_awaited(is_replicated: bool) -> None:
    """10 section 9.9: otherwise nothing is done, and the question is asked again to be awaited."""

    async def scenario(world: TransactionWorld) -> None:
        producer = (await init(world)).identity
        ask = partial(world.coordinator.try_add_partitions, "tx", *producer, (T0,))
        abortable = {T0: ErrorCode.TRANSACTION_ABORTABLE}
        assert ask(verify_only=True) == abortable
        world.topic.is_replicated = is_replicated
        if is_replicated:
            assert ask(verify_only=False) is None
            assert state_of(world) is S.EMPTY
            assert add(world, producer) == [], "nothing is under way"
            assert ask(verify_only=False) == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
            world.topic.replicate()
        else:
            assert ask(verify_only=False) == {T0: NONE}
        assert state_of(world) is S.ONGOING
        assert ask(verify_only=True) == ask(verify_only=False) == {T0: NONE}
        fenced = ProducerIdentity(producer.producer_id, producer.producer_epoch + 1)
        for verify_only in (True, False):
            refused = world.coordinator.try_add_partitions(
                "tx", *fenced, (T0,), verify_only=verify_only
            )
            assert refused == {T0: ErrorCode.PRODUCER_FENCED}
        world.coordinator.stop()
        assert ask(verify_only=False) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run(scenario)


def test_nothing_is_answered_before_it_is_durable() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = (await init(world)).identity
        world.topic.is_held = True
        added = add(world, producer)
        assert added == []
        assert add(world, producer) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        world.topic.release()
        assert added == [NONE]
        ended = end(world, producer)
        assert (ended, world.sent) == ([], [])
        assert end(world, producer)[0].error is ErrorCode.CONCURRENT_TRANSACTIONS
        world.topic.release()
        await settle()
        assert ended == [Answer(NONE)]
        assert len(world.sent) == 1

    run(scenario)


def test_another_producer_of_the_id_fences_the_one_before() -> None:
    """10:TX-4."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        assert (await init(world)).error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.partition(T0).aborted == ["record"]
        assert (await init(world)).identity == (4000, 2)
        assert add(world, producer) == [ErrorCode.PRODUCER_FENCED]
        assert end(world, producer)[0].error is ErrorCode.PRODUCER_FENCED
        late = world.partition(T0).append(*producer, "late")
        assert late is ErrorCode.INVALID_PRODUCER_EPOCH

    run(scenario)


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_takes_too_long_is_aborted(version: int) -> None:
    """10:TX-5, 15:KAFKA-6119: the producer before is fenced."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        await world.tasks.advance(60_000)
        world.coordinator.abort_timed_out()
        await settle()
        assert world.sent == []
        await world.tasks.advance(1)
        world.coordinator.abort_timed_out()
        await settle()
        assert world.partition(T1).aborted == ["record"]
        assert state_of(world) is S.COMPLETE_ABORT
        assert end(world, producer)[0].error is ErrorCode.PRODUCER_FENCED
        [marker] = world.sent
        assert (marker.producer_epoch, marker.transaction_version) == (1, version)

    run(scenario, version=version)


def test_a_clock_that_steps_back_delays_a_time_out_and_nothing_else() -> None:
    """15:KAFKA-8803."""

    async def scenario(world: TransactionWorld) -> None:
        first = await begun(world)
        world.clock.step_wall(-3_600_000)
        assert end(world, first) == [Answer(NONE)]
        await settle()
        assert add(world, first) == [NONE]
        assert state_of(world) is S.ONGOING
        await world.tasks.advance(60_000)
        world.coordinator.abort_timed_out()
        await settle()
        assert state_of(world) is S.ONGOING
        await world.tasks.advance(1)
        world.coordinator.abort_timed_out()
        await settle()
        assert state_of(world) is S.COMPLETE_ABORT

    run(scenario)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_decided_transaction_is_finished_by_the_next_coordinator(is_commit: bool) -> None:
    """10:TX-6; and 10:TX-8, the marker of the one before comes too late."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.is_connected = False
        assert end(world, producer, is_commit=is_commit) == [Answer(NONE)]
        await settle()
        assert state_of(world) in (S.PREPARE_COMMIT, S.PREPARE_ABORT)
        world.is_connected = True
        world.crash()
        await settle()
        assert state_of(world) is (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)
        for tp in (T0, T1):
            partition = world.partition(tp)
            assert (partition.committed if is_commit else partition.aborted) == ["record"]
            late = replace(world.sent[-1], coordinator_epoch=0, is_commit=not is_commit)
            assert partition.mark(late) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert end(world, producer, is_commit=is_commit) == [Answer(NONE)]

    run(scenario)


def test_an_end_that_was_lost_with_its_coordinator_is_decided_when_it_is_repeated() -> None:
    """10:TX-7."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.topic.is_replicated = True
        ended = end(world, producer)
        world.topic.fail_over(0, 1)
        await settle()
        assert ended[0].error is ErrorCode.NOT_COORDINATOR
        world.topic.is_replicated = False
        world.crash()
        await settle()
        assert state_of(world) is S.ONGOING
        assert end(world, producer, is_commit=False) == [Answer(NONE)]
        await settle()
        assert world.partition(T0).aborted == ["record"]

    run(scenario)


def test_a_failed_append_changes_nothing_and_is_named() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = (await init(world)).identity
        for error, answer in (
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
            (ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.INVALID_REQUIRED_ACKS),
        ):
            world.topic.error = error
            assert add(world, producer) == [answer]
            assert (await init(world)).error is answer
        world.topic.error = NONE
        assert add(world, producer) == [NONE]
        assert world.coordinator.describe("other") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(scenario)


def test_an_id_whose_first_record_fails_is_not_known() -> None:
    async def scenario(world: TransactionWorld) -> None:
        world.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await init(world)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.topic.error = NONE
        assert world.coordinator.describe("tx") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert list(world.coordinator.list_transactions()) == []
        assert (await init(world)).error is NONE

    run(scenario)


def test_markers_are_sent_until_every_leader_has_written_them() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.leaders[T1] = -1
        world.refusals[T0] = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.CORRUPT_MESSAGE,  # Not of the table: logged, and sent again.
        ]
        assert end(world, producer) == [Answer(NONE)]
        await world.tasks.advance(10 * RETRY_MS)
        assert world.partition(T0).committed == ["record"]
        assert state_of(world) is S.PREPARE_COMMIT
        gauge = "UnknownDestinationQueueSize"
        assert f"{gauge} 1" in "\n".join(_gauges(world))
        world.leaders[T1] = 7
        await world.tasks.advance(RETRY_MS)
        assert state_of(world) is S.COMPLETE_COMMIT
        assert world.partition(T1).committed == ["record"]

    run(scenario)


def _gauges(world: TransactionWorld) -> list[str]:
    return [
        f"UnknownDestinationQueueSize {world.coordinator._markers.waiting_count}",
        f"LogAppendRetryQueueSize {world.coordinator._markers.unfinished_count}",
    ]


@pytest.mark.parametrize("is_replicated", [True, False])
def test_a_partition_with_a_newer_epoch_of_the_producer_needs_no_marker(
    is_replicated: bool,
) -> None:
    """Nothing of the transaction is open there; its producer would wait for ever otherwise."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.refusals[T0] = [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
        end(world, producer)
        await settle()
        assert state_of(world) is S.COMPLETE_COMMIT
        assert world.partition(T1).committed == ["record"]
        assert add(world, producer) == [NONE]

    run(scenario, is_replicated=is_replicated)


def test_a_partition_with_a_newer_coordinator_is_asked_again_later() -> None:
    """10 section 9.7: this broker may be about to learn that it is not the coordinator any more."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.refusals[T0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        end(world, producer)
        await world.tasks.advance(SUPERSEDED_RETRY_MS - RETRY_MS)
        assert state_of(world) is S.PREPARE_COMMIT
        assert len(world.sent) == 1
        await world.tasks.advance(2 * RETRY_MS)
        assert state_of(world) is S.COMPLETE_COMMIT
        assert world.partition(T0).committed == ["record"]

    run(scenario)


def test_a_coordinator_that_was_replaced_asks_no_more() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.refusals[T0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        end(world, producer)
        await settle()
        world.coordinator._loader.resign(0, world.leader_epoch + 1)
        await world.tasks.advance(2 * SUPERSEDED_RETRY_MS)
        assert len(world.sent) == 1
        assert world.partition(T0).committed == []

    run(scenario)


def test_the_ids_of_a_partition_that_is_unloaded_are_freed_in_slices() -> None:
    """They and their partition name each other: a collection would take one turn for all."""

    async def scenario(world: TransactionWorld) -> None:
        for number in range(1_000):
            await world.coordinator.init_producer_id(f"tx-{number}", 1_000, None, _ignore)
        await settle()
        loaded = world.coordinator._registry.partitions[0]
        assert len(loaded.transactions) == 1_000
        world.coordinator._loader.resign(0, world.leader_epoch + 1)
        assert len(loaded.transactions) == 1_000, "not within the change of the leader"
        await settle()
        assert loaded.transactions == {}

    run(scenario)


def _ignore(_answer: Answer) -> None:
    """The test looks at the log."""


@pytest.mark.parametrize(
    "error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION]
)
def test_a_partition_that_can_have_no_marker_is_dropped(error: ErrorCode) -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.refusals[T0] = [error]
        end(world, producer)
        await settle()
        assert state_of(world) is S.COMPLETE_COMMIT

    run(scenario)


def test_a_partition_of_a_deleted_topic_needs_no_marker() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.leaders[T0] = world.leaders[T1] = None
        world.coordinator.forget_topics({"t"})
        end(world, producer)
        await settle()
        assert state_of(world) is S.COMPLETE_COMMIT

    run(scenario)


def test_an_unknown_partition_counts_as_deleted_after_a_minute() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.leaders[T0] = None
        end(world, producer)
        await world.tasks.advance(DELETED_AFTER_MS - 2 * RETRY_MS)
        assert state_of(world) is S.PREPARE_COMMIT
        await world.tasks.advance(3 * RETRY_MS)
        assert state_of(world) is S.COMPLETE_COMMIT
        assert world.partition(T1).committed == ["record"]

    run(scenario)


def test_a_completion_that_cannot_be_stored_is_stored_later() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)

        def fail(*_what: object) -> None:
            world.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS

        world.before_marker = fail
        end(world, producer)
        await world.tasks.advance(5 * RETRY_MS)
        assert state_of(world) is S.PREPARE_COMMIT
        assert add(world, producer) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert "LogAppendRetryQueueSize 1" in _gauges(world)
        world.topic.error = NONE
        await world.tasks.advance(RETRY_MS)
        assert state_of(world) is S.COMPLETE_COMMIT
        assert world.partition(T0).marker_count == 1

    run(scenario)


def test_many_partitions_are_marked_in_several_requests() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = (await init(world)).identity
        answers: list[ErrorCode] = []
        partitions = {"t": frozenset(range(100_000))}
        world.coordinator.begin_adding("tx", producer, partitions, answers.append)
        assert answers == [NONE]
        world.topic.max_batch_bytes = 1 << 20
        end(world, producer)
        for _ in range(200):
            await settle()
        assert state_of(world) is S.COMPLETE_COMMIT
        assert sum(len(marker.partitions) for marker in world.sent) == 100_000
        assert max(len(marker.partitions) for marker in world.sent) <= 1_100

    run(scenario)


def test_an_id_that_is_not_used_for_a_week_is_forgotten() -> None:
    """10:TX-13, 15:KAFKA-7519: a tombstone that was not written leaves nothing under way."""

    async def scenario(world: TransactionWorld) -> None:
        producer = (await init(world)).identity
        await world.tasks.advance(604_799_999)
        world.coordinator.expire()
        await settle()
        assert world.stored("tx") is not None
        await world.tasks.advance(1)
        world.topic.is_held = True
        world.coordinator.expire()
        await settle()
        assert add(world, producer) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        world.topic.release(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert not isinstance(world.coordinator.describe("tx"), ErrorCode)
        world.topic.is_held = False
        world.coordinator.expire()
        await settle()
        assert world.stored("tx") is None
        assert add(world, producer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        world.crash()
        await settle()
        assert add(world, producer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]

    run(scenario)


def test_requests_while_it_loads_and_when_it_has_stopped() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = (await init(world)).identity
        world.crash()
        assert add(world, producer) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert world.coordinator.check_all() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await settle()
        assert add(world, producer) == [NONE]
        assert world.coordinator.check_all() is NONE
        world.coordinator._loader.resign(0, 9)
        assert add(world, producer) == [ErrorCode.NOT_COORDINATOR]
        assert (await init(world)).error is ErrorCode.NOT_COORDINATOR
        world.coordinator.stop()
        assert add(world, producer) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    run(scenario)


def test_a_coordinator_that_is_deposed_does_not_answer_what_it_cannot_know() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.topic.is_held = True
        ended = end(world, producer)
        world.coordinator._loader.resign(0, 9)
        world.topic.release()
        await settle()
        assert ended[0].error is ErrorCode.NOT_COORDINATOR
        assert world.sent == []

    run(scenario)


def test_markers_under_way_are_dropped_with_the_leadership() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        world.leaders[T0] = -1
        end(world, producer)
        await settle()
        world.coordinator._loader.resign(0, 9)
        world.leaders[T0] = 0
        await world.tasks.advance(5 * RETRY_MS)
        assert world.partition(T0).marker_count == 0
        assert state_of(world) is S.PREPARE_COMMIT

    run(scenario)


LONGEST = "x" * 32_767


@pytest.mark.parametrize(
    ("transactional_id", "expected"),
    [
        ("", ErrorCode.INVALID_REQUEST),
        (LONGEST + "x", ErrorCode.INVALID_REQUEST),
        ("é" * 16_384, ErrorCode.INVALID_REQUEST),
        (LONGEST, NONE),
    ],
    ids=["empty", "32 KB", "32 KB of UTF-8", "the longest"],
)
def test_ids_that_no_record_can_have_are_refused(
    transactional_id: str, expected: ErrorCode
) -> None:
    async def scenario(world: TransactionWorld) -> None:
        coordinator = world.coordinator
        outcome = await answered(
            partial(coordinator.init_producer_id, transactional_id, 1_000, None)
        )
        assert outcome.error is expected
        answers: list[ErrorCode] = []
        coordinator.begin_adding(transactional_id, outcome.identity, PARTITIONS, answers.append)
        assert answers == [expected]
        assert coordinator.verify(transactional_id, outcome.identity, [T0]) == {T0: expected}
        ended = await answered(
            lambda answer: coordinator.end(
                transactional_id,
                outcome.identity,
                is_commit=True,
                gets_epoch=False,
                answer=answer,
            )
        )
        assert ended.error is expected

    run(scenario)


@pytest.mark.parametrize("timeout_ms", [-(1 << 31), -1, 0, 900_001, (1 << 31) - 1])
def test_timeouts_have_two_bounds(timeout_ms: int) -> None:
    async def scenario(world: TransactionWorld) -> None:
        outcome = await init(world, timeout_ms=timeout_ms)
        assert outcome.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (await init(world, timeout_ms=1)).error is NONE
        assert (await init(world, timeout_ms=900_000)).error is NONE

    run(scenario)


@pytest.mark.parametrize("epoch", [-1, 1, 32_767])
def test_impossible_epochs_are_fenced(epoch: int) -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = (await init(world)).identity._replace(producer_epoch=epoch)
        assert add(world, producer) == [ErrorCode.PRODUCER_FENCED]
        for gets_epoch in (False, True):
            [refused] = end(world, producer, gets_epoch=gets_epoch)
            assert refused.error is ErrorCode.PRODUCER_FENCED

    run(scenario)


def test_records_that_cannot_be_read_are_skipped_with_their_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others of the partition are served; what was before such a record does not come back."""

    async def scenario(world: TransactionWorld) -> None:
        producer = await begun(world)
        record = world.stored("tx")
        assert record is not None
        good = encode_transaction_value(record, 1)

        def store(key: bytes | None, value: bytes | None) -> None:
            world.topic.store(0, build_batch([(0, key, value, ())]))

        store(encode_transaction_key("torn"), good)
        store(encode_transaction_key("torn"), good[:-3])
        store(encode_transaction_key("later"), b"\x00\x07" + good[2:])
        store(b"\x00\x09" + encode_transaction_key("x")[2:], b"anything")
        store(b"\x00", good)
        store(None, good)
        tagged = replace(record, unknown_tags=((77, b"of a later release"),))
        store(encode_transaction_key("tagged"), encode_transaction_value(tagged, 1))
        world.crash()
        await settle()
        names = [name for name, _ in world.coordinator.list_transactions()]
        assert sorted(names) == ["tagged", "tx"]
        assert "torn" not in names
        described = world.coordinator.describe("tagged")
        assert isinstance(described, TransactionRecord)
        assert described.unknown_tags == tagged.unknown_tags
        assert end(world, producer) == [Answer(NONE)]
        await settle()
        assert world.partition(T0).committed == ["record"]
        assert "keys of another version" in caplog.text
        assert caplog.text.count("cannot be read and is skipped") == 4

    run(scenario)


def test_a_new_format_is_written_from_version_1_on() -> None:
    async def scenario(world: TransactionWorld) -> None:
        for version, first_bytes in ((0, b"\x00\x00"), (1, b"\x00\x01"), (2, b"\x00\x01")):
            world.version = version
            await init(world)
            assert first_bytes + (4000).to_bytes(8, "big") in world.topic.batches[0][-1]

    run(scenario)


def test_version_2_gives_every_transaction_an_epoch() -> None:
    async def scenario(world: TransactionWorld) -> None:
        producer = (await init(world)).identity
        for number in range(3):
            added = await world.coordinator.add_partitions(
                "tx", *producer, [T0, T1], verify_only=False
            )
            assert added == {T0: NONE, T1: NONE}
            verified = await world.coordinator.add_partitions(
                "tx", *producer, [T0, TopicPartition("u", 0)], verify_only=True
            )
            assert verified == {T0: NONE, TopicPartition("u", 0): ErrorCode.TRANSACTION_ABORTABLE}
            world.partition(T0).append(*producer, number)
            [ended] = end(world, producer, gets_epoch=True)
            assert ended.error is NONE
            assert ended.identity == (4000, number + 1)
            [again] = end(world, producer, gets_epoch=True)
            assert again.error in (ErrorCode.CONCURRENT_TRANSACTIONS, NONE)
            await settle()
            producer = ended.identity
        assert world.partition(T0).committed == [0, 1, 2]

    run(scenario)


def test_the_end_of_an_exhausted_epoch_gives_a_new_id() -> None:
    async def scenario(world: TransactionWorld) -> None:
        await init(world)
        record = world.stored("tx")
        assert record is not None
        exhausted = replace(record, producer_epoch=32_766)
        value = encode_transaction_value(exhausted, 1)
        batch = build_batch([(0, encode_transaction_key("tx"), value, ())])
        world.topic.store(0, batch)
        world.crash()
        await settle()
        producer = ProducerIdentity(4000, 32_766)
        assert add(world, producer) == [NONE]
        world.version = 0  # Lowered meanwhile: the next id is stored all the same.
        ended = asyncio.ensure_future(
            answered(
                lambda answer: world.coordinator.end(
                    "tx", producer, is_commit=True, gets_epoch=True, answer=answer
                )
            )
        )
        world.is_connected = False
        outcome = await ended
        assert outcome == Answer(NONE, ProducerIdentity(4001, 0))
        world.is_connected = True
        world.crash()
        await settle()
        assert add(world, outcome.identity) == [NONE]
        assert world.partition(T0).epochs[4000] == 32_767

    run(scenario)


def test_only_the_wait_for_a_new_id_is_the_callers() -> None:
    """A caller holds a slot for handlers that wait; replicas may be waited for a minute.

    Meanwhile the controller's requests need slots: with them the replica leaves the ISR.
    """

    async def scenario(world: TransactionWorld) -> None:
        world.topic.is_replicated = True
        answers: list[Answer] = []
        await world.coordinator.init_producer_id("tx", 60_000, None, answers.append)
        assert answers == []
        world.topic.replicate()
        [first] = answers
        assert first == Answer(NONE, ProducerIdentity(4000, 0))
        ended: list[Answer] = []
        assert add(world, first.identity) == []
        world.topic.replicate()
        await world.coordinator.end(
            "tx", first.identity, is_commit=True, gets_epoch=True, answer=ended.append
        )
        assert ended == []
        world.topic.replicate()
        await settle()
        assert [answer.error for answer in ended] == [NONE]

    run(scenario)


@pytest.mark.slow
def test_an_id_takes_less_than_a_kilobyte() -> None:
    """A million ids that clients leave behind are bounded by their expiry; each one is small."""

    async def scenario(world: TransactionWorld) -> None:
        count = 20_000
        value = TransactionRecord(
            producer_id=1 << 40,
            producer_epoch=0,
            timeout_ms=60_000,
            state=S.EMPTY,
            last_update_ms=world.clock.now_ms(),
        )
        for start in range(0, count, 1_000):
            records = [
                (0, encode_transaction_key(f"id-{n}"), encode_transaction_value(value, 1), ())
                for n in range(start, start + 1_000)
            ]
            world.topic.store(0, build_batch(records))
        gc.collect()
        tracemalloc.start()
        world.crash()
        for _ in range(100):
            await settle()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(list(world.coordinator.list_transactions())) == count
        assert used / count < 1_000, f"{used / count:.0f} bytes for each id"

    run(scenario)
