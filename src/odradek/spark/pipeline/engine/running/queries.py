"""Starts the streaming query of a sink, and of the dead letters.

Topics and files are sinks of Spark; the others, and topics that are written exactly once, write one
batch at a time, and recognise by the query's id and the batch's number a batch that they have
already. Rows are counted before each sink.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TextIO, assert_never

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # It ships no types.
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import is_remote

from odradek.spark.datasource.option_values import OptionsError
from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.display.batch_progress import (
    SINK_METRIC,
    SINK_ROWS,
    BatchRow,
    parse_progress,
    position_text,
)
from odradek.spark.pipeline.engine.frames import dead_letters as letters
from odradek.spark.pipeline.engine.frames.build import Build
from odradek.spark.pipeline.engine.frames.encoding import encode
from odradek.spark.pipeline.engine.frames.inputs import FORMAT, StreamInputs
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.failed_parts import located
from odradek.spark.pipeline.engine.running.failures import (
    Failure,
    QueryStartError,
    parse_failure,
)
from odradek.spark.pipeline.engine.running.query_ids import QueryIds
from odradek.spark.pipeline.engine.running.query_plans import QueryPlan
from odradek.spark.pipeline.engine.sinks import BatchSink
from odradek.spark.pipeline.graph.model import (
    ConsoleTarget,
    DeadLetters,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    OutputMode,
    Pipeline,
    TopicTarget,
    Trigger,
    TriggerKind,
)
from odradek.spark.progress.listener import progress_of
from odradek.spark.transactional.errors import ExactlyOnceError
from odradek.spark.transactional.notes import CheckpointNotes
from odradek.spark.transactional.stream import stream_writer

__all__ = ["StartedQuery", "batch_sink", "start_query", "topic_options"]

logger = logging.getLogger(__name__)

_STARTING: Final = "Initializing sources"  # Spark's text.


def start_query(
    session: SparkSession, pipeline: Pipeline, plan: QueryPlan, schemas: AvroSchemas
) -> "StartedQuery":
    """Builds the frames of a query and starts it.

    Raises:
        PipelineError: It cannot be built, or Spark refuses it.
    """
    inputs = StreamInputs(session, pipeline, group=plan.group, start=plan.start)
    build = Build(session, pipeline, inputs, schemas)
    name = f"{pipeline.name}.{plan.name}"
    try:
        writer = _writer(pipeline, plan, build, schemas)
        if is_remote():  # Without Spark Connect, the listener finds the groups in the plan.
            progress_of(session).watch(name, inputs.progress_targets())
        writer = (
            writer.queryName(name)
            .outputMode(plan.output_mode.value)
            .option("checkpointLocation", plan.checkpoint)
            .trigger(**_trigger(plan.trigger))
        )
        return StartedQuery(
            plan.name, writer.start(), lambda failure: located(failure, pipeline, plan)
        )
    except (PySparkException, Py4JJavaError) as error:
        told = located(parse_failure(str(error)), pipeline, plan)
        raise QueryStartError(plan.name, told) from error
    except (ExactlyOnceError, OptionsError) as error:
        raise PipelineError(f"the query of {plan.name!r} is refused: {error}") from error


class StartedQuery:
    """A query of Spark as the supervisor sees it."""

    def __init__(
        self,
        name: str,
        query: StreamingQuery,
        locate: Callable[[Failure], Failure] = lambda failure: failure,
    ) -> None:
        self._name = name
        self._query = query
        self._locate = locate
        # Identifies the last report that was returned: Spark reports a batch without data
        # repeatedly, under the same number.
        self._last: tuple[int, str] | None = None
        self._position = ""
        self._lost = (0, 0)  # Gaps and offsets that were returned so far.

    def new_batches(self) -> list[BatchRow]:
        last = self._query.lastProgress
        if last is None or (last.batchId, last.timestamp) == self._last:
            return []
        rows = []
        for report in self._query.recentProgress:
            row = parse_progress(self._name, report.json)
            if self._last is None or (row.batch, row.timestamp) > self._last:
                self._last = (row.batch, row.timestamp)
                self._position = position_text(report.json)
                if "addBatch" in report.durationMs:  # Else it is a report without new data.
                    rows.append(self._since_last(row))
        return rows

    def _since_last(self, row: BatchRow) -> BatchRow:
        """The row with the losses since the last batch; sources report the total."""
        gaps, offsets = self._lost
        # After a restart, the repeated batch has no report of losses.
        self._lost = (max(row.lost_gaps, gaps), max(row.lost_offsets, offsets))
        return replace(row, lost_gaps=self._lost[0] - gaps, lost_offsets=self._lost[1] - offsets)

    def is_active(self) -> bool:
        return bool(self._query.isActive)

    def is_starting(self) -> bool:
        return self.is_active() and self._query.status["message"] == _STARTING

    def failure(self) -> Failure | None:
        error = self._query.exception()
        if error is None:
            return None
        return self._locate(parse_failure(str(error), position=self._position))

    def is_in_batch(self) -> bool:
        return bool(self._query.status["isTriggerActive"])

    def stop(self) -> None:
        try:
            self._query.stop()
        except (PySparkException, Py4JJavaError) as error:
            # Its thread hangs in a sink; it ends with the process.
            logger.warning("the query of %s does not stop: %s", self._name, error)


def _writer(
    pipeline: Pipeline, plan: QueryPlan, build: Build, schemas: AvroSchemas
) -> DataStreamWriter:
    if plan.sink is None:
        return _letters_writer(pipeline, plan, build)
    rows = build.frame(plan.sink.input)
    if not rows.isStreaming:
        raise PipelineError(
            f"{plan.sink.place}: the sink {plan.name!r} reads only tables and rows: expected a"
            " topic to stream"
        )
    target = plan.sink.target
    match target:
        case TopicTarget():
            records = encode(rows, target, plan.name, schemas.writer)
            options = topic_options(pipeline, target.topic, target.kafka)
            return _topic_writer(pipeline, plan, records, options, target)
        case FilesTarget():
            writer = _counted(rows).writeStream.format(target.format).option("path", target.path)
            if target.max_records_per_file is not None:
                writer = writer.option("maxRecordsPerFile", target.max_records_per_file)
            if target.partition_by:
                writer = writer.partitionBy(*target.partition_by)
            return writer.options(**dict(target.options))
        case DeltaTarget() | JdbcTarget() | ConsoleTarget():
            if isinstance(target, ConsoleTarget) and is_remote():
                raise PipelineError(
                    f"{plan.sink.place}: the sink {plan.name!r} would print on the Spark Connect"
                    " server, where batches are handled: use another sink, or another master"
                )
            sink = batch_sink(plan.name, target, sys.stdout)
            return _counted(rows).writeStream.foreachBatch(_batch_writer(sink, plan.checkpoint))
        case _:
            assert_never(target)


def _letters_writer(pipeline: Pipeline, plan: QueryPlan, build: Build) -> DataStreamWriter:
    found = build.letters(plan.stages)
    if found is None or pipeline.dead_letters is None:
        raise PipelineError("no stage of the pipeline has dead letters to write")
    records = letters.written_letters(found, pipeline.name)
    options = topic_options(pipeline, pipeline.dead_letters.topic, pipeline.dead_letters.kafka)
    return _topic_writer(pipeline, plan, records, options, pipeline.dead_letters)


def _topic_writer(
    pipeline: Pipeline,
    plan: QueryPlan,
    records: DataFrame,
    options: Mapping[str, str],
    target: TopicTarget | DeadLetters,
) -> DataStreamWriter:
    if target.exactly_once:
        name = f"{pipeline.name}.{plan.name}"
        return stream_writer(
            _counted(records), None, checkpoint=plan.checkpoint, name=name, options=options
        )
    # If it is made exactly-once again, the batches from now on have no markers.
    CheckpointNotes(plan.checkpoint).remove()
    if plan.output_mode is OutputMode.UPDATE:
        return _update_topic(records, options)
    return _to_topic(records, options)


def _to_topic(records: DataFrame, options: Mapping[str, str]) -> DataStreamWriter:
    return _counted(records).writeStream.format(FORMAT).options(**options)


def topic_options(pipeline: Pipeline, topic: str, kafka: Mapping[str, str]) -> dict[str, str]:
    """The options for writing to a topic; `kafka` may override the pipeline's cluster."""
    options = {"kafka.bootstrap.servers": pipeline.bootstrap or "", "topic": topic}
    return options | {f"kafka.{key}": value for key, value in kafka.items()}


