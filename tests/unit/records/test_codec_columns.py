"""Batches as columns (09:CL-30); every test runs on both twins."""

import importlib
import mmap
import sys
import threading
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import CorruptRecordError, InvalidRecordError
from odradek.records import columns as columns_module
from odradek.records.batch import HEADER_SIZE, BatchHeader, Buffer, iter_headers, parse_header
from odradek.records.builder import build_batch, encode_record
from odradek.records.codec import TimestampType
from odradek.records.columns import (
    IS_COMPILED,
    BinaryColumn,
    ColumnBuilder,
    Columns,
    ColumnSink,
    HeadersColumn,
)
from odradek.records.columns_pure import ColumnSink as PureSink
from odradek.records.compression import Codec
from odradek.records.record import Record, read_records
from tests.unit.records.vectors import EXPECTED, VECTORS, T

MAX_INT64 = 2**63 - 1
MAX_BYTES = 2**31 - 1


@pytest.fixture(
    params=[
        pytest.param(PureSink, id="pure"),
        pytest.param(
            ColumnSink,
            id="compiled",
            marks=pytest.mark.skipif(not IS_COMPILED, reason="_columns is not built: setup.py"),
        ),
    ]
)
def builder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ColumnBuilder:
    monkeypatch.setattr(columns_module, "ColumnSink", request.param)
    return ColumnBuilder()


def header_of(batch: Buffer) -> BatchHeader:
    header = parse_header(batch)
    assert header is not None
    return header


def integers(code: str, buffer: bytearray) -> list[int]:
    numbers = array(code)
    numbers.frombytes(buffer)
    return list(numbers)


def entries(column: BinaryColumn, count: int) -> list[bytes | None]:
    """Reads a column as Arrow does."""
    offsets = integers("i", column.offsets)
    assert len(offsets) == count + 1
    assert offsets[0] == 0
    assert offsets[-1] == len(column.data)
    values: list[bytes | None] = [bytes(column.data[start:end]) for start, end in pairwise(offsets)]
    if column.validity is None:
        assert column.null_count == 0
        return values
    assert len(column.validity) == (count + 7) // 8
    bits = int.from_bytes(column.validity, "little")
    assert bits >> count == 0
    nulls = [index for index in range(count) if not bits >> index & 1]
    assert len(nulls) == column.null_count > 0
    for index in nulls:
        assert values[index] == b""
        values[index] = None
    return values


def records_of(columns: Columns) -> list[Record]:
    count = columns.count
    assert len(integers("i", columns.timestamp_type)) == count
    header_keys = entries(columns.headers.key, columns.headers.count)
    header_values = entries(columns.headers.value, columns.headers.count)
    header_offsets = integers("i", columns.headers.offsets)
    assert len(header_offsets) == count + 1
    assert header_offsets[-1] == columns.headers.count
    headers = [
        (key.decode("utf-8", "surrogateescape"), value)
        for key, value in zip(header_keys, header_values, strict=True)
        if key is not None
    ]
    rows = zip(
        integers("q", columns.offset),
        integers("q", columns.timestamp),
        entries(columns.key, count),
        entries(columns.value, count),
        [tuple(headers[start:end]) for start, end in pairwise(header_offsets)],
        strict=True,
    )
    return [Record(*row) for row in rows]


def add_all(builder: ColumnBuilder, buffer: Buffer, **arguments: int) -> None:
    for position, header in iter_headers(buffer):
        assert builder.add_batch(buffer, position=position, header=header, **arguments)


@pytest.mark.parametrize("name", [pytest.param(name, id=f"10:{name}") for name in EXPECTED])
def test_vectors_of_every_format_and_codec(builder: ColumnBuilder, name: str) -> None:
    for buffer in (VECTORS[name], bytearray(VECTORS[name]), memoryview(VECTORS[name])):
        add_all(builder, buffer)
        assert builder.count == len(EXPECTED[name])
        columns = builder.finish()
        assert records_of(columns) == list(EXPECTED[name])
        expected_type = TimestampType.CREATE_TIME
        if buffer[16] == 0:
            expected_type = TimestampType.NO_TIMESTAMP_TYPE
        elif header_of(buffer).is_log_append_time:
            expected_type = TimestampType.LOG_APPEND_TIME
        assert set(integers("i", columns.timestamp_type)) <= {expected_type}


