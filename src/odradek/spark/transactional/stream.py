"""The exactly-once sink of a stream, behind `odradek.spark.exactly_once`."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.spark.datasource.writer_columns import SinkColumns, parse_sink_columns
from odradek.spark.datasource.writer_options import SinkOptions, parse_sink_options
from odradek.spark.transactional.errors import ExactlyOnceError
from odradek.spark.transactional.marker import QueryIdentity, digest_of
from odradek.spark.transactional.notes import CheckpointNotes
from odradek.spark.transactional.writer import TransactionalWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["ANY_TOPIC", "StreamSink", "read_sink", "refuse_session", "stream_writer", "write_once"]

logger = logging.getLogger(__name__)

# The target of a query whose rows name their topics.
ANY_TOPIC: Final = "*"
# The local property in which Spark tells the id of the query whose batch is handled.
_QUERY_ID: Final = "sql.streaming.queryId"


def stream_writer(
    frame: "DataFrame",
    topic: str | None,
    *,
    checkpoint: str,
    name: str,
    options: Mapping[str, str],
) -> "DataStreamWriter":
    """See `odradek.spark.exactly_once`."""
    refuse_session(frame.sparkSession)
    if not frame.isStreaming:
        raise ExactlyOnceError(
            "exactly_once expects a stream, found a batch, which has no checkpoint that tells a "
            'repetition from another batch: use .write.format("odradek"), which is at least once, '
            "or `odradek pipeline backfill`"
        )
    given = dict(options)
    if topic is not None:
        given["topic"] = topic
    parsed, columns = read_sink(frame, given)
    sink = StreamSink(parsed, columns, checkpoint=checkpoint, name=name)
    return (
        frame.writeStream.queryName(name)
        .option("checkpointLocation", checkpoint)
        .foreachBatch(sink.write)
    )


def write_once(frame: "DataFrame", options: Mapping[str, str], *, name: str, digest: str) -> int:
    """Writes a frame that is no stream, unless one of the same digest was written before.

    Args:
        digest: Of what the frame is made from.

    Returns:
        The number of rows; 0 if they were written before.

    Raises:
        OptionsError: Options or columns cannot be used.
        ExactlyOnceError: It cannot be written.
    """
    refuse_session(frame.sparkSession)
    parsed, columns = read_sink(frame, options)
    identity = QueryIdentity(name=name, query_id=digest, target=parsed.topic or ANY_TOPIC)
    writer = TransactionalWriter(identity, parsed, columns, None)
    try:
        rows = writer.write(frame, 0, digest)
    finally:
        writer.close()
    if rows is None:
        logger.warning("%s: these rows were written before, and are not written again", name)
    return rows or 0


def read_sink(frame: "DataFrame", options: Mapping[str, str]) -> tuple[SinkOptions, SinkColumns]:
    """Reads the options of a sink, and checks the columns of a frame.

    Raises:
        OptionsError: They cannot be used.
    """
    parsed = parse_sink_options(options)
    fields = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    columns = parse_sink_columns(
        fields, topic=parsed.topic, is_writing_headers=parsed.is_writing_headers
    )
    return parsed, columns


def refuse_session(session: "SparkSession") -> None:
    """Refuses sessions in which a task may write twice, or in which rows cannot be kept.

    Raises:
        ExactlyOnceError: It is such a one.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise ExactlyOnceError(
            "an exactly-once sink keeps the rows of a batch on the executors until they are "
            "committed, and Spark Connect has no way to free them: use local[*], spark://…, yarn "
            "or k8s://…, or write at least once"
        )
    if session.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise ExactlyOnceError(
            "spark.speculation=true runs a task twice at a time, and both would write under the "
            "same numbers: set it to false for an exactly-once sink"
        )


class StreamSink:
    """What Spark calls with every batch; may be used for several runs, one at a time."""

    def __init__(
        self, options: SinkOptions, columns: SinkColumns, *, checkpoint: str, name: str
    ) -> None:
        self._options = options
        self._columns = columns
        self._name = name
        self._notes = CheckpointNotes(checkpoint)
        self._writer: TransactionalWriter | None = None

    def write(self, frame: "DataFrame", batch_id: int) -> None:
        """Writes a batch, unless it was committed before.

        Raises:
            ExactlyOnceError: It is refused, or cannot be written.
        """
        writer = self._writer_of(frame)
        writer.write(frame, batch_id, digest_of(self._notes.plan_of(batch_id)))

    def _writer_of(self, frame: "DataFrame") -> TransactionalWriter:
        told = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        writer = self._writer
        if writer is None or writer.identity.query_id != told:
            query_id = self._notes.query_id()
            if told != query_id:
                raise ExactlyOnceError(
                    f"the checkpoint {self._notes.checkpoint} is of the query {query_id}, and the "
                    f"batch of the query {told}: give the query the checkpointLocation that "
                    "exactly_once was given"
                )
            if writer is not None:
                writer.close()
            identity = QueryIdentity(
                name=self._name, query_id=query_id, target=self._options.topic or ANY_TOPIC
            )
            writer = TransactionalWriter(identity, self._options, self._columns, self._notes)
            self._writer = writer
        return writer
