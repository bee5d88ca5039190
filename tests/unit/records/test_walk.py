"""The record walk of validation; every test runs on both twins."""

import importlib
import sys
from collections.abc import Iterator
from typing import Protocol

import pytest

from odradek.errors import InvalidRecordError
from odradek.records import walk as walk_module
from odradek.records.batch import HEADER_SIZE, Buffer, parse_header
from odradek.records.builder import build_batch, encode_record
from odradek.records.record import Headers
from odradek.records.walk import (
    IS_COMPILED,
    MAX_BAD_RECORDS,
    NULL_KEY,
    TIMESTAMP_OUT_OF_RANGE,
    WalkResult,
    walk_records,
)
from odradek.records.walk_pure import check_plain_batch_pure, walk_records_pure
from tests.unit.records.vectors import VECTORS, T

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


class Walk(Protocol):
    def __call__(
        self,
        region: Buffer,
        start: int,
        end: int,
        record_count: int,
        base_timestamp: int,
        earliest_timestamp: int,
        latest_timestamp: int,
        require_key: bool,
        /,
    ) -> WalkResult: ...


@pytest.fixture(
    params=[
        pytest.param(walk_records_pure, id="pure"),
        pytest.param(
            walk_records,
            id="compiled",
            marks=pytest.mark.skipif(not IS_COMPILED, reason="_walk is not built: setup.py"),
        ),
    ]
)
def walk(request: pytest.FixtureRequest) -> Walk:
    chosen: Walk = request.param
    return chosen


def walk_all(
    walk: Walk,
    region: Buffer,
    count: int,
    *,
    base: int = T,
    earliest: int = MIN_INT64,
    latest: int = MAX_INT64,
    require_key: bool = False,
) -> WalkResult:
    return walk(region, 0, len(region), count, base, earliest, latest, require_key)


def region_of(*records: tuple[int, bytes | None]) -> bytes:
    """Records of (timestamp delta, key)."""
    return b"".join(
        encode_record(index, delta, key, b"value") for index, (delta, key) in enumerate(records)
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("VEC-1", (T + 5, 1, True, None), id="10:VEC-1"),
        pytest.param("VEC-4", (T + 2, 2, True, None), id="10:VEC-4"),
        pytest.param("VEC-11", (T, 0, True, None), id="10:VEC-11"),
        pytest.param("VEC-13", (-1, -1, True, None), id="10:VEC-13"),
        pytest.param("VEC-14", (T, 0, True, None), id="10:VEC-14"),
    ],
)
def test_vectors_in_place(walk: Walk, name: str, expected: WalkResult) -> None:
    data = VECTORS[name]
    header = parse_header(data)
    assert header is not None
    shifted = b"##" + data + b"##"
    for buffer in (
        shifted,
        bytearray(shifted),
        memoryview(shifted),
        memoryview(bytearray(shifted)),
    ):
        result = walk(
            buffer,
            2 + HEADER_SIZE,
            2 + header.size,
            header.record_count,
            header.base_timestamp,
            MIN_INT64,
            MAX_INT64,
            False,
        )
        assert result == expected


def test_first_of_several_largest_timestamps(walk: Walk) -> None:
    region = region_of((0, None), (7, None), (3, None), (7, None), (-900, None))
    assert walk_all(walk, region, 5) == (T + 7, 1, True, None)


def test_timestamps_below_minus_one_have_a_largest_one(walk: Walk) -> None:
    assert walk_all(walk, region_of((-9, None), (-8, None)), 2, base=0) == (-8, 1, True, None)


@pytest.mark.parametrize("delta", [63, 64, 8191, 8192, 2**20, 2**40, -64, -65, -8193, -(2**40)])
def test_deltas_of_every_length(walk: Walk, delta: int) -> None:
    region = encode_record(0, delta, None, b"")
    assert walk_all(walk, region, 1) == (T + delta, 0, True, None)


