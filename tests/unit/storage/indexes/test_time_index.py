"""The time index: 01 §6."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import (
    CorruptIndexError,
    InvalidOffsetError,
    OffsetOverflowError,
    TimestampRegressionError,
)
from odradek.files import Disk
from odradek.storage.indexes.time_index import TimeIndex

BASE = 1000


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[TimeIndex]:
    index = TimeIndex(str(tmp_path / "x.timeindex"), BASE, max_index_size=125, disk=Disk())
    yield index
    index.close()


@pytest.fixture
def index(empty: TimeIndex) -> TimeIndex:
    assert empty.maybe_append(100, BASE + 5)
    assert not empty.maybe_append(100, BASE + 9)
    return empty


def test_bytes(empty: TimeIndex) -> None:
    empty.maybe_append(1577836800000, BASE + 5)
    assert Path(empty.path).read_bytes()[:12] == bytes.fromhex("0000016f5e66e800 00000005")
    assert empty.length == 120


def test_equal_timestamp_is_ignored(index: TimeIndex) -> None:
    assert list(index) == [(100, BASE + 5)]
    assert index.last_entry == (100, BASE + 5)


def test_offset_must_not_decrease(index: TimeIndex) -> None:
    with pytest.raises(InvalidOffsetError, match=r"offset 1004 .* last offset 1005"):
        index.maybe_append(200, BASE + 4)
    assert index.entries == 1


def test_time_must_not_go_back(index: TimeIndex) -> None:
    with pytest.raises(TimestampRegressionError, match=r"timestamp 90 .* last timestamp 100"):
        index.maybe_append(90, BASE + 10)
    assert index.entries == 1


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (99, (-1, BASE)),
        (100, (100, BASE + 5)),
        (199, (100, BASE + 5)),
        (200, (200, BASE + 10)),
        (2**63 - 1, (200, BASE + 10)),
    ],
)
def test_lookup_is_the_floor(index: TimeIndex, timestamp: int, expected: tuple[int, int]) -> None:
    index.maybe_append(200, BASE + 10)
    assert index.entries == 2
    assert index.lookup(timestamp) == expected


def test_empty_index(empty: TimeIndex) -> None:
    assert empty.last_entry == (-1, BASE)
    assert empty.lookup(5) == (-1, BASE)
    assert not empty.maybe_append(-1, BASE)  # A segment without timestamps.
    assert empty.entries == 0
    empty.truncate_to(0)
    empty.sanity_check()


def test_offset_must_fit_the_base(empty: TimeIndex) -> None:
    for offset in (BASE - 1, BASE + 2**31):
        with pytest.raises(OffsetOverflowError):
            empty.maybe_append(1, offset)
    with pytest.raises(ValueError, match="no room for timestamp"):
        empty.maybe_append(2**63, BASE)
    assert empty.maybe_append(2**63 - 1, BASE + 2**31 - 1)
    assert empty.entry(0) == (2**63 - 1, BASE + 2**31 - 1)
    with pytest.raises(ValueError, match="no slot 1"):
        empty.entry(1)


def test_last_slot_is_reserved(empty: TimeIndex) -> None:
    for number in range(9):
        assert not empty.is_full
        empty.maybe_append(number, BASE + number)
    assert empty.is_full
    with pytest.raises(ValueError, match="full: 9 entries"):
        empty.maybe_append(100, BASE + 100)
    assert empty.maybe_append(100, BASE + 100, skip_full_check=True)
    assert not empty.maybe_append(100, BASE + 100, skip_full_check=True)
    with pytest.raises(ValueError, match="slot 10 of 10"):
        empty.maybe_append(101, BASE + 101, skip_full_check=True)
    assert empty.entries == 10


@pytest.mark.parametrize(
    ("offset", "kept"), [(5, 0), (6, 1), (10, 1), (11, 2), (12, 2), (13, 5), (0, 0), (99, 5)]
)
def test_truncate_to_goes_by_offset(empty: TimeIndex, offset: int, kept: int) -> None:
    """Offsets may repeat: all entries at and above the argument go."""
    entries = [(100, 5), (200, 10), (300, 12), (400, 12), (500, 12)]
    for timestamp, relative in entries:
        empty.maybe_append(timestamp, BASE + relative)
    empty.truncate_to(BASE + offset)
    assert [(t, o - BASE) for t, o in empty] == entries[:kept]
    last, relative = entries[kept - 1] if kept else (-1, 0)
    assert empty.last_entry == (last, BASE + relative)


def test_reopened(index: TimeIndex) -> None:
    index.close()
    again = TimeIndex(index.path, BASE, max_index_size=125, disk=Disk())
    assert (list(again), again.last_entry) == ([(100, BASE + 5)], (100, BASE + 5))
    again.sanity_check()
    again.resize(125)
    assert again.maybe_append(101, BASE + 5)
    again.close()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("0000000000000064 00000005 0000000000000063 00000006", "last timestamp 99 is below"),
        ("0000000000000064 ffffffff", "last offset 999 is below the base offset 1000"),
        ("0000000000000064 00000005 00", "length 13 is no multiple of 12"),
    ],
)
def test_sanity_check(tmp_path: Path, data: str, message: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes.fromhex(data))
    index = TimeIndex(str(path), BASE, max_index_size=125, disk=Disk())
    with pytest.raises(CorruptIndexError, match=message):
        index.sanity_check()
    index.close_without_trim()
