"""Where `send` puts records: an open batch per partition, within the memory of the buffer.

`append` is the only work on the caller's thread, so it does little: it encodes the record into the
open batch (`Gathering`), without a lock unless another batch is needed. The loop (`sender`) does
the rest. It closes a batch when it takes it; until then records are added. A full batch that has to
wait stays open, too, and grows if it may (see `config`): the busier a broker is, the larger its
batches become, and the less each record costs.

A batch takes its memory when it is opened, as much as a full one, and when it grows; the memory is
free again when the batch has an outcome. If there is not enough, `append` returns None and the
caller waits, in the order of the waiting callers: otherwise one large record could starve behind
many small ones.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from odradek.client.errors import BufferExhaustedError
from odradek.client.partitioner import partition_of_key
from odradek.client.producer.batch import Batch, PartitionQueue
from odradek.client.producer.config import ProducerOptions
from odradek.client.producer.delivery import Delivery, OutcomeOwner
from odradek.client.producer.encoded_records import EncodedRecords
from odradek.client.producer.partitioning import Partitioner, choose_queue
from odradek.errors import ApiError, ErrorCode, InvariantViolation, RecordTooLargeError
from odradek.records.batch import HEADER_SIZE
from odradek.records.gathering import IS_ATOMIC, RECORD_OVERHEAD, Gathering

__all__ = ["Accumulator", "Headers", "Ticket", "TopicQueues"]

Headers = Sequence[tuple[str, bytes | None]]

# The most that a header costs besides its bytes: two lengths.
_HEADER_OVERHEAD: Final = 10
# The most that a record costs beyond its bytes and `RECORD_OVERHEAD`, which mostly suffices.
_RARE_OVERHEAD: Final = 36 - RECORD_OVERHEAD
_MAX_TIMESTAMP: Final = 2**63 - 1
# Of a partition, of rows without a key.
_LEAST_SHARE_BYTES: Final = 1024
# In which a batch grows to the largest it may become.
_STEPS: Final = 4

_new_delivery: Any = tuple.__new__


class Ticket:
    """The place of one caller in the queue for room. No two are equal."""

    __slots__ = ("needed_bytes",)

    def __init__(self) -> None:
        self.needed_bytes = 0


class TopicQueues:
    """The queues of a topic, and the one that records without a key go to now."""

    __slots__ = (
        "available",
        "every",
        "queues",
        "sticky",
        "sticky_from",
        "topic",
        "topic_id",
        "used_s",
    )

    def __init__(self, topic: str, topic_id: bytes) -> None:
        self.topic = topic
        self.topic_id = topic_id
        # One per partition. Replaced, never edited: `send` looks at it without a lock.
        self.queues: Sequence[PartitionQueue] = ()
        # The same and those of partitions that are gone, in case these are created again: records
        # that are numbered anew under the same id and epoch would pass for repetitions.
        self.every: list[PartitionQueue] = []
        # Those that have a leader; all, if none has.
        self.available: Sequence[PartitionQueue] = ()
        self.sticky: PartitionQueue | None = None
        self.sticky_from = 0  # The bytes it had taken when it was chosen.
        self.used_s = 0.0  # When a batch was last opened.


class Accumulator:
    """See the module's docstring."""

    def __init__(
        self,
        options: ProducerOptions,
        owner: OutcomeOwner,
        *,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        rng: Random,
        partitioner: Partitioner | None = None,
    ) -> None:
        self._options = options
        self._owner = owner
        self._lock = owner.lock
        self._room = threading.Condition(owner.lock)
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s
        self._rng = rng
        self._partitioner = partitioner
        # Whether `append` needs no lock for an ordinary record.
        self._is_simple = partitioner is None and IS_ATOMIC
        self._is_sticky_always = options.ignores_keys and partitioner is None
        self._batch_size = options.batch_size
        # By how much a batch grows, and a share of records without a key with it.
        self._step_bytes = max(options.batch_size, options.max_batch_bytes // _STEPS)
        # A record above this is refused: it would not fit into a request, or never into the buffer.
        self.max_record_bytes = min(options.max_request_size, options.buffer_memory)
        self._linger_s = options.linger_ms / 1000
        # Topics that `send` may use. Empty after close.
        self.topics: dict[str, TopicQueues] = {}
        # Queues with something to do, for the loop.
        self.active: dict[PartitionQueue, None] = {}
        # Batches without an outcome, oldest first.
        self.incomplete: dict[Batch, None] = {}
        self.free_bytes = options.buffer_memory
        # The callers that wait for room, in order.
        self._tickets: deque[Ticket] = deque()
        self._async_waiters: deque[Callable[[], None]] = deque()
        self.flushing_count = 0
        self.is_closed = False
        # Whether `topics` is empty for now: a transactional producer takes no records outside of
        # a transaction. `append` finds no topic then, and needs no look at this.
        self.is_held = False
        # Set by the loop: how to wake it, and when it looks next.
        self.wake: Callable[[], None] = lambda: None
        self.is_woken = False
        self.looks_at_s = float("inf")
        # Set by the loop: brokers that have as many requests as they may have.
        self.busy_leaders: set[int] = set()

    @property
    def has_partitioner(self) -> bool:
        """Whether the application gave a partitioner."""
        return self._partitioner is not None

    # On the thread of the caller

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
        ticket: Ticket | None = None,
    ) -> Delivery | None:
        """Puts a record into its batch; None if the topic is not known yet, or there is no room.

        Args:
            ticket: From `take_ticket`, if the caller has waited for room.

        Raises:
            RecordTooLargeError: It can never be sent.
            ApiError: INVALID_PARTITIONS, the topic has no such partition.
            TypeError: Key, value or a header has a wrong type.
            ValueError: The timestamp is not one.
        """
        known = self.topics.get(topic)
        if known is None:
            return None
        if timestamp is None:
            timestamp = self._now_ms()
        if partition is None and not headers and self._is_simple:
            # The short way, which most records take.
            if key is None or self._is_sticky_always:
                queue = known.sticky
            elif type(key) is bytes:
                queues = known.queues
                queue = queues[partition_of_key(key, len(queues))]
            else:
                queue = None
            batch = queue.open if queue is not None else None
            if batch is not None:
                index = batch.gathered.add(timestamp, key, value, ())
                if index >= 0:
                    delivery: Delivery = _new_delivery(
                        Delivery,
                        (
                            batch,
                            index,
                            timestamp,
                            -1 if key is None else len(key),
                            -1 if value is None else len(value),
                        ),
                    )
                    return delivery
        return self._append_slowly(known, value, key, headers, partition, timestamp, ticket)

    def _append_slowly(
        self,
        known: TopicQueues,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp: int,
        ticket: Ticket | None,
    ) -> Delivery | None:
        """The same for a record that is not ordinary, or needs another batch."""
        timestamp = _as_timestamp(timestamp)
        size = RECORD_OVERHEAD
        if key is not None:
            key = _as_bytes("key", key)
            size += len(key)
        if value is not None:
            value = _as_bytes("value", value)
            size += len(value)
        checked: tuple[tuple[str, bytes | None], ...] = ()
        if headers:
            checked, header_bytes = _checked_headers(headers)
            size += header_bytes
        most_bytes = size + _RARE_OVERHEAD
        if HEADER_SIZE + size > self.max_record_bytes:
            raise RecordTooLargeError(
                f"a record for topic {known.topic!r} has {HEADER_SIZE + size} bytes; at most "
                f"{self.max_record_bytes} (max.request.size, buffer.memory) can be sent"
            )
        queue: PartitionQueue | None = None
        if partition is not None or self._partitioner is not None:
            queue = self._chosen(known, key, value, partition)
        elif key is not None and not self._is_sticky_always:
            queues = known.queues
            queue = queues[partition_of_key(key, len(queues))]
        index = -1
        with self._lock:
            if self.topics.get(known.topic) is not known:
                return None  # It was closed, or forgotten, a moment ago.
            while index < 0:  # Others add without the lock, and may take the room just seen.
                batch = self._batch_for(known, queue, size, ticket)
                if batch is None:
                    return None
                index = batch.gathered.add(timestamp, key, value, checked)
                if index < 0:
                    size = most_bytes
                    _check_refusal(known.topic, batch.gathered, most_bytes)
        delivery: Delivery = _new_delivery(
            Delivery,
            (
                batch,
                index,
                timestamp,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
            ),
        )
        return delivery

    def share_out(self, known: TopicQueues, size: int) -> list[tuple[int, int]]:
        """Partitions for so many bytes of rows without a key, and how much each takes in turn."""
        share_bytes = max(self._batch_size, _LEAST_SHARE_BYTES)
        shares: list[tuple[int, int]] = []
        with self._lock:
            queue = self._sticky_queue(known, 1)
            room = max(share_bytes - self._taken_bytes(known, queue), 1)
            while True:
                shares.append((queue.partition, room))
                size -= room
                if size <= 0:
                    break
                queue = self._choose_queue(known)
                room = share_bytes
            if len(shares) > 1:
                known.sticky = queue
                # When all rows are in their queues, only the bytes of the last share count.
                rows_bytes = sum(
                    taken for number, taken in shares[:-1] if number == queue.partition
                )
                known.sticky_from = queue.taken_bytes + rows_bytes
                if queue.open is not None:
                    known.sticky_from += queue.open.gathered.size
        return shares

    def append_rows(
        self, topic: str, partition: int, rows: EncodedRecords, ticket: Ticket | None = None
    ) -> Batch | None:
        """Puts an encoded batch at the end of the queue of its partition.

        Returns:
            None if the topic is not known, or there is no room.

        Raises:
            ApiError: INVALID_PARTITIONS, the topic has no such partition any more.
        """
        with self._lock:
            known = self.topics.get(topic)
            if known is None:
                return None
            if partition >= len(known.queues):
                raise _no_such_partition("a row", partition, known)
            memory_bytes = min(rows.memory_bytes, self._options.buffer_memory)
            if not self._take_memory(memory_bytes, ticket):
                return None
            queue = known.queues[partition]
            if queue.open is not None:
                self.close_batch(queue)
            batch = self._new_batch(known, queue, rows, memory_bytes)
            queue.taken_bytes += rows.size
            queue.closed.append(batch)
            self._ask_to_send_to(queue)
            return batch

    def take_ticket(self) -> Ticket:
        """Begins to wait for room."""
        ticket = Ticket()
        with self._lock:
            self._tickets.append(ticket)
        return ticket

    def drop_ticket(self, ticket: Ticket) -> None:
        """Stops waiting for room, successfully or not."""
        with self._lock:
            self._tickets.remove(ticket)
            self._tell_waiting()

    def wait_for_room(self, ticket: Ticket, timeout_s: float) -> bool:
        """Blocks until the ticket's turn has come and there may be room."""
        with self._lock:
            self._ask_to_send()
            return self._room.wait_for(lambda: self._is_turn(ticket), timeout_s)

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Has the loop notified once when there may be room."""
        with self._lock:
            self._ask_to_send()
            self._async_waiters.append(callback)

    def has_turn(self, ticket: Ticket) -> bool:
        """Whether `append` with this ticket may succeed."""
        with self._lock:
            return self._is_turn(ticket)

    @property
    def is_exhausted(self) -> bool:
        """Whether a caller waits for room, so that no batch should linger."""
        return bool(self._tickets)

    def no_room(self, timeout_s: float) -> BufferExhaustedError:
        """The error of a caller that found no room in time."""
        return BufferExhaustedError(
            f"no room in the buffer within {timeout_s * 1000:.0f} ms: {self.free_bytes} of "
            f"{self._options.buffer_memory} bytes (buffer.memory) are free; the cluster takes "
            "records more slowly than they are sent"
        )

    def _is_turn(self, ticket: Ticket) -> bool:
        if self.is_closed:
            return True
        return self._tickets[0] is ticket and ticket.needed_bytes <= self.free_bytes

    def _ask_to_send(self) -> None:
        if not self.is_woken:
            self.is_woken = True
            self.wake()

    def _ask_to_send_to(self, queue: PartitionQueue) -> None:
        # A broker that may get no more requests for now is looked at again when it has answered.
        if queue.leader not in self.busy_leaders:
            self._ask_to_send()

    def _chosen(
        self, known: TopicQueues, key: bytes | None, value: bytes | None, partition: int | None
    ) -> PartitionQueue:
        queues = known.queues
        count = len(queues)
        chooser = "a record"
        if partition is None:
            assert self._partitioner is not None, "the caller has looked"
            partition = self._partitioner(known.topic, key, value, count)
            chooser = "the partitioner"
        if not isinstance(partition, int) or not 0 <= partition < count:
            raise _no_such_partition(chooser, partition, known)
        return queues[partition]

    # With the lock held

    def _batch_for(
        self, known: TopicQueues, queue: PartitionQueue | None, size: int, ticket: Ticket | None
    ) -> Batch | None:
        """An open batch with room for a record; None if there is none in the buffer."""
        if queue is None:
            queue = self._sticky_queue(known, size)
        batch = queue.open
        if batch is not None and self._has_room(queue, batch, size, ticket):
            return batch
        memory_bytes = min(max(self._batch_size, HEADER_SIZE + size), self._options.buffer_memory)
        if not self._take_memory(memory_bytes, ticket):
            return None
        if batch is not None:
            self.close_batch(queue)
        records = Gathering(HEADER_SIZE, self._batch_size)
        batch = queue.open = self._new_batch(known, queue, records, memory_bytes)
        # A loop that looks before this batch is due needs no wake-up.
        if queue.closed or known.used_s + self._linger_s < self.looks_at_s:
            self._ask_to_send_to(queue)
        return batch

    def _has_room(
        self, queue: PartitionQueue, batch: Batch, size: int, ticket: Ticket | None
    ) -> bool:
        """Whether a record fits into an open batch, which grows for it if it may."""
        gathered = batch.gathered
        needed = gathered.size + size
        if needed <= gathered.limit:
            return True
        if needed > queue.max_batch_bytes:
            return False
        limit = min(needed + self._step_bytes, queue.max_batch_bytes)
        more_bytes = limit - batch.memory_bytes
        # Only without a wait: another batch may need less.
        if more_bytes > self.free_bytes or not self._take_memory(more_bytes, ticket):
            return False
        batch.memory_bytes += more_bytes
        gathered.extend(limit)
        if not batch.is_ready:
            batch.is_ready = True
            self._ask_to_send_to(queue)
        return True

    def _take_memory(self, memory_bytes: int, ticket: Ticket | None) -> bool:
        if ticket is not None:
            ticket.needed_bytes = memory_bytes
        is_turn = not self._tickets or self._tickets[0] is ticket
        if self.is_closed or not is_turn or memory_bytes > self.free_bytes:
            return False
        self.free_bytes -= memory_bytes
        return True

    def _new_batch(
        self,
        known: TopicQueues,
        queue: PartitionQueue,
        records: Gathering | EncodedRecords,
        memory_bytes: int,
    ) -> Batch:
        now_s = known.used_s = self._monotonic_s()
        batch = Batch(
            self._owner,
            queue,
            created_s=now_s,
            deadline_s=now_s + self._options.delivery_timeout_ms / 1000,
            memory_bytes=memory_bytes,
            records=records,
        )
        self.active[queue] = None
        self.incomplete[batch] = None
        return batch

    def _sticky_queue(self, known: TopicQueues, size: int) -> PartitionQueue:
        """The queue for records without a key; another one if this one had its share."""
        queue = known.sticky
        if queue is not None:
            share_bytes = self._batch_size
            if queue.leader in self.busy_leaders:
                share_bytes = self._step_bytes  # Its batch has to wait, and grows meanwhile.
            if self._taken_bytes(known, queue) + size <= share_bytes:
                return queue
        chosen = self._choose_queue(known)
        if queue is not None and queue is not chosen and queue.open is not None:
            queue.open.is_ready = True
            self._ask_to_send_to(queue)
        known.sticky = chosen
        known.sticky_from = chosen.taken_bytes
        if chosen.open is not None:  # Its records are not part of the new share.
            known.sticky_from += chosen.open.gathered.size
        return chosen

    def _taken_bytes(self, known: TopicQueues, sticky: PartitionQueue) -> int:
        """The bytes of its share that the sticky queue has taken."""
        taken_bytes = sticky.taken_bytes - known.sticky_from
        return taken_bytes if sticky.open is None else taken_bytes + sticky.open.gathered.size

    def _choose_queue(self, known: TopicQueues) -> PartitionQueue:
        return choose_queue(
            known.available,
            self._rng,
            is_adaptive=self._options.is_adaptive,
            batch_size=self._batch_size,
        )

    def close_batch(self, queue: PartitionQueue) -> None:
        """Closes the open batch of a queue to further records."""
        batch = queue.open
        assert batch is not None, "the caller has looked"
        queue.open = None
        batch.record_count = batch.gathered.close()
        queue.taken_bytes += batch.gathered.size
        queue.closed.append(batch)

    def free(self, batch: Batch) -> None:
        """Takes the memory of a batch back."""
        self.free_bytes += batch.memory_bytes
        batch.memory_bytes = 0
        self.incomplete.pop(batch, None)

    def _tell_waiting(self) -> None:
        if self._tickets:
            self._room.notify_all()
            while self._async_waiters:
                self._async_waiters.popleft()()

    def tell_waiting(self) -> None:
        """Wakes the callers that wait for room; once for all freed memory, since it is costly."""
        if self._tickets:
            with self._lock:
                self._tell_waiting()

    def hold(self) -> None:
        """Takes no more records for now."""
        self.is_held = True
        self.topics = {}

    def close(self) -> None:
        """Takes no more records; wakes the callers that wait for room."""
        self.is_closed = True
        self.topics = {}
        self._room.notify_all()
        while self._async_waiters:
            self._async_waiters.popleft()()


def _no_such_partition(chooser: str, partition: object, known: TopicQueues) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PARTITIONS,
        f"{chooser} chose partition {partition!r}, but topic {known.topic!r} has "
        f"{len(known.queues)} partitions, numbered from 0",
    )


def _check_refusal(topic: str, gathered: Gathering, most_bytes: int) -> None:
    """Checks that a batch refused a record for lack of room: else the next batch would, too.

    Raises:
        InvariantViolation: There was room, and no batch is closed while the lock is held.
    """
    if gathered.record_count == 0 or gathered.size + most_bytes <= gathered.limit:
        raise InvariantViolation(
            f"a record of at most {most_bytes} bytes for topic {topic!r} was refused by a batch "
            f"with room for it: {gathered.size} of {gathered.limit} bytes, "
            f"{gathered.record_count} records"
        )


# Both take the value without a look at its class: `Gathering` refuses other classes than bytes, and
# a method like `__bytes__` may return one.


def _as_timestamp(given: object) -> int:
    timestamp = int.__int__(given) if isinstance(given, int) else -1
    if not 0 <= timestamp <= _MAX_TIMESTAMP:
        raise ValueError(f"timestamp={given!r}: expected milliseconds since 1970")
    return timestamp


def _as_bytes(what: str, given: object) -> bytes:
    if type(given) is bytes:
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return memoryview(given).tobytes()
    raise TypeError(
        f"{what} is a {type(given).__name__}, expected bytes or None; encode it, or give the "
        f"producer a {what}_serializer"
    )


def _checked_headers(
    headers: Headers,
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Headers as the encoder wants them, and an upper bound of their bytes."""
    if not isinstance(headers, list | tuple):  # An iterator can be read only once.
        raise TypeError(f"headers are a {type(headers).__name__}, expected a list of pairs")
    checked = []
    size = 0
    for name, content in headers:
        if type(name) is not str:
            if not isinstance(name, str):
                raise TypeError(f"the key of a header is a {type(name).__name__}, expected str")
            name = str.__str__(name)  # The text alone: the encoder takes no other class.
        if content is not None and type(content) is not bytes:
            content = _as_bytes("the value of a header", content)
        checked.append((name, content))
        size += len(name.encode("utf-8", "surrogateescape")) + _HEADER_OVERHEAD
        size += len(content) if content is not None else 0
    return tuple(checked), size
