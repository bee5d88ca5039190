"""`odradek.Producer`: sends records, for plain scripts and threads."""

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from odradek.client.blocking import Blocking, blocking
from odradek.client.errors import ClosedError
from odradek.client.pieces import Piece
from odradek.client.producer import producer as awaited
from odradek.client.producer.accumulator import Headers, Ticket
from odradek.client.producer.delivery import Delivery
from odradek.client.producer.encoded_records import EncodedRecords
from odradek.client.producer.errors import FatalTransactionError, RetriableTransactionError
from odradek.client.producer.partitioning import Partitioner
from odradek.client.producer.rows_delivery import RowsDelivery, Share
from odradek.client.producer.rows_send import RowsSend
from odradek.client.producer.ticket import TransactionTicket
from odradek.client.retry import Deadline
from odradek.clock import SystemClock
from odradek.records.rows import NumberInput, Rows

__all__ = ["Producer"]

T = TypeVar("T")


class Producer(Blocking[awaited.Producer]):
    """Sends records to a cluster: in batches, in order, each once.

    ::

        with Producer(bootstrap_servers="localhost:9092", linger_ms=5) as producer:
            delivery = producer.send("orders", key=b"k", value=b"v", headers=[("h", b"1")])
            print(delivery.result().offset)

    `send` returns as soon as the record is in the buffer; `flush`, and leaving the block, deliver
    the rest. May be used by several threads.

    Args: As `odradek.aio.Producer`. `on_error`, callbacks and acknowledgements of interceptors run
        on the producer's own thread, and must not wait.

    Raises:
        ConfigError: A setting is unknown or cannot be used.
    """

    _what = "producer"

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        partitioner: Partitioner | None = None,
        key_serializer: awaited.Serializer | None = None,
        value_serializer: awaited.Serializer | None = None,
        interceptors: Sequence[awaited.Interceptor] = (),
        on_error: Callable[[awaited.FailedRecords], object] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        ticket: TransactionTicket | None = None,
        **keywords: object,
    ) -> None:
        core = awaited.Producer(
            config,
            partitioner=partitioner,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            interceptors=interceptors,
            on_error=on_error,
            ssl_context=ssl_context,
            ticket=ticket,
            surroundings=None,
            **keywords,
        )
        super().__init__(core)
        self._append = core.accumulator.append
        self._is_plain = core.is_plain

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Puts a record into the buffer.

        Waits, up to `max.block.ms`, for the metadata of the topic, and for room.

        Args:
            value: Bytes or None, or an argument for `value_serializer`.
            key: The same; decides the partition.
            headers: Pairs of a name and bytes.
            partition: Chosen by the key if not given, or by the producer if there is none.
            timestamp: Milliseconds since 1970; now if not given.

        Returns:
            A handle; its `result` is the `RecordMetadata`, and need not be asked for.

        Raises:
            RecordTooLargeError: It can never be sent.
            BufferExhaustedError: The buffer stayed full: the cluster takes records too slowly.
            ApiError: The topic or the partition does not exist.
            ClosedError: The producer is closed.
        """
        if self._fork_guard.is_child:
            self._fork_guard.check()
        if headers is None:
            headers = ()
        if not self._is_plain:
            topic, value, key, headers, partition, timestamp = self._core.prepare(
                topic, value, key, headers, partition, timestamp
            )
        delivery = self._append(topic, value, key, headers, partition, timestamp)
        if delivery is None:
            return self._put(
                topic, partial(self._append, topic, value, key, headers, partition, timestamp)
            )
        return delivery

    def send_arrow(
        self,
        topic: str | None,
        batch: Any,
        *,
        value: str = "value",
        key: str | None = "key",
        headers: str | None = "headers",
        partition: str | None = "partition",
        timestamp: str | None = "timestamp",
        topic_column: str | None = None,
    ) -> RowsDelivery:
        """See `odradek.aio.Producer.send_arrow`."""
        self._check_usable()
        return self._send_rows(
            self._core.arrow_send_of(
                batch, topic, value, key, headers, partition, timestamp, topic_column
            )
        )

    def send_rows(
        self, topic: str, rows: Rows, partitions: NumberInput | None = None
    ) -> RowsDelivery:
        """See `odradek.aio.Producer.send_rows`."""
        self._check_usable()
        pieces = [Piece(rows, partitions, [(topic, None)])]
        return self._send_rows(self._core.rows_send_of(pieces))

    def _send_rows(self, sending: RowsSend) -> RowsDelivery:
        core = self._core
        for name in sending.topics:
            while not sending.knows(name):
                self._call(core.know_topic(name))
        shares = [self._put(name, attempt) for name, attempt in sending.placements()]
        return core.delivery_of(shares)

    def send_encoded(self, topic: str, partition: int, records: EncodedRecords) -> RowsDelivery:
        """Puts a batch that is encoded already into the buffer: it is sent as it is.

        Waits as `send` does. Its records get no `Interceptor.on_send`.

        Raises:
            BufferExhaustedError: The buffer stayed full.
            ApiError: The topic or the partition does not exist.
            ClosedError: The producer is closed.
        """
        self._check_usable()
        core = self._core

        def attempt(ticket: Ticket | None) -> Share | None:
            batch = core.accumulator.append_rows(topic, partition, records, ticket)
            return None if batch is None else Share(batch, 0, records.record_count)

        return core.delivery_of([self._put(topic, attempt)])

    def _put(self, topic: str, attempt: Callable[[Ticket | None], T | None]) -> T:
        """Puts something into the buffer as soon as the topic is known and there is room."""
        placed = attempt(None)
        if placed is not None:
            return placed
        self._check_usable()
        core = self._core
        deadline = Deadline(SystemClock(), core.max_block_ms)
        accumulator = core.accumulator
        if topic not in accumulator.topics:
            self._call(core.know_topic(topic, deadline))
            placed = attempt(None)
            if placed is not None:
                return placed
        ticket = accumulator.take_ticket()
        try:
            while True:
                placed = attempt(ticket)
                if placed is not None:
                    return placed
                if accumulator.is_closed:
                    raise ClosedError(self._what)
                self._refuse_own_thread()
                if topic not in accumulator.topics:  # It was unused for long.
                    self._call(core.know_topic(topic, deadline))
                if not accumulator.wait_for_room(ticket, deadline.left_ms() / 1000):
                    raise core.no_room()
        finally:
            accumulator.drop_ticket(ticket)

    def _refuse_own_thread(self) -> None:
        if self._thread.is_here():
            raise RuntimeError(
                "the buffer is full, and a callback on the producer's own thread cannot wait "
                "for room; send from another thread"
            )

    connect = blocking(awaited.Producer.connect)
    flush = blocking(awaited.Producer.flush)
    partitions_for = blocking(awaited.Producer.partitions_for)
    init_transactions = blocking(awaited.Producer.init_transactions)
    begin_transaction = blocking(awaited.Producer.begin_transaction)
    send_offsets = blocking(awaited.Producer.send_offsets)
    commit_transaction = blocking(awaited.Producer.commit_transaction)
    abort_transaction = blocking(awaited.Producer.abort_transaction)
    ticket = blocking(awaited.Producer.ticket)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction around a block: committed at its end, aborted if it raises.

        Raises:
            ApiError: As `commit_transaction`, except that a transaction that has to be aborted is.
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except (FatalTransactionError, RetriableTransactionError):
            raise
        except BaseException:
            self._call(self._core.abort_quietly())
            raise

    def metrics(self) -> dict[str, float]:
        """Figures of this producer, under the names of Kafka's `producer-metrics`."""
        return self._core.metrics()
