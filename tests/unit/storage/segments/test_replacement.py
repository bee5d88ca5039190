"""New segments in the place of old ones: a crash at any point leaves the old or the new set."""

import itertools
import os
import shutil
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from odradek.storage.log.config import INT32_MAX, LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.removal import remove_segments
from odradek.storage.segments.replacement import split_segment, swap_segments
from odradek.storage.segments.segment import LogSegment
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.logs import LogFixture, batch, offsets, read_all

Mode = Literal["drop", "torn", "keep"]
CONFIG = LogConfig(index_interval_bytes=300, segment_index_bytes=480)
SIZE = 200
STAGES = (".cleaned", ".swap", ".deleted")


# Many segments become one: what a cleaner does.


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Segments 0, 4 and 8 of four batches each, and an active one at 12; closed."""
    path = tmp_path_factory.mktemp("template")
    with LogFixture(path, config=CONFIG) as fixture:
        log = fixture.open()
        for _ in range(3):
            fixture.append(4, size=SIZE)
            log.roll()
        fixture.append(2, size=SIZE)
        log.close()
    return path


def three_segments(template: Path, path: Path) -> tuple[LogFixture, SimDisk]:
    """A copy of the template, durable and open."""
    shutil.copytree(template, path, dirs_exist_ok=True)
    disk = SimDisk(path)
    fixture = LogFixture(path, disk=disk, config=CONFIG)
    fixture.open(clean=True, recovery_point=14)
    return fixture, disk


def survives(offset: int) -> bool:
    """What the cleaned segment keeps of the first two."""
    return offset % 2 == 1


def compact(log: Log, disk: SimDisk) -> None:
    """Replaces the segments 0 and 4 by one with every second batch."""
    old = list(log.segments)[:2]
    new = log.new_segment(0, stage=".cleaned")
    for segment in old:
        for _, header, view, _ in segment.scan():
            if survives(header.base_offset):
                new.append(
                    view,
                    [(header.last_offset, header.max_timestamp, header.size)],
                    largest_offset=header.last_offset,
                    largest_timestamp=header.max_timestamp,
                )
    new.on_become_inactive()
    new.flush()
    for replaced in swap_segments(
        log.segments, [new], old, witnesses=log.witnesses, disk=disk, directory=log.directory
    ):
        replaced.delete_if_exists()


def test_one_segment_takes_the_place_of_two(template: Path, tmp_path: Path) -> None:
    fixture, disk = three_segments(template, tmp_path)
    with fixture:
        log = fixture.log
        assert log is not None
        compact(log, disk)
        assert [s.base_offset for s in log.segments] == [0, 8, 12]
        assert offsets(read_all(log)) == [1, 3, 5, 7, *range(8, 14)]
        assert not any(name.endswith(STAGES) for name in fixture.names())
        log = fixture.reopen(clean=True)
        assert offsets(read_all(log)) == [1, 3, 5, 7, *range(8, 14)]


def test_old_segments_that_left_the_log_are_left_alone(template: Path, tmp_path: Path) -> None:
    fixture, disk = three_segments(template, tmp_path)
    with fixture:
        log = fixture.log
        assert log is not None
        gone, other = list(log.segments)[:2]
        remove_segments(log, [gone])
        new = log.new_segment(4, stage=".cleaned")
        new.flush()
        replaced = swap_segments(
            log.segments,
            [new],
            [gone, other],
            witnesses=log.witnesses,
            disk=disk,
            directory=log.directory,
        )
        assert replaced == [other]
        for segment in (gone, other):
            segment.delete_if_exists()


def test_renames_go_from_the_highest_base_down(template: Path, tmp_path: Path) -> None:
    """01 §2: as long as one `.cleaned` is left, what lies above it is incomplete company."""
    fixture, disk = three_segments(template, tmp_path)
    with fixture:
        log = fixture.log
        assert log is not None
        old = list(log.segments)[:1]
        new = [log.new_segment(base, stage=".cleaned") for base in (0, 2, 3)]
        for segment in new:
            segment.flush()
        disk.operations.clear()
        for replaced in swap_segments(
            log.segments, new, old, witnesses=log.witnesses, disk=disk, directory=log.directory
        ):
            replaced.delete_if_exists()
        logs = [
            "".join(Path(end).name.removeprefix("0" * 19) + " " for end in path.split(" -> "))
            for operation, path in disk.operations
            if operation == "rename" and ".log" in path
        ]
        assert logs == [
            "3.log.cleaned 3.log.swap ",
            "2.log.cleaned 2.log.swap ",
            "0.log.cleaned 0.log.swap ",
            "0.log 0.log.deleted ",
            "0.log.swap 0.log ",
            "2.log.swap 2.log ",
            "3.log.swap 3.log ",
        ]


MODES: list[tuple[Mode, int]] = [("drop", 0), ("keep", 0), ("torn", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "seed"), MODES)
def test_a_crash_in_a_compaction_leaves_the_old_or_the_new_set(
    mode: Mode, seed: int, template: Path, tmp_path: Path
) -> None:
    """01:LOAD-10, many to one: before every operation that changes the disk"""
    outcomes = set()

    def check(fixture: LogFixture, recovery_point: int) -> None:
        log = fixture.open(recovery_point=recovery_point)
        found = offsets(read_all(log))
        outcomes.add(tuple(found[:8]))
        assert found[-6:] == list(range(8, 14))
        assert found[:-6] in ([1, 3, 5, 7], list(range(8)))
        assert not any(name.endswith(STAGES) for name in fixture.names())
        assert log.log_end_offset == 14

    for n in itertools.count():
        fixture, disk = three_segments(template, tmp_path / str(n))
        with fixture:
            log = fixture.log
            assert log is not None
            disk.crash_at(n)
            try:
                compact(log, disk)
            except SimulatedCrash:
                recovery_point = fixture.abandon()
                disk.crash(Random(seed + n) if mode == "torn" else None, mode=mode)
            else:
                break
            check(fixture, recovery_point)
            if n % 8 == 0:  # Settled once, settled for ever.
                check(fixture, fixture.abandon())
    assert n > 20
    assert len(outcomes) == 2, "both sets were seen"


# One segment becomes many: offsets that its indexes cannot hold.

JUMPS = (0, INT32_MAX + 1)
OVERFLOWING = b"".join(
    batch(2, size=SIZE, base_offset=jump + 5 + 2 * i) for jump in JUMPS for i in range(2)
)
LOG_END = JUMPS[-1] + 9


def overflowing_segment(path: Path, disk: SimDisk) -> LogFixture:
    """A segment at 0 whose first batch is 5 and whose last ones are out of reach; no index."""
    fixture = LogFixture(path, disk=disk, config=CONFIG)
    os.makedirs(fixture.directory)
    fixture.path(f"{0:020d}.log").write_bytes(OVERFLOWING)
    disk.settle()
    return fixture


@pytest.mark.parametrize("recovery_point", [0, LOG_END], ids=["above", "below-recovery-point"])
def test_an_overflowing_segment_is_split_when_it_is_loaded(
    recovery_point: int, tmp_path: Path
) -> None:
    """01 §8.5 (KAFKA-6264)"""
    with overflowing_segment(tmp_path, SimDisk(tmp_path)) as fixture:
        log = fixture.open(recovery_point=recovery_point)
        assert [s.base_offset for s in log.segments] == [jump + 5 for jump in JUMPS]
        assert log.log_end_offset == LOG_END
        assert read_all(log) == OVERFLOWING
        fixture.append(1)
        assert log.log_end_offset == LOG_END + 1
        log = fixture.reopen(clean=True)
        assert read_all(log)[: len(OVERFLOWING)] == OVERFLOWING


def test_a_split_keeps_sizes_times_and_unreadable_bytes(tmp_path: Path) -> None:
    with overflowing_segment(tmp_path, disk := SimDisk(tmp_path)) as fixture:
        path = fixture.path(f"{0:020d}.log")
        back = batch(size=SIZE, base_offset=3)  # Out of order: damage, which goes along.
        torn = OVERFLOWING[:150]
        path.write_bytes(OVERFLOWING + back + torn)
        os.utime(path, ns=(10**9, 2 * 10**9))
        segment = LogSegment(fixture.directory, 0, config=CONFIG, disk=disk, now_ms=0)
        parts = split_segment(
            segment, directory=fixture.directory, config=CONFIG, disk=disk, now_ms=0
        )
        assert [part.size for part in parts] == [400, 400 + SIZE + 150]
        assert b"".join(Path(part.path).read_bytes() for part in parts) == path.read_bytes()
        assert {os.stat(part.path).st_mtime_ns for part in parts} == {2 * 10**9}
        assert all(part.path.endswith(".log.cleaned") for part in parts)
        for opened in (segment, *parts):
            opened.close_handles()


def test_a_torn_tail_of_an_overflowing_segment_is_cut_after_the_split(tmp_path: Path) -> None:
    with overflowing_segment(tmp_path, SimDisk(tmp_path)) as fixture:
        path = fixture.path(f"{0:020d}.log")
        path.write_bytes(OVERFLOWING + OVERFLOWING[:150])
        log = fixture.open()
        assert read_all(log) == OVERFLOWING
        assert log.log_end_offset == LOG_END
        assert log.size_in_bytes == len(OVERFLOWING)


def test_a_split_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with overflowing_segment(tmp_path, disk := SimDisk(tmp_path)) as fixture:
        before = fixture.names()
        disk.fail("fsync", path_contains=".cleaned", after=3)
        with pytest.raises(OSError, match="Input/output error"):
            fixture.open()
        assert {n for n in fixture.names() if n.endswith(".log")} == before
        assert not any(name.endswith(STAGES) for name in fixture.names())
        log = fixture.open()
        assert read_all(log) == OVERFLOWING


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "seed", "recovery_point"),
    [("drop", 0, LOG_END), ("keep", 0, 0), ("torn", 1, 0), ("torn", 2, LOG_END)],
)
def test_a_crash_in_a_split_leaves_the_old_or_the_new_set(
    mode: Mode, seed: int, recovery_point: int, tmp_path: Path
) -> None:
    """01:LOAD-10, one to many: before every operation of the load that splits"""

    def check(fixture: LogFixture) -> None:
        log = fixture.open(recovery_point=recovery_point)
        assert [s.base_offset for s in log.segments] == [jump + 5 for jump in JUMPS]
        assert read_all(log) == OVERFLOWING
        assert log.log_end_offset == LOG_END
        assert not any(name.endswith(STAGES) for name in fixture.names())

    for n in itertools.count():
        path = tmp_path / str(n)
        path.mkdir()
        disk = SimDisk(path)
        with overflowing_segment(path, disk) as fixture:
            disk.crash_at(n)
            try:
                fixture.open(recovery_point=recovery_point)
            except SimulatedCrash:
                disk.crash(Random(seed + n) if mode == "torn" else None, mode=mode)
            else:
                break
            check(fixture)
            if n % 8 == 0:  # Settled once, settled for ever.
                fixture.abandon()
                check(fixture)
    assert n > 30
