"""Reading a segment from its first to its last byte: indexes rebuilt, producers replayed, torn tail
found.

What damage means depends on where it lies. `cut_from` is the recovery point: data below it was
synced and acknowledged, so it stays, whatever it looks like; a reader's own checksum will find it.
Data at or above it was in the page cache only, so the first batch that is not whole ends the log.

| damage                                  | below `cut_from`          | at or above it          |
|-----------------------------------------|---------------------------|-------------------------|
| bad checksum, bad offset, length intact | reported, stepped over    | file cut in front of it |
| chain of batches lost                   | reported, the next sound  | file cut in front of it |
|                                         | batch is looked for       |                         |
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from odradek.errors import InvalidOffsetError
from odradek.records.batch import CURRENT_MAGIC, NO_TIMESTAMP
from odradek.records.scan import step_over_run
from odradek.storage.config import INT32_MAX, INT64_MAX
from odradek.storage.leader_epochs import LeaderEpochCache
from odradek.storage.producer_replay import aborted_transaction, apply_batch
from odradek.storage.producer_state import ProducerStateManager
from odradek.storage.scan import Damage, Salvage
from odradek.storage.segment import LogSegment
from odradek.storage.transaction_index import AbortedTransaction

__all__ = ["NEVER_CUT", "RecoveredSegment", "SegmentOverflow", "recover_segment"]

logger = logging.getLogger(__name__)

NEVER_CUT = 2**63  # Above every offset: an index-only scan.
_MAX_PATIENCE = 64  # Batches, at most, that are looked at one by one before a run is tried again.


class SegmentOverflow(Exception):  # noqa: N818 - control flow: the segment has to be split
    """A segment holds offsets that its indexes cannot."""

    def __init__(self, segment: LogSegment, message: str) -> None:
        super().__init__(message)
        self.segment = segment


class RecoveredSegment(NamedTuple):
    """What a scan of a whole segment found."""

    next_offset: int  # Behind the last good batch; the base of an empty segment.
    truncated_bytes: int
    damage: Damage | None  # Why the file was cut.
    is_tail_damaged: bool  # Bytes that are kept, but cannot be read, stand at the end.


class _Progress:
    """How far the recovery of a segment has come; moves over everyday batches in whole runs."""

    __slots__ = (
        "_indexes",
        "_interval_bytes",
        "_last_allowed_offset",
        "_patience",
        "_unasked",
        "good_end",
        "is_tail_damaged",
        "last_entry_position",
        "latest_epoch",
        "max_timestamp",
        "next_offset",
    )

    def __init__(
        self, segment: LogSegment, epochs: LeaderEpochCache | None, interval_bytes: int
    ) -> None:
        self._indexes = segment.indexes
        self._interval_bytes = interval_bytes
        self._last_allowed_offset = segment.base_offset + INT32_MAX
        # Batches that are passed without looking for a run, and how many after the next failure.
        self._unasked = 0
        self._patience = 1
        # Behind the last good batch, as an offset and as a position.
        self.next_offset = segment.base_offset
        self.good_end = 0
        self.max_timestamp = NO_TIMESTAMP
        self.last_entry_position = 0
        # The highest epoch that is not news; all of them if nobody wants to know.
        self.latest_epoch = INT32_MAX
        if epochs is not None:
            latest = epochs.latest_epoch
            self.latest_epoch = -1 if latest is None else min(latest, INT32_MAX)
        self.is_tail_damaged = False

    def skim(self, chunk: memoryview, position: int, chunk_start: int) -> int:
        """Takes the run of everyday batches at `position` of a chunk; returns where it ends."""
        if self._unasked:
            self._unasked -= 1
            return position
        if self._last_allowed_offset >= INT64_MAX:  # Beyond what a run can count.
            return position
        indexes = self._indexes
        behind, self.next_offset, self.max_timestamp, offset, entry_position, entries = (
            step_over_run(
                chunk,
                position,
                self.next_offset,
                self._last_allowed_offset,
                self.latest_epoch,
                self.max_timestamp,
                indexes.offset_of_max_timestamp,
                self.last_entry_position - chunk_start,
                self._interval_bytes,
            )
        )
        if behind == position:
            # Where every batch has a producer there are no runs: ask less and less often.
            self._unasked = self._patience
            self._patience = min(2 * self._patience, _MAX_PATIENCE)
            return position
        self._patience = 1
        for last_offset, at, timestamp, offset_of_timestamp in entries:
            indexes.note_timestamp(timestamp, offset_of_timestamp)
            indexes.add_scanned(last_offset, chunk_start + at)
        indexes.note_timestamp(self.max_timestamp, offset)
        self.last_entry_position = chunk_start + entry_position
        self.good_end = chunk_start + behind
        self.is_tail_damaged = False
        return behind


def recover_segment(  # noqa: C901 - one loop over the batches, in the order of the rules
    segment: LogSegment,
    state: ProducerStateManager,
    epochs: LeaderEpochCache | None,
    *,
    cut_from: int,
    index_interval_bytes: int,
    before_cut: Callable[[], None] | None = None,
) -> RecoveredSegment:
    """Rebuilds all indexes of a segment, and cuts its file where the rules above say so.

    Args:
        segment: What to read.
        state: Producers up to the segment's base; brought to its end.
        epochs: Where epochs of the batches go, not durably.
        cut_from: Offset from which damage ends the segment.
        index_interval_bytes: Distance of index entries.
        before_cut: Called before the file is cut. What lies behind this segment must be gone,
            durably, by then: a crash between would leave a hole.

    Raises:
        SegmentOverflow: An offset does not fit; nothing was cut.
        OSError: The disk refused; not a sign of damage.
    """
    indexes = segment.indexes
    indexes.reset()
    aborted: list[AbortedTransaction] = []
    base = segment.base_offset
    damage: Damage | None = None
    progress = _Progress(segment, epochs, index_interval_bytes)

    def keeps(salvage: Salvage, found: Damage) -> bool:
        """Whether damage that broke the chain has to stay."""
        if progress.next_offset >= cut_from:
            return False
        _report(segment, found, progress.next_offset)
        salvage.next_offset, salvage.good_end = progress.next_offset, progress.good_end
        return True

    salvage = segment.salvage(keeps, skim=progress.skim)
    for batch in salvage:
        position, header, view, is_crc_valid = batch
        # By place: thirteen fields at once cost what two by name do.
        (
            base_offset, _, leader_epoch, magic, _, _, last_offset_delta, _, batch_max_timestamp,
            producer_id, _, _, _,
        ) = header  # fmt: skip
        next_offset = progress.next_offset
        if (not (is_crc_valid and base_offset == next_offset) or last_offset_delta < 0) and (
            problem := segment.problem_with(batch, next_offset)
        ) is not None:
            if next_offset >= cut_from:
                damage = Damage(position, problem)
                break
            _report(segment, Damage(position, problem), next_offset)
            progress.is_tail_damaged = True
            continue
        last_offset = base_offset + last_offset_delta
        if not 0 <= last_offset - base <= INT32_MAX:
            raise SegmentOverflow(segment, f"offset {last_offset} in {segment.path}")
        if batch_max_timestamp > progress.max_timestamp:
            progress.max_timestamp = batch_max_timestamp
            indexes.note_timestamp(batch_max_timestamp, last_offset)
        if position - progress.last_entry_position > index_interval_bytes or salvage.is_resumed:
            try:
                indexes.add_scanned(last_offset, position)
            except InvalidOffsetError as error:  # Old formats do not promise that offsets grow.
                if next_offset >= cut_from:
                    damage = Damage(position, str(error))
                    break
                _report(segment, Damage(position, str(error)), next_offset)
            progress.last_entry_position = position
        if magic >= CURRENT_MAGIC:
            if leader_epoch > progress.latest_epoch and epochs is not None:
                epochs.assign(leader_epoch, base_offset, durable=False)
                progress.latest_epoch = leader_epoch
            if producer_id >= 0 and (completed := apply_batch(state, header, view)) is not None:
                if completed.is_aborted:
                    aborted.append(aborted_transaction(state, completed))
                state.complete_transaction(completed)
        if last_offset >= next_offset:
            progress.next_offset = last_offset + 1
        progress.good_end = position + len(view)
        progress.is_tail_damaged = False
    next_offset = progress.next_offset
    if damage is None and salvage.damage is not None:
        if next_offset >= cut_from:
            damage = salvage.damage
        else:
            progress.is_tail_damaged = True
    truncated = 0
    if damage is not None:
        if before_cut is not None:
            before_cut()
        truncated = segment.size - damage.position
        segment.cut(damage.position)
    indexes.finish_scanned()
    segment.transaction_index.replace(aborted)
    state.update_map_end_offset(next_offset)
    return RecoveredSegment(next_offset, truncated, damage, progress.is_tail_damaged)


def _report(segment: LogSegment, damage: Damage, next_offset: int) -> None:
    logger.error(
        "%s: damaged data below the recovery point is kept as it is: %s, at position %d,"
        " behind offset %d",
        segment.path, damage.reason, damage.position, next_offset - 1,
    )  # fmt: skip
