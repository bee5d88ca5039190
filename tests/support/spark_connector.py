"""Spark's own Kafka connector, for tests and benchmarks that hold ours against it.

The jars come from `scripts/spark-connector`, which puts them into a cache outside the tree. Nothing
here touches the network: where they were not fetched, tests skip with `WHY_MISSING`.
"""

import os
from pathlib import Path

__all__ = ["WHY_MISSING", "connector_jars"]

_VERSION = "4.2.0"  # `scripts/spark-connector` fetches the same.


def _folder() -> Path:
    if cache := os.environ.get("ODRADEK_CACHE"):
        root = Path(cache)
    elif xdg_cache := os.environ.get("XDG_CACHE_HOME"):
        root = Path(xdg_cache) / "odradek"
    else:
        root = Path.home() / ".cache" / "odradek"
    return root / f"spark-connector-{_VERSION}"


WHY_MISSING = f"Spark's Kafka connector is not in {_folder()}; `scripts/spark-connector` fetches it"


def connector_jars() -> str:
    """The jars for `spark.jars`; empty if they are not there."""
    return ",".join(str(jar) for jar in sorted(_folder().glob("*.jar")))
