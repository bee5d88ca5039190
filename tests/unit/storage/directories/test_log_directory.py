"""A data directory: ownership, marker, checkpoints, failure (01 §8.7)."""

import errno
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.errors import LogDirLockedError, StorageError
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage.directories.log_directory import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    LogDirectory,
)
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.recovery.loader import load_log
from odradek.testing import SimDisk
from tests.support.logs import batch, make_services, rename_directory

TP = TopicPartition("t", 0)
Work = tuple[Callable[[], None], Callable[[BaseException | None], None]]


class QueuedTasks:
    """Background work that waits until the test lets it run."""

    def __init__(self) -> None:
        self.waiting: list[Work] = []

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        self.waiting.append((work, done))

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        raise AssertionError("nothing here is postponed")

    def run(self) -> None:
        for work, done in self.waiting:
            try:
                work()
            except OSError as error:
                done(error)
            else:
                done(None)
        self.waiting.clear()


@pytest.fixture
def disk(tmp_path: Path) -> SimDisk:
    (tmp_path / "data").mkdir()
    return SimDisk(tmp_path)


@pytest.fixture
def directory(disk: SimDisk) -> Iterator[LogDirectory]:
    directory = LogDirectory(os.path.join(disk.root, "data"), disk=disk)
    yield directory
    for log in directory.logs.values():
        log.mark_offline("the test is over")
    directory.unlock()


def open_log(directory: LogDirectory, tp: TopicPartition = TP, recovery_point: int = 0) -> Log:
    log = load_log(
        os.path.join(directory.path, str(tp)),
        tp,
        config=LogConfig(),
        log_directory=directory,
        services=make_services(directory.disk),
        recovery_point=recovery_point,
    )
    directory.logs[log.name] = log
    return log


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(batch(), leader_epoch=0)


def text(directory: LogDirectory, name: str) -> str:
    return Path(directory.path, name).read_text()


# Ownership


def test_a_directory_has_one_owner_in_a_process(directory: LogDirectory, tmp_path: Path) -> None:
    """01:DIR-3, same process: a record lock alone would let the second one in."""
    directory.lock()
    (tmp_path / "alias").symlink_to(directory.path)
    for path in (directory.path, str(tmp_path / "alias"), directory.path + "/../data/"):
        second = LogDirectory(path, disk=Disk())
        with pytest.raises(LogDirLockedError) as caught:
            second.lock()
        message = str(caught.value)
        assert directory.path in message
        assert "another broker of this process" in message
        assert "log.dirs" in message
        second.unlock()  # Of one that never had it: the owner keeps the lock.
    directory.unlock()
    second = LogDirectory(directory.path, disk=Disk())
    second.lock()
    second.unlock()


def test_the_lock_file_is_opened_once(directory: LogDirectory, disk: SimDisk) -> None:
    """Closing any descriptor of it would drop the lock."""
    directory.lock()
    with pytest.raises(LogDirLockedError):
        LogDirectory(directory.path, disk=disk).lock()
    assert [path for _, path in disk.operations] == [f"data/{LOCK_FILE}"]


def test_a_lock_file_that_cannot_be_opened_is_the_disks_fault(
    directory: LogDirectory, disk: SimDisk
) -> None:
    disk.fail("open", path_contains=LOCK_FILE, error=errno.EACCES)
    with pytest.raises(PermissionError):
        directory.lock()
    directory.lock()  # Nothing was held meanwhile.


# Marker


def test_the_marker_has_kafkas_content_and_is_durable(
    directory: LogDirectory, disk: SimDisk
) -> None:
    directory.write_clean_shutdown_marker(broker_epoch=14)
    marker = os.path.join(directory.path, CLEAN_SHUTDOWN_FILE)
    assert disk.durable_bytes(marker) == b'{"version":0,"brokerEpoch":14}'
    assert json.loads(text(directory, CLEAN_SHUTDOWN_FILE)) == {"version": 0, "brokerEpoch": 14}


@pytest.mark.parametrize("content", [b"", b'{"version":0,"brokerEpoch":3}', b"anything"])
def test_presence_of_the_marker_counts_and_it_is_gone_for_good(
    directory: LogDirectory, disk: SimDisk, content: bytes
) -> None:
    """15:KAFKA-10471: a crash right after taking the marker does not bring it back."""
    marker = Path(directory.path, CLEAN_SHUTDOWN_FILE)
    marker.write_bytes(content)
    disk.settle()
    directory.take_clean_shutdown_marker()
    assert directory.had_clean_shutdown
    disk.crash(mode="drop")
    again = LogDirectory(directory.path, disk=disk)
    again.take_clean_shutdown_marker()
    assert not again.had_clean_shutdown
    assert not marker.exists()


