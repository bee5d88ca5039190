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

Every sync is a step (`services.Steps`), and so is the reading of producers: a broker that follows a
leader truncates while its loop serves other partitions. Until the last step the log is marked
(`Log.is_truncating`): periodic work and compaction leave it alone, and its owner neither appends to
it nor reads from it. A log may be put aside between two steps, with its directory renamed; the
truncation ends then, and the data directory serves on.
"""

import os
from functools import partial
from typing import TYPE_CHECKING

from odradek.files import Disk
from odradek.storage.log.removal import remove_segments
from odradek.storage.log.services import Steps, run_here

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

__all__ = [
    "restart_steps",
    "truncate_fully_and_start_at",
    "truncate_steps",
    "truncate_to",
]


def truncate_to(log: "Log", offset: int) -> bool:
    """Removes the records at and above `offset`; returns whether there were any.

    Raises:
        ValueError: It is negative.
        StorageError: The disk failed.
    """
    return run_here(truncate_steps(log, offset))


def truncate_fully_and_start_at(log: "Log", offset: int) -> None:
    """Empties the log; the next record gets `offset`.

    Raises:
        StorageError: The disk failed.
    """
    run_here(restart_steps(log, offset))


def truncate_steps(log: "Log", offset: int) -> Steps[bool]:
    """`truncate_to` in steps: see the module's docstring."""
    if offset < 0:
        raise ValueError(f"cannot truncate {log.topic_partition} to {offset}")
    log.check_usable()
    if offset >= log.log_end_offset:
        yield from _forget_epochs_without_records(log)
        return False
    log.is_truncating = True
    try:
        first = log.segments.first
        assert first is not None
        if first.base_offset > offset:
            yield from _restart(log, offset)
        else:
            yield from _truncate(log, offset)
    finally:
        log.is_truncating = False
    return True


def restart_steps(log: "Log", offset: int) -> Steps[None]:
    """`truncate_fully_and_start_at` in steps: see the module's docstring."""
    log.check_usable()
    log.is_truncating = True
    try:
        yield from _restart(log, offset)
    finally:
        log.is_truncating = False


def _forget_epochs_without_records(log: "Log") -> Steps[None]:
    # An epoch that never got a record must be removed, too (KAFKA-10706).
    log.leader_epochs.truncate_from_end(log.log_end_offset)
    if log.leader_epochs.is_dirty:
        try:
            yield log.leader_epochs.flush
        except OSError as error:
            log.check_usable()  # Put aside meanwhile: its files have other names.
            raise log.fail("truncate", error) from error


def _truncate(log: "Log", offset: int) -> Steps[None]:
    is_start_lowered = offset < log.log_start_offset
    yield from _announce(log, offset)
    disk = log.services.disk
    try:
        later = [s for s in log.segments if s.base_offset > offset][::-1]
        remove_segments(log, later)
        if later:
            yield partial(disk.fsync_dir, log.directory)
            log.check_usable()
        segment = log.active
        if segment.truncate_to(offset, now_ms=log.services.clock.now_ms()):
            yield partial(_sync_file, disk, segment.path)
            log.check_usable()
        log.watermarks.truncate(offset)
        log.leader_epochs.truncate_from_end(offset)
        yield log.leader_epochs.flush
        yield log.rebuild_producer_state
    except OSError as error:
        log.check_usable()  # Put aside meanwhile: its files have other names.
        raise log.fail_halfway("truncate", error) from error
    if is_start_lowered:
        yield from _checkpoint_lowered_start(log)


def _restart(log: "Log", offset: int) -> Steps[None]:
    is_start_lowered = offset < log.log_start_offset
    yield from _announce(log, offset)
    try:
        remove_segments(log, list(log.segments)[::-1])
        log.segments.add(log.new_segment(offset))
        # Files that reappeared after a crash would lie below the recovery point.
        yield partial(log.services.disk.fsync_dir, log.directory)
        log.check_usable()
        log.leader_epochs.truncate_from_end(0)
        yield log.leader_epochs.flush
        log.producer_state.truncate_fully_and_start_at(offset)
        log.watermarks.restart_at(offset)
    except OSError as error:
        log.check_usable()  # Put aside meanwhile: its files have other names.
        raise log.fail_halfway("truncate", error) from error
    if is_start_lowered:
        yield from _checkpoint_lowered_start(log)


def _announce(log: "Log", offset: int) -> Steps[None]:
    log.settle()
    try:
        if log.before_truncation is not None:
            log.before_truncation(log, offset)
        log.flusher.limit(offset)
        synced = log.recovery_point
        if log.watermarks.lower_recovery_point(offset):
            try:
                yield log.log_directory.prepare_recovery_points()
            except OSError:
                log.watermarks.recovery_point = synced  # As on disk, for the next attempt.
                raise
            log.check_usable()
    except OSError as error:  # No file of the log has changed.
        raise log.fail("truncate", error) from error


def _checkpoint_lowered_start(log: "Log") -> Steps[None]:
    try:
        yield log.log_directory.prepare_log_starts()
    except OSError as error:
        raise log.fail_halfway("truncate", error) from error


def _sync_file(disk: Disk, path: str) -> None:
    """Syncs a file by a descriptor of its own: that of the log may be closed meanwhile."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        disk.fsync(fd)
    finally:
        disk.close(fd)
