"""Which queries a run has."""

from pathlib import Path

import pytest

from odradek.spark.pipeline.engine.running.query_plans import dead_rules, plan_queries
from odradek.spark.pipeline.graph.model import (
    Action,
    ConsoleTarget,
    OnError,
    OutputMode,
    Pipeline,
    RowsInput,
    Trigger,
    TriggerKind,
)
from odradek.spark.pipeline.graph.plan import plan
from tests.support.pipelines import (
    ONCE,
    ORDERS,
    pipeline,
    rule,
    select,
    sink,
    static_source,
    topic_source,
)
from tests.unit.spark.pipeline.files import valid

CONSOLE = ConsoleTarget(20)


def example(mode: OutputMode = OutputMode.APPEND, *, dead_letters: str | None = "dead") -> Pipeline:
    return pipeline(
        topic_source("raw", ORDERS, on_error=OnError.DLQ, expect=[rule("p", "x", Action.DLQ)]),
        topic_source("plain", on_error=OnError.DLQ),
        topic_source("unused", ORDERS, on_error=OnError.DLQ),
        static_source("rows", RowsInput(({"a": 1},))),
        transforms=[
            select("still", "select * from rows", "rows", expect=[rule("s", "x", Action.DLQ)]),
            select("big", "…", "raw", "still", expect=[rule("q", "x", Action.DLQ)]),
            select("small", "…", "plain", expect=[rule("r", "x", Action.DROP)]),
        ],
        sinks=[sink("one", "big", CONSOLE, mode), sink("two", "small", CONSOLE)],
        dead_letters=dead_letters,
        checkpoint="/checkpoints",
    )


def test_one_query_per_sink_and_one_for_dead_letters() -> None:
    """12:SP-58, 12:SP-7, 12:SP-39: with a checkpoint and a group of its own."""
    plans = plan_queries(example())
    assert [plan.name for plan in plans] == ["one", "two", "dlq"]
    assert [plan.checkpoint for plan in plans] == [
        "/checkpoints/one",
        "/checkpoints/two",
        "/checkpoints/dlq",
    ]
    assert plans[0].group == "odradek-pipeline-orders-one"
    assert plans[2].stages == ("raw", "big")
    assert plans[2].sink is None


def test_only_some() -> None:
    """12:SP-61: `--sink`."""
    assert [plan.name for plan in plan_queries(example(), sinks=["two"])] == ["two"]
    assert [plan.name for plan in plan_queries(example(), sinks=["dlq"])] == ["dlq"]


def test_once_is_for_all() -> None:
    """12:SP-61: `--once`."""
    given = example()
    often = Trigger(TriggerKind.EVERY, 5)
    object.__setattr__(given, "trigger", often)
    assert plan_queries(given)[2].trigger == often
    assert {plan.trigger for plan in plan_queries(given, is_once=True)} == {ONCE}


def test_letters_of_a_stage_that_changes_its_rows_are_written_as_they_change() -> None:
    """12:SP-58."""
    assert plan_queries(example())[2].output_mode is OutputMode.APPEND
    assert plan_queries(example(OutputMode.UPDATE))[2].output_mode is OutputMode.UPDATE


@pytest.mark.parametrize("mode", [OutputMode.APPEND, OutputMode.UPDATE])
def test_the_plan_shows_the_modes_that_queries_have(mode: OutputMode, tmp_path: Path) -> None:
    """12:SP-61: `plan` shows what a run would do."""
    tested = valid(
        tmp_path,
        """\
name: shop
bootstrap: localhost:9092
sources:
  raw: {topic: t, value: {format: json, schema: "user string, ts timestamp"},
        watermark: {column: ts, delay: 1m}}
transforms:
  counts:
    sql: select window(ts, '1 minute') w, count(*) as n from raw group by window(ts, '1 minute')
    expect: [{name: many, where: n > 1, action: dlq}]
sinks: {out: {from: counts, console: {}, output_mode: MODE}}
dlq: {topic: letters}
""".replace("MODE", mode),
    )

    shown = {name: one["output_mode"] for name, one in plan(tested)["queries"].items()}

    assert shown == {one.name: one.output_mode for one in plan_queries(tested)}
    assert shown["dlq"] == mode


def test_no_letters_no_query() -> None:
    """12:SP-54."""
    assert len(plan_queries(example(dead_letters=None))) == 2
    none = pipeline(topic_source("raw"), sinks=[sink("one", "raw", CONSOLE)])
    assert len(plan_queries(none)) == 1


def test_rules_whose_rows_become_letters() -> None:
    """12:SP-52."""
    assert dead_rules(example()) == {
        ("raw", "decode"),
        ("raw", "p"),
        ("unused", "decode"),
        ("still", "s"),
        ("big", "q"),
    }
