"""The two jobs of a batch: one that packs its rows, and one that sends them.

*Compute* may be repeated as Spark likes. It packs the rows, brings those of a topic-partition to
one of W writers, sorts them into the order of the source, and keeps the result in blocks of the
executors without a way back (`localCheckpoint`): a block that is lost fails the send job, instead
of being computed again with other rows. Rows without key, partition and topic need no exchange: W
tasks pack them, and each chooses partitions that it will write itself.

*Send* reads only these blocks. A job that reads no shuffle is never partly submitted again by
Spark, which would give the tasks the attempt number 0 once more.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # It ships no types.

from odradek.client.producer.ticket import TransactionTicket
from odradek.spark.datasource.writer_columns import SinkColumns
from odradek.spark.transactional.attempts import SentRows, count_sent
from odradek.spark.transactional.packing import PACKED, Packing, Writers
from odradek.spark.transactional.sending import SENT, Sending

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PackedBatch", "is_cancelled", "pack"]

logger = logging.getLogger(__name__)

_CANCELLED: Final = ("SPARK_JOB_CANCELLED", "JOB_CANCELLED", "SparkContext was shut down")


# Few rows have many bytes: Spark passes some on to Python while it reads the next ones.
_SENDING: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
}


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """The rows of a batch, in blocks of the executors until `free`."""

    frame: "DataFrame"
    settings: tuple[tuple[str, str], ...]
    writers: Writers
    # Of the exchange between the tasks that pack and those that sort.
    shuffle_ids: tuple[int, ...] = ()

    def send(self, ticket: TransactionTicket) -> int:
        """Sends all rows under a ticket, which serves no other job; returns their number.

        Raises:
            MixedAttemptsError: The rows are not those that were packed: pack again.
            Exception: A task failed.
        """
        with _set(self.frame, _SENDING):
            told = self.frame.mapInArrow(self.sending(ticket), SENT).collect()
        return count_sent(SentRows(row.task, row.attempt, row.rows, row.total) for row in told)

    def sending(self, ticket: TransactionTicket) -> Sending:
        """The function of the tasks that send."""
        return Sending(settings=self.settings, ticket=ticket, writers=self.writers)

    def is_whole(self) -> bool:
        """Whether all blocks are there still, as far as the driver knows."""
        java: Any = self.frame._jdf  # noqa: SLF001 - only Java can tell
        rdd = java.queryExecution().analyzed().rdd()
        kept = self.frame.sparkSession.sparkContext._jsc.sc().getRDDStorageInfo()  # noqa: SLF001
        counts = [one.numCachedPartitions() for one in kept if one.id() == rdd.id()]
        return counts == [rdd.getNumPartitions()]

    def free(self) -> None:
        """Removes the blocks and the shuffle files now, not when Java collects garbage."""
        try:
            plan: Any = self.frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - only Java can
            cleaner = _cleaner(self.frame)
            if cleaner is not None:
                cleaner.doCleanupRDD(plan.rdd().id(), False)
                _remove_shuffles(self.frame, self.shuffle_ids)
        except Py4JError as error:
            logger.warning("the blocks of a batch are left to Java's garbage collection: %s", error)


def pack(
    frame: "DataFrame",
    topic: str | None,
    columns: SinkColumns,
    settings: tuple[tuple[str, str], ...],
    partition_counts: Mapping[str, int],
    *,
    turn: int,
) -> PackedBatch:
    """Runs the compute job; `turn` is any number that grows from batch to batch."""
    writers = Writers(count=_writer_count(frame, topic, partition_counts), turn=turn)
    is_free = not (columns.has_key or columns.has_partition or columns.has_topic)
    packing = Packing(
        topic=topic,
        columns=(
            "key" if columns.has_key else None,
            "headers" if columns.has_headers else None,
            "partition" if columns.has_partition else None,
            "topic" if columns.has_topic else None,
        ),
        settings=settings,
        partition_counts=partition_counts,
        writers=writers,
        is_free=is_free,
    )
    chosen = [name for name in ("value", *packing.columns) if name is not None]
    rows = frame.select(*chosen)
    if is_free:
        packed = rows.coalesce(writers.count).mapInArrow(packing, PACKED)
        return PackedBatch(packed.localCheckpoint(), settings, writers)
    packed = (
        rows.mapInArrow(packing, PACKED)
        .repartitionById(writers.count, "writer")
        .sortWithinPartitions("topic", "partition", "task", "place")
    )
    shuffle_ids = _shuffle_ids(packed)
    try:
        kept = packed.localCheckpoint()
    except BaseException:
        _remove_shuffles(packed, shuffle_ids)
        raise
    return PackedBatch(kept, settings, writers, shuffle_ids)


@contextlib.contextmanager
def _set(frame: "DataFrame", settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the frame's session for the block."""
    conf = frame.sparkSession.conf
    before = {name: conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                conf.unset(name)
            else:
                conf.set(name, old)


def is_cancelled(error: BaseException) -> bool:
    """Whether a job failed because the query is being stopped."""
    return any(word in str(error) for word in _CANCELLED)


def _writer_count(
    frame: "DataFrame", topic: str | None, partition_counts: Mapping[str, int]
) -> int:
    most: int = frame.sparkSession.sparkContext.defaultParallelism
    if topic is not None and list(partition_counts) == [topic]:
        return max(1, min(most, partition_counts[topic]))
    return max(1, most)


def _shuffle_ids(frame: "DataFrame") -> tuple[int, ...]:
    """The exchange of this frame; those of its input, which Spark planned, are not looked at."""
    java: Any = frame._jdf  # noqa: SLF001 - Spark tells it in no other way
    found: list[int] = []
    rdd = java.queryExecution().toRdd()
    for _ in range(_MOST_STEPS):
        dependencies = rdd.dependencies()
        if dependencies.size() != 1:
            break
        dependency = dependencies.head()
        if dependency.getClass().getSimpleName() == "ShuffleDependency":
            found.append(int(dependency.shuffleId()))
            break
        rdd = dependency.rdd()
    return tuple(found)


# Between the sorted rows and their exchange lie a handful of steps.
_MOST_STEPS: Final = 20


def _remove_shuffles(frame: "DataFrame", shuffle_ids: tuple[int, ...]) -> None:
    cleaner = _cleaner(frame)
    if cleaner is not None:
        for shuffle_id in shuffle_ids:
            cleaner.doCleanupShuffle(shuffle_id, False)


def _cleaner(frame: "DataFrame") -> Any:
    """What removes blocks and files without a warning; None if Spark's settings disable it."""
    found: Any = frame.sparkSession.sparkContext._jsc.sc().cleaner()  # noqa: SLF001 - only Java can
    return found.get() if found.isDefined() else None
