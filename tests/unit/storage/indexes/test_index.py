"""The mapped index base: shape and life of the file, and the search."""

import errno
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from odradek.errors import CorruptIndexError
from odradek.files import Disk
from odradek.storage.indexes.index import (
    Index,
    SlotColumn,
    find_floor_slot,
    find_slot_range,
    find_slot_range_plain,
    first_hot_slot,
)
from odradek.storage.indexes.offset_index import OffsetIndex
from odradek.storage.indexes.time_index import TimeIndex
from odradek.testing import SimDisk
from tests.support.descriptors import open_below

KEY = SlotColumn.of(">q", stride=8)


def keys(values: list[int]) -> bytes:
    return b"".join(value.to_bytes(8, "big", signed=True) for value in values)


class PageRecorder:
    """A key column that notes which pages a search touches."""

    def __init__(self, entries_per_page: int) -> None:
        self.pages: list[int] = []
        self.entries_per_page = entries_per_page
        self.column = SlotColumn(self._unpack, stride=8, shift=0)

    def _unpack(self, data: Any, position: int) -> tuple[int, ...]:
        page = position // 8 // self.entries_per_page
        if page not in self.pages:
            self.pages.append(page)
        value: tuple[int, ...] = Struct(">q").unpack_from(data, position)
        return value


@pytest.fixture
def index(tmp_path: Path) -> Iterator[OffsetIndex]:
    made = OffsetIndex(str(tmp_path / "i.index"), 50, max_index_size=80, disk=Disk())
    yield made
    made.close_without_trim()


def fill(index: OffsetIndex, count: int) -> None:
    for number in range(count):
        index.append(index.base_offset + number, number * 100)


