"""Decodes records into rows by the codecs of keys and values, with an error where it fails.

A decoded frame has the visible columns of its source and `ERROR`, which is null for a record that
could be read. With `raw` values the columns stay those of the record. Otherwise they are the fields
of the schema (one column `value` for `string`) and `_key`, `_topic`, `_partition`, `_offset`,
`_timestamp`, and with headers `_headers`. A record whose value is null has null in all fields,
unless a field is required.

Spark's JSON reader is lenient; malformed values that it accepts are refused here: text after the
object, single quotes, NaN, an empty value.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.spark.pipeline.engine.avro.frames import AvroReader, read_avro
from odradek.spark.pipeline.engine.avro.spark_types import columns_ddl
from odradek.spark.pipeline.engine.frames import columns as names
from odradek.spark.pipeline.engine.frames.columns import quoted, struct_of
from odradek.spark.pipeline.graph.model import (
    AvroCodec,
    Codec,
    JsonCodec,
    OnError,
    RawCodec,
    StringCodec,
    TopicInput,
)

__all__ = ["FindReader", "can_fail", "decode", "record_schema", "visible_schema"]

# Finds the Avro reader of a source's keys (True) or values (False).
FindReader = Callable[[TopicInput, AvroCodec, bool], AvroReader]

_CORRUPT: Final = "__odradek_corrupt"
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_EACH: Final = "[]"  # After the name of an array: each of its elements.
_VALUE_COLUMN: Final = "value"
_HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_RECORD: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}


def record_schema(*, with_headers: bool) -> StructType:
    """The columns of records, as the data source returns them."""
    fields = _RECORD | ({names.RECORD_HEADERS: _HEADERS_TYPE} if with_headers else {})
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def visible_schema(topics: TopicInput, find_reader: FindReader) -> StructType:
    """The columns of a source that is decoded."""
    key = _decoded_type(topics.key, lambda codec: find_reader(topics, codec, True))
    if isinstance(topics.value, RawCodec):
        fields = dict(_RECORD) | {"key": key}
        if topics.headers:
            fields[names.RECORD_HEADERS] = _HEADERS_TYPE
        return StructType([StructField(name, kind) for name, kind in fields.items()])
    value = _decoded_type(topics.value, lambda codec: find_reader(topics, codec, False))
    own = value.fields if isinstance(value, StructType) else [StructField(_VALUE_COLUMN, value)]
    added = [
        StructField(name, key if origin == "key" else _RECORD[origin])
        for name, origin in names.ADDED.items()
    ]
    if topics.headers:
        added.append(StructField(names.HEADERS, _HEADERS_TYPE))
    return StructType([*own, *added])


def can_fail(topics: TopicInput) -> bool:
    """Whether there can be records that the codecs cannot read."""
    return not (isinstance(topics.key, RawCodec) and isinstance(topics.value, RawCodec))


def decode(
    records: DataFrame, topics: TopicInput, find_reader: FindReader, *, keep_record: bool = False
) -> DataFrame:
    """Decodes records: visible columns, `ERROR`, and with `keep_record` the whole `RECORD`."""
    frame = records
    for is_key, codec in ((True, topics.key), (False, topics.value)):
        if isinstance(codec, AvroCodec):
            reader = find_reader(topics, codec, is_key)
            frame = read_avro(frame, reader, is_key=is_key)
        else:
            frame = _read(frame, codec, is_key=is_key)
    kept = [F.col(quoted(name)) for name in records.columns]
    error = F.coalesce(F.col(names.KEY_ERROR), F.col(names.VALUE_ERROR)).alias(names.ERROR)
    # A projection of its own, so that the error is computed once, not at each use.
    frame = frame.select(*kept, names.KEY, names.VALUE, error)
    shown = [
        _visible(field, topics).alias(field.name) for field in visible_schema(topics, find_reader)
    ]
    if keep_record:
        shown.append(F.struct(*kept).alias(names.RECORD))
    return frame.select(*shown, F.col(names.ERROR))


def _visible(field: StructField, topics: TopicInput) -> Column:
    """The column of the decoded frame for a visible one."""
    is_raw = isinstance(topics.value, RawCodec)
    if is_raw or field.name in names.ADDED or field.name == names.HEADERS:
        origin = field.name if is_raw else names.ADDED.get(field.name, names.RECORD_HEADERS)
        decoded = {"key": names.KEY, "value": names.VALUE}.get(origin)
        column = F.col(decoded or quoted(origin))
        is_decoded = decoded is not None
    else:
        is_struct = not isinstance(topics.value, StringCodec)
        path = (names.VALUE, field.name) if is_struct else (names.VALUE,)
        column, is_decoded = F.col(quoted(*path)), True
    if is_decoded and topics.on_error is OnError.NULL and can_fail(topics):
        # Fields of a record that could not be read as a whole are not trustworthy.
        column = F.when(F.col(names.ERROR).isNull(), column)
    return column


def _decoded_type(codec: Codec, reader_of: Callable[[AvroCodec], AvroReader]) -> DataType:
    match codec:
        case RawCodec():
            return BinaryType()
        case StringCodec():
            return StringType()
        case JsonCodec():
            return struct_of(codec.ddl or "")
        case AvroCodec():
            return struct_of(columns_ddl(reader_of(codec).schema))


def _read(
    frame: DataFrame, codec: RawCodec | StringCodec | JsonCodec, *, is_key: bool
) -> DataFrame:
    what = "key" if is_key else "value"
    target, error = (names.KEY, names.KEY_ERROR) if is_key else (names.VALUE, names.VALUE_ERROR)
    given = F.col(what)
    match codec:
        case RawCodec():
            return frame.withColumns({target: given, error: F.lit(None).cast("string")})
        case StringCodec():
            text = F.try_validate_utf8(given.cast("string"))
            wrong = F.when(
                given.isNotNull() & F.col(target).isNull(), F.lit(f"the {what} is not UTF-8")
            )
            return frame.withColumn(target, text).withColumn(error, wrong)
        case JsonCodec():
            schema = struct_of(codec.ddl or "")
            shape = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
            parsed = F.from_json(given.cast("string"), shape, _JSON_OPTIONS)
            frame = frame.withColumn(target, parsed)
            return frame.withColumn(error, _json_error(given, target, codec, what))


def _json_error(given: Column, target: str, codec: JsonCodec, what: str) -> Column:
    text = given.cast("string")
    parsed, corrupt = F.col(target), F.col(quoted(target, _CORRUPT))
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    wrong = (
        F.when(given.isNull(), F.lit(None).cast("string"))
        .when(
            parsed.isNull() | corrupt.isNotNull(),
            F.lit(f"the {what} is not a JSON object of {codec.ddl}"),
        )
        .when(
            F.coalesce(alone, F.lit(0)) != 1,
            F.lit(f"the {what} has more than one JSON object"),
        )
    )
    missing = [_missing(text, target, path.split("."), what) for path in codec.required]
    if not missing:
        return wrong
    absent = F.when(
        given.isNull(), F.lit(f"the {what} is null, but requires {', '.join(codec.required)}")
    )
    return F.coalesce(absent, wrong, *missing)


def _missing(text: Column, target: str, path: list[str], what: str) -> Column:
    """A message if a required field is missing; a field that is null is valid."""
    is_missing = _lacks(text, path)
    if not any(name.endswith(_EACH) for name in path):
        # Keys are checked only where the field is null, since that parses the text again.
        is_missing = F.col(quoted(target, *path)).isNull() & is_missing
    return F.when(is_missing, F.lit(f"the {what} lacks the required field {'.'.join(path)}"))


def _lacks(text: Column, path: list[str]) -> Column:
    """Whether a JSON object lacks a field; False if it lacks the field's parent."""
    name, rest = path[0], path[1:]
    if not rest:
        keys = F.coalesce(F.json_object_keys(text), F.array())
        return text.isNotNull() & ~F.array_contains(keys, name)
    inner = F.get_json_object(text, "$['" + name.removesuffix(_EACH) + "']")
    if not name.endswith(_EACH):
        return F.coalesce(_lacks(inner, rest), F.lit(False))
    elements = F.from_json(inner, "array<string>")
    return F.coalesce(F.exists(elements, lambda one: _lacks(one, rest)), F.lit(False))
