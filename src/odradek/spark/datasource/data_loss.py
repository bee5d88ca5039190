"""Lost data: when records count as lost, and whether a query then fails or continues.

These are losses. A query with `failOnDataLoss=true` fails, naming each partition with the expected
and the found offset:

* records between the position and the log's start, deleted before they were read;
* records between the log's end and the position, when the log ends before it;
* a topic that was deleted, also if another one was created under its name.

With `false` each loss is logged as a warning and counted, and reading continues: from the log's
start; from the log's end; without the topic; from the new topic's offset 0. An open transaction
before the position is no loss: the log does not end there.

Losses are counted where a stream is planned, once for each batch that would have read the records,
and reported in Spark's progress (see `StreamReader.reportLatestOffset`). A task whose records are
deleted while it reads only logs the loss.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.errors import OdradekError
from odradek.model import TopicPartition
from odradek.spark.datasource.offsets import NO_ID, Position

__all__ = [
    "DataLossError",
    "DataLossPolicy",
    "Loss",
    "find_deleted",
    "find_losses",
    "lost_json",
    "parse_lost",
]

logger = logging.getLogger(__name__)

_LOST = "lost"  # Key beside `topics` in the report of the latest offset.

Offsets = Mapping[TopicPartition, int]


class DataLossError(OdradekError):
    """Records that should have been read are gone."""

    def __init__(self, losses: Iterable["Loss"]) -> None:
        super().__init__(
            "data was lost before it was read: "
            + "; ".join(str(loss) for loss in losses)
            + ". Set failOnDataLoss=false to continue without it."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One gap."""

    what: str  # A partition or a topic.
    why: str
    # Number of missing offsets; 0 if it is not known.
    count: int = 0

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"

    @classmethod
    def below_log_start(
        cls, tp: TopicPartition, *, expected: int, found: int, end: int | None = None
    ) -> "Loss":
        """Retention or a delete request removed records before they were read.

        `end` is the end of the batch: missing offsets are counted up to it.
        """
        missing_end = found if end is None else min(found, end)
        return cls(
            what=str(tp),
            why=f"expected offset {expected}, the log starts at {found}",
            count=max(missing_end - expected, 0),
        )

    @classmethod
    def beyond_log_end(cls, tp: TopicPartition, *, expected: int, found: int) -> "Loss":
        """The log ends before the expected offset."""
        return cls(
            what=str(tp),
            why=f"expected offset {expected}, the log ends at {found}",
            count=max(expected - found, 0),
        )

    @classmethod
    def gone(cls, topic: str) -> "Loss":
        """The topic does not exist any more."""
        return cls(what=f"topic {topic!r}", why="it does not exist any more")

    @classmethod
    def partition_gone(cls, tp: TopicPartition, *, expected: int) -> "Loss":
        """The topic has fewer partitions than it had."""
        return cls(what=str(tp), why=f"expected offset {expected}, there is no such partition")

    @classmethod
    def recreated(cls, topic: str, *, expected: str, found: str) -> "Loss":
        """Another topic has the name now."""
        return cls(
            what=f"topic {topic!r}",
            why=f"it was deleted and created again: expected id {expected}, found {found}",
        )


@dataclass(slots=True)
class DataLossPolicy:
    """`failOnDataLoss`, and the losses it has accepted so far."""

    is_failing: bool
    gap_count: int = field(default=0, init=False)
    lost_offset_count: int = field(default=0, init=False)
    # The losses reported last: a stream that waits finds the same ones at every step.
    _last: list[Loss] = field(default_factory=list, init=False)

    def report(self, losses: Iterable[Loss]) -> None:
        """Fails, or logs and counts losses that differ from those reported last.

        Raises:
            DataLossError: There are losses, and the policy is to fail.
        """
        found = list(losses)
        if self._last == found:
            return
        self._last = [] if self.is_failing else found
        self.note(found)

    def note(self, losses: Iterable[Loss]) -> None:
        """As `report`, for losses of one batch, which are reported only once.

        Raises:
            DataLossError: There are losses, and the policy is to fail.
        """
        found = list(losses)
        if found and self.is_failing:
            raise DataLossError(found)
        for loss in found:
            self.gap_count += 1
            self.lost_offset_count += loss.count
            logger.warning(
                "data was lost, continuing without it: %s (gaps so far: %d, offsets: %d)",
                loss,
                self.gap_count,
                self.lost_offset_count,
            )


def find_deleted(start: Offsets, end: Offsets, log_starts: Offsets) -> list[Loss]:
    """The records that a batch would read and that are deleted already.

    Args:
        start: The offsets at which the batch begins.
        end: The offsets at which it ends.
        log_starts: The offsets at which the logs begin now.
    """
    return [
        Loss.below_log_start(tp, expected=start[tp], found=log_start, end=end[tp])
        for tp, log_start in log_starts.items()
        if start[tp] < log_start
    ]


def find_losses(
    start: Position, topic_ids: Mapping[str, str], log_ends: Mapping[TopicPartition, int]
) -> list[Loss]:
    """The losses between a position and the present state of the cluster.

    Args:
        topic_ids: Ids of the topics that exist; `NO_ID` where the broker gives none.
        log_ends: Ends of the partitions that exist; the high watermark where the last stable
            offset is below the position.
    """
    losses = []
    for name, topic in start.topics.items():
        found = topic_ids.get(name)
        if found is None:
            losses.append(Loss.gone(name))
        elif NO_ID not in (found, topic.topic_id) and found != topic.topic_id:
            losses.append(Loss.recreated(name, expected=topic.topic_id, found=found))
        else:
            for number, offset in topic.offsets.items():
                tp = TopicPartition(name, number)
                end = log_ends.get(tp)
                if end is None:
                    losses.append(Loss.partition_gone(tp, expected=offset))
                elif end < offset:
                    losses.append(Loss.beyond_log_end(tp, expected=offset, found=end))
    return losses


def lost_json(losses: DataLossPolicy) -> dict[str, object]:
    """The losses of a stream, for the report of its latest offset; empty without losses."""
    if not losses.gap_count:
        return {}
    return {_LOST: {"gaps": losses.gap_count, "offsets": losses.lost_offset_count}}


def parse_lost(latest: object) -> tuple[int, int]:
    """Gaps and offsets that a stream had lost when it reported its latest offset."""
    told = latest.get(_LOST) if isinstance(latest, Mapping) else None
    if not isinstance(told, Mapping):
        return 0, 0
    return int(told["gaps"]), int(told["offsets"])
