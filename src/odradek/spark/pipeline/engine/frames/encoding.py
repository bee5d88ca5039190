"""Encodes rows into records: key, value, headers and partition of a topic's sink.

A column named as key or value is written as string bytes, a binary one unchanged. A codec encodes
the columns it names; a value's codec without names encodes all that are not used as key, headers or
partition. JSON has every column, null or not, and times with microseconds, so that no data is lost.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import BinaryType

from odradek.spark.pipeline.engine.avro.frames import AvroWriter, write_avro
from odradek.spark.pipeline.engine.frames.columns import quoted
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import AvroCodec, Codec, JsonCodec, TopicTarget

__all__ = ["FindWriter", "encode", "json_of"]

# Finds the Avro writer of a topic's keys (True) or values (False).
FindWriter = Callable[[str, AvroCodec, bool], AvroWriter]

_JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_KEY, _VALUE = "__odradek_sink_key", "__odradek_sink_value"


def json_of(columns: Sequence[str]) -> Column:
    """Columns as one JSON object."""
    return F.to_json(F.struct(*(F.col(quoted(name)) for name in columns)), _JSON_OPTIONS)


def encode(rows: DataFrame, target: TopicTarget, sink: str, find_writer: FindWriter) -> DataFrame:
    """The columns for the topic sink of the data source.

    Raises:
        PipelineError: A column does not exist, or a codec cannot encode the remaining ones.
    """
    present = list(rows.columns)
    key_columns = _key_columns(target)
    aside = [name for name in (target.headers, target.partition) if name is not None]
    value_columns = _value_columns(target, [n for n in present if n not in {*key_columns, *aside}])
    for name in (*key_columns, *aside, *value_columns):
        if name not in present:
            raise PipelineError(
                f"sink {sink!r}: expected the column {name!r}, found {', '.join(present)}"
            )
    # Avro encoding replaces its columns by one, and a column may be part of key and value.
    made = rows.select(
        *_packed(target.key, key_columns, _KEY, target, rows, sink),
        *_packed(target.value, value_columns, _VALUE, target, rows, sink),
        *(
            [F.coalesce(F.col(quoted(target.headers)), F.array()).alias("headers")]
            if target.headers is not None
            else []
        ),
        *(
            [F.col(quoted(target.partition)).cast("int").alias("partition")]
            if target.partition is not None
            else []
        ),
    )
    for part, is_key, codec in ((_KEY, True, target.key), (_VALUE, False, target.value)):
        if isinstance(codec, AvroCodec):
            made = write_avro(made, find_writer(target.topic, codec, is_key), part)
    return made.withColumnsRenamed({_KEY: "key", _VALUE: "value"})


def _key_columns(target: TopicTarget) -> list[str]:
    if target.key is None:
        return []
    if isinstance(target.key, str):
        return [target.key]
    return list(_named(target.key) or ())


def _value_columns(target: TopicTarget, left: list[str]) -> list[str]:
    if isinstance(target.value, str):
        return [target.value]
    named = _named(target.value)
    return left if named is None else list(named)


def _named(codec: Codec) -> tuple[str, ...] | None:
    return codec.columns if isinstance(codec, (JsonCodec, AvroCodec)) else None


def _packed(
    codec: str | Codec | None,
    columns: list[str],
    part: str,
    target: TopicTarget,
    rows: DataFrame,
    sink: str,
) -> list[Column]:
    """One column: bytes or text, or for Avro a struct of the fields to encode."""
    if codec is None:
        return []
    if isinstance(codec, JsonCodec):
        return [json_of(columns).alias(part)]
    if isinstance(codec, AvroCodec):
        return [F.struct(*(F.col(quoted(name)) for name in columns)).alias(part)]
    if len(columns) != 1:
        what = "key" if part == _KEY else "value"
        raise PipelineError(
            f"sink {sink!r}: expected one column for the {what} of topic {target.topic}, found"
            f" {', '.join(columns) or 'none'}: name it, or choose json"
        )
    column = F.col(quoted(columns[0]))
    if not isinstance(rows.schema[columns[0]].dataType, BinaryType):
        column = column.cast("string").cast("binary")
    return [column.alias(part)]
