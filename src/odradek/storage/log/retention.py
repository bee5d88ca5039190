"""Retention: deletes the segments of a log that are too old, too many or invisible.

| rule      | a segment is deleted when                                                           |
|-----------|-------------------------------------------------------------------------------------|
| time      | its largest timestamp is older than `retention.ms`                                  |
| size      | the log stays at or above `retention.bytes` without it                              |
| log start | the next segment begins at or below the log start: nothing in it is visible         |

Segments are deleted from the oldest on, whole, and only below the high watermark; a rule ends at
the first segment that it keeps. So a log may exceed `retention.bytes` by up to a segment and the
uncommitted records. The log start rule holds for every log, the others where `cleanup.policy` has
`delete`.

The producer snapshot behind the deleted records is all that is left of their producers: as long as
it is not written, the segment before it stays until the next look.
"""

import logging
from collections.abc import Callable

from odradek.storage.log.log import Log
from odradek.storage.log.removal import remove_segments
from odradek.storage.segments.segment import LogSegment

__all__ = ["delete_old_segments"]

logger = logging.getLogger(__name__)

# (segment, the next one if any) -> whether the segment may be deleted.
_Rule = Callable[[LogSegment, LogSegment | None], bool]


def delete_old_segments(log: Log) -> int:
    """Applies the rules to one log; returns the number of segments deleted.

    Raises:
        StorageError: The disk failed.
    """
    log.check_usable()
    log.settle()
    deleted = 0
    if log.config.cleanup_delete:
        deleted += _delete(log, _by_time(log), "retention.ms")
        deleted += _delete(log, _by_size(log), "retention.bytes")
    return deleted + _delete(log, _by_log_start(log), "log start offset")


def _by_time(log: Log) -> _Rule:
    retention_ms, now_ms = log.config.retention_ms, log.services.clock.now_ms()
    if retention_ms < 0:
        return lambda _segment, _following: False

    def is_expired(segment: LogSegment, _: LogSegment | None) -> bool:
        return now_ms - segment.largest_timestamp_ms() > retention_ms

    return is_expired


def _by_size(log: Log) -> _Rule:
    excess = log.size_in_bytes - log.config.retention_bytes

    def rule(segment: LogSegment, _following: LogSegment | None) -> bool:
        nonlocal excess
        if log.config.retention_bytes < 0 or excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return rule


def _by_log_start(log: Log) -> _Rule:
    return lambda _, following: (
        following is not None and following.base_offset <= log.log_start_offset
    )


def _deletable(log: Log, rule: _Rule) -> list[LogSegment]:
    segments = list(log.segments)
    chosen: list[LogSegment] = []
    followers: list[LogSegment | None] = [*segments[1:], None]
    for segment, following in zip(segments, followers, strict=False):
        upper = following.base_offset if following is not None else log.log_end_offset
        is_empty_active = following is None and segment.size == 0
        if log.high_watermark < upper or is_empty_active or not rule(segment, following):
            break
        if log.producer_state.snapshots.unwritten(upper):
            break
        chosen.append(segment)
    return chosen


def _delete(log: Log, rule: _Rule, why: str) -> int:
    try:
        chosen = _deletable(log, rule)
        if not chosen:
            return 0
        if len(chosen) == len(log.segments):
            log.roll()  # A log always has an active segment.
            if log.producer_state.snapshots.unwritten(log.log_end_offset):
                return 0
        remove_segments(log, chosen)
    except OSError as error:
        raise log.fail("delete segments", error) from error
    first = log.segments.first
    assert first is not None
    log.maybe_increment_log_start_offset(first.base_offset)
    logger.info(
        "%s: deleted %d segments by %s; the log starts at %d",
        log.topic_partition, len(chosen), why, log.log_start_offset,
    )  # fmt: skip
    return len(chosen)
