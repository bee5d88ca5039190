"""The plan of compaction: which log is next, up to which offset, which segments are merged.

::

    log start                 first dirty            first uncleanable      log end
        |  cleaned before          |   to be cleaned        |                   |
        [seg 0     ][seg 50      ][seg 90       ][seg 130  ][seg 170 (active)   ]

* *First dirty* is where the last pass ended, by the checkpoint.
* *First uncleanable* is the base of the segment that holds the last stable offset, of the active
  one, or of the first one with a record younger than `min.compaction.lag.ms`, whichever is lowest.
  Only whole segments are cleaned, so nothing at or above the last stable offset is ever rewritten.
* A log is due when its dirty part is more than `min.cleanable.dirty.ratio` of the bytes below the
  first uncleanable offset, or a dirty record is older than `max.compaction.lag.ms`. The dirtiest
  log is first.

Decisions only: this module reads a log on the thread that owns it and changes nothing.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek.errors import CorruptRecordError
from odradek.storage.log.config import INT32_MAX, INT64_MAX
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import LogSegment

__all__ = [
    "Cleanable",
    "SourceSegment",
    "choose",
    "find_cleanable",
    "group_sources",
    "list_sources",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The clean and the cleanable part of a log."""

    log: Log
    first_dirty_offset: int  # Invariant: within [log start, log end].
    first_uncleanable_offset: int  # Invariant: >= first_dirty_offset.
    clean_bytes: int  # Of segments that begin below the first dirty offset.
    cleanable_bytes: int  # Of segments between the two offsets.
    # How long the oldest dirty record has been due by `max.compaction.lag.ms`; 0: it is not.
    compaction_delay_ms: int

    @property
    def dirty_ratio(self) -> float:
        """Share of the dirty part, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        return self.cleanable_bytes > 0 and (
            self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio
            or self.compaction_delay_ms > 0
        )


def find_cleanable(log: Log, checkpointed: int | None, now_ms: int) -> Cleanable:
    """Measures one log; `checkpointed` is its first dirty offset, if it is known.

    Raises:
        OSError: The timestamps of a segment could not be read.
    """
    first_dirty = log.log_start_offset
    if checkpointed is not None and first_dirty < checkpointed <= log.log_end_offset:
        first_dirty = checkpointed
    limit = min(log.last_stable_offset, log.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments.from_offset(first_dirty):
            if segment.base_offset >= limit:
                break
            if segment.size and segment.largest_timestamp_ms() > now_ms - lag_ms:
                limit = segment.base_offset
                break
    holder = log.segments.floor(limit) or log.segments.first
    assert holder is not None
    first_uncleanable = max(first_dirty, min(limit, holder.base_offset))
    dirty: list[LogSegment] = []
    if first_uncleanable > first_dirty:
        dirty = log.segments.between(first_dirty, first_uncleanable)
    return Cleanable(
        log=log,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(s.size for s in log.segments if s.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size for segment in dirty),
        compaction_delay_ms=_delay_ms(dirty, log.config.max_compaction_lag_ms, now_ms),
    )


def _delay_ms(dirty: Sequence[LogSegment], max_lag_ms: int, now_ms: int) -> int:
    """How long ago the first batch of the oldest of these segments had to be compacted."""
    if max_lag_ms >= INT64_MAX:
        return 0
    oldest = now_ms
    for segment in dirty:
        try:
            header = segment.header_at(0)
        except CorruptRecordError:
            continue  # The pass will report the damage.
        if header is not None and header.max_timestamp > 0:
            oldest = min(oldest, header.max_timestamp)
    return max(0, now_ms - oldest - max_lag_ms)


def choose(found: Iterable[Cleanable]) -> Cleanable | None:
    """The dirtiest of the logs that are due."""
    due = [cleanable for cleanable in found if cleanable.is_due]
    return max(due, key=lambda cleanable: cleanable.dirty_ratio, default=None)


class SourceSegment(NamedTuple):
    """A segment at the beginning of a pass; another thread reads its file by `path`."""

    segment: LogSegment
    path: str
    base_offset: int
    end_offset: int  # Base of the segment behind it.
    size: int
    offset_index_bytes: int
    time_index_bytes: int


def list_sources(log: Log, first_uncleanable_offset: int) -> list[SourceSegment]:
    """The segments that lie below an offset as a whole, oldest first.

    Raises:
        OSError: The disk refused.
    """
    sources = []
    for segment in log.segments:
        following = log.segments.higher(segment.base_offset)
        if following is None or following.base_offset > first_uncleanable_offset:
            break
        sources.append(
            SourceSegment(
                segment,
                segment.path,
                segment.base_offset,
                following.base_offset,
                segment.size,
                _index_bytes(segment.offset_index.path, log.config.segment_index_bytes),
                _index_bytes(segment.time_index.path, log.config.segment_index_bytes),
            )
        )
    return sources


def _index_bytes(path: str, if_missing: int) -> int:
    """The size of an index; a missing one counts as full, so that its segment is not merged."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return if_missing


def group_sources(
    sources: Iterable[SourceSegment], *, end_offset: int, max_bytes: int, max_index_bytes: int
) -> list[list[SourceSegment]]:
    """Groups neighbours that fit in one segment, of those that begin below `end_offset`.

    Sizes are those before cleaning, so the result always fits; and the offsets of a group lie
    within an int32 of its base (KAFKA-5413).
    """
    groups: list[list[SourceSegment]] = []
    for source in sources:
        if source.base_offset >= end_offset:
            break
        group = groups[-1] if groups else None
        if group is not None and (
            sum(s.size for s in group) + source.size <= max_bytes
            and sum(s.offset_index_bytes for s in group) + source.offset_index_bytes
            <= max_index_bytes
            and sum(s.time_index_bytes for s in group) + source.time_index_bytes <= max_index_bytes
            and source.end_offset - 1 - group[0].base_offset <= INT32_MAX
        ):
            group.append(source)
        else:
            groups.append([source])
    return groups
