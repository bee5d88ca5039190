"""Control records: markers of both kinds, and what is skipped or refused."""

from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any

import pytest

from odradek.errors import ApiError, CorruptRecordError, InvalidRecordError
from odradek.records.batch import CRC_POSITION, is_crc_valid, parse_header
from odradek.records.builder import build_batch
from odradek.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
    parse_control_type,
    parse_end_transaction_marker,
)
from odradek.records.record import read_records
from tests.unit.records.vectors import VECTORS, T

COMMIT = EndTransactionMarker(ControlType.COMMIT, 5)
ABORT = EndTransactionMarker(ControlType.ABORT, 5)
ABORT_BYTES = (
    VECTORS["VEC-12"][:CRC_POSITION]
    + bytes.fromhex("2d383ad4")
    + VECTORS["VEC-12"][21:61]
    + VECTORS["VEC-12"][61:].replace(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00")
)


def control_batch(*records: tuple[bytes | None, bytes | None]) -> bytearray:
    return build_batch(
        [(T, key, value, ()) for key, value in records], is_control=True, is_transactional=True
    )


@pytest.mark.parametrize(
    ("marker", "batch"),
    [
        pytest.param(COMMIT, VECTORS["VEC-12"], id="10:VEC-12"),
        pytest.param(ABORT, ABORT_BYTES, id="10:VEC-12 as ABORT"),
    ],
)
def test_marker(marker: EndTransactionMarker, batch: bytes) -> None:
    built = build_end_transaction_marker(
        marker,
        producer_id=4000,
        producer_epoch=3,
        timestamp_ms=T + 10,
        base_offset=102,
        leader_epoch=12,
    )
    assert built == batch
    assert is_crc_valid(batch, 0, len(batch))
    assert parse_end_transaction_marker(batch) == marker
    assert marker.is_commit == (marker is COMMIT)
    header = parse_header(batch)
    assert parse_end_transaction_marker(b"##" + batch, position=2, header=header) == marker


def test_a_changed_byte_of_a_marker_is_read_like_any_control_record() -> None:
    """The everyday form is read at once, and no other form passes for it."""
    batch = VECTORS["VEC-12"]
    for place in range(61, len(batch)):
        for value in (0, 1, 2, 5, 6, 7, 8, 12, 14, 127, 128, 255):
            changed = bytearray(batch)
            changed[place] = value
            assert _outcome(parse_end_transaction_marker, changed) == _outcome(read_slowly, changed)
    later = bytearray(batch) + b"\0"
    assert parse_end_transaction_marker(later) == COMMIT


def read_slowly(batch: bytes | bytearray) -> EndTransactionMarker | None:
    """The marker of a batch with one record, field by field."""
    [record] = read_records(batch)
    control_type = parse_control_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    value = record.value
    if value is None or len(value) < 6 or unpack_from(">h", value)[0] < 0:
        raise InvalidRecordError("the value is malformed")
    return EndTransactionMarker(control_type, unpack_from(">hi", value)[1])


def _outcome(read: Callable[[Any], Any], batch: bytearray) -> object:
    try:
        return read(batch)
    except ApiError as error:
        return type(error)


@pytest.mark.parametrize("control_type", list(ControlType))
def test_control_types(control_type: ControlType) -> None:
    assert parse_control_type(pack(">hh", 0, control_type)) is control_type
    # A later version may say more.
    assert parse_control_type(pack(">hhq", 3, control_type, 7)) is control_type


def test_unknown_types_are_skipped() -> None:
    for type_id in (7, 32767, -1):
        key = pack(">hh", 0, type_id)
        assert parse_control_type(key) is None
        assert parse_end_transaction_marker(control_batch((key, b""))) is None


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", pack(">hh", -1, 0)])
def test_malformed_key(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="control key of"):
        parse_control_type(key)


def test_no_marker() -> None:
    """10:VEC-11 is data; 10:VEC-13 with the control bit is a marker that compaction emptied."""
    assert parse_end_transaction_marker(VECTORS["VEC-11"]) is None
    emptied = bytearray(VECTORS["VEC-13"])
    emptied[22] |= 0x20
    assert parse_end_transaction_marker(emptied) is None
    leader_change = (pack(">hh", 0, ControlType.LEADER_CHANGE), b"anything")
    assert parse_end_transaction_marker(control_batch(leader_change, leader_change)) is None


@pytest.mark.parametrize("value", [None, b"", bytes(5), pack(">hi", -1, 5)])
def test_malformed_value(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="marker value of"):
        parse_end_transaction_marker(control_batch((bytes(4), value)))


def test_longer_value_of_a_later_version() -> None:
    batch = control_batch((pack(">hh", 1, 1), pack(">hiq", 1, 9, 0)))
    assert parse_end_transaction_marker(batch) == EndTransactionMarker(ControlType.COMMIT, 9)


def test_two_markers_in_one_batch() -> None:
    with pytest.raises(InvalidRecordError, match="2 records in a transaction marker"):
        parse_end_transaction_marker(control_batch((bytes(4), bytes(6)), (bytes(4), bytes(6))))


def test_partial_batch() -> None:
    with pytest.raises(CorruptRecordError):
        parse_end_transaction_marker(VECTORS["VEC-12"][:70])
