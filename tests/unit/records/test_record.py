"""Reading records: every vector, and every way a batch can lie."""

from struct import pack

import pytest

from odradek.errors import CorruptRecordError, ErrorCode, InvalidRecordError
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    RECORD_COUNT_POSITION,
    Buffer,
    iter_headers,
    parse_header,
)
from odradek.records.builder import build_batch, encode_record
from odradek.records.compression import Codec, compress
from odradek.records.record import Record, read_records, read_region
from tests.unit.records.vectors import EXPECTED, VEC_7B, VECTORS, T


def read_all(data: Buffer) -> tuple[Record, ...]:
    return tuple(
        record
        for position, header in iter_headers(data)
        for record in read_records(data, position=position, header=header)
    )


def batch_of(region: bytes, record_count: int = 1, attributes: int = 0) -> bytes:
    header = pack(
        ">qiibIhiqqqhii",
        *(0, 49 + len(region), -1, 2, 0, attributes, record_count - 1, T, T),
        *(-1, -1, -1, record_count),
    )
    return header + region


@pytest.mark.parametrize("name", [pytest.param(name, id=f"10:{name}") for name in VECTORS])
def test_vector(name: str) -> None:
    assert read_all(VECTORS[name]) == EXPECTED[name]
    assert read_all(memoryview(bytearray(VECTORS[name]))) == EXPECTED[name]


def test_two_xerial_chunks() -> None:
    """10:VEC-7b"""
    assert read_all(batch_of(VEC_7B, 3, Codec.SNAPPY)) == EXPECTED["VEC-4"]


def test_zstd_frame_without_content_size() -> None:
    """10:VEC-10 as librdkafka sends it: `0058` after the magic instead of `207e`."""
    aiokafka = VECTORS["VEC-10"]
    assert aiokafka[65:67] == b"\x20\x7e"
    librdkafka = aiokafka[:65] + b"\x00\x58" + aiokafka[67:]
    assert read_all(librdkafka) == EXPECTED["VEC-10"]


def test_uncompressed_region_is_not_copied() -> None:
    data = bytearray(VECTORS["VEC-4"])
    header = parse_header(data)
    assert header is not None
    region = read_region(data, header=header)
    data[-1] = 0x77
    assert region[-1] == 0x77


def test_position_and_header_are_optional() -> None:
    data = b"??" + VECTORS["VEC-1"]
    assert tuple(read_records(data, position=2)) == EXPECTED["VEC-1"]
    assert tuple(read_records(VECTORS["VEC-1"])) == EXPECTED["VEC-1"]


def test_partial_batch() -> None:
    header = parse_header(VECTORS["VEC-1"])
    for given in (None, header):
        with pytest.raises(CorruptRecordError, match="no whole batch in 80 bytes"):
            list(read_records(VECTORS["VEC-1"][:80], header=given))


def test_header_names_that_are_not_utf8_survive_a_round_trip() -> None:
    headers = ((b"\xff\xfe\xc3\xa9".decode("utf-8", "surrogateescape"), b"x"), ("é", None))
    batch = build_batch([(T, None, None, headers)])
    assert b"\xff\xfe\xc3\xa9" in batch
    assert next(read_records(batch)).headers == headers


def test_null_and_empty_differ() -> None:
    batch = build_batch([(T, b"", None, (("", b""),)), (T, None, b"", ())])
    first, second = read_records(batch)
    assert (first.key, first.value, first.headers) == (b"", None, (("", b""),))
    assert (second.key, second.value, second.headers) == (None, b"", ())


@pytest.mark.parametrize("count", [3, 1, 0, -1, 2**31 - 1])
def test_wrong_record_count(count: int) -> None:
    """The negative vector: 10:VEC-1 with recordCount 3 is INVALID_RECORD; so is any other."""
    data = bytearray(VECTORS["VEC-1"])
    data[RECORD_COUNT_POSITION : RECORD_COUNT_POSITION + 4] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidRecordError) as caught:
        list(read_records(data))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("region", "message"),
    [
        (b"", "record 0 at position 0: the region ends before it"),
        (b"\x00", "length 0, it has no attributes"),
        (b"\x01", "length -1, 0 bytes are left"),
        (b"\x10\x00", "length 8, 1 bytes are left"),
        (b"\x80\x80\x80\x80\x80\x00", "varint at position 0 is longer than 5 bytes"),
        (b"\x02\x00", "varint at position 2 does not end before position 2"),
        (b"\x18\x00" + b"\x80" * 11, "is longer than 10 bytes"),
        (b"\x0c\x00\x00\x00\x03\x01\x00", "key length -2, 2 bytes are left"),
        (b"\x0c\x00\x00\x00\x06\x01\x00", "key length 3, 2 bytes are left"),
        (b"\x0c\x00\x00\x00\x01\x03\x00", "value length -2, 1 bytes are left"),
        (b"\x0c\x00\x00\x00\x01\x04\x00", "value length 2, 1 bytes are left"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", "-1 headers, 0 bytes are left"),
        (b"\x0c\x00\x00\x00\x01\x01\x04", "2 headers, 0 bytes are left"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "header key length -1"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x00\x03", "header value length -2"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "1 bytes more than its fields take"),
        (encode_record(0, 0, None, None) + b"\x00", "1 bytes at position 7 follow the last of 1"),
    ],
)
def test_malformed_region(region: bytes, message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        list(read_records(batch_of(region)))


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_codec_that_does_not_exist(codec_id: int) -> None:
    data = bytearray(VECTORS["VEC-1"])
    data[ATTRIBUTES_POSITION + 1] = codec_id
    with pytest.raises(InvalidRecordError, match=f"codec {codec_id} does not exist in magic 2"):
        list(read_records(data))


def test_decompressed_size_is_capped() -> None:
    region = encode_record(0, 0, None, bytes(1000))
    for codec in list(Codec)[1:]:
        batch = batch_of(compress(codec, region), attributes=codec)
        assert len(list(read_records(batch, max_size=len(region)))) == 1
        with pytest.raises(InvalidRecordError):
            list(read_records(batch, max_size=len(region) - 1))


def test_empty_batch_of_a_codec_has_no_stream() -> None:
    assert list(read_records(batch_of(b"", 0, Codec.ZSTD))) == []
    with pytest.raises(InvalidRecordError, match="follow the last of 0 records"):
        list(read_records(batch_of(b"\x00", 0)))


def test_timestamp_beyond_int64_wraps() -> None:
    header = pack(">qiibIhiqqqhii", 0, 57, -1, 2, 0, 0, 0, 2**63 - 1, T, -1, -1, -1, 1)
    data = header + encode_record(0, 1, b"k", None)
    assert next(read_records(data)).timestamp == -(2**63)
