"""Sends the batches of the accumulator: the part of a producer that runs on the loop.

It has no task of its own: `send` wakes it, answers wake it, and one timer does (a batch that has
lingered enough, a pause that is over, a batch whose time is up). Each time it looks at all queues
with batches, gathers the batches that may be sent into requests for each broker, at most one batch
per partition and request, and sets the time of its next look.

Other modules keep the state that it needs: `topics` the leaders of partitions, `identity` the id
and epoch of the numbers, `answers` the outcome of a batch that was sent.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Final

from odradek.client.client import Client
from odradek.client.cluster import NO_TOPIC_ID
from odradek.client.errors import CallTimeoutError, ClosedError
from odradek.client.leaders import topic_name
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.answers import Answers
from odradek.client.producer.availability import Availability
from odradek.client.producer.batch import MAX_UNANSWERED, NO_SEQUENCE, Batch, PartitionQueue
from odradek.client.producer.config import ACKS_NONE, ProducerOptions
from odradek.client.producer.delivery import OutcomeOwner
from odradek.client.producer.identity import Identity
from odradek.client.producer.metrics import ProducerMetrics
from odradek.client.producer.topics import KnownTopics
from odradek.client.producer.transaction_identity import TransactionIdentity
from odradek.client.producer.waiting import until_done
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.model import NO_LEADER
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.versions import VersionRange
from odradek.records.compression import Codec
from odradek.tasks import TaskSet

__all__ = ["Sender"]

logger = logging.getLogger(__name__)

# The first version with batches of magic 2, the first with zstd, the last with topic names.
_FIRST_VERSION: Final = 3
_FIRST_ZSTD_VERSION: Final = 7
_LAST_VERSION_BY_NAME: Final = 12
# The first in which the broker adds partitions to a transaction.
_FIRST_ADDING_VERSION: Final = 12

# How soon to look again at a broker that has not yet read requests without an answer.
_UNREAD_PAUSE_S: Final = 0.002
_FOREVER_S: Final = float("inf")


class Sender:
    """See the module's docstring. All methods are called on the loop."""

    def __init__(
        self,
        client: Client,
        options: ProducerOptions,
        accumulator: Accumulator,
        owner: OutcomeOwner,
        *,
        metrics: ProducerMetrics,
        rng: Random,
        on_finish: Callable[[Batch], None],
    ) -> None:
        self._client = client
        self._options = options
        self._accumulator = accumulator
        self._lock = owner.lock
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = TaskSet()
        self._in_flight: dict[int, int] = {}  # Requests, by broker.
        self._connecting: set[int] = set()
        # By broker, in the loop's time: the end of the pause that it asked for.
        self._throttled_until_s: dict[int, float] = {}
        self._availability = Availability(options.availability_timeout_ms)
        self.transaction: TransactionIdentity | None = None
        self._identity: Identity | TransactionIdentity
        if options.transactional_id is None:
            self._identity = Identity(
                client,
                options.delivery_timeout_ms,
                start=self._tasks.start,
                on_answer=self.look_soon,
                on_refusal=self.fail_all,
            )
        else:
            self._identity = self.transaction = TransactionIdentity(
                client, options, start=self._tasks.start, look_soon=self.look_soon
            )
        self._topics = KnownTopics(
            client,
            options,
            accumulator,
            self._availability,
            lock=owner.lock,
            start=self._tasks.start,
            look_soon=self.look_soon,
            on_numbers_lost=self._identity.raise_epoch,
            holds_numbers=self._identity.holds,
        )
        self._answers = Answers(
            options,
            accumulator,
            metrics,
            lock=owner.lock,
            now_s=self._loop.time,
            rng=rng,
            forget_leader=self._topics.forget_leader,
            on_finish=self._on_finish,
        )
        self._tell_finish = on_finish
        # Waits until no request is in flight.
        self._quiet: asyncio.Future[None] | None = None
        self._is_closing = False

    async def know_topic(self, name: str, deadline: Deadline) -> None:
        """Opens a topic to `send`.

        Raises:
            ApiError: No broker answers, or there is no such topic.
        """
        await self._topics.know(name, deadline)

    # Looking

    def look(self) -> None:
        """Sends batches, gives up late ones, and sets the timer of the next look."""
        with self._lock:
            self._accumulator.is_woken = False
            # A batch that is opened during the look may be overlooked: it has to cause another one.
            self._accumulator.looks_at_s = _FOREVER_S
        try:
            now_s = self._loop.time()
            self._expire(now_s)
            if self._identity.refusal is not None:
                self._drop_unsent(self._identity.refusal)
            next_s = min(
                self._mark_due(now_s),
                self._send_all(now_s),
                self._topics.look_at_age(now_s),
                self._look_at_availability(now_s),
            )
        except Exception as error:  # the deliveries would never have an outcome
            logger.exception("the producer cannot go on")
            self.fail_all(OdradekError(f"a bug in the producer: {error!r}"))
            return
        self._accumulator.tell_waiting()
        with self._lock:  # Concurrent calls of `send` add batches.
            oldest = next(iter(self._accumulator.incomplete), None)
        if oldest is not None:
            next_s = min(next_s, oldest.deadline_s)
        self._accumulator.looks_at_s = next_s
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_s < _FOREVER_S and not self._accumulator.is_woken:
            self._timer = self._loop.call_at(next_s, self.look)

    def look_soon(self) -> None:
        """Looks at the next turn of the loop."""
        if not self._accumulator.is_woken:
            self._accumulator.is_woken = True
            self._loop.call_soon(self.look)

    def _mark_due(self, now_s: float) -> float:
        """Marks batches that have lingered enough; returns when the next one has."""
        accumulator = self._accumulator
        is_urgent = accumulator.flushing_count > 0 or accumulator.is_exhausted
        is_urgent = is_urgent or self._is_closing
        linger_s = self._options.linger_ms / 1000
        next_s = _FOREVER_S
        with self._lock:
            for queue in list(accumulator.active):
                batch = queue.open
                if batch is None:
                    if queue.is_idle:
                        del accumulator.active[queue]
                elif not batch.is_ready:
                    due_s = batch.created_s + linger_s
                    if is_urgent or due_s <= now_s:
                        batch.is_ready = True
                    else:
                        next_s = min(next_s, due_s)
        return next_s

    def _expire(self, now_s: float) -> None:
        """Gives up batches whose time is over."""
        incomplete = self._accumulator.incomplete
        while incomplete:
            with self._lock:
                batch = next(iter(incomplete), None)
                if batch is None or batch.deadline_s > now_s:
                    return
                queue = batch.queue
                if queue.open is batch:
                    self._accumulator.close_batch(queue)
                if batch in queue.closed:
                    queue.closed.remove(batch)
            failure = batch.last_failure
            reason = "" if failure is None else f": {failure}"
            error = CallTimeoutError(
                f"{batch.record_count} records for {queue.topic}-{queue.partition} were not "
                f"delivered within {self._options.delivery_timeout_ms} ms "
                f"(delivery.timeout.ms), after {batch.attempts} attempts{reason}",
                failure,
            )
            self._answers.give_up(batch, error)

    def _send_all(self, now_s: float) -> float:
        """Sends to every broker the batches that may be sent; returns when a waiting one may."""
        by_leader: dict[int, list[PartitionQueue]] = {}
        next_s = _FOREVER_S
        is_leader_missing = False
        for queue in list(self._accumulator.active):
            if queue.next_batch is None:
                continue
            if queue.retry_at_s > now_s:
                next_s = min(next_s, queue.retry_at_s)
            elif queue.leader == NO_LEADER:
                is_leader_missing = True
            else:
                by_leader.setdefault(queue.leader, []).append(queue)
        if is_leader_missing:
            self._topics.refresh_soon()
        if by_leader and self._options.is_idempotent and not self._identity.has_id:
            self._identity.ask()
            return next_s
        for leader, queues in by_leader.items():
            next_s = min(next_s, self._send_to(leader, queues, now_s))
        return next_s

    def _send_to(self, leader: int, queues: list[PartitionQueue], now_s: float) -> float:
        throttled_until_s = self._throttled_until_s.get(leader, 0.0)
        if throttled_until_s > now_s:
            self._availability.block(leader, now_s)
            return throttled_until_s
        connection = self._client.opened_connection(leader)
        if connection is None:
            self._availability.block(leader, now_s)
            self._connect(leader)
            return _FOREVER_S
        while self._in_flight.get(leader, 0) < self._options.max_in_flight:
            if self._options.acks == ACKS_NONE and connection.has_unsent:
                self._availability.block(leader, now_s)
                return now_s + _UNREAD_PAUSE_S
            taken = self._take(queues)
            if not taken:
                self._availability.unblock(leader)
                return _FOREVER_S
            self._send(connection, leader, taken, now_s)
            if connection.is_closed:
                break
            self._availability.unblock(leader)
        self._availability.block(leader, now_s)
        if self._in_flight.get(leader, 0) >= self._options.max_in_flight:
            with self._lock:
                self._accumulator.busy_leaders.add(leader)
        return _FOREVER_S

    def _look_at_availability(self, now_s: float) -> float:
        """Avoids leaders that take no requests; returns when to look again."""
        if not self._options.availability_timeout_ms:
            return _FOREVER_S
        availability = self._availability
        blocked = availability.blocked
        if blocked:
            active = list(self._accumulator.active)  # Concurrent calls of `send` add to it.
            awaited = {queue.leader for queue in active if queue.next_batch is not None}
            for leader in blocked.keys() - awaited:
                if self._in_flight.get(leader, 0) < self._options.max_in_flight:
                    availability.unblock(leader)
        if availability.update(now_s):
            self._topics.spread_anew()
        return availability.next_s

    # Requests

    def _take(self, queues: Iterable[PartitionQueue]) -> list[Batch]:
        """Batches of one request: the first of each queue, as far as they fit and may leave."""
        taken: list[Batch] = []
        room = self._options.max_request_size
        active = self._accumulator.active
        with self._lock:  # A concurrent `send` may replace an open batch by another one.
            for queue in queues:
                batch = queue.next_batch
                if batch is None or not self._may_leave(queue, batch):
                    continue
                size = batch.size if batch.encoded is None else len(batch.encoded)
                if taken and size > room:
                    continue
                if batch is queue.open:
                    self._accumulator.close_batch(queue)
                queue.closed.popleft()
                room -= size
                self._let_go(batch)
                taken.append(batch)
                # Queues that were served go behind those that were not.
                if active.pop(queue, False) is None:
                    active[queue] = None
        return taken

    def _let_go(self, batch: Batch) -> None:
        queue = batch.queue
        if self._options.is_idempotent and batch.sequence == NO_SEQUENCE:
            queue.number(batch)
        batch.attempts += 1
        batch.is_in_flight = True
        queue.in_flight_count += 1

    def _may_leave(self, queue: PartitionQueue, batch: Batch) -> bool:
        options = self._options
        if not options.is_idempotent:
            return options.max_in_flight > 1 or not queue.in_flight_count
        return self._identity.try_lend(queue) and queue.may_leave(
            batch, max_unanswered=MAX_UNANSWERED
        )

    def _send(
        self, connection: OutboundConnection, leader: int, taken: list[Batch], now_s: float
    ) -> None:
        options = self._options
        request = self._encode(taken, now_s)
        if request is None:
            return
        message, batches = request
        try:
            version = connection.version_for(ApiKey.PRODUCE, self._versions(batches))
            parts = encode_message_parts(message, version)
            if options.acks == ACKS_NONE:
                connection.send_unanswered(ApiKey.PRODUCE, version, parts)
            else:
                answer = connection.send(
                    ApiKey.PRODUCE, version, parts, timeout_ms=options.request_timeout_ms
                )
        except ApiError as error:
            for batch in reversed(batches):
                self._answers.take_back(batch, error, leader, was_sent=False)
            self.look_soon()
            return
        metrics = self._metrics
        metrics.requests.value += 1
        metrics.records_per_request.add(sum(batch.record_count for batch in batches), now_s)
        if options.acks == ACKS_NONE:
            for batch in batches:
                self._answers.finish(batch)
            return
        self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
        answer.add_done_callback(partial(self._on_answer, leader, version, batches, now_s))

    def _encode(
        self, taken: list[Batch], now_s: float
    ) -> tuple[ProduceRequest, list[Batch]] | None:
        """A request with the bytes of the batches; one that cannot be encoded fails alone."""
        options, metrics = self._options, self._metrics
        by_topic: dict[str, list[PartitionProduceData]] = {}
        batches = []
        for batch in taken:
            is_first = batch.encoded is None
            try:
                encoded = batch.encode(
                    options.codec, options.level, is_transactional=self.transaction is not None
                )
            except Exception as error:  # the other batches are still sent
                logger.exception("a batch for %s-%d", batch.topic, batch.partition)
                self._answers.fail(batch, OdradekError(f"it cannot be encoded: {error}"))
                continue
            by_topic.setdefault(batch.topic, []).append(
                PartitionProduceData(index=batch.partition, records=encoded)
            )
            batches.append(batch)
            metrics.outgoing_bytes.value += len(encoded)
            if is_first:
                metrics.batch_bytes.add(len(encoded), now_s)
                metrics.queue_time_ms.add(max(0.0, now_s - batch.created_s) * 1000, now_s)
                if options.codec is not Codec.NONE:
                    metrics.compression_rate.add(len(encoded) / batch.size, now_s)
        if not batches:
            return None
        request = ProduceRequest(
            transactional_id=options.transactional_id,
            acks=options.acks,
            timeout_ms=options.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name, topic_id=self._topics.topic_id(name), partition_data=partitions
                )
                for name, partitions in by_topic.items()
            ],
        )
        return request, batches

    def _versions(self, batches: Iterable[Batch]) -> VersionRange:
        first = _FIRST_ZSTD_VERSION if self._options.codec is Codec.ZSTD else _FIRST_VERSION
        has_ids = all(self._topics.topic_id(batch.topic) != NO_TOPIC_ID for batch in batches)
        last = 32767 if has_ids else _LAST_VERSION_BY_NAME
        if self.transaction is not None:
            if self.transaction.is_v2:
                first = _FIRST_ADDING_VERSION
            else:
                last = _FIRST_ADDING_VERSION - 1
        return VersionRange(first, last)

    # Answers

    def _on_answer(
        self,
        leader: int,
        version: int,
        batches: Sequence[Batch],
        sent_s: float,
        answer: "asyncio.Future[memoryview]",
    ) -> None:
        self._in_flight[leader] -= 1
        if self._quiet is not None:
            # When this answer has been dealt with.
            self._loop.call_soon(self._tell_quiet)
        with self._lock:
            self._accumulator.busy_leaders.discard(leader)
        if self._is_closing and not self._accumulator.incomplete:
            return
        self.look_soon()
        error: OdradekError | None = None
        try:
            _, response = parse_response(answer.result(), ApiKey.PRODUCE, version)
        except asyncio.CancelledError:
            return
        except ApiError as failure:
            error = failure
        except OdradekError as failure:
            error = ApiError(
                ErrorCode.NETWORK_EXCEPTION, f"an answer that cannot be read: {failure}"
            )
        now_s = self._loop.time()
        self._metrics.request_latency_ms.add((now_s - sent_s) * 1000, now_s)
        if error is not None:
            assert isinstance(error, ApiError)
            for batch in reversed(batches):
                self._answers.take_back(batch, error, leader)
            return
        assert isinstance(response, ProduceResponse), "the registry gave another class"
        if response.throttle_time_ms > 0:
            self._metrics.throttle_time_ms.add(response.throttle_time_ms, now_s)
            self._throttled_until_s[leader] = now_s + response.throttle_time_ms / 1000
        told = {
            (topic_name(topic.name, topic.topic_id, self._client.cluster), one.index): one
            for topic in response.responses
            for one in topic.partition_responses
        }
        for batch in batches:
            self._answers.judge(batch, told.get((batch.topic, batch.partition)), leader)

    def _on_finish(self, batch: Batch) -> None:
        if self.transaction is not None:
            if batch.error is None:
                self.transaction.is_begun = True
            else:
                self.transaction.on_batch_failed(batch, batch.error)
        self._tell_finish(batch)

    # Tasks

    def _connect(self, leader: int) -> None:
        if leader not in self._connecting:
            self._connecting.add(leader)
            self._tasks.start(self._open_connection(leader))

    async def _open_connection(self, leader: int) -> None:
        deadline = self._client.deadline(self._options.request_timeout_ms)
        try:
            await self._client.connection_to(leader, deadline)
        except ApiError as error:
            logger.info("broker %d cannot be reached: %s", leader, error)
            # The broker may have moved, or another one leads now.
            await self._topics.refresh()
            if self._client.opened_connection(leader) is None:
                await asyncio.sleep(self._answers.pause_s(1))
        finally:
            self._connecting.discard(leader)
            self.look_soon()

    # The end

    async def flush(self, deadline: Deadline) -> None:
        """Waits until every record that was sent before has its outcome.

        Raises:
            CallTimeoutError: Not in time.
        """
        accumulator = self._accumulator
        with self._lock:
            batches = list(accumulator.incomplete)
            accumulator.flushing_count += 1
        self.look_soon()
        try:
            await until_done(batches, deadline)
        finally:
            with self._lock:
                accumulator.flushing_count -= 1

    def refuse_more(self) -> None:
        """Takes no more records; those in the buffer are sent at once."""
        self._is_closing = True
        with self._lock:
            self._accumulator.close()
        self.look_soon()

    def hold(self) -> None:
        """Takes no more records until `take_records`."""
        with self._lock:
            self._accumulator.hold()

    def take_records(self) -> None:
        """Takes records again."""
        self._topics.open_all()

    def _drop_unsent(self, error: OdradekError) -> None:
        """Takes no more records, and gives up those that are not on their way."""
        with self._lock:
            self._accumulator.hold()
        self._give_up(error, lambda batch: not batch.is_in_flight)

    async def until_quiet(self, deadline: Deadline) -> None:
        """Waits until every request that was sent has its answer, or none will come.

        Raises:
            CallTimeoutError: Not in time.
        """
        self.look_soon()
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                while self.in_flight_count or self._accumulator.incomplete:
                    self._quiet = self._loop.create_future()
                    self._loop.call_soon(self._tell_quiet)
                    await self._quiet
        except TimeoutError:
            raise CallTimeoutError(
                f"{self.in_flight_count} requests have no answer after {deadline.timeout_ms} ms"
            ) from None
        finally:
            self._quiet = None

    def _tell_quiet(self) -> None:
        if self._quiet is not None and not self._quiet.done() and not self.in_flight_count:
            self._quiet.set_result(None)

    def fail_all(self, error: OdradekError) -> None:
        """Gives up everything that has no outcome."""
        self._give_up(error, lambda _batch: True)

    def _give_up(self, error: OdradekError, concerns: Callable[[Batch], bool]) -> None:
        accumulator = self._accumulator
        with self._lock:
            batches = list(filter(concerns, accumulator.incomplete))
            for queue in accumulator.active:
                if queue.open is not None:
                    accumulator.close_batch(queue)
                queue.closed.clear()
        for batch in batches:
            self._answers.give_up(batch, error)
        accumulator.tell_waiting()

    async def stop(self) -> None:
        """Gives up the remaining batches, and cancels every task."""
        self._is_closing = True
        self.fail_all(ClosedError("producer"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._accumulator.is_woken = True  # There is no further look.
        await self._tasks.stop()

    @property
    def in_flight_count(self) -> int:
        """Requests without an answer."""
        return sum(self._in_flight.values())

    def leaders(self) -> list[int]:
        """Brokers that lead partitions of the topics in use."""
        return self._topics.leaders()
