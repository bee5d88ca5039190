"""The topic sink: writes rows as records, at least once.

Every task writes its rows with an idempotent producer and ends when the brokers have acknowledged
all of them; a record that they refuse fails the task. A task or batch that Spark repeats is written
again. Columns and options are checked before any row.

Objects of this module are pickled between processes: they have settings, and no connection.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from odradek.spark.datasource.gathering import gathered
from odradek.spark.datasource.option_values import OptionsError
from odradek.spark.datasource.writer_columns import SinkColumns, parse_sink_columns
from odradek.spark.datasource.writer_options import SinkOptions, parse_sink_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RowsWritten", "batch_writer", "stream_writer"]

# Spark passes ten thousand rows at a time; more of them make fuller batches for each partition.
_GATHERED_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class RowsWritten(WriterCommitMessage):
    """The number of rows that a task has written."""

    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sink:
    options: SinkOptions
    columns: SinkColumns

    def write(self, batches: Iterator[Any]) -> RowsWritten:
        """Writes the rows of one task; all are acknowledged when this returns."""
        # Imported here: a process of the driver makes this object, only tasks need the producer.
        from odradek.spark.datasource.writer_producers import leased_producer

        columns = self.columns
        count = 0
        with leased_producer(self.options.producer) as producer:
            deliveries = []
            for table in gathered(batches, _GATHERED_BYTES):
                count += table.num_rows
                delivery = producer.send_arrow(
                    self.options.topic,
                    table,
                    key="key" if columns.has_key else None,
                    headers="headers" if columns.has_headers else None,
                    partition="partition" if columns.has_partition else None,
                    timestamp=None,  # The time of the write, as with any other producer.
                    topic_column="topic" if columns.has_topic else None,
                )
                deliveries.append(delivery)
            producer.flush()
            for delivery in deliveries:
                delivery.result()
        return RowsWritten(count)


class TopicBatchWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> RowsWritten:
        """Writes the rows of one task."""
        return self._sink.write(iterator)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query. A batch needs no commit: its rows are in the topic."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> RowsWritten:
        """Writes the rows of one task of a micro-batch."""
        return self._sink.write(iterator)


def batch_writer(
    options: Mapping[str, str], schema: "StructType", overwrite: bool
) -> TopicBatchWriter:
    """The result of `DefaultSource.writer`.

    Raises:
        OptionsError: Options or columns cannot be used.
        ValueError: The mode is `overwrite`.
    """
    if overwrite:
        raise ValueError(
            "a topic cannot be overwritten: its records stay until retention removes them; "
            'use .mode("append")'
        )
    return TopicBatchWriter(_read_sink(options, schema))


def stream_writer(
    options: Mapping[str, str],
    schema: "StructType",
    overwrite: bool,  # noqa: ARG001 - output mode complete: the whole result, as records once more
) -> TopicStreamWriter:
    """The result of `DefaultSource.streamWriter`.

    Raises:
        OptionsError: Options or columns cannot be used.
    """
    return TopicStreamWriter(_read_sink(options, schema))


def _read_sink(options: Mapping[str, str], schema: "StructType") -> _Sink:
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    try:
        parsed = parse_sink_options(options)
    except OptionsError as error:
        raise OptionsError([*error.problems, *_problems_of_columns(fields, options)]) from None
    columns = parse_sink_columns(
        fields, topic=parsed.topic, is_writing_headers=parsed.is_writing_headers
    )
    return _Sink(options=parsed, columns=columns)


def _problems_of_columns(
    fields: Sequence[tuple[str, str]], options: Mapping[str, str]
) -> Sequence[str]:
    has_topic = any(name.lower() == "topic" for name in options)
    try:
        parse_sink_columns(fields, topic="any" if has_topic else None, is_writing_headers=True)
    except OptionsError as error:
        return error.problems
    return ()
