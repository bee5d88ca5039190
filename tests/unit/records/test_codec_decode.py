"""Decoding batches into the records a consumer gets; every test runs on both twins."""

import gc
import importlib
import pickle
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from odradek.errors import CorruptRecordError, InvalidRecordError
from odradek.records import codec as codec_module
from odradek.records.batch import BatchHeader, Buffer, iter_headers, parse_header
from odradek.records.builder import build_batch, encode_record
from odradek.records.codec import (
    IS_COMPILED,
    ConsumerRecord,
    TimestampType,
    decode_batch,
    decode_records,
)
from odradek.records.codec_pure import ConsumerRecord as PureRecord
from odradek.records.codec_pure import decode_records_pure
from odradek.records.compression import Codec
from tests.unit.records.vectors import EXPECTED, VECTORS, T

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)


class Decoder(NamedTuple):
    """One of the twins. Arguments are Any, since wrong ones are tested, too."""

    record: Any
    decode: Any


@pytest.fixture(
    params=[
        pytest.param(Decoder(PureRecord, decode_records_pure), id="pure"),
        pytest.param(
            Decoder(ConsumerRecord, decode_records),
            id="compiled",
            marks=pytest.mark.skipif(not IS_COMPILED, reason="_codec is not built: setup.py"),
        ),
    ]
)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    chosen: Decoder = request.param
    return chosen


def header_of(batch: Buffer) -> BatchHeader:
    header = parse_header(batch)
    assert header is not None
    return header


def decode_all(
    decoder: Decoder, region: Buffer, record_count: int, from_offset: int = 0, **changes: int
) -> Any:
    header = header_of(VECTORS["VEC-2"])._replace(
        base_offset=100, record_count=record_count, **changes
    )
    return decoder.decode(region, header, from_offset, "t", 3, TimestampType.CREATE_TIME)


def region_of(*deltas: int) -> bytes:
    return b"".join(encode_record(delta, 0, b"k", b"v") for delta in deltas)


def fields_of(record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in FIELDS)


def decode_answer(buffer: Buffer, start: int, end: int, from_offset: int = 0) -> list[Any]:
    """Messages of magic 0 and 1 are batches of their own."""
    return [
        record
        for position, header in iter_headers(buffer, start, end)
        for record in decode_batch(
            buffer,
            position=position,
            header=header,
            topic="t",
            partition=3,
            from_offset=from_offset,
        )
    ]


@pytest.mark.parametrize("name", [pytest.param(name, id=f"10:{name}") for name in EXPECTED])
def test_vectors_of_every_format_and_codec(name: str) -> None:
    header = header_of(VECTORS[name])
    timestamp_type = TimestampType.CREATE_TIME
    if header.magic == 0:
        timestamp_type = TimestampType.NO_TIMESTAMP_TYPE
    elif header.attributes & 8:
        timestamp_type = TimestampType.LOG_APPEND_TIME
    shifted = b"##" + VECTORS[name] + b"##"
    for buffer in (shifted, bytearray(shifted), memoryview(shifted)):
        records = decode_answer(buffer, 2, len(shifted) - 2)
        assert [fields_of(record) for record in records] == [
            (
                "t",
                3,
                expected.offset,
                expected.timestamp,
                timestamp_type,
                expected.key,
                expected.value,
                expected.headers,
                None if header.leader_epoch < 0 else header.leader_epoch,
            )
            for expected in EXPECTED[name]
        ]


@pytest.mark.parametrize("codec", list(Codec))
def test_reads_what_was_built(codec: Codec) -> None:
    sent = [
        (T + 7 * index, bytes(index) or None, bytes(70 * index), (("é", None), ("", b"x")))
        for index in range(200)
    ]
    batch = build_batch(sent, codec=codec, base_offset=5, leader_epoch=2)
    records = decode_batch(batch, header=header_of(batch), topic="t", partition=0)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in records] == sent
    assert [r.offset for r in records] == list(range(5, 205))
    assert {r.leader_epoch for r in records} == {2}


