"""Any bytes give records or an error, any records give bytes or an error; the twins agree."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError
from odradek.records import codec, columns
from odradek.records.batch import HEADER_SIZE, BatchHeader, parse_header
from odradek.records.builder import build_batch
from odradek.records.codec import decode_batch
from odradek.records.codec_pure import (
    count_fitting_pure,
    decode_records_pure,
    encode_records_pure,
    estimate_record_size_pure,
)
from odradek.records.columns import ColumnBuilder, ColumnSink
from odradek.records.columns_pure import ColumnSink as PureSink
from odradek.records.record import read_records
from tests.support.mutation import mutated
from tests.unit.records.vectors import VECTORS, T

FUZZ = settings(deadline=None, max_examples=300)
MAX_SIZE = 1 << 20
INT64 = st.integers(-(2**63), 2**63 - 1)
needs_codec = pytest.mark.skipif(not codec.IS_COMPILED, reason="_codec is not built: setup.py")
needs_columns = pytest.mark.skipif(
    not columns.IS_COMPILED, reason="_columns is not built: setup.py"
)

SEVEN = build_batch(
    [
        (T + 99 * i, bytes(i) or None, bytes(70 * i), (("h", None), ("é" * i, b"x"))[: i % 3])
        for i in range(7)
    ]
)
REGIONS = [
    *(VECTORS[name][HEADER_SIZE:] for name in ("VEC-1", "VEC-4", "VEC-14")),
    bytes(SEVEN[HEADER_SIZE:]),
]
FIELDS = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type"),
    *("key", "value", "headers", "leader_epoch"),
)
BATCHES = [*VECTORS.values(), bytes(SEVEN)]


ANY_REGION = st.one_of(
    st.sampled_from(REGIONS),
    mutated(REGIONS),
    st.binary(max_size=60),
    # Small bytes are small numbers, so more of these come far.
    st.lists(st.integers(0, 14), max_size=40).map(bytes),
)


@st.composite
def headers_of_batches(draw: st.DrawFn) -> BatchHeader:
    return BatchHeader(
        base_offset=draw(st.one_of(st.integers(0, 200), INT64)),
        length=0,
        leader_epoch=draw(st.integers(-2, 2)),
        magic=2,
        crc=0,
        attributes=draw(st.sampled_from([0, 8, 16, 32, 64])),
        last_offset_delta=draw(st.integers(0, 9)),
        base_timestamp=draw(st.one_of(st.just(T), INT64)),
        max_timestamp=draw(st.one_of(st.just(T + 300), INT64)),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=draw(st.one_of(st.integers(0, 8), st.integers(-(2**31), 2**31 - 1))),
    )


def outcome(call: Callable[[], object]) -> object:
    """What bad bytes may raise is part of the answer; anything else fails the test."""
    try:
        return call()
    except (CorruptRecordError, InvalidRecordError) as error:
        return type(error), str(error)


def plain(records: list[Any]) -> list[tuple[object, ...]]:
    return [tuple(getattr(record, name) for name in FIELDS) for record in records]


def sunk(sink: Any, region: bytes, header: BatchHeader, from_offset: int) -> object:
    """The second region stands behind the first, whatever became of that one."""
    first = outcome(lambda: sink.append_records(region, header, 1, from_offset))
    sink.append_records(REGIONS[0], header._replace(record_count=2), 0, -(2**63))
    return first, sink.count, sink.byte_count, sink.finish()


def decoded_both(region: bytes, header: BatchHeader, from_offset: int) -> list[object]:
    arguments = (region, header, from_offset, "t", 7, 1)
    return [
        outcome(lambda: plain(codec.decode_records(*arguments))),
        outcome(lambda: plain(decode_records_pure(*arguments))),
    ]


@needs_codec
@settings(deadline=None, max_examples=800)
@given(ANY_REGION, headers_of_batches(), st.one_of(st.integers(0, 220), INT64))
def test_the_twins_decode_the_same(region: bytes, header: BatchHeader, from_offset: int) -> None:
    compiled, pure = decoded_both(region, header, from_offset)
    assert compiled == pure


@needs_columns
@settings(deadline=None, max_examples=800)
@given(ANY_REGION, headers_of_batches(), st.one_of(st.integers(0, 220), INT64))
def test_the_twins_fill_the_same_columns(
    region: bytes, header: BatchHeader, from_offset: int
) -> None:
    compiled = sunk(ColumnSink(), region, header, from_offset)
    assert compiled == sunk(PureSink(), region, header, from_offset)


@needs_codec
@needs_columns
def test_the_twins_agree_on_every_one_byte_change() -> None:
    header = parse_header(SEVEN)
    assert header is not None
    for region, count in zip(REGIONS, (2, 3, 1, 7), strict=True):
        known = header._replace(record_count=count)
        for position in range(min(len(region), 60)):
            for value in (0, 1, 2, 3, 5, 0x7E, 0x7F, 0x80, 0xFF, region[position] ^ 1):
                changed = region[:position] + bytes((value,)) + region[position + 1 :]
                compiled, pure = decoded_both(changed, known, 0)
                assert compiled == pure
                filled = sunk(ColumnSink(), changed, known, 0)
                assert filled == sunk(PureSink(), changed, known, 0)


@FUZZ
@given(st.one_of(st.binary(max_size=200), mutated(BATCHES)), st.integers(-3, 3))
def test_batches(data: bytes, shift: int) -> None:
    """Whoever reads a batch, record by record, as objects or as columns, accepts the same ones."""
    header = outcome(lambda: parse_header(data))
    if not isinstance(header, BatchHeader):
        return
    records = outcome(lambda: list(read_records(data, header=header, max_size=MAX_SIZE)))
    objects = outcome(
        lambda: decode_batch(
            data, header=header, topic="t", partition=0, from_offset=-(2**63), max_size=MAX_SIZE
        )
    )
    builder = ColumnBuilder()
    added = outcome(
        lambda: builder.add_batch(data, header=header, from_offset=-(2**63), max_size=MAX_SIZE)
    )
    assert isinstance(records, list) == isinstance(objects, list) == (added is True)
    if isinstance(records, list) and isinstance(objects, list):
        assert builder.finish().count == len(records)
        assert [(r.timestamp, r.key, r.value, r.headers) for r in objects] == [
            record[1:] for record in records
        ]
    else:
        assert objects == added
    if shift:
        outcome(lambda: decode_batch(data, position=shift, header=header, topic="t", partition=0))


# Fields as they should be, and now and then as they should not.
FIELD = st.one_of(
    st.none(),
    st.binary(max_size=70),
    st.binary(max_size=9).map(bytearray),
    st.binary(max_size=9).map(lambda data: memoryview(data)),
)
ANYTHING: Any = st.sampled_from(
    [None, 1.5, "text", b"bytes", 7, 2**63, ("a", b""), ["b"], {}, object]
)
NAME = st.text(st.characters(codec="utf-8"), max_size=9)
SURROGATES = st.binary(max_size=5).map(lambda data: data.decode("utf-8", "surrogateescape"))
HEADERS = st.lists(
    st.one_of(st.tuples(st.one_of(NAME, SURROGATES), FIELD), st.tuples(st.text(max_size=3), FIELD)),
    max_size=3,
)
RECORD = st.tuples(
    st.one_of(st.integers(T, T + 100), INT64), FIELD, FIELD, st.one_of(HEADERS, HEADERS.map(tuple))
)


@st.composite
def damaged(draw: st.DrawFn) -> object:
    """A record with one field that may be anything, or fewer of them, or no record at all."""
    record: list[object] = list(draw(RECORD))
    match draw(st.integers(0, 3)):
        case 0:
            return draw(ANYTHING)
        case 1:
            del record[draw(st.integers(0, 3))]
        case 2:
            record[draw(st.integers(0, 3))] = draw(ANYTHING)
        case _:
            record[3] = [draw(st.one_of(ANYTHING, st.tuples(ANYTHING, ANYTHING)))]
    return draw(st.sampled_from([tuple, list]))(record)


RECORDS: Any = st.lists(RECORD, max_size=6)
ANY_RECORDS: Any = st.one_of(
    RECORDS, st.lists(st.one_of(RECORD, damaged()), max_size=3), RECORDS.map(tuple)
)


def encoding(call: Callable[[], object]) -> object:
    try:
        return call()
    except (TypeError, ValueError, RecordTooLargeError) as error:
        return type(error), str(error)


@needs_codec
@settings(deadline=None, max_examples=800)
@given(ANY_RECORDS, st.one_of(st.none(), st.just(T), INT64), st.integers(0, 70), st.booleans())
def test_the_twins_encode_the_same(
    records: Any, base: int | None, prefix_size: int, with_deltas: bool
) -> None:
    deltas = [71 * index for index in range(len(records))] if with_deltas else None
    arguments = (records, base, deltas, prefix_size)
    compiled = encoding(lambda: codec.encode_records(*arguments))
    pure = encoding(lambda: encode_records_pure(*arguments))
    if isinstance(compiled[0], bytearray):  # type: ignore[index]
        compiled[0][:prefix_size] = bytes(prefix_size)  # type: ignore[index]
    assert compiled == pure
    for limit in (0, 100, 200, 10_000):
        assert encoding(lambda n=limit: codec.count_fitting(records, 0, n)) == encoding(  # type: ignore[misc]
            lambda n=limit: count_fitting_pure(records, 0, n)  # type: ignore[misc]
        )


@needs_codec
@FUZZ
@given(st.one_of(FIELD, ANYTHING), FIELD, st.one_of(HEADERS, ANYTHING, damaged()))
def test_the_twins_estimate_the_same(key: Any, value: Any, headers: Any) -> None:
    assert encoding(lambda: codec.estimate_record_size(key, value, headers)) == encoding(
        lambda: estimate_record_size_pure(key, value, headers)
    )


@FUZZ
@given(st.lists(st.tuples(INT64, FIELD, FIELD, HEADERS.map(tuple)), min_size=1, max_size=9))
def test_what_is_encoded_is_decoded(records: Any) -> None:
    try:
        batch = build_batch(records)
    except ValueError:  # A header key that is no text.
        return
    header = parse_header(batch)
    assert header is not None
    decoded = decode_batch(batch, header=header, topic="t", partition=0)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in decoded] == [
        (
            timestamp,
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            tuple((name, None if content is None else bytes(content)) for name, content in headers),
        )
        for timestamp, key, value, headers in records
    ]
