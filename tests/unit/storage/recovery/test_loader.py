"""Opening a log: what stays, what goes, what is read, and where it ends."""

import itertools
import logging
import os
from pathlib import Path
from random import Random

import pytest

from odradek.files import Disk
from odradek.model import AppendOrigin
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.removal import remove_segments
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.logs import (
    LogFixture,
    batch,
    flip_bit,
    headers,
    marker,
    offsets,
    read_all,
    readable_offsets,
    rename_directory,
)

SIZE = 100  # Of a batch; one record each.
CONFIG = LogConfig(index_interval_bytes=500, segment_index_bytes=4800)


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def three_segments(path: Path, disk: Disk | None = None, last: int = 50) -> LogFixture:
    """Segments 0, 100 and 200; the log ends at 200 + `last`."""
    fixture = LogFixture(path, disk=disk, config=CONFIG)
    log = fixture.open()
    for count in (100, 100):
        fixture.append(count, size=SIZE)
        log.roll()
    fixture.append(last, size=SIZE)
    return fixture


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == level]


class ReadCounter(Disk):
    """Counts the bytes read of each file."""

    def __init__(self) -> None:
        self.read_bytes: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        fd = super().open(path, flags, mode)
        self._names[fd] = os.path.basename(path)
        return fd

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        data = os.pread(fd, length, offset)
        name = self._names[fd]
        self.read_bytes[name] = self.read_bytes.get(name, 0) + len(data)
        return data


# What the directory holds


def test_an_empty_directory_gets_one_segment(tmp_path: Path) -> None:
    """01:LOAD-1"""
    with LogFixture(tmp_path) as fixture:
        log = fixture.open()
        assert (bases(log), log.log_end_offset) == ([0], 0)
        assert fixture.names() == {name(0, s) for s in (".log", ".index", ".timeindex")}


def test_a_new_log_starts_where_it_is_told(tmp_path: Path) -> None:
    with LogFixture(tmp_path) as fixture:
        log = fixture.open(log_start_offset=77)
        assert (bases(log), log.log_end_offset, log.log_start_offset) == ([77], 77, 77)


def test_temporary_files_go_and_foreign_ones_stay(tmp_path: Path) -> None:
    """01:LOAD-2, 01:LOAD-4, and the names of 01 §2 that nobody here reads or deletes"""
    with LogFixture(tmp_path) as fixture:
        os.makedirs(fixture.directory)
        gone = {
            name(5, ".log.deleted"),
            name(5, ".index.deleted"),
            name(5, ".timeindex.deleted"),
            name(5, ".txnindex.deleted"),
            name(5, ".snapshot.deleted"),
            name(9, ".log.cleaned"),
            name(9, ".txnindex.cleaned"),
            name(7, ".index"),
            name(7, ".timeindex"),
            name(7, ".txnindex"),
        }
        kept = {
            "leader-epoch-checkpoint.tmp",
            "partition.metadata",
            "notes.txt",
            "5.log",
            name(10**19, ".log"),
            name(3, ".checkpoint"),
            name(3, ".log.bak"),
        }
        for file_name in gone | kept:
            fixture.path(file_name).write_bytes(b"content")
        fixture.path(name(6, ".log")).mkdir()
        log = fixture.open()
        assert bases(log) == [0]
        assert kept <= fixture.names()
        assert not gone & fixture.names()


def test_swaps_above_a_cleaned_file_are_undone(tmp_path: Path) -> None:
    """01:LOAD-3"""
    with LogFixture(tmp_path) as fixture:
        os.makedirs(fixture.directory)
        for base, stage in ((10, ".swap"), (20, ".swap"), (15, ".cleaned")):
            data = batch(3, base_offset=base)
            fixture.path(name(base, ".log" + stage)).write_bytes(data)
            fixture.path(name(base, ".index" + stage)).write_bytes(b"")
        log = fixture.open()
        assert bases(log) == [10]
        assert offsets(read_all(log)) == [10, 11, 12]
        assert not any(n.endswith((".swap", ".cleaned")) for n in fixture.names())


def test_a_swap_replaces_what_it_overlaps(tmp_path: Path) -> None:
    with three_segments(tmp_path) as fixture:
        recovery_point = fixture.abandon()
        data = b"".join(batch(size=SIZE, base_offset=i) for i in (7, 50, 150))
        fixture.path(name(0, ".log.swap")).write_bytes(data)
        log = fixture.open(recovery_point=recovery_point)
        assert bases(log) == [0, 200]
        assert offsets(read_all(log)) == [7, 50, 150, *range(200, 250)]


