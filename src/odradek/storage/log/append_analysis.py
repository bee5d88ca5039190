"""The result of an append, and the analysis of a set of batches before it."""

import logging
from typing import Final, NamedTuple, final

from crc32c import crc32c

from odradek.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordTooLargeError,
)
from odradek.model import AppendOrigin
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    is_crc_valid,
    parse_header,
)

__all__ = ["AnalyzedSet", "LogAppendInfo", "analyze_records"]

logger = logging.getLogger(__name__)


@final
class LogAppendInfo:
    """The result of one append.

    The values here are class attributes that an instance overrides: one is made for every append,
    and most of its fields keep the defaults.
    """

    first_offset: int | None = None  # None for old formats, whose headers do not carry it.
    last_offset: int = -1
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1  # Last offset of the batch that has it.
    log_append_time: int = NO_TIMESTAMP  # The broker's time on a LogAppendTime topic.
    log_start_offset: int = -1  # The log's, when the append returned.
    leader_epoch: int = -1
    source_codec: int = 0  # Codec found in the set; the last one that is not none.
    shallow_count: int = 0  # Batches.
    valid_bytes: int = 0  # Bytes of whole batches.
    offsets_monotonic: bool = True
    last_offset_of_first_batch: int = -1
    is_duplicate: bool = False  # An idempotent retry: nothing was written.

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _INFO_FIELDS)
        return f"LogAppendInfo({fields})"

    @property
    def message_count(self) -> int:
        """Records appended; 0 if the offsets do not tell."""
        if self.first_offset is None or self.first_offset < 0 or self.last_offset < 0:
            return 0
        return self.last_offset - self.first_offset + 1

    @property
    def first_or_last_offset_of_first_batch(self) -> int:
        if self.first_offset is not None:
            return self.first_offset
        return self.last_offset_of_first_batch


# Named one by one: a compiled class has no `__annotations__`.
_INFO_FIELDS: Final = (
    "first_offset",
    "last_offset",
    "max_timestamp",
    "offset_of_max_timestamp",
    "log_append_time",
    "log_start_offset",
    "leader_epoch",
    "source_codec",
    "shallow_count",
    "valid_bytes",
    "offsets_monotonic",
    "last_offset_of_first_batch",
    "is_duplicate",
)


class AnalyzedSet(NamedTuple):
    """The batches of a set, with the first draft of the answer."""

    info: LogAppendInfo
    batches: list[tuple[int, BatchHeader]]  # (position, header)
    has_producers: bool  # Whether any batch carries a producer id.


# Long because it is one loop, and runs once per append: calls would double its cost.
def analyze_records(  # noqa: C901 - see above
    records: Buffer,
    origin: AppendOrigin,
    *,
    max_message_bytes: int,
    fetch_leader_epoch: int | None = None,
) -> AnalyzedSet:
    """Checks size, format and CRC of every whole batch; ignores a partial batch at the end.

    Args:
        records: Batches back to back.
        origin: The writer.
        max_message_bytes: Largest batch, unless it was fetched from a leader.
        fetch_leader_epoch: The epoch a follower fetched under. Batches of a higher epoch come from
            a leader that it does not know yet; they and all after them are ignored.

    Raises:
        CorruptRecordError: CRC, size or magic is wrong.
        InvalidRecordError: A client numbered its own offsets.
        RecordTooLargeError: A batch exceeds the limit.
    """
    is_replication = origin is AppendOrigin.REPLICATION
    info = LogAppendInfo()
    batches: list[tuple[int, BatchHeader]] = []
    has_producers = False
    position = 0
    end = len(records)
    view = memoryview(records)
    while position < end:
        if position + HEADER_SIZE <= end and records[position + MAGIC_POSITION] == CURRENT_MAGIC:
            header = BatchHeader._make(HEADER.unpack_from(records, position))
            if not HEADER_SIZE <= header.length + LOG_OVERHEAD <= end - position:
                parse_header(records, position, end)  # Raises for an impossible length.
                break
        elif (legacy := parse_header(records, position, end)) is not None:
            header = legacy
        else:
            break
        base_offset, length, leader_epoch, magic, crc, attributes, delta, _, max_timestamp = header[
            :9
        ]
        size = length + LOG_OVERHEAD
        if is_replication:
            if fetch_leader_epoch is not None and leader_epoch > fetch_leader_epoch:
                logger.info(
                    "left out batches from offset %d on: written under leader epoch %d, fetched"
                    " under %d", base_offset, leader_epoch, fetch_leader_epoch,
                )  # fmt: skip
                break
        else:
            if base_offset and magic >= CURRENT_MAGIC and origin is AppendOrigin.CLIENT:
                raise InvalidRecordError(
                    f"the base offset of a produced batch is {base_offset}, expected 0"
                )
            if size > max_message_bytes:
                raise RecordTooLargeError(
                    f"a batch has {size} bytes, max.message.bytes allows {max_message_bytes}"
                )
        if not (
            crc32c(view[position + ATTRIBUTES_POSITION : position + size]) == crc
            if magic == CURRENT_MAGIC
            else is_crc_valid(records, position, size)
        ):
            raise CorruptRecordError(
                f"the batch at position {position} ({size} bytes, base offset"
                f" {base_offset}) does not match its checksum {crc:#010x}"
            )
        last_offset = base_offset + delta
        if not batches:
            if magic >= CURRENT_MAGIC:
                info.first_offset = base_offset
            info.last_offset_of_first_batch = last_offset
        elif info.last_offset >= last_offset:
            info.offsets_monotonic = False
        info.last_offset = last_offset
        if max_timestamp > info.max_timestamp:
            info.max_timestamp = max_timestamp
            info.offset_of_max_timestamp = last_offset
        if attributes & CODEC_MASK:
            info.source_codec = attributes & CODEC_MASK
        if header.producer_id >= 0:
            has_producers = True
        batches.append((position, header))
        position += size
    info.shallow_count = len(batches)
    info.valid_bytes = position
    return AnalyzedSet(info, batches, has_producers)
