"""Ranges of offsets, cut into tasks: a pure function of where a batch starts and ends.

After a restart it is called again, before anything else is known, and must then give the same list;
so it depends on no answer of a broker. Rules:

1. A partition that is only in `end` is new: it is read from its first record, at whatever offset
   that is (`is_from_earliest`).
2. A topic whose id differs between `start` and `end` was created again: it is read from offset 0.
3. Without a rule each range is one task. `max_records` cuts a range into as many equal parts as it
   takes; then, if there are fewer tasks than `min_partitions`, every range gets parts in proportion
   to its size, at least one.

Example of rule 3: ranges of 100, 300 and 0 offsets, at least 8 tasks. The empty one is dropped, the
others get 2 and 6 parts of 50 offsets each.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from odradek.model import TopicPartition
from odradek.spark.datasource.offsets import NO_ID, NO_SPLIT, Position, SplitRule

__all__ = ["Split", "cut", "ranges_between", "splits_between"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The input of one task: offsets of one partition from `start` up to `end`, exclusive."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    # Whether offsets below the log's start are skipped and do not count as lost.
    is_from_earliest: bool = False

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets; there may be fewer records."""
        return self.end - self.start


def splits_between(start: Position, end: Position) -> list[Split]:
    """The tasks of a batch; none if there is nothing to read."""
    return cut(ranges_between(start, end), end.split)


def ranges_between(start: Position, end: Position) -> list[Split]:
    """One range per partition that has anything to read, in order of topic and partition."""
    return [split for split in _ranges(start, end) if split.size > 0]


def _ranges(start: Position, end: Position) -> Iterator[Split]:
    before = start.topic_ids()
    for name, topic in end.topics.items():
        old_id = before.get(name, NO_ID)
        is_recreated = NO_ID not in (old_id, topic.topic_id) and old_id != topic.topic_id
        for number, offset in topic.offsets.items():
            begin = None if is_recreated else start.offset(TopicPartition(name, number))
            yield Split(
                topic=name,
                topic_id=topic.topic_id,
                partition=number,
                start=begin or 0,
                end=offset,
                is_from_earliest=begin is None,
            )


def cut(ranges: list[Split], rule: SplitRule = NO_SPLIT) -> list[Split]:
    """Cuts ranges into tasks."""
    parts = [1] * len(ranges)
    if rule.max_records:
        parts = [-(-one.size // rule.max_records) for one in ranges]
    if sum(parts) < rule.min_partitions:
        total = sum(one.size for one in ranges)
        shares = [_rounded(rule.min_partitions * one.size, total) for one in ranges]
        parts = [max(part, share) for part, share in zip(parts, shares, strict=True)]
    return [
        piece
        for one, count in zip(ranges, parts, strict=True)
        for piece in _pieces(one, min(count, one.size))
    ]


def _rounded(dividend: int, divisor: int) -> int:
    return (2 * dividend + divisor) // (2 * divisor)


def _pieces(whole: Split, count: int) -> Iterator[Split]:
    for index in range(count):
        yield Split(
            topic=whole.topic,
            topic_id=whole.topic_id,
            partition=whole.partition,
            start=whole.start + whole.size * index // count,
            end=whole.start + whole.size * (index + 1) // count,
            is_from_earliest=whole.is_from_earliest,
        )
