"""Avro in frames: a Python function on Arrow batches decodes and encodes it with `fastavro`.

The function is pickled with the reader's schema, fixed when the run began, and the address of the
registry. The writers' schemas are fetched by the id that each record names, and kept for the life
of the worker process, which serves many tasks.
"""

import io
from collections.abc import Iterator
from typing import Any, Final

import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.engine.avro.registry import RegistryClient, frame_prefix, split_frame
from odradek.spark.pipeline.engine.avro.spark_types import columns_ddl, prepared_schema
from odradek.spark.pipeline.engine.frames import columns as names
from odradek.spark.pipeline.engine.frames.columns import struct_of
from odradek.spark.pipeline.engine.problems import RegistryError, UnknownSchemaError
from odradek.spark.pipeline.graph.model import Registry

__all__ = ["AvroReader", "AvroWriter", "read_avro", "write_avro"]

_MAX_ERROR: Final = 1000

# One client of this worker process per registry, with its cache of schemas.
_clients: dict[Registry, RegistryClient] = {}


@dataclass(frozen=True, slots=True)
class AvroReader:
    """How Avro is read.

    Attributes:
        schema: The text of the schema of the rows.
        registry: The registry of the writers' schemas; None if all records were written with
            `schema` and have no prefix.
    """

    schema: str
    registry: Registry | None


@dataclass(frozen=True, slots=True)
class AvroWriter:
    """How Avro is written: `schema_id` is put in the prefix; None for no prefix."""

    schema: str
    schema_id: int | None


def read_avro(frame: DataFrame, reader: AvroReader, *, is_key: bool) -> DataFrame:
    """Adds the decoded key or value, and its error."""
    source = "key" if is_key else "value"
    target, error = (names.KEY, names.KEY_ERROR) if is_key else (names.VALUE, names.VALUE_ERROR)
    if names.RECORD_HEADERS in frame.columns:
        # Transferring a NULL array to Python takes five times as long as an empty one.
        headers = F.coalesce(F.col(names.RECORD_HEADERS), F.array())
        frame = frame.withColumn(names.RECORD_HEADERS, headers)
    decoded = struct_of(columns_ddl(reader.schema))
    out = StructType(
        [*frame.schema.fields, StructField(target, decoded), StructField(error, StringType())]
    )
    return frame.mapInArrow(_Decode(reader, source, out), out)


def write_avro(frame: DataFrame, writer: AvroWriter, column: str) -> DataFrame:
    """Encodes a column of structs."""
    out = StructType(
        [
            StructField(column, BinaryType()) if field.name == column else field
            for field in frame.schema.fields
        ]
    )
    return frame.mapInArrow(_Encode(writer, column), out)


class _Decode:
    """Runs in a task."""

    def __init__(self, reader: AvroReader, source: str, out: StructType) -> None:
        self._reader = reader
        self._source = source
        self._out = out

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._out, timezone="UTC")
        kind = schema.field(len(schema) - 2).type
        decoder = _Decoder(self._reader)
        for batch in batches:
            values: list[Any] = []
            errors: list[str | None] = []
            for record in batch.column(self._source).to_pylist():
                value, error = decoder.decode(record)
                values.append(value)
                errors.append(error)
            added = [pa.array(values, kind), pa.array(errors, pa.string())]
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema.names)


class _Decoder:
    """Decodes record after record; schemas are parsed once."""

    def __init__(self, reader: AvroReader) -> None:
        self._reader = reader
        self._schema = fastavro.parse_schema(prepared_schema(reader.schema))
        self._writers: dict[int, Any] = {}

    def decode(self, record: bytes | None) -> tuple[Any, str | None]:
        """The value and no error, or no value and an error."""
        if record is None:
            return None, None
        try:
            if self._reader.registry is None:
                return self._read(memoryview(record), self._schema), None
            schema_id, payload = split_frame(record)
            return self._read(payload, self._writer(schema_id, self._reader.registry)), None
        except UnknownSchemaError as error:
            return None, str(error)
        except RegistryError:
            raise  # The registry failed, not the record.
        except Exception as error:  # noqa: BLE001 - fastavro raises any error for garbage
            return None, f"not Avro of this schema: {type(error).__name__}: {error}"[:_MAX_ERROR]

    def _read(self, payload: memoryview, writer: Any) -> Any:
        stream = io.BytesIO(payload)
        value = fastavro.schemaless_reader(stream, writer, self._schema)
        if left := len(payload) - stream.tell():
            raise ValueError(f"{left} bytes are left after the value")
        return value

    def _writer(self, schema_id: int, registry: Registry) -> Any:
        writer = self._writers.get(schema_id)
        if writer is None:
            client = _clients.get(registry)
            if client is None:
                client = _clients[registry] = RegistryClient(registry)
            text = client.schema_of_id(schema_id)
            writer = self._writers[schema_id] = fastavro.parse_schema(prepared_schema(text))
        return writer


class _Encode:
    """Runs in a task. A row that does not fit the schema fails the task."""

    def __init__(self, writer: AvroWriter, column: str) -> None:
        self._writer = writer
        self._column = column

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = fastavro.parse_schema(prepared_schema(self._writer.schema))
        prefix = b"" if self._writer.schema_id is None else frame_prefix(self._writer.schema_id)
        for batch in batches:
            encoded = []
            for row in batch.column(self._column).to_pylist():
                stream = io.BytesIO()
                stream.write(prefix)
                fastavro.schemaless_writer(stream, schema, row, strict_allow_default=True)
                encoded.append(stream.getvalue())
            place = batch.schema.get_field_index(self._column)
            yield batch.set_column(place, self._column, pa.array(encoded, pa.binary()))
