"""Stepping through the batches of a segment file, in large reads, without touching records.

A scan costs one header unpack and, where asked, one CRC per batch; the file is read in chunks of
one mebibyte, so that system calls do not count. Damage is data here, not an exception: a scan
ends with `Scan.damage` saying where the chain of batches broke and why, and the caller decides
whether to cut, to report or to rebuild.
"""

import logging
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from odradek.errors import CorruptRecordError
from odradek.files import Disk
from odradek.records.batch import (
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    is_crc_valid,
    parse_header,
    peek_header,
)

__all__ = ["CHUNK_BYTES", "Damage", "Salvage", "Scan", "ScannedBatch", "Skim", "find_batch"]

logger = logging.getLogger(__name__)

CHUNK_BYTES = (
    1 << 20
)  # Large enough that a read's system call vanishes beside the CRC of its bytes.
_CRC_START = 21  # What the CRC of a magic-2 batch covers begins here.


class ScannedBatch(NamedTuple):
    """One batch of a file; `view` is valid until the next one is asked for."""

    position: int
    header: BatchHeader
    view: memoryview
    is_crc_valid: bool  # True when CRCs are not checked.


class Damage(NamedTuple):
    """Where stepping had to stop before the end, and why."""

    position: int
    reason: str


# Told bytes of the file, a position among them and where in the file they begin, it returns the
# position behind the whole batches from there on that nobody else has to see.
Skim: TypeAlias = Callable[[memoryview, int, int], int]


class Scan:
    """Iterates the batches in [start, end) of an open file, but for those that `skim` takes.

    Attributes:
        valid_end: Position behind the last whole batch that was yielded or skimmed.
        damage: Why the scan ended before `end`; None if it did not.
    """

    __slots__ = (
        "_check_crc",
        "_chunk_bytes",
        "_disk",
        "_end",
        "_fd",
        "_skim",
        "damage",
        "valid_end",
    )

    def __init__(
        self,
        disk: Disk,
        fd: int,
        start: int,
        end: int,
        *,
        check_crc: bool,
        chunk_bytes: int = CHUNK_BYTES,
        skim: Skim | None = None,
    ) -> None:
        self._disk = disk
        self._fd = fd
        self._end = end
        self._check_crc = check_crc
        self._chunk_bytes = chunk_bytes
        self._skim = skim
        self.valid_end = start
        self.damage: Damage | None = None

    def __iter__(self) -> Iterator[ScannedBatch]:
        end = self._end
        check_crc = self._check_crc
        skim = self._skim
        unpack = HEADER.unpack_from
        new = tuple.__new__  # As `_make` does, less two calls per batch.
        while self.valid_end < end:
            chunk_start = self.valid_end
            chunk = self.read(chunk_start, self._chunk_bytes)
            available = len(chunk)
            position = 0
            while True:
                if skim is not None:
                    position = skim(chunk, position, chunk_start)
                    self.valid_end = chunk_start + position
                if position + HEADER_SIZE > available:
                    break
                fields = unpack(chunk, position)
                size = fields[1] + LOG_OVERHEAD
                batch_end = position + size
                if fields[3] != CURRENT_MAGIC or size < HEADER_SIZE:
                    if (legacy := self._parse_legacy(chunk, position, chunk_start)) is None:
                        break
                    batch_end = position + legacy.header.size
                    self.valid_end = chunk_start + batch_end
                    yield legacy
                    position = batch_end
                    continue
                if batch_end > available:
                    break
                valid = (
                    not check_crc or crc32c(chunk[position + _CRC_START : batch_end]) == fields[4]
                )
                self.valid_end = chunk_start + batch_end
                header = new(BatchHeader, fields)
                yield new(
                    ScannedBatch,
                    (chunk_start + position, header, chunk[position:batch_end], valid),
                )
                position = batch_end
            if self.valid_end == chunk_start:  # Larger than a chunk, at the very end, or broken.
                batch = self.read_alone(chunk_start)
                if batch is None:
                    return
                self.valid_end = chunk_start + batch.header.size
                yield batch

    def _parse_legacy(
        self, chunk: memoryview, position: int, chunk_start: int
    ) -> ScannedBatch | None:
        """A whole magic 0 or 1 message inside the chunk; None for anything else."""
        try:
            header = parse_header(chunk, position)
        except CorruptRecordError:
            return None
        if header is None or header.magic == CURRENT_MAGIC:
            return None
        view = chunk[position : position + header.size]
        valid = not self._check_crc or is_crc_valid(view, 0, header.size)
        return ScannedBatch(chunk_start + position, header, view, valid)

    def read_alone(self, position: int) -> ScannedBatch | None:
        """One batch by a read of its own; None with `damage` set if there is none."""
        prefix = self.read(position, HEADER_SIZE)
        try:
            header = peek_header(prefix)
        except CorruptRecordError as error:
            self.damage = Damage(position, str(error))
            return None
        if header is None:
            self.damage = Damage(position, f"{len(prefix)} bytes do not hold a batch header")
            return None
        if position + header.size > self._end:
            self.damage = Damage(
                position,
                f"the batch says {header.size} bytes, {self._end - position} are left",
            )
            return None
        view = self.read(position, header.size)
        if len(view) < header.size:
            self.damage = Damage(
                position, f"the batch says {header.size} bytes, the file ends after {len(view)}"
            )
            return None
        valid = not self._check_crc or is_crc_valid(view, 0, header.size)
        return ScannedBatch(position, header, view, valid)

    def read(self, position: int, size: int) -> memoryview:
        """Bytes of the range; fewer only where it, or the file, ends."""
        wanted = min(size, self._end - position)
        data = self._disk.pread(self._fd, wanted, position)
        while len(data) < wanted:  # A read may return less; an empty one is the end of the file.
            more = self._disk.pread(self._fd, wanted - len(data), position + len(data))
            if not more:
                break
            data += more
        return memoryview(data)


