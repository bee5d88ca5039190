"""Dead letters: records and rows that could not be used, with their origin and the reason.

A letter of a source keeps the key, the value and the headers of its record. A row of a transform
has no single record: the value of its letter is the row as JSON. The origin becomes headers, in
UTF-8: `odradek.dlq.pipeline`, `.stage`, `.reason`, `.error`, `.topic`, `.partition`, `.offset` and
`.timestamp`, in milliseconds; a value that is not known has no header.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from odradek.spark.pipeline.engine.display.batch_progress import DECODE, EXPECT_PREFIX
from odradek.spark.pipeline.engine.frames import columns as names
from odradek.spark.pipeline.engine.frames.columns import quoted
from odradek.spark.pipeline.engine.frames.encoding import json_of
from odradek.spark.pipeline.graph.model import Expectation

__all__ = ["LETTER_COLUMNS", "letters_of", "union", "written_letters"]

LETTER_COLUMNS: Final = (
    "stage",
    "reason",
    "error",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "value",
    "headers",
)
_HEADER_PREFIX: Final = "odradek.dlq."
_MAX_ERROR: Final = 1000
_NO_HEADERS: Final = "cast(array() as array<struct<key: string, value: binary>>)"


def letters_of(
    checked: DataFrame, stage: str, rules: Sequence[Expectation], reasons: Sequence[str]
) -> DataFrame:
    """The letters among checked rows.

    Args:
        checked: Rows with their reason; those of a source have the whole record, too.
        stage: The name of the source or transform.
        rules: Its rules.
        reasons: The reasons whose rows become letters.
    """
    lost = checked.filter(F.col(names.REASON).isin(list(reasons)))
    broken = F.col(names.REASON)
    errors = {EXPECT_PREFIX + rule.name: f"not true: {rule.where}" for rule in rules}
    error = F.lit(None).cast("string")
    for reason, text in errors.items():
        error = F.when(broken == reason, F.lit(text)).otherwise(error)
    if names.ERROR in lost.columns:
        error = F.when(broken == DECODE, F.col(names.ERROR)).otherwise(error)
    known = [
        F.lit(stage).alias("stage"),
        broken.alias("reason"),
        F.substring(error, 1, _MAX_ERROR).alias("error"),
    ]
    if names.RECORD in lost.columns:
        return lost.select(*known, *_of_record(lost))
    return lost.select(*known, *_of_row(lost))


def union(letters: Sequence[DataFrame]) -> DataFrame:
    """All letters in one frame."""
    return reduce(lambda left, right: left.unionByName(right), letters)


def written_letters(letters: DataFrame, pipeline: str) -> DataFrame:
    """Letters as the records that are written: key, value and headers."""
    told: list[Column] = [_header("pipeline", F.lit(pipeline))]
    told += [_header(name, F.col(name)) for name in ("stage", "reason", "error", "topic")]
    told += [_header(name, F.col(name).cast("string")) for name in ("partition", "offset")]
    told.append(_header("timestamp", F.unix_millis("timestamp").cast("string")))
    known = F.filter(F.array(*told), lambda header: header["value"].isNotNull())
    own = F.coalesce(F.col("headers"), F.expr(_NO_HEADERS))
    return letters.select("key", "value", F.concat(own, known).alias("headers"))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(_HEADER_PREFIX + name).alias("key"), value.cast("binary").alias("value"))


def _of_record(lost: DataFrame) -> list[Column]:
    held = {field.name for field in lost.select(f"{names.RECORD}.*").schema.fields}
    found = [
        F.col(quoted(names.RECORD, name)).alias(name)
        for name in ("topic", "partition", "offset", "timestamp", "key", "value")
    ]
    headers = (
        F.col(quoted(names.RECORD, "headers"))
        if names.RECORD_HEADERS in held
        else F.expr(_NO_HEADERS)
    )
    return [*found, headers.alias("headers")]


def _of_row(lost: DataFrame) -> list[Column]:
    shown = [name for name in lost.columns if not name.startswith("__odradek_")]
    return [
        F.lit(None).cast("string").alias("topic"),
        F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("bigint").alias("offset"),
        F.lit(None).cast("timestamp").alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
        json_of(shown).cast("binary").alias("value"),
        F.expr(_NO_HEADERS).alias("headers"),
    ]
