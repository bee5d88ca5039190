"""What a pass takes away is replaced by something that is on disk, and by files nobody mistakes."""

import errno
import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from odradek.storage.log.removal import remove_segments
from odradek.testing import SimDisk
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import (
    DeferredTasks,
    abort,
    append_leader,
    commit,
    pass_time,
    transactional,
)
from tests.support.logs import rename_directory

# One batch with a value of 150 bytes fills it: every segment is a group of its own.
NARROW = replace(COMPACTED, segment_bytes=250)
MODES: list[Literal["drop", "torn", "keep"]] = ["drop", "torn", "keep"]


def deferred(path: Path, disk: SimDisk) -> tuple[CleaningFixture, DeferredTasks, DeferredTasks]:
    """A log whose flushes, and whose passes, run when the test says so."""
    fixture = CleaningFixture(path, disk=disk, config=NARROW)
    flushes, passes = DeferredTasks(fixture.clock), DeferredTasks(fixture.clock)
    fixture.services = replace(fixture.services, tasks=flushes)
    fixture.cleaner_tasks = passes
    fixture.open()
    return fixture, flushes, passes


def value_of(fixture: CleaningFixture, wanted: bytes) -> bytes | None:
    """The last value of a key."""
    last = None
    for _, key, value in fixture.records():
        if key == wanted:
            last = value
    return last


def crash(fixture: CleaningFixture, disk: SimDisk, random: Random, mode: str) -> None:
    """The machine stops; the next process opens what the disk has kept."""
    recovery_point = fixture.abandon()
    disk.crash(random, mode=mode)  # type: ignore[arg-type]  # One of three words.
    fixture.open(recovery_point=recovery_point)
    fixture.commit()


# What replaces a record is on disk before the record goes


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_synced_value_outlives_a_crash_until_its_successor_is_synced(
    mode: str, tmp_path: Path
) -> None:
    """10:CO-3: what is on disk does not go in favour of what is not."""
    for task_count in itertools.count():
        path = tmp_path / str(task_count)
        path.mkdir()
        disk = SimDisk(path)
        fixture, flushes, passes = deferred(path, disk)
        with fixture:
            fixture.produce((b"k", b"1" * 150))
            fixture.roll()
            flushes.run()
            fixture.produce((b"k", b"2" * 150))
            fixture.roll()
            assert fixture.opened.recovery_point == 1
            fixture.cleaner.run()
            passes.run(task_count)
            is_over = not passes.submitted
            crash(fixture, disk, Random(task_count), mode)
            assert value_of(fixture, b"k") in (b"1" * 150, b"2" * 150)
        if is_over:
            break
    assert task_count > 4


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_so_does_one_that_a_transaction_replaced(mode: str, tmp_path: Path) -> None:
    """The marker decides, and it may lie behind what the pass looks at."""
    for task_count in itertools.count():
        path = tmp_path / str(task_count)
        path.mkdir()
        disk = SimDisk(path)
        fixture, flushes, passes = deferred(path, disk)
        with fixture:
            log = fixture.opened
            fixture.produce((b"k", b"1" * 150))
            fixture.roll()
            append_leader(log, transactional(0, key=b"k", value=b"2" * 150))
            fixture.roll()
            flushes.run()
            commit(log)
            fixture.commit()
            fixture.cleaner.run()
            passes.run(task_count)
            is_over = not passes.submitted
            crash(fixture, disk, Random(task_count), mode)
            is_committed = fixture.opened.last_stable_offset == 3
            if not is_committed:  # The marker is lost; the coordinator will take it all back.
                abort(fixture.opened)
                fixture.commit()
            assert 0 in [offset for offset, _, _ in fixture.records()] or is_committed
        if is_over:
            break
    assert task_count > 4


def test_a_quiet_log_is_cleaned_after_an_unclean_start(tmp_path: Path) -> None:
    """Recovery does not raise the recovery point, and nothing else may for a long time."""
    disk = SimDisk(tmp_path)
    fixture, _, passes = deferred(tmp_path, disk)
    with fixture:
        for number in range(3):
            fixture.produce((b"k", b"%d" % number * 150))
            fixture.roll()
        fixture.abandon()
        disk.kill()
        fixture.open(recovery_point=0)
        fixture.commit()
        assert fixture.opened.recovery_point == 0
        fixture.cleaner.run()
        passes.run()
        assert [offset for offset, _, _ in fixture.records()] == [2]
        assert fixture.opened.recovery_point == 3


