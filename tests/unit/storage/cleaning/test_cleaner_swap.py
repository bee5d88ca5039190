"""A cleaned segment on the way to its place: syncs run elsewhere, and the log lives on."""

import errno
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from odradek.errors import StorageError
from odradek.files import Disk
from odradek.storage.directories.partition_directories import PartitionKind, PartitionRemoval
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.retention import delete_old_segments
from odradek.storage.segments.replacement import SegmentSwap
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import DeferredTasks, pass_time

STAGES = (".cleaned", ".swap", ".deleted")
SYNCS = 3  # Of the directory, until the new segment is in place.
AT_EVERY_SYNC = pytest.mark.parametrize("synced", range(SYNCS))


def swapping(
    path: Path, synced: int, disk: Disk | None = None
) -> tuple[CleaningFixture, DeferredTasks]:
    """Segments 0 and 2 are written as one that has yet to be put in place, and 4 is active.

    Args:
        path: Where.
        synced: How many syncs have been done; one more is under way.
        disk: The disk.
    """
    fixture = CleaningFixture(path, disk=disk)
    tasks = fixture.cleaner_tasks = DeferredTasks(fixture.clock)
    fixture.open()
    for number in range(2):
        fixture.produce((b"a", b"%d" % number))
        fixture.produce((b"b", b"%d" % number))
        fixture.roll()
    fixture.produce((b"c", b"x"))
    fixture.opened.flush()  # Or the pass would do it first.
    fixture.cleaner.run()
    tasks.run(1 + synced)
    swap = fixture.opened.pending_swap
    assert swap is not None
    assert not swap.is_done
    return fixture, tasks


def offsets(fixture: CleaningFixture) -> list[int]:
    return [offset for offset, _, _ in fixture.records()]


def bases(fixture: CleaningFixture) -> list[int]:
    return [segment.base_offset for segment in fixture.opened.segments]


def test_what_may_block_runs_where_cleaning_does(tmp_path: Path) -> None:
    """No sync of a pass, but those of the log itself, happens on the thread that owns the log."""
    owner = threading.get_ident()
    on_owner: list[str] = []

    class WatchedDisk(Disk):
        __slots__ = ()

        def fsync(self, fd: int) -> None:
            if threading.get_ident() == owner:
                on_owner.append("fsync")
            super().fsync(fd)

        def fsync_dir(self, path: str) -> None:
            if threading.get_ident() == owner:
                on_owner.append("fsync_dir")
            super().fsync_dir(path)

    fixture, tasks = swapping(tmp_path, 0, WatchedDisk())
    with fixture:
        on_owner.clear()
        while tasks.submitted:
            work, done = tasks.submitted.pop(0)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            done(None)
        assert offsets(fixture) == [2, 3, 4]
        assert on_owner == []


@AT_EVERY_SYNC
def test_the_log_is_used_as_before(synced: int, tmp_path: Path) -> None:
    """Read by offset and time, appended to, rolled, flushed."""
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        log = fixture.opened
        assert offsets(fixture) == [0, 1, 2, 3, 4]
        assert log.read(3, 1 << 20, FetchIsolation.LOG_END).read()
        fixture.produce((b"e", b"new"))
        log.watermarks.recovery_point = 0  # So that the old segments are synced once more.
        log.flush()
        fixture.roll()
        fixture.produce((b"d", b"y"))
        tasks.run()
        assert offsets(fixture) == [2, 3, 4, 5, 6]
        assert log.pending_swap is None
        fixture.reopen(clean=False)
        assert offsets(fixture) == [2, 3, 4, 5, 6]


@AT_EVERY_SYNC
def test_files_that_are_due_for_removal_wait_for_its_end(synced: int, tmp_path: Path) -> None:
    """An older `.deleted` of the same base must not take the name of one that is still read."""
    fixture, tasks = swapping(tmp_path, SYNCS - 1)
    with fixture:
        tasks.run()
        fixture.clock.advance(300)
        fixture.produce((b"a", b"2"))
        fixture.roll()
        fixture.cleaner.run()
        tasks.run(1 + synced)
        pass_time(fixture, 300)  # The first ones are due now.
        deleted = [name for name in fixture.names() if name.endswith(".log.deleted")]
        assert f"{0:020d}.log.deleted" in deleted
        assert fixture.opened.pending_swap is not None
        assert offsets(fixture) == [2, 3, 4, 5]
        tasks.run()
        assert offsets(fixture) == [3, 4, 5]
        for _ in range(3):
            pass_time(fixture, 1_000)
        assert not any(name.endswith(STAGES) for name in fixture.names())


@AT_EVERY_SYNC
def test_a_truncation_ends_it_first(synced: int, tmp_path: Path) -> None:
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        log = fixture.opened
        log.truncate_to(3)
        assert log.pending_swap is None
        assert offsets(fixture) == [2]
        assert bases(fixture) == [0]
        tasks.run()
        assert fixture.cleaner.is_idle
        assert (fixture.cleaner.first_dirty.get(log) or 0) <= 3
        fixture.produce((b"e", b"after"))
        fixture.reopen(clean=False)
        assert offsets(fixture) == [2, 3]