@pytest.mark.parametrize(
    ("base", "delta", "timestamp"),
    [
        (MAX_INT64, 0, MAX_INT64),
        (MAX_INT64, 1, MIN_INT64),
        (MAX_INT64, 8000, MIN_INT64 + 7999),
        (MIN_INT64, -1, MAX_INT64),
        (0, MAX_INT64, MAX_INT64),
        (1, MAX_INT64, MIN_INT64),
        (-1, MIN_INT64, MAX_INT64),
    ],
)
def test_timestamps_wrap_at_int64(walk: Walk, base: int, delta: int, timestamp: int) -> None:
    region = encode_record(0, delta, None, b"")
    assert walk_all(walk, region, 1, base=base) == (timestamp, 0, True, None)


@pytest.mark.parametrize("deltas", [(1,), (0, 2), (0, 0), (-1,), (0, 1, 2, 2), (2**31 - 1,)])
def test_offset_deltas_that_are_not_consecutive(walk: Walk, deltas: tuple[int, ...]) -> None:
    region = b"".join(encode_record(delta, 0, b"k", None) for delta in deltas)
    assert walk_all(walk, region, len(deltas)) == (T, 0, False, None)


def test_consecutive_through_every_length_of_varint(walk: Walk) -> None:
    region = b"".join(encode_record(index, 0, None, None) for index in range(9000))
    assert walk_all(walk, region, 9000) == (T, 0, True, None)
    assert walk_all(walk, memoryview(region), 9000) == (T, 0, True, None)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 2**20])
def test_sizes_of_every_length(walk: Walk, size: int) -> None:
    data = bytes(size)
    headers: Headers = (("k" * min(size, 9000), data), ("", None))
    region = encode_record(0, 0, data, data, headers)
    assert walk_all(walk, region, 1, require_key=True) == (T, 0, True, None)


class TestBad:
    def test_null_keys(self, walk: Walk) -> None:
        region = region_of((0, b"k"), (0, None), (0, b""), (0, None))
        assert walk_all(walk, region, 4)[3] is None
        assert walk_all(walk, region, 4, require_key=True)[3] == [(1, NULL_KEY), (3, NULL_KEY)]

    def test_timestamps_outside_the_window(self, walk: Walk) -> None:
        region = region_of((-11, b"k"), (-10, b"k"), (10, b"k"), (11, b"k"), (-T - 1, b"k"))
        bad = walk_all(walk, region, 5, earliest=T - 10, latest=T + 10)[3]
        # The last one's timestamp is -1: none, which is always allowed.
        assert bad == [(0, TIMESTAMP_OUT_OF_RANGE), (3, TIMESTAMP_OUT_OF_RANGE)]

    def test_one_reason_per_record(self, walk: Walk) -> None:
        region = region_of((99, None), (99, b"k"))
        bad = walk_all(walk, region, 2, latest=T, require_key=True)[3]
        assert bad == [(0, NULL_KEY), (1, TIMESTAMP_OUT_OF_RANGE)]

    def test_only_the_first_few_are_named(self, walk: Walk) -> None:
        region = region_of(*[(0, None)] * 40)
        bad = walk_all(walk, region, 40, require_key=True)[3]
        assert bad == [(index, NULL_KEY) for index in range(MAX_BAD_RECORDS)]

    def test_a_bad_timestamp_is_never_lost(self, walk: Walk) -> None:
        """It decides the error of the whole batch, so it takes the last place."""
        region = region_of(*[(0, None)] * 40, (5, b"k"), (6, b"k"))
        bad = walk_all(walk, region, 42, latest=T, require_key=True)[3]
        assert bad is not None
        assert len(bad) == MAX_BAD_RECORDS
        assert bad[-2:] == [(14, NULL_KEY), (40, TIMESTAMP_OUT_OF_RANGE)]


