"""Sends packed rows under the ticket of a transaction, in the tasks of the send job.

A task must not be repeated under one ticket: brokers take its batches for those of the first
attempt, by their numbers alone, whatever is in them. So an attempt other than the first one raises,
and so does a row that belongs to another task: two writers of a partition would use the same
numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.producer.ticket import TransactionTicket
from odradek.spark.transactional.packing import Writers

__all__ = ["SENT", "Sending"]

# What a writer tells of each task of the compute job that it has rows of.
SENT: Final = "task int, attempt long, rows long, total long"
_CLOSE_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """The function of a task: it gets `PACKED` rows, sends them and gives `SENT` ones. Pickled."""

    settings: tuple[tuple[str, str], ...]
    ticket: TransactionTicket
    writers: Writers

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Sends the rows of one task; all are acknowledged when it ends."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "runs in a task"
        self.refuse_repetition(context.attemptNumber())
        yield from self.send(batches, context.partitionId())

    def refuse_repetition(self, attempt_number: int) -> None:
        """Raises in every attempt but the first one."""
        if attempt_number:
            raise RuntimeError(
                f"attempt {attempt_number} of a task that writes in a transaction: it would write "
                "under the numbers of the first one. The driver aborts the transaction and sends "
                "the batch again"
            )

    def send(self, batches: Iterator[Any], task: int) -> Iterator[Any]:
        """Sends the rows of one task."""
        import pyarrow as pa

        from odradek.client.producer.blocking import Producer
        from odradek.client.producer.config import read_producer_settings
        from odradek.client.producer.encoded_records import EncodedRecords

        codec = read_producer_settings(dict(self.settings), {}, self.ticket)[1].codec
        rows: dict[tuple[int, int], int] = {}
        totals: dict[tuple[int, int], int] = {}
        producer: Producer | None = None
        deliveries = []
        try:
            for row in _rows_of(batches):
                writer, topic, partition, origin, _, attempt, count, base, latest, size, data = row
                of = (origin, attempt)
                if topic is None:
                    totals[of] = count
                    continue
                if writer != task or self.writers.of(topic, partition) != task:
                    raise RuntimeError(
                        f"task {task} got a row of {topic}-{partition}, which writer {writer} of "
                        f"{self.writers.count} has: Spark has not kept the order of partitions"
                    )
                if producer is None:
                    producer = Producer(dict(self.settings), ticket=self.ticket)
                records = EncodedRecords(
                    bytearray(data),
                    codec=codec,
                    size=size,
                    record_count=count,
                    base_timestamp=base,
                    max_timestamp=latest,
                )
                deliveries.append(producer.send_encoded(topic, partition, records))
                rows[of] = rows.get(of, 0) + count
            if producer is not None:
                producer.flush()
                for delivery in deliveries:
                    delivery.result()
        finally:
            if producer is not None:
                producer.close(timeout=0)
        places = sorted(rows.keys() | totals.keys())
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([task for task, _ in places], pa.int32()),
                pa.array([attempt for _, attempt in places], pa.int64()),
                pa.array([rows.get(of, 0) for of in places], pa.int64()),
                pa.array([totals.get(of) for of in places], pa.int64()),
            ],
            ["task", "attempt", "rows", "total"],
        )


def _rows_of(batches: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
