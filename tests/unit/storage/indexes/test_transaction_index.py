"""The transaction index: 01 §7."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import CorruptIndexError
from odradek.files import Disk
from odradek.storage.indexes.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    encode_aborted_transaction,
)
from odradek.testing import SimDisk
from tests.support.descriptors import open_below

VECTOR = "00000000000000000fa0000000000000006400000000000000660000000000000067"
FIRST = AbortedTransaction(4000, 100, 102, 103)
SECOND = AbortedTransaction(4001, 90, 110, 105)
THIRD = AbortedTransaction(4000, 105, 120, 121)
ALL = (FIRST, SECOND, THIRD)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.txnindex"


@pytest.fixture
def empty(path: Path) -> TransactionIndex:
    return TransactionIndex(str(path), 90, disk=Disk())


@pytest.fixture
def index(empty: TransactionIndex) -> TransactionIndex:
    for transaction in ALL:
        empty.append(transaction)
    return empty


def test_entry_bytes(empty: TransactionIndex, path: Path) -> None:
    """10:VEC-23."""
    assert encode_aborted_transaction(FIRST) == bytes.fromhex(VECTOR)
    empty.append(FIRST)
    assert path.read_bytes() == bytes.fromhex(VECTOR)
    assert TransactionIndex(str(path), 90, disk=Disk()).all_entries() == (FIRST,)


def test_file_is_created_by_the_first_append_only(empty: TransactionIndex, path: Path) -> None:
    assert empty.all_entries() == ()
    assert empty.collect_aborted(0, 1000) == ([], False)
    empty.sanity_check()
    empty.flush()
    empty.reset()
    empty.truncate_to(0)
    empty.rename_to(str(path))
    assert not empty.delete_if_exists()
    assert not empty.file_exists()
    empty.append(FIRST)
    assert path.stat().st_size == 34


@pytest.mark.parametrize("last_offset", [120, 119, 0])
def test_last_offset_must_increase(index: TransactionIndex, path: Path, last_offset: int) -> None:
    with pytest.raises(ValueError, match=f"last offset {last_offset} is not above 120"):
        index.append(AbortedTransaction(1, 0, last_offset, 0))
    with pytest.raises(ValueError, match="ends before it starts"):
        index.append(AbortedTransaction(1, 131, 130, 0))
    assert index.all_entries() == ALL
    assert path.stat().st_size == 3 * 34


@pytest.mark.parametrize(
    ("offset", "kept"), [(0, 0), (102, 0), (103, 1), (110, 1), (111, 2), (120, 2), (121, 3)]
)
def test_truncate_to(index: TransactionIndex, path: Path, offset: int, kept: int) -> None:
    index.truncate_to(offset)
    assert index.all_entries() == ALL[:kept]
    assert path.stat().st_size == kept * 34
    index.append(AbortedTransaction(7, 121, 130, 131))
    assert TransactionIndex(str(path), 90, disk=Disk()).all_entries() == index.all_entries()


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "expected", "complete"),
    [
        pytest.param(90, 100, [], True, id="first entry is stable beyond the range"),
        pytest.param(90, 101, [FIRST], True, id="first touches it"),
        pytest.param(102, 103, [FIRST], True, id="marker only"),
        pytest.param(103, 104, [SECOND], True, id="open before, aborted after"),
        pytest.param(90, 105, [FIRST, SECOND], True, id="until the entry stable at the bound"),
        pytest.param(90, 106, [FIRST, SECOND, THIRD], True, id="all three"),
        pytest.param(111, 121, [THIRD], True, id="last entry decides"),
        pytest.param(111, 122, [THIRD], False, id="next segment may know more"),
        pytest.param(121, 200, [], False, id="behind all"),
    ],
)
def test_collect_aborted(
    index: TransactionIndex,
    fetch_offset: int,
    upper_bound: int,
    expected: list[AbortedTransaction],
    complete: bool,
) -> None:
    assert index.collect_aborted(fetch_offset, upper_bound) == (expected, complete)


class CountedEntries(list[AbortedTransaction]):
    """Counts the entries that are looked at."""

    looked_at = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.looked_at += len(found) if isinstance(place, slice) else 1
        return found


def test_what_was_aborted_behind_an_open_transaction_is_passed_by_the_block(path: Path) -> None:
    """02 section 12: a read of a few records does not look at all that came behind them."""
    index = TransactionIndex(str(path), 0, disk=Disk())
    # The transaction of producer 9, from offset 1 on, is open all the time.
    entries = CountedEntries(AbortedTransaction(1, at, at + 1, 1) for at in range(10, 20_010, 2))
    index._entries = entries
    index.collect_aborted(0, 5)
    entries.looked_at = 0
    assert index.collect_aborted(0, 5) == ([], False)
    assert entries.looked_at < 500
    last = AbortedTransaction(9, 1, 30_000, 30_001)
    index.append(last)
    assert index.collect_aborted(0, 5) == ([last], True)
    assert index.collect_aborted(0, 13) == ([entries[0], entries[1], last], True)
    index.truncate_to(30_000)
    assert index.collect_aborted(0, 13) == ([entries[0], entries[1]], False)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(VECTOR[:-2], "length 33 is no multiple of 34", id="torn"),
        pytest.param(VECTOR + "00", "length 35 is no multiple of 34", id="torn tail"),
        pytest.param("0001" + VECTOR[4:], "version 1 at byte 0", id="version above"),
        pytest.param("ffff" + VECTOR[4:], "version -1 at byte 0", id="version below"),
        pytest.param(VECTOR * 2, "at byte 34: offsets do not increase", id="repeated"),
        pytest.param(
            encode_aborted_transaction(AbortedTransaction(1, 9, 8, 9)).hex(),
            "at byte 0: offsets do not increase",
            id="ends before it starts",
        ),
    ],
)
def test_bad_file_is_corrupt_for_every_reader(path: Path, data: str, message: str) -> None:
    path.write_bytes(bytes.fromhex(data))
    uses: list[Callable[[TransactionIndex], object]] = [
        TransactionIndex.all_entries,
        TransactionIndex.sanity_check,
        lambda index: index.collect_aborted(0, 1000),
        lambda index: index.truncate_to(0),
        lambda index: index.append(THIRD),
    ]
    for use in uses:
        index = TransactionIndex(str(path), 90, disk=Disk())
        with pytest.raises(CorruptIndexError, match=message):
            use(index)
    assert path.read_bytes() == bytes.fromhex(data)


def test_reset_needs_no_readable_file(path: Path) -> None:
    path.write_bytes(b"junk")
    index = TransactionIndex(str(path), 90, disk=Disk())
    index.reset()
    index.append(FIRST)
    assert path.read_bytes() == bytes.fromhex(VECTOR)


def test_last_offset_below_the_base_is_corrupt(path: Path) -> None:
    path.write_bytes(bytes.fromhex(VECTOR))
    TransactionIndex(str(path), 102, disk=Disk()).sanity_check()
    with pytest.raises(CorruptIndexError, match="last offset 102 is below the base offset 103"):
        TransactionIndex(str(path), 103, disk=Disk()).sanity_check()


def test_opening_reads_nothing(tmp_path: Path, path: Path) -> None:
    path.write_bytes(bytes.fromhex(VECTOR))
    disk = SimDisk(tmp_path)
    disk.fail("pread", times=None)
    index = TransactionIndex(str(path), 90, disk=disk)
    with pytest.raises(OSError, match="Input/output"):
        index.all_entries()
    disk.heal()
    assert index.all_entries() == (FIRST,)
    disk.fail("open", times=None)
    assert index.collect_aborted(0, 103) == ([FIRST], True)


def test_flush_makes_entries_and_name_durable(tmp_path: Path, path: Path) -> None:
    disk = SimDisk(tmp_path)
    index = TransactionIndex(str(path), 90, disk=disk)
    index.append(FIRST)
    assert disk.durable_bytes(str(path)) is None
    index.flush()
    assert disk.durable_bytes(str(path)) == bytes.fromhex(VECTOR)
    disk.operations.clear()
    index.append(SECOND)
    index.flush()
    assert [operation for operation, _ in disk.operations] == ["write", "fsync"]
    assert disk.durable_bytes(str(path)) == path.read_bytes()


def test_failed_append_is_not_remembered(tmp_path: Path, path: Path) -> None:
    disk = SimDisk(tmp_path)
    index = TransactionIndex(str(path), 90, disk=disk)
    index.append(FIRST)
    disk.short_write(20)
    with pytest.raises(OSError, match="short write: 20 of 34"):
        index.append(SECOND)
    assert index.all_entries() == (FIRST,)
    with pytest.raises(CorruptIndexError, match="length 54"):
        TransactionIndex(str(path), 90, disk=disk).sanity_check()


def test_life_of_the_file(index: TransactionIndex, tmp_path: Path, path: Path) -> None:
    index.rename_to(str(path) + ".deleted")
    assert not path.exists()
    (tmp_path / "d").mkdir()
    Path(index.path).rename(tmp_path / "d" / "x.txnindex.deleted")
    index.update_directory(str(tmp_path / "d"))
    index.flush()
    index.close()
    assert index.all_entries() == ALL
    assert open_below(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        index.rename_to(str(tmp_path / "nowhere" / "x"))
    assert index.delete_if_exists()
    assert list((tmp_path / "d").iterdir()) == []
    index.flush()


def test_flush_follows_a_rename_on_another_thread(path: Path) -> None:
    class RenamesFirst(Disk):
        def fsync_path(self, path: str) -> None:
            asked.append(path)
            if len(asked) == 1:
                index.rename_to(path + ".deleted")
            super().fsync_path(path)

    asked: list[str] = []
    index = TransactionIndex(str(path), 90, disk=RenamesFirst())
    index.append(FIRST)
    index.flush()
    assert asked == [str(path), f"{path}.deleted"]
