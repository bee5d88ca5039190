"""Runs past records through a pipeline again, as a batch.

The transforms are the same; the checkpoints and groups of the running queries are not touched. A
topic gets the rows again, and so does a Delta table without `merge_key`; with it, and in `jdbc`,
they are upserts. A topic with `exactly_once` gets the rows between the same offsets once. Files are
written to a folder of their own, `<path>.backfill`: Spark reads a folder of a stream by the
stream's list of files, and would not see others there. Dead letters are counted, not written: the
running query wrote its own when it read the records.
"""

import contextlib
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.display.batch_progress import DECODE, EXPECT_PREFIX
from odradek.spark.pipeline.engine.frames.build import Build
from odradek.spark.pipeline.engine.frames.encoding import encode
from odradek.spark.pipeline.engine.frames.inputs import FORMAT, PipelineRows, Records, static_rows
from odradek.spark.pipeline.engine.operations.backfill_ranges import (
    Range,
    batch_options,
    range_of,
)
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.failures import parse_failure
from odradek.spark.pipeline.engine.running.queries import batch_sink, topic_options
from odradek.spark.pipeline.engine.running.query_plans import dead_rules
from odradek.spark.pipeline.graph.guarantees import is_exactly_once
from odradek.spark.pipeline.graph.model import (
    ConsoleTarget,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    Pipeline,
    Sink,
    Source,
    StartPosition,
    TopicInput,
    TopicTarget,
)
from odradek.spark.pipeline.graph.queries import letter_stages, stages_of
from odradek.spark.transactional.stream import write_once

__all__ = ["BatchInputs", "backfill", "count_letters"]


class BatchInputs:
    """Topics between two positions, tables with their present content."""

    def __init__(
        self, session: SparkSession, pipeline: Pipeline, start: StartPosition, end: StartPosition
    ) -> None:
        self._session = session
        self._pipeline = pipeline
        self._start = start
        self._end = end

    def frame(self, source: Source, *, with_headers: bool) -> Records | PipelineRows:
        match source.input:
            case TopicInput() as topics:
                options = batch_options(
                    self._pipeline,
                    topics,
                    self._start,
                    self._end,
                    with_headers=with_headers or topics.headers,
                )
                reader = self._session.read.format(FORMAT).options(**options)
                return Records(reader.load(), topics)
            case given:
                return static_rows(self._session, source.name, given)


def backfill(
    session: SparkSession,
    pipeline: Pipeline,
    sinks: Sequence[Sink],
    *,
    start: StartPosition,
    end: StartPosition,
) -> dict[str, int]:
    """Runs records between two positions into sinks, one after the other.

    Returns:
        The number of rows written to each sink.

    Raises:
        PipelineError: A query cannot be built, or fails; the sinks before it have their rows.
    """
    schemas = AvroSchemas(pipeline.registry)
    counts = {}
    for sink in sinks:
        with _telling(f"the backfill of {sink.name!r} failed"):
            # What is written once has to be the same offsets each time.
            found = range_of(pipeline, sink, start, end) if is_exactly_once(sink.target) else None
            first, last = (start, end) if found is None else (found.start, found.end)
            inputs = BatchInputs(session, pipeline, first, last)
            rows = Build(session, pipeline, inputs, schemas).frame(sink.input)
            counts[sink.name] = _write(rows, pipeline, sink, schemas, found)
    return counts


def count_letters(
    session: SparkSession,
    pipeline: Pipeline,
    sinks: Sequence[Sink],
    *,
    start: StartPosition,
    end: StartPosition,
) -> dict[tuple[str, str], int]:
    """Counts the dead letters among the records between two positions.

    The records are read again for it, but only if a stage before the sinks can have letters. They
    cannot be counted while a sink writes, since it may compute its frame more than once.

    Returns:
        Stage and reason (`decode`, `expect:<rule>`) -> letters, also where there are none.

    Raises:
        PipelineError: The query cannot be built, or fails.
    """
    used = {stage for sink in sinks for stage in stages_of(pipeline, sink.name)}
    stages = [stage for stage in letter_stages(pipeline) if stage in used]
    counts = {
        (stage, rule if rule == DECODE else EXPECT_PREFIX + rule): 0
        for stage, rule in sorted(dead_rules(pipeline))
        if stage in stages
    }
    if not counts:
        return {}
    inputs = BatchInputs(session, pipeline, start, end)
    with _telling("the dead letters cannot be counted"):
        found = Build(session, pipeline, inputs, AvroSchemas(pipeline.registry)).letters(stages)
        assert found is not None, "a stage has letters"
        for row in found.groupBy("stage", "reason").count().collect():
            counts[row["stage"], row["reason"]] = row["count"]
    return counts


@contextlib.contextmanager
def _telling(what: str) -> Iterator[None]:
    """Turns every error into a `PipelineError` with a prefix."""
    try:
        yield
    except PipelineError:
        raise
    except PySparkException as error:
        raise PipelineError(f"{what}: {parse_failure(str(error))}") from error
    except Exception as error:  # Of the library of a sink.
        raise PipelineError(f"{what}: {type(error).__name__}: {error}") from error


def _write(
    rows: DataFrame, pipeline: Pipeline, sink: Sink, schemas: AvroSchemas, found: Range | None
) -> int:
    target = sink.target
    match target:
        case TopicTarget():
            records = encode(rows, target, sink.name, schemas.writer)
            options = topic_options(pipeline, target.topic, target.kafka)
            if found is not None:
                name = f"{pipeline.name}.{sink.name}.backfill"
                return write_once(records, options, name=name, digest=found.digest)
            counted, count = _counted(records)
            counted.write.format(FORMAT).mode("append").options(**options).save()
            return count()
        case FilesTarget():
            counted, count = _counted(rows)
            writer = counted.write.format(target.format).mode("append")
            if target.max_records_per_file is not None:
                writer = writer.option("maxRecordsPerFile", target.max_records_per_file)
            if target.partition_by:
                writer = writer.partitionBy(*target.partition_by)
            writer.options(**dict(target.options)).save(f"{target.path}.backfill")
            return count()
        case DeltaTarget() | JdbcTarget() | ConsoleTarget():
            # A new query id each time, so that the sink does not have the batch yet.
            query_id = f"backfill-{secrets.token_hex(8)}"
            return batch_sink(sink.name, target, sys.stdout).write(rows, 0, query_id)
        case _:
            assert_never(target)


def _counted(rows: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """The rows, and a function that returns their number once they are written."""
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    return counted, lambda: int(seen.get["rows"])
