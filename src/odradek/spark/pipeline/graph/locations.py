"""Paths and URIs, and the schemes that a checkpoint may have."""

import re
from typing import Final

__all__ = ["CHECKPOINT_SCHEMES", "is_uri"]

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

# Schemes that both Spark and Arrow can open, Spark with the jars of the store on its class path.
CHECKPOINT_SCHEMES: Final = ("file", "hdfs", "viewfs", "s3", "s3a", "s3n", "gs", "abfs", "abfss")


def is_uri(path: str) -> bool:
    """Whether a path has a scheme."""
    return _URI.match(path) is not None
