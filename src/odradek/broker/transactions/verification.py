"""Verification: a transaction's first batch in a partition needs its coordinator's word (KIP-890).

A batch that comes late, behind the marker of its transaction, would open one that no coordinator
knows. So before the first batch of a producer's transaction in a partition, the coordinator is
asked whether the transaction includes the partition. With transaction version 2 it is asked to
include it: the client does not do so itself. `storage.producers.verifications` says when the answer
counts. All later batches are appended like those of any producer, and no other batch is ever
delayed.

The number of verifications that wait is limited by that of connections: a connection's next request
is served after its last one. If a coordinator is still ending the transaction before, it is asked
again for a while, so that the client need not be.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

from odradek.clock import PreciseClock
from odradek.errors import ApiError, ErrorCode
from odradek.metrics import MetricRegistry
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader
from odradek.replication import ReplicaManager
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.producers.verifications import Verification
from odradek.tasks import Tasks

__all__ = [
    "Support",
    "TransactionPartitions",
    "TransactionVerification",
    "VerificationErrors",
    "offset_commit_error",
    "produce_error",
]

logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
# A coordinator writes the markers of a transaction within a few milliseconds.
_RETRY_MS: Final = 20
_RETRY_FOR_MS: Final = 100
# Questions about one batch. Few: the client sends it again.
_MAX_ATTEMPTS: Final = 8

# The verifications of a question, with the producers of their partitions.
_Begun: TypeAlias = Mapping[TopicPartition, tuple[ProducerStateManager, Verification]]
# The partitions that may not be appended to, with the coordinator's errors.
VerificationErrors: TypeAlias = Mapping[TopicPartition, ErrorCode]

_NOT_NOW: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_UNREACHED: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class Support(IntEnum):
    """What a client expects of the broker, by the version of its request."""

    VERIFIED = 0  # Produce 3-10, TxnOffsetCommit 0-3: it has added the partition itself.
    ABORTABLE = 1  # Produce 11, TxnOffsetCommit 4: and it knows TRANSACTION_ABORTABLE.
    ADDED = 2  # Produce 12, TxnOffsetCommit 5: the broker adds the partition.


class TransactionPartitions(Protocol):
    """The coordinators of transactions."""

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Includes partitions in a transaction, or verifies that it includes them.

        Raises:
            ApiError: The coordinator cannot be asked now.
        """
        ...

    def try_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """Does the same at once; None, and nothing is done, if there is something to wait for."""
        ...


class _Questions:
    """What a coordinator is asked about the batches of one request, and the errors so far.

    Attributes:
        batches: Those that have no definite answer.
        begun: Their verifications.
        errors: Of the partitions that are refused.
        attempts: How often the coordinator has answered.
        is_ending: Whether it is still ending the transaction before.
    """

    __slots__ = (
        "attempts",
        "batches",
        "begun",
        "errors",
        "is_ending",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, batches: Mapping[TopicPartition, BatchHeader], begun: _Begun) -> None:
        header = next(iter(batches.values()))
        self.producer_id = header.producer_id
        self.producer_epoch = header.producer_epoch
        self.batches = batches
        self.begun = begun
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.attempts = 0
        self.is_ending = False


