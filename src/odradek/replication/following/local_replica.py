"""What a leader's answer does to the local log of a follower.

The records of an answer are written as they were received: headers and checksums are checked, no
record is read. A set is refused as a whole, and the partition tries again later, if a checksum is
wrong, if a batch is of a later epoch than the follower fetched under or of an earlier one than its
log has, or if offsets are missing (only a compacted topic has gaps). A set that cannot follow the
log, because another writer was there, is a mistake of ours: the partition fails.

After the records the watermarks follow, in this order: the high watermark is the leader's, as far
as the local log reaches; the log start is the leader's, as far as the high watermark reaches. A log
start above the high watermark is applied by a later answer (05 section 14).
"""

import logging
from typing import NamedTuple

from odradek.errors import InvariantViolation, UnexpectedAppendOffsetError
from odradek.replication.following.leader_endpoint import PartitionAnswer
from odradek.replication.partition import Partition
from odradek.storage.log.log import Log

__all__ = ["Applied", "SetStartsBelowLog", "apply_answer", "latest_epoch", "own_epoch_end"]

logger = logging.getLogger(__name__)


class Applied(NamedTuple):
    """The log after an answer."""

    next_offset: int
    last_epoch: int
    log_start_offset: int
    appended_bytes: int
    is_watermark_moved: bool


class SetStartsBelowLog(Exception):  # noqa: N818 - no failure: the log begins anew below
    """The first batch contains the start of the leader's log, and this log is still empty.

    DeleteRecords may move a log start into the middle of a batch: a new follower begins at that
    offset, and must accept the whole batch (KAFKA-6975).
    """

    def __init__(self, first_offset: int) -> None:
        super().__init__(first_offset)
        self.first_offset = first_offset


def apply_answer(
    partition: Partition, fetched: PartitionAnswer, *, fetch_offset: int, leader_epoch: int
) -> Applied:
    """Appends the records of an answer, and moves the watermarks.

    Raises:
        InvariantViolation: The log does not end where the follower fetched.
        SetStartsBelowLog: The log has to begin anew, then the answer can be applied.
        ApiError: The records are refused; nothing is written.
        StorageError: The disk failed.
    """
    log = partition.log
    if log is None or partition.is_leader or partition.leader_epoch != leader_epoch:
        raise InvariantViolation(f"{partition} does not follow in epoch {leader_epoch}")
    if log.log_end_offset != fetch_offset:
        raise InvariantViolation(
            f"{partition.tp}: fetched from offset {fetch_offset}, but the log ends at"
            f" {log.log_end_offset}"
        )
    size = 0
    if fetched.records:
        size = _append(log, fetched.records, leader_epoch)
    high_watermark = log.high_watermark
    if fetched.high_watermark != high_watermark:
        log.update_high_watermark(max(0, fetched.high_watermark))
    if fetched.log_start_offset > log.log_start_offset:
        log.maybe_increment_log_start_offset(min(fetched.log_start_offset, log.high_watermark))
    return Applied(
        log.log_end_offset,
        latest_epoch(log),
        log.log_start_offset,
        size,
        log.high_watermark != high_watermark,
    )


def _append(log: Log, records: memoryview, leader_epoch: int) -> int:
    try:
        return log.append_as_follower(
            records,
            fetch_leader_epoch=leader_epoch,
            refuses_gaps=not log.config.cleanup_compact,
        ).valid_bytes
    except UnexpectedAppendOffsetError as error:
        end = log.log_end_offset
        if log.log_start_offset == end and error.first_offset < end <= error.last_offset:
            raise SetStartsBelowLog(error.first_offset) from None
        raise


def latest_epoch(log: Log) -> int:
    """The epoch of the last record, as far as it is known; -1 otherwise."""
    epoch = log.leader_epochs.latest_epoch
    return -1 if epoch is None else epoch


def own_epoch_end(log: Log, epoch: int) -> tuple[int, int]:
    """The largest epoch of a log not above `epoch`, and where it ended; -1, -1 without one."""
    entries = log.leader_epochs.entries
    if not entries or entries[0].epoch > epoch:
        return -1, -1
    if epoch >= entries[-1].epoch:
        return entries[-1].epoch, log.log_end_offset
    found = log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
    return found.epoch, found.end_offset