class Salvage:
    """Iterates all batches of a file that can be reached, also behind a broken chain.

    Where the chain is lost, `on_damage` is told. It says with `next_offset` and `good_end` how far
    the user has accepted what it got, and the search for the next sound batch begins there; or it
    ends the iteration by returning False.

    Attributes:
        next_offset: Behind the last accepted batch.
        good_end: Position behind it.
        is_resumed: Whether the batch at hand stands behind a gap in the chain.
        damage: Where the chain was lost for good.
    """

    __slots__ = (
        "_disk",
        "_end",
        "_fd",
        "_last_offset",
        "_on_damage",
        "_skim",
        "damage",
        "good_end",
        "is_resumed",
        "next_offset",
    )

    def __init__(
        self,
        disk: Disk,
        fd: int,
        end: int,
        on_damage: Callable[["Salvage", Damage], bool],
        *,
        first_offset: int,
        last_offset: int,
        skim: Skim | None = None,
    ) -> None:
        self._disk = disk
        self._fd = fd
        self._end = end
        self._on_damage = on_damage
        self._last_offset = last_offset
        self._skim = skim
        self.next_offset = first_offset
        self.good_end = 0
        self.is_resumed = False
        self.damage: Damage | None = None

    def __iter__(self) -> Iterator[ScannedBatch]:
        start = 0
        while True:
            skim = None if self._skim is None else self._skim_in_chain
            scan = Scan(self._disk, self._fd, start, self._end, check_crc=True, skim=skim)
            batches = iter(scan)
            if self.is_resumed:
                yield next(batches)  # `find_batch` has seen it.
                self.is_resumed = False
            yield from batches
            self.damage = scan.damage
            if scan.damage is None or not self._on_damage(self, scan.damage):
                return
            found = find_batch(
                self._disk,
                self._fd,
                max(start, self.good_end) + 1,
                self._end,
                first_offset=self.next_offset,
                last_offset=self._last_offset,
            )
            if found is None:
                return
            logger.warning(
                "behind the damage at position %d, batches go on at position %d",
                scan.damage.position, found,
            )  # fmt: skip
            start, self.damage, self.is_resumed = found, None, True

    def _skim_in_chain(self, chunk: memoryview, position: int, chunk_start: int) -> int:
        """Skims, but shows the batch behind a gap, whatever it is."""
        if self._skim is None or self.is_resumed:
            return position
        return self._skim(chunk, position, chunk_start)


def find_batch(
    disk: Disk, fd: int, start: int, end: int, *, first_offset: int, last_offset: int
) -> int | None:
    """Position of the first sound batch in [start, end), wherever it may begin.

    For a file whose chain of batches is lost. The upper half of a base offset hardly changes within
    a segment and the magic stands 16 bytes behind it: a pattern finds the candidates at the speed
    of the memory, and offsets and checksum tell the real ones.

    Args:
        first_offset: The batch starts here, or later.
        last_offset: It ends here, or earlier.
    """
    halves = {(offset >> 32).to_bytes(4, "big") for offset in (first_offset, last_offset)}
    upper = b"|".join(re.escape(half) for half in sorted(halves))
    candidate = re.compile(rb"(?=(?:" + upper + rb").{12}\x02)", re.DOTALL)
    scan = Scan(disk, fd, start, end, check_crc=False)
    for chunk_start in range(start, end, CHUNK_BYTES):
        chunk = scan.read(chunk_start, CHUNK_BYTES + HEADER_SIZE)
        for match in candidate.finditer(chunk):
            if match.start() >= CHUNK_BYTES:
                break
            position = chunk_start + match.start()
            batch = Scan(disk, fd, position, end, check_crc=True).read_alone(position)
            if batch is None or not batch.is_crc_valid:
                continue
            header = batch.header
            if first_offset <= header.base_offset <= header.last_offset <= last_offset:
                return position
    return None