class TransactionVerification:
    """Asks coordinators for the leaders of this broker.

    Args:
        replicas: The partitions.
        coordinators: Answers for any transactional id.
        clock: The time.
        tasks: Runs what waits for an answer.
        metrics: Where to count.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        coordinators: TransactionPartitions,
        *,
        clock: PreciseClock,
        tasks: Tasks,
        metrics: MetricRegistry,
    ) -> None:
        self._replicas = replicas
        self._coordinators = coordinators
        self._clock = clock
        self._tasks = tasks
        counters = metrics.group("kafka.server", "AddPartitionsToTxnManager")
        self._failures = counters.meter(
            "VerificationFailureRate", "Batches refused since their transaction is not verified."
        )
        self._times = counters.timer(
            "VerificationTimeMs", "Time to ask the coordinator of a transaction, in milliseconds."
        )

    def needed(
        self, batches: Mapping[TopicPartition, BatchHeader], support: Support
    ) -> dict[TopicPartition, BatchHeader]:
        """The transactional batches whose coordinator has to be asked before they are appended.

        An error of a partition is left to the append.
        """
        needed = {}
        adds = support is Support.ADDED
        for tp, header in batches.items():
            state = self._state(tp)
            if state is not None and state.needs_verification(header, adds=adds):
                needed[tp] = header
        return needed

    def start(
        self,
        transactional_id: str,
        batches: Mapping[TopicPartition, BatchHeader],
        support: Support,
        respond: Callable[[VerificationErrors], None],
    ) -> None:
        """Asks the coordinator; then calls back, and the batches without an error are appended.

        Args:
            transactional_id: The transaction.
            batches: What `needed` has returned, of one producer.
            support: What the client expects.
            respond: Gets the partitions with an error. Whether the verification still counts is
                decided by the append, which follows at once.
        """
        questions = _Questions(batches, self._begin(batches, support))
        # The usual case: the coordinator is on this broker, and has no replica to wait for.
        answers = self._coordinators.try_add_partitions(
            transactional_id,
            questions.producer_id,
            questions.producer_epoch,
            tuple(questions.begun),
            verify_only=support is not Support.ADDED,
        )
        if answers is not None:
            self._take(questions, answers, support)
            if not questions.batches:
                self._times.update(0)
                self._failures.mark(len(questions.errors))
                respond(questions.errors)
                return

        async def ask() -> None:
            started_ms = self._clock.monotonic_ms()
            await self._ask_until(transactional_id, questions, support)
            self._times.update(self._clock.monotonic_ms() - started_ms)
            self._failures.mark(len(questions.errors))
            try:
                respond(questions.errors)
            except Exception:  # the border between requests
                logger.exception("A batch of %s failed after its verification", transactional_id)

        self._tasks.spawn(ask())

    def _begin(self, batches: Mapping[TopicPartition, BatchHeader], support: Support) -> _Begun:
        now_ms = self._clock.now_ms()
        adds = support is Support.ADDED
        begun = {}
        for tp, header in batches.items():
            state = self._state(tp)
            if state is not None:
                verification = state.verifications.begin(header, now_ms, begins_at_zero=adds)
                begun[tp] = (state, verification)
        return begun

    async def _ask_until(
        self, transactional_id: str, questions: "_Questions", support: Support
    ) -> None:
        """Asks until the answers count; ends with no batch left.

        The marker of the transaction before may be written between question and answer. The answer
        does not count then: it could be one about that transaction.
        """
        give_up_ms = self._clock.monotonic_ms() + _RETRY_FOR_MS
        while True:
            if questions.attempts:
                if questions.is_ending:
                    await self._tasks.sleep(_RETRY_MS / 1000)
                questions.begun = self._begin(questions.batches, support)
            answers = await self._ask(transactional_id, questions, support)
            self._take(questions, answers, support)
            if not questions.batches:
                return
            if questions.attempts >= _MAX_ATTEMPTS or self._clock.monotonic_ms() >= give_up_ms:
                concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
                questions.errors.update(dict.fromkeys(questions.batches, concurrent))
                return

    def _take(
        self,
        questions: "_Questions",
        answers: Mapping[TopicPartition, ErrorCode],
        support: Support,
    ) -> None:
        """Takes the answers to all questions; keeps the batches that are to be asked about anew."""
        questions.attempts += 1
        questions.is_ending = False
        again: dict[TopicPartition, BatchHeader] = {}
        for tp, (state, verification) in questions.begun.items():
            error = answers.get(tp, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if error is _NONE:
                if not state.verifications.confirm(
                    questions.producer_id, questions.producer_epoch, verification
                ):
                    again[tp] = questions.batches[tp]
                continue
            state.verifications.refuse(
                questions.producer_id, verification, is_final=error not in _NOT_NOW
            )
            if error is ErrorCode.CONCURRENT_TRANSACTIONS and support is Support.ADDED:
                again[tp] = questions.batches[tp]
                questions.is_ending = True
            else:
                questions.errors[tp] = error
        questions.batches = self.needed(again, support) if again else again

    async def _ask(
        self, transactional_id: str, questions: "_Questions", support: Support
    ) -> VerificationErrors:
        partitions = tuple(questions.begun)
        try:
            return await self._coordinators.add_partitions(
                transactional_id,
                questions.producer_id,
                questions.producer_epoch,
                partitions,
                verify_only=support is not Support.ADDED,
            )
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        except Exception:  # the border between requests
            logger.exception("The transaction of %s could not be verified", transactional_id)
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _state(self, tp: TopicPartition) -> ProducerStateManager | None:
        partition = self._replicas.find_online(tp.topic, tp.partition)
        if partition is None or partition.log is None or not partition.is_leader:
            return None
        return partition.log.producer_state


def _common_error(error: ErrorCode, support: Support) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and support is Support.VERIFIED:
        return ErrorCode.INVALID_TXN_STATE
    return error


def produce_error(error: ErrorCode, support: Support) -> ErrorCode:
    """The answer to a producer whose transaction could not be verified (10 section 9.9)."""
    if error in _NOT_NOW:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # Every client sends the batch again.
    return _common_error(error, support)


def offset_commit_error(error: ErrorCode, support: Support) -> ErrorCode:
    """The answer to a TxnOffsetCommit whose transaction could not be verified."""
    if error in _UNREACHED:
        # Clients commit again, and need not look for the group's coordinator.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _common_error(error, support)
