"""Event time: watermarks, and deduplication within a time.

Spark marks the column that carries event time by metadata, which renaming keeps. A batch frame gets
the same metadata here, so that a test's rows are treated like the stream's.

Duplicates of a stream are dropped by Spark's own operator, which keeps a key for the delay in that
metadata: so the delay is set to `within` of the pipeline. The watermark after which it drops keys
is that of the input. A batch has no such operator: of the rows with equal keys, in the order of
their times, a row stays if the last one that stayed is older by more than `within`.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from odradek.spark.pipeline.engine.frames.columns import quoted
from odradek.spark.pipeline.engine.problems import StageError
from odradek.spark.pipeline.graph.model import Dedup, Transform, Watermark

__all__ = ["drop_duplicates", "mark_time"]

_DELAY: Final = "spark.watermarkDelayMs"  # Spark's key.
_RECORD_TIME: Final = "_timestamp"


def mark_time(rows: DataFrame, watermark: Watermark) -> DataFrame:
    """Sets the watermark."""
    if rows.isStreaming:
        return rows.withWatermark(watermark.column, f"{watermark.delay_ms} milliseconds")
    return _with_delay(rows, watermark.column, watermark.delay_ms)


def drop_duplicates(rows: DataFrame, dedup: Dedup, transform: Transform) -> DataFrame:
    """Drops rows whose keys were seen before, within the time.

    Raises:
        StageError: A key is not a column, or no column carries event time.
    """
    if missing := [key for key in dedup.keys if key not in rows.columns]:
        raise StageError(
            transform.place,
            f"expected the keys {', '.join(missing)} of {transform.name!r} among the columns of"
            f" its input, which are {', '.join(rows.columns)}",
        )
    time = _time_column(rows)
    if time is None:
        if _RECORD_TIME not in rows.columns:
            raise StageError(
                transform.place,
                f"expected a watermark before the dedup {transform.name!r}: without one it would"
                " keep every key for ever",
            )
        time = _RECORD_TIME
        rows = mark_time(rows, Watermark(time, dedup.within_ms))
    if rows.isStreaming:
        remembering = _with_delay(rows, time, dedup.within_ms)
        return remembering.dropDuplicatesWithinWatermark(list(dedup.keys))
    return _first_of_each(rows, time, dedup)


def _time_column(rows: DataFrame) -> str | None:
    for field in rows.schema.fields:
        if _DELAY in field.metadata:
            return field.name
    return None


def _with_delay(rows: DataFrame, column: str, delay_ms: int) -> DataFrame:
    return rows.select(
        *(
            F.col(quoted(name)).alias(name, metadata={_DELAY: delay_ms})
            if name == column
            else F.col(quoted(name))
            for name in rows.columns
        )
    )


def _first_of_each(rows: DataFrame, time: str, dedup: Dedup) -> DataFrame:
    row = F.struct(
        F.col(quoted(time)).alias("at"),
        F.monotonically_increasing_id().alias("n"),
        F.struct(*(F.col(quoted(name)) for name in rows.columns)).alias("row"),
    )
    numbered = rows.select(row.alias("one"))
    keys = [F.col(quoted("one", "row", key)) for key in dedup.keys]
    kind = numbered.schema["one"].dataType.simpleString()
    within = f"make_dt_interval(0, 0, 0, {dedup.within_ms} / 1000)"
    groups = numbered.groupBy(*keys).agg(F.array_sort(F.collect_list("one")).alias("all"))
    kept = F.expr(
        f"aggregate(all, cast(array() as array<{kind}>), (kept, one) -> "
        f"if(size(kept) = 0 or one.at > element_at(kept, -1).at + {within}, "
        "concat(kept, array(one)), kept))"
    )
    alone = groups.select(F.explode(kept).alias("one")).select("one.row.*")
    return alone.to(rows.schema)
