"""What a consumer gets from a log with damage, and what an operator sees of it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.records.batch import is_crc_valid, iter_headers
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from tests.support.logs import LogFixture, UnsyncedDisk, batch, flip_bit

SIZE = 180
LOG = f"{0:020d}.log"
SECTOR = 512


@pytest.fixture(params=[4096, 400], ids=["few-index-entries", "many-index-entries"])
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, config=LogConfig(index_interval_bytes=request.param)) as made:
        yield made


def write(fixture: LogFixture, count: int) -> None:
    log = fixture.open()
    for _ in range(count):
        log.append_as_leader(batch(size=SIZE), leader_epoch=0)
    fixture.close()


def zero(path: Path, start: int, length: int = SECTOR) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(length))


def consumed(log: Log, fetch_bytes: int = 1 << 20) -> list[int]:
    """Offsets a client gets that stops for good at what is no batch, or at a bad checksum."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, fetch_bytes, FetchIsolation.LOG_END).read()
        before = offset
        end = 0
        for position, header in iter_headers(data):
            assert is_crc_valid(data, position, header.size), f"bad checksum behind {offset}"
            end = position + header.size
            if header.last_offset >= offset:
                found.append(header.base_offset)
                offset = header.next_offset
        assert end == len(data) or fetch_bytes < 1 << 20, "bytes that are no batch were served"
        if offset == before:
            break
    return found


def missing_of(start: int, length: int, count: int) -> set[int]:
    """Batches that a range of bytes touches."""
    return {n for n in range(count) if n * SIZE < start + length and start < (n + 1) * SIZE}


