"""The scan of a segment file: steps through its batches, in large reads, without reading records.

A scan costs one header unpack and, if wanted, one CRC per batch; the file is read in chunks of
one mebibyte, so that system calls do not count. Damage is data here, not an exception: a scan
ends with `Scan.damage`, which says where the chain of batches broke and why, and the caller decides
whether to cut, to report or to skip it; `damage` walks on behind it.
"""

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

__all__ = ["CHUNK_BYTES", "Damage", "Scan", "ScannedBatch", "Skim"]

CHUNK_BYTES = (
    1 << 20
)  # Large enough that a read's system call vanishes beside the CRC of its bytes.
_CRC_START = 21  # The first byte that the CRC of a magic-2 batch covers.


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


# Called with bytes of the file, a position among them and their position in the file, it returns
# the position behind the whole batches from there on that the scan need not yield.
Skim: TypeAlias = Callable[[memoryview, int, int], int]


class Scan:
    """Iterates the batches in [start, end) of an open file, except those that `skim` consumes.

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
        new = tuple.__new__  # As `_make`, without two calls per batch.
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
        """Reads one batch alone; returns None and sets `damage` if there is none."""
        found = self.peek_alone(position)
        if isinstance(found, Damage):
            self.damage = found
            return None
        return found

    def peek_alone(self, position: int) -> ScannedBatch | Damage:
        """Reads one batch alone; returns the damage if there is none."""
        prefix = self.read(position, HEADER_SIZE)
        try:
            header = peek_header(prefix)
        except CorruptRecordError as error:
            return Damage(position, str(error))
        if header is None:
            return Damage(position, f"{len(prefix)} bytes do not hold a batch header")
        if position + header.size > self._end:
            return Damage(
                position,
                f"the batch says {header.size} bytes, {self._end - position} are left",
            )
        view = self.read(position, header.size)
        if len(view) < header.size:
            return Damage(
                position, f"the batch says {header.size} bytes, the file ends after {len(view)}"
            )
        valid = not self._check_crc or is_crc_valid(view, 0, header.size)
        return ScannedBatch(position, header, view, valid)

    def read(self, position: int, size: int) -> memoryview:
        """Bytes of the range; fewer only where it, or the file, ends."""
        # A length in a header may exceed the end.
        wanted = max(0, min(size, self._end - position))
        data = self._disk.pread(self._fd, wanted, position)
        while len(data) < wanted:  # A read may return less; an empty one is the end of the file.
            more = self._disk.pread(self._fd, wanted - len(data), position + len(data))
            if not more:
                break
            data += more
        return memoryview(data)
