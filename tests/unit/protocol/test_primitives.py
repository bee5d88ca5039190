"""Varints and tag sections."""

import pytest

from odradek.errors import DecodeError
from odradek.protocol.primitives import (
    encode_uvarint,
    parse_uvarint,
    skip_tagged_fields,
)


@pytest.mark.parametrize(
    ("value", "hexadecimal"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2097151, "ffff7f"),
        (2097152, "80808001"),
        (268435455, "ffffff7f"),
        (268435456, "8080808001"),
        (4294967295, "ffffffff0f"),
    ],
)
def test_uvarint(value: int, hexadecimal: str) -> None:
    encoded = bytes.fromhex(hexadecimal)
    assert encode_uvarint(value) == encoded
    assert parse_uvarint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("hexadecimal", ["ffffffff10", "ffffffffff", "808080808010", "ffffffff7f"])
def test_uvarint_above_32_bits_is_refused(hexadecimal: str) -> None:
    with pytest.raises(DecodeError, match="more than 32 bits"):
        parse_uvarint(bytes.fromhex(hexadecimal), 0)


@pytest.mark.parametrize("hexadecimal", ["", "80", "8080", "808080", "80808080"])
def test_uvarint_cut_short(hexadecimal: str) -> None:
    with pytest.raises(IndexError):
        parse_uvarint(bytes.fromhex(hexadecimal), 0)


def test_a_longer_form_of_a_small_number_is_read() -> None:
    """Kafka's reader takes it, too."""
    assert parse_uvarint(b"\x80\x00", 0) == (0, 2)


def test_tagged_fields_are_passed_over() -> None:
    section = bytes.fromhex("0200 01 aa05 02 bbcc")
    assert skip_tagged_fields(section, 1, section[0]) == len(section)


@pytest.mark.parametrize(
    ("hexadecimal", "why"),
    [
        ("02 05 00 05 00", "must ascend"),
        ("02 05 00 04 00", "must ascend"),
        ("01 00 05 aabb", "announces 5 bytes, 2 are left"),
        ("01 00 ffffffff0f", "announces 4294967295 bytes"),
    ],
)
def test_bad_tagged_fields_are_refused(hexadecimal: str, why: str) -> None:
    section = bytes.fromhex(hexadecimal)
    with pytest.raises(DecodeError, match=why):
        skip_tagged_fields(section, 1, section[0])
