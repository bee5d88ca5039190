"""The offset index: 01 §5."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import CorruptIndexError, InvalidOffsetError, OffsetOverflowError
from odradek.files import Disk
from odradek.storage.indexes.offset_index import OffsetIndex

BASE = 50
ENTRIES = [(55, 100), (60, 200), (70, 300)]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[OffsetIndex]:
    index = OffsetIndex(str(tmp_path / "x.index"), BASE, max_index_size=80, disk=Disk())
    yield index
    index.close()


@pytest.fixture
def index(empty: OffsetIndex) -> OffsetIndex:
    for offset, position in ENTRIES:
        empty.append(offset, position)
    return empty


def test_bytes(index: OffsetIndex) -> None:
    data = Path(index.path).read_bytes()
    assert data[:24] == bytes.fromhex("00000005 00000064 0000000a 000000c8 00000014 0000012c")
    assert data[24:] == bytes(56)


def test_entries(index: OffsetIndex) -> None:
    assert list(index) == ENTRIES
    assert (index.entries, index.last_offset, index.is_full) == (3, 70, False)
    assert index.entry(2) == (70, 300)
    for slot in (-1, 3):
        with pytest.raises(ValueError, match=f"no slot {slot}"):
            index.entry(slot)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (49, (50, 0)),
        (54, (50, 0)),
        (55, (55, 100)),
        (59, (55, 100)),
        (60, (60, 200)),
        (70, (70, 300)),
        (1000, (70, 300)),
        (-(2**63), (50, 0)),
        (2**63 - 1, (70, 300)),
    ],
)
def test_lookup_is_the_floor(index: OffsetIndex, target: int, expected: tuple[int, int]) -> None:
    assert index.lookup(target) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (50, (55, 100)),
        (55, (55, 100)),
        (56, (60, 200)),
        (70, (70, 300)),
        (71, None),
    ],
)
def test_ceiling(index: OffsetIndex, target: int, expected: tuple[int, int] | None) -> None:
    assert index.ceiling(target) == expected


def test_empty_index(empty: OffsetIndex) -> None:
    assert empty.last_offset == BASE
    assert empty.lookup(1000) == (BASE, 0)
    assert empty.ceiling(0) is None
    assert empty.fetch_upper_bound_offset(0, 1000) is None
    assert list(empty) == []
    empty.truncate_to(0)
    empty.sanity_check()


def test_ceiling_of_the_only_slot(empty: OffsetIndex) -> None:
    empty.append(55, 100)
    assert empty.ceiling(55) == (55, 100)
    assert empty.ceiling(56) is None


@pytest.mark.parametrize("offset", [70, 65, 50])
def test_append_must_increase(index: OffsetIndex, offset: int) -> None:
    with pytest.raises(InvalidOffsetError, match=rf"offset {offset} for slot 3 .*offset 70"):
        index.append(offset, 400)
    assert list(index) == ENTRIES


@pytest.mark.parametrize("offset", [49, 50 + 2**31])
def test_append_must_fit_the_base(empty: OffsetIndex, offset: int) -> None:
    with pytest.raises(OffsetOverflowError, match=f"offset {offset} "):
        empty.append(offset, 0)
    with pytest.raises(OffsetOverflowError):
        empty.relative_offset(offset)
    assert not empty.can_append_offset(offset)
    assert empty.entries == 0


@pytest.mark.parametrize("position", [-1, 2**31])
def test_position_must_fit(empty: OffsetIndex, position: int) -> None:
    with pytest.raises(OffsetOverflowError, match=f"position {position} "):
        empty.append(55, position)
    assert empty.entries == 0


def test_borders_fit(empty: OffsetIndex) -> None:
    """A relative offset of zero is allowed, and so is the largest int32 in both fields."""
    assert empty.relative_offset(50) == 0
    assert empty.can_append_offset(50 + 2**31 - 1)
    empty.append(50, 0)
    empty.append(50 + 2**31 - 1, 2**31 - 1)
    assert list(empty) == [(50, 0), (50 + 2**31 - 1, 2**31 - 1)]
    with pytest.raises(InvalidOffsetError):
        empty.append(50, 0)


def test_full(empty: OffsetIndex) -> None:
    for number in range(10):
        assert not empty.is_full
        empty.append(BASE + number, number)
    assert empty.is_full
    with pytest.raises(ValueError, match="full: 10 entries"):
        empty.append(1000, 1000)


@pytest.mark.parametrize(
    ("position", "size", "expected"),
    [(0, 50, 55), (0, 100, 60), (0, 101, 60), (100, 100, 60), (100, 101, 70), (200, 101, None)],
)
def test_fetch_upper_bound_offset(
    index: OffsetIndex, position: int, size: int, expected: int | None
) -> None:
    """The answer lies behind the bytes read; a match on slot 0 answers with the slot after it."""
    assert index.fetch_upper_bound_offset(position, size) == expected


@pytest.mark.parametrize(("offset", "kept"), [(60, 1), (61, 2), (40, 0), (1000, 3), (55, 0)])
def test_truncate_to(index: OffsetIndex, offset: int, kept: int) -> None:
    index.truncate_to(offset)
    assert list(index) == ENTRIES[:kept]
    assert index.last_offset == (ENTRIES[kept - 1][0] if kept else BASE)
    index.append(1001, 400)
    assert index.lookup(2000) == (1001, 400)


def test_reopened(index: OffsetIndex) -> None:
    index.close()
    again = OffsetIndex(index.path, BASE, max_index_size=80, disk=Disk())
    assert (list(again), again.last_offset, again.length) == (ENTRIES, 70, 24)
    again.sanity_check()
    again.close()


def test_last_offset_below_the_base_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes.fromhex("00000005 00000064 ffffffff 000000c8"))
    index = OffsetIndex(str(path), BASE, max_index_size=80, disk=Disk())
    with pytest.raises(CorruptIndexError, match="last offset 49 is below the base offset 50"):
        index.sanity_check()
    index.close()