def test_a_left_over_swap_index_costs_one_rebuild(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01:LOAD-13"""
    with three_segments(tmp_path) as fixture:
        recovery_point = fixture.close()
        index = fixture.path(name(100, ".index"))
        good = index.read_bytes()
        index.write_bytes(bytes(len(good)))
        fixture.path(name(100, ".index.swap")).write_bytes(good[:8])
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert name(100, ".index.swap") not in fixture.names()
        assert index.read_bytes() == good
        assert any("rebuilding" in m for m in messages(caplog, logging.WARNING))
        caplog.clear()
        log = fixture.reopen(clean=True)
        assert offsets(read_all(log)) == list(range(250))
        assert messages(caplog, logging.WARNING) == []


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_index_costs_no_record(kind: str, clean: bool, tmp_path: Path) -> None:
    """01:LOAD-5: all indexes are made again, or the time index begins anew"""
    with three_segments(tmp_path) as fixture:
        recovery_point = fixture.close()
        path = fixture.path(name(100, kind))
        good = path.read_bytes()
        path.unlink()
        log = fixture.open(clean=clean, recovery_point=recovery_point)
        assert offsets(read_all(log)) == list(range(250))
        assert path.exists()
        if kind == ".index":
            assert path.read_bytes() == good


def test_a_directory_that_is_being_deleted_is_not_recovered(tmp_path: Path) -> None:
    """01:LOAD-9"""
    with LogFixture(tmp_path) as fixture:
        directory = os.path.join(tmp_path, f"t-0.{'a' * 32}-delete")
        log = fixture.open(directory=directory)
        assert (bases(log), log.log_end_offset) == ([0], 0)


def test_a_log_that_is_being_deleted_keeps_its_bytes(tmp_path: Path) -> None:
    with three_segments(tmp_path) as fixture:
        assert fixture.log is not None
        rename_directory(fixture.log, f"t-0.{'a' * 32}-delete")
        fixture.abandon()
        directory = fixture.log.directory
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(directory)}
        log = fixture.open(directory=directory)
        assert bases(log) == [0, 100, 200]
        logs = {e.name: e.stat().st_size for e in os.scandir(directory) if ".log" in e.name}
        assert logs.items() <= sizes.items()


def test_a_preallocated_segment_comes_back(tmp_path: Path) -> None:
    config = LogConfig(preallocate=True, segment_bytes=1 << 20)
    with LogFixture(tmp_path, config=config) as fixture:
        fixture.open()
        path = fixture.path(name(0, ".log"))
        assert path.stat().st_size == 1 << 20
        fixture.append(3, size=SIZE)
        log = fixture.reopen(clean=False)
        assert (log.log_end_offset, path.stat().st_size) == (3, 3 * SIZE)
        fixture.append(2, size=SIZE)
        log = fixture.reopen(clean=True)
        assert offsets(read_all(log)) == list(range(5))


# After a clean stop


def test_a_clean_stop_is_taken_at_its_word(tmp_path: Path) -> None:
    """01:LOAD-7: the last index interval is read, and nothing else"""
    disk = ReadCounter()
    with three_segments(tmp_path, disk) as fixture:
        recovery_point = fixture.close()
        disk.read_bytes.clear()
        log = fixture.open(clean=True, recovery_point=recovery_point)
        read = {n: count for n, count in disk.read_bytes.items() if n.endswith(".log")}
        assert read.keys() == {name(200, ".log")}
        assert read[name(200, ".log")] < 2 * CONFIG.index_interval_bytes + 2 * SIZE
        assert log.recovery_point == log.log_end_offset == 250
        loaded = [s.base_offset for s in log.segments if s.offset_index.is_loaded]
        assert loaded == [200]


def test_damage_in_an_old_segment_is_kept_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01:LOAD-12"""
    with three_segments(tmp_path) as fixture:
        recovery_point = fixture.close()
        fixture.path(name(100, ".index")).unlink()
        path = fixture.path(name(100, ".log"))
        flip_bit(path, (50 * SIZE + 80) * 8)
        damaged = path.read_bytes()
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert path.read_bytes() == damaged
        assert len(messages(caplog, logging.ERROR)) == 1
        assert "position 5000" in messages(caplog, logging.ERROR)[0]
        assert fixture.path(name(100, ".index")).exists()
        assert offsets(read_all(log)) == list(range(250))


@pytest.mark.parametrize(
    ("file", "bit"),
    [
        pytest.param(".log", (49 * SIZE + 26) * 8 + 6, id="last-offset-delta"),
        pytest.param(".log", (49 * SIZE + 7) * 8 + 2, id="base-offset"),
        pytest.param(".log", (49 * SIZE + 9) * 8, id="length"),
        pytest.param(".log", -1, id="value"),
        pytest.param(".index", -60, id="index-offset-up"),
        pytest.param(".index", -33, id="index-offset"),
        pytest.param(".index", -1, id="index-position"),
    ],
)
def test_damage_at_the_end_hands_out_no_offset_twice(file: str, bit: int, tmp_path: Path) -> None:
    """01:LOAD-14"""
    with three_segments(tmp_path) as fixture:
        recovery_point = fixture.close()
        flip_bit(fixture.path(name(200, file)), bit)
        size = fixture.path(name(200, ".log")).stat().st_size
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.log_end_offset == 250
        assert fixture.path(name(200, ".log")).stat().st_size == size
        info = log.append_as_leader(batch(size=SIZE), leader_epoch=0)
        assert info.first_offset == 250
        readable = readable_offsets(log)
        assert readable == [*range(249), 250] if file == ".log" else list(range(251))
        fixture.reopen(clean=True)
        assert fixture.log is not None
        assert fixture.log.log_end_offset == 251


def test_a_clean_log_that_ends_early_goes_on_where_its_stop_left_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01 §8.4 step 4: no offset is given out twice, where the stop's snapshot bears it out."""
    with three_segments(tmp_path) as fixture:
        recovery_point = fixture.close()
        path = fixture.path(name(200, ".log"))
        os.truncate(path, 30 * SIZE)
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert (log.log_end_offset, log.recovery_point) == (250, 250)
        assert any("ends at offset 230" in m for m in messages(caplog, logging.ERROR))
        assert offsets(read_all(log)) == list(range(230))


# The log start


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_below_its_start_is_set_aside(
    clean: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01:LOAD-8. If it is the start that is wrong, the line in the log says how to go back."""
    with three_segments(tmp_path, last=100) as fixture:
        fixture.close()
        log = fixture.open(clean=clean, recovery_point=400, log_start_offset=500)
        assert (bases(log), log.log_start_offset, log.log_end_offset) == ([500], 500, 500)
        assert {n for n in fixture.names() if n.endswith(".log")} == {name(500, ".log")}
        (message,) = messages(caplog, logging.ERROR)[-1:]
        assert "take the suffix .aside off" in message
        fixture.append(3)
        log = fixture.reopen(clean=True)  # The files do not disturb anything.
        assert bases(log) == [500]
        recovery_point = fixture.close()
        for file in fixture.names():
            if file.endswith(".aside"):
                fixture.path(file).rename(fixture.path(file.removesuffix(".aside")))
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert bases(log) == [0, 100, 200, 500]
        assert offsets(read_all(log)) == [*range(300), 500, 501, 502]


def test_what_is_set_aside_twice_is_there_twice(tmp_path: Path) -> None:
    with three_segments(tmp_path, last=100) as fixture:
        fixture.close()
        fixture.open(log_start_offset=500)
        fixture.append(3)
        fixture.abandon()
        log = fixture.open(log_start_offset=900)
        assert bases(log) == [900]
        logs = {n for n in fixture.names() if ".log" in n}
        assert logs == {
            name(900, ".log"), name(500, ".log.aside.2"),
            *(name(base, ".log.aside") for base in (0, 100, 200)),
        }  # fmt: skip


def test_a_damaged_log_start_deletes_nothing_after_a_clean_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01:LOAD-15"""
    with three_segments(tmp_path, last=100) as fixture:
        assert fixture.close() == 300
        log = fixture.open(clean=True, recovery_point=300, log_start_offset=900)
        assert (log.log_start_offset, log.log_end_offset) == (0, 300)
        assert offsets(read_all(log)) == list(range(300))
        assert any("900" in m for m in messages(caplog, logging.WARNING))


def test_the_log_start_lies_within_the_log(tmp_path: Path) -> None:
    with three_segments(tmp_path) as fixture:
        recovery_point = fixture.close()
        log = fixture.open(clean=True, recovery_point=recovery_point, log_start_offset=30)
        assert (log.log_start_offset, log.high_watermark) == (30, 30)
        assert offsets(read_all(log)) == list(range(30, 250))


# After an unclean stop


@pytest.mark.parametrize("is_index_missing", [False, True], ids=["01:LOAD-6", "01:LOAD-16"])
def test_damage_above_the_recovery_point_ends_the_log(
    is_index_missing: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with three_segments(tmp_path) as fixture:
        fixture.abandon()
        first = fixture.path(name(0, ".log")).read_bytes()
        with fixture.path(name(100, ".log")).open("ab") as file:
            file.write(b"junk" * 20)
        if is_index_missing:
            fixture.path(name(100, ".index")).unlink()
        log = fixture.open(recovery_point=120)
        assert (bases(log), log.log_end_offset, log.recovery_point) == ([0, 100], 200, 120)
        assert fixture.path(name(0, ".log")).read_bytes() == first
        assert fixture.path(name(100, ".log")).stat().st_size == 100 * SIZE
        assert not any(n.startswith(name(200, ".")) for n in fixture.names() if "snap" not in n)
        assert offsets(read_all(log)) == list(range(200))
        (warning,) = [m for m in messages(caplog, logging.WARNING) if "cut" in m]
        assert name(100, ".log") in warning
        assert "position 10000: cut 80 bytes and dropped 1 later segments" in warning
        assert "last valid offset is 199" in warning
        [fields] = [vars(r) for r in caplog.records if r.getMessage() == warning]
        assert (fields["topic"], fields["partition"]) == log.topic_partition
        assert (fields["cut_bytes"], fields["dropped_segments"]) == (80, 1)
        assert fields["last_offset"] == 199


def test_a_torn_batch_is_cut(tmp_path: Path) -> None:
    with three_segments(tmp_path) as fixture:
        fixture.abandon()
        with fixture.path(name(200, ".log")).open("ab") as file:
            file.write(batch(size=SIZE, base_offset=250)[:-1])
        log = fixture.open(recovery_point=200)
        assert log.log_end_offset == 250
        assert fixture.path(name(200, ".log")).stat().st_size == 50 * SIZE


@pytest.mark.parametrize("offset", [100, 150, 199])
def test_damage_below_the_recovery_point_is_never_cut(offset: int, tmp_path: Path) -> None:
    """Not even in the segment that holds the recovery point."""
    with three_segments(tmp_path) as fixture:
        fixture.abandon()
        path = fixture.path(name(100, ".log"))
        flip_bit(path, ((offset - 100) * SIZE + 90) * 8)
        damaged = path.read_bytes()
        log = fixture.open(recovery_point=200)
        assert path.read_bytes() == damaged
        assert log.log_end_offset == 250
        log = fixture.open(recovery_point=offset + 1)
        assert path.read_bytes() == damaged
        assert log.log_end_offset == 250


def test_a_damaged_end_below_the_recovery_point_is_left_behind(tmp_path: Path) -> None:
    """The bytes stay, and the log goes on in a new segment at the recovery point."""
    with three_segments(tmp_path) as fixture:
        fixture.abandon()
        path = fixture.path(name(200, ".log"))
        os.truncate(path, 49 * SIZE + 50)
        log = fixture.open(recovery_point=250)
        assert path.stat().st_size == 49 * SIZE + 50
        assert (bases(log), log.log_end_offset) == ([0, 100, 200, 250], 250)
        assert offsets(read_all(log)) == list(range(249))
        fixture.append(size=SIZE)
        log = fixture.reopen(clean=False)
        assert offsets(read_all(log)) == [*range(249), 250]


@pytest.mark.parametrize("mode", ["drop", "torn"])
def test_recovery_does_not_raise_the_recovery_point(mode: str, tmp_path: Path) -> None:
    """01:LOAD-11: killed, loaded, and then the power fails"""
    for seed in range(6 if mode == "torn" else 1):
        path = tmp_path / str(seed)
        path.mkdir()
        disk = SimDisk(path)
        with LogFixture(path, disk=disk, config=CONFIG) as fixture:
            fixture.open()
            fixture.append(120, size=SIZE)
            assert fixture.log is not None
            fixture.log.flush()
            fixture.append(130, size=SIZE)
            assert fixture.abandon() == 120
            disk.kill()
            log = fixture.open(recovery_point=120)
            assert (log.log_end_offset, log.recovery_point) == (250, 120)
            fixture.abandon()
            if mode == "torn":
                disk.crash(Random(seed), mode="torn")
            else:
                disk.crash()
            log = fixture.open(recovery_point=120)
            assert log.recovery_point == 120
            assert 120 <= log.log_end_offset <= 250
            assert offsets(read_all(log)) == list(range(log.log_end_offset))
            assert log.log_end_offset == 120 or mode == "torn"


@pytest.mark.slow
def test_a_crash_while_recovering_leaves_no_hole(tmp_path: Path) -> None:
    """01:LOAD-16 at every point: cut data and dropped segments do not come back in part"""
    for n in itertools.count():
        path = tmp_path / str(n)
        path.mkdir()
        disk = SimDisk(path)
        config = LogConfig(index_interval_bytes=500, segment_index_bytes=480)
        with LogFixture(path, disk=disk, config=config) as fixture:
            log = fixture.open()
            for _ in range(3):
                fixture.append(10, size=SIZE)
                log.roll()
            fixture.abandon()
            flip_bit(fixture.path(name(10, ".log")), (7 * SIZE + 90) * 8)
            disk.settle()
            disk.crash_at(n)
            try:
                fixture.open(recovery_point=12)
            except SimulatedCrash:
                disk.crash(Random(n), mode="torn")
            else:
                break
            log = fixture.open(recovery_point=12)
            assert log.log_end_offset == 17
            fixture.append(size=SIZE)
            assert offsets(read_all(log)) == list(range(18))
    assert n > 10


def test_an_io_error_is_not_damage(tmp_path: Path) -> None:
    """01 §8.4: it propagates, and nothing is cut"""
    disk = SimDisk(tmp_path)
    with three_segments(tmp_path, disk) as fixture:
        fixture.abandon()
        sizes = {n: fixture.path(n).stat().st_size for n in fixture.names() if ".log" in n}
        disk.fail("pread", path_contains=name(100, ".log"), times=None)
        with pytest.raises(OSError, match="Input/output error"):
            fixture.open(recovery_point=120)
        assert {n: fixture.path(n).stat().st_size for n in sizes} == sizes
        disk.heal()
        log = fixture.open(recovery_point=120)
        assert log.log_end_offset == 250


# Leader epochs


def with_epochs(path: Path) -> LogFixture:
    fixture = LogFixture(path, config=CONFIG)
    log = fixture.open()
    for epoch in (0, 2, 5):
        fixture.append(10, size=SIZE, epoch=epoch)
        log.roll()
    return fixture


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 15, 30])
def test_a_torn_epoch_checkpoint_is_made_again(
    clean: bool, recovery_point: int, tmp_path: Path
) -> None:
    """15:KAFKA-16541: from the batches of all segments, and the log opens"""
    with with_epochs(tmp_path) as fixture:
        fixture.close()
        path = fixture.path("leader-epoch-checkpoint")
        good = path.read_bytes()
        assert good == b"0\n3\n0 0\n2 10\n5 20\n"
        for spoilt in (
            *(good[:length] for length in range(1, len(good))),
            bytes(len(good)),
            b"1" + good[1:],
            good.replace(b"5 20", b"1 20"),
            b"\xff" * 40,
        ):
            path.write_bytes(spoilt)
            log = fixture.open(clean=clean, recovery_point=recovery_point)
            assert log.leader_epochs.entries == ((0, 0), (2, 10), (5, 20)), spoilt
            assert path.read_bytes() == good
            fixture.abandon()


def test_a_lost_epoch_checkpoint_is_made_again(tmp_path: Path) -> None:
    """15:KAFKA-10432: with epoch 0 in it"""
    with with_epochs(tmp_path) as fixture:
        recovery_point = fixture.close()
        fixture.path("leader-epoch-checkpoint").unlink()
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.leader_epochs.entries == ((0, 0), (2, 10), (5, 20))


def test_epochs_beyond_the_log_are_dropped(tmp_path: Path) -> None:
    """01 §8.2 steps 5 and 7"""
    with with_epochs(tmp_path) as fixture:
        fixture.abandon()
        fixture.path("leader-epoch-checkpoint").write_bytes(b"0\n4\n0 0\n2 10\n5 20\n6 30\n")
        log = fixture.open(recovery_point=30, log_start_offset=12)
        assert log.leader_epochs.entries == ((2, 12), (5, 20))


# Producers


def test_producers_are_known_again(tmp_path: Path) -> None:
    """01 §8.2 step 8: after both kinds of stop, and without snapshots that can be read"""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        for sequence in range(12):
            log.append_as_leader(
                batch(size=SIZE, producer_id=7, producer_epoch=0, base_sequence=sequence),
                leader_epoch=0,
            )
            if sequence % 5 == 4:
                log.roll()
        again = batch(size=SIZE, producer_id=7, producer_epoch=0, base_sequence=11)
        for clean in (True, False, True):
            log = fixture.reopen(clean=clean)
            info = log.append_as_leader(bytearray(again), leader_epoch=0)
            assert info.is_duplicate
            assert info.first_offset == 11
        recovery_point = fixture.close()
        for snapshot in [n for n in fixture.names() if n.endswith(".snapshot")]:
            flip_bit(fixture.path(snapshot), -1)
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.append_as_leader(bytearray(again), leader_epoch=0).is_duplicate


# Files that were put out of use


def test_deleted_files_are_renamed_together_and_never_come_back(tmp_path: Path) -> None:
    """15:KAFKA-5752: log, all indexes and the snapshot; gone after the delay, or at a start"""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        fixture.append(5, size=SIZE)
        log.roll()
        log.append_as_leader(
            batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
            leader_epoch=0,
        )
        log.append_as_leader(
            marker(commit=False, producer_id=7),
            leader_epoch=0,
            origin=AppendOrigin.COORDINATOR,
        )
        log.roll()
        segment = log.segments.get(5)
        assert segment is not None
        kinds = (".log", ".index", ".timeindex", ".txnindex", ".txnproof", ".snapshot")
        assert {name(5, kind) for kind in kinds} <= fixture.names()
        remove_segments(log, [segment])
        mine = {n for n in fixture.names() if n.startswith(name(5, "."))}
        assert mine == {name(5, kind + ".deleted") for kind in kinds}

        log.truncate_fully_and_start_at(5)  # A segment of the same name, while it waits.
        log.append_as_leader(batch(), leader_epoch=1)
        fixture.clock.advance(CONFIG.file_delete_delay_ms)
        fixture.services.tasks.run_due()  # type: ignore[attr-defined]
        assert not any(n.endswith(".deleted") for n in fixture.names())
        assert {name(5, kind) for kind in (".log", ".index", ".timeindex")} <= fixture.names()

        remove_segments(log, [])
        log.truncate_fully_and_start_at(50)
        assert any(n.endswith(".deleted") for n in fixture.names())
        log = fixture.reopen(clean=False)
        assert bases(log) == [50]
        assert not any(n.startswith(name(5, ".")) for n in fixture.names())
        assert headers(read_all(log)) == []


@pytest.mark.parametrize("recovery_point", [192, 197])
def test_damage_from_synced_to_unsynced_data_ends_the_log(
    recovery_point: int, tmp_path: Path
) -> None:
    """01 §8.4: across the end of a segment, what follows would stand behind a hole."""
    with three_segments(tmp_path) as fixture:
        fixture.abandon()
        path = fixture.path(name(100, ".log"))
        data = bytearray(path.read_bytes())
        data[90 * SIZE + 30 :] = bytes(len(data) - 90 * SIZE - 30)
        path.write_bytes(data)
        log = fixture.open(recovery_point=recovery_point)
        assert bases(log) == [0, 100, recovery_point]
        assert log.log_end_offset == recovery_point
        assert path.read_bytes() == bytes(data), "what was synced is never cut"
        assert readable_offsets(log) == list(range(190))


def test_damage_that_ends_with_what_was_synced_costs_nothing_behind(tmp_path: Path) -> None:
    with three_segments(tmp_path) as fixture:
        fixture.abandon()
        path = fixture.path(name(100, ".log"))
        data = bytearray(path.read_bytes())
        data[90 * SIZE + 30 :] = bytes(len(data) - 90 * SIZE - 30)
        path.write_bytes(data)
        log = fixture.open(recovery_point=200)
        assert readable_offsets(log) == [*range(190), *range(200, 250)]
