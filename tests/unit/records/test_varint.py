"""Zigzag varints: the table of the record-format spec, section 1.4, and the borders."""

import pytest

from odradek.errors import InvalidRecordError
from odradek.records.varint import (
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
    wrap_int64,
)

TABLE = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-2, "03"),
    (63, "7e"),
    (64, "8001"),
    (-64, "7f"),
    (-65, "8101"),
    (300, "d804"),
    (-86_400_000, "ffefb252"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "encoded"), TABLE)
def test_varint_table(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert decode_varint(b"\xff" + data + b"\x00", 1, 1 + len(data)) == (value, 1 + len(data))
    # Within int32 both widths have the same bytes.
    assert encode_varlong(value) == data
    assert decode_varlong(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (2**31, "8080808010"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varlong_borders(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varlong(value) == data
    assert decode_varlong(data, 0, len(data)) == (value, len(data))


def test_too_long() -> None:
    assert decode_varint(b"\x80\x80\x80\x80\x00", 0, 5) == (0, 5)
    with pytest.raises(InvalidRecordError, match="position 0 is longer than 5 bytes"):
        decode_varint(b"\x80\x80\x80\x80\x80\x00", 0, 6)
    assert decode_varlong(b"\x80" * 9 + b"\x00", 0, 10) == (0, 10)
    with pytest.raises(InvalidRecordError, match="longer than 10 bytes"):
        decode_varlong(b"\x80" * 10 + b"\x00", 0, 11)


@pytest.mark.parametrize("decode", [decode_varint, decode_varlong])
def test_cut(decode: object) -> None:
    assert callable(decode)
    for data in (b"", b"\x80", b"\x80\x80\x80"):
        with pytest.raises(InvalidRecordError, match="does not end before position"):
            decode(data + b"\x01", 0, len(data))


def test_bits_beyond_the_width_are_dropped() -> None:
    assert decode_varint(bytes.fromhex("feffffff7f"), 0, 5) == (2**31 - 1, 5)
    assert decode_varlong(bytes.fromhex("feffffffffffffffff7f"), 0, 10) == (2**63 - 1, 10)


def test_wrap_int64() -> None:
    assert wrap_int64(2**63 - 1) == 2**63 - 1
    assert wrap_int64(2**63) == -(2**63)
    assert wrap_int64(-(2**63) - 1) == 2**63 - 1
