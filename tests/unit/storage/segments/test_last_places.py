"""Batches that were just appended are found without a search, and only where that is right."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.segments.last_places import KEPT, LastPlaces
from tests.support.logs import LogFixture, batch, offsets, read_all

LARGE = 1 << 20


class CountingDisk(Disk):
    """Counts what is read."""

    reads = 0

    def pread(self, fd: int, length: int, position: int) -> bytes:
        self.reads += 1
        return super().pread(fd, length, position)


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def fixture(tmp_path: Path, disk: CountingDisk) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=disk) as made:
        yield made


def reads_of(disk: CountingDisk, log: Log, offset: int) -> int:
    """Reads that a look-up takes; what it finds is the batch with that offset."""
    before = disk.reads
    found = log.read(offset, LARGE, FetchIsolation.LOG_END)
    count = disk.reads - before
    first = offsets(found.read())[0]
    assert first <= offset <= first + 1
    return count


def test_what_is_remembered() -> None:
    places = LastPlaces()
    assert places.find(0, 0) is None
    for number in range(2 * KEPT - 1):
        places.note(10 + 3 * number, 100 * number)
    end = 100 * (2 * KEPT - 1)

    assert places.find(10, end) == (0, 100)
    assert places.find(13, end) == (100, 100)
    assert places.find(10 + 3 * (2 * KEPT - 2), end + 7) == (100 * (2 * KEPT - 2), 107)
    for offset in (9, 11, 12, 10 + 3 * (2 * KEPT - 1)):
        assert places.find(offset, end) is None

    places.note(5_000, end)
    assert len(places) == KEPT
    assert places.find(10, end + 50) is None
    assert places.find(5_000, end + 50) == (end, 50)
    places.clear()
    assert places.find(5_000, end + 50) is None


@pytest.mark.parametrize("is_plain", [True, False])
def test_an_appended_batch_is_found_without_a_search(
    fixture: LogFixture, disk: CountingDisk, is_plain: bool
) -> None:
    log = fixture.open()
    for _ in range(300):
        records = batch(2) if is_plain else batch(2) + batch(2)
        log.append_as_leader(records, leader_epoch=0)

    end = log.log_end_offset
    assert [reads_of(disk, log, end - 2 * back) for back in range(1, KEPT)] == [0] * (KEPT - 1)
    assert reads_of(disk, log, end - 1) > 0  # In the middle of a batch: not remembered, but found.
    assert reads_of(disk, log, 1) > 0


def test_a_limit_below_the_batch_counts(fixture: LogFixture) -> None:
    """01:RD-4: a batch is whole, or only what was asked for of it."""
    log = fixture.open()
    fixture.append(3, size=200)

    whole = log.read(1, 100, FetchIsolation.LOG_END)
    part = log.read(1, 100, FetchIsolation.LOG_END, min_one_message=False)
    assert (len(whole.read()), whole.first_entry_incomplete) == (200, False)
    assert (len(part.read()), part.first_entry_incomplete) == (100, True)


def test_what_is_cut_off_is_forgotten(fixture: LogFixture, disk: CountingDisk) -> None:
    log = fixture.open()
    fixture.append(10)
    log.truncate_to(5)
    log.append_as_leader(batch(3), leader_epoch=0)

    assert reads_of(disk, log, 5) == 0
    assert offsets(read_all(log)) == list(range(8))
    assert reads_of(disk, log, 4) > 0


def test_a_new_segment_begins_anew(fixture: LogFixture, disk: CountingDisk) -> None:
    log = fixture.open()
    fixture.append(3)
    log.roll()
    fixture.append(3)

    assert reads_of(disk, log, 4) == 0
    assert reads_of(disk, log, 1) == 0
