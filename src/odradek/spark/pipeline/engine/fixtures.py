"""Runs the tests that a pipeline's file holds: rows in, rows expected, no broker, no checkpoint.

The rows of a test take the place of its sources and go through the same frames as the stream's, as
a batch. They stand for decoded rows, so rules and watermarks apply to them; with `raw` they are
records (`key`, `value`, and what else a record has) that are decoded first. A source that a test
does not give is empty.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from odradek.spark.pipeline.engine import columns as names
from odradek.spark.pipeline.engine.build import Build
from odradek.spark.pipeline.engine.comparison import Difference, compare_rows
from odradek.spark.pipeline.engine.ddl import struct_of
from odradek.spark.pipeline.engine.decoding import record_schema, visible_schema
from odradek.spark.pipeline.engine.encoding import json_of
from odradek.spark.pipeline.engine.inputs import Records, Rows, rows_frame, table_frame
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.schemas import AvroSchemas
from odradek.spark.pipeline.engine.typed_rows import typed_frame
from odradek.spark.pipeline.graph.model import (
    Fixture,
    Pipeline,
    RowsInput,
    Source,
    TableInput,
    TopicInput,
)
from odradek.values import dataclass

__all__ = ["FixtureResult", "run_fixture"]

_DEAD_LETTERS: Final = "dlq"


@dataclass(frozen=True, slots=True)
class FixtureResult:
    """How a test ended: it passed if there is neither a difference nor an error."""

    name: str
    differences: tuple[Difference, ...]
    error: str | None = None

    @property
    def is_passed(self) -> bool:
        return self.error is None and not self.differences

    def lines(self) -> list[str]:
        """What is wrong, for a reader."""
        if self.error is not None:
            return self.error.splitlines()
        return [line for difference in self.differences for line in difference.lines()]


def run_fixture(
    session: SparkSession, pipeline: Pipeline, fixture: Fixture, schemas: AvroSchemas
) -> FixtureResult:
    """Runs one test."""
    try:
        return FixtureResult(fixture.name, tuple(_differences(session, pipeline, fixture, schemas)))
    except PipelineError as error:
        return FixtureResult(fixture.name, (), str(error))
    except Exception as error:  # noqa: BLE001 - a pipeline is anybody's code; told as it is
        return FixtureResult(fixture.name, (), f"{type(error).__name__}: {error}")


def _differences(
    session: SparkSession, pipeline: Pipeline, fixture: Fixture, schemas: AvroSchemas
) -> list[Difference]:
    inputs = FixtureInputs(session, fixture, schemas)
    build = Build(session, pipeline, inputs, schemas)
    found = []
    if fixture.dlq is not None:
        # First: it decides what the frames carry along.
        stages = [*pipeline.sources, *pipeline.transforms]
        letters = build.letters(_before(pipeline, fixture, stages))
        came = [] if letters is None else _collect(letters)
        found.append(compare_rows(_DEAD_LETTERS, fixture.dlq, came))
    for name, rows in fixture.expect.items():
        found.append(_compared(name, rows, build.frame(name), fixture))
    return [difference for difference in found if difference]


def _compared(
    name: str, rows: Sequence[Mapping[str, Any]], frame: DataFrame, fixture: Fixture
) -> Difference:
    columns = dict.fromkeys(column for row in rows for column in row)
    if unknown := [column for column in columns if column not in frame.columns]:
        raise PipelineError(
            f"{fixture.place}: expected rows of {name!r} name the columns {', '.join(unknown)},"
            f" it has {', '.join(frame.columns)}"
        )
    return compare_rows(name, rows, _collect(frame), is_ordered=fixture.ordered)


def _collect(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist(maps_as_pydicts="strict")
    return rows


def _before(pipeline: Pipeline, fixture: Fixture, stages: Sequence[str]) -> list[str]:
    """The stages whose letters count: all that the expected names and the sinks are made of."""
    open_ends = [*fixture.expect, *(sink.input for sink in pipeline.sinks.values())]
    found = set()
    while open_ends:
        name = open_ends.pop()
        if name not in found:
            found.add(name)
            if name in pipeline.transforms:
                open_ends.extend(pipeline.transforms[name].inputs)
    return [name for name in stages if name in found]


class FixtureInputs:
    """The rows of a test in the place of its sources."""

    def __init__(self, session: SparkSession, fixture: Fixture, schemas: AvroSchemas) -> None:
        self._session = session
        self._fixture = fixture
        self._schemas = schemas

    def frame(self, source: Source, *, with_headers: bool) -> Records | Rows:
        what = f"{self._fixture.place}: given rows of {source.name!r}"
        given = self._fixture.given.get(source.name, ())
        match source.input:
            case TopicInput() as topics if self._fixture.raw:
                schema = record_schema(with_headers=with_headers or topics.headers)
                return Records(
                    typed_frame(self._session, _numbered(given, topics), schema, what), topics
                )
            case TopicInput() as topics:
                schema = visible_schema(topics, self._schemas.reader)
                frame = typed_frame(self._session, given, schema, what)
                return Rows(_with_record(frame, given, schema) if with_headers else frame)
            case TableInput() as table:
                return Rows(self._table(source.name, table, given, what))
            case RowsInput() as rows:
                written = rows_frame(self._session, source.name, rows.rows)
                if source.name not in self._fixture.given:
                    return Rows(written.limit(0))
                return Rows(typed_frame(self._session, given, written.schema, what))

    def _table(
        self, name: str, table: TableInput, given: Sequence[Mapping[str, Any]], what: str
    ) -> DataFrame:
        if table.ddl is not None:
            return typed_frame(self._session, given, struct_of(table.ddl), what)
        if given:
            return rows_frame(self._session, name, given)
        return table_frame(self._session, name, table).limit(0)


def _numbered(given: Sequence[Mapping[str, Any]], topics: TopicInput) -> list[dict[str, Any]]:
    """Records as they would lie in the source's first topic, one behind the other."""
    topic = topics.topics[0] if topics.topics else None
    return [
        {"topic": topic, "partition": 0, "offset": number, "timestampType": 0, **row}
        for number, row in enumerate(given)
    ]


def _with_record(
    frame: DataFrame, given: Sequence[Mapping[str, Any]], schema: StructType
) -> DataFrame:
    """With a record for the dead letters of rows that never were one: their value is the row."""
    named = dict.fromkeys(column for row in given for column in row)
    present = [name for name in schema.names if name in named]
    value = json_of(present).cast("binary") if present else F.lit(None).cast("binary")
    return frame.withColumn(
        names.RECORD,
        F.struct(
            F.lit(None).cast("string").alias("topic"),
            F.lit(None).cast("int").alias("partition"),
            F.lit(None).cast("bigint").alias("offset"),
            F.lit(None).cast("timestamp").alias("timestamp"),
            F.lit(None).cast("binary").alias("key"),
            value.alias("value"),
        ),
    )
