"""Truncation: removes records at the end so that neither a crash nor a late flush restores them.

The order makes it safe:

0. a pending swap of segments is completed; compaction is notified, so that it does not count
   records as clean that are about to be removed (`cleaning`);
1. the recovery point is lowered, on disk as well, and pending flushes are limited to the records
   that remain: a start after a crash must not assume that later appends were synced. If that fails,
   for want of descriptors for example, nothing has changed yet;
2. later segments are removed, from the end, and durably: a crash on the way leaves a log without
   holes, and none of them reappears after a file that was truncated;
3. the segment that contains the offset is truncated and synced;
4. the offsets follow, then leader epochs, then producers;
5. the log start is checkpointed if it was lowered, before the next append: a log that ends below
   its start is set aside at the next start.
"""

from typing import TYPE_CHECKING

from odradek.storage.log.removal import remove_segments

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

__all__ = ["truncate_fully_and_start_at", "truncate_to"]


def truncate_to(log: "Log", offset: int) -> bool:
    """Removes the records at and above `offset`; returns whether there were any.

    Raises:
        ValueError: It is negative.
        StorageError: The disk failed.
    """
    if offset < 0:
        raise ValueError(f"cannot truncate {log.topic_partition} to {offset}")
    log.check_usable()
    is_start_lowered = offset < log.log_start_offset
    try:
        if offset >= log.log_end_offset:
            # An epoch that never got a record must be removed, too (KAFKA-10706).
            log.leader_epochs.truncate_from_end(log.log_end_offset)
            log.leader_epochs.flush()
            return False
        first = log.segments.first
        assert first is not None
        if first.base_offset > offset:
            truncate_fully_and_start_at(log, offset)
            return True
    except OSError as error:
        raise log.fail("truncate", error) from error
    _announce(log, offset)
    try:
        later = [s for s in log.segments if s.base_offset > offset][::-1]
        remove_segments(log, later)
        if later:
            log.services.disk.fsync_dir(log.directory)
        log.active.truncate_to(offset, now_ms=log.services.clock.now_ms())
        log.watermarks.truncate(offset)
        log.leader_epochs.truncate_from_end(offset)
        log.leader_epochs.flush()
        log.rebuild_producer_state()
    except OSError as error:
        raise log.fail_halfway("truncate", error) from error
    if is_start_lowered:
        _checkpoint_lowered_start(log)
    return True


def truncate_fully_and_start_at(log: "Log", offset: int) -> None:
    """Empties the log; the next record gets `offset`.

    Raises:
        StorageError: The disk failed.
    """
    log.check_usable()
    is_start_lowered = offset < log.log_start_offset
    _announce(log, offset)
    try:
        remove_segments(log, list(log.segments)[::-1])
        log.segments.add(log.new_segment(offset))
        # Files that reappeared after a crash would lie below the recovery point.
        log.services.disk.fsync_dir(log.directory)
        log.leader_epochs.clear()
        log.producer_state.truncate_fully_and_start_at(offset)
        log.watermarks.restart_at(offset)
    except OSError as error:
        raise log.fail_halfway("truncate", error) from error
    if is_start_lowered:
        _checkpoint_lowered_start(log)


def _announce(log: "Log", offset: int) -> None:
    log.settle()
    try:
        if log.before_truncation is not None:
            log.before_truncation(log, offset)
        log.flusher.limit(offset)
        synced = log.recovery_point
        if log.watermarks.lower_recovery_point(offset):
            try:
                log.log_directory.checkpoint_recovery_points()
            except OSError:
                log.watermarks.recovery_point = synced  # As on disk, for the next attempt.
                raise
    except OSError as error:  # No file of the log has changed.
        raise log.fail("truncate", error) from error


def _checkpoint_lowered_start(log: "Log") -> None:
    try:
        log.log_directory.checkpoint_log_starts()
    except OSError as error:
        raise log.fail_halfway("truncate", error) from error