@AT_EVERY_SYNC
def test_a_restart_of_the_log_at_another_offset_ends_it_first(synced: int, tmp_path: Path) -> None:
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        log = fixture.opened
        log.truncate_fully_and_start_at(7)
        tasks.run()
        assert fixture.cleaner.is_idle
        assert fixture.cleaner.first_dirty.get(log) is None
        fixture.reopen(clean=False)
        assert (fixture.opened.log_start_offset, fixture.opened.log_end_offset) == (7, 7)
        assert offsets(fixture) == []


@AT_EVERY_SYNC
def test_retention_ends_it_first(synced: int, tmp_path: Path) -> None:
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        fixture.configure(cleanup_policy=("delete", "compact"), retention_ms=10)
        pass_time(fixture, 20)
        fixture.opened.update_high_watermark(4)  # What is in the active segment stays.
        assert delete_old_segments(fixture.opened) == 1
        assert bases(fixture) == [4]
        tasks.run()
        assert fixture.cleaner.is_idle
        fixture.reopen(clean=False)
        assert offsets(fixture) == [4]


@AT_EVERY_SYNC
@pytest.mark.parametrize("is_late", [True, False], ids=["renamed-first", "synced-first"])
def test_a_deletion_of_the_partition_gives_it_up(
    synced: int, is_late: bool, tmp_path: Path
) -> None:
    """The rename runs elsewhere: a sync may end before the log knows its new directory."""
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        log = fixture.opened
        fixture.cleaner.forget(log)
        steps = PartitionRemoval(fixture.services).put_aside_steps([log], PartitionKind.DELETED)
        rename = next(steps)
        rename()
        if not is_late:
            tasks.run()
        for work in steps:
            work()
        tasks.run()
        assert fixture.cleaner.is_idle
        assert fixture.log_directory.is_online
        assert log.pending_swap is None
        assert log.directory.endswith("-delete")
        assert Path(log.directory).is_dir()


@AT_EVERY_SYNC
@pytest.mark.parametrize("is_drained", [True, False], ids=["drained", "not-drained"])
def test_a_stop_ends_it_first(synced: int, is_drained: bool, tmp_path: Path) -> None:
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        fixture.cleaner.stop()
        if is_drained:
            tasks.run()
            assert fixture.cleaner.is_idle
        recovery_point = fixture.close()
        assert not any(name.endswith((".swap", ".cleaned")) for name in fixture.names())
        tasks.submitted.clear()
        fixture.open(clean=True, recovery_point=recovery_point)
        assert offsets(fixture) == [2, 3, 4]


@AT_EVERY_SYNC
def test_a_close_without_a_stop_ends_it_too(synced: int, tmp_path: Path) -> None:
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        recovery_point = fixture.close()
        tasks.submitted.clear()
        fixture.open(clean=True, recovery_point=recovery_point)
        assert offsets(fixture) == [2, 3, 4]


@AT_EVERY_SYNC
def test_threads_that_are_gone_do_not_leave_it_halfway(synced: int, tmp_path: Path) -> None:
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        _, done = tasks.submitted.pop(0)
        done(RuntimeError("cancelled"))
        tasks.run()
        assert fixture.cleaner.is_idle
        assert offsets(fixture) == [2, 3, 4]


@AT_EVERY_SYNC
@pytest.mark.parametrize("settler", ["nobody", "truncation"])
def test_a_sync_that_fails_takes_the_directory_offline(
    synced: int, settler: str, tmp_path: Path
) -> None:
    disk = SimDisk(tmp_path)
    fixture, tasks = swapping(tmp_path, synced, disk)
    with fixture:
        log = fixture.opened
        if settler == "truncation":
            disk.fail("fsync_dir", error=OSError(errno.EIO, "planted"), times=1)
            with pytest.raises(StorageError, match="clean"):
                log.truncate_to(3)
        else:
            work, done = tasks.submitted.pop(0)
            work()
            done(OSError(errno.EIO, "planted"))
        assert not fixture.log_directory.is_online
        tasks.run()
        assert fixture.cleaner.is_idle
        disk.heal()
        fixture.open()
        fixture.commit()
        assert offsets(fixture) in ([0, 1, 2, 3, 4], [2, 3, 4])
        assert not any(name.endswith(STAGES) for name in fixture.names())


@AT_EVERY_SYNC
def test_a_directory_that_fails_meanwhile(synced: int, tmp_path: Path) -> None:
    fixture, tasks = swapping(tmp_path, synced)
    with fixture:
        log = fixture.opened
        log.fail_halfway("append", OSError(errno.EIO, "planted"))
        fixture.cleaner.handle_directory_failure(fixture.log_directory)
        tasks.run()
        assert fixture.cleaner.is_idle
        assert log.pending_swap is None
        fixture.open()
        fixture.commit()
        # Nothing crashed, so the new segment was there under a name that says it is complete.
        assert offsets(fixture) == [2, 3, 4]
        assert not any(name.endswith(STAGES) for name in fixture.names())


