"""Rows as a person writes them, as a frame of given types: a test's rows in the place of a source.

A time is an ISO-8601 text (UTC where it names no zone), bytes are a text in UTF-8, a struct and a
map are maps. A column that a row leaves out is null.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.spark.pipeline.engine.problems import PipelineError

__all__ = ["typed_frame"]


def typed_frame(
    session: SparkSession, rows: Sequence[Mapping[str, Any]], schema: StructType, what: str
) -> DataFrame:
    """A frame of rows.

    Raises:
        PipelineError: a column is not in the schema, or a value is not of its type.
    """
    known = set(schema.names)
    converted = []
    for number, row in enumerate(rows, 1):
        if unknown := [name for name in row if name not in known]:
            raise PipelineError(
                f"{what}, row {number}: expected the columns {', '.join(schema.names)}, came"
                f" {', '.join(unknown)}"
            )
        converted.append(
            {
                field.name: _value(row.get(field.name), field.dataType, what, number, field.name)
                for field in schema.fields
            }
        )
    table = pa.Table.from_pylist(converted, to_arrow_schema(schema, timezone="UTC"))
    return session.createDataFrame(table, schema)


def _value(given: Any, kind: DataType, what: str, number: int, path: str) -> Any:
    if given is None:
        return None
    try:
        return _converted(given, kind, what, number, path)
    except (ValueError, TypeError, InvalidOperation, OverflowError):
        raise PipelineError(
            f"{what}, row {number}: expected {kind.simpleString()} for {path}, came {given!r}"
        ) from None


def _converted(given: Any, kind: DataType, what: str, number: int, path: str) -> Any:
    match kind:
        case StructType():
            if unknown := set(map(str, given)) - set(kind.names):
                raise ValueError(unknown)
            return {
                field.name: _value(
                    given.get(field.name), field.dataType, what, number, f"{path}.{field.name}"
                )
                for field in kind.fields
            }
        case ArrayType():
            _expect(given, (list, tuple))
            inner = kind.elementType
            return [
                _value(one, inner, what, number, f"{path}[{place}]")
                for place, one in enumerate(given)
            ]
        case MapType():
            return [
                (
                    _value(key, kind.keyType, what, number, path),
                    _value(value, kind.valueType, what, number, f"{path}[{key!r}]"),
                )
                for key, value in given.items()
            ]
        case _:
            return _plain(given, kind)


def _plain(given: Any, kind: DataType) -> Any:
    match kind:
        case BooleanType():
            return _expect(given, (bool,))
        case IntegralType():
            return _expect(given, (int,), but=bool)
        case DecimalType():
            return round(
                Decimal(str(_expect(given, (str, int, float, Decimal), but=bool))), kind.scale
            )
        case FractionalType():
            return float(_expect(given, (int, float), but=bool))
        case StringType():
            return _expect(given, (str,))
        case BinaryType():
            text = _expect(given, (str, bytes))
            return text.encode() if isinstance(text, str) else text
        case TimestampType() | TimestampNTZType():
            time = datetime.fromisoformat(given) if isinstance(given, str) else given
            time = _expect(time, (datetime,))
            time = time if time.tzinfo else time.replace(tzinfo=UTC)
            return time if isinstance(kind, TimestampType) else time.replace(tzinfo=None)
        case DateType():
            return date.fromisoformat(given) if isinstance(given, str) else _expect(given, (date,))
        case _:
            return given


def _expect(given: Any, kinds: tuple[type, ...], *, but: type | None = None) -> Any:
    if not isinstance(given, kinds) or (but is not None and isinstance(given, but)):
        raise TypeError(type(given))
    return given
