"""Gathers the rows that Spark passes to a task into tables of a few megabytes.

Spark passes ten thousand rows at a time; more of them make fuller batches for each partition.
"""

from collections.abc import Iterator
from typing import Any

__all__ = ["gathered"]


def gathered(batches: Iterator[Any], size_bytes: int) -> Iterator[Any]:
    """The same rows in tables of at least so many bytes, except for the last one."""
    import pyarrow as pa

    waiting: list[Any] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size >= size_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
