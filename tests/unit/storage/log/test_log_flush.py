"""Flushing (01 section 9.8), at once and in the background, and closing."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.errors import ApiError, StorageError
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.services import InlineTasks
from odradek.testing import ManualClock, SimDisk
from tests.support.log_scenarios import (
    DeferredTasks,
    abort,
    append_leader,
    bases,
    idempotent,
    transactional,
)
from tests.support.logs import LogFixture, offsets, read_all, rename_directory


@pytest.fixture
def disk(tmp_path: Path) -> SimDisk:
    (tmp_path / "data").mkdir()
    return SimDisk(tmp_path)


@pytest.fixture
def fixture(tmp_path: Path, disk: SimDisk) -> Iterator[LogFixture]:
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        yield fixture


@pytest.fixture
def tasks(fixture: LogFixture) -> DeferredTasks:
    """Makes the log's background work wait for the test."""
    tasks = DeferredTasks(fixture.clock)
    fixture.services = replace(fixture.services, tasks=tasks)
    return tasks


def synced(disk: SimDisk) -> list[str]:
    """What was synced since the last call: base names, the partition directory as "."."""
    names = [
        "." if operation == "fsync_dir" and path.endswith("t-0") else path.rpartition("/")[2]
        for operation, path in disk.operations
        if operation in ("fsync", "fsync_dir")
    ]
    disk.operations.clear()
    return names


def test_recovery_point_follows(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(5)
    assert (log.recovery_point, log.unflushed_messages) == (0, 5)
    fixture.clock.advance(100)

    log.flush()

    assert (log.recovery_point, log.unflushed_messages) == (5, 0)
    assert log.last_flush_ms == fixture.clock.now_ms()


def test_what_was_flushed_survives_a_machine_crash(fixture: LogFixture, disk: SimDisk) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=300))
    fixture.append(8, size=100)
    log.flush()
    flushed = read_all(log)
    fixture.append(2, size=100)
    recovery_point = fixture.abandon()

    disk.crash(mode="drop")
    log = fixture.open(recovery_point=recovery_point)

    assert read_all(log)[: len(flushed)] == flushed


def test_flush_up_to_an_offset(fixture: LogFixture, disk: SimDisk) -> None:
    log = fixture.open()
    fixture.append(5)

    log.flush(3)

    assert log.recovery_point == 3
    disk.operations.clear()
    log.flush(3)
    log.flush(2)
    assert synced(disk) == []
    assert log.recovery_point == 3


def test_only_segments_above_the_recovery_point_are_synced(
    fixture: LogFixture, disk: SimDisk, tasks: DeferredTasks
) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=300))
    fixture.append(8, size=100)
    log.flush(4)
    synced(disk)

    log.flush()

    names = synced(disk)
    assert {name[:20] for name in names if name.endswith(".log")} == {
        f"{base:020d}" for base in (3, 6)
    }
    assert names[-1] == "."
    fixture.append(1, size=100)
    log.flush()
    # The names of this segment are synced already, its content is not.
    assert [name for name in synced(disk) if name in (".", f"{6:020d}.log")] == [f"{6:020d}.log"]


def test_young_transaction_index_has_its_name_synced(fixture: LogFixture, disk: SimDisk) -> None:
    log = fixture.open()
    append_leader(log, transactional(0))
    log.flush()
    synced(disk)

    abort(log)
    log.flush()

    assert {f"{0:020d}.txnindex", "."} <= set(synced(disk))


def test_snapshots_are_synced_before_the_recovery_point_passes_them(
    fixture: LogFixture, disk: SimDisk, tasks: DeferredTasks
) -> None:
    """10 section 8.4: also those whose own flush has not had its turn yet."""
    log = fixture.open(config=LogConfig(segment_bytes=300))
    append_leader(log, idempotent(0, size=100))
    log.flush()
    for number in range(1, 7):
        append_leader(log, idempotent(number, size=100))
    assert bases(log) == [0, 3, 6]
    assert len(tasks.submitted) == 2

    log.flush()

    for base in (3, 6):
        path = str(fixture.path(f"{base:020d}.snapshot"))
        assert disk.durable_bytes(path) == Path(path).read_bytes()