# Checkpoints


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("1\n0\n", id="01:DIR-2-version"),
        pytest.param("0\n2\nt 0 5\n", id="01:DIR-2-count"),
        pytest.param("0\n1\nt 0\n", id="01:DIR-2-line"),
    ],
)
@pytest.mark.parametrize("name", [RECOVERY_POINT_FILE, LOG_START_FILE])
def test_a_spoilt_checkpoint_is_worth_nothing_and_a_warning(
    directory: LogDirectory, name: str, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    Path(directory.path, name).write_text(content)
    read = (
        directory.read_recovery_points if name == RECOVERY_POINT_FILE else directory.read_log_starts
    )
    assert read() == {}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert name in record.getMessage()


def test_missing_and_empty_checkpoints_say_nothing(
    directory: LogDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """01:DIR-2, empty file."""
    assert directory.read_recovery_points() == {}
    Path(directory.path, RECOVERY_POINT_FILE).touch()
    assert directory.read_recovery_points() == {}
    assert not caplog.records


def test_checkpoints_tell_of_live_logs_and_of_log_starts_above_the_first_segment(
    directory: LogDirectory,
) -> None:
    """01:DIR-1: the text of both files."""
    log, other = open_log(directory), open_log(directory, TopicPartition("t-a", 3))
    deleted = open_log(directory, TopicPartition("gone", 0))
    append(log, 5)
    append(deleted, 2)
    log.flush()
    log.update_high_watermark(5)
    log.maybe_increment_log_start_offset(2)
    name = "gone-0." + "0" * 32 + "-delete"
    rename_directory(deleted, name)
    directory.logs[name] = directory.logs.pop("gone-0")
    directory.checkpoint_recovery_points()
    directory.checkpoint_log_starts()
    assert text(directory, RECOVERY_POINT_FILE) == "0\n2\nt 0 5\nt-a 3 0\n"
    assert text(directory, LOG_START_FILE) == "0\n1\nt 0 2\n"
    assert directory.read_recovery_points() == {TP: 5, other.topic_partition: 0}
    assert directory.read_log_starts() == {TP: 2}


def test_an_older_checkpoint_never_overwrites_that_of_a_truncation(
    directory: LogDirectory,
) -> None:
    """01:DIR-8: the periodic one waited in the background while the log was truncated."""
    log = open_log(directory)
    append(log, 100)
    log.flush()
    tasks = QueuedTasks()
    directory.checkpoint_recovery_points(tasks)
    log.truncate_to(50)
    assert directory.read_recovery_points() == {TP: 50}
    tasks.run()
    assert directory.read_recovery_points() == {TP: 50}
    append(log, 20)
    log.flush()
    directory.checkpoint_recovery_points(tasks)
    tasks.run()
    assert directory.read_recovery_points() == {TP: 70}


def test_recovery_starts_at_or_below_a_truncation(directory: LogDirectory, disk: SimDisk) -> None:
    """01:DIR-8: truncated to 50, refilled, machine crash."""
    log = open_log(directory)
    append(log, 100)
    log.flush()
    directory.checkpoint_recovery_points()
    log.truncate_to(50)
    append(log, 60)
    log.mark_offline("the machine stopped")
    disk.crash(mode="drop")
    again = LogDirectory(directory.path, disk=disk)
    recovery_point = again.read_recovery_points()[TP]
    assert recovery_point <= 50
    log = open_log(again, recovery_point=recovery_point)
    assert log.recovery_point <= 50 <= log.log_end_offset
    log.mark_offline("the test is over")


def test_a_checkpoint_that_fails_in_the_background_takes_the_directory_offline(
    directory: LogDirectory, disk: SimDisk
) -> None:
    log = open_log(directory)
    tasks = QueuedTasks()
    directory.checkpoint_recovery_points(tasks)
    disk.fail("rename", path_contains=RECOVERY_POINT_FILE)
    tasks.run()
    assert not directory.is_online
    with pytest.raises(StorageError):
        append(log)
    with pytest.raises(StorageError, match="offline because"):
        directory.checkpoint_recovery_points(tasks)
    assert not tasks.waiting


# Failure


def test_no_append_succeeds_between_the_error_and_the_directory_going_offline(
    directory: LogDirectory, disk: SimDisk
) -> None:
    """15:KAFKA-10778: not even from within the first that hears of it."""
    log, other = open_log(directory), open_log(directory, TopicPartition("u", 0))
    append(log, 3)
    append(other, 3)
    refused = []

    def on_failure(failed: LogDirectory) -> None:
        assert failed is directory
        for each in (log, other):
            with pytest.raises(StorageError) as caught:
                append(each)
            refused.append(caught.value.log_dir)

    directory.on_failure = on_failure
    disk.fail("write", path_contains="t-0/")
    with pytest.raises(StorageError):
        append(log)
    assert refused == [directory.path] * 2
    assert (log.log_end_offset, other.log_end_offset) == (3, 3)


def test_failure_is_said_once_and_for_all(
    directory: LogDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[LogDirectory] = []
    directory.on_failure = calls.append
    first = directory.fail("append", OSError(errno.EIO, "broken"))
    second = directory.fail("flush", OSError(errno.ENOSPC, "full"))
    assert isinstance(first, StorageError)
    assert isinstance(second, StorageError)
    assert calls == [directory]
    assert directory.offline_reason is not None
    assert "broken" in directory.offline_reason
    [line] = [vars(record) for record in caplog.records if record.levelno == logging.ERROR]
    assert (line["directory"], line["reason"]) == (directory.path, directory.offline_reason)
    with pytest.raises(StorageError, match="offline because"), directory.guard("anything"):
        raise AssertionError("not entered")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_running_out_of_descriptors_is_not_the_disks_fault(
    directory: LogDirectory, disk: SimDisk, number: int
) -> None:
    disk.fail("open", path_contains=RECOVERY_POINT_FILE, error=number)
    with pytest.raises(OSError, match="open files"):
        directory.checkpoint_recovery_points()
    assert directory.is_online
    directory.checkpoint_recovery_points()
