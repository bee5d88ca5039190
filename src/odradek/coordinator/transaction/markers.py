"""The markers of decided transactions, on their way to the leaders of the partitions.

A marker whose partitions are all led here, without another replica, is written within the decision:
the producer's next transaction finds this one completed. All others take the way of a queue, one
per broker, this one included, and one sender per queue: markers of many transactions that end at
the same time leave in one request, and the next request waits for its answer. Partitions
without a leader, and those whose leader has refused, wait a moment and are routed anew. A delivery
ends when every partition has answered, and never gives up, except that

- this broker stops to coordinate the id: another one delivers the same markers;
- a topic was deleted;
- a partition has seen a newer epoch of the producer (47): nothing of this transaction is open there
  that a marker could end, and no later attempt can succeed. The end of the transaction is stored
  only if this broker still coordinates the id, so that a predecessor decides nothing by it.

A partition that has seen a newer coordinator (52) is asked again after a longer pause: this broker
is about to learn that it is not the coordinator any more.

A partition that this broker's metadata does not know is deleted, if it has known it before; just
after a start it may only not be known yet. So it counts as deleted if its topic is among those
deletions that this broker has seen, or if it has not been known for a minute.

What the answer of a partition means is a table: `MARKER_OUTCOMES`.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.clock import PreciseClock
from odradek.coordinator.transaction.ports import (
    NO_LEADER_NOW,
    ImmediateMarkerWriter,
    Leaders,
    MarkerResults,
    MarkerSender,
)
from odradek.coordinator.transaction.transaction import Partitions
from odradek.errors import ErrorCode, OdradekError
from odradek.model import TopicPartition, TransactionMarker
from odradek.tasks import Tasks

__all__ = ["MARKER_OUTCOMES", "MarkerDelivery", "MarkerOutcome", "MarkerQueues"]

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
DELETED_AFTER_MS: Final = 60_000
SUPERSEDED_RETRY_MS: Final = 10_000
# Partitions in one request: a quarter of the longest request, if their topics have long names.
_MAX_SENT: Final = 1_000
_MAX_ROUTED: Final = 100  # Partitions routed before other tasks of the loop run.
# Partitions that are written to within a decision: some twenty microseconds each.
_MAX_AT_ONCE: Final = 20


class MarkerOutcome(Enum):
    """What follows the answer of a partition."""

    WRITTEN = "written"
    AGAIN = "look up the leader, and send it again"
    SUPERSEDED = "send it again later: a newer coordinator has written"
    OUTDATED = "count it as written: a newer epoch of the producer has written"
    DROPPED = "count it as written: this partition can have no marker"


_AGAIN, _DROPPED = MarkerOutcome.AGAIN, MarkerOutcome.DROPPED

# Any other error is a bug of one of the two brokers: it is logged, and the marker sent again.
MARKER_OUTCOMES: Final[Mapping[ErrorCode, MarkerOutcome]] = MappingProxyType(
    {
        ErrorCode.NONE: MarkerOutcome.WRITTEN,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _AGAIN,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: _AGAIN,
        ErrorCode.REQUEST_TIMED_OUT: _AGAIN,
        ErrorCode.NOT_ENOUGH_REPLICAS: _AGAIN,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _AGAIN,
        ErrorCode.KAFKA_STORAGE_ERROR: _AGAIN,
        ErrorCode.NETWORK_EXCEPTION: _AGAIN,
        ErrorCode.INVALID_PRODUCER_EPOCH: MarkerOutcome.OUTDATED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerOutcome.SUPERSEDED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _DROPPED,
        ErrorCode.UNSUPPORTED_VERSION: _DROPPED,
    }
)

# Outcomes that an operator should know of.
_REFUSED: Final = (MarkerOutcome.SUPERSEDED, MarkerOutcome.OUTDATED)


class MarkerDelivery:
    """The markers of one transaction.

    Attributes:
        marker: Without partitions.
        open_count: Partitions that are not written yet.
        is_cancelled: Whether it has ended without success; what is still queued is dropped.
    """

    __slots__ = ("is_cancelled", "marker", "on_written", "open_count")

    def __init__(
        self, marker: TransactionMarker, on_written: Callable[["MarkerDelivery"], None]
    ) -> None:
        self.marker = marker
        self.on_written = on_written
        self.open_count = 0
        self.is_cancelled = False


class _Portion(NamedTuple):
    """Partitions of one delivery, in a queue."""

    delivery: MarkerDelivery
    partitions: list[TopicPartition]


class _Waiting(NamedTuple):
    """Partitions that are routed anew after a pause."""

    delivery: MarkerDelivery
    partitions: list[TopicPartition]
    unknown_since_ms: int | None  # Not in this broker's metadata since then.
    due_ms: int = 0  # Not before.


class MarkerQueues:
    """Delivers the markers of the transactions that this broker coordinates.

    Args:
        leaders: Finds the leader of a partition.
        send: Has a broker write markers.
        write_now: Writes a marker that has nothing to wait for.
        clock: Measures pauses and slices.
        tasks: Runs the senders.
    """

    def __init__(
        self,
        leaders: Leaders,
        send: MarkerSender,
        write_now: ImmediateMarkerWriter,
        *,
        clock: PreciseClock,
        tasks: Tasks,
    ) -> None:
        self._leaders = leaders
        self._send = send
        self._write_now = write_now
        self._clock = clock
        self._tasks = tasks
        self._queues: dict[int, deque[_Portion]] = {}  # Invariant: one sender for each.
        self._waiting: list[_Waiting] = []
        self._unfinished: list[MarkerDelivery] = []  # Written, and not stored as completed.
        self._is_retrying = False
        self._deleted: dict[str, int] = {}  # Topic → when this broker saw its deletion.

    @property
    def waiting_count(self) -> int:
        """Partitions that wait to be routed again."""
        return sum(len(waiting.partitions) for waiting in self._waiting)

    @property
    def queued_count(self) -> int:
        """Partitions in the queues of brokers."""
        return sum(len(portion.partitions) for queue in self._queues.values() for portion in queue)

    @property
    def unfinished_count(self) -> int:
        """Transactions whose markers are written, and whose end waits to be stored."""
        return len(self._unfinished)

    def deliver(self, delivery: MarkerDelivery, partitions: Partitions) -> None:
        """Begins to deliver to these partitions; `on_written` is called once, at the end."""
        delivery.open_count = sum(map(len, partitions.values()))
        if not delivery.open_count:
            delivery.on_written(delivery)
        elif delivery.open_count <= _MAX_AT_ONCE and self._try_deliver(delivery, partitions):
            return
        elif delivery.open_count <= _MAX_ROUTED:
            self._route(delivery, list(_each(partitions)), None)
        else:
            self._tasks.spawn(self._route_all(delivery, partitions))

    def _try_deliver(self, delivery: MarkerDelivery, partitions: Partitions) -> bool:
        """Delivers at once, if there is nothing to wait for; returns whether it did."""
        wanted = list(_each(partitions))
        leader = self._leaders(wanted[0])
        if leader is None or leader == NO_LEADER_NOW:
            return False
        try:
            results = self._write_now(replace(delivery.marker, partitions=tuple(wanted)))
        except Exception:  # The decision is durable, whatever becomes of this attempt.
            logger.exception("markers could not be written at once, they are sent")
            return False
        if results is None:
            return False
        self._settle(leader, _Portion(delivery, wanted), results)
        return True

    def finish_later(self, delivery: MarkerDelivery) -> None:
        """Calls `on_written` again after a pause: the end could not be stored."""
        self._unfinished.append(delivery)
        self._retry_later()

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted: their partitions need no markers."""
        now_ms = self._clock.monotonic_ms()
        for topic, seen_ms in tuple(self._deleted.items()):
            if now_ms - seen_ms >= DELETED_AFTER_MS:
                del self._deleted[topic]
        self._deleted.update(dict.fromkeys(topics, now_ms))

    # Routing

    async def _route_all(self, delivery: MarkerDelivery, partitions: Partitions) -> None:
        portion: list[TopicPartition] = []
        for tp in _each(partitions):
            portion.append(tp)
            if len(portion) == _MAX_ROUTED:
                self._route(delivery, portion, None)
                portion = []
                await self._tasks.sleep(0)
        self._route(delivery, portion, None)

    def _route(
        self,
        delivery: MarkerDelivery,
        partitions: Sequence[TopicPartition],
        unknown_since_ms: int | None,
    ) -> None:
        """Puts partitions in the queues of their leaders."""
        if delivery.is_cancelled:
            return
        routed: dict[int, list[TopicPartition]] = {}
        unknown: list[TopicPartition] = []
        now_ms = self._clock.monotonic_ms()
        is_over = unknown_since_ms is not None and now_ms - unknown_since_ms >= DELETED_AFTER_MS
        deleted_count = 0
        for tp in partitions:
            leader = self._leaders(tp)
            if leader is not None:
                routed.setdefault(leader, []).append(tp)
            elif is_over or tp.topic in self._deleted:
                deleted_count += 1
            else:
                unknown.append(tp)
        leaderless = routed.pop(NO_LEADER_NOW, None)
        if leaderless:
            self._wait(_Waiting(delivery, leaderless, None))
        if unknown:
            since_ms = now_ms if unknown_since_ms is None else unknown_since_ms
            self._wait(_Waiting(delivery, unknown, since_ms))
        for broker_id, portion in routed.items():
            queue = self._queues.get(broker_id)
            if queue is None:
                queue = self._queues[broker_id] = deque()
                self._tasks.spawn(self._run_sender(broker_id, queue))
            queue.append(_Portion(delivery, portion))
        if deleted_count:
            self._count_down(delivery, deleted_count)

    def _count_down(self, delivery: MarkerDelivery, count: int) -> None:
        delivery.open_count -= count
        if not delivery.open_count and not delivery.is_cancelled:
            delivery.on_written(delivery)

    # Sending

    async def _run_sender(self, broker_id: int, queue: deque[_Portion]) -> None:
        """Sends until the queue is empty."""
        while queue:
            portions = list(_take(queue))
            if portions:
                await self._send_portions(broker_id, portions)
        # Without a wait since the last look at the queue.
        del self._queues[broker_id]

    async def _send_portions(self, broker_id: int, portions: Sequence[_Portion]) -> None:
        markers = [
            replace(portion.delivery.marker, partitions=tuple(portion.partitions))
            for portion in portions
        ]
        answers: Sequence[MarkerResults]
        try:
            answers = await self._send(broker_id, markers)
        except OdradekError as error:
            logger.info("markers for broker %d are sent again: %s", broker_id, error)
            answers = [dict.fromkeys(p.partitions, ErrorCode.NETWORK_EXCEPTION) for p in portions]
        except Exception:  # top of a task, whose failure would end the broker
            logger.exception("markers for broker %d could not be sent", broker_id)
            answers = [dict.fromkeys(p.partitions, ErrorCode.NETWORK_EXCEPTION) for p in portions]
        for count, (portion, results) in enumerate(zip(portions, answers, strict=True), 1):
            self._settle(broker_id, portion, results)
            if count % _MAX_ROUTED == 0:
                await self._tasks.sleep(0)

    def _settle(self, broker_id: int, portion: _Portion, results: MarkerResults) -> None:
        delivery = portion.delivery
        if delivery.is_cancelled:
            return
        again: list[TopicPartition] = []
        superseded: list[TopicPartition] = []
        for tp in portion.partitions:
            error = results.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
            outcome = MARKER_OUTCOMES.get(error)
            if outcome is MarkerOutcome.SUPERSEDED:
                superseded.append(tp)
            if outcome in _REFUSED:
                logger.warning(
                    "producer %d, epoch %d: its marker for %s was refused by broker %d (%s): %s",
                    delivery.marker.producer_id, delivery.marker.producer_epoch, tp, broker_id,
                    error.name, outcome.value,
                )  # fmt: skip
            if outcome is None:
                logger.error("broker %d answered a marker for %s: %s", broker_id, tp, error.name)
            if outcome is None or outcome is MarkerOutcome.AGAIN:
                again.append(tp)
        if again:
            self._wait(_Waiting(delivery, again, None))
        if superseded:
            due_ms = self._clock.monotonic_ms() + SUPERSEDED_RETRY_MS
            self._wait(_Waiting(delivery, superseded, None, due_ms))
        self._count_down(delivery, len(portion.partitions) - len(again) - len(superseded))

    # Again

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._retry_later()

    def _retry_later(self) -> None:
        if not self._is_retrying:
            self._is_retrying = True
            self._tasks.spawn(self._retry())

    async def _retry(self) -> None:
        while self._waiting or self._unfinished:
            await self._tasks.sleep(RETRY_MS / 1000)
            now_ms = self._clock.monotonic_ms()
            waiting = [one for one in self._waiting if one.due_ms <= now_ms]
            self._waiting = [
                one
                for one in self._waiting
                if one.due_ms > now_ms and not one.delivery.is_cancelled
            ]
            for count, one in enumerate(waiting, 1):
                self._route(one.delivery, one.partitions, one.unknown_since_ms)
                if count % _MAX_ROUTED == 0:
                    await self._tasks.sleep(0)
            unfinished, self._unfinished = self._unfinished, []
            for delivery in unfinished:
                if not delivery.is_cancelled:
                    delivery.on_written(delivery)
        self._is_retrying = False


def _each(partitions: Partitions) -> Iterator[TopicPartition]:
    for topic in sorted(partitions):
        for number in sorted(partitions[topic]):
            yield TopicPartition(topic, number)


def _take(queue: deque[_Portion]) -> Iterable[_Portion]:
    """The portions of one request, without those of deliveries that have ended."""
    count = 0
    while queue and count < _MAX_SENT:
        portion = queue.popleft()
        if not portion.delivery.is_cancelled:
            count += len(portion.partitions)
            yield portion
