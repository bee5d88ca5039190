"""Messages of magic 0 and 1: offsets and times of wrapped ones, and what is refused."""

from struct import pack
from zlib import crc32

import pytest

from odradek.errors import InvalidRecordError
from odradek.records.batch import is_crc_valid
from odradek.records.compression import Codec, compress
from odradek.records.record import Record, read_records
from tests.unit.records.vectors import EXPECTED, VECTORS, T


def message(
    magic: int,
    offset: int,
    value: bytes | None,
    *,
    attributes: int = 0,
    timestamp: int = T,
    key: bytes | None = None,
) -> bytes:
    body = pack(">bb", magic, attributes)
    if magic == 1:
        body += pack(">q", timestamp)
    for field in (key, value):
        body += pack(">i", -1) if field is None else pack(">i", len(field)) + field
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def wrapper(
    magic: int, offset: int, inner: bytes, codec: Codec = Codec.GZIP, attributes: int = 0
) -> bytes:
    value = compress(codec, inner, magic=magic)
    return message(magic, offset, value, attributes=codec | attributes, timestamp=T + 99)


def offsets(batch: bytes) -> list[int]:
    return [record.offset for record in read_records(batch)]


@pytest.mark.parametrize(
    ("magic", "name"),
    [pytest.param(1, "VEC-16", id="10:VEC-16"), pytest.param(0, "VEC-17", id="10:VEC-17")],
)
def test_our_messages_are_those_of_the_clients(magic: int, name: str) -> None:
    data = message(magic, 0, b"v", key=b"k") + message(magic, 1, b"w", timestamp=T + 1)
    assert data == VECTORS[name]
    assert is_crc_valid(data, 0, data.index(b"v") + 1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_every_codec(magic: int, codec: Codec) -> None:
    inner = message(magic, 0, b"a" * 5000, key=b"k") + message(magic, 1, None)
    timestamp = T if magic else -1
    assert list(read_records(wrapper(magic, 1, inner, codec))) == [
        Record(0, timestamp, b"k", b"a" * 5000),
        Record(1, timestamp, None, None),
    ]


def test_relative_offsets_of_v1() -> None:
    inner = b"".join(message(1, relative, b"x") for relative in range(3))
    assert offsets(wrapper(1, 1002, inner)) == [1000, 1001, 1002]


def test_relative_offsets_of_v1_with_a_gap() -> None:
    inner = message(1, 0, b"x") + message(1, 4, b"x")
    assert offsets(wrapper(1, 104, inner)) == [100, 104]


def test_wrapper_offset_left_unset_by_the_producer() -> None:
    inner = b"".join(message(1, relative, b"x") for relative in range(3))
    assert offsets(wrapper(1, 0, inner)) == [0, 1, 2]


def test_absolute_offsets() -> None:
    for magic in (0, 1):
        inner = message(magic, 1000, b"x") + message(magic, 1001, b"x")
        assert offsets(wrapper(magic, 1001, inner)) == [1000, 1001]


def test_wrapper_offset_of_v0_does_not_matter() -> None:
    """10:VEC-19 as kafka-python sends it, with wrapper offset 0."""
    data = bytes(8) + VECTORS["VEC-19"][8:]
    assert tuple(read_records(data)) == EXPECTED["VEC-19"]


def test_append_time_of_a_wrapper_is_that_of_its_messages() -> None:
    inner = message(1, 0, b"x", timestamp=5) + message(1, 1, b"x", timestamp=6)
    create_time = [record.timestamp for record in read_records(wrapper(1, 1, inner))]
    append_time = [record.timestamp for record in read_records(wrapper(1, 1, inner, attributes=8))]
    assert create_time == [5, 6]
    assert append_time == [T + 99, T + 99]


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (wrapper(1, 0, wrapper(1, 0, message(1, 0, b"x"))), "a wrapper inside a wrapper"),
        (wrapper(1, 0, message(0, 0, b"x" * 20)), "magic 0 inside magic 1"),
        (wrapper(1, 0, VECTORS["VEC-1"]), "magic 2 inside magic 1"),
        (wrapper(1, 0, message(1, 0, b"x")[:-1]), "its last message is cut"),
        (wrapper(1, 0, bytes(40)), "length 0 with magic 0"),
        (wrapper(1, 0, b""), "has no messages"),
        (message(1, 0, None, attributes=1), "has no value"),
        (message(1, 0, b"junk", attributes=1), "gzip"),
        (message(1, 0, b"junk", attributes=4), "codec 4 does not exist in magic 1"),
        (message(0, 0, b"junk", attributes=7), "codec 7 does not exist in magic 0"),
    ],
)
def test_refused(batch: bytes, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        list(read_records(batch))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (pack(">ii", -2, -1), "key length -2"),
        (pack(">ii", 5, -1), "key length 5, 4 bytes are left"),
        (pack(">iix", -1, 2), "value length 2, 1 bytes are left"),
        (pack(">iix", -1, 0), "1 bytes more than its fields take"),
        (pack(">i4x", 4), "value length at position 26 is cut at 26"),
    ],
)
def test_malformed_message(fields: bytes, why: str) -> None:
    body = pack(">bb", 0, 0) + fields
    data = pack(">qiI", 0, len(body) + 4, crc32(body)) + body
    with pytest.raises(InvalidRecordError, match=why):
        list(read_records(data))
