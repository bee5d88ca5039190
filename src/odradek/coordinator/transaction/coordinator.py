"""The transaction coordinator of one broker: serves requests, makes state durable, then answers.

Handlers and the broker call `TransactionCoordinator` and no other part of this package. Its duties
towards the pure decisions, in order, for every transition:

1. note it as under way, so that no other request decides about the same id;
2. append its record in the epoch in which its partition was loaded;
3. when that is durable, and the partition is still the loaded one, apply it;
4. if a transaction is decided now, have its markers delivered, and when all are written make the
   last transition;
5. answer, once nothing else of this coordinator is on the stack.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from odradek.clock import PreciseClock
from odradek.coordinator.answers import AnswerQueue
from odradek.coordinator.loading import StateLoader
from odradek.coordinator.transaction import decisions
from odradek.coordinator.transaction.config import TransactionCoordinatorConfig
from odradek.coordinator.transaction.decisions import (
    EPOCH_PER_TRANSACTION,
    NEEDS_PRODUCER_ID,
    Answer,
    ProducerIdentity,
)
from odradek.coordinator.transaction.markers import MarkerDelivery, MarkerQueues
from odradek.coordinator.transaction.metrics import TransactionMetrics, register_gauges
from odradek.coordinator.transaction.partition_load import TRANSACTIONS_TOPIC, TransactionLoad
from odradek.coordinator.transaction.ports import (
    ImmediateMarkerWriter,
    Leaders,
    MarkerSender,
    TransactionsTopic,
)
from odradek.coordinator.transaction.records import (
    NO_PRODUCER_ID,
    TransactionRecord,
    encode_transaction_key,
    encode_transaction_value,
)
from odradek.coordinator.transaction.registry import MAX_ID_BYTES, TransactionRegistry
from odradek.coordinator.transaction.state import TransactionState
from odradek.coordinator.transaction.transaction import (
    Partitions,
    StatePartition,
    TransactionalId,
    Transition,
    has_partition,
)
from odradek.coordinator.transaction.upkeep import TransactionUpkeep
from odradek.coordinator.writing import Asked, Record, StateWriter, append_error
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.delta import LocalDelta
from odradek.metrics import MetricRegistry
from odradek.model import TopicPartition, TransactionMarker
from odradek.tasks import Tasks

__all__ = ["TRANSACTIONS_TOPIC", "NewProducerIds", "TransactionCoordinator"]

logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE

_T = TypeVar("_T")
OnAnswer: TypeAlias = Callable[[Answer], object]


class NewProducerIds(Protocol):
    """Hands out producer ids, each once in a cluster."""

    async def next_id(self) -> int:
        """The next id.

        Raises:
            ApiError: No id is available now.
        """
        ...


class TransactionCoordinator:
    """The transactional ids that this broker coordinates.

    Args:
        config: Limits and times.
        topic: `__transaction_state`.
        partition_count: The number of its partitions, also before it is created.
        producer_ids: The source of new ids.
        transaction_version: The level of the feature of that name.
        leaders: Finds the leaders of the partitions of transactions.
        send_markers: Has a broker write markers.
        write_marker: Writes a marker that has nothing to wait for.
        clock: The machine's clock.
        tasks: Runs loads, deliveries and rounds.
        metrics: Where to count.
    """

    def __init__(
        self,
        config: TransactionCoordinatorConfig,
        topic: TransactionsTopic,
        *,
        partition_count: Callable[[], int],
        producer_ids: NewProducerIds,
        transaction_version: Callable[[], int],
        leaders: Leaders,
        send_markers: MarkerSender,
        write_marker: ImmediateMarkerWriter,
        clock: PreciseClock,
        tasks: Tasks,
        metrics: MetricRegistry,
    ) -> None:
        self._config = config
        self._producer_ids = producer_ids
        self._version = transaction_version
        self._now_ms = clock.now_ms
        self._metrics = TransactionMetrics(metrics)
        self._loader = StateLoader(
            TRANSACTIONS_TOPIC,
            topic,
            begin=self._begin_load,
            clock=clock,
            tasks=tasks,
            read_bytes=config.load_buffer_bytes,
            stats=self._metrics,
        )
        self._registry = TransactionRegistry(
            self._loader, partition_count, clock=clock, tasks=tasks
        )
        self._writer = StateWriter(topic, now_ms=clock.now_ms)
        self._markers = MarkerQueues(leaders, send_markers, write_marker, clock=clock, tasks=tasks)
        register_gauges(
            metrics,
            waiting=lambda: self._markers.waiting_count,
            unfinished=lambda: self._markers.unfinished_count,
        )
        self._upkeep = TransactionUpkeep(
            self._registry,
            config,
            abort=self._abort_timed_out,
            remove=self._remove,
            clock=clock,
            tasks=tasks,
        )
        self._answers = AnswerQueue()

    # Leadership

    def follow_leadership(self, delta: LocalDelta, broker_id: int) -> None:
        """Loads the ids of partitions that this broker now leads, and unloads the others."""
        self._loader.follow_leadership(delta, broker_id)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted: transactions end without markers for them."""
        self._markers.forget_topics(topics)

    def stop(self) -> None:
        """Stops serving: the answer to later requests makes clients look for the coordinator."""
        self._loader.stop()
        self._registry.clear()

    # Requests of producers

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        given: ProducerIdentity | None,
        answer: OnAnswer,
    ) -> None:
        """Serves InitProducerId of a transactional producer; answers when it is durable.

        Returns before that: only the wait for a new producer id is the caller's.
        """
        error = _check_id(transactional_id)
        if error is not _NONE:
            answer(Answer(error))
            return
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            answer(Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        new_id: int | None = None
        while True:
            partition = self._registry.find(transactional_id)
            if isinstance(partition, ErrorCode):
                answer(Answer(partition))
                return
            transaction = partition.transactions.get(transactional_id)
            if transaction is None:
                transaction = TransactionalId(transactional_id, None, partition)
            decided = decisions.init_producer_id(
                transaction,
                timeout_ms=timeout_ms,
                given=given,
                now_ms=self._now_ms(),
                new_producer_id=new_id,
                transaction_version=self._version(),
            )
            if decided is not NEEDS_PRODUCER_ID:
                break
            try:
                new_id = await self._producer_ids.next_id()
            except ApiError as failure:
                answer(Answer(failure.code))
                return
        if isinstance(decided, Answer):
            answer(decided)
            return
        assert isinstance(decided, Transition), "the third kind ended the loop"
        partition.transactions[transactional_id] = transaction
        record = decided.record

        def on_written(written: ErrorCode) -> None:
            if written is not _NONE:
                answer(Answer(written))
            elif record.state is TransactionState.PREPARE_ABORT:
                # The client tries again, until the transaction of the producer before has ended.
                answer(Answer(ErrorCode.CONCURRENT_TRANSACTIONS))
            else:
                identity = ProducerIdentity(record.producer_id, record.producer_epoch)
                answer(Answer(_NONE, identity))

        self._write(transaction, decided, on_written)

    def begin_adding(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Partitions,
        answer: Callable[[ErrorCode], object],
        *,
        transaction_version: int = 0,
    ) -> None:
        """Serves AddPartitionsToTxn and AddOffsetsToTxn; answers when it is durable."""
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            answer(found)
            return
        decided = decisions.add_partitions(
            found,
            producer,
            partitions,
            now_ms=self._now_ms(),
            transaction_version=transaction_version,
        )
        if isinstance(decided, Answer):
            answer(decided.error)
            return
        assert found is not None, "only ids that exist have transitions"
        self._write(found, decided, answer)

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Whether a producer may append to partitions: those that its transaction includes."""
        found = self._find(transactional_id)
        state = found if isinstance(found, ErrorCode) else decisions.verify(found, producer)
        if isinstance(state, ErrorCode):
            return dict.fromkeys(partitions, state)
        return {
            tp: _NONE
            if has_partition(state.by_topic, tp)
            else ErrorCode.TRANSACTION_ABORTABLE
            for tp in partitions
        }  # fmt: skip

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Adds partitions for a client of a leader, or verifies that they were added.

        Returns when that is durable; the error of each partition.
        """
        producer = ProducerIdentity(producer_id, producer_epoch)
        if verify_only:
            return self.verify(transactional_id, producer, partitions)
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.begin_adding(
            transactional_id,
            producer,
            _by_topic(partitions),
            partial(_set_result, done),
            transaction_version=EPOCH_PER_TRANSACTION,
        )
        return dict.fromkeys(partitions, await done)

    def try_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """As `add_partitions`, at once; None, and nothing is done, if a replica is awaited."""
        producer = ProducerIdentity(producer_id, producer_epoch)
        if verify_only:
            return self.verify(transactional_id, producer, partitions)
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        decided = decisions.add_partitions(
            found,
            producer,
            _by_topic(partitions),
            now_ms=self._now_ms(),
            transaction_version=EPOCH_PER_TRANSACTION,
        )
        if isinstance(decided, Answer):
            return dict.fromkeys(partitions, decided.error)
        assert found is not None, "only ids that exist have transitions"
        error = self._try_write(found, decided, self._encode(found, decided))
        return None if error is None else dict.fromkeys(partitions, error)

    def begin_ending(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        is_commit: bool,
        gets_epoch: bool,
        answer: OnAnswer,
        new_producer_id: int | None = None,
    ) -> bool:
        """Serves EndTxn; answers when the end is durable.

        Returns whether it is served; if not, it needs a new producer id, and is called again.
        """
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            answer(Answer(found))
            return True
        decided = decisions.end(
            found,
            producer,
            is_commit=is_commit,
            gets_epoch=gets_epoch,
            now_ms=self._now_ms(),
            new_producer_id=new_producer_id,
        )
        if decided is NEEDS_PRODUCER_ID:
            return False
        if isinstance(decided, Answer):
            answer(decided)
            return True
        assert found is not None, "only ids that exist have transitions"
        assert isinstance(decided, Transition), "the other kinds have returned"
        identity = decisions.identity_after(decided.record) if gets_epoch else ProducerIdentity()

        def on_written(error: ErrorCode) -> None:
            answer(Answer(error) if error is not _NONE else Answer(_NONE, identity))

        self._write(found, decided, on_written)
        return True

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        is_commit: bool,
        gets_epoch: bool,
        answer: OnAnswer,
    ) -> None:
        """As `begin_ending`, with a new producer id if one is needed: that wait is the caller's."""
        new_id: int | None = None
        while not self.begin_ending(
            transactional_id,
            producer,
            is_commit=is_commit,
            gets_epoch=gets_epoch,
            answer=answer,
            new_producer_id=new_id,
        ):
            try:
                new_id = await self._producer_ids.next_id()
            except ApiError as failure:
                answer(Answer(failure.code))
                return

    # Requests of administrators

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that stores an id."""
        return self._registry.partition_of(transactional_id)

    def check_all(self) -> ErrorCode:
        """NONE, or the error why not all ids of this broker are loaded."""
        return self._registry.check_all()

    def describe(self, transactional_id: str) -> TransactionRecord | ErrorCode:
        """The durable state of an id."""
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        if found is None or found.record is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return found.record

    def list_transactions(self) -> Iterator[tuple[str, TransactionRecord]]:
        """All ids of this broker; tolerates changes while it iterates."""
        for transaction in self._registry:
            if transaction.record is not None:
                yield transaction.transactional_id, transaction.record

    # Deadlines

    def abort_timed_out(self) -> None:
        """Starts to abort the transactions whose time is over, unless that is under way."""
        self._upkeep.start_aborting()

    def expire(self) -> None:
        """Starts to remove the ids that have expired, unless that is under way."""
        self._upkeep.start_expiring()

    def _abort_timed_out(self, transaction: TransactionalId) -> None:
        logger.info("%s: its transaction is aborted, its time is over", transaction)
        self._metrics.timeouts.mark()
        transition = decisions.fence(
            transaction, now_ms=self._now_ms(), transaction_version=self._version()
        )
        self._write(transaction, transition, lambda _error: None)

    def _remove(self, partition: StatePartition, expired: Sequence[TransactionalId]) -> None:
        """Forgets ids of one partition; their tombstones are one batch."""
        records: list[Record] = []
        for transaction in expired:
            transaction.begin(decisions.expire(transaction))
            records.append((encode_transaction_key(transaction.transactional_id), None))

        def on_committed(error: ErrorCode, _base_offset: int) -> None:
            if not partition.is_loaded:
                return
            for transaction in expired:
                transaction.cancel()
                if error is _NONE:
                    del partition.transactions[transaction.transactional_id]
            if error is _NONE:
                self._metrics.expirations.mark(len(expired))
            else:
                logger.warning(
                    "%s-%d: %d expired ids are kept until the next round: %s",
                    TRANSACTIONS_TOPIC, partition.number, len(expired), error.name,
                )  # fmt: skip

        self._writer.write(partition.number, partition.leader_epoch, records, on_committed)

    # Carrying out

    def _find(self, transactional_id: str) -> TransactionalId | ErrorCode | None:
        """The id, None if it is not known, or the error why that cannot be told here now."""
        error = _check_id(transactional_id)
        if error is not _NONE:
            return error
        partition = self._registry.find(transactional_id)
        if isinstance(partition, ErrorCode):
            return partition
        return partition.transactions.get(transactional_id)

    def _write(
        self,
        transaction: TransactionalId,
        transition: Transition,
        answer: Callable[[ErrorCode], object],
    ) -> None:
        """Carries out a transition; see the duties in the module's docstring."""
        record = self._encode(transaction, transition)
        with self._answers:
            error = self._try_write(transaction, transition, record)
            if error is not None:
                self._answers.put([(answer, error)])
                return
        partition = transaction.home
        transaction.begin(transition)  # After all that may fail: only the append ends it.

        def on_committed(error: ErrorCode, _base_offset: int) -> None:
            with self._answers:
                self._answers.put([(answer, self._settle(transaction, error))])

        self._writer.write(partition.number, partition.leader_epoch, [record], on_committed)

    def _try_write(
        self, transaction: TransactionalId, transition: Transition, record: Record
    ) -> ErrorCode | None:
        """Carries out a transition at once, if there is no replica to wait for.

        Returns the answer to its request; None, and nothing is done, if a replica is to be awaited.
        """
        partition = transaction.home
        transaction.begin(transition)
        written = self._writer.try_write(partition.number, partition.leader_epoch, [record])
        if written is None:
            transaction.cancel()
            return None
        return self._settle(transaction, written[0])

    def _encode(self, transaction: TransactionalId, transition: Transition) -> Record:
        record = transition.record
        # Without the next id a coordinator that loads the record could not finish it.
        is_flexible = (
            self._version() >= 1
            or record.next_producer_id != NO_PRODUCER_ID
            or bool(record.unknown_tags)
        )
        value = encode_transaction_value(record, int(is_flexible))
        return encode_transaction_key(transaction.transactional_id), value

    def _settle(self, transaction: TransactionalId, error: ErrorCode) -> ErrorCode:
        """The append of a transition has ended; returns the answer to its request."""
        partition = transaction.home
        if not partition.is_loaded:
            return ErrorCode.NOT_COORDINATOR  # The next coordinator has read what was written.
        if error is not _NONE:
            logger.info("%s: %s was not written: %s", transaction, transaction.pending, error.name)
            transaction.cancel()
            if transaction.record is None:
                del partition.transactions[transaction.transactional_id]
            return append_error(error, Asked.TRANSACTION)
        transaction.apply()
        partition.note(transaction)
        self._finish(transaction)
        return _NONE

    def _finish(self, transaction: TransactionalId) -> None:
        """Delivers the markers of a transaction that is decided, unless that is under way."""
        partition, record = transaction.home, transaction.record
        if record is None or not transaction.is_prepared or transaction in partition.deliveries:
            return
        marker = TransactionMarker(
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
            coordinator_epoch=partition.leader_epoch,
            is_commit=record.state is TransactionState.PREPARE_COMMIT,
            transaction_version=record.client_transaction_version,
            partitions=(),
        )
        delivery = MarkerDelivery(marker, partial(self._complete, transaction))
        partition.deliveries[transaction] = delivery
        self._markers.deliver(delivery, record.by_topic)

    def _complete(self, transaction: TransactionalId, delivery: MarkerDelivery) -> None:
        """All markers are written."""

        def on_written(error: ErrorCode) -> None:
            if not transaction.home.is_loaded:
                return
            if error is _NONE:
                del transaction.home.deliveries[transaction]
            else:
                self._markers.finish_later(delivery)

        self._write(transaction, decisions.complete(transaction, now_ms=self._now_ms()), on_written)

    def _begin_load(self, number: int, leader_epoch: int) -> TransactionLoad:
        return TransactionLoad(number, leader_epoch, self._registry, self._finish)


def _check_id(transactional_id: str) -> ErrorCode:
    """NONE, or INVALID_REQUEST for an id that no record can have."""
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    if len(transactional_id) * 4 > MAX_ID_BYTES and len(transactional_id.encode()) > MAX_ID_BYTES:
        return ErrorCode.INVALID_REQUEST
    return _NONE


def _by_topic(partitions: Iterable[TopicPartition]) -> Partitions:
    numbers: dict[str, set[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp.topic, set()).add(tp.partition)
    return {topic: frozenset(found) for topic, found in numbers.items()}


def _set_result(future: asyncio.Future[_T], result: _T) -> None:
    if not future.done():  # Its request was cancelled meanwhile.
        future.set_result(result)
