"""All logs of a broker: start, stop, placement, removal, failures (01 §2, §8.7, §9.7, §11)."""

import errno
import itertools
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ApiError, ConfigError, LogDirLockedError, StorageError
from odradek.model import TopicPartition
from odradek.storage.directories import log_manager
from odradek.storage.directories.closed_logs import CLOSED_LOGS_FILE
from odradek.storage.directories.log_directory import (
    CLEAN_SHUTDOWN_FILE,
    FAILED_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    LogDirectory,
)
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.directories.partition_directories import PartitionKind
from odradek.storage.log.config import LogConfig, LogManagerConfig
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.recovery.loader import load_log
from odradek.storage.segments.replacement import SegmentSwap
from odradek.testing import ManualClock, SimDisk, SimulatedCrash
from tests.support.held_tasks import HeldTasks
from tests.support.logs import batch, make_services, offsets, read_all

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
HEX = "f" * 32


class Broker:
    """Log managers one after the other on the same disk, as of one broker that is restarted."""

    def __init__(self, tmp_path: Path, *names: str) -> None:
        self.disk = SimDisk(tmp_path)
        self.clock = ManualClock()
        self.services = make_services(self.disk, self.clock)
        self.paths = [tmp_path / name for name in names or ("a",)]
        self.failed: list[str] = []
        self.all_failed = 0
        self.listener: Callable[[str], None] | None = None
        self.manager: LogManager | None = None

    def new(
        self,
        *,
        config: LogManagerConfig | None = None,
        log_config: LogConfig | None = None,
        topic_config: Callable[[str], LogConfig | None] | None = None,
    ) -> LogManager:
        def note(directory: LogDirectory) -> None:
            self.failed.append(directory.path)
            if self.listener is not None:
                self.listener(directory.path)

        def count() -> None:
            self.all_failed += 1

        # Time stands still in a test: what an earlier process had postponed is gone with it.
        self.services = make_services(self.disk, self.clock)
        self.manager = LogManager(
            [str(path) for path in self.paths],
            services=self.services,
            config=config,
            default_log_config=log_config,
            topic_config=topic_config,
            on_directory_failed=note,
            on_all_directories_failed=count,
        )
        return self.manager

    def start(
        self,
        config: LogManagerConfig | None = None,
        log_config: LogConfig | None = None,
        topic_config: Callable[[str], LogConfig | None] | None = None,
    ) -> LogManager:
        manager = self.new(config=config, log_config=log_config, topic_config=topic_config)
        manager.startup()
        return manager

    def stop(self) -> None:
        assert self.manager is not None
        self.manager.shutdown()

    def kill(self) -> None:
        """Ends the process without a word."""
        if self.manager is not None:
            for directory in self.manager.directories:
                for log in directory.logs.values():
                    log.mark_offline("the process was killed")
                directory.unlock()

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.services.tasks.run_due()  # type: ignore[attr-defined]  # It is an InlineTasks.

    def has_marker(self, number: int = 0) -> bool:
        return (self.paths[number] / CLEAN_SHUTDOWN_FILE).exists()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.kill()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Broker]:
    """A broker with two data directories, a and b."""
    broker = Broker(tmp_path, "a", "b")
    yield broker
    broker.kill()


def append(log: Log, count: int = 1, **fields: Any) -> None:
    for _ in range(count):
        log.append_as_leader(batch(**fields), leader_epoch=0)


def found(log: Log | None) -> Log:
    assert log is not None
    return log


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


# Start and stop in order


def test_a_clean_stop_and_start_keeps_everything_and_scans_nothing(broker: Broker) -> None:
    """01:LOAD-7 for a whole directory: the marker is read, and all offsets come back."""
    manager = broker.start()
    assert broker.paths[0].is_dir()  # Created.
    for tp, count in ((T0, 5), (T1, 3)):
        log = manager.get_or_create_log(tp)
        append(log, count)
        log.update_high_watermark(count)
    found(manager.get_log(T0)).maybe_increment_log_start_offset(2)
    manager.shutdown(broker_epoch=14)
    directory = broker.paths[0]
    marker = json.loads((directory / CLEAN_SHUTDOWN_FILE).read_text())
    assert marker.pop("closedLogs") in (directory / CLOSED_LOGS_FILE).read_text()
    assert marker == {"version": 0, "brokerEpoch": 14}
    assert (directory / RECOVERY_POINT_FILE).read_text() == "0\n2\nt 0 5\nt 1 3\n"
    assert (directory / LOG_START_FILE).read_text() == "0\n1\nt 0 2\n"

    broker.disk.crash(mode="drop")  # All of it is on disk.
    manager = broker.start()
    assert manager.directories[0].had_clean_shutdown
    assert not broker.has_marker()
    log = found(manager.get_log(T0))
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (2, 5, 5)
    assert offsets(read_all(found(manager.get_log(T1)))) == [0, 1, 2]
    assert manager.get_log(U0) is None


