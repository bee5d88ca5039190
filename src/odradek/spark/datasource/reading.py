"""A task: reads one split and yields Arrow batches. Runs in Spark's Python workers."""

import logging
from collections.abc import Iterator
from typing import Any, Final

from odradek.client.consumer.fetched import FetchedData
from odradek.client.consumer.partition_state import AssignedPartition
from odradek.client.errors import CallTimeoutError, RecreatedTopicError
from odradek.client.offsets import EARLIEST
from odradek.client.range_reader import FetchedBatches, read_range
from odradek.errors import OffsetOutOfRangeError
from odradek.records.columns import ColumnBuilder, Columns
from odradek.spark.datasource.batches import batches_of
from odradek.spark.datasource.connections import CONNECTIONS, ClusterConnection, ConnectionCache
from odradek.spark.datasource.data_loss import DataLossPolicy, Loss
from odradek.spark.datasource.lookup import ClusterLookup
from odradek.spark.datasource.options import Selection, SourceOptions
from odradek.spark.datasource.splits import Split

__all__ = ["read_split"]

logger = logging.getLogger(__name__)

# Attempts when an offset is refused although the log has it: the leader was just elected.
_MAX_REFUSALS: Final = 5


def read_split(
    options: SourceOptions, split: Split, connections: ConnectionCache = CONNECTIONS
) -> Iterator[Any]:
    """The records of a split as `pyarrow.RecordBatch`es.

    Raises:
        DataLossError: Records are gone, and the policy is to fail.
        ApiError: Brokers refuse, or do not answer.
    """
    with connections.lease(options.kafka) as connection:
        yield from _Task(connection, options, split).read()


class _Task:
    def __init__(self, connection: ClusterConnection, options: SourceOptions, split: Split) -> None:
        self._connection = connection
        self._options = options
        self._split = split
        self._position = split.start
        self._policy = DataLossPolicy(options.is_failing_on_data_loss)
        self._refusal_count = 0

    def read(self) -> Iterator[Any]:
        while self._position < self._split.end:
            try:
                yield from self._read_on()
            except OffsetOutOfRangeError:
                self._refusal_count += 1
                if not self._find_place() and self._refusal_count >= _MAX_REFUSALS:
                    raise
            except RecreatedTopicError as error:
                self._lose(Loss.recreated(error.topic, expected=error.expected, found=error.found))
            except CallTimeoutError:
                if not self._find_reason():
                    raise

    def _read_on(self) -> Iterator[Any]:
        options, split = self._options, self._split
        reading = read_range(
            self._connection.client,
            self._connection.config,
            split.tp,
            offset=self._position,
            end=split.end,
            max_bytes=options.fetch_bytes,
            timeout_ms=options.poll_timeout_ms,
            topic_id=split.topic_id,
        )

        async def next_fetched() -> FetchedBatches | None:
            return await anext(reading, None)

        try:
            while (fetched := self._connection.run(next_fetched())) is not None:
                yield from batches_of(self._decode(fetched), split, options.columns)
                self._position = fetched.next_offset
        finally:
            self._connection.run(reading.aclose())
        # The offsets that are left have no records.
        self._position = split.end

    def _decode(self, fetched: FetchedBatches) -> Columns:
        data = FetchedData(
            AssignedPartition(self._split.tp),
            fetched.records,
            fetched.offset,
            aborted=fetched.aborted if self._options.is_read_committed else None,
            check_crcs=self._connection.config.check_crcs,
        )
        builder = ColumnBuilder(len(fetched.records))
        data.take_columns(builder, len(fetched.records))
        assert data.is_drained, "an answer is smaller than a builder"
        return builder.finish()

    # Missing records

    def _find_place(self) -> bool:
        """Moves to the next offset that can be read, and reports the loss.

        Returns:
            False if the log has the offset, so that the read may be repeated.
        """
        tp, expected = self._split.tp, self._position
        lookup = ClusterLookup(self._connection)
        log_start = lookup.offsets({tp: EARLIEST})[tp]
        if expected < log_start:
            if not self._split.is_from_earliest:
                self._policy.report([Loss.below_log_start(tp, expected=expected, found=log_start)])
            self._position = log_start
            return True
        log_end = lookup.log_ends((tp,))[tp]
        if expected > log_end:
            self._lose(Loss.beyond_log_end(tp, expected=expected, found=log_end))
            return True
        return False

    def _find_reason(self) -> bool:
        """Reports the loss if a timeout is due to missing records; returns whether it was."""
        tp = self._split.tp
        lookup = ClusterLookup(self._connection)
        if not lookup.select(Selection(partitions=(tp,)), (tp,)).partitions:
            self._lose(Loss.gone(tp.topic))
            return True
        # The log's end counts, not the last stable offset: records behind an open transaction are
        # not lost.
        log_end = lookup.log_ends((tp,))[tp]
        if log_end < self._split.end:
            self._lose(Loss.beyond_log_end(tp, expected=self._split.end, found=log_end))
            return True
        return False

    def _lose(self, loss: Loss) -> None:
        """Reports a loss after which the split has nothing more to read."""
        self._policy.report([loss])
        self._position = self._split.end