@pytest.mark.parametrize("name", ["VEC-2", "VEC-5", "VEC-16", "VEC-17", "VEC-18"])
@pytest.mark.parametrize("from_offset", [0, 1, 2, 100, 101, 102, MAX_INT64])
def test_leaves_out_what_was_read_before(name: str, from_offset: int) -> None:
    batch = VECTORS[name]
    records = decode_answer(batch, 0, len(batch), from_offset)
    expected = [record.offset for record in EXPECTED[name] if record.offset >= from_offset]
    assert [record.offset for record in records] == expected


def test_offsets_may_have_holes(decoder: Decoder) -> None:
    records = decode_all(decoder, region_of(0, 7, 8, 500), 4, from_offset=107)
    assert [record.offset for record in records] == [107, 108, 600]


def test_records_left_out_are_checked_all_the_same(decoder: Decoder) -> None:
    region = region_of(0) + b"\x0c\x00\x00\x02\x01\x03\x00" + region_of(2)
    with pytest.raises(InvalidRecordError, match="record 1 at position 9: value length -2"):
        decode_all(decoder, region, 3, from_offset=102)


@pytest.mark.parametrize(
    ("base", "delta", "timestamp"),
    [
        (MAX_INT64, 1, MIN_INT64),
        (MIN_INT64, -1, MAX_INT64),
        (1, MAX_INT64, MIN_INT64),
        (T, -T - 1, -1),
    ],
)
def test_timestamps_wrap_at_int64(decoder: Decoder, base: int, delta: int, timestamp: int) -> None:
    region = encode_record(0, delta, None, b"")
    assert decode_all(decoder, region, 1, base_timestamp=base)[0].timestamp == timestamp


def test_offsets_wrap_at_int64(decoder: Decoder) -> None:
    header = header_of(VECTORS["VEC-2"])._replace(base_offset=MAX_INT64, record_count=2)
    records = decoder.decode(region_of(0, 2), header, MIN_INT64, "t", 0, 0)
    assert [record.offset for record in records] == [MAX_INT64, MIN_INT64 + 1]


def test_append_time(decoder: Decoder) -> None:
    records = decode_all(decoder, region_of(0, 1), 2, attributes=8, max_timestamp=77)
    assert [record.timestamp for record in records] == [77, 77]


