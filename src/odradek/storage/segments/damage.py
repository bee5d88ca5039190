"""The walk over the batches of a segment file and the damage between them.

A batch is *sound* if it is whole, matches its checksum and its offsets are possible at its place.
All bytes between two sound batches are one **extent** of damage, whatever they are:

| the damaged bytes                                    | how the next sound batch is found      |
|------------------------------------------------------|----------------------------------------|
| a batch with a bad checksum, a sound one behind it   | by its length, unless a sound one lies |
|                                                      | within what that length spans          |
| a batch of impossible offsets, checksum right        | by its length: a checksum that matches |
|                                                      | proves it                              |
| anything else: the chain of lengths is lost          | by `damage_search`, byte by byte       |

An extent that consists of whole batches with bad checksums, whose offsets fit in between, is
*served*: a reader gets the bytes as they are stored and detects the loss by the checksum. In any
other extent a reader could not find the next batch, or would assign wrong offsets to records: such
an extent is skipped.

The treatment of damage depends on its place. `cut_from` is the recovery point: data below was
synced and acknowledged and is never cut. The walk ends where the log has to end::

    offsets   0  1  2 |- damage -| 6  7     cut_from up to 3: the log ends behind 2
                                            4 or 5: it ends behind 2, but the bytes of the damage
                                            stay. 6 and 7 are cut: some records in front of them
                                            were not synced, and the log would have a hole
                                            6 or more: all of it stays
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from odradek.errors import CorruptRecordError
from odradek.files import Disk
from odradek.records.batch import CURRENT_MAGIC, HEADER_SIZE, peek_header
from odradek.storage.segments.damage_search import find_sound_batch
from odradek.storage.segments.scan import CHUNK_BYTES, Scan, ScannedBatch, Skim

__all__ = ["NEVER_CUT", "BatchWalk", "Cut", "Extent"]

NEVER_CUT: Final = 2**63  # Above every offset.

# Reads behind damage: more damage is likely there, and each extent starts a new read.
_CHUNK_BEHIND_DAMAGE: Final = 64 << 10


class Extent(NamedTuple):
    """Damage between two sound batches, or at an end of the file."""

    start: int  # Position behind the last sound batch.
    end: int  # Position of the next one, or the end of the file.
    next_offset: int  # The lowest base offset that the first batch in it may have had.
    reason: str
    is_served: bool  # Whether readers get the bytes as they are.


class Cut(NamedTuple):
    """Where a log has to end, and why."""

    position: int
    reason: str
    is_behind_damage: bool  # Bytes that have to stay, but cannot be read, are in front of it.


class BatchWalk:
    """Iterates the sound batches in [start, end) of a segment file.

    Args:
        disk: Where the file lives.
        fd: Of the file.
        start: The position of a batch, or where one should be.
        end: Of the valid bytes.
        next_offset: The lowest base offset of the first batch.
        last_offset: The highest offset that the search in a lost chain accepts.
        offset_limit: Base of the next segment, if there is one: all offsets lie below.
        cut_from: Damage at or above this offset ends the walk.
        on_damage: Called with each extent that stays, before the batch behind it is yielded.
        is_reach_known: Whether a last batch of a log above `last_offset` counts as damaged: no
            stop has recorded where the log ends.
        skim: Consumes whole runs of batches ahead of the walk, see `Scan`. It keeps `next_offset`
            and `good_end` up to date.

    Attributes:
        next_offset: The offset after the last sound batch.
        good_end: The position after it.
        is_resumed: Whether the current batch follows damage.
        jump: The last batch before which offsets are missing: the first of these, and the position
            after the batch.
        cut: Where `cut_from` ended the walk.
        tail: Damage that stays, at the end of the file.
    """

    __slots__ = (
        "_cut_from",
        "_disk",
        "_end",
        "_fd",
        "_is_reach_known",
        "_is_served",
        "_last_offset",
        "_offset_limit",
        "_on_damage",
        "_problem",
        "_scan",
        "_skim",
        "cut",
        "good_end",
        "is_resumed",
        "jump",
        "next_offset",
        "tail",
    )

    def __init__(
        self,
        disk: Disk,
        fd: int,
        *,
        start: int,
        end: int,
        next_offset: int,
        last_offset: int,
        offset_limit: int | None = None,
        cut_from: int = NEVER_CUT,
        on_damage: Callable[[Extent], None] | None = None,
        is_reach_known: bool = False,
        skim: Skim | None = None,
    ) -> None:
        self._disk = disk
        self._fd = fd
        self._end = end
        self._last_offset = last_offset if offset_limit is None else offset_limit - 1
        self._offset_limit = offset_limit
        self._cut_from = cut_from
        self._on_damage = on_damage
        self._is_reach_known = is_reach_known
        self._skim = skim
        self._problem: str | None = None  # With the bytes at `good_end`; None while all is well.
        self._is_served = True
        self._scan = self._scan_from(start, CHUNK_BYTES)
        self.next_offset = next_offset
        self.good_end = start
        self.is_resumed = False
        self.jump: tuple[int, int] | None = None
        self.cut: Cut | None = None
        self.tail: Extent | None = None

    def __iter__(self) -> Iterator[ScannedBatch]:
        last_offset = self._last_offset
        while True:
            scan = self._scan
            for batch in scan:
                position, header, _, is_crc_valid = batch
                next_offset = self.next_offset
                problem = None
                if (
                    not is_crc_valid
                    or header.base_offset != next_offset
                    or header.last_offset_delta < 0
                    or header.last_offset > last_offset
                ):
                    problem = self._problem_with(batch)
                if problem is None:
                    if self._problem is not None and not self._leave_damage(batch):
                        return
                    self.next_offset = max(next_offset, header.next_offset)
                    self.good_end = position + header.size
                    yield batch
                    self.is_resumed = False
                elif not self._enter_damage(problem, position):
                    return
                elif is_crc_valid:
                    self._is_served = False
                elif (resumed := self._resume_behind(batch)) is None:
                    self._end_in_damage()
                    return
                elif resumed != position + header.size:
                    self._scan = self._scan_from(resumed, _CHUNK_BEHIND_DAMAGE)
                    break
            if self._scan is not scan:
                continue
            if scan.damage is not None:
                position, reason = scan.damage
                if not self._enter_damage(reason, position):
                    return
                self._is_served = False
                resumed = self._search(position + 1, self._end, self._last_offset)
                if resumed is not None:
                    self._scan = self._scan_from(resumed, _CHUNK_BEHIND_DAMAGE)
                    continue
            if self._problem is not None:
                self._end_in_damage()
            return

    # Damage begins and ends

    def _enter_damage(self, problem: str, position: int) -> bool:
        """Begins an extent of damage. Returns whether the walk continues."""
        if self._problem is not None:
            return True
        if self.next_offset >= self._cut_from:
            self.cut = Cut(position, problem, is_behind_damage=False)
            return False
        self._problem, self._is_served = problem, True
        return True

    def _leave_damage(self, batch: ScannedBatch) -> bool:
        """Reports the extent that a sound batch ends. Returns whether the walk continues."""
        self._report(batch.position)
        if batch.header.magic >= CURRENT_MAGIC and batch.header.base_offset > self._cut_from:
            self.cut = Cut(
                batch.position,
                f"damage from position {self.good_end} on reaches over the recovery point"
                f" {self._cut_from}, batches go on at offset {batch.header.base_offset}",
                is_behind_damage=True,
            )
            return False
        self._problem = None
        self.is_resumed = True
        return True

    def _end_in_damage(self) -> None:
        self.tail = self._report(self._end)

    def _report(self, end: int) -> Extent:
        assert self._problem is not None
        extent = Extent(self.good_end, end, self.next_offset, self._problem, self._is_served)
        if self._on_damage is not None:
            self._on_damage(extent)
        return extent

    # Judging

    def _problem_with(self, batch: ScannedBatch) -> str | None:
        """The problem of a batch that follows `next_offset`; None if there is none.

        Offsets only grow, and gaps are legal. The checksum does not cover the base offset, so a
        batch that jumps ahead is compared with the next one: if that continues where this one
        should have begun, the offset of this one is wrong. So is that of the last batch of a log
        if it is out of its segment's reach.
        """
        position, header, _, is_crc_valid = batch
        next_offset = self.next_offset
        if not is_crc_valid:
            return f"the batch does not match its checksum {header.crc:#010x}"
        if header.last_offset_delta < 0:
            return "the batch ends before its start"
        if header.magic < CURRENT_MAGIC:
            return None
        if self._offset_limit is not None and header.last_offset >= self._offset_limit:
            return (
                f"the batch ends at offset {header.last_offset},"
                f" the next segment starts at {self._offset_limit}"
            )
        if header.base_offset == next_offset:
            return None
        if header.base_offset < next_offset:
            return f"the batch starts at offset {header.base_offset}, expected {next_offset} up"
        try:
            following = peek_header(self._scan.read(position + header.size, HEADER_SIZE))
        except CorruptRecordError:
            following = None
        following_offset = -1
        if following is not None and following.magic == CURRENT_MAGIC:
            following_offset = following.base_offset
        if next_offset <= following_offset < header.base_offset:
            return (
                f"the batch starts at offset {header.base_offset},"
                f" the one behind it at {following_offset}"
            )
        if (
            self._is_reach_known
            and header.last_offset > self._last_offset
            and following_offset < header.next_offset
        ):
            # An append of this offset would have rolled to a new segment.
            return (
                f"the batch starts at offset {header.base_offset}, out of the segment's reach, and"
                " none behind it bears that out"
            )
        self.jump = next_offset, position + header.size
        return None

    def _resume_behind(self, batch: ScannedBatch) -> int | None:
        """Where sound batches continue after one with a bad checksum, whose length may be wrong."""
        start, behind = batch.position, batch.position + batch.header.size
        end, last_offset = self._end, self._last_offset
        if behind < end:
            following = self._scan.peek_alone(behind)
            if isinstance(following, ScannedBatch) and following.is_crc_valid:
                header = following.header
                if header.magic < CURRENT_MAGIC:
                    return behind
                if header.base_offset >= self.next_offset:
                    # A batch within the value of the damaged one would have to fit in between.
                    end, last_offset = behind, header.base_offset - 1
        found = self._search(start + 1, end, last_offset)
        resumed = behind if found is None and end == behind < self._end else found
        if not self._leads_to(start, self._end if resumed is None else resumed):
            self._is_served = False
        return resumed

    def _leads_to(self, position: int, target: int) -> bool:
        """Whether lengths lead from one position to exactly the other, and offsets grow with them.

        Reads are served by headers: a header with wrong offsets would be returned in place of the
        batches that have these offsets.
        """
        next_offset = self.next_offset
        while True:
            try:
                header = peek_header(self._scan.read(position, HEADER_SIZE))
            except CorruptRecordError:
                return False
            if position == target:
                return (
                    header is None
                    or header.magic < CURRENT_MAGIC
                    or header.base_offset >= next_offset
                )
            if (
                header is None
                or position > target
                or header.magic < CURRENT_MAGIC
                or header.base_offset < next_offset
                or header.last_offset_delta < 0
                or header.last_offset > self._last_offset
            ):
                return False
            position += header.size
            next_offset = header.next_offset

    def _search(self, start: int, end: int, last_offset: int) -> int | None:
        return find_sound_batch(
            self._scan.read, start, end, first_offset=self.next_offset, last_offset=last_offset
        )

    # Reading

    def _scan_from(self, start: int, chunk_bytes: int) -> Scan:
        return Scan(
            self._disk,
            self._fd,
            start,
            self._end,
            check_crc=True,
            chunk_bytes=chunk_bytes,
            skim=None if self._skim is None else self._skim_in_chain,
        )

    def _skim_in_chain(self, chunk: memoryview, position: int, chunk_start: int) -> int:
        """Skims, but yields the first batch behind damage in any case."""
        if self._skim is None or self._problem is not None:
            return position
        return self._skim(chunk, position, chunk_start)
