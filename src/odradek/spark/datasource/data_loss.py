"""What counts as lost data, and what is then done: fail, or say so and go on.

Lost are (and a query with `failOnDataLoss=true` fails, naming each partition, what was expected and
what was found):

* records between the position and the log's start, deleted before they were read;
* records between the log's end and the position, when the log ends before it;
* a topic that is gone, or one that was deleted and made again under its name.

With `false` each is logged as a warning and counted, and reading goes on: from the log's start;
from the log's end; without the topic; from the new topic's offset 0. An open transaction before
the position is no loss: the log does not end there.

What is lost is counted where a stream is planned, once for each batch that would have read it, and
told in Spark's progress (see `StreamReader.reportLatestOffset`). A task whose records are deleted
while it reads says so in its log only.
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

_LOST = "lost"  # Beside `topics` in the report of the latest offset.

Offsets = Mapping[TopicPartition, int]


class DataLossError(OdradekError):
    """Records that should have been read are gone."""

    def __init__(self, losses: Iterable["Loss"]) -> None:
        super().__init__(
            "data was lost before it was read: "
            + "; ".join(str(loss) for loss in losses)
            + ". Set failOnDataLoss=false to go on without it."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One gap."""

    what: str  # A partition or a topic.
    why: str
    # Offsets that are missing, as far as can be told.
    count: int = 0

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"

    @classmethod
    def below_log_start(
        cls, tp: TopicPartition, *, expected: int, found: int, end: int | None = None
    ) -> "Loss":
        """Retention, or somebody who deletes records, was faster; `end` is as far as is read."""
        missing_end = found if end is None else min(found, end)
        return cls(
            what=str(tp),
            why=f"expected offset {expected}, the log starts at {found}",
            count=max(missing_end - expected, 0),
        )

    @classmethod
    def beyond_log_end(cls, tp: TopicPartition, *, expected: int, found: int) -> "Loss":
        """The log is shorter than it was, or than somebody believes."""
        return cls(
            what=str(tp),
            why=f"expected offset {expected}, the log ends at {found}",
            count=max(expected - found, 0),
        )

    @classmethod
    def gone(cls, topic: str) -> "Loss":
        """There is no such topic any more."""
        return cls(what=f"topic {topic!r}", why="it does not exist any more")

    @classmethod
    def partition_gone(cls, tp: TopicPartition, *, expected: int) -> "Loss":
        """The topic has fewer partitions than it had."""
        return cls(what=str(tp), why=f"expected offset {expected}, there is no such partition")

    @classmethod
    def recreated(cls, topic: str, *, expected: str, found: str) -> "Loss":
        """Another topic has the name."""
        return cls(
            what=f"topic {topic!r}",
            why=f"it was deleted and made again: expected id {expected}, found {found}",
        )


@dataclass(slots=True)
class DataLossPolicy:
    """`failOnDataLoss`, and what it let pass so far."""

    is_failing: bool
    gap_count: int = field(default=0, init=False)
    lost_offset_count: int = field(default=0, init=False)
    # What was reported last: a stream that waits meets the same loss at every step.
    _last: list[Loss] = field(default_factory=list, init=False)

    def report(self, losses: Iterable[Loss]) -> None:
        """Fails, or says that reading goes on.

        Raises:
            DataLossError: There are any, and the policy is to fail.
        """
        found = list(losses)
        if self._last == found:
            return
        self._last = [] if self.is_failing else found
        self.note(found)

    def note(self, losses: Iterable[Loss]) -> None:
        """As `report`, of losses that are told of one batch, and so cannot come again.

        Raises:
            DataLossError: There are any, and the policy is to fail.
        """
        found = list(losses)
        if found and self.is_failing:
            raise DataLossError(found)
        for loss in found:
            self.gap_count += 1
            self.lost_offset_count += loss.count
            logger.warning(
                "data was lost, going on without it: %s (gaps so far: %d, offsets: %d)",
                loss,
                self.gap_count,
                self.lost_offset_count,
            )


def find_deleted(start: Offsets, end: Offsets, log_starts: Offsets) -> list[Loss]:
    """What a batch would read and is deleted already: where its partitions begin and end, and
    where their logs begin now.
    """
    return [
        Loss.below_log_start(tp, expected=start[tp], found=log_start, end=end[tp])
        for tp, log_start in log_starts.items()
        if start[tp] < log_start
    ]


def find_losses(
    start: Position, topic_ids: Mapping[str, str], log_ends: Mapping[TopicPartition, int]
) -> list[Loss]:
    """What is missing between a position and what the cluster tells now.

    Args:
        topic_ids: Of the topics that exist, `NO_ID` where the broker tells none.
        log_ends: Of each partition that exists; of one whose last stable offset is below the
            position, the high watermark.
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
    """What a stream has lost, for the report of its latest offset; nothing if there is none."""
    if not losses.gap_count:
        return {}
    return {_LOST: {"gaps": losses.gap_count, "offsets": losses.lost_offset_count}}


def parse_lost(latest: object) -> tuple[int, int]:
    """Gaps and offsets that a stream had lost when it reported its latest offset."""
    told = latest.get(_LOST) if isinstance(latest, Mapping) else None
    if not isinstance(told, Mapping):
        return 0, 0
    return int(told["gaps"]), int(told["offsets"])
