"""The readers that Spark calls: they plan a batch or a stream, and read its parts.

Spark makes several of these objects, and sends them between processes: they have only options and,
in the process that drives a stream, the planner.
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
        """One task per partition of a topic, or more if the options ask for them."""
        options = self._options
        with CONNECTIONS.lease(options.kafka) as connection:
            lookup = ClusterLookup(connection)
            ranges = self._pushed.narrowed(plan_batch(lookup, options), lookup)
        return [InputPartition(split) for split in cut(ranges, options.split)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task as Arrow batches."""
        # Spark turns an empty list into one partition without a value.
        if partition.value is None:
            return iter(())
        assert isinstance(partition.value, Split)
        return read_split(self._options, partition.value)


class FilteringReader(BatchReader):
    """A `BatchReader` with `pushFilters=true`: Spark passes the filters of the query to it.

    A class of its own, because Spark refuses a reader with `pushFilters` unless
    `spark.sql.python.filterPushdown.enabled` is set. Spark keeps the pushed filters as long as the
    frame exists, also for queries with other filters: a frame serves one query only.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Applies filters that narrow ranges of offsets; returns those Spark still has to check."""
        self._pushed, rest = push_filters(filters)
        if self._pushed != Pushed():
            logger.warning(
                "pushFilters: this frame reads only the records of its first query; load it again "
                "for another query"
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
        """Freezes the end of the stream."""
        with CONNECTIONS.lease(self._options.kafka) as connection:
            self._plan().freeze(ClusterLookup(connection))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position where a new query begins."""
        with CONNECTIONS.lease(self._options.kafka) as connection:
            return self._plan().initial(ClusterLookup(connection)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit that Spark passes to `latestOffset`, unless the trigger reads everything."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The position where the next batch ends."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        position = Position.parse(start)
        with CONNECTIONS.lease(self._options.kafka) as connection:
            end = self._plan().end(
                ClusterLookup(connection),
                position,
                self._options.limits if is_limited else _NO_LIMITS,
            )
        # `start` as given, not written again: Spark compares the text.
        return start if end is position else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The end of the topics as last looked up; Spark shows it in the progress.

        A source in Python can add numbers of its own nowhere else, so the losses so far are
        reported beside it, if there are any.
        """
        planner = self._plan()
        if planner.latest is None:
            return None
        return planner.latest.to_json() | lost_json(planner.losses)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, computed from its start and end alone."""
        first, last = Position.parse(start), Position.parse(end)
        self._plan().on_batch()
        if not (self._options.is_failing_on_data_loss or self._plan().has_planned(last)):
            self._note_replay(first, last)
        return [InputPartition(split) for split in splits_between(first, last)]

    def _note_replay(self, start: Position, end: Position) -> None:
        """Counts losses of a replayed batch. An error here is only logged; the tasks would fail."""
        try:
            with CONNECTIONS.lease(self._options.kafka) as connection:
                self._plan().note_replay(ClusterLookup(connection), start, end)
        except (OdradekError, OSError) as error:
            logger.warning("losses of a batch that runs again are not counted: %s", error)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task as Arrow batches."""
        assert isinstance(partition.value, Split)
        return read_split(self._options, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the position is in Spark's checkpoint."""

    def stop(self) -> None:
        """Closes the connections of the planning process."""
        CONNECTIONS.close_unused()
