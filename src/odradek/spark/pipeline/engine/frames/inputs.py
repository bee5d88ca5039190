"""The frames of sources: topics, tables, rows."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.engine.frames.columns import struct_of
from odradek.spark.pipeline.engine.frames.source_options import (
    reading_options,
    starting_options,
    without_start,
)
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import (
    Pipeline,
    RowsInput,
    Source,
    StartPosition,
    TableInput,
    TopicInput,
)
from odradek.spark.pipeline.graph.topics import position_for
from odradek.spark.progress.targets import ProgressTarget, target_of

__all__ = [
    "Inputs",
    "PipelineRows",
    "Records",
    "StreamInputs",
    "rows_frame",
    "static_rows",
    "table_frame",
]

FORMAT = "odradek"


@dataclass(frozen=True, slots=True)
class Records:
    """Records that are not decoded yet."""

    frame: DataFrame
    topics: TopicInput


@dataclass(frozen=True, slots=True)
class PipelineRows:
    """Rows that need no decoding."""

    frame: DataFrame


class Inputs(Protocol):
    """Reads the frames of sources."""

    def frame(self, source: Source, *, with_headers: bool) -> Records | PipelineRows:
        """The frame of a source; `with_headers` adds the headers of records in any case."""
        ...


class StreamInputs:
    """Topics as streams, tables with their present content.

    Args:
        session: The Spark session.
        pipeline: The pipeline whose sources are read.
        group: The group that shows the progress of the query.
        start: Where a new query begins; overrides the sources. Offsets may be of several sources.
    """

    def __init__(
        self,
        session: SparkSession,
        pipeline: Pipeline,
        *,
        group: str,
        start: StartPosition | None = None,
    ) -> None:
        self._session = session
        self._pipeline = pipeline
        self._group = group
        self._start = start
        self._targets: list[ProgressTarget] = []

    def progress_targets(self) -> tuple[ProgressTarget, ...]:
        """The groups of all topics that were read; one, if all are the same."""
        return tuple(dict.fromkeys(self._targets))

    def frame(self, source: Source, *, with_headers: bool) -> Records | PipelineRows:
        match source.input:
            case TopicInput() as topics:
                options = reading_options(
                    topics,
                    self._pipeline.bootstrap or "",
                    with_headers=with_headers or topics.headers,
                    is_streaming=True,
                )
                options["progressGroup"] = self._group
                if self._start is not None:
                    start = position_for(topics, self._start)
                    options = without_start(options) | starting_options(start)
                if (target := target_of(options)) is not None:
                    self._targets.append(target)
                reader = self._session.readStream.format(FORMAT).options(**options)
                return Records(reader.load(), topics)
            case given:
                return static_rows(self._session, source.name, given)


def static_rows(session: SparkSession, name: str, given: TableInput | RowsInput) -> PipelineRows:
    """The present content of a source that is not a stream.

    Raises:
        PipelineError: It cannot be read.
    """
    if isinstance(given, TableInput):
        return PipelineRows(table_frame(session, name, given))
    return PipelineRows(rows_frame(session, name, given.rows))


def table_frame(session: SparkSession, name: str, table: TableInput) -> DataFrame:
    """The present content of a table.

    Raises:
        PipelineError: It cannot be read.
    """
    try:
        if table.format == "delta":
            return _delta_frame(session, table)
        reader = session.read.format(table.format)
        if table.ddl is not None:
            reader = reader.schema(table.ddl)
        if table.format == "csv":
            reader = reader.option("header", "true").option("inferSchema", str(table.ddl is None))
        return reader.load(table.path)
    except Exception as error:
        raise PipelineError(
            f"source {name!r}: the {table.format} table {table.path} cannot be read: {error}"
        ) from error


def rows_frame(session: SparkSession, name: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows of the file; the types are those of the values.

    Raises:
        PipelineError: Values of one column have different types.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    try:
        held = {column: pa.array([row.get(column) for row in rows]) for column in columns}
        return session.createDataFrame(pa.table(held))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise PipelineError(
            f"source {name!r}: the values of its rows do not make a table: {error}"
        ) from error


def _delta_frame(session: SparkSession, table: TableInput) -> DataFrame:
    """Reads a Delta table into the driver's memory: it is small, and no jar is needed."""
    from deltalake import DeltaTable

    # Without threads: Arrow's outlive the reading, and abort a process that ends just then.
    rows = DeltaTable(table.path).to_pyarrow_dataset().to_table(use_threads=False)
    frame = session.createDataFrame(rows)
    if table.ddl is None:
        return frame
    return frame.to(struct_of(table.ddl))
