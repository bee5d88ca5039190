"""`format("odradek")`: the class that Spark loads, see `pyspark_odradek`."""

import importlib
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
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

from odradek.spark.datasource.options import parse_columns, parse_options
from odradek.spark.datasource.readers import BatchReader, FilteringReader, StreamReader
from odradek.spark.datasource.schema import HEADERS

__all__ = ["DefaultSource", "schema_of"]

# Every column may be null, as in Spark's own source.
_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def schema_of(columns: tuple[str, ...]) -> StructType:
    """The schema of some columns."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


class DefaultSource(DataSource):
    """Topics of Odradek or Apache Kafka as a source and a sink, batch and streaming."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "odradek"

    def schema(self) -> StructType:
        """The columns of Spark's own Kafka source, or those that `columns` names."""
        return schema_of(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Makes the reader of a batch query."""
        options = parse_options(self.options, is_streaming=False)
        self._refuse_other(schema)
        return FilteringReader(options) if options.is_pushing_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Makes the reader of a streaming query."""
        options = parse_options(self.options, is_streaming=True)
        self._refuse_other(schema)
        return StreamReader(options)

    # The parameters' names are Spark's: it passes them by name, too.

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Makes the writer of a batch query."""
        made: DataSourceWriter = _writing().batch_writer(self.options, schema, overwrite)
        return made

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Makes the writer of a streaming query."""
        made: DataSourceStreamWriter = _writing().stream_writer(self.options, schema, overwrite)
        return made

    def _refuse_other(self, schema: StructType) -> None:
        expected = self.schema()
        if schema != expected:
            raise ValueError(
                f"the schema of format odradek is {expected.simpleString()}; leave the schema out, "
                f"or choose columns with the option columns; found {schema.simpleString()}"
            )


def _writing() -> Any:
    # Imported here: readers do not need it.
    return importlib.import_module("odradek.spark.datasource.writer")