@pytest.mark.parametrize("count", [20, 120], ids=["below-4-KB", "many-intervals"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("fetch_bytes", [1 << 20, 1000])
def test_a_zeroed_sector_costs_what_it_touches(
    clean: bool, count: int, fetch_bytes: int, fixture: LogFixture
) -> None:
    """Everything else is served, in order, to a client that cannot step over anything."""
    write(fixture, count)
    start = 8 * SIZE + 100
    zero(fixture.path(LOG), start)
    log = fixture.open(clean=clean, recovery_point=count)
    expected = [n for n in range(count) if n not in missing_of(start, SECTOR, count)]
    assert consumed(log, fetch_bytes) == expected
    # Each of the offsets by itself, and those in the damage lead behind it.
    for offset in range(count):
        data = log.read(offset, 1, FetchIsolation.LOG_END).read()
        first = next(header for _, header in iter_headers(data))
        assert first.base_offset == min(n for n in expected if n >= offset)


@pytest.mark.parametrize("count", [15, 60])
def test_what_is_written_behind_damage_stays_readable(count: int, fixture: LogFixture) -> None:
    """01 §8.4: over a clean stop, an unclean one and another clean one."""
    write(fixture, count)
    start = 4 * SIZE + 100
    zero(fixture.path(LOG), start)
    missing = missing_of(start, SECTOR, count)
    log = fixture.open(clean=True, recovery_point=count)
    end = count
    for clean in (True, False, True, True):
        assert log.log_end_offset == end
        assert consumed(log) == [n for n in range(end) if n not in missing]
        for _ in range(5):
            log.append_as_leader(batch(size=SIZE), leader_epoch=0)
        end += 5
        assert consumed(log) == [n for n in range(end) if n not in missing]
        log.flush()
        log = fixture.reopen(clean=clean)


@pytest.mark.parametrize(
    "bit",
    [
        pytest.param(6 * 8, id="base-offset-up"),
        pytest.param(7 * 8 + 4, id="base-offset-down"),
        pytest.param(11 * 8, id="length-up"),
        pytest.param(11 * 8 + 2, id="length-down"),
        pytest.param(8 * 8, id="length-negative"),
        pytest.param(16 * 8 + 2, id="magic"),
        pytest.param(25 * 8, id="last-offset-delta"),
    ],
)
def test_a_header_that_lies_costs_its_own_batch(bit: int, fixture: LogFixture) -> None:
    write(fixture, 60)
    flip_bit(fixture.path(LOG), 30 * SIZE * 8 + bit)
    log = fixture.open(clean=True, recovery_point=60)
    assert consumed(log) == [n for n in range(60) if n != 30]
    for offset in range(60):
        data = log.read(offset, 1, FetchIsolation.LOG_END).read()
        first = next(header for _, header in iter_headers(data))
        assert first.base_offset == (31 if offset == 30 else offset)


def test_a_bad_checksum_is_the_readers_to_find(fixture: LogFixture) -> None:
    write(fixture, 60)
    flip_bit(fixture.path(LOG), (30 * SIZE + 150) * 8)
    stored = fixture.path(LOG).read_bytes()
    log = fixture.open(clean=True, recovery_point=60)
    assert log.read(0, 1 << 20, FetchIsolation.LOG_END).read() == stored


def test_damage_is_logged_and_counted_once_for_each_place(
    fixture: LogFixture, caplog: pytest.LogCaptureFixture
) -> None:
    write(fixture, 120)
    zero(fixture.path(LOG), 8 * SIZE + 100)
    zero(fixture.path(LOG), 60 * SIZE, 20)
    counted: list[None] = []
    fixture.services = fixture.services.__class__(
        disk=fixture.services.disk,
        clock=fixture.services.clock,
        random=fixture.services.random,
        tasks=fixture.services.tasks,
        on_damage=lambda: counted.append(None),
    )
    log = fixture.open(clean=True, recovery_point=120)
    for _ in range(3):
        consumed(log)
        consumed(log, 700)
        log.segments.active.rebuild_indexes()  # type: ignore[union-attr]
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(counted) == len(lines) == 2
    path = fixture.path(LOG)
    assert lines[0].startswith(f"{path}: damaged data is kept as it is: ")
    assert lines[0].endswith(
        f"; {4 * SIZE} bytes at position {8 * SIZE}, behind offset 7; batches go on at position"
        f" {12 * SIZE}"
    )
    assert f"; {SIZE} bytes at position {60 * SIZE}, behind offset 59;" in lines[1]


def test_a_damaged_end_of_a_segment_leads_to_the_next(fixture: LogFixture) -> None:
    log = fixture.open()
    for n in range(20):
        if n == 10:
            log.roll()
        log.append_as_leader(batch(size=SIZE), leader_epoch=0)
    fixture.close()
    zero(fixture.path(LOG), 8 * SIZE + 10, 2 * SIZE - 10)
    log = fixture.open(clean=True, recovery_point=20)
    assert consumed(log) == [*range(8), *range(10, 20)]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("byte", [3, 5, 6])
def test_the_last_batch_of_a_segment_does_not_reach_into_the_next(
    byte: int, clean: bool, fixture: LogFixture
) -> None:
    """The checksum does not cover its base offset, and no batch behind it contradicts it."""
    log = fixture.open()
    for n in range(20):
        if n in (1, 10):
            log.roll()
        log.append_as_leader(batch(size=SIZE), leader_epoch=0)
    fixture.close()
    flip_bit(fixture.path(LOG), byte * 8 + 6)
    flip_bit(fixture.path(f"{1:020d}.log"), (8 * SIZE + byte) * 8 + 6)
    log = fixture.open(clean=clean, recovery_point=20)
    assert consumed(log) == [n for n in range(20) if n not in (0, 9)]


class CountingDisk(UnsyncedDisk):
    """Counts the bytes that are read."""

    __slots__ = ("bytes_read",)

    def __init__(self) -> None:
        self.bytes_read = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:
        data = super().pread(fd, size, position)
        self.bytes_read += len(data)
        return data


def test_what_was_checked_once_is_not_read_again(tmp_path: Path) -> None:
    """The first read of a region steps through its headers, later ones do not."""
    disk = CountingDisk()
    with LogFixture(tmp_path, disk=disk) as fixture:
        write(fixture, 100)
        log = fixture.open(clean=True, recovery_point=100)
        costs = []
        for _ in range(3):
            before = disk.bytes_read
            assert consumed(log) == list(range(100))
            costs.append(disk.bytes_read - before)
        assert costs[1] == costs[2] < costs[0]


def test_a_damaged_header_that_jumps_ahead_hides_nothing_behind(fixture: LogFixture) -> None:
    """The first read meets it: its base offset, its checksum and the batch behind it are wrong."""
    write(fixture, 60)
    for bit in (30 * SIZE * 8 + 6 * 8, (30 * SIZE + 150) * 8, (31 * SIZE + 16) * 8 + 2):
        flip_bit(fixture.path(LOG), bit)
    log = fixture.open(clean=True, recovery_point=60)
    first = next(iter_headers(log.read(30, 1000, FetchIsolation.LOG_END).read()))[1]
    assert first.base_offset == 32
    assert consumed(log) == [n for n in range(60) if n not in (30, 31)]


@pytest.mark.parametrize("number", [0, 3])
def test_a_length_that_leads_out_of_the_file_costs_its_own_batch_only(
    fixture: LogFixture, number: int
) -> None:
    """An offset behind it is asked for first, by a client that goes on where it was."""
    write(fixture, 8)
    path = fixture.path(LOG)
    data = bytearray(path.read_bytes())
    data[number * SIZE + 9] ^= 1
    path.write_bytes(data)
    log = fixture.open(clean=True, recovery_point=8)
    for offset in (number + 1, 7, number + 2):
        found = log.read(offset, 1, FetchIsolation.LOG_END).read()
        assert [header.base_offset for _, header in iter_headers(found)] == [offset]


@pytest.mark.parametrize("number", [0, 1, 7, 30])
def test_a_batch_that_lies_about_a_lower_offset_is_told_of(
    number: int, fixture: LogFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """A look-up that takes it for a batch in front of what it looks for would miss it silently."""
    log = fixture.open()
    for _ in range(64):
        log.append_as_leader(batch(size=SIZE), leader_epoch=0)
    log.roll()
    log.truncate_fully_and_start_at(100)
    for _ in range(40):
        log.append_as_leader(batch(size=SIZE), leader_epoch=0)
    log.roll()
    recovery_point = fixture.close()
    path = fixture.path(f"{100:020d}.log")
    with path.open("r+b") as file:
        file.seek(number * SIZE)
        file.write((90).to_bytes(8, "big"))
    log = fixture.open(clean=True, recovery_point=recovery_point)
    found = []
    for offset in range(100, 140):
        data = log.read(offset, 1, FetchIsolation.LOG_END).read()
        found += [h.base_offset for _, h in iter_headers(data) if h.base_offset == offset]
    assert found == [offset for offset in range(100, 140) if offset != 100 + number]
    assert any(str(path) in r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)


@pytest.mark.parametrize("change", [70, -40])
def test_a_length_that_leads_into_another_batch_costs_its_own_batch_only(
    change: int, fixture: LogFixture
) -> None:
    """Headers lead into the middle of a sound batch, and the damage lies in front of that."""
    write(fixture, 12)
    path = fixture.path(LOG)
    data = bytearray(path.read_bytes())
    place = slice(3 * SIZE + 8, 3 * SIZE + 12)
    data[place] = (int.from_bytes(data[place], "big") + change).to_bytes(4, "big")
    path.write_bytes(data)
    log = fixture.open(clean=True, recovery_point=12)
    for offset in (5, 11, 4, 2, 6):
        found = log.read(offset, 1, FetchIsolation.LOG_END).read()
        assert [header.base_offset for _, header in iter_headers(found)] == [offset]


def test_a_look_up_does_not_find_a_batch_that_claims_offsets_of_the_next_segment(
    tmp_path: Path,
) -> None:
    with LogFixture(tmp_path) as fixture:
        log = fixture.open()
        for n in range(8):
            if n == 5:
                log.roll()
            log.append_as_leader(batch(size=SIZE), leader_epoch=0)
        fixture.close()
        flip_bit(fixture.path(LOG), (4 * SIZE + 6) * 8)
        first = fixture.open(clean=True, recovery_point=8).segments.first
        assert first is not None
        assert first.translate_offset(3) is not None
        assert first.translate_offset(4) is None
