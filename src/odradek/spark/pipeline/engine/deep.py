"""Has Spark look at every query of a pipeline without running one: `validate --deep`.

Topics are streams that nobody asks for records, so no broker is needed; a table with a schema is
empty, one without is looked at. What Spark refuses when a query starts (an aggregate without
watermark in append mode, say) is found by the check that it makes then.
"""

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # It ships no types.
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from odradek.spark.pipeline.engine.build import Build
from odradek.spark.pipeline.engine.ddl import struct_of
from odradek.spark.pipeline.engine.encoding import encode
from odradek.spark.pipeline.engine.failures import parse_failure
from odradek.spark.pipeline.engine.inputs import Records, Rows, StreamInputs
from odradek.spark.pipeline.engine.problems import PipelineError, StageError
from odradek.spark.pipeline.engine.schemas import AvroSchemas
from odradek.spark.pipeline.engine.typed_rows import typed_frame
from odradek.spark.pipeline.graph.model import (
    OutputMode,
    Pipeline,
    Place,
    Sink,
    Source,
    TableInput,
    TopicTarget,
    Transform,
)

__all__ = ["deep_problems"]


def deep_problems(session: SparkSession, pipeline: Pipeline) -> list[tuple[Place, str]]:
    """What Spark finds wrong: a place of the file and a message, each once."""
    inputs = _NoInputs(session, pipeline)
    schemas = AvroSchemas(pipeline.registry)
    build = Build(session, pipeline, inputs, schemas)
    found: dict[tuple[Place, str], None] = {}
    stages: dict[str, Source | Transform] = {**pipeline.sources, **pipeline.transforms}
    for name, stage in stages.items():
        try:
            build.frame(name)
        except StageError as error:
            found[error.place, error.message] = None
        except PipelineError as error:
            found[stage.place, str(error)] = None
    for sink in pipeline.sinks.values():
        try:
            _check_sink(session, sink, build, schemas)
        except StageError as error:
            found[error.place, error.message] = None
        except PipelineError as error:
            found[sink.place, str(error)] = None
    return list(found)


class _NoInputs(StreamInputs):
    """Sources without rows."""

    def __init__(self, session: SparkSession, pipeline: Pipeline) -> None:
        super().__init__(session, pipeline, group="")
        self._session = session

    def frame(self, source: Source, *, with_headers: bool) -> Records | Rows:
        if isinstance(source.input, TableInput) and source.input.ddl is not None:
            schema = struct_of(source.input.ddl)
            return Rows(typed_frame(self._session, (), schema, source.name))
        return super().frame(source, with_headers=with_headers)


def _check_sink(session: SparkSession, sink: Sink, build: Build, schemas: AvroSchemas) -> None:
    rows = build.frame(sink.input)
    if isinstance(sink.target, TopicTarget):
        encode(rows, sink.target, sink.name, schemas.writer)
    if rows.isStreaming and not is_remote():
        _check_streaming(session, rows, sink.output_mode)


def _check_streaming(session: SparkSession, rows: DataFrame, mode: OutputMode) -> None:
    """Spark's own check of a streaming plan, which it makes when a query starts."""
    jvm = session._jvm  # noqa: SLF001 - Spark has no public way to it
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    wanted = {
        OutputMode.APPEND: modes.Append,
        OutputMode.UPDATE: modes.Update,
        OutputMode.COMPLETE: modes.Complete,
    }[mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), wanted)  # noqa: SLF001
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"Spark would refuse it: {parse_failure(str(error))}") from error
