"""Makes ``format("odradek")`` known to a Spark session that this package did not start."""

import importlib
import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Registers the source and sink ``odradek`` in a session, whichever way that was started.

    ::

        spark = SparkSession.builder.getOrCreate()
        register(spark)
        spark.read.format("odradek").option("kafka.bootstrap.servers", "localhost:9092")…

    Spark runs Python data sources in the interpreter that ``PYSPARK_PYTHON`` names, else in the
    first ``python3`` on the ``PATH``. In a virtual environment that is not activated that is
    another one, without this package and Arrow, and Spark's own search finds no source. So if
    ``PYSPARK_PYTHON`` is not set, the session's functions and sources run in this interpreter from
    now on. May be called again.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        spark.dataSource.register(_source())  # The server runs it in its own interpreter.
        return
    context = spark.sparkContext
    is_ours = _is_this_python(os.environ.get("PYSPARK_PYTHON", "python3"))
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    manager = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001 - no public way
    # Spark warns of a source that replaces one that it has found by itself.
    if not (is_ours and manager.dataSourceExists("odradek")):
        spark.dataSource.register(_source())


def _source() -> type:
    source: type = importlib.import_module("pyspark_odradek").DefaultSource
    return source


def _is_this_python(command: str) -> bool:
    """Whether a command starts the Python of this environment."""
    found = shutil.which(command)
    here = os.path.dirname(os.path.abspath(sys.executable))
    return found is not None and os.path.dirname(os.path.abspath(found)) == here
