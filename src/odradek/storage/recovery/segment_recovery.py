"""Recovery of a segment: rebuilds its indexes, replays its producers, cuts its torn tail.

What damage means depends on where it lies, and `damage` walks over it accordingly. `cut_from` is
the recovery point: data below it was synced and acknowledged, so it stays, whatever it looks like.
Data at or above it was in the page cache only, so the first batch that is not sound ends the log.

| damage                         | consequence                                                     |
|--------------------------------|-----------------------------------------------------------------|
| below `cut_from`               | reported and stepped over; the next sound batch goes on         |
| at or above it                 | the file is cut in front of it                                  |
| from below to above it: the    | its bytes stay, the file is cut behind them, and the log goes   |
| next sound batch begins behind | on in a new segment                                             |
"""

import logging
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from odradek.errors import InvalidOffsetError
from odradek.records.batch import CURRENT_MAGIC, NO_TIMESTAMP
from odradek.records.scan import ProducerTails, step_over_run
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log.config import INT32_MAX, INT64_MAX
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.producers.replay import aborted_transaction, apply_batch
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.segments.damage import NEVER_CUT
from odradek.storage.segments.scan import Damage
from odradek.storage.segments.segment import LogSegment

__all__ = ["NEVER_CUT", "RecoveredSegment", "SegmentOverflow", "recover_segment"]

logger = logging.getLogger(__name__)

# Of a header: base offset, last offset delta, largest timestamp, producer id and epoch, sequence.
_PLAIN = Struct(">q15xi8xqqhi").unpack_from

_MOST_SET_ASIDE = 10_000  # Headers of producers' batches that wait to be folded in: a megabyte.
_MAX_PATIENCE = 64  # Batches, at most, that are looked at one by one before a run is tried again.


class SegmentOverflow(Exception):  # noqa: N818 - control flow: the segment has to be split
    """A segment has offsets that its indexes cannot store."""

    def __init__(self, segment: LogSegment, message: str) -> None:
        super().__init__(message)
        self.segment = segment


class RecoveredSegment(NamedTuple):
    """The result of a scan of a whole segment."""

    next_offset: int  # Behind the last good batch; the base of an empty segment.
    truncated_bytes: int
    damage: Damage | None  # Why the file was cut.
    is_tail_damaged: bool  # Bytes that are kept, but cannot be read, stand at the end.
    missing_from: int | None  # The first offset that is missing in front of the last batch.


class _Progress:
    """The progress of a recovery; moves over ordinary batches in whole runs."""

    __slots__ = (
        "_indexes",
        "_interval_bytes",
        "_last_allowed_offset",
        "_patience",
        "_recorded",
        "_state",
        "_tails",
        "_unasked",
        "last_entry_position",
        "latest_epoch",
        "max_timestamp",
        "turn_offset",
        "walk",
    )

    def __init__(
        self,
        segment: LogSegment,
        state: ProducerStateManager,
        epochs: LeaderEpochCache | None,
        interval_bytes: int,
        cut_from: int,
        recorded: ProducerStateManager | None,
    ) -> None:
        self._state = state
        self._tails = ProducerTails()
        self._indexes = segment.indexes
        self._interval_bytes = interval_bytes
        self._last_allowed_offset = segment.base_offset + INT32_MAX
        if segment.offset_limit is not None:
            self._last_allowed_offset = min(self._last_allowed_offset, segment.offset_limit - 1)
        self._recorded = recorded
        # Where the producers become those that are recorded; runs end in front of it.
        self.turn_offset = NEVER_CUT if recorded is None else recorded.map_end_offset
        # Batches that are passed without looking for a run, and how many after the next failure.
        self._unasked = 0
        self._patience = 1
        self.max_timestamp = NO_TIMESTAMP
        self.last_entry_position = 0
        # The highest known epoch; the largest number if epochs are not collected.
        self.latest_epoch = INT32_MAX
        if epochs is not None:
            latest = epochs.latest_epoch
            self.latest_epoch = -1 if latest is None else min(latest, INT32_MAX)
        # What steps through the segment; the runs move it on.
        self.walk = segment.walk(cut_from=cut_from, is_reach_known=True, skim=self.skim)

    def turn(self) -> None:
        """Replaces the producers that were found by those that are recorded."""
        self.apply_producers()
        if self._recorded is not None:
            self._state.become(self._recorded)
            self._recorded, self.turn_offset = None, NEVER_CUT

    def finish(self) -> None:
        """Ends the producers' state where the walk has ended."""
        if self.turn_offset <= self.walk.next_offset:
            self.turn()
        self.apply_producers()

    def skim(self, chunk: memoryview, position: int, chunk_start: int) -> int:
        """Consumes the run of ordinary batches at `position` of a chunk; returns where it ends."""
        if self._unasked:
            self._unasked -= 1
            return position
        if self._last_allowed_offset >= INT64_MAX:  # Beyond what a run can count.
            return position
        indexes, walk = self._indexes, self.walk
        behind, walk.next_offset, self.max_timestamp, offset, entry_position, entries = (
            step_over_run(
                chunk,
                position,
                walk.next_offset,
                min(self._last_allowed_offset, self.turn_offset - 1),
                self.latest_epoch,
                self.max_timestamp,
                indexes.offset_of_max_timestamp,
                self.last_entry_position - chunk_start,
                self._interval_bytes,
                self._tails,
            )
        )
        if len(self._tails) > _MOST_SET_ASIDE:
            self.apply_producers()
        if behind == position:
            # Where every batch belongs to a transaction there are no runs: ask less often.
            self._unasked = self._patience
            self._patience = min(2 * self._patience, _MAX_PATIENCE)
            return position
        self._patience = 1
        for last_offset, at, timestamp, offset_of_timestamp in entries:
            indexes.note_timestamp(timestamp, offset_of_timestamp)
            indexes.add_scanned(last_offset, chunk_start + at)
        indexes.note_timestamp(self.max_timestamp, offset)
        self.last_entry_position = chunk_start + entry_position
        walk.good_end = chunk_start + behind
        return behind

    def apply_producers(self) -> None:
        """Applies the last few batches of each producer in the runs to the producers' state."""
        apply_plain = self._state.apply_plain
        for data in self._tails.drain():
            apply_plain(*_PLAIN(data))


