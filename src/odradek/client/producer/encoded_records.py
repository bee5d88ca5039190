"""Records that are encoded as a batch, except for the numbers it gets when it is sent.

A `Gathering` becomes one when its batch is sent; rows of columns are encoded as one at once.
"""

from odradek.records.batch import HEADER_SIZE
from odradek.records.builder import seal_batch
from odradek.records.codec_pure import NewRecord
from odradek.records.compression import Codec, compress
from odradek.records.gathering import Gathering
from odradek.records.record import read_records
from odradek.records.rows import Rows

__all__ = ["EncodedRecords", "encode_gathering", "encode_rows"]


class EncodedRecords:
    """Made by `encode_gathering` or `encode_rows`; or again, in another process, from its parts.

    Args:
        encoded: The records, compressed, behind room for a header.
    """

    __slots__ = ("_codec", "_encoded", "base_timestamp", "max_timestamp", "record_count", "size")

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
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.size = size  # Before compression, with the header.
        self.record_count = record_count

    @property
    def memory_bytes(self) -> int:
        """The bytes of memory that it occupies."""
        return len(self._encoded)

    @property
    def encoded(self) -> bytearray:
        """The argument of that name; it must not be changed, and `seal` changes its header."""
        return self._encoded

    @property
    def records(self) -> list[NewRecord]:
        """The records one by one, for errors and interceptors."""
        # A copy: these bytes may be in a send queue.
        sealed = self._seal(bytearray(self._encoded), -1, -1, -1, False)
        return [record[1:] for record in read_records(sealed)]

    def seal(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        is_transactional: bool = False,
    ) -> bytearray:
        """The whole batch, in the memory that its records have already."""
        return self._seal(
            self._encoded, producer_id, producer_epoch, base_sequence, is_transactional
        )

    def _seal(
        self,
        encoded: bytearray,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        is_transactional: bool,
    ) -> bytearray:
        return seal_batch(
            encoded,
            codec=self._codec,
            record_count=self.record_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )


def encode_gathering(
    gathered: Gathering, *, codec: Codec = Codec.NONE, level: int | None = None
) -> EncodedRecords:
    """Encodes gathered records, which have to be closed, as a batch."""
    return _encoded(
        gathered.take(),
        codec,
        level,
        gathered.record_count,
        gathered.base_timestamp,
        gathered.max_timestamp,
    )


def encode_rows(
    rows: Rows,
    numbers: memoryview | None,
    first: int,
    end: int,
    *,
    max_bytes: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
) -> EncodedRecords:
    """Encodes rows as a batch of at most so many bytes, or of one row; see `Rows.encode`."""
    encoded, count, base_timestamp, max_timestamp = rows.encode(
        numbers, first, end, max_bytes, HEADER_SIZE
    )
    return _encoded(encoded, codec, level, count, base_timestamp, max_timestamp)


def _encoded(
    encoded: bytearray,
    codec: Codec,
    level: int | None,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
) -> EncodedRecords:
    size = len(encoded)
    if codec:
        encoded = bytearray(HEADER_SIZE) + compress(codec, memoryview(encoded)[HEADER_SIZE:], level)
    return EncodedRecords(
        encoded,
        codec=codec,
        size=size,
        record_count=record_count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )
