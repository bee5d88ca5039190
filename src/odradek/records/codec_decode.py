"""Records of a batch as a consumer gets them: the pure twin of the decoder in `_codec.pyx`.

Both twins give equal records for any bytes, and the same error down to its message.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, final

from odradek.errors import InvalidRecordError
from odradek.records.batch import BatchHeader, Buffer
from odradek.records.malformed import malformed_record, malformed_region
from odradek.records.record import Fields, Headers, read_fields
from odradek.records.varint import wrap_int64

__all__ = ["ConsumerRecord", "decode_records_pure", "describe_record", "iter_fields"]

_Arguments: TypeAlias = tuple[
    str, int, int, int, int, bytes | None, bytes | None, Headers, int | None
]


@final
class ConsumerRecord:
    """A record and where it came from. Not to be changed."""

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        leader_epoch: int | None = None,
    ) -> None:
        """Makes one by hand; those of a batch come from `codec.decode_batch`."""
        self.topic: Final = topic
        self.partition: Final = partition
        self.offset: Final = offset
        self.timestamp: Final = timestamp  # Milliseconds since the epoch; -1 without.
        self.timestamp_type: Final = timestamp_type  # A `codec.TimestampType`.
        self.key: Final = key  # None is not the same as empty.
        self.value: Final = value
        self.headers: Final = headers
        self.leader_epoch: Final = leader_epoch  # Of the leader that took it, if it is known.

    def _arguments(self) -> _Arguments:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._arguments() == other._arguments()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return describe_record(*self._arguments())

    def __reduce__(self) -> tuple[Callable[..., "ConsumerRecord"], _Arguments]:
        # By the name of the twin in use, so that either of them reads what the other has pickled.
        from odradek.records.codec import restore_record

        return restore_record, self._arguments()


def describe_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    leader_epoch: int | None,
) -> str:
    """What `repr` of a record says."""
    return (
        f"ConsumerRecord(topic={topic!r}, partition={partition}, offset={offset}, "
        f"timestamp={timestamp}, timestamp_type={int(timestamp_type)}, key={key!r}, "
        f"value={value!r}, headers={headers!r}, leader_epoch={leader_epoch})"
    )


def decode_records_pure(
    region: Buffer,
    header: BatchHeader,
    from_offset: int,
    topic: str,
    partition: int,
    timestamp_type: int,
) -> list[ConsumerRecord]:
    """Decodes the records of a magic 2 batch, decompressed, that begin at an offset or above.

    Raises:
        InvalidRecordError: A record is malformed, or they do not fill the region.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    leader_epoch = header.leader_epoch if header.leader_epoch >= 0 else None
    records = []
    for timestamp_delta, offset_delta, key, value, headers in iter_fields(region, header):
        offset = wrap_int64(base_offset + offset_delta)
        if offset < from_offset:
            continue
        timestamp = append_time
        if timestamp is None:
            timestamp = wrap_int64(base_timestamp + timestamp_delta)
        origin = (topic, partition, offset, timestamp, timestamp_type)
        records.append(ConsumerRecord(*origin, key, value, headers, leader_epoch))
    return records


def iter_fields(region: Buffer, header: BatchHeader) -> Iterator[Fields]:
    """Steps through the records of a magic 2 batch, decompressed.

    Raises:
        InvalidRecordError: A record is malformed, or they do not fill the region.
    """
    if header.record_count < 0:
        raise InvalidRecordError(f"{header.record_count} records, expected 0 or more")
    data = region if isinstance(region, bytes) else bytes(region)
    end = len(data)
    position = 0
    for index in range(header.record_count):
        try:
            fields, behind = read_fields(data, position, end)
        except (IndexError, InvalidRecordError):
            raise malformed_record(data, position, end, index) from None
        yield fields
        position = behind
    if position != end:
        raise malformed_region(position, end, header.record_count)