# Long because its loop sees every batch of a data directory: calls would prolong each recovery.
def recover_segment(
    segment: LogSegment,
    state: ProducerStateManager,
    epochs: LeaderEpochCache | None,
    *,
    cut_from: int,
    index_interval_bytes: int,
    recorded: ProducerStateManager | None = None,
    before_cut: Callable[[], None] | None = None,
) -> RecoveredSegment:
    """Rebuilds all indexes of a segment, and cuts its file where the rules above say so.

    Args:
        segment: The segment to recover.
        state: Producers up to the segment's base; its batches are applied to it.
        epochs: Gets the epochs of the batches, not durably.
        cut_from: Offset from which damage ends the segment.
        index_interval_bytes: Distance of index entries.
        recorded: Producers as of an offset within the segment, at most `cut_from`, as a snapshot
            has them: `state` becomes this there, because it may contain batches that are damaged.
        before_cut: Called before the file is cut; it must remove all later segments, durably: a
            crash between would leave a hole.

    Raises:
        SegmentOverflow: An offset does not fit; nothing was cut.
        OSError: The disk refused; not a sign of damage.
    """
    indexes = segment.indexes
    indexes.reset()
    aborted: list[AbortedTransaction] = []
    base = segment.base_offset
    progress = _Progress(segment, state, epochs, index_interval_bytes, cut_from, recorded)
    walk = progress.walk
    damage: Damage | None = None
    for position, header, view, _ in walk:
        # By place: thirteen fields at once cost what two by name do.
        (
            base_offset, _, leader_epoch, magic, _, _, last_offset_delta, _, batch_max_timestamp,
            producer_id, _, _, _,
        ) = header  # fmt: skip
        last_offset = base_offset + last_offset_delta
        if base_offset >= progress.turn_offset:
            progress.turn()
        if not 0 <= last_offset - base <= INT32_MAX:
            raise SegmentOverflow(segment, f"offset {last_offset} in {segment.path}")
        if batch_max_timestamp > progress.max_timestamp:
            progress.max_timestamp = batch_max_timestamp
            indexes.note_timestamp(batch_max_timestamp, last_offset)
        if position - progress.last_entry_position > index_interval_bytes or walk.is_resumed:
            try:
                indexes.add_scanned(last_offset, position)
            except InvalidOffsetError as error:  # Old formats do not promise that offsets grow.
                if walk.next_offset >= cut_from:
                    damage = Damage(position, str(error))
                    break
                logger.warning("%s: at position %d: %s", segment.path, position, error)
            progress.last_entry_position = position
        if magic >= CURRENT_MAGIC:
            if leader_epoch > progress.latest_epoch and epochs is not None:
                epochs.assign(leader_epoch, base_offset, durable=False)
                progress.latest_epoch = leader_epoch
            if producer_id >= 0:
                progress.apply_producers()
                if (completed := apply_batch(state, header, view)) is not None:
                    if completed.is_aborted:
                        aborted.append(aborted_transaction(state, completed))
                    state.complete_transaction(completed)
    progress.finish()
    is_tail_damaged = walk.tail is not None
    if walk.cut is not None:
        damage = Damage(walk.cut.position, walk.cut.reason)
        is_tail_damaged = walk.cut.is_behind_damage
    truncated = 0 if damage is None else _cut(segment, damage.position, before_cut)
    indexes.finish_scanned()
    segment.chain.trust(0)
    is_cut = damage is not None and not is_tail_damaged
    segment.transaction_index.replace(
        _with_proven(segment, aborted, walk.next_offset if is_cut else NEVER_CUT)
    )
    state.update_map_end_offset(walk.next_offset)
    missing_from = None
    if walk.jump is not None and walk.jump[1] == walk.good_end:
        missing_from = walk.jump[0]
    return RecoveredSegment(walk.next_offset, truncated, damage, is_tail_damaged, missing_from)


def _cut(segment: LogSegment, position: int, before_cut: Callable[[], None] | None) -> int:
    """Cuts the file; returns how many bytes that costs."""
    if before_cut is not None:
        before_cut()
    truncated = segment.size - position
    segment.cut(position)
    return truncated


def _with_proven(
    segment: LogSegment, found: list[AbortedTransaction], end: int
) -> list[AbortedTransaction]:
    """The aborted transactions of a segment: those found, and those that its index has proof of.

    A marker that is damaged by now is in the index only, and without it records would be shown that
    were never committed. Transactions at or behind `end` are cut.
    """
    aborted = {one.last_offset: one for one in segment.transaction_index.proven_entries()}
    aborted.update((one.last_offset, one) for one in found)
    return [aborted[offset] for offset in sorted(aborted) if offset < end]
