"""The interface of all sinks of this package."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchSink"]


class BatchSink(Protocol):
    """Writes one batch of one query."""

    def write(self, frame: "DataFrame", batch_id: int, query_id: str) -> int:
        """Writes the rows of a batch unless the sink has this batch already.

        Args:
            frame: The rows.
            batch_id: Spark's number of the batch; a replay has the same.
            query_id: Spark's id of the query, which its checkpoint keeps over restarts.

        Returns:
            The number of new rows, 0 for a batch that the sink had.
        """
        ...