def test_nothing_takes_the_place_of_a_group_without_records(tmp_path: Path) -> None:
    """A crash leaves the log whole, also if the old segments were not synced before."""
    config = replace(COMPACTED, segment_bytes=250)
    fixture = CleaningFixture(tmp_path, config=config)
    with fixture:
        tasks = fixture.cleaner_tasks = DeferredTasks(fixture.clock)
        fixture.open()
        for number in range(6):
            fixture.produce((b"a", b"%d" % number * 150))
        fixture.roll()
        fixture.cleaner.run()
        seen = offsets(fixture)
        while tasks.submitted:
            tasks.run(1)
            now = offsets(fixture)
            assert set(now) <= set(seen), "what was gone does not come back"
            seen = now
            for segment in fixture.opened.segments:
                assert Path(segment.path).exists()
        assert seen == [5]
        fixture.reopen(clean=False)
        assert offsets(fixture) == [5]


# Crashes

MODES: list[Literal["drop", "torn", "keep"]] = ["drop", "keep", "torn"]


@pytest.mark.slow
@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "unheard"])
@pytest.mark.parametrize("mode", MODES)
def test_a_crash_while_the_loop_runs_brings_nothing_back(
    mode: Literal["drop", "torn", "keep"], is_heard: bool, tmp_path: Path
) -> None:
    """10:CO-7: a reader who came by before the crash has missed nothing that is there after it.

    Of three groups each loses one record; the machine stops behind every piece of the pass, and
    (unheard) before the owner learns of the last one.
    """
    counts = set()
    for task_count in itertools.count():
        path = tmp_path / str(task_count)
        path.mkdir()
        disk = SimDisk(path)
        fixture = CleaningFixture(path, disk=disk, config=replace(COMPACTED, segment_bytes=250))
        with fixture:
            tasks = fixture.cleaner_tasks = DeferredTasks(fixture.clock)
            fixture.open()
            for number in range(4):
                fixture.produce((b"a", b"x" * 70), (b"%d" % number, b"y" * 70))
            fixture.roll()
            fixture.cleaner.run()
            tasks.run(task_count)
            is_over = not tasks.submitted
            if not is_over and not is_heard:
                work, _ = tasks.submitted.pop(0)
                work()
            seen = set(offsets(fixture))
            counts.add(len(seen))
            recovery_point = fixture.abandon()
            disk.crash(Random(task_count), mode=mode)
            fixture.open(recovery_point=recovery_point)
            fixture.commit()
            assert {1, 3, 5, 6, 7} <= set(offsets(fixture)) <= seen
            assert not any(name.endswith(STAGES) for name in fixture.names())
            assert fixture.opened.log_end_offset == 8
        if is_over:
            break
    assert counts == {8, 7, 6, 5}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@AT_EVERY_SYNC
def test_a_crash_in_a_truncation_that_ends_it(
    synced: int, mode: Literal["drop", "torn", "keep"], tmp_path: Path
) -> None:
    """Before every operation: the truncation has happened or not, on the old or the new set."""
    outcomes = set()
    for n in itertools.count():
        path = tmp_path / str(n)
        path.mkdir()
        disk = SimDisk(path)
        fixture, _ = swapping(path, synced, disk)
        with fixture:
            fixture.opened.flush()
            disk.crash_at(n)
            is_truncated = False
            try:
                fixture.opened.truncate_to(3)
                is_truncated = True
                disk.heal()
            except SimulatedCrash:
                pass
            recovery_point = fixture.abandon()
            disk.crash(Random(n), mode=mode)
            fixture.open(recovery_point=recovery_point)
            fixture.commit()
            now = tuple(offsets(fixture))
            outcomes.add(now)
            log = fixture.opened
            if is_truncated:
                assert now == (2,)
                assert log.log_end_offset == 3
            else:
                assert now in {(0, 1, 2, 3, 4), (2, 3, 4), (2, 3), (2,)}
            assert (fixture.cleaner.first_dirty.get(log) or 0) <= log.log_end_offset
        if is_truncated:
            break
    assert n > 8
    assert (2,) in outcomes


def test_a_finished_swap_is_left_alone(tmp_path: Path) -> None:
    fixture, tasks = swapping(tmp_path, 0)
    with fixture:
        swap = fixture.opened.pending_swap
        assert isinstance(swap, SegmentSwap)
        finish: Callable[[], None] = swap.finish
        finish()
        finish()
        assert swap.is_done
        assert offsets(fixture) == [2, 3, 4]
        tasks.run()
        assert fixture.cleaner.is_idle
        assert fixture.cleaner.stats.passes == 1