def _update_topic(records: DataFrame, options: Mapping[str, str]) -> DataStreamWriter:
    """Writes batches: Spark does not pass updates to a streaming sink in Python."""

    def write(frame: DataFrame, batch_id: int) -> None:
        del batch_id  # A batch that is run again is written again.
        frame.write.format(FORMAT).mode("append").options(**options).save()

    return _counted(records).writeStream.foreachBatch(write)


def _counted(rows: DataFrame) -> DataFrame:
    return rows.observe(SINK_METRIC, F.count(F.lit(1)).alias(SINK_ROWS))


def batch_sink(
    name: str, target: DeltaTarget | JdbcTarget | ConsoleTarget, out: TextIO
) -> BatchSink:
    """The sink of a target; the package it needs is imported here, for its users only."""
    match target:
        case DeltaTarget():
            from odradek.spark.pipeline.engine.sinks.delta import DeltaSink

            return DeltaSink(target)
        case JdbcTarget():
            from odradek.spark.pipeline.engine.sinks.jdbc import JdbcSink

            return JdbcSink(target)
        case ConsoleTarget():
            from odradek.spark.pipeline.engine.sinks.console import ConsoleSink

            return ConsoleSink(target, name, out)


def _batch_writer(sink: BatchSink, checkpoint: str) -> Callable[[DataFrame, int], None]:
    """The function that Spark calls with each batch: here, or on a Spark Connect server."""
    ids = QueryIds(checkpoint)

    def write(frame: DataFrame, batch_id: int) -> None:
        sink.write(frame, batch_id, ids.find())

    return write


def _trigger(trigger: Trigger) -> dict[str, Any]:
    match trigger.kind:
        case TriggerKind.ONCE:
            return {"availableNow": True}
        case TriggerKind.CONTINUOUS:
            return {"processingTime": "0 seconds"}
        case TriggerKind.EVERY:
            return {"processingTime": f"{trigger.interval_ms} milliseconds"}
        case _:
            assert_never(trigger.kind)
