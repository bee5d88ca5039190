"""Builds the DataFrames of a pipeline's graph, the same way for a stream, a batch and a test.

Each query has a `Build` of its own, since a table is read with its content at the start of a query.
The frame of a stage is built when it is first requested. A stage treats its rows in this order:
decode (sources), check and remove (`expect`), set the watermark. The watermark comes last, so that
a row that was removed for an impossible time does not move it.
"""

import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.frames import columns as names
from odradek.spark.pipeline.engine.frames import dead_letters as letters
from odradek.spark.pipeline.engine.frames.checks import checked, dead_reasons, staying
from odradek.spark.pipeline.engine.frames.decoding import can_fail, decode
from odradek.spark.pipeline.engine.frames.inputs import Inputs, Records
from odradek.spark.pipeline.engine.frames.python_steps import find_function, importing_from
from odradek.spark.pipeline.engine.frames.times import drop_duplicates, mark_time
from odradek.spark.pipeline.engine.problems import PipelineError, StageError
from odradek.spark.pipeline.graph.model import (
    Action,
    Dedup,
    OnError,
    Pipeline,
    Place,
    PythonFunction,
    Select,
    Source,
    TopicInput,
    Transform,
)

__all__ = ["Build"]

# The inputs of a SELECT are temporary views of the session, so only one query at a time is built
# with them, and they are dropped when its plan is built.
_views: Final = threading.Lock()

_LINE_IN_SQL: Final = re.compile(r"\bline (\d+)")


class Build:
    """The frames of one query."""

    def __init__(
        self, session: SparkSession, pipeline: Pipeline, inputs: Inputs, schemas: AvroSchemas
    ) -> None:
        self._session = session
        self._pipeline = pipeline
        self._inputs = inputs
        self._schemas = schemas
        self._checked: dict[str, DataFrame] = {}
        self._frames: dict[str, DataFrame] = {}
        self._with_records = False

    def frame(self, name: str) -> DataFrame:
        """The rows of a source or transform that stay.

        Raises:
            PipelineError: It cannot be built; the message says where and why.
        """
        found = self._frames.get(name)
        if found is None:
            found = self._frames[name] = self._build(name)
        return found

    def letters(self, stages: Sequence[str]) -> DataFrame | None:
        """The dead letters of stages; None if they have none.

        Must be called before `frame`, so that sources keep their records with the rows.
        """
        assert not self._frames, "frames were built without their records"
        self._with_records = True
        found = []
        for name in stages:
            rules = self._stage(name).expect
            reasons = dead_reasons(rules, _on_error(self._stage(name)))
            if reasons:
                self.frame(name)
                found.append(letters.letters_of(self._checked[name], name, rules, reasons))
        return letters.union(found) if found else None

    def _stage(self, name: str) -> Source | Transform:
        return self._pipeline.sources.get(name) or self._pipeline.transforms[name]

    def _build(self, name: str) -> DataFrame:
        stage = self._stage(name)
        if isinstance(stage, Source):
            rows, on_error = self._read(stage)
        else:
            rows, on_error = self._apply(stage), None
        if stage.expect or on_error is not None:
            try:
                judged = checked(rows, name, stage.expect, on_error=on_error)
            except PySparkException as error:
                raise StageError(
                    stage.place, f"the rules of {name!r} do not fit its rows: {_told(error)}"
                ) from error
            self._checked[name] = judged
            rows = staying(judged)
        if stage.watermark is not None:
            if stage.watermark.column not in rows.columns:
                raise StageError(
                    stage.place,
                    f"expected the column {stage.watermark.column!r} for the watermark of"
                    f" {name!r}, found {', '.join(rows.columns)}",
                )
            rows = mark_time(rows, stage.watermark)
        return rows

    def _read(self, source: Source) -> tuple[DataFrame, OnError | None]:
        keep = self._with_records and _has_letters(source)
        given = self._inputs.frame(source, with_headers=keep)
        if not isinstance(given, Records):
            return given.frame, None
        rows = decode(given.frame, given.topics, self._schemas.reader, keep_record=keep)
        if can_fail(given.topics) or keep:
            return rows, given.topics.on_error
        return rows.drop(names.ERROR), None

    def _apply(self, transform: Transform) -> DataFrame:
        frames = [self.frame(name) for name in transform.inputs]
        match transform.step:
            case Select() as select:
                return self._select(transform, select, frames)
            case PythonFunction() as function:
                return self._call(transform, function, frames)
            case Dedup() as dedup:
                return drop_duplicates(frames[0], dedup, transform)

    def _select(
        self, transform: Transform, select: Select, frames: Sequence[DataFrame]
    ) -> DataFrame:
        with _views:
            try:
                for name, frame in zip(transform.inputs, frames, strict=True):
                    frame.createOrReplaceTempView(name)
                return self._session.sql(select.sql)
            except PySparkException as error:
                raise _sql_error(transform, select, error) from error
            finally:
                if not is_remote():  # Spark Connect resolves the views when the query starts.
                    for name in transform.inputs:
                        self._session.catalog.dropTempView(name)

    def _call(
        self, transform: Transform, function: PythonFunction, frames: Sequence[DataFrame]
    ) -> DataFrame:
        folder = os.path.dirname(os.path.abspath(self._pipeline.file))
        call = function.call or self._find(transform, function.reference, folder)
        try:
            with importing_from(folder):
                made = call(*frames)
        except Exception as error:
            raise StageError(
                transform.place,
                f"the function of {transform.name!r} raised {type(error).__name__}: {error}",
            ) from error
        if not isinstance(made, DataFrame):
            raise StageError(
                transform.place,
                f"expected a DataFrame from the function of {transform.name!r}, found"
                f" {type(made).__name__}",
            )
        return made

    def _find(self, transform: Transform, reference: str, folder: str) -> Callable[..., Any]:
        try:
            return find_function(reference, folder)
        except PipelineError as error:
            raise StageError(transform.place, str(error)) from error


def _on_error(stage: Source | Transform) -> OnError | None:
    if isinstance(stage, Source) and isinstance(stage.input, TopicInput):
        return stage.input.on_error if can_fail(stage.input) else None
    return None


def _has_letters(source: Source) -> bool:
    return _on_error(source) is OnError.DLQ or any(
        rule.action is Action.DLQ for rule in source.expect
    )


def _sql_error(transform: Transform, select: Select, error: PySparkException) -> StageError:
    told = _told(error)
    line = select.first_line
    if found := _LINE_IN_SQL.search(told):
        line += int(found[1]) - 1
    message = f"the SQL of {transform.name!r} is refused by Spark: {told}"
    return StageError(Place(select.file, line, 1), message)


def _told(error: PySparkException) -> str:
    """The first lines of Spark's message, without plans and stack traces."""
    message = str(error).strip()
    lines = [line for line in message.splitlines() if line.strip()]
    return " ".join(lines[:6]).split("JVM stacktrace")[0].strip()
