"""Packs rows into record batches, in the tasks of the compute job.

What a task gives are few rows with many bytes each, the records of one topic-partition, encoded and
compressed but without the header's numbers: these are known when the batch is sent. So the shuffle
between the two jobs moves record batches, not rows.

A task ends with a row without a topic that says how many rows it has packed. It and all others of
the task carry the number of the task's attempt: if an attempt is repeated after some of its output
was read, as Spark does when an executor is lost, the two may differ (`rand()`), and what was read
may be a mixture. The driver finds that from these numbers before it commits (`attempts`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

if TYPE_CHECKING:
    from odradek.client.pieces import Piece
    from odradek.client.producer.config import ProducerOptions

__all__ = ["PACKED", "Packing", "Writers"]

# One row: a record batch, or the total of a task.
PACKED: Final = (
    "writer int, topic string, partition int, task int, place long, attempt long, rows long,"
    " base_timestamp long, max_timestamp long, size int, records binary"
)
_GATHERED_BYTES: Final = 8 << 20
_GIVEN_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """Which writer has which topic-partitions: each has one.

    `turn` moves them on from batch to batch: if fewer tasks have rows than there are writers, all
    partitions get some in the end.
    """

    count: int
    turn: int

    def of(self, topic: str, partition: int) -> int:
        """The writer of a topic-partition."""
        return (crc32(topic.encode()) + self.turn + partition) % self.count

    def partitions(self, writer: int, topic: str, partition_count: int) -> range:
        """The partitions of a topic that a writer has."""
        return range((writer - self.of(topic, 0)) % self.count, partition_count, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The function of a task: it gets the rows of its part, and gives `PACKED` ones. Pickled.

    Rows that nothing ties to a partition need no shuffle: with `is_free` each task is a writer
    itself, and chooses among the partitions that it alone writes.
    """

    # For rows whose topic column does not say.
    topic: str | None
    # Columns by their content, None if there is none: key, headers, partition, topic.
    columns: tuple[str | None, str | None, str | None, str | None]
    settings: tuple[tuple[str, str], ...]
    # Of the topics that the driver knows.
    partition_counts: Mapping[str, int]
    writers: Writers
    is_free: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Packs the rows of one task."""
        # Imported here: only tasks need them.
        from pyspark import TaskContext

        from odradek.spark.datasource.gathering import gathered

        context = TaskContext.get()
        assert context is not None, "runs in a task"
        packer = _Packer(self, context.partitionId(), context.taskAttemptId())
        for table in gathered(batches, _GATHERED_BYTES):
            yield from packer.pack(table)
        yield from packer.end()


class _Packer:
    """The work of one task."""

    def __init__(self, packing: Packing, task: int, attempt: int) -> None:
        from odradek.client.producer.config import read_producer_settings
        from odradek.clock import SystemClock

        self._packing = packing
        self._task = task
        self._attempt = attempt
        self._settings = dict(packing.settings)
        self._options: ProducerOptions = read_producer_settings(self._settings, {})[1]
        self._counts = dict(packing.partition_counts)
        self._clock = SystemClock()
        self._place = 0
        self._row_count = 0
        self._next_free = attempt  # Where rows without a key go: not always to partition 0 first.
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def pack(self, table: Any) -> Iterator[Any]:
        """Packs the rows of a table."""
        from odradek.client.arrow import ColumnNames, pieces_of

        key, headers, partition, topic = self._packing.columns
        names = ColumnNames("value", key, headers, partition, None, topic)
        for piece in pieces_of(table, self._packing.topic, names, self._clock.now_ms()):
            self._check_sizes(piece)
            for name, numbers in piece.topics:
                yield from self._pack_topic(piece, name, numbers)

    def end(self) -> Iterator[Any]:
        """The rest, and the total."""
        self._add(0, None, None, self._row_count, (None, None, None, None))
        yield self._given()

    def _check_sizes(self, piece: "Piece") -> None:
        from odradek.errors import RecordTooLargeError
        from odradek.records.batch import HEADER_SIZE

        options = self._options
        row, size = piece.rows.largest()
        most = min(options.max_request_size, options.buffer_memory)
        if HEADER_SIZE + size > most:
            raise RecordTooLargeError(
                f"row {row} has {HEADER_SIZE + size} bytes as a record; at most {most} "
                "(max.request.size, buffer.memory) can be sent"
            )

    def _pack_topic(self, piece: "Piece", topic: str, numbers: Any) -> Iterator[Any]:
        from odradek.client.producer.encoded_records import encode_rows
        from odradek.records.rows import group_rows

        options, rows = self._options, piece.rows
        count = self._partition_count(topic)
        partitions = rows.choose_partitions(
            count,
            numbers=numbers,
            partitions=piece.partitions,
            ignores_keys=options.ignores_keys,
        )
        free_bytes = rows.undecided_bytes(partitions, numbers)
        if free_bytes:
            rows.spread(partitions, self._shares(topic, free_bytes, count), numbers)
        ordered, ends = group_rows(partitions, count, numbers)
        view = memoryview(ordered)
        first = 0
        for partition, end in enumerate(ends):
            while first < end:
                encoded = encode_rows(
                    rows,
                    view,
                    first,
                    end,
                    max_bytes=options.batch_size,
                    codec=options.codec,
                    level=options.level,
                )
                first += encoded.record_count
                self._row_count += encoded.record_count
                self._add(
                    self._packing.writers.of(topic, partition),
                    topic,
                    partition,
                    encoded.record_count,
                    (
                        encoded.base_timestamp,
                        encoded.max_timestamp,
                        encoded.size,
                        bytes(encoded.encoded),
                    ),
                )
                if self._bytes >= _GIVEN_BYTES:
                    yield self._given()

    def _shares(self, topic: str, size: int, count: int) -> list[tuple[int, int]]:
        """Partitions for rows without a key: a batch to each in turn."""
        share = max(self._options.batch_size, 1)
        mine = range(count)
        if self._packing.is_free:
            mine = self._packing.writers.partitions(self._task, topic, count)
        shares = []
        for _ in range(-(-size // share)):
            shares.append((mine[self._next_free % len(mine)], share))
            self._next_free += 1
        return shares

    def _partition_count(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            from odradek.spark.datasource.writer_producers import leased_producer

            with leased_producer(self._packing.settings) as producer:
                count = len(producer.partitions_for(topic).partitions)
            self._counts[topic] = count
        return count

    def _add(
        self,
        writer: int,
        topic: str | None,
        partition: int | None,
        row_count: int,
        encoded: tuple[int | None, int | None, int | None, bytes | None],
    ) -> None:
        number = (self._task, self._place, self._attempt)
        self._rows.append((writer, topic, partition, *number, row_count, *encoded))
        self._place += 1
        self._bytes += len(encoded[3] or b"")

    def _given(self) -> Any:
        import pyarrow as pa

        kinds = [
            pa.int32(), pa.string(), pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.int64(),
            pa.int64(), pa.int64(), pa.int32(), pa.binary(),
        ]  # fmt: skip
        names = [column.split()[0] for column in PACKED.split(",")]
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        self._rows, self._bytes = [], 0
        return pa.RecordBatch.from_arrays(arrays, names)
