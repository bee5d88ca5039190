"""The columns of the source: those of Spark's Kafka source, in its order. Pure."""

from typing import Final

__all__ = ["ALL_COLUMNS", "HEADERS", "PLAIN_COLUMNS"]

HEADERS: Final = "headers"
PLAIN_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
ALL_COLUMNS: Final = (*PLAIN_COLUMNS, HEADERS)
