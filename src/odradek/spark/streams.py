"""Streams into topics, for programs with a Spark session of their own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["exactly_once"]


def exactly_once(
    frame: "DataFrame",
    topic: str | None = None,
    *,
    checkpoint: str,
    name: str = "unnamed",
    options: Mapping[str, str] | None = None,
) -> "DataStreamWriter":
    """A writer that writes each batch of a stream to a topic in one transaction.

    ::

        query = exactly_once(
            frame,
            topic="orders",
            checkpoint="/data/checkpoints/orders",
            name="orders",
            options={"kafka.bootstrap.servers": "localhost:9092"},
        ).trigger(processingTime="1 second").start()

    Readers with ``isolation.level=read_committed`` see each batch whole or not at all, and each row
    once, whatever fails and in whichever order drivers are started again; also for rows that differ
    when they are computed again, as with `rand()`.

    Args:
        frame: A stream with the columns of the topic sink: value, key, headers, topic, partition.
        topic: For rows that name none.
        checkpoint: Spark's checkpoint of the query: the writer has it as `checkpointLocation`.
        name: Of the query, for Spark and in the transactional id.
        options: Those of ``format("odradek")``: `kafka.bootstrap.servers` and others.

    Raises:
        OptionsError: Options or columns cannot be used.
        ExactlyOnceError: The frame is no stream, or the session cannot give the guarantee.
    """
    # Imported here: `odradek.spark` is imported without Spark.
    from odradek.spark.transactional.stream import stream_writer

    return stream_writer(frame, topic, checkpoint=checkpoint, name=name, options=options or {})
