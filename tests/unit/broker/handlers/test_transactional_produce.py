"""Transactional batches in a Produce (10 sections 6.1, 9.5 and 9.9)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from odradek.broker.handlers.produce import handle_produce
from odradek.broker.transactions.verification import TransactionVerification
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.delta import HostedPartition, LocalDelta
from odradek.metadata.image import PartitionState
from odradek.metrics import Meter, MetricName, MetricRegistry
from odradek.model import AppendOrigin, TopicPartition
from odradek.network.request import CloseConnectionResponse, NoOpResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.security.operations import Operation, ResourceType
from odradek.storage.log.log import Log
from tests.support.log_scenarios import idempotent
from tests.support.logs import marker
from tests.support.replicas import apply_local
from tests.unit.broker.handlers.handler_fakes import BROKER_ID, BrokerFixture, parsed, topic_id
from tests.unit.broker.handlers.test_produce_and_fetch_rights import Rights
from tests.unit.coordinator.coordinator_fakes import Tasks

COUNT = 8
_NONE = ErrorCode.NONE
Asked = tuple[str, int, int, tuple[TopicPartition, ...], bool]


class Coordinators:
    """`TransactionPartitions` with the given answers; the last one stays."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.errors: list[ErrorCode | Exception] = [_NONE]
        self.answers: dict[TopicPartition, ErrorCode] = {}
        self.on_asked: Callable[[], object] = lambda: None
        # How many of the next questions are answered at once.
        self.immediate_count = 0

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        asked = (transactional_id, producer_id, producer_epoch, tuple(partitions), verify_only)
        return self._answer(asked)

    def try_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        if not self.immediate_count:
            return None
        self.immediate_count -= 1
        asked = (transactional_id, producer_id, producer_epoch, tuple(partitions), verify_only)
        return self._answer(asked)

    def _answer(self, asked: Asked) -> Mapping[TopicPartition, ErrorCode]:
        partitions = asked[3]
        self.asked.append(asked)
        self.on_asked()
        error = self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        if isinstance(error, Exception):
            raise error
        return {**dict.fromkeys(partitions, error), **self.answers}


class Producers:
    """A broker that leads topic t, and producers of transactions."""

    def __init__(self, path: Path) -> None:
        self.rights = Rights()
        self.broker = BrokerFixture(log_dirs=[str(path)], authorizer=self.rights)
        self.broker.log_manager.startup()
        self.broker.publish_topic("t", COUNT)
        states = [
            PartitionState(
                topic="t",
                partition=partition,
                leader=BROKER_ID,
                leader_epoch=0,
                isr=(BROKER_ID,),
                replicas=(BROKER_ID,),
            )
            for partition in range(3)
        ]
        hosted = tuple(HostedPartition(state=one, topic_id=None, is_new=True) for one in states)
        delta = LocalDelta(controller_id=BROKER_ID, controller_epoch=1, hosted=hosted)
        apply_local(self.broker.replicas, delta)
        for partition in range(3):
            self.log(partition).producer_state.verification_switch.is_on = True
        self.coordinators = Coordinators()
        self.tasks = Tasks()
        self.tasks.on_sleep = lambda seconds: self.broker.clock.advance(int(seconds * 1000))
        self.metrics = MetricRegistry(self.broker.clock, Random(1))
        verification = TransactionVerification(
            self.broker.replicas,
            self.coordinators,
            clock=self.broker.clock,
            tasks=self.tasks,
            metrics=self.metrics,
        )
        self.broker.context = replace(self.broker.context, verification=verification)

    def log(self, partition: int = 0) -> Log:
        log = self.broker.replicas.find_partition(TopicPartition("t", partition)).log
        assert log is not None
        return log

    def send(
        self,
        rows: Mapping[int, bytes | bytearray],
        *,
        version: int = 11,
        transactional_id: str | None = "x",
        acks: int = -1,
    ) -> None:
        topic = TopicProduceData(
            name="" if version >= 13 else "t",
            topic_id=topic_id(1).bytes if version >= 13 else bytes(16),
            partition_data=[
                PartitionProduceData(index=index, records=bytes(records))
                for index, records in rows.items()
            ],
        )
        message = ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[topic]
        )
        request = self.broker.request(ApiKey.PRODUCE, message, version)
        request.payload = memoryview(bytearray(request.payload))
        answer = self.broker.call(handle_produce, request)
        if answer is not None:
            self.broker.sent.append(answer)

    def rows(self) -> list[PartitionProduceResponse]:
        [topic] = parsed(self.broker.sent.pop(), ProduceResponse).responses
        assert not self.broker.sent
        return list(topic.partition_responses)

    def produce(
        self,
        *rows: bytes | bytearray,
        version: int = 11,
        transactional_id: str | None = "x",
    ) -> list[ErrorCode]:
        """The error of each partition."""
        self.send(dict(enumerate(rows)), version=version, transactional_id=transactional_id)
        self.tasks.run()
        return [ErrorCode(row.error_code) for row in self.rows()]

    def failures(self) -> float:
        name = MetricName("kafka.server", "AddPartitionsToTxnManager", "VerificationFailureRate")
        meter = self.metrics.get(name)
        assert isinstance(meter, Meter)
        return meter.count


