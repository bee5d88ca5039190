"""Rows of columns that are a batch already, but for the numbers a producer gives it when it leaves.

Takes the place of a `Gathering` in a `Batch`: one that is closed.
"""

from odradek.records.batch import HEADER_SIZE
from odradek.records.builder import seal_batch
from odradek.records.codec_encode import NewRecord
from odradek.records.compression import Codec, compress
from odradek.records.record import Headers, read_records
from odradek.records.rows import Rows

__all__ = ["EncodedRows", "encode_rows"]


class EncodedRows:
    """Made by `encode_rows`."""

    __slots__ = ("_base_timestamp", "_codec", "_encoded", "_max_timestamp", "record_count", "size")

    def __init__(
        self,
        encoded: bytearray,
        *,
        codec: Codec,
        size: int,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> None:
        self._encoded = encoded
        self._codec = codec
        self._base_timestamp = base_timestamp
        self._max_timestamp = max_timestamp
        self.size = size  # Before compression, with the header.
        self.record_count = record_count

    @property
    def limit(self) -> int:
        """What `size` may become: no more than it is."""
        return self.size

    def add(
        self,
        timestamp: int,  # noqa: ARG002 - as that of a `Gathering`
        key: bytes | None,  # noqa: ARG002
        value: bytes | None,  # noqa: ARG002
        headers: Headers,  # noqa: ARG002
        size: int = 0,  # noqa: ARG002
    ) -> int:
        """Take nothing more."""
        return -1

    @property
    def memory_bytes(self) -> int:
        """What it occupies."""
        return len(self._encoded)

    @property
    def records(self) -> list[NewRecord]:
        """The rows as records, for the few who want to see single ones."""
        # A copy: these bytes may be on their way.
        sealed = self._seal(bytearray(self._encoded), -1, -1, -1)
        return [record[1:] for record in read_records(sealed)]

    def seal(self, producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
        """The whole batch, in the memory that its records have already."""
        return self._seal(self._encoded, producer_id, producer_epoch, base_sequence)

    def _seal(
        self, encoded: bytearray, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> bytearray:
        return seal_batch(
            encoded,
            codec=self._codec,
            record_count=self.record_count,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )

    def close(self) -> int:
        """How many records there are."""
        return self.record_count

    def clear(self) -> None:
        """Forget the records."""
        self._encoded = bytearray()


def encode_rows(
    rows: Rows,
    numbers: memoryview | None,
    first: int,
    end: int,
    *,
    max_bytes: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
) -> EncodedRows:
    """The next rows as a batch of at most so many bytes, or of one row; see `Rows.encode`."""
    encoded, count, base_timestamp, max_timestamp = rows.encode(
        numbers, first, end, max_bytes, HEADER_SIZE
    )
    size = len(encoded)
    if codec:
        packed = compress(codec, memoryview(encoded)[HEADER_SIZE:], level)
        encoded = bytearray(HEADER_SIZE) + packed
    return EncodedRows(
        encoded,
        codec=codec,
        size=size,
        record_count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )
