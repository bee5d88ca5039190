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
    is_found = _finds_it_itself(spark)
    if "PYSPARK_PYTHON" not in os.environ:
        spark.sparkContext.pythonExec = sys.executable
    if not is_found:
        spark.dataSource.register(_source())


def _finds_it_itself(spark: "SparkSession") -> bool:
    """Whether Spark's search has found this source: it warns of one that replaces what it found.

    Asked on one machine only: Spark searches in the Python of the driver, and would run what it
    finds in a Python of that path on a cluster, too.
    """
    environ = os.environ
    chosen = environ.get("PYSPARK_DRIVER_PYTHON", environ.get("PYSPARK_PYTHON", "python3"))
    master = spark.sparkContext.master or ""
    if not master.startswith("local") or not _is_this_python(chosen):
        return False
    manager = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001 - no public way
    return bool(manager.dataSourceExists("odradek"))


def _source() -> type:
    source: type = importlib.import_module("pyspark_odradek").DefaultSource
    return source


def _is_this_python(command: str) -> bool:
    """Whether a command starts the Python of this environment."""
    found = shutil.which(command)
    here = os.path.dirname(os.path.abspath(sys.executable))
    return found is not None and os.path.dirname(os.path.abspath(found)) == here
