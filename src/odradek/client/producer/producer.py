"""`odradek.aio.Producer`: sends records, awaited."""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from odradek.client.client import Client
from odradek.client.cluster import TopicView
from odradek.client.errors import CallTimeoutError, ClosedError
from odradek.client.options import client_options
from odradek.client.pieces import Piece
from odradek.client.producer.accumulator import Accumulator, Headers, Ticket
from odradek.client.producer.batch import Batch
from odradek.client.producer.config import ACKS_NONE, read_producer_settings
from odradek.client.producer.delivery import Delivery, OutcomeOwner, RecordMetadata
from odradek.client.producer.errors import TransactionAbortedError, TransactionStateError
from odradek.client.producer.metrics import ProducerMetrics
from odradek.client.producer.partitioning import Partitioner
from odradek.client.producer.rows_delivery import RowsDelivery, Share
from odradek.client.producer.rows_send import RowsSend
from odradek.client.producer.sender import Sender
from odradek.client.producer.ticket import TransactionTicket
from odradek.client.producer.transaction_calls import TransactionCalls
from odradek.client.producer.transaction_states import Step, TransactionStage
from odradek.client.producer.transactions import Transactions
from odradek.client.retry import Deadline
from odradek.client.surroundings import ClientSurroundings
from odradek.clock import Clock
from odradek.errors import DisconnectedError, OdradekError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.records.rows import NumberInput, Rows

__all__ = ["FailedRecords", "Interceptor", "Producer", "ProducerRecord", "Serializer"]

logger = logging.getLogger(__name__)

# One more than a producer uses for records, so that metadata requests need not wait for them.
_OTHER_REQUESTS: Final = 1

Serializer = Callable[[Any], bytes | None]
T = TypeVar("T")


class ProducerRecord(NamedTuple):
    """A record to send, as interceptors see it."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers = ()
    partition: int | None = None  # None: chosen by the key, or by the producer.
    timestamp: int | None = None  # Milliseconds since 1970; None: now.


class FailedRecords(NamedTuple):
    """Records that could not be delivered, the argument of `on_error`."""

    topic: str
    partition: int
    record_count: int
    error: OdradekError


class Interceptor(Protocol):
    """Called with every record and its outcome. Its exceptions are logged."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called by `send`, on its thread, before a partition is chosen."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: OdradekError | None) -> None:
        """Called on the producer's loop; the offset is -1 if there is an error."""
        ...