@pytest.fixture
def producers(tmp_path: Path) -> Iterator[Producers]:
    made = Producers(tmp_path)
    yield made
    made.broker.log_manager.shutdown()


def transactional(sequence: int = 0, *, epoch: int = 0, producer_id: int = 4000) -> bytearray:
    return idempotent(sequence, epoch=epoch, producer_id=producer_id, is_transactional=True)


@pytest.mark.parametrize(
    ("version", "verify_only"), [(3, True), (10, True), (11, True), (12, False), (13, False)]
)
def test_only_the_first_batch_of_a_transaction_is_verified(
    producers: Producers, version: int, verify_only: bool
) -> None:
    """10 section 9.9: from Produce 12 on the broker adds the partition itself."""
    producers.send({0: transactional()}, version=version)
    assert not producers.broker.sent
    assert producers.log().log_end_offset == 0
    producers.tasks.run()
    assert [row.error_code for row in producers.rows()] == [_NONE]
    asked = ("x", 4000, 0, (TopicPartition("t", 0),), verify_only)
    assert producers.coordinators.asked == [asked]
    producers.send({0: transactional(1)}, version=version)
    assert [row.base_offset for row in producers.rows()] == [1]
    assert producers.log().last_stable_offset == 0
    assert len(producers.coordinators.asked) == 1


def test_without_verification_the_partition_is_added_all_the_same(producers: Producers) -> None:
    """10 section 9.9: the switch drops the check, not the news for the coordinator."""
    for partition in range(3):
        producers.log(partition).producer_state.verification_switch.is_on = False
    assert producers.produce(transactional(), version=12) == [_NONE]
    asked = ("x", 4000, 0, (TopicPartition("t", 0),), False)
    assert producers.coordinators.asked == [asked]
    assert producers.produce(b"", transactional(), version=11)[1] is _NONE
    assert producers.coordinators.asked == [asked]


def test_one_question_for_all_partitions_of_a_request(producers: Producers) -> None:
    assert producers.produce(*[transactional()] * 3) == [_NONE] * 3
    partitions = tuple(TopicPartition("t", number) for number in range(3))
    assert producers.coordinators.asked == [("x", 4000, 0, partitions, True)]


def test_batches_without_a_transaction_are_never_verified(producers: Producers) -> None:
    """10 section 9.9: it costs plain and idempotent producers nothing."""
    assert producers.produce(idempotent(0), transactional_id=None) == [_NONE]
    assert producers.produce(idempotent(1), idempotent(0), transactional_id=None) == [_NONE] * 2
    assert not producers.coordinators.asked
    assert not producers.tasks.waiting


def test_a_plain_batch_in_a_transactional_request(producers: Producers) -> None:
    """15:KAFKA-14916: it is stored as what it is, and opens no transaction."""
    plain = idempotent(0, producer_id=5000)
    assert producers.produce(transactional(), plain) == [_NONE] * 2
    partition = TopicPartition("t", 0)
    assert producers.coordinators.asked == [("x", 4000, 0, (partition,), True)]
    assert producers.log(1).last_stable_offset == 1
    # One of a producer whose transaction is open is refused: 10 section 8.2.
    assert producers.produce(idempotent(1)) == [ErrorCode.INVALID_TXN_STATE]