def test_layout(builder: ColumnBuilder) -> None:
    """The example of the module's docstring."""
    batch = build_batch(
        [(T, b"k1", b"v1", ()), (T + 1, None, b"v2", (("a", b"x"), ("b", None)))], base_offset=5
    )
    builder.add_batch(batch, header=header_of(batch))
    assert builder.finish() == Columns(
        2,
        bytearray(array("q", [5, 6])),
        bytearray(array("q", [T, T + 1])),
        bytearray(array("i", [0, 0])),
        BinaryColumn(1, bytearray([0b01]), bytearray(array("i", [0, 2, 2])), bytearray(b"k1")),
        BinaryColumn(0, None, bytearray(array("i", [0, 2, 4])), bytearray(b"v1v2")),
        HeadersColumn(
            2,
            bytearray(array("i", [0, 0, 2])),
            BinaryColumn(0, None, bytearray(array("i", [0, 1, 2])), bytearray(b"ab")),
            BinaryColumn(1, bytearray([0b01]), bytearray(array("i", [0, 1, 1])), bytearray(b"x")),
        ),
    )


def test_no_records(builder: ColumnBuilder) -> None:
    assert records_of(builder.finish()) == []
    add_all(builder, VECTORS["VEC-13"])
    assert builder.count == 0
    assert records_of(builder.finish()) == []


def some_batch(first: int, count: int, codec: Codec = Codec.NONE, size: int = 3) -> bytearray:
    """Records with every mix of null, empty, short and long fields."""
    records = [
        (
            T + index,
            (None, b"", b"key-%d" % index)[index % 3],
            (b"v" * (index % size), None)[index % 7 == 5],
            (("n", b"x" * (index % 5)), ("", None), ("é", b""))[: index % 4],
        )
        for index in range(first, first + count)
    ]
    return build_batch(records, base_offset=first, codec=codec)


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_after_batch(builder: ColumnBuilder, codec: Codec) -> None:
    batches = [some_batch(first, count, codec) for first, count in ((0, 7), (7, 1), (8, 93))]
    for batch in batches:
        add_all(builder, batch)
    assert builder.count == 101
    expected = [record for batch in batches for record in read_records(batch)]
    assert records_of(builder.finish()) == expected
    assert builder.count == builder.byte_count == 0


@pytest.mark.parametrize("expected_bytes", [1, 1000, 40_000, 10**6, 2**40])
@pytest.mark.parametrize("sink", [PureSink, ColumnSink])
def test_whatever_was_expected(sink: type[PureSink], expected_bytes: int) -> None:
    """With the right guess, too small and too large ones."""
    batches = [some_batch(first, 100, size=size) for first, size in ((0, 3), (100, 90), (200, 9))]
    columns: Any = sink(expected_bytes)
    for batch in batches:
        columns.append_records(batch[HEADER_SIZE:], header_of(batch), 0, 0)
    plain: Any = sink()
    for batch in batches:
        plain.append_records(batch[HEADER_SIZE:], header_of(batch), 0, 0)
    assert columns.finish() == plain.finish()
    builder = ColumnBuilder(expected_bytes)
    for batch in batches * 2:
        add_all(builder, batch)
    expected = [record for batch in batches * 2 for record in read_records(batch)]
    assert records_of(builder.finish()) == expected


def test_large_region_without_the_gil(builder: ColumnBuilder) -> None:
    batches = [some_batch(first, 500, size=900) for first in (0, 500)]
    assert min(map(len, batches)) > 100_000
    for batch in batches:
        add_all(builder, batch)
    expected = [record for batch in batches for record in read_records(batch)]
    assert records_of(builder.finish()) == expected


@pytest.mark.parametrize("from_offset", [0, 1, 6, 7, 8, 100, 101, MAX_INT64])
def test_leaves_out_what_was_read_before(builder: ColumnBuilder, from_offset: int) -> None:
    batches = [some_batch(0, 7), some_batch(7, 94)]
    for batch in batches:
        add_all(builder, batch, from_offset=from_offset)
    expected = [record for batch in batches for record in read_records(batch)]
    assert records_of(builder.finish()) == expected[from_offset:]


def test_legacy_messages_are_left_out_too(builder: ColumnBuilder) -> None:
    for name in ("VEC-16", "VEC-18"):
        add_all(builder, VECTORS[name], from_offset=1)
    assert records_of(builder.finish()) == [EXPECTED["VEC-16"][1], EXPECTED["VEC-18"][1]]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"\x0c\x00\x00\x00\x01\x03\x00", "value length -2"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x04\x01", "header key length 2"),
        (b"", "the region ends before it"),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 5, 8, 13])
