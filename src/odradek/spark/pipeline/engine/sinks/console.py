"""The console sink: prints rows on the terminal."""

from typing import TYPE_CHECKING, Any, TextIO

from odradek.spark.pipeline.graph.model import ConsoleTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ConsoleSink"]


class ConsoleSink:
    """Prints the first rows of each batch."""

    def __init__(self, target: ConsoleTarget, name: str, out: TextIO) -> None:
        self._target = target
        self._name = name
        self._out = out

    def write(self, frame: "DataFrame", batch_id: int, query_id: str) -> int:
        """Prints a batch; returns the number of its rows."""
        del query_id  # A batch that is run again is printed again.
        frame = frame.cache()
        try:
            count = frame.count()
            if count:
                first: Any = frame.limit(self._target.rows).toPandas()
                print(f"{self._name}, batch {batch_id}: {count} rows", file=self._out)
                print(first.to_string(index=False), file=self._out)
                if count > self._target.rows:
                    print(f"... and {count - self._target.rows} more", file=self._out)
                self._out.flush()
        finally:
            frame.unpersist()
        return count