def test_a_start_without_the_marker_recovers_from_the_checkpoint(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    append(log, 4)
    log.flush()
    manager.checkpoint_recovery_points()
    append(log, 3)
    broker.kill()
    manager = broker.start()
    log = found(manager.get_log(T0))
    assert not manager.directories[0].had_clean_shutdown
    assert (log.log_end_offset, log.recovery_point) == (7, 4)


def test_many_logs_are_opened_by_several_threads(broker: Broker) -> None:
    manager = broker.start()
    partitions = [TopicPartition("t", number) for number in range(20)]
    for tp in partitions:
        append(manager.get_or_create_log(tp), tp.partition % 3)
    broker.stop()
    manager = broker.start(LogManagerConfig(recovery_threads_per_data_dir=4))
    assert sorted(log.topic_partition for log in manager.all_logs()) == partitions
    assert [found(manager.get_log(tp)).log_end_offset for tp in partitions] == [
        tp.partition % 3 for tp in partitions
    ]


def test_the_marker_is_gone_before_the_first_log_is_opened(broker: Broker) -> None:
    """15:KAFKA-10471: removed, and the directory synced, before anything below it changes."""
    append(broker.start().get_or_create_log(T0))
    broker.stop()
    for index in broker.paths[0].glob("t-0/*.index"):
        index.unlink()  # So that loading has something to write.
    broker.disk.operations.clear()
    broker.start()
    operations = broker.disk.operations
    taken = operations.index(("unlink", f"a/{CLEAN_SHUTDOWN_FILE}"))
    assert operations[taken + 1] == ("fsync_dir", "a")
    first_write = next(n for n, (_, path) in enumerate(operations) if path.startswith("a/t-0"))
    assert taken + 1 < first_write


def test_a_crash_while_loading_after_a_clean_stop_is_recovered(tmp_path: Path) -> None:
    """01:DIR-4, 15:KAFKA-10471: at whatever operation of the load."""
    recovered = 0
    for point in itertools.count():
        root = tmp_path / str(point)
        root.mkdir()
        broker = Broker(root)
        append(broker.start().get_or_create_log(T0), 3)
        broker.stop()
        for index in broker.paths[0].glob("t-0/*.index"):
            index.unlink()
        broker.disk.settle()
        broker.disk.operations.clear()
        broker.disk.crash_at(point)
        try:
            broker.start()
        except SimulatedCrash:
            is_done = False
        else:
            is_done = True
        touched = any("/t-0" in path for _, path in broker.disk.operations[:-1])
        broker.kill()
        if is_done:
            break
        broker.disk.crash(mode="drop")
        manager = broker.start()
        if touched:
            assert not manager.directories[0].had_clean_shutdown
            recovered += 1
        assert offsets(read_all(found(manager.get_log(T0)))) == [0, 1, 2]
        broker.kill()
    assert recovered > 1


def test_a_failed_start_leaves_no_marker_where_not_all_logs_were_loaded(two: Broker) -> None:
    """01:DIR-5, 15:KAFKA-15375."""
    manager = two.start()
    for tp in (T0, U0):  # One in each.
        append(manager.get_or_create_log(tp))
    two.stop()
    assert two.has_marker(0)
    assert two.has_marker(1)

    def topic_config(topic: str) -> LogConfig | None:
        if topic == "u":
            raise ConfigError("segment.bytes", "x", "not a number")
        return None

    manager = two.new(topic_config=topic_config)
    with pytest.raises(ConfigError):
        manager.startup()
    manager.shutdown()
    assert two.has_marker(0)  # Everything there was loaded, and closed in order.
    assert not two.has_marker(1)
    manager = two.start()
    assert [d.had_clean_shutdown for d in manager.directories] == [True, False]
    assert found(manager.get_log(U0)).log_end_offset == 1


def test_a_start_that_finds_a_locked_directory_touches_nothing(two: Broker) -> None:
    """01:DIR-3: refused by name; the other directory keeps its marker and is let go."""
    two.start()
    two.stop()
    other = LogDirectory(str(two.paths[1]), disk=two.disk)
    other.lock()
    manager = two.new()
    with pytest.raises(LogDirLockedError, match=re.escape(str(two.paths[1]))):
        manager.startup()
    manager.shutdown()
    assert two.has_marker(0)
    assert two.has_marker(1)
    other.unlock()
    two.start()


def test_running_out_of_descriptors_ends_the_start_but_fails_no_disk(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    append(broker.start().get_or_create_log(T0))
    broker.stop()
    broker.disk.fail("open", path_contains="t-0/", error=errno.EMFILE)
    manager = broker.new()
    with pytest.raises(StorageError, match="raise the limit on open files"):
        manager.startup()
    manager.shutdown()
    assert not messages(caplog, logging.ERROR)
    assert not broker.has_marker()
    assert found(broker.start().get_log(T0)).log_end_offset == 1


def test_a_long_start_tells_how_far_it_is(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Every five seconds; here a log takes two, and there are six."""
    manager = broker.start()
    for number in range(6):
        manager.get_or_create_log(TopicPartition("t", number))
    broker.stop()

    def slow_config(_topic: str) -> None:
        broker.clock.advance(2_000)

    caplog.set_level(logging.INFO)
    broker.start(LogManagerConfig(recovery_threads_per_data_dir=1), topic_config=slow_config)
    told = [message for message in messages(caplog, logging.INFO) if " of " in message]
    assert told == ["loaded 3 of 6 logs"]
    [record] = [record for record in caplog.records if record.getMessage() == told[0]]
    assert (vars(record)["done"], vars(record)["total"]) == (3, 6)


def test_an_error_while_closing_costs_the_marker(broker: Broker) -> None:
    """15:KAFKA-15375, the other half: one of the logs was not closed without an error."""
    manager = broker.start()
    append(manager.get_or_create_log(T0), 2)
    append(manager.get_or_create_log(T1), 2)
    manager.checkpoint_recovery_points()
    broker.disk.fail("fsync", path_contains="t-1/")
    broker.stop()
    assert not broker.has_marker()
    assert (broker.paths[0] / RECOVERY_POINT_FILE).read_text() == "0\n2\nt 0 0\nt 1 0\n"
    manager = broker.start()
    assert not manager.directories[0].had_clean_shutdown


def test_descriptors_that_run_out_while_closing_cost_the_marker_but_fail_no_disk(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    manager = broker.start()
    append(manager.get_or_create_log(T0), 2)
    append(manager.get_or_create_log(T1), 2)
    broker.disk.fail("open", path_contains="t-1/", error=errno.EMFILE)
    broker.stop()
    assert not broker.has_marker()
    assert not any("is offline" in message for message in messages(caplog, logging.ERROR))
    manager = broker.start()
    assert [found(manager.get_log(tp)).log_end_offset for tp in (T0, T1)] == [2, 2]


def test_a_stop_is_final(broker: Broker) -> None:
    """A second one writes nothing: the directory may have a new owner."""
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    manager.shutdown()
    (broker.paths[0] / CLEAN_SHUTDOWN_FILE).unlink()
    manager.shutdown()
    assert not broker.has_marker()
    with pytest.raises(StorageError):
        append(log)
    with pytest.raises(StorageError):
        manager.get_or_create_log(T0, is_new=True)


# What is found in a data directory


def test_no_directory_and_a_directory_named_twice_are_refused(
    broker: Broker, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        LogManager([], services=broker.services).startup()
    broker.paths[0].mkdir()
    (tmp_path / "alias").symlink_to(broker.paths[0])
    manager = LogManager([str(broker.paths[0]), str(tmp_path / "alias")], services=broker.services)
    with pytest.raises(ConfigError, match="are the same directory") as caught:
        manager.startup()
    assert caught.value.key == "log.dirs"
    manager.shutdown()


def test_missing_parents_are_created_durably(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "deep/down/a")
    broker.start().get_or_create_log(T0)
    broker.kill()
    broker.disk.crash(mode="drop")
    assert (broker.paths[0] / "t-0").is_dir()


def test_one_partition_in_two_directories_is_refused(two: Broker) -> None:
    two.start().get_or_create_log(T0)
    two.stop()
    (two.paths[1] / "t-0").mkdir()
    manager = two.new()
    with pytest.raises(ConfigError) as caught:
        manager.startup()
    for path in two.paths:
        assert str(path / "t-0") in str(caught.value)
    manager.shutdown()
    assert two.has_marker(0)
    assert two.has_marker(1)
    (two.paths[1] / "t-0").rmdir()
    assert found(two.start().get_log(T0)).directory == str(two.paths[0] / "t-0")


def test_foreign_names_are_skipped_with_a_warning(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("lost+found", "t-00", "t-0", "__cluster_metadata-0"):
        (broker.paths[0] / name).mkdir(parents=True)
    (broker.paths[0] / "u-0").touch()  # No directory.
    broker.disk.settle()
    manager = broker.start()
    assert [log.name for log in manager.all_logs()] == ["t-0"]
    warnings = messages(caplog, logging.WARNING)
    assert [name for name in ("lost+found", "t-00") if any(name in w for w in warnings)] == [
        "lost+found",
        "t-00",
    ]
    skipped = [warning for warning in warnings if warning.startswith("skipping")]
    assert len(skipped) == 2  # The quorum's log has an owner and needs none.
    broker.stop()
    assert (broker.paths[0] / "lost+found").is_dir()


def test_directories_left_by_earlier_processes_find_their_places(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """01:LOAD-9: `-delete` is removed later, `-future` becomes live, `-stray` is kept unserved."""
    append(broker.start().get_or_create_log(T0), 2)
    broker.stop()
    home = broker.paths[0]
    names = {kind: home / f"t-{n}.{HEX}-{kind}" for n, kind in enumerate(("delete", "stray"), 1)}
    names["future"] = home / f"u-0.{HEX}-future"
    for path in names.values():
        path.mkdir()
    (names["delete"] / "00000000000000000000.log").write_bytes(b"x")
    (names["stray"] / "00000000000000000000.log").write_bytes(b"x")
    broker.disk.settle()
    manager = broker.start()
    assert [log.topic_partition for log in manager.all_logs()] == [T0, U0]
    assert manager.get_future_log(U0) is None
    append(found(manager.get_log(U0)), 2)
    assert any("stray" in message for message in messages(caplog, logging.WARNING))
    broker.wait(59_999)
    assert names["delete"].is_dir()
    broker.wait(1)
    assert not names["delete"].exists()
    assert (names["stray"] / "00000000000000000000.log").read_bytes() == b"x"
    broker.stop()
    assert broker.has_marker()
    assert (home / RECOVERY_POINT_FILE).read_text() == "0\n2\nt 0 2\nu 0 2\n"
    manager = broker.start()
    assert offsets(read_all(found(manager.get_log(U0)))) == [0, 1]


def test_a_deleted_directory_without_segments_loads_as_an_empty_log(tmp_path: Path) -> None:
    """01:LOAD-9: a segment at 0, next offset 0, whatever the checkpoint says."""
    services = make_services()
    log = load_log(
        str(tmp_path / f"t-0.{HEX}-delete"),
        T0,
        config=LogConfig(),
        log_directory=LogDirectory(str(tmp_path), disk=services.disk),
        services=services,
        log_start_offset=500,
    )
    assert log.active.base_offset == 0
    assert [segment.base_offset for segment in log.segments] == [0]
    log.mark_offline("the test is over")


def test_a_copy_in_the_same_directory_is_removed(broker: Broker) -> None:
    """Checkpoints have one entry for each partition of a directory: that of the live log."""
    log = broker.start().get_or_create_log(T0)
    append(log, 3)
    broker.stop()
    (broker.paths[0] / f"t-0.{HEX}-future").mkdir()
    manager = broker.start()
    assert manager.get_future_log(T0) is None
    assert found(manager.get_log(T0)).log_end_offset == 3
    assert (broker.paths[0] / RECOVERY_POINT_FILE).read_text() == "0\n1\nt 0 3\n"
    broker.wait(60_000)
    assert [one.name for one in broker.paths[0].glob("t-0*")] == ["t-0"]


def test_entries_of_partitions_that_are_gone_leave_the_checkpoints_at_start(
    broker: Broker,
) -> None:
    """A new partition of that name must not start with the offsets of the old one."""
    broker.start().get_or_create_log(T0)
    broker.stop()
    (broker.paths[0] / RECOVERY_POINT_FILE).write_text("0\n2\nt 0 0\nu 0 900\n")
    (broker.paths[0] / LOG_START_FILE).write_text("0\n1\nu 0 800\n")
    broker.disk.settle()
    append(broker.start().get_or_create_log(U0), 2)
    assert (broker.paths[0] / RECOVERY_POINT_FILE).read_text() == "0\n1\nt 0 0\n"
    broker.kill()
    log = found(broker.start().get_log(U0))
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 2, 0)


def test_a_log_that_was_cut_at_start_is_recovered_from_there_after_the_next_crash(
    broker: Broker,
) -> None:
    """01:DIR-8 for a loss found while loading: the lower recovery point is on disk first."""
    append(broker.start().get_or_create_log(T0), 10)
    broker.stop()
    path = broker.paths[0] / "t-0" / f"{0:020d}.log"
    os.truncate(path, path.stat().st_size // 2)
    # They would bear out the recorded end, and the log would go on there (01:LOAD-18).
    (path.parent / f"{10:020d}.snapshot").unlink()
    (broker.paths[0] / CLOSED_LOGS_FILE).unlink()
    broker.disk.settle()
    log = found(broker.start().get_log(T0))
    assert log.log_end_offset == 5
    assert (broker.paths[0] / RECOVERY_POINT_FILE).read_text() == "0\n1\nt 0 5\n"


# Placing


def test_a_new_partition_goes_where_the_fewest_are(two: Broker) -> None:
    manager = two.start()

    def place(topic: str) -> str:
        log = manager.get_or_create_log(TopicPartition(topic, 0))
        return os.path.basename(log.log_directory.path)

    assert [place(topic) for topic in "pqrst"] == ["a", "b", "a", "b", "a"]
    manager.delete_logs([TopicPartition("p", 0), TopicPartition("r", 0)])
    assert [place(topic) for topic in "uvwx"] == ["a", "a", "b", "a"]
    two.stop()
    manager = two.start()
    assert place("y") == "b"
    assert place("y") == "b"  # Found, not created again.


def test_the_topics_settings_are_used_and_replaced(broker: Broker) -> None:
    special = LogConfig(segment_bytes=1 << 20)
    manager = broker.start(
        log_config=LogConfig(segment_bytes=1 << 25),
        topic_config=lambda topic: special if topic == "u" else None,
    )
    assert manager.get_or_create_log(T0).config.segment_bytes == 1 << 25
    assert manager.get_or_create_log(U0).config is special
    given = LogConfig(segment_bytes=1 << 21)
    assert manager.get_or_create_log(T1, given).config is given
    manager.update_config("t", special)
    assert [found(manager.get_log(tp)).config is special for tp in (T0, T1, U0)] == [True] * 3
    broker.stop()
    manager = broker.start(topic_config=lambda topic: special if topic == "u" else None)
    assert found(manager.get_log(U0)).config is special


# Deleting


def test_a_deleted_partition_is_gone_at_once_and_its_files_after_the_delay(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    append(log, 3)
    log.flush()
    manager.checkpoint_recovery_points()
    slice_ = log.read(0, 1 << 20, FetchIsolation.LOG_END)
    assert manager.delete_log(T0)
    assert not manager.delete_log(T0)
    assert manager.get_log(T0) is None
    assert re.fullmatch(r"t-0\.[0-9a-f]{32}-delete", log.name)
    assert (broker.paths[0] / log.name).is_dir()
    assert (broker.paths[0] / RECOVERY_POINT_FILE).read_text() == "0\n0\n"
    with pytest.raises(StorageError, match="the partition is gone"):
        append(log)

    again = manager.get_or_create_log(T0)  # The name is free.
    assert (again.log_end_offset, again.recovery_point) == (0, 0)
    append(again)
    assert offsets(slice_.read()) == [0, 1, 2]  # Who was reading may end in peace.
    broker.wait(60_000)
    assert not (broker.paths[0] / log.name).exists()
    assert offsets(read_all(again)) == [0]
    assert list(manager.directories[0].logs) == ["t-0"]


def test_a_crash_does_not_bring_a_deleted_partition_back(broker: Broker) -> None:
    manager = broker.start()
    append(manager.get_or_create_log(T0), 3)
    manager.delete_log(T0)
    append(manager.get_or_create_log(T0), 1)
    found(manager.get_log(T0)).flush()
    broker.kill()
    broker.disk.crash(mode="drop")
    manager = broker.start()
    assert offsets(read_all(found(manager.get_log(T0)))) == [0]
    broker.wait(60_000)
    assert [path.name for path in broker.paths[0].iterdir() if path.is_dir()] == ["t-0"]


@pytest.mark.parametrize("point", range(13))
def test_deletion_is_whole_at_every_crash_point(broker: Broker, point: int) -> None:
    """Either the partition is there with all its records, or it is gone."""
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    append(log, 3)
    log.flush()
    manager.checkpoint_recovery_points()
    broker.disk.crash_at(point)
    try:
        manager.delete_log(T0)
        is_deleted = True
    except SimulatedCrash:
        is_deleted = False
    broker.kill()
    broker.disk.crash(mode="drop")
    manager = broker.start()
    survivor = manager.get_log(T0)
    if survivor is not None:
        assert not is_deleted
        assert offsets(read_all(survivor)) == [0, 1, 2]
    else:
        append(manager.get_or_create_log(T0), 1)
        broker.kill()
        assert found(broker.start().get_log(T0)).log_end_offset == 1


def test_nothing_is_removed_after_the_stop(broker: Broker) -> None:
    """The directory may have another owner by then; the next start removes it."""
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    manager.delete_log(T0)
    broker.stop()
    assert broker.has_marker()
    broker.wait(60_000)
    assert Path(log.directory).is_dir()
    broker.start()
    broker.wait(60_000)
    assert not Path(log.directory).exists()


def test_removal_that_fails_takes_the_directory_offline(broker: Broker) -> None:
    manager = broker.start()
    append(manager.get_or_create_log(T0))
    manager.delete_log(T0)
    broker.disk.fail("unlink", path_contains="-delete/")
    broker.wait(60_000)
    assert broker.failed == [str(broker.paths[0])]


def test_a_stray_partition_is_kept_and_never_served(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    append(log, 2)
    assert manager.mark_stray(T0)
    assert re.fullmatch(r"t-0\.[0-9a-f]{32}-stray", log.name)
    assert manager.get_log(T0) is None
    assert not manager.mark_stray(T0)
    broker.wait(1 << 40)
    assert manager.directories[0].logs == {}
    broker.stop()
    manager = broker.start()
    assert manager.all_logs() == []
    broker.wait(1 << 40)
    assert (Path(log.directory) / f"{0:020d}.log").stat().st_size > 0


# Failures


def test_a_full_disk_fails_one_directory_and_loses_nothing_acknowledged(
    two: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """01:DIR-6: full in the middle of a batch; the other directory serves."""
    manager = two.start()
    log, other, neighbour = (manager.get_or_create_log(tp) for tp in (T0, U0, T1))
    assert log.log_directory is neighbour.log_directory is not other.log_directory
    append(log, 4)
    two.disk.short_write(40, path_contains="a/t-0")
    with pytest.raises(StorageError):
        append(log)
    two.disk.heal()  # Space returns, and is of no use before the next start.
    for tp in (T0, T1):
        with pytest.raises(StorageError, match="offline because"):
            manager.get_log(tp)
        with pytest.raises(StorageError):
            manager.get_or_create_log(tp)
    for each in (log, neighbour):
        with pytest.raises(StorageError):
            append(each)
    append(other, 2)
    assert found(manager.get_log(U0)).log_end_offset == 2
    assert two.failed == [str(two.paths[0])]
    assert two.all_failed == 0
    assert len(messages(caplog, logging.ERROR)) == 1
    two.stop()
    assert (two.has_marker(0), two.has_marker(1)) == (False, True)

    torn = (two.paths[0] / "t-0" / f"{0:020d}.log").stat().st_size
    assert torn == 4 * len(batch()) + 40
    manager = two.start()
    assert offsets(read_all(found(manager.get_log(T0)))) == [0, 1, 2, 3]
    append(found(manager.get_log(T0)))
    assert offsets(read_all(found(manager.get_log(T0)))) == [0, 1, 2, 3, 4]
    assert offsets(read_all(found(manager.get_log(U0)))) == [0, 1]


def test_the_last_disk_that_fills_up_ends_the_broker(broker: Broker) -> None:
    """01:DIR-6 without another directory: nothing is left to serve."""
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    append(log, 2)
    broker.disk.full_after(len(batch()) + 10)
    append(log)
    with pytest.raises(StorageError):
        append(log)
    assert broker.all_failed == 1
    with pytest.raises(StorageError, match="no data directory is online"):
        manager.get_or_create_log(U0, is_new=True)
    broker.stop()
    assert not broker.has_marker()
    broker.disk.full_after(None)
    assert offsets(read_all(found(broker.start().get_log(T0)))) == [0, 1, 2]


def test_a_failed_sync_is_never_repeated(broker: Broker) -> None:
    """01:DIR-7: it would succeed the second time, with the pages gone."""
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    append(log, 3)
    log.flush()
    manager.checkpoint_recovery_points()
    append(log, 3)
    broker.disk.fail("fsync", path_contains=".log", times=1)
    with pytest.raises(StorageError):
        log.flush()
    assert not manager.directories[0].is_online
    assert log.recovery_point == 3
    broker.disk.operations.clear()
    with pytest.raises(StorageError):
        log.flush()
    manager.checkpoint_recovery_points()
    broker.stop()
    assert not [path for operation, path in broker.disk.operations if operation == "fsync"]
    assert (broker.paths[0] / RECOVERY_POINT_FILE).read_text() == "0\n1\nt 0 3\n"
    broker.disk.crash(mode="drop")
    assert offsets(read_all(found(broker.start().get_log(T0)))) == [0, 1, 2]


@pytest.mark.parametrize("in_background", [False, True])
def test_bytes_of_a_failed_sync_are_written_anew_before_another_sync_is_trusted(
    broker: Broker, in_background: bool
) -> None:
    """01:DIR-7 over a restart: reads still show pages that the failed sync dropped."""
    log = broker.start().get_or_create_log(T0)
    append(log, 3)
    log.flush()
    append(log, 3)
    broker.disk.fail("fsync", path_contains=".log", times=1)
    if in_background:
        log.schedule_flush(6)
        broker.kill()
    else:
        with pytest.raises(StorageError):
            log.flush()
        broker.stop()
    log = found(broker.start().get_log(T0))
    append(log, 3)
    log.flush()
    assert log.recovery_point == 9
    broker.kill()
    broker.disk.crash(mode="drop")
    assert offsets(read_all(found(broker.start().get_log(T0)))) == list(range(9))


def test_a_full_disk_leaves_no_mark(broker: Broker) -> None:
    """What it refused it never had; with the mark a start needs room for a copy of each segment."""
    log = broker.start().get_or_create_log(T0)
    append(log, 3)
    broker.disk.fail("write", path_contains=".log", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        append(log, 3)
    broker.stop()
    assert not (broker.paths[0] / FAILED_FILE).exists()
    assert offsets(read_all(found(broker.start().get_log(T0)))) == [0, 1, 2]


@pytest.mark.parametrize("operation", ["open", "pread", "write", "fsync", "rename", "fsync_dir"])
def test_writing_anew_is_repeated_until_a_start_has_done_it(broker: Broker, operation: str) -> None:
    log = broker.start().get_or_create_log(T0)
    append(log, 3)
    broker.disk.fail("fsync", path_contains=".log", times=1)
    with pytest.raises(StorageError):
        log.flush()
    broker.stop()
    mark = broker.paths[0] / FAILED_FILE
    assert mark.exists()
    broker.disk.fail(operation, path_contains="t-0", times=1)
    with pytest.raises(StorageError):
        broker.start()
    broker.stop()
    assert mark.exists()
    log = found(broker.start().get_log(T0))
    assert not mark.exists()
    log.flush()
    broker.kill()
    broker.disk.crash(mode="drop")
    assert offsets(read_all(found(broker.start().get_log(T0)))) == [0, 1, 2]
    assert not list((broker.paths[0] / "t-0").glob("*.deleted"))


def test_a_crash_while_bytes_are_written_anew_leaves_the_file_or_its_copy(tmp_path: Path) -> None:
    for count in itertools.count(1):
        root = tmp_path / str(count)
        root.mkdir()
        broker = Broker(root)
        log = broker.start().get_or_create_log(T0)
        append(log, 3)
        log.flush()
        append(log, 3)
        broker.disk.fail("fsync", path_contains=".log", times=1)
        with pytest.raises(StorageError):
            log.flush()
        broker.stop()
        broker.disk.crash_at(count)
        try:
            broker.start()
        except SimulatedCrash:
            broker.kill()
            broker.disk.crash(mode="drop")
            kept = offsets(read_all(found(broker.start().get_log(T0))))
            assert kept in ([0, 1, 2], [0, 1, 2, 3, 4, 5])
        else:
            broker.disk.heal()  # The crash has not come yet.
            broker.stop()
            return


def test_a_failure_in_the_background_drops_the_logs_before_anybody_hears_of_it(
    two: Broker,
) -> None:
    """15:KAFKA-10778 for the manager: the callback already finds them gone."""
    manager = two.start()
    log = manager.get_or_create_log(T0)
    append(log)
    seen = []

    def on_failure(path: str) -> None:
        with pytest.raises(StorageError):
            manager.get_log(T0)
        with pytest.raises(StorageError):
            append(log)
        seen.append(path)

    two.listener = on_failure
    two.disk.fail("fsync", path_contains="a/t-0/")
    log.schedule_flush(1)
    assert seen == [str(two.paths[0])]


@pytest.mark.parametrize("how", ["read-only", "no directory", "unreadable checkpoint"])
def test_a_directory_that_cannot_be_used_at_start_is_offline_from_the_start(
    two: Broker, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    if how == "read-only":
        two.disk.fail("open", path_contains="a/.lock", error=errno.EROFS, times=None)
    elif how == "no directory":
        two.paths[0].touch()
    else:
        two.paths[0].mkdir()
        (two.paths[0] / RECOVERY_POINT_FILE).touch()
        two.disk.fail("open", path_contains=f"a/{RECOVERY_POINT_FILE}", times=None)
    manager = two.start()
    assert [d.is_online for d in manager.directories] == [False, True]
    (message,) = messages(caplog, logging.ERROR)
    assert str(two.paths[0]) in message
    with pytest.raises(StorageError, match="it may be in"):
        manager.get_or_create_log(T0)  # It may be in there.
    log = manager.get_or_create_log(T0, is_new=True)
    assert log.log_directory.path == str(two.paths[1])
    append(log)
    two.stop()
    assert two.has_marker(1)
    assert two.failed == []  # Nobody had been told it was there.


def test_a_start_without_any_usable_directory_fails(two: Broker) -> None:
    for path in two.paths:
        path.touch()
    manager = two.new()
    with pytest.raises(StorageError, match="no data directory can be used") as caught:
        manager.startup()
    for path in two.paths:
        assert str(path) in str(caught.value)
    manager.shutdown()


def test_a_disk_that_fails_while_loading_is_offline_and_the_other_serves(two: Broker) -> None:
    """An I/O error is not damage: nothing of the log is given up."""
    manager = two.start()
    for tp in (T0, U0):
        append(manager.get_or_create_log(tp), 2)
    two.stop()
    two.disk.fail("pread", path_contains="a/t-0/", times=None)
    manager = two.start()
    assert [d.is_online for d in manager.directories] == [False, True]
    assert found(manager.get_log(U0)).log_end_offset == 2
    assert manager.get_log(T0) is None
    with pytest.raises(StorageError):
        manager.get_or_create_log(T0)
    two.stop()
    assert not two.has_marker(0)
    two.disk.heal()
    assert offsets(read_all(found(two.start().get_log(T0)))) == [0, 1]


def test_a_partition_that_cannot_be_created_fails_its_directory(two: Broker) -> None:
    manager = two.start()
    two.disk.fail("mkdir", path_contains="a/t-0")
    with pytest.raises(StorageError):
        manager.get_or_create_log(T0)
    assert two.failed == [str(two.paths[0])]
    assert manager.get_or_create_log(T0, is_new=True).log_directory.path == str(two.paths[1])


def test_descriptors_that_run_out_fail_the_request_only(broker: Broker) -> None:
    manager = broker.start()
    broker.disk.fail("open", path_contains="t-0/", error=errno.EMFILE)
    with pytest.raises(ApiError, match="limit on open files"):
        manager.get_or_create_log(T0)
    assert manager.directories[0].is_online
    append(manager.get_or_create_log(T0))


# Periodic work


def test_work_is_repeated_at_its_intervals_until_the_stop(broker: Broker) -> None:
    """01 §11: nothing before the initial delay, then each at its own interval."""
    config = LogManagerConfig(
        initial_task_delay_ms=100,
        retention_check_interval_ms=1_000,
        flush_offset_checkpoint_interval_ms=50,
    )
    manager = broker.start(config, LogConfig(retention_ms=10_000, file_delete_delay_ms=0))
    log = manager.get_or_create_log(T0)
    manager.start()
    append(log, 3, timestamp=broker.clock.now_ms())
    log.flush()
    log.update_high_watermark(3)
    checkpoint = broker.paths[0] / RECOVERY_POINT_FILE
    broker.wait(99)
    assert not checkpoint.exists()
    broker.wait(1)
    assert checkpoint.read_text() == "0\n1\nt 0 3\n"
    append(log, 1, timestamp=broker.clock.now_ms())
    log.flush()
    broker.wait(49)
    assert checkpoint.read_text() == "0\n1\nt 0 3\n"
    broker.wait(1)
    assert checkpoint.read_text() == "0\n1\nt 0 4\n"
    log.update_high_watermark(4)
    for _ in range(10):
        assert log.log_start_offset == 0
        broker.wait(1_000)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    broker.stop()
    broker.disk.operations.clear()
    broker.wait(1 << 40)
    assert broker.disk.operations == []


def test_retention_passes_over_a_directory_that_failed_meanwhile(two: Broker) -> None:
    """01 §9.7: one log's error does not end the pass."""
    manager = two.start(log_config=LogConfig(retention_ms=1_000))
    for tp in (T0, U0, T1):
        log = manager.get_or_create_log(tp)
        append(log, 2)
        log.update_high_watermark(2)
    broker_log = found(manager.get_log(U0))
    two.disk.fail("rename", path_contains="a/t-0/")
    two.clock.advance(100_000)
    assert manager.delete_expired_segments() == 1
    assert broker_log.log_start_offset == 2
    assert two.failed == [str(two.paths[0])]


def test_logs_are_flushed_by_age(broker: Broker) -> None:
    manager = broker.start(log_config=LogConfig(flush_ms=1_000))
    log = manager.get_or_create_log(T0)
    append(log, 3)
    broker.clock.advance(999)
    manager.flush_dirty_logs()
    assert log.recovery_point == 0
    broker.clock.advance(1)
    manager.flush_dirty_logs()
    assert log.recovery_point == 3
    append(log)
    broker.clock.advance(1_000)
    broker.disk.fail("open", path_contains=".log")
    manager.flush_dirty_logs()
    assert broker.failed == [str(broker.paths[0])]


def test_silent_producers_are_forgotten(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    append(log, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    broker.clock.advance(86_399_999)
    manager.remove_expired_producers()
    assert 7 in log.producer_state.producers
    broker.clock.advance(1)
    manager.remove_expired_producers()
    assert log.producer_state.producers == {}


def test_a_failing_checkpoint_of_one_directory_leaves_the_other_its_own(two: Broker) -> None:
    manager = two.start()
    for tp in (T0, U0):
        log = manager.get_or_create_log(tp)
        append(log, 4)
        log.flush()
        log.update_high_watermark(4)
        log.maybe_increment_log_start_offset(2)
    two.disk.fail("write", path_contains=f"a/{LOG_START_FILE}")
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    assert two.failed == [str(two.paths[0])]
    assert (two.paths[1] / LOG_START_FILE).read_text() == "0\n1\nu 0 2\n"
    assert (two.paths[1] / RECOVERY_POINT_FILE).read_text() == "0\n1\nu 0 4\n"
    assert not (two.paths[0] / RECOVERY_POINT_FILE).exists()


# Beside requests


def test_periodic_work_lets_others_have_their_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """02 section 12: with thousands of logs retention would keep the loop for itself."""
    monkeypatch.setattr(log_manager, "_LOGS_PER_TURN", 2)
    manager = broker.start(log_config=LogConfig(retention_ms=-1, retention_bytes=0))
    logs = [manager.get_or_create_log(TopicPartition("t", number)) for number in range(5)]
    for log in logs:
        append(log)
        log.update_high_watermark(1)
    tasks = HeldTasks()
    manager._services = replace(manager._services, tasks=tasks)
    manager._spread(manager._retain)
    assert [log.log_start_offset for log in logs] == [1, 1, 0, 0, 0]
    manager.delete_log(logs[2].topic_partition)  # What leaves meanwhile is passed over.
    tasks.run_postponed()
    assert [log.log_start_offset for log in logs] == [1, 1, 0, 1, 0]
    tasks.run_postponed()
    assert [log.log_start_offset for log in logs] == [1, 1, 0, 1, 1]
    assert not broker.failed


def test_producers_of_thousands_of_logs_are_forgotten_in_turns(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """02 section 12, as above."""
    monkeypatch.setattr(log_manager, "_LOGS_PER_TURN", 2)
    manager = broker.start()
    logs = [manager.get_or_create_log(TopicPartition("t", number)) for number in range(3)]
    for log in logs:
        append(log, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    broker.clock.advance(86_400_000)
    tasks = HeldTasks()
    manager._services = replace(manager._services, tasks=tasks)
    manager.remove_expired_producers()
    assert [len(log.producer_state.producers) for log in logs] == [0, 0, 1]
    tasks.run_postponed()
    assert [len(log.producer_state.producers) for log in logs] == [0, 0, 0]


def test_retention_waits_for_a_swap_of_segments(broker: Broker) -> None:
    """To end it here would sync the directory three times on the event loop."""
    manager = broker.start(
        LogManagerConfig(retention_check_interval_ms=10_000, initial_task_delay_ms=10_000),
        LogConfig(retention_ms=-1, retention_bytes=0),
    )
    log = manager.get_or_create_log(T0)
    append(log)
    log.update_high_watermark(1)
    swap = log.pending_swap = SegmentSwap(
        log.segments, [], [], witnesses=log.witnesses, disk=broker.disk, directory=log.directory
    )
    manager.start()
    broker.wait(10_000)
    assert not swap.is_done
    assert log.log_start_offset == 0
    log.pending_swap = None
    broker.wait(1_000)
    assert log.log_start_offset == 1


def test_a_flush_that_ends_while_its_partition_is_renamed(broker: Broker) -> None:
    """It finds no directory to sync, which is no failure of the disk."""
    manager = broker.start()
    log = manager.get_or_create_log(T0)
    append(log)
    tasks = HeldTasks()
    log.services = replace(log.services, tasks=tasks)
    log.schedule_flush(1)
    steps = manager.put_aside_steps([log], PartitionKind.DELETED)
    rename = next(steps)
    rename()
    tasks.run_all()
    for work in steps:
        work()
    assert not broker.failed


def test_settings_reach_each_log_once(broker: Broker) -> None:
    """However many partitions a topic has: one pass over all logs."""
    special = LogConfig(segment_bytes=1 << 25)
    manager = broker.start(topic_config=lambda topic: special if topic == "t" else None)
    logs = [manager.get_or_create_log(TopicPartition(*tp)) for tp in (("t", 0), ("t", 1), ("u", 0))]
    for log in logs:
        log.config = LogConfig()
    assert len(list(manager.renew_configs(lambda topic: topic == "t"))) == len(logs)
    assert [log.config is special for log in logs] == [True, True, False]
