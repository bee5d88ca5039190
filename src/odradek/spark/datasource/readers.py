"""What Spark asks of a source: plan a batch or a stream, and read its parts.

Spark makes several of these objects, in different processes, and sends them about: they hold
nothing but options and, in the process that drives a stream, the planner.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.clock import SystemClock
from odradek.errors import OdradekError
from odradek.spark.datasource.connections import CONNECTIONS
from odradek.spark.datasource.data_loss import lost_json
from odradek.spark.datasource.limits import Limits
from odradek.spark.datasource.lookup import ClusterLookup
from odradek.spark.datasource.offsets import Position
from odradek.spark.datasource.options import SourceOptions
from odradek.spark.datasource.planning import StreamPlanner, plan_batch
from odradek.spark.datasource.pushdown import Pushed, push_filters
from odradek.spark.datasource.reading import read_split
from odradek.spark.datasource.splits import Split, cut, splits_between

__all__ = ["BatchReader", "FilteringReader", "StreamReader"]

logger = logging.getLogger(__name__)

_NO_LIMITS: Final = Limits()


class BatchReader(DataSourceReader):
    """Reads topics once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """One task per partition of a topic, or more as options ask for."""
        options = self._options
        with CONNECTIONS.lease(options.kafka) as connection:
            lookup = ClusterLookup(connection)
            ranges = self._pushed.narrowed(plan_batch(lookup, options), lookup)
        return [InputPartition(split) for split in cut(ranges, options.split)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task as Arrow batches."""
        # Spark makes a partition without a value of an empty list.
        if partition.value is None:
            return iter(())
        assert isinstance(partition.value, Split)
        return read_split(self._options, partition.value)


class FilteringReader(BatchReader):
    """The same, with `pushFilters=true`: Spark tells which records a query wants.

    A class of its own, because Spark refuses a reader that could be told, unless
    `spark.sql.python.filterPushdown.enabled` is set. Spark keeps what it has told for as long as
    the frame lives, also for queries with other filters: a frame is good for one query.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes what narrows ranges of offsets; returns what Spark still has to check."""
        self._pushed, rest = push_filters(filters)
        if self._pushed != Pushed():
            logger.warning(
                "pushFilters: this frame reads no more than its first query asked for; load it "
                "again for another query"
            )
        return rest


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> SourceOptions:
        # The planner stays in the process that plans.
        return self._options

    def __setstate__(self, options: SourceOptions) -> None:
        self.__init__(options)  # type: ignore[misc]  # as a new one with the same options

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options, SystemClock())
        return self._planner

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Freezes where the stream ends."""
        with CONNECTIONS.lease(self._options.kafka) as connection:
            self._plan().freeze(ClusterLookup(connection))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        with CONNECTIONS.lease(self._options.kafka) as connection:
            return self._plan().initial(ClusterLookup(connection)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What Spark hands to `latestOffset`, unless the trigger is to read everything."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        position = Position.parse(start)
        with CONNECTIONS.lease(self._options.kafka) as connection:
            end = self._plan().end(
                ClusterLookup(connection),
                position,
                self._options.limits if is_limited else _NO_LIMITS,
            )
        # As it came: Spark compares the text.
        return start if end is position else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The end of the topics as it was last told; Spark shows it in the progress.

        Sources in Python have no other place for numbers of their own there: what was lost so far
        stands beside it, once there is any.
        """
        planner = self._plan()
        if planner.latest is None:
            return None
        return planner.latest.to_json() | lost_json(planner.losses)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, made of its two ends alone."""
        first, last = Position.parse(start), Position.parse(end)
        self._plan().on_batch()
        if not (self._options.is_failing_on_data_loss or self._plan().has_planned(last)):
            self._note_replay(first, last)
        return [InputPartition(split) for split in splits_between(first, last)]

    def _note_replay(self, start: Position, end: Position) -> None:
        """Counting is no reason to fail: the tasks will say what is wrong."""
        try:
            with CONNECTIONS.lease(self._options.kafka) as connection:
                self._plan().note_replay(ClusterLookup(connection), start, end)
        except (OdradekError, OSError) as error:
            logger.warning("what is lost of a batch that is run again is not counted: %s", error)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task as Arrow batches."""
        assert isinstance(partition.value, Split)
        return read_split(self._options, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the position is in Spark's checkpoint."""

    def stop(self) -> None:
        """Closes the connections of the process that planned."""
        CONNECTIONS.close_unused()