class Producer(TransactionCalls):
    """Sends records to a cluster: in batches, in order, each once.

    ::

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            delivery = await producer.send("orders", key=b"k", value=b"v")
            print((await delivery).offset)

    `send` returns as soon as the record is in the buffer. Belongs to the loop it was started on.

    Args:
        config: Settings under Kafka's names, as ``{"linger.ms": 5}``.
        partitioner: Chooses partitions instead of the default one.
        key_serializer: Converts a key to bytes.
        value_serializer: The same for values.
        interceptors: Called with every record; see `Interceptor`.
        on_error: Called on the producer's loop with records that failed.
        ssl_context: Instead of the ``ssl.*`` settings.
        ticket: Writes in the transaction of another producer, see `Producer.ticket`.
        surroundings: Time, randomness and connections; without it, those of this process.
        keywords: Settings with underscores, as ``linger_ms=5``.

    Raises:
        ConfigError: A setting is unknown or cannot be used.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        partitioner: Partitioner | None = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        interceptors: Sequence[Interceptor] = (),
        on_error: Callable[[FailedRecords], object] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        ticket: TransactionTicket | None = None,
        surroundings: ClientSurroundings | None = None,
        **keywords: object,
    ) -> None:
        common, options = read_producer_settings(config, keywords, ticket)
        self._options = options
        self._ticket = ticket
        self._transactions: Transactions | None = None
        around = surroundings or ClientSurroundings.system()
        self._clock: Clock = around.clock
        self._rng = around.random
        self._client = Client(
            client_options(
                common,
                max_in_flight=options.max_in_flight + _OTHER_REQUESTS,
                unknown_topic_timeout_ms=options.max_block_ms,
                ssl_context=ssl_context,
                streams=around.streams,
            ),
            clock=self._clock,
            rng=self._rng,
        )
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._interceptors = tuple(interceptors)
        self._on_error = on_error
        self._owner = OutcomeOwner()
        self._metrics = ProducerMetrics(self._now_s())
        self.accumulator = Accumulator(
            options,
            self._owner,
            now_ms=self._clock.now_ms,
            monotonic_s=self._now_s,
            rng=self._rng,
            partitioner=partitioner,
        )
        self._sender: Sender | None = None
        self._closed = asyncio.Event()
        self._is_closing = False

    # Start and end

    async def start(self) -> None:
        """Begins on the running loop. Nothing is connected before the first record."""
        if self._sender is not None or self._is_closing:
            raise ClosedError("producer") if self._is_closing else RuntimeError("started already")
        loop = asyncio.get_running_loop()
        self._owner.loop = loop
        self._owner.thread_id = threading.get_ident()
        sender = self._sender = Sender(
            self._client,
            self._options,
            self.accumulator,
            self._owner,
            metrics=self._metrics,
            rng=self._rng,
            on_finish=self._on_finish,
        )

        def wake() -> None:
            if self._owner.is_here():
                loop.call_soon(sender.look)
            else:
                loop.call_soon_threadsafe(sender.look)

        self.accumulator.wake = wake
        if sender.transaction is not None:
            if self._ticket is None:
                self._transactions = Transactions(self._client, self._options, sender)
            else:
                sender.transaction.use(self._ticket)

    async def connect(self, timeout: float | None = None) -> None:
        """Connects to a broker now. Optional: a wrong address is an error at once.

        Raises:
            ApiError: No broker of `bootstrap.servers` answers; each was tried once.
        """
        self._running()
        await self._client.connect(timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Delivers the records in the buffer, as far as the time allows, and ends.

        Args:
            timeout: Seconds; None: until everything has its outcome, which takes no longer than
                `delivery.timeout.ms`. Records left then fail with `ClosedError`.
        """
        if self._is_closing:
            await self._closed.wait()
            return
        self._is_closing = True
        try:
            if self._transactions is not None:
                await self._transactions.close(timeout)
                timeout = 0.0  # What is not delivered now is in no transaction.
            if self._sender is not None:
                self._sender.refuse_more()
                await self._deliver_rest(self._sender, timeout)
        finally:
            if self._sender is not None:
                await self._sender.stop()
            self._client.close()
            self._closed.set()

    async def _deliver_rest(self, sender: Sender, timeout: float | None) -> None:
        # A second more than the longest delivery: the batch's own deadline comes first.
        longest_s = self._options.delivery_timeout_ms / 1000 + 1
        deadline = self._client.deadline_after(longest_s if timeout is None else timeout)
        try:
            await sender.flush(deadline)
            if self._options.acks == ACKS_NONE:
                await self._make_sure_it_was_read(sender, deadline)
        except OdradekError as error:
            logger.warning("closed with records that were not delivered: %s", error)

    # Sending

    async def send(
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
            A handle that can be awaited for the `RecordMetadata`, and need not be.

        Raises:
            RecordTooLargeError: It can never be sent.
            BufferExhaustedError: The buffer stayed full: the cluster takes records too slowly.
            ApiError: The topic or the partition does not exist.
            ClosedError: The producer is closed.
        """
        prepared = self.prepare(topic, value, key, headers or (), partition, timestamp)
        delivery = self.accumulator.append(*prepared)
        if delivery is None:
            delivery = await self._put(prepared[0], partial(self.accumulator.append, *prepared))
        return delivery

    def prepare(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> tuple[str, Any, Any, Headers, int | None, int | None]:
        """The arguments of `Accumulator.append`, after interceptors and serializers."""
        if self._interceptors:
            topic, value, key, headers, partition, timestamp = self._intercept(
                topic, value, key, headers, partition, timestamp
            )
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        return topic, value, key, headers, partition, timestamp

    def _intercept(self, *fields: Any) -> ProducerRecord:
        record = ProducerRecord(*fields)
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:  # the application's code may raise anything
                logger.exception("an interceptor failed on a record for %r", record.topic)
        return record

    @property
    def is_plain(self) -> bool:
        """Whether `prepare` changes nothing."""
        return not (self._interceptors or self._key_serializer or self._value_serializer)

    async def send_arrow(
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
        """Puts the rows of an Arrow table into the buffer, in batches of their own.

        Rows are grouped by partition and keep their order there; no Python object is made per row.
        Serializers are not called. Nothing is sent unless every row can be. Waits for topics and,
        as often as needed, for room, each time up to `max.block.ms`: rows that found room before
        are sent even if later ones find none.

        Args:
            topic: The topic of rows that name none; None if all do.
            batch: A `pyarrow.RecordBatch` or `pyarrow.Table`.
            value: The column of values: binary, or string. Null is a record without a value.
            key: The column of keys, the same. Missing or null: no key.
            headers: The column of headers, list<struct<key: string, value: binary>>.
            partition: The column of partitions, int32. Missing or null: chosen by the key, or by
                the producer.
            timestamp: The column of timestamps, or int64 in milliseconds. Missing or null: now.
            topic_column: The column of topics, string. Not looked for unless it is named.

        Returns:
            One handle for all rows, which can be awaited for the `RowsMetadata`.

        Raises:
            ImportError: Pyarrow is not installed.
            TypeError: The batch is no table, or a column has another type.
            ValueError: A named column is missing, or a row has an impossible value.
            RecordTooLargeError: A row can never be sent.
            BufferExhaustedError: The buffer stayed full: the cluster takes records too slowly.
            ApiError: A topic or a partition does not exist.
            ClosedError: The producer is closed.
        """
        self._running()
        return await self._send_rows(
            self.arrow_send_of(
                batch, topic, value, key, headers, partition, timestamp, topic_column
            )
        )

    async def send_rows(
        self, topic: str, rows: Rows, partitions: NumberInput | None = None
    ) -> RowsDelivery:
        """Puts rows in the memory layout of Arrow into the buffer, as `send_arrow` does a table.

        Args:
            topic: Of all rows.
            rows: See `odradek.records.rows`.
            partitions: The partition of each row; missing or null: as `send_arrow`.
        """
        self._running()
        return await self._send_rows(self.rows_send_of([Piece(rows, partitions, [(topic, None)])]))

    async def _send_rows(self, sending: RowsSend) -> RowsDelivery:
        for name in sending.topics:
            while not sending.knows(name):
                await self.know_topic(name)
        shares = []
        for name, attempt in sending.placements():
            shares.append(await self._put(name, attempt))
            await asyncio.sleep(0)  # There may be many rows: other tasks have their turn, too.
        return self.delivery_of(shares)

    def delivery_of(self, shares: Sequence[Share]) -> RowsDelivery:
        """The handle of rows that are in the buffer."""
        return RowsDelivery(self._owner, shares)

    def arrow_send_of(self, table: Any, topic: str | None, *columns: str | None) -> RowsSend:
        """A table that is to be sent, its columns checked."""
        # Imported here, because pyarrow need not be installed.
        from odradek.client.arrow import ColumnNames, pieces_of

        names = ColumnNames(*columns)  # type: ignore[arg-type]  # value is a str
        return self.rows_send_of(pieces_of(table, topic, names, self._clock.now_ms()))

    def rows_send_of(self, pieces: list[Piece]) -> RowsSend:
        """Rows that are to be sent."""
        return RowsSend(
            pieces,
            self.accumulator,
            self._options,
            intercept=self._intercept if self._interceptors else None,
        )

    async def _put(self, topic: str, attempt: Callable[[Ticket | None], T | None]) -> T:
        """Puts something into the buffer as soon as the topic is known and there is room."""
        placed = attempt(None)
        if placed is not None:
            return placed
        deadline = self._client.deadline(self._options.max_block_ms)
        accumulator = self.accumulator
        if topic not in accumulator.topics:
            await self.know_topic(topic, deadline)
            placed = attempt(None)
            if placed is not None:
                return placed
        ticket = accumulator.take_ticket()
        try:
            while True:
                placed = attempt(ticket)
                if placed is not None:
                    return placed
                self._running()
                if topic not in accumulator.topics:  # It was unused for long.
                    await self.know_topic(topic, deadline)
                await self._room(ticket, deadline)
        finally:
            accumulator.drop_ticket(ticket)

    async def _room(self, ticket: Ticket, deadline: Deadline) -> None:
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell() -> None:
            if not room.done():
                room.set_result(None)

        self.accumulator.call_when_room(tell)
        if self.accumulator.has_turn(ticket):
            return
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await room
        except TimeoutError:
            raise self.no_room() from None

    async def know_topic(self, topic: str, deadline: Deadline | None = None) -> None:
        """Waits until a topic can be sent to.

        Raises:
            TransactionStateError: There is a transactional.id, and no transaction is open.
            ApiError: The transaction has failed; or the topic does not exist.
        """
        sender = self._running()
        if sender.transaction is not None:
            sender.transaction.state.check(Step.SEND)
        await sender.know_topic(
            topic, deadline or self._client.deadline(self._options.max_block_ms)
        )

    @property
    def max_block_ms(self) -> int:
        """How long `send` may wait."""
        return self._options.max_block_ms

    def no_room(self) -> CallTimeoutError:
        """The error of a caller that found no room in time."""
        self._metrics.buffer_exhausted.value += 1
        return self.accumulator.no_room(self._options.max_block_ms / 1000)

    async def flush(self, timeout: float | None = None) -> None:
        """Sends the records in the buffer, and waits until each has arrived or failed.

        Args:
            timeout: Seconds; None: as long as it takes, at most `delivery.timeout.ms`.

        Raises:
            TimeoutError: Some have no outcome yet.
            ApiError: Under a ticket: some have failed, the transaction has to be aborted.
        """
        sender = self._running()
        longest_s = self._options.delivery_timeout_ms / 1000 + 1
        deadline = self._client.deadline_after(longest_s if timeout is None else timeout)
        await sender.flush(deadline)
        if self._options.acks == ACKS_NONE:
            await self._make_sure_it_was_read(sender, deadline)
        if self._ticket is not None and sender.transaction is not None:
            sender.transaction.state.raise_failure()

    async def partitions_for(self, topic: str, timeout: float | None = None) -> TopicView:
        """The partitions of a topic, with their leaders and replicas.

        Raises:
            ApiError: There is no such topic, or no broker answers in time.
        """
        self._running()
        if timeout is None:
            timeout = self._options.max_block_ms / 1000
        deadline = self._client.deadline_after(timeout)
        return await self._client.topic(topic, create=True, deadline=deadline)

    def metrics(self) -> dict[str, float]:
        """Figures of this producer, under the names of Kafka's `producer-metrics`."""
        told = self._metrics.snapshot(self._now_s())
        told["requests-in-flight"] = float(self._sender.in_flight_count if self._sender else 0)
        told["buffer-total-bytes"] = float(self._options.buffer_memory)
        told["buffer-available-bytes"] = float(self.accumulator.free_bytes)
        return told

    def _needed_transactions(self, call: str) -> Transactions:
        self._running()
        if self._transactions is not None:
            return self._transactions
        state = (
            "without a transactional.id" if self._ticket is None else TransactionStage.WRITING.value
        )
        raise TransactionStateError(call, state)

    def _running(self) -> Sender:
        if self._is_closing:
            raise ClosedError("producer")
        if self._sender is None:
            raise RuntimeError("the producer is not started: use `async with`, or await start()")
        return self._sender

    async def _make_sure_it_was_read(self, sender: Sender, deadline: Deadline) -> None:
        """With acks=0, waits for the answer to another request behind the records."""
        request = ApiVersionsRequest(
            client_software_name="odradek", client_software_version="0.1.0"
        )
        for leader in sender.leaders():
            connection = self._client.opened_connection(leader)
            if connection is not None:
                with suppress(DisconnectedError):  # Records that it has not read are lost.
                    await self._client.ask(
                        connection, ApiKey.API_VERSIONS, request, ApiVersionsResponse, deadline
                    )

    def _on_finish(self, batch: Batch) -> None:
        error = batch.error
        if self._interceptors:
            self._tell_interceptors(batch)
        if error is None:
            return
        failed = FailedRecords(batch.topic, batch.partition, batch.record_count, error)
        if self._on_error is None and isinstance(error, TransactionAbortedError):
            return  # Its reason is raised.
        if self._on_error is None:
            logger.warning(
                "%d records for %s-%d failed: %s", failed[2], failed[0], failed[1], error
            )
            return
        try:
            self._on_error(failed)
        except Exception:  # the application's code may raise anything
            logger.exception("on_error failed")

    def _tell_interceptors(self, batch: Batch) -> None:
        for index, (timestamp, key, value, _) in enumerate(batch.records()):
            metadata = RecordMetadata(
                batch.topic,
                batch.partition,
                batch.base_offset + index if batch.base_offset >= 0 else -1,
                timestamp if batch.append_time_ms < 0 else batch.append_time_ms,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
            )
            for interceptor in self._interceptors:
                try:
                    interceptor.on_acknowledgement(metadata, batch.error)
                except Exception:  # the application's code may raise anything
                    logger.exception("an interceptor failed on an acknowledgement")

    def _now_s(self) -> float:
        # The loop's clock; asked for on other threads, too.
        return (
            self._clock.monotonic_ms() / 1000
            if self._owner.loop is None
            else self._owner.loop.time()
        )
