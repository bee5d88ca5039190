"""Checks rows against the rules of quality, and marks those to remove, decoding errors first.

Every row gets `REASON`: null if it stays, else `decode` or `expect:<rule>`. A row that breaks
several rules is counted for each of them and removed once: a rule that fails the query comes before
one that keeps the row as a dead letter, and that before one that drops it.

The counts are observed by Spark (`DataFrame.observe`) under the name of the stage. That is also a
barrier: the optimizer moves no filter through it, so that values are decoded once, and a row that
must fail the query does so even if no later step reads it.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from odradek.spark.pipeline.engine.display.batch_progress import DECODE, EXPECT_PREFIX, stage_metric
from odradek.spark.pipeline.engine.frames import columns as names
from odradek.spark.pipeline.engine.frames.columns import quoted
from odradek.spark.pipeline.graph.model import Action, Expectation, OnError

__all__ = ["checked", "dead_reasons", "staying"]

_MAX_ROW: Final = 300  # Characters of a row that are shown in a message.


def dead_reasons(rules: Sequence[Expectation], on_error: OnError | None) -> list[str]:
    """Reasons whose rows become dead letters."""
    found = [DECODE] if on_error is OnError.DLQ else []
    return found + [EXPECT_PREFIX + rule.name for rule in rules if rule.action is Action.DLQ]


def checked(
    frame: DataFrame,
    stage: str,
    rules: Sequence[Expectation],
    *,
    on_error: OnError | None = None,
) -> DataFrame:
    """Adds `REASON` and counts the rows that break a rule.

    Args:
        frame: The rows; with `on_error` they have `ERROR`.
        stage: The name of the source or transform.
        rules: The rules that rows must satisfy.
        on_error: The treatment of rows with an error; None if there are no errors.
    """
    has_error = F.col(names.ERROR).isNotNull() if on_error is not None else F.lit(False)
    # A row that was not decoded has no values to check, unless errors become nulls.
    judged = F.lit(True) if on_error is OnError.NULL else ~has_error
    broken = {
        rule.name: judged & ~F.coalesce(F.expr(rule.where).cast("boolean"), F.lit(False))
        for rule in rules
    }
    reasons: list[Column] = []
    if on_error is OnError.FAIL:
        text = F.concat(
            F.lit(f"source {stage}: a record cannot be decoded: "),
            F.col(names.ERROR),
            _position(frame),
        )
        reasons.append(F.when(has_error, F.raise_error(text).cast("string")))
    elif on_error in (OnError.DLQ, OnError.DROP):
        reasons.append(F.when(has_error, F.lit(DECODE)))
    for action in (Action.FAIL, Action.DLQ, Action.DROP):
        for rule in rules:
            if rule.action is not action:
                continue
            outcome = F.lit(EXPECT_PREFIX + rule.name)
            if action is Action.FAIL:
                outcome = F.raise_error(_failure(frame, stage, rule)).cast("string")
            reasons.append(F.when(broken[rule.name], outcome))
    nothing = F.lit(None).cast("string")
    with_reason = frame.withColumn(names.REASON, F.coalesce(*reasons, nothing))
    counts = [_count(broken[rule.name]).alias(EXPECT_PREFIX + rule.name) for rule in rules]
    if on_error is not None:
        counts.append(_count(has_error).alias(DECODE))
    # Counted here, so that Spark computes the reason before the barrier.
    leaving = _count(F.col(names.REASON).isNotNull()).alias("leaving")
    return with_reason.observe(stage_metric(stage), *counts, leaving)


def staying(frame: DataFrame) -> DataFrame:
    """The rows of a checked frame that no rule removes, without the engine's columns."""
    inside = [name for name in (names.REASON, names.ERROR, names.RECORD) if name in frame.columns]
    return frame.filter(F.col(names.REASON).isNull()).drop(*inside)


def _count(condition: Column) -> Column:
    return F.sum(F.when(condition, F.lit(1)).otherwise(F.lit(0)))


def _failure(frame: DataFrame, stage: str, rule: Expectation) -> Column:
    shown = [F.col(quoted(name)) for name in frame.columns if not name.startswith("__odradek_")]
    row = F.substring(F.to_json(F.struct(*shown)), 1, _MAX_ROW)
    text = F.lit(f"{stage}: a row breaks the rule {rule.name!r} ({rule.where}): ")
    return F.concat(text, row, _position(frame))


def _position(frame: DataFrame) -> Column:
    """The topic, partition and offset of a record, as far as the frame has them."""
    for topic, partition, offset in (
        ("_topic", "_partition", "_offset"),
        ("topic", "partition", "offset"),
    ):
        if {topic, partition, offset} <= set(frame.columns):
            place = F.concat(
                F.lit(" (record "),
                F.col(topic),
                F.lit("-"),
                F.col(partition).cast("string"),
                F.lit(" at offset "),
                F.col(offset).cast("string"),
                F.lit(")"),
            )
            return F.coalesce(place, F.lit(""))
    return F.lit("")
