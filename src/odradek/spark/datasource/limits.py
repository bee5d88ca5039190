"""The end of a batch: the end of the topics, reduced by the limits in the options. Pure.

Of several limits the smallest wins, partition by partition. Every partition with a backlog advances
by at least one offset, so that a small limit slows all of them and stops none.

* `maxOffsetsPerTrigger` is shared out in proportion to each partition's backlog. Example: backlogs
  of 900, 100 and 0 offsets under a limit of 100 give 90, 10 and 0.
* `maxBytesPerTrigger` counts a partition's backlog in bytes, by the mean size of its records on the
  broker's disk, and is shared out in the same way.
* `minOffsetsPerTrigger` delays a batch until the backlog is that large, or until `maxTriggerDelay`
  has passed since the last batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.model import TopicPartition

__all__ = ["Limits", "PartitionSize", "decide_end", "is_held_back"]

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits per batch; None: no limit."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSize:
    """The size of a partition on a broker's disk."""

    size_bytes: int
    offset_count: int  # Between the log's start and its end.

    @property
    def bytes_per_offset(self) -> float:
        """The mean size; offsets that were compacted away count with 0 bytes."""
        return self.size_bytes / self.offset_count if self.offset_count > 0 else 0.0


def decide_end(
    start: Offsets,
    latest: Offsets,
    limits: Limits,
    sizes: Mapping[TopicPartition, PartitionSize] | None = None,
) -> dict[TopicPartition, int]:
    """The end of a batch that begins at `start`; never before `start`.

    Args:
        latest: The end of each partition; the result has these partitions only.
        sizes: Needed for a limit in bytes.
    """
    backlog = {tp: max(end - start[tp], 0) for tp, end in latest.items()}
    steps = dict(backlog)
    if limits.max_offsets is not None:
        steps = _smaller(steps, _share(limits.max_offsets, backlog, dict.fromkeys(backlog, 1.0)))
    if limits.max_bytes is not None:
        assert sizes is not None, "a limit in bytes needs the sizes of the partitions"
        weights = {tp: sizes[tp].bytes_per_offset if tp in sizes else 0.0 for tp in backlog}
        steps = _smaller(steps, _share(limits.max_bytes, backlog, weights))
    return {tp: start[tp] + step for tp, step in steps.items()}


def is_held_back(
    start: Offsets, latest: Offsets, limits: Limits, *, last_batch_ms: int, now_ms: int
) -> bool:
    """Whether a batch has to wait for more records."""
    if limits.min_offsets is None or now_ms - last_batch_ms >= limits.max_delay_ms:
        return False
    return sum(max(end - start[tp], 0) for tp, end in latest.items()) < limits.min_offsets


def _share(limit: int, backlog: Offsets, weights: Mapping[TopicPartition, float]) -> Offsets:
    """The number of offsets of each partition whose total weight is `limit`."""
    total = sum(count * weights[tp] for tp, count in backlog.items())
    if total <= limit:
        return backlog
    # Multiplied before dividing: with whole numbers no rounding error remains.
    return {tp: max(int(count * limit / total), 1) if count else 0 for tp, count in backlog.items()}


def _smaller(one: Offsets, other: Offsets) -> dict[TopicPartition, int]:
    return {tp: min(count, other[tp]) for tp, count in one.items()}
