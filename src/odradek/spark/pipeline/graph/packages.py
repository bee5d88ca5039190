"""Optional packages that sinks need."""

import importlib.util
from typing import Final

from odradek.spark.pipeline.graph.model import DeltaTarget, JdbcTarget, Target

__all__ = ["missing_package"]

# Kind of a sink -> its module, and the extra that installs it.
_NEEDED: Final[dict[type, tuple[str, str]]] = {
    DeltaTarget: ("deltalake", "spark"),
    JdbcTarget: ("psycopg", "jdbc"),
}


def missing_package(target: Target) -> str | None:
    """The missing package and how to install it, in words; None if nothing is missing."""
    module, extra = _NEEDED.get(type(target), (None, None))
    if module is None or importlib.util.find_spec(module) is not None:
        return None
    return f"{module}, which is not installed here: pip install 'odradek[{extra}]'"
