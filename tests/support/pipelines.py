"""Pipelines as tests build them: by hand, without a file."""

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.spark.pipeline.graph.model import (
    Action,
    Codec,
    DeadLetters,
    Expectation,
    Fixture,
    JsonCodec,
    OnError,
    OutputMode,
    Pipeline,
    Place,
    PythonFunction,
    RawCodec,
    Registry,
    Restart,
    RowsInput,
    Select,
    Sink,
    Source,
    SparkSettings,
    TableInput,
    Target,
    TopicInput,
    Transform,
    Trigger,
    TriggerKind,
    Watermark,
)

PLACE = Place("pipeline.yaml", 1, 1)
ONCE = Trigger(TriggerKind.ONCE)


def rule(name: str, where: str, action: Action = Action.WARN) -> Expectation:
    return Expectation(name, where, action, PLACE)


def topic_source(
    name: str,
    value: Codec | None = None,
    *,
    topics: Sequence[str] = ("orders",),
    key: Codec | None = None,
    on_error: OnError = OnError.FAIL,
    watermark: Watermark | None = None,
    expect: Sequence[Expectation] = (),
    **others: Any,
) -> Source:
    given = TopicInput(
        topics=tuple(topics),
        key=key or RawCodec(),
        value=value or RawCodec(),
        on_error=on_error,
        **others,
    )
    return Source(name, given, watermark, tuple(expect), PLACE)


def static_source(name: str, given: TableInput | RowsInput) -> Source:
    return Source(name, given, None, (), PLACE)


def select(
    name: str,
    sql: str,
    *inputs: str,
    watermark: Watermark | None = None,
    expect: Sequence[Expectation] = (),
) -> Transform:
    step = Select(sql, "pipeline.yaml", 10)
    return Transform(name, step, inputs, watermark, tuple(expect), PLACE)


def function(name: str, step: PythonFunction, *inputs: str) -> Transform:
    return Transform(name, step, inputs, None, (), PLACE)


def sink(
    name: str, source: str, target: Target, output_mode: OutputMode = OutputMode.APPEND
) -> Sink:
    return Sink(name, source, target, output_mode, ONCE, PLACE)


def fixture(
    given: Mapping[str, Sequence[Mapping[str, Any]]],
    expect: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    dlq: Sequence[Mapping[str, Any]] | None = None,
    raw: bool = False,
    ordered: bool = False,
) -> Fixture:
    return Fixture(
        "a test",
        {name: tuple(rows) for name, rows in given.items()},
        {name: tuple(rows) for name, rows in expect.items()},
        None if dlq is None else tuple(dlq),
        raw,
        ordered,
        PLACE,
    )


def pipeline(
    *sources: Source,
    transforms: Sequence[Transform] = (),
    sinks: Sequence[Sink] = (),
    tests: Sequence[Fixture] = (),
    file: str = "/tmp/pipeline.yaml",
    bootstrap: str = "localhost:9092",
    checkpoint: str = "/tmp/checkpoints",
    dead_letters: str | None = "dead",
    registry: Registry | None = None,
    restart: Restart | None = None,
) -> Pipeline:
    return Pipeline(
        name="orders",
        file=file,
        bootstrap=bootstrap,
        kafka={},
        registry=registry,
        checkpoint=checkpoint,
        trigger=ONCE,
        spark=SparkSettings("local[2]", {}, True),
        # Spark gives up a Python process that does not answer in ten seconds, as on a busy machine.
        restart=restart or Restart(30, 200, 1_000),
        sources={one.name: one for one in sources},
        transforms={one.name: one for one in transforms},
        sinks={one.name: one for one in sinks},
        dead_letters=None if dead_letters is None else DeadLetters(dead_letters, {}),
        tests=tuple(tests),
    )


ORDERS = JsonCodec(ddl="id bigint, user string, amount double, ts timestamp")