@pytest.mark.parametrize("transactional_id", [None, ""])
def test_a_transactional_batch_without_an_id(
    producers: Producers, transactional_id: str | None
) -> None:
    """10 section 6.1: 53 for the whole request."""
    errors = producers.produce(idempotent(0), transactional(), transactional_id=transactional_id)
    assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert [producers.log(number).log_end_offset for number in (0, 1)] == [0, 0]


def test_the_id_of_somebody_else(producers: Producers) -> None:
    """10 section 6.1: by right, and by the coordinator, which knows its producer."""
    producers.coordinators.errors = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert producers.produce(transactional()) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    producers.rights.denied = ((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"),)
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producers.produce(transactional()) == [denied]
    assert producers.log().log_end_offset == 0


@pytest.mark.parametrize("other", [{"producer_id": 4001}, {"epoch": 1}], ids=str)
def test_two_producers_in_one_request(producers: Producers, other: dict[str, int]) -> None:
    """10 section 6.1: 49, and nothing is written."""
    errors = producers.produce(transactional(), transactional(**other))
    assert errors == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not producers.coordinators.asked


@pytest.mark.parametrize("fields", [{"producer_id": -1}, {"epoch": -1}, {"sequence": -1}], ids=str)
def test_batches_that_belong_to_no_producer(producers: Producers, fields: dict[str, int]) -> None:
    assert producers.produce(transactional(**fields)) == [ErrorCode.INVALID_RECORD]
    assert not producers.coordinators.asked


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, 19),
        (ErrorCode.NETWORK_EXCEPTION, 19),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 19),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 19),
        (ErrorCode.NOT_COORDINATOR, 19),
        (ErrorCode.REQUEST_TIMED_OUT, 19),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 49),
        (ErrorCode.PRODUCER_FENCED, 47),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 47),
        (ErrorCode.INVALID_TXN_STATE, 48),
    ],
)
@pytest.mark.parametrize("version", [3, 11, 12])
def test_answers_of_coordinators(
    producers: Producers, error: ErrorCode, told: int, version: int
) -> None:
    """10 section 9.9: those that pass are told so that every client sends the batch again."""
    producers.coordinators.errors = [error]
    assert producers.produce(transactional(), version=version) == [told]
    assert producers.log().log_end_offset == 0
    assert producers.failures() == 1


@pytest.mark.parametrize(("version", "told"), [(3, 48), (10, 48), (11, 120), (12, 120)])
def test_a_partition_that_the_transaction_does_not_include(
    producers: Producers, version: int, told: int
) -> None:
    """10:TX-11"""
    producers.coordinators.errors = [ErrorCode.TRANSACTION_ABORTABLE]
    assert producers.produce(transactional(), version=version) == [told]
    assert producers.log().log_end_offset == 0