@pytest.mark.parametrize("size", [3, 900], ids=["small", "large"])
def test_of_a_malformed_batch_nothing_is_added(
    builder: ColumnBuilder, damage: bytes, message: str, before: int, size: int
) -> None:
    first = some_batch(0, before, size=size) if before else b""
    add_all(builder, first)
    second = some_batch(20, 300, size=size)
    region = bytes(second[HEADER_SIZE:]) + damage
    header = header_of(second)._replace(record_count=301, length=HEADER_SIZE - 12 + len(region))
    with pytest.raises(InvalidRecordError, match=f"record 300 at position .*{message}"):
        builder.add_batch(bytes(HEADER_SIZE) + region, header=header)
    assert builder.count == before
    # What comes next stands where it belongs, null or not.
    third = some_batch(50, 11)
    add_all(builder, third)
    expected = [record for batch in (first, third) if batch for record in read_records(batch)]
    assert records_of(builder.finish()) == expected


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_wrong_count(builder: ColumnBuilder, count: int) -> None:
    batch = VECTORS["VEC-1"]
    header = header_of(batch)._replace(record_count=count)
    with pytest.raises(InvalidRecordError):
        builder.add_batch(batch, header=header)
    assert builder.count == 0


def test_a_batch_that_is_not_all_there(builder: ColumnBuilder) -> None:
    batch = VECTORS["VEC-1"]
    with pytest.raises(CorruptRecordError, match="89 bytes end within the batch of 90"):
        builder.add_batch(batch[:-1], header=header_of(batch))


def test_turns_away_what_does_not_fit(
    builder: ColumnBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = some_batch(0, 10)
    region_size = len(batch) - HEADER_SIZE
    monkeypatch.setattr(columns_module, "_MAX_BYTES", 2 * region_size)
    header = header_of(batch)
    assert builder.add_batch(batch, header=header)
    assert builder.byte_count == region_size
    assert builder.add_batch(batch, header=header)
    assert not builder.add_batch(batch, header=header)
    assert builder.count == 20
    assert builder.finish().count == 20
    assert builder.add_batch(batch, header=header)


def test_a_sink_refuses_more_than_int32_can_say(builder: ColumnBuilder, tmp_path: Path) -> None:
    header = header_of(VECTORS["VEC-1"])
    sink: Any = builder._sink
    sink.append_records(encode_record(0, 0, b"k", b"v"), header._replace(record_count=1), 0, 0)
    # A hole in a file takes neither room on the disk nor memory.
    with (tmp_path / "hole").open("wb+") as file:
        file.truncate(MAX_BYTES)
        with mmap.mmap(file.fileno(), MAX_BYTES, access=mmap.ACCESS_READ) as region:
            message = "9 bytes of records and 2147483647 more, columns take 2147483647"
            with pytest.raises(OverflowError, match=message):
                sink.append_records(region, header, 0, 0)
    assert sink.count == 1


def test_header_keys_that_are_not_utf_8(builder: ColumnBuilder) -> None:
    name = b"\xff\xc3\xa9".decode("utf-8", "surrogateescape")
    batch = build_batch([(T, None, None, ((name, None),))])
    add_all(builder, batch)
    assert builder.finish().headers.key.data == b"\xff\xc3\xa9"


@pytest.mark.skipif(not IS_COMPILED, reason="_columns is not built: setup.py")
def test_finished_columns_are_never_written_to() -> None:
    sink = ColumnSink()
    header = header_of(VECTORS["VEC-1"])
    region = VECTORS["VEC-1"][HEADER_SIZE:]
    sink.append_records(region, header, 0, 0)
    sink.finish()
    with pytest.raises(RuntimeError, match="these columns are finished"):
        sink.append_records(region, header, 0, 0)
    with pytest.raises(RuntimeError, match="these columns are finished"):
        sink.finish()


@pytest.mark.skipif(not IS_COMPILED, reason="_columns is not built: setup.py")
def test_threads_at_the_same_columns_are_told_apart() -> None:
    """Every batch is added whole or refused, whoever comes first."""
    sink = ColumnSink()
    batch = some_batch(0, 2000, size=400)
    header = header_of(batch)
    region = bytes(batch[HEADER_SIZE:])
    added: list[int] = []

    def add() -> None:
        for _ in range(20):
            try:
                sink.append_records(region, header, 0, 0)
            except RuntimeError:
                continue
            added.append(1)

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert added
    assert sink.count == 2000 * len(added)
    assert sink.byte_count == len(region) * len(added)


class TestFallback:
    @pytest.fixture
    def _without_extension(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        before = dict(vars(columns_module))
        monkeypatch.setitem(sys.modules, "odradek.records._columns", None)
        yield
        monkeypatch.undo()
        # Not by another reload: others hold the classes that were here before.
        vars(columns_module).update(before)

    @pytest.mark.usefixtures("_without_extension")
    def test_pure_twin_is_used_if_the_extension_is_missing(self) -> None:
        reloaded = importlib.reload(columns_module)
        assert not reloaded.IS_COMPILED
        assert reloaded.ColumnSink is PureSink
        builder = reloaded.ColumnBuilder()
        add_all(builder, VECTORS["VEC-2"])
        assert records_of(builder.finish()) == list(EXPECTED["VEC-2"])