class TestOpen:
    @pytest.mark.parametrize(
        ("kind", "max_index_size", "length", "slots"),
        [
            pytest.param(OffsetIndex, 1234567, 1234560, 154320, id="01:IDX-1 offset"),
            pytest.param(TimeIndex, 1234567, 1234560, 102880, id="01:IDX-1 time"),
            pytest.param(OffsetIndex, 10485760, 10485760, 1310720, id="01:IDX-2 offset"),
            pytest.param(TimeIndex, 10485760, 10485756, 873813, id="01:IDX-2 time"),
        ],
    )
    def test_new_file_holds_whole_slots(
        self, tmp_path: Path, kind: type[Index], max_index_size: int, length: int, slots: int
    ) -> None:
        path = tmp_path / "new"
        index = kind(str(path), 0, max_index_size=max_index_size, disk=Disk())
        assert index.newly_created
        assert (index.length, index.max_entries, index.entries) == (length, slots, 0)
        assert path.stat().st_size == length
        index.close()
        assert path.stat().st_size == 0

    def test_new_file_needs_room_for_one_slot(self, tmp_path: Path) -> None:
        """01:IDX-3; nothing is left behind."""
        with pytest.raises(ValueError, match="max_index_size 7"):
            OffsetIndex(str(tmp_path / "x"), 0, max_index_size=7, disk=Disk())
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("length", "entries"), [(0, 0), (7, 0), (8, 1), (20, 2), (24, 3), (4096, 512)]
    )
    def test_existing_file_is_used_up_to_its_last_whole_slot(
        self, tmp_path: Path, length: int, entries: int
    ) -> None:
        path = tmp_path / "x"
        path.write_bytes(bytes(length))
        index = OffsetIndex(str(path), 50, max_index_size=80, disk=Disk())
        assert not index.newly_created
        assert (index.length, index.entries, index.max_entries) == (length, entries, entries)
        assert index.is_full
        index.close_without_trim()
        assert path.stat().st_size == length

    def test_left_preallocated_by_a_crash_it_opens_as_filled(self, tmp_path: Path) -> None:
        path = str(tmp_path / "x")
        index = OffsetIndex(path, 50, max_index_size=80, disk=Disk())
        index.append(55, 100)
        index.close_without_trim()
        again = OffsetIndex(path, 50, max_index_size=80, disk=Disk())
        assert (again.entries, again.entry(0), again.entry(9)) == (10, (55, 100), (50, 0))
        again.reset()
        fill(again, 10)
        assert again.is_full
        again.close()

    def test_failure_to_map_leaves_no_descriptor(self, tmp_path: Path) -> None:
        disk = SimDisk(tmp_path)
        disk.fail("ftruncate", error=errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            OffsetIndex(str(tmp_path / "x"), 0, max_index_size=80, disk=disk)
        assert open_below(tmp_path) == []


class ReadOnlyDisk(Disk):
    """Refuses what a user with read permission only may not do; root would get away with it."""

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            raise PermissionError(errno.EACCES, "read permission only", path)
        return super().open(path, flags, mode)

    def ftruncate(self, fd: int, length: int) -> None:
        raise PermissionError(errno.EACCES, "read permission only")


class TestReadOnly:
    def test_needs_read_permission_only_and_changes_nothing(self, tmp_path: Path) -> None:
        """Inspecting an index (KAFKA-5104) must not need write permission."""
        path = tmp_path / "x"
        data = bytes.fromhex("00000005 00000064 0000000a 000000c8 00")
        path.write_bytes(data)
        path.chmod(0o444)
        stat = path.stat()
        index = OffsetIndex(str(path), 50, max_index_size=80, writable=False, disk=ReadOnlyDisk())
        assert list(index) == [(55, 100), (60, 200)]
        assert index.lookup(59) == (55, 100)
        for change in (
            lambda: index.append(70, 300),
            lambda: index.resize(80),
            lambda: index.truncate_to_entries(1),
            lambda: index.truncate_to(0),
            index.trim_to_valid_size,
            index.reset,
        ):
            with pytest.raises(ValueError, match=r"read-only|full"):
                change()
        index.close()
        assert path.read_bytes() == data
        assert path.stat().st_mtime_ns == stat.st_mtime_ns

    def test_missing_file_is_not_created(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            OffsetIndex(str(tmp_path / "x"), 0, max_index_size=80, writable=False, disk=Disk())
        assert list(tmp_path.iterdir()) == []

    def test_empty_file(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.touch()
        index = OffsetIndex(str(path), 50, max_index_size=80, writable=False, disk=ReadOnlyDisk())
        assert index.lookup(60) == (50, 0)
        index.close()


class TestShape:
    def test_resize_rounds_down_and_keeps_entries(self, index: OffsetIndex) -> None:
        fill(index, 3)
        assert not index.resize(87)
        assert index.resize(47)
        assert (index.length, index.max_entries, index.entries) == (40, 5, 3)
        assert os.path.getsize(index.path) == 40
        assert index.resize(160)
        assert list(index) == [(50, 0), (51, 100), (52, 200)]
        index.append(53, 300)
        assert index.entry(3) == (53, 300)

    def test_resize_never_drops_used_slots(self, index: OffsetIndex) -> None:
        fill(index, 3)
        with pytest.raises(ValueError, match="24 bytes are in use"):
            index.resize(23)
        assert index.length == 80

    def test_resize_drops_a_torn_slot(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(bytes(19))
        index = OffsetIndex(str(path), 0, max_index_size=80, disk=Disk())
        assert index.resize(19)
        assert path.stat().st_size == 16
        index.close()

    def test_trim_to_nothing_and_grow_again(self, index: OffsetIndex) -> None:
        """An empty index is a file of zero bytes, which cannot be mapped."""
        index.trim_to_valid_size()
        assert (index.length, index.entries, index.is_full) == (0, 0, True)
        assert os.path.getsize(index.path) == 0
        assert index.lookup(60) == (50, 0)
        assert index.slot_range(60) == (-1, -1)
        with pytest.raises(ValueError, match="full"):
            index.append(55, 100)
        index.flush()
        assert index.resize(80)
        index.append(55, 100)
        assert index.lookup(60) == (55, 100)

    def test_reset_empties_and_extends(self, index: OffsetIndex) -> None:
        fill(index, 3)
        index.trim_to_valid_size()
        index.reset()
        assert (index.entries, index.length, index.last_offset) == (0, 80, 50)

    def test_truncate_to_entries(self, tmp_path: Path) -> None:
        index = OffsetIndex(str(tmp_path / "x"), 0, max_index_size=8000, disk=Disk())
        for number in range(1, 101):
            index.append(number, number)
        index.truncate_to_entries(40)
        assert (index.entries, index.last_offset) == (40, 40)
        for count in (-1, 41):
            with pytest.raises(ValueError, match="cannot keep"):
                index.truncate_to_entries(count)
        index.append(1000, 1000)
        index.close()
        assert (tmp_path / "x").stat().st_size == 41 * 8
        assert (tmp_path / "x").read_bytes()[320:] == bytes.fromhex("000003e8000003e8")

    def test_close_trims_once(self, index: OffsetIndex) -> None:
        fill(index, 2)
        index.close()
        assert os.path.getsize(index.path) == 16
        index.close()
        for use in (
            lambda: index.lookup(50),
            lambda: index.entry(0),
            lambda: index.append(60, 1),
            lambda: index.resize(80),
            index.flush,
        ):
            with pytest.raises(ValueError, match=r"closed|full"):
                use()

    def test_close_without_trim_leaves_the_file(self, index: OffsetIndex) -> None:
        fill(index, 2)
        index.close_without_trim()
        index.close()
        assert os.path.getsize(index.path) == 80
        with pytest.raises(ValueError, match="closed"):
            index.append(60, 1)

    def test_shrinking_maps_the_shorter_range_first(self, tmp_path: Path) -> None:
        """A mapping beyond the end of its file would kill the process with SIGBUS."""

        class Watcher(Disk):
            mapped = 0

            def ftruncate(self, fd: int, length: int) -> None:
                with open("/proc/self/maps") as maps:
                    for line in maps:
                        if line.rstrip().endswith("watched.index"):
                            start, end = line.split(" ")[0].split("-")
                            Watcher.mapped = int(end, 16) - int(start, 16)
                            pages = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
                            assert Watcher.mapped <= pages
                super().ftruncate(fd, length)

        path = str(tmp_path / "watched.index")
        index = OffsetIndex(path, 0, max_index_size=1 << 20, disk=Watcher())
        fill(index, 10)
        index.trim_to_valid_size()
        assert Watcher.mapped == mmap.PAGESIZE
        index.close()

    @pytest.mark.parametrize("length", [1, 9, 4097])
    def test_length_that_is_no_multiple_is_corrupt(self, tmp_path: Path, length: int) -> None:
        path = tmp_path / "x"
        path.write_bytes(bytes(length))
        index = OffsetIndex(str(path), 0, max_index_size=80, disk=Disk())
        with pytest.raises(CorruptIndexError, match=f"length {length} is no multiple of 8"):
            index.sanity_check()
        index.close()


class TestFullDisk:
    """A store into a mapped page without room on disk raises SIGBUS; it must be an OSError."""

    def test_is_an_error_before_the_mapping_is_touched(self, tmp_path: Path) -> None:
        disk = SimDisk(tmp_path)
        index = OffsetIndex(str(tmp_path / "x"), 0, max_index_size=1 << 20, disk=disk)
        per_page = mmap.PAGESIZE // 8
        fill(index, per_page)
        disk.full_after(0)
        with pytest.raises(OSError, match="No space left"):
            index.append(per_page, 1)
        assert (index.entries, index.last_offset) == (per_page, per_page - 1)
        disk.heal()
        disk.full_after(None)
        disk.short_write(10)
        with pytest.raises(OSError, match=f"short write: 10 of {mmap.PAGESIZE}"):
            index.append(per_page, 1)
        assert index.entries == per_page
        index.close()

    def test_truncated_slots_are_reserved_again(self, tmp_path: Path) -> None:
        """After a crash the slots behind may never have been written: they may be holes."""
        disk = SimDisk(tmp_path)
        (tmp_path / "x").write_bytes(b"")
        os.truncate(tmp_path / "x", 80)
        index = OffsetIndex(str(tmp_path / "x"), 0, max_index_size=80, disk=disk)
        index.reset()
        disk.full_after(0)
        with pytest.raises(OSError, match="No space left"):
            index.append(0, 0)
        index.close()

    def test_running_out_of_descriptors_is_not_the_disks_fault(self, tmp_path: Path) -> None:
        disk = SimDisk(tmp_path)
        index = OffsetIndex(str(tmp_path / "x"), 0, max_index_size=80, disk=disk)
        disk.fail("open", error=errno.EMFILE)
        index.append(3, 30)
        index.append(4, 40)
        assert list(index) == [(3, 30), (4, 40)]
        index.close()

    def test_reserving_spares_slots_that_cross_a_page(self, tmp_path: Path) -> None:
        index = TimeIndex(str(tmp_path / "x"), 0, max_index_size=1 << 16, disk=Disk())
        count = index.max_entries - 1
        for number in range(count):
            index.maybe_append(number + 1, number)
        assert list(index) == [(number + 1, number) for number in range(count)]
        index.close()


class TestDurability:
    def test_flush_makes_entries_length_and_name_durable(self, tmp_path: Path) -> None:
        disk = SimDisk(tmp_path)
        index = OffsetIndex(str(tmp_path / "x"), 50, max_index_size=80, disk=disk)
        index.append(55, 100)
        assert disk.durable_bytes(index.path) is None
        index.flush()
        assert disk.durable_bytes(index.path) == bytes.fromhex("0000000500000064") + bytes(72)
        index.trim_to_valid_size()
        disk.operations.clear()
        index.flush()
        assert disk.operations == [("fsync", "x")]  # The name is durable already.
        assert disk.durable_bytes(index.path) == bytes.fromhex("0000000500000064")
        index.close()

    def test_a_failed_sync_is_reported_and_not_repeated(self, tmp_path: Path) -> None:
        disk = SimDisk(tmp_path)
        index = OffsetIndex(str(tmp_path / "x"), 50, max_index_size=80, disk=disk)
        disk.operations.clear()
        disk.fail("fsync")
        with pytest.raises(OSError, match="Input/output"):
            index.flush()
        assert disk.operations == [("fsync", "x")]
        index.close_without_trim()

    @pytest.mark.parametrize("change", ["rename", "resize", "delete"])
    def test_flush_survives_a_change_on_another_thread(self, tmp_path: Path, change: str) -> None:
        class SlowToStart(Disk):
            def flush_map(self, mapping: mmap.mmap, path: str) -> None:
                if path not in seen:
                    seen.append(path)
                    worker = threading.Thread(target=changes[change])
                    worker.start()
                    worker.join()
                super().flush_map(mapping, path)

        seen: list[str] = []
        index = OffsetIndex(str(tmp_path / "x"), 50, max_index_size=80, disk=SlowToStart())
        index.append(55, 100)
        changes = {
            "rename": lambda: index.rename_to(str(tmp_path / "y")),
            "resize": lambda: index.resize(40),
            "delete": lambda: index.delete_if_exists(),
        }
        index.flush()
        index.flush()
        index.close()
        assert seen[0] == str(tmp_path / "x")

    def test_a_lost_file_is_written_again(self, index: OffsetIndex) -> None:
        fill(index, 3)
        os.unlink(index.path)
        index.flush()
        assert os.path.getsize(index.path) == index.length
        os.unlink(index.path)
        index.rename_to(index.path + ".deleted")
        assert os.path.exists(index.path)
        os.unlink(index.path)
        index.trim_to_valid_size()
        with open(index.path, "rb") as file:
            assert file.read() == b"".join(
                Struct(">ii").pack(entry.offset - index.base_offset, entry.position)
                for entry in map(index.entry, range(3))
            )

    def test_a_lost_directory_is_an_error(self, tmp_path: Path) -> None:
        directory = tmp_path / "gone"
        directory.mkdir()
        index = OffsetIndex(str(directory / "i"), 0, max_index_size=80, disk=Disk())
        os.unlink(index.path)
        directory.rmdir()
        with pytest.raises(FileNotFoundError):
            index.flush()
        index.close_without_trim()

    def test_rename_and_directory_change_keep_the_mapping(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        index = OffsetIndex(str(tmp_path / "a" / "x"), 50, max_index_size=80, disk=Disk())
        index.append(55, 100)
        index.rename_to(index.path + ".deleted")
        assert index.path == str(tmp_path / "a" / "x.deleted")
        (tmp_path / "a").rename(tmp_path / "b")
        index.update_directory(str(tmp_path / "b"))
        index.append(60, 200)
        index.close()
        assert (tmp_path / "b" / "x.deleted").stat().st_size == 16

    def test_delete(self, index: OffsetIndex) -> None:
        fill(index, 1)
        assert index.delete_if_exists()
        assert not os.path.exists(index.path)
        assert not index.delete_if_exists()
        index.close()
        assert not os.path.exists(index.path)


class TestSearch:
    @pytest.mark.parametrize(
        ("entries", "path"),
        [
            pytest.param(13, [0, 6, 9, 11, 12], id="01:IDX-4"),
            pytest.param(14, [0, 7, 10, 12, 13], id="01:IDX-5"),
        ],
    )
    def test_plain_search_changes_its_path_with_each_page(
        self, entries: int, path: list[int]
    ) -> None:
        recorder = PageRecorder(entries_per_page=1)
        data = keys(list(range(entries)))
        find_slot_range_plain(recorder.column, data, entries, entries - 1)
        assert recorder.pages == path

    @pytest.mark.parametrize(
        ("pages", "path"),
        [
            pytest.param(13, [0, 6, 9, 11, 12], id="01:IDX-4 full pages"),
            pytest.param(14, [0, 7, 10, 12, 13], id="01:IDX-5 full pages"),
        ],
    )
    def test_plain_search_over_full_pages(self, pages: int, path: list[int]) -> None:
        recorder = PageRecorder(entries_per_page=512)
        entries = pages * 512
        find_slot_range_plain(recorder.column, keys(list(range(entries))), entries, entries)
        assert recorder.pages == path

    @pytest.mark.parametrize(
        ("pages", "touched"),
        [
            pytest.param(13, {10, 11, 12}, id="01:IDX-6 13 pages"),
            pytest.param(14, {11, 12, 13}, id="01:IDX-6 14 pages"),
        ],
    )
    def test_warm_search_touches_the_last_pages_only(self, pages: int, touched: set[int]) -> None:
        recorder = PageRecorder(entries_per_page=512)
        entries = pages * 512
        data = keys(list(range(entries)))
        found = find_slot_range(recorder.column, data, entries, entries, warm_entries=1024)
        assert found == (entries - 1, -1)
        assert set(recorder.pages) == touched
        recorder.pages.clear()
        floor = find_floor_slot(recorder.column, data, entries, entries, warm_entries=1024)
        assert floor == entries - 1
        assert set(recorder.pages) == touched

    @pytest.mark.parametrize(("exponent", "most"), [(1, 7), (2, 21), (4, 21)])
    def test_slots_visited_before_the_warm_section(self, exponent: int, most: int) -> None:
        """By halves alone they are 14; evenly spread slots need half as many."""
        visits = 0

        def count_visit(data: Any, position: int) -> tuple[int, ...]:
            nonlocal visits
            visits += 1
            return Struct(">q").unpack_from(data, position)

        entries = 10_000
        data = keys([slot**exponent for slot in range(entries)])
        column = SlotColumn(count_visit, stride=8, shift=0)
        for slot in range(0, entries, 97):
            visits = 0
            assert find_floor_slot(column, data, entries, slot**exponent, warm_entries=9) == slot
            assert visits <= most

    @pytest.mark.parametrize(
        ("warm", "entries", "first"),
        [
            pytest.param(1024, 1, 0, id="01:IDX-7 1"),
            pytest.param(1024, 1025, 0, id="01:IDX-7 1025"),
            pytest.param(1024, 1026, 1, id="01:IDX-7 1026"),
            pytest.param(1024, 2000, 975, id="01:IDX-7 2000"),
            pytest.param(682, 683, 0, id="01:IDX-8 683"),
            pytest.param(682, 684, 1, id="01:IDX-8 684"),
            pytest.param(682, 1000, 317, id="01:IDX-8 1000"),
        ],
    )
    def test_first_hot_slot(self, warm: int, entries: int, first: int) -> None:
        assert first_hot_slot(entries, warm) == first

    @pytest.mark.parametrize(
        ("target", "expected"),
        [
            (49, (-1, 0)),
            (55, (0, 1)),
            (59, (0, 1)),
            (60, (1, 1)),
            (65, (1, 2)),
            (70, (2, 2)),
            (1000, (2, -1)),
        ],
        ids=lambda value: f"01:IDX-9 {value}",
    )
    def test_slot_ranges(self, tmp_path: Path, target: int, expected: tuple[int, int]) -> None:
        data = keys([55, 60, 70])
        assert find_slot_range_plain(KEY, data, 3, target) == expected
        assert find_slot_range(KEY, data, 3, target, warm_entries=1024) == expected
        index = OffsetIndex(str(tmp_path / "x"), 50, max_index_size=80, disk=Disk())
        for offset in (55, 60, 70):
            index.append(offset, 0)
        assert index.slot_range(target) == expected
        index.close()

    def test_slot_range_of_an_empty_index(self, index: OffsetIndex) -> None:
        """01:IDX-9, last column."""
        assert find_slot_range_plain(KEY, b"", 0, 5) == (-1, -1)
        assert find_slot_range(KEY, b"", 0, 5, warm_entries=1024) == (-1, -1)
        assert index.slot_range(5) == (-1, -1)

    def test_exact_match_on_the_only_slot(self) -> None:
        assert find_slot_range(KEY, keys([7]), 1, 7, warm_entries=1024) == (0, -1)

    def test_readers_never_fail_beside_a_writer(self, tmp_path: Path) -> None:
        """Readers take no lock of the log, and the writer appends, truncates and resizes."""
        index = OffsetIndex(str(tmp_path / "x"), 0, max_index_size=1 << 16, disk=Disk())
        failures: list[BaseException] = []
        done = threading.Event()

        def read() -> None:
            try:
                while not done.is_set():
                    offset, position = index.lookup(5000)
                    assert position == offset * 10
                    index.ceiling(3)
                    index.fetch_upper_bound_offset(0, 2000)
            except BaseException as error:
                failures.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for _ in range(20):
            for offset in range(1, 500):
                index.append(offset, offset * 10)
            index.trim_to_valid_size()
            index.truncate_to(3)
            index.trim_to_valid_size()
            index.reset()
        done.set()
        for reader in readers:
            reader.join()
        index.close()
        assert failures == []