@pytest.mark.parametrize(
    "error", [ApiError(ErrorCode.NOT_COORDINATOR, "moved"), RuntimeError("a bug")], ids=repr
)
def test_a_coordinator_that_fails(producers: Producers, error: Exception) -> None:
    producers.coordinators.errors = [error]
    assert producers.produce(transactional()) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_one_partition_is_refused_and_the_other_one_stored(producers: Producers) -> None:
    partition = TopicPartition("t", 0)
    producers.coordinators.answers = {partition: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    errors = producers.produce(transactional(), transactional(), idempotent(0, producer_id=1))
    assert errors == [ErrorCode.INVALID_PRODUCER_ID_MAPPING, _NONE, _NONE]
    assert [producers.log(number).log_end_offset for number in range(3)] == [0, 1, 1]


def test_a_coordinator_that_ends_the_transaction_before_is_asked_again(
    producers: Producers,
) -> None:
    """From Produce 12 on a transaction may begin while the markers of the last one are written."""
    producers.coordinators.errors = [*[ErrorCode.CONCURRENT_TRANSACTIONS] * 3, _NONE]
    assert producers.produce(transactional(), version=12) == [_NONE]
    assert producers.tasks.slept_s == [0.02] * 3
    producers.coordinators.errors = [ErrorCode.CONCURRENT_TRANSACTIONS]
    fresh = transactional(producer_id=4001)
    assert producers.produce(fresh, version=12) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert len(producers.tasks.slept_s) == 3 + 5


@pytest.mark.parametrize("version", [11, 12])
def test_a_coordinator_here_is_asked_at_once(producers: Producers, version: int) -> None:
    """Without a task: the batch is appended before anything else happens."""
    producers.coordinators.immediate_count = 2
    producers.send({0: transactional(), 1: transactional()}, version=version)
    assert [row.error_code for row in producers.rows()] == [_NONE] * 2
    assert not producers.tasks.waiting
    partitions = (TopicPartition("t", 0), TopicPartition("t", 1))
    assert producers.coordinators.asked == [("x", 4000, 0, partitions, version == 11)]
    producers.coordinators.errors = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    producers.send({2: transactional()}, version=version)
    assert [row.error_code for row in producers.rows()] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert not producers.tasks.waiting
    assert producers.failures() == 1


def test_a_coordinator_here_that_ends_the_transaction_before_is_asked_again(
    producers: Producers,
) -> None:
    producers.coordinators.immediate_count = 1
    producers.coordinators.errors = [*[ErrorCode.CONCURRENT_TRANSACTIONS] * 2, _NONE]
    assert producers.produce(transactional(), version=12) == [_NONE]
    assert producers.tasks.slept_s == [0.02] * 2
    assert len(producers.coordinators.asked) == 3


def test_a_marker_overtakes_the_answer(producers: Producers) -> None:
    """15:KAFKA-14402: the late batch opens nothing, and no reader waits for its end."""
    log = producers.log()
    producers.produce(transactional())

    def end_transaction() -> None:
        records = marker(commit=False, producer_epoch=1)
        log.append_as_leader(records, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        log.watermarks.commit_end()

    end_transaction()
    producers.coordinators.on_asked = end_transaction
    late = transactional(0, epoch=1)
    # The coordinator is asked again, about what is open after the marker.
    producers.coordinators.errors = [_NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert producers.produce(late) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert log.last_stable_offset == log.log_end_offset == 4
    # One whose answers never count is sent again by its client.
    producers.coordinators.errors = [_NONE]
    assert producers.produce(late) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert log.last_stable_offset == log.log_end_offset


def test_the_marker_of_the_transaction_before_comes_late(producers: Producers) -> None:
    """10 section 9.9: the next transaction may begin before its predecessor's markers are there."""
    log = producers.log()
    assert producers.produce(transactional(), version=12) == [_NONE]

    def end_predecessor() -> None:
        producers.coordinators.on_asked = lambda: None
        records = marker(commit=True, producer_epoch=1)
        log.append_as_leader(records, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        log.watermarks.commit_end()

    producers.coordinators.on_asked = end_predecessor
    assert producers.produce(transactional(epoch=1), version=12) == [_NONE]
    assert len(producers.coordinators.asked) == 3
    assert log.last_stable_offset == 2


def test_a_partition_that_moved_while_its_transaction_was_verified(producers: Producers) -> None:
    partition = producers.broker.replicas.find_partition(TopicPartition("t", 0))

    def move() -> None:
        partition.is_leader = False

    producers.coordinators.on_asked = move
    assert producers.produce(transactional()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("error", [_NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_without_acks(producers: Producers, error: ErrorCode) -> None:
    """10 section 6.1: no answer, or the end of the connection."""
    producers.coordinators.errors = [error]
    producers.send({0: transactional()}, acks=0)
    producers.tasks.run()
    [sent] = producers.broker.sent
    assert isinstance(sent, CloseConnectionResponse if error else NoOpResponse)


def test_unknown_acks(producers: Producers) -> None:
    producers.send({0: transactional()}, acks=7)
    assert [row.error_code for row in producers.rows()] == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert not producers.coordinators.asked


def test_partitions_that_are_not_here_are_not_asked_about(producers: Producers) -> None:
    producers.send({0: transactional(), 7: transactional()})
    producers.tasks.run()
    errors = [row.error_code for row in producers.rows()]
    assert errors == [_NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert producers.coordinators.asked[0][3] == (TopicPartition("t", 0),)