def test_flush_messages(fixture: LogFixture, disk: SimDisk) -> None:
    """01 section 10.3, step 11"""
    log = fixture.open(config=LogConfig(flush_messages=3))
    fixture.append(2)
    assert log.recovery_point == 0
    fixture.append(1)
    assert log.recovery_point == 3
    append_leader(log, idempotent(0, 10))
    assert log.recovery_point == 13


def test_every_message_flushed_survives(fixture: LogFixture, disk: SimDisk) -> None:
    log = fixture.open(config=LogConfig(flush_messages=1, segment_bytes=300))
    for number in range(10):
        append_leader(log, idempotent(number, size=100))
    recovery_point = fixture.abandon()

    disk.crash(mode="drop")
    log = fixture.open(recovery_point=recovery_point)

    assert offsets(read_all(log)) == list(range(10))
    assert append_leader(log, idempotent(9, size=100)).is_duplicate


@pytest.mark.parametrize("operation", ["fsync", "fsync_dir"])
def test_failed_sync_is_not_repeated(fixture: LogFixture, disk: SimDisk, operation: str) -> None:
    """01:DIR-7 for one log: offline, and the recovery point stays."""
    log = fixture.open()
    fixture.append(5)
    disk.fail(operation, path_contains="t-0")

    with pytest.raises(StorageError, match="flush"):
        log.flush()
    assert log.recovery_point == 0
    assert not fixture.log_directory.is_online
    with pytest.raises(StorageError):
        log.flush()


def test_running_out_of_descriptors(fixture: LogFixture, disk: SimDisk) -> None:
    log = fixture.open()
    fixture.append(5)
    disk.fail("open", path_contains=".timeindex", error=errno.EMFILE)

    with pytest.raises(ApiError, match="open files"):
        log.flush()
    assert (log.recovery_point, fixture.log_directory.is_online) == (0, True)
    log.flush()
    assert log.recovery_point == 5


# In the background


def test_roll_flushes_in_the_background(fixture: LogFixture, tasks: DeferredTasks) -> None:
    log = fixture.open()
    fixture.append(5)

    log.roll()

    assert log.recovery_point == 0
    tasks.run()
    assert log.recovery_point == 5


def test_background_flush_syncs_the_snapshot_first(
    fixture: LogFixture, disk: SimDisk, tasks: DeferredTasks
) -> None:
    """01 section 9.6"""
    log = fixture.open()
    append_leader(log, idempotent(0, 5))
    log.roll()
    disk.operations.clear()

    tasks.run()

    names = synced(disk)
    assert names[0] == f"{5:020d}.snapshot"
    assert f"{0:020d}.log" in names
    assert names[-1] == "."


def test_nothing_to_flush_in_the_background(fixture: LogFixture, tasks: DeferredTasks) -> None:
    log = fixture.open()
    fixture.append(5)
    log.flush()

    log.schedule_flush(5)

    assert tasks.submitted == []


def test_truncation_before_the_flush_ends(fixture: LogFixture, tasks: DeferredTasks) -> None:
    """01 section 9.8: min(offset, log end) as of the end of the flush."""
    log = fixture.open()
    fixture.append(10)
    log.schedule_flush(10)
    log.truncate_to(6)

    tasks.run()

    assert log.recovery_point == 6


@pytest.mark.parametrize("fully", [False, True])
def test_truncation_and_new_data_before_the_flush_ends(
    fixture: LogFixture, disk: SimDisk, tasks: DeferredTasks, fully: bool
) -> None:
    """The flush has seen the old records at these offsets, not the new ones."""
    log = fixture.open()
    fixture.append(10)
    log.schedule_flush(10)
    if fully:
        log.truncate_fully_and_start_at(6)
    else:
        log.truncate_to(6)
    fixture.append(20)

    tasks.run()

    assert log.recovery_point == 6
    log.flush()
    assert log.recovery_point == 26


