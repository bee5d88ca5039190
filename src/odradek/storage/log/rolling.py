"""Rolling: starts a new active segment.

The old one is not synced here but in the background, up to the base of the new one; until that is
done, a witness says where the old one ends (`roll_witnesses`). A recovery of the new segment starts
from the producer snapshot at its base; that of many producers is written by the same background
work (`background_snapshot`).
"""

import logging
import os
from typing import TYPE_CHECKING

from odradek.errors import InvariantViolation
from odradek.storage import paths
from odradek.storage.segments.segment import LogSegment

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

__all__ = ["new_segment", "roll"]

logger = logging.getLogger(__name__)


def roll(log: "Log", expected_offset: int) -> LogSegment:
    """Starts a new active segment at the log end, or at `expected_offset` if that is higher.

    Raises:
        InvariantViolation: There is a segment with data at or above it.
        OSError: The disk refused.
    """
    base = max(expected_offset, log.log_end_offset)
    active = log.active
    if log.segments.get(base) is not None:
        if active.base_offset != base or active.size > 0:
            raise InvariantViolation(
                f"{log.topic_partition}: cannot roll to {base}: a segment with data is there"
            )
        # An index without room for one entry reports full while its segment is empty. The witness
        # of the segment still tells where the segment before it ends.
        log.segments.remove(active)
        active.delete_if_exists()
    elif base < active.base_offset:
        raise InvariantViolation(
            f"{log.topic_partition}: cannot roll to {base}, below the active segment"
            f" {active.base_offset}"
        )
    else:
        _remove_stray_files(log, base)
        _leave_witness(log, active, base)
        active.on_become_inactive()
    log.producer_state.update_map_end_offset(base)
    log.producer_state.begin_snapshot()
    segment = new_segment(log, base)
    log.segments.add(segment)
    log.watermarks.update_end(log.log_end_offset)
    log.flusher.schedule(base)
    return segment


def _leave_witness(log: "Log", active: LogSegment, base: int) -> None:
    """Makes a witness of where the records before `base` end, if they are not on disk yet."""
    # Not the log end, which lies in a gap after some truncations: no record would reach it.
    end = active.read_next_offset().next_offset
    if end > log.recovery_point:
        log.witnesses.add(base, end)
    else:
        log.witnesses.remove(base)


def new_segment(log: "Log", base_offset: int, stage: str = "") -> LogSegment:
    """Creates the files of a segment; the caller adds it to the log."""
    config, services = log.config, log.services
    jitter = min(config.segment_jitter_ms, config.roll_ms)
    return LogSegment(
        log.directory,
        base_offset,
        config=config,
        disk=services.disk,
        now_ms=services.clock.now_ms(),
        roll_jitter_ms=services.random.randrange(jitter) if jitter > 0 else 0,
        stage=stage,
        create=True,
    )


def _remove_stray_files(log: "Log", base_offset: int) -> None:
    for suffix in (paths.LOG_SUFFIX, *paths.INDEX_SUFFIXES):
        path = paths.segment_path(log.directory, base_offset, suffix)
        if os.path.exists(path):
            logger.warning("%s: removing the stray file %s", log.topic_partition, path)
            log.services.disk.unlink(path)
