"""What every sink of this package offers."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchSink"]


class BatchSink(Protocol):
    """Writes one batch of one query."""

    def write(self, frame: "DataFrame", batch_id: int, query_id: str) -> int:
        """Writes the rows of a batch unless this very batch is there already.

        Args:
            frame: the rows.
            batch_id: Spark's number of the batch; a replay has the same.
            query_id: Spark's id of the query, which a checkpoint keeps over restarts.

        Returns:
            How many rows are new, 0 for a batch that was there.
        """
        ...