def test_flush_outlives_the_removal_of_its_segments(
    fixture: LogFixture, tasks: DeferredTasks
) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=300, file_delete_delay_ms=0))
    fixture.append(8, size=100)
    log.schedule_flush(8)
    log.truncate_to(2)
    tasks.run_due()

    tasks.run()

    assert fixture.log_directory.is_online
    assert log.recovery_point == 2


def test_directory_renamed_before_the_flush_ends(fixture: LogFixture, tasks: DeferredTasks) -> None:
    """A topic was deleted: no failure of the disk."""
    log = fixture.open()
    fixture.append(5)
    log.schedule_flush(5)
    rename_directory(log, "t-0.0123456789abcdef0123456789abcdef-delete")

    tasks.run()

    assert fixture.log_directory.is_online
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 5


def test_failed_background_flush(fixture: LogFixture, disk: SimDisk, tasks: DeferredTasks) -> None:
    log = fixture.open()
    fixture.append(5)
    log.roll()
    disk.fail("fsync", path_contains="t-0")

    tasks.run()

    assert not fixture.log_directory.is_online
    assert log.recovery_point == 0
    with pytest.raises(StorageError, match="flush"):
        append_leader(log, idempotent(0))


def test_background_flush_that_ends_after_closing(
    fixture: LogFixture, tasks: DeferredTasks
) -> None:
    log = fixture.open()
    fixture.append(5)
    log.schedule_flush(3)
    log.close()

    tasks.run()

    assert log.recovery_point == 5
    assert fixture.log_directory.is_online


# Closing


def test_close_makes_everything_durable(fixture: LogFixture, disk: SimDisk) -> None:
    log = fixture.open(config=LogConfig(index_interval_bytes=100))
    for number in range(10):
        append_leader(log, idempotent(number, size=100), epoch=number // 4)
    recovery_point = fixture.close()
    before = {name: fixture.path(name).read_bytes() for name in fixture.names()}
    assert f"{10:020d}.snapshot" in before
    assert len(before[f"{0:020d}.index"]) % 8 == 0 < len(before[f"{0:020d}.index"]) < 1000

    disk.crash(mode="drop")

    after = {name: fixture.path(name).read_bytes() for name in fixture.names()}
    assert after == before
    log = fixture.open(clean=True, recovery_point=recovery_point)
    assert offsets(read_all(log)) == list(range(10))
    assert append_leader(log, idempotent(9, size=100), epoch=2).is_duplicate


def test_close_that_fails(fixture: LogFixture, disk: SimDisk) -> None:
    log: Log = fixture.open()
    fixture.append(3)
    disk.fail("fsync", path_contains=".log")

    with pytest.raises(StorageError, match="close"):
        log.close()
    assert not fixture.log_directory.is_online


# Tasks


def test_inline_tasks_report_errors() -> None:
    tasks = InlineTasks(ManualClock())
    outcomes: list[BaseException | None] = []
    error = OSError("broken")

    def work() -> None:
        raise error

    tasks.submit(lambda: None, outcomes.append)
    tasks.submit(work, outcomes.append)

    assert outcomes == [None, error]


def test_inline_tasks_wait_in_order_of_time() -> None:
    clock = ManualClock()
    tasks = InlineTasks(clock)
    done: list[str] = []
    tasks.call_later(20, lambda: done.append("late"))
    tasks.call_later(10, lambda: done.append("early"))
    tasks.call_later(10, lambda: done.append("second"))

    assert tasks.run_due() == 0
    clock.advance(10)
    assert tasks.run_due() == 2
    clock.advance(10)
    assert tasks.run_due() == 1
    assert done == ["early", "second", "late"]