@pytest.mark.parametrize("failing", ["open", "fsync"])
def test_a_sync_that_fails_ends_the_pass(failing: str, tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    fixture, flushes, passes = deferred(tmp_path, disk)
    with fixture:
        fixture.produce((b"k", b"1" * 150))
        fixture.roll()
        flushes.run()
        fixture.produce((b"k", b"2" * 150))
        fixture.roll()
        disk.fail(failing, path_contains=f"{1:020d}.log")
        fixture.cleaner.run()
        passes.run()
        assert fixture.cleaner.is_idle
        assert not fixture.log_directory.is_online
        disk.heal()
        fixture.open(recovery_point=1)
        fixture.commit()
        assert value_of(fixture, b"k") is not None


@pytest.mark.parametrize("event", ["truncation", "deletion", "failure"])
def test_the_log_changes_while_the_pass_flushes_it(event: str, tmp_path: Path) -> None:
    fixture, _, passes = deferred(tmp_path, SimDisk(tmp_path))
    with fixture:
        log = fixture.opened
        for number in range(3):
            fixture.produce((b"k", b"%d" % number * 150))
            fixture.roll()
        fixture.cleaner.run()
        match event:
            case "truncation":
                log.truncate_to(1)
                passes.run(1)
                assert log.recovery_point == 1
            case "deletion":
                rename_directory(log, "t-0.0123-delete")
                fixture.cleaner.forget(log)
                log.retire("deleted")
            case _:
                log.fail_halfway("append", OSError(errno.EIO, "planted"))
                fixture.cleaner.handle_directory_failure(fixture.log_directory)
        passes.run()
        assert fixture.cleaner.is_idle
        assert not fixture.cleaner.uncleanable
        assert fixture.log_directory.is_online is (event != "failure")


# A `.cleaned` that stays would cost a later group its data


def test_an_empty_segment_that_cannot_be_removed_ends_the_pass(tmp_path: Path) -> None:
    """The next start drops every `.swap` above a `.cleaned`, and its old segments are gone."""
    disk = SimDisk(tmp_path)
    fixture, flushes, passes = deferred(tmp_path, disk)
    with fixture:
        for number in range(4):  # Of the first three groups nothing is left.
            fixture.produce((b"k", b"%d" % number * 150))
        fixture.roll()
        flushes.run()
        disk.fail("unlink", path_contains=".log.cleaned", times=None)
        fixture.cleaner.run()
        for _ in range(20):
            passes.run(1)
        assert fixture.cleaner.is_idle
        assert not fixture.log_directory.is_online
        disk.heal()
        crash(fixture, disk, Random(1), "keep")
        assert value_of(fixture, b"k") == b"3" * 150
        assert not any(".cleaned" in name for name in fixture.names())


def one_written(path: Path, disk: SimDisk) -> tuple[CleaningFixture, DeferredTasks]:
    """A pass under way: the first group is written, but nobody has been told."""
    fixture, flushes, passes = deferred(path, disk)
    fixture.produce((b"k", b"1" * 150))
    fixture.produce((b"k", b"2" * 150))
    fixture.roll()
    flushes.run()
    fixture.cleaner.run()
    return fixture, passes


@pytest.mark.parametrize("suffix", [".index", ".log"])
@pytest.mark.parametrize("is_written", [False, True], ids=["writing", "written"])
def test_nor_does_a_cancelled_pass_leave_one_in_a_log_that_is_used(
    is_written: bool, suffix: str, tmp_path: Path
) -> None:
    class WatchedDisk(SimDisk):
        """Tells when the new segment is synced, which is the last thing that is written."""

        on_sync: Callable[[], None] | None = None

        def fsync(self, fd: int) -> None:
            super().fsync(fd)
            if self.on_sync is not None:
                self.on_sync()

    disk = WatchedDisk(tmp_path)
    fixture, passes = one_written(tmp_path, disk)
    with fixture:
        log = fixture.opened
        disk.fail("unlink", path_contains=f"{suffix}.cleaned")
        work, done = passes.submitted.pop(0)
        if is_written:
            work()
            log.truncate_to(1)
        else:
            disk.on_sync = lambda: fixture.cleaner.before_truncation(log, 1)
            work()
        done(None)
        assert fixture.cleaner.is_idle
        assert not fixture.log_directory.is_online


def test_a_segment_that_could_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    """Descriptors may run out between its files; the log goes on, and so does the next pass."""
    disk = SimDisk(tmp_path)
    fixture, passes = one_written(tmp_path, disk)
    with fixture:
        disk.fail("open", path_contains=".timeindex.cleaned", error=errno.EMFILE)
        passes.run()
        assert fixture.log_directory.is_online
        assert not any(".cleaned" in name for name in fixture.names())


# Files that are removed late


@pytest.mark.parametrize("remover", ["cleaner", "log"])
def test_a_late_removal_spares_a_topic_of_the_same_name(remover: str, tmp_path: Path) -> None:
    """The files have moved with their directory, and others may bear their old names by then."""
    fixture = CleaningFixture(tmp_path, config=NARROW)
    with fixture:
        fixture.open()
        fill_and_replace(fixture, remover)
        old = fixture.opened
        rename_directory(old, "t-0.0123-delete")
        fixture.cleaner.forget(old)
        old.retire("deleted")
        fixture.clock.advance(COMPACTED.file_delete_delay_ms - 1)

        fixture.open()
        fill_and_replace(fixture, remover)
        names = fixture.names()
        assert any(name.endswith(".log.deleted") for name in names)
        pass_time(fixture, 1)  # What the old log left is due, what the new one left is not.
        assert fixture.names() == names
        assert not any(path.suffix == ".deleted" for path in Path(old.directory).iterdir())
        old.mark_offline("deleted")


def fill_and_replace(fixture: CleaningFixture, remover: str) -> None:
    """Leaves segment 0 with the suffix `.deleted`."""
    fixture.produce((b"k", b"1" * 150))
    fixture.produce((b"k", b"2" * 150))
    fixture.roll()
    if remover == "cleaner":
        fixture.clean()
    else:
        remove_segments(fixture.opened, [next(iter(fixture.opened.segments))])
    assert f"{0:020d}.log.deleted" in fixture.names()


@pytest.mark.parametrize("remover", ["cleaner", "log"])
def test_a_late_removal_finds_the_directory_gone(remover: str, tmp_path: Path) -> None:
    fixture = CleaningFixture(tmp_path, config=NARROW)
    with fixture:
        fixture.open()
        fill_and_replace(fixture, remover)
        old = fixture.opened
        rename_directory(old, "t-0.0123-delete")
        fixture.cleaner.forget(old)
        old.mark_offline("deleted")
        shutil.rmtree(old.directory)
        pass_time(fixture, COMPACTED.file_delete_delay_ms)
        assert fixture.log_directory.is_online
