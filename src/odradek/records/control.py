"""Control records, which brokers write between the records of applications.

Key and value::

    key    0  2  version  int16  0     readers tolerate higher versions and longer keys
           2  2  type     int16
    value  0  2  version  int16  0     of ABORT and COMMIT
           2  4  coordinator_epoch  int32

A marker is one record in a batch of its own: control and transactional bits set, never
compressed, with the producer's id and epoch and no sequence.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from odradek.errors import InvalidRecordError
from odradek.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    parse_header,
)
from odradek.records.builder import build_batch
from odradek.records.record import read_records

__all__ = [
    "ControlType",
    "EndTransactionMarker",
    "build_end_transaction_marker",
    "parse_control_type",
    "parse_end_transaction_marker",
]

_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")
# All of the record as `build_end_transaction_marker` and Apache Kafka write it: in front of the key
# its length, attributes, deltas of 0 and the length of the key; the counts of value and headers.
_PLAIN_RECORD: Final = Struct(">5shhBhiB")
_PLAIN_FRONT: Final = bytes((32, 0, 0, 0, 8))
_PLAIN_VALUE_COUNT: Final = 12


class ControlType(IntEnum):
    """Types of control records; the metadata quorum uses those from LEADER_CHANGE on."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_CONTROL_TYPES: Final = tuple(ControlType)


class EndTransactionMarker(NamedTuple):
    """The end of a transaction on one partition."""

    control_type: ControlType  # ABORT or COMMIT.
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.control_type is ControlType.COMMIT


def parse_control_type(key: Buffer | None) -> ControlType | None:
    """Reads the type of a control record from its key; None for an unknown type, to be skipped.

    Raises:
        InvalidRecordError: The key is too short, or its version negative.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError(
            f"control key of {0 if key is None else len(key)} bytes, expected {_KEY.size}"
        )
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"control key of version {version}, expected 0")
    return _CONTROL_TYPES[type_id] if 0 <= type_id < len(_CONTROL_TYPES) else None


def parse_end_transaction_marker(
    batch: Buffer, *, position: int = 0, header: BatchHeader | None = None
) -> EndTransactionMarker | None:
    """Reads the marker of the batch at `position`.

    Returns:
        The marker; None for a batch that is not a control batch, has another type, or was emptied
        by compaction.

    Raises:
        CorruptRecordError: The batch is not whole.
        InvalidRecordError: The marker is malformed.
    """
    if header is None:
        header = parse_header(batch, position)
    if header is not None and (not header.is_control or header.record_count == 0):
        return None
    if header is not None and (plain := _parse_plain_marker(batch, position, header)) is not None:
        return plain
    records = list(read_records(batch, position=position, header=header))
    control_type = parse_control_type(records[0].key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if len(records) != 1:
        raise InvalidRecordError(f"{len(records)} records in a transaction marker, expected 1")
    value = records[0].value
    if value is None or len(value) < _MARKER_VALUE.size:
        raise InvalidRecordError(
            f"marker value of {0 if value is None else len(value)} bytes, "
            f"expected {_MARKER_VALUE.size}"
        )
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"marker value of version {version}, expected 0")
    return EndTransactionMarker(control_type, coordinator_epoch)


def _parse_plain_marker(
    batch: Buffer, position: int, header: BatchHeader
) -> EndTransactionMarker | None:
    """The marker in a batch of the everyday form; None for any other batch, also a damaged one."""
    start = position + HEADER_SIZE
    if (
        header.length != HEADER_SIZE + _PLAIN_RECORD.size - LOG_OVERHEAD
        or header.record_count != 1
        or header.attributes & CODEC_MASK
        or len(batch) < start + _PLAIN_RECORD.size
    ):
        return None
    front, key_version, type_id, value_count, version, coordinator_epoch, header_count = (
        _PLAIN_RECORD.unpack_from(batch, start)
    )
    if (
        front != _PLAIN_FRONT
        or key_version
        or not 0 <= type_id <= ControlType.COMMIT
        or value_count != _PLAIN_VALUE_COUNT
        or version
        or header_count
    ):
        return None
    return EndTransactionMarker(_CONTROL_TYPES[type_id], coordinator_epoch)


def build_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Builds the batch that ends a transaction on one partition."""
    assert marker.control_type in (ControlType.ABORT, ControlType.COMMIT)
    key = _KEY.pack(0, marker.control_type)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [(timestamp_ms, key, value, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