@pytest.mark.parametrize(
    ("region", "count", "message"),
    [
        (b"", 1, "record 0 at position 0: the region ends before it"),
        (region_of(0), 2, "record 1 at position 9: the region ends before it"),
        (region_of(0) + b"xyz", 1, "3 bytes at position 9 follow the last of 1 records"),
        (region_of(0), 0, "9 bytes at position 0 follow the last of 0 records"),
        (region_of(0), -1, "-1 records, expected 0 or more"),
        (region_of(0), 2**31 - 1, "record 1 at position 9"),
        (b"\x0c\x00\x00\x00\x06\x01\x00", 1, "key length 3, 2 bytes are left"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x04\x01", 1, "header key length 2"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1, "1 bytes more than its fields take"),
    ],
)
def test_malformed(decoder: Decoder, region: bytes, count: int, message: str) -> None:
    for buffer in (region, bytearray(region), memoryview(region)):
        with pytest.raises(InvalidRecordError) as raised:
            decode_all(decoder, buffer, count)
        assert message in str(raised.value)


@pytest.mark.parametrize("position", [-1, 1, 10_000])
def test_a_batch_that_is_not_all_there(position: int) -> None:
    batch = VECTORS["VEC-1"]
    message = f"90 bytes end within the batch of 90 at position {position}"
    with pytest.raises(CorruptRecordError, match=message):
        decode_batch(batch, position=position, header=header_of(batch), topic="t", partition=0)


def test_a_stream_larger_than_allowed() -> None:
    batch = build_batch([(T, b"k", bytes(5000), ())], codec=Codec.GZIP)
    with pytest.raises(InvalidRecordError, match="at most 1000"):
        decode_batch(batch, header=header_of(batch), topic="t", partition=0, max_size=1000)


class TestRecord:
    ARGUMENTS = ("t", 3, 100, T, TimestampType.CREATE_TIME, b"k", None, (("h", b"x"),), 12)

    def test_made_by_hand(self, decoder: Decoder) -> None:
        record = decoder.record(*self.ARGUMENTS)
        assert fields_of(record) == self.ARGUMENTS
        assert record == decoder.record(**dict(zip(FIELDS, self.ARGUMENTS, strict=True)))
        short = decoder.record(*self.ARGUMENTS[:-2])
        assert (short.headers, short.leader_epoch) == ((), None)

    def test_equals_one_with_the_same_fields(self, decoder: Decoder) -> None:
        record = decoder.record(*self.ARGUMENTS)
        same = decoder.record(*self.ARGUMENTS)
        assert record == same
        assert hash(record) == hash(same)
        for index, other in enumerate(("u", 4, 101, T + 1, 1, None, b"", (), None)):
            changed: list[object] = list(self.ARGUMENTS)
            changed[index] = other
            assert record != decoder.record(*changed)
        assert record != self.ARGUMENTS

    def test_decoded_equals_made(self, decoder: Decoder) -> None:
        region = encode_record(0, 0, b"k", None, (("h", b"x"),))
        records = decode_all(decoder, region, 1)
        assert records == [decoder.record(*self.ARGUMENTS)]
        assert records[0].headers == records[0].headers == (("h", b"x"),)

    def test_says_what_it_is(self, decoder: Decoder) -> None:
        assert repr(decoder.record(*self.ARGUMENTS)) == (
            "ConsumerRecord(topic='t', partition=3, offset=100, timestamp=1700000000000, "
            "timestamp_type=0, key=b'k', value=None, headers=(('h', b'x'),), leader_epoch=12)"
        )

    def test_pickles_as_the_twin_in_use(self, decoder: Decoder) -> None:
        restored = pickle.loads(pickle.dumps(decoder.record(*self.ARGUMENTS)))
        assert restored == ConsumerRecord(*self.ARGUMENTS)
        assert restored.timestamp_type is TimestampType.CREATE_TIME

    def test_header_keys_that_are_not_utf_8(self, decoder: Decoder) -> None:
        name = b"\xff\xc3\xa9".decode("utf-8", "surrogateescape")
        region = encode_record(0, 0, None, None, ((name, None),) * 100)
        assert decode_all(decoder, region, 1)[0].headers == ((name, None),) * 100

    @pytest.mark.skipif(not IS_COMPILED, reason="_codec is not built: setup.py")
    def test_cannot_be_changed_once_compiled(self) -> None:
        record: Any = ConsumerRecord(*self.ARGUMENTS)
        for name in FIELDS:
            with pytest.raises(AttributeError):
                setattr(record, name, None)

    @pytest.mark.skipif(not IS_COMPILED, reason="_codec is not built: setup.py")
    def test_the_collector_does_not_see_compiled_ones(self) -> None:
        """Thousands at once would wake it for nothing: they are never part of a cycle."""
        assert not gc.is_tracked(ConsumerRecord(*self.ARGUMENTS))


class TestFallback:
    @pytest.fixture
    def _without_extension(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        before = dict(vars(codec_module))
        monkeypatch.setitem(sys.modules, "odradek.records._codec", None)
        yield
        monkeypatch.undo()
        # Not by another reload: others hold the classes that were here before.
        vars(codec_module).update(before)

    @pytest.mark.usefixtures("_without_extension")
    def test_pure_twin_is_used_if_the_extension_is_missing(self) -> None:
        reloaded = importlib.reload(codec_module)
        assert not reloaded.IS_COMPILED
        assert reloaded.decode_records is decode_records_pure
        assert reloaded.ConsumerRecord is PureRecord
        batch = VECTORS["VEC-2"]
        records = reloaded.decode_batch(batch, header=header_of(batch), topic="t", partition=0)
        assert [record.offset for record in records] == [100, 101]


def test_a_record_that_was_made_without_its_fields_is_an_error_and_no_crash() -> None:
    record = ConsumerRecord.__new__(ConsumerRecord)
    for field in ("topic", "partition", "timestamp_type", "leader_epoch"):
        with pytest.raises(AttributeError):
            getattr(record, field)
    for use in (hash, repr):
        with pytest.raises(AttributeError):
            use(record)
