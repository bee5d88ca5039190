"""Names of columns that a decoded source adds, and of internal ones; types of rows."""

from typing import Final

from pyspark.sql.types import StructType

from odradek.spark.pipeline.engine.problems import PipelineError

__all__ = [
    "ADDED",
    "ERROR",
    "HEADERS",
    "KEY",
    "KEY_ERROR",
    "REASON",
    "RECORD",
    "RECORD_HEADERS",
    "VALUE",
    "VALUE_ERROR",
    "quoted",
    "struct_of",
]

# Columns of a decoded source beside the fields of its schema, and the record's column of each.
ADDED: Final = {
    "_key": "key",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}
HEADERS: Final = "_headers"

RECORD_HEADERS: Final = "headers"

# Inside the engine only: no name of a pipeline's file can begin like this.
KEY: Final = "__odradek_key"
KEY_ERROR: Final = "__odradek_key_error"
VALUE: Final = "__odradek_value"
VALUE_ERROR: Final = "__odradek_value_error"
ERROR: Final = "__odradek_error"
REASON: Final = "__odradek_reason"
RECORD: Final = "__odradek_record"


def quoted(*path: str) -> str:
    """A column's name quoted for SQL; it may contain any character."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def struct_of(ddl: str) -> StructType:
    """Spark's type of rows with the columns of a DDL, `name type, …`.

    Raises:
        PipelineError: The DDL names no columns.
    """
    made = StructType.fromDDL(ddl)
    if not isinstance(made, StructType):
        raise PipelineError(f"expected columns, `name type, …`, found {ddl!r}")
    return made