class TestMalformed:
    @pytest.mark.parametrize(
        ("region", "message"),
        [
            (b"", "record 0 at position 0: the region ends before it"),
            (b"\x00", "length 0, it has no attributes"),
            (b"\x01", "length -1, 0 bytes are left"),
            (b"\x10\x00", "length 8, 1 bytes are left"),
            (b"\x80", "varint at position 0 does not end before position 1"),
            (b"\x80\x80\x80\x80\x80\x00", "varint at position 0 is longer than 5 bytes"),
            (b"\x02\x00", "varint at position 2 does not end before position 2"),
            (b"\x1a\x00" + b"\x80" * 12, "is longer than 10 bytes"),
            (b"\x10\x00\x00" + b"\x80" * 6, "is longer than 5 bytes"),
            (b"\x0c\x00\x00\x00\x03\x01\x00", "key length -2, 2 bytes are left"),
            (b"\x0c\x00\x00\x00\x06\x01\x00", "key length 3, 2 bytes are left"),
            (b"\x0c\x00\x00\x00\x01\x03\x00", "value length -2, 1 bytes are left"),
            (b"\x0c\x00\x00\x00\x01\x04\x00", "value length 2, 1 bytes are left"),
            (b"\x0c\x00\x00\x00\x01\x01\x01", "-1 headers, 0 bytes are left"),
            (b"\x0c\x00\x00\x00\x01\x01\x04", "2 headers, 0 bytes are left"),
            (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "header key length -1"),
            (b"\x10\x00\x00\x00\x01\x01\x02\x04\x01", "header key length 2"),
            (b"\x10\x00\x00\x00\x01\x01\x02\x00\x03", "header value length -2"),
            (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "1 bytes more than its fields take"),
        ],
    )
    def test_record(self, walk: Walk, region: bytes, message: str) -> None:
        with pytest.raises(InvalidRecordError, match=message):
            walk_all(walk, region, 1)
        # Bytes behind the region are not the record's.
        with pytest.raises(InvalidRecordError, match=message):
            walk(region + bytes(50), 0, len(region), 1, T, 0, MAX_INT64, False)

    def test_names_index_and_position(self, walk: Walk) -> None:
        region = region_of((0, None), (0, None)) + b"\x0c\x00\x00\x00\x01\x03\x00"
        with pytest.raises(InvalidRecordError, match="record 2 at position 24: value length -2"):
            walk_all(walk, region, 3)

    @pytest.mark.parametrize("count", [0, 1, 3, 2**31 - 1, -1])
    def test_wrong_count(self, walk: Walk, count: int) -> None:
        with pytest.raises(InvalidRecordError):
            walk_all(walk, region_of((0, None), (0, None)), count)

    def test_bytes_behind_the_last_record(self, walk: Walk) -> None:
        with pytest.raises(InvalidRecordError, match="3 bytes at position 12 follow the last of 1"):
            walk_all(walk, region_of((0, None)) + b"xyz", 1)

    @pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5), (0, 11)])
    def test_range_outside_the_buffer(self, walk: Walk, start: int, end: int) -> None:
        with pytest.raises(ValueError, match="is not within 10 bytes"):
            walk(bytes(10), start, end, 1, T, 0, 0, False)


def test_large_region_without_the_gil(walk: Walk) -> None:
    batch = build_batch([(T + index, b"k", bytes(1000), ()) for index in range(200)])
    result = walk(batch, HEADER_SIZE, len(batch), 200, T, 0, MAX_INT64, True)
    assert result == (T + 199, 199, True, None)
    with pytest.raises(InvalidRecordError, match="record 200"):
        walk(batch, HEADER_SIZE, len(batch), 201, T, 0, MAX_INT64, True)


class TestFallback:
    @pytest.fixture
    def _without_extension(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setitem(sys.modules, "odradek.records._walk", None)
        yield
        monkeypatch.undo()
        importlib.reload(walk_module)

    @pytest.mark.usefixtures("_without_extension")
    def test_pure_twin_is_used_if_the_extension_is_missing(self) -> None:
        reloaded = importlib.reload(walk_module)
        assert not reloaded.IS_COMPILED
        assert reloaded.walk_records is walk_records_pure
        assert reloaded.check_plain_batch is check_plain_batch_pure
