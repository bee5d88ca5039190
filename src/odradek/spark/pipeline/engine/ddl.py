"""DDL as Spark's type of rows."""

from pyspark.sql.types import StructType

from odradek.spark.pipeline.engine.problems import PipelineError

__all__ = ["struct_of"]


def struct_of(ddl: str) -> StructType:
    """The type of rows with these columns, `name type, …`.

    Raises:
        PipelineError: the DDL names no columns.
    """
    made = StructType.fromDDL(ddl)
    if not isinstance(made, StructType):
        raise PipelineError(f"expected columns, `name type, …`, came {ddl!r}")
    return made
