"""Copies of logs in other directories, and how they replace them (05 section 11, 01 section 2)."""

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from odradek.errors import ApiError, ConfigError, ErrorCode, StorageError
from odradek.model import TopicPartition
from odradek.records.batch import iter_headers
from odradek.storage.directories.log_directory import (
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    LogDirectory,
)
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.directories.partition_directories import PartitionKind, write_topic_id
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.services import Steps, run_here
from odradek.storage.paths import REPLACEMENT_FILE
from odradek.testing import ManualClock, SimDisk, SimulatedCrash
from tests.support.logs import batch, make_services, offsets, read_all

T0 = TopicPartition("t", 0)
HEX = "f" * 32


class Machine:
    """A disk with two data directories, and the log managers that use it one after the other."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.disk = SimDisk(root)
        self.clock = ManualClock()
        self.paths = [root / "a", root / "b"]
        self.manager: LogManager | None = None

    def start(self, config: LogConfig | None = None) -> LogManager:
        self.manager = LogManager(
            [str(path) for path in self.paths],
            services=make_services(self.disk, self.clock),
            default_log_config=config,
        )
        self.manager.startup()
        return self.manager

    def kill(self) -> None:
        if self.manager is not None:
            for directory in self.manager.directories:
                for log in directory.logs.values():
                    log.mark_offline("the process was killed")
                directory.unlock()
            self.manager = None

    def names(self) -> list[str]:
        """The directories of the partition that count, in both data directories."""
        return [
            f"{path.name}/{one.name}"
            for path in self.paths
            for one in sorted(path.glob("t-0*"))
            if not one.name.endswith("-delete")
        ]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.kill()


def append(log: Log, count: int, *, leader_epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(batch(), leader_epoch=leader_epoch)
    log.update_high_watermark(log.log_end_offset)


def found(log: Log | None) -> Log:
    assert log is not None
    return log


def elsewhere(manager: LogManager, log: Log) -> LogDirectory:
    [other] = [one for one in manager.directories if one is not log.log_directory]
    return other


def begin(manager: LogManager) -> Log:
    """The empty future log of the partition, in the other directory."""
    current = found(manager.get_log(T0))
    return run_here(manager.futures.create_steps(current, elsewhere(manager, current), None))


def fill(manager: LogManager) -> Log:
    """Copies what the future log lacks."""
    current, future = found(manager.get_log(T0)), found(manager.get_future_log(T0))
    data = read_all(current)
    missing = [
        data[at : at + header.size]
        for at, header in iter_headers(data)
        if header.base_offset >= future.log_end_offset
    ]
    if missing:
        future.append_as_follower(bytearray(b"".join(missing)))
    future.update_high_watermark(current.high_watermark)
    return future


def replace(manager: LogManager) -> Log:
    """The whole way of a replacement; returns the log that is live then."""
    future = fill(manager)
    run_here(manager.futures.prepare_steps(T0))
    future.flush()
    before, work = manager.futures.replace(T0)
    run_here(manager.futures.finish_steps(before, future, work))
    return future


def test_a_copy_replaces_the_log(machine: Machine) -> None:
    manager = machine.start()
    current = manager.get_or_create_log(T0)
    append(current, 5)
    current.maybe_increment_log_start_offset(2)
    home, other = current.log_directory, elsewhere(manager, current)
    begin(manager)
    assert manager.cleaner.find(lambda _tp: True) == []
    future = replace(manager)
    future.maybe_increment_log_start_offset(2)
    assert manager.get_log(T0) is future
    assert manager.get_future_log(T0) is None
    assert future.log_directory is other
    assert machine.names() == [f"{Path(other.path).name}/t-0"]
    assert offsets(read_all(future)) == [2, 3, 4]
    assert not current.is_usable
    append(future, 1)
    machine.clock.advance(60_000)
    manager.tasks.run_due()  # type: ignore[attr-defined]  # They are InlineTasks.
    assert list(Path(home.path).glob("t-0*")) == []
    manager.shutdown()
    assert (Path(other.path) / RECOVERY_POINT_FILE).read_text() == "0\n1\nt 0 6\n"
    assert (Path(other.path) / LOG_START_FILE).read_text() == "0\n1\nt 0 2\n"
    assert (Path(home.path) / RECOVERY_POINT_FILE).read_text() == "0\n0\n"
    log = found(machine.start().get_log(T0))
    assert offsets(read_all(log)) == [2, 3, 4, 5]
    assert not (Path(log.directory) / REPLACEMENT_FILE).exists()


@pytest.mark.parametrize("mode", ["kill", "drop", "torn"])
def test_one_whole_log_is_live_after_a_crash_at_any_operation(
    tmp_path: Path, mode: Literal["kill", "drop", "torn"]
) -> None:
    """01:LOAD-10 for directories: every synced record is there once, wherever the machine stops.

    Records are appended and synced before, during and after the replacement.
    """
    random = Random(7)
    for point in itertools.count():
        machine = Machine(tmp_path / f"{mode}-{point}")
        manager = machine.start()
        append(manager.get_or_create_log(T0), 3)
        found(manager.get_log(T0)).flush()
        manager.checkpoint_recovery_points()
        machine.disk.settle()
        synced = written = 3
        machine.disk.crash_at(point)
        try:
            begin(manager)
            future = fill(manager)
            append(found(manager.get_log(T0)), 1)
            written = 4
            found(manager.get_log(T0)).flush()
            synced = 4
            fill(manager)
            run_here(manager.futures.prepare_steps(T0))
            future.flush()
            before, work = manager.futures.replace(T0)
            append(found(manager.get_log(T0)), 2)
            written = 6
            found(manager.get_log(T0)).flush()
            synced = 6
            run_here(manager.futures.finish_steps(before, future, work))
            append(found(manager.get_log(T0)), 1)
            written = 7
            is_over = False
            manager.checkpoint_recovery_points()
            is_over = True
        except SimulatedCrash:
            is_over = False
        machine.kill()
        if mode == "kill":
            machine.disk.kill()
            synced = written
        else:
            machine.disk.crash(random, mode=mode)
        manager = machine.start()
        log = found(manager.get_log(T0))
        ends = offsets(read_all(log))
        assert ends == list(range(len(ends))), (point, ends)
        assert synced <= len(ends) <= written + 2, (point, ends, machine.disk.operations[-3:])
        lives = [name for name in machine.names() if name.endswith("/t-0")]
        assert len(lives) == 1, machine.names()
        future_now = manager.get_future_log(T0)
        if future_now is not None:
            assert future_now.log_end_offset <= log.log_end_offset
            replace(manager)
        append(found(manager.get_log(T0)), 1)
        machine.kill()
        machine.disk.kill()
        again = found(machine.start().get_log(T0))
        assert offsets(read_all(again)) == list(range(len(ends) + 1))
        machine.kill()
        if is_over:
            break
    assert point > 20


def test_the_copy_follows_truncations_of_the_log(machine: Machine) -> None:
    """05 section 4, truncate: the future replica is truncated at the same offset."""
    manager = machine.start()
    current = manager.get_or_create_log(T0)
    append(current, 5)
    begin(manager)
    fill(manager)
    current.truncate_to(4)
    current.truncate_to(2)
    append(current, 1)
    assert manager.futures.has_cut(T0)
    assert manager.futures.take_cut(T0) == 2
    assert manager.futures.take_cut(T0) is None


@pytest.mark.parametrize("kind", ["truncate", "restart", "forget-epoch"])
def test_a_copy_may_be_given_up_while_it_is_truncated(tmp_path: Path, kind: str) -> None:
    """Its files have other names then, which is no failure of the data directory."""
    ended = []
    for taken in itertools.count(1):
        machine = Machine(tmp_path / str(taken))
        manager = machine.start(LogConfig(segment_bytes=300))
        current = manager.get_or_create_log(T0)
        begin(manager)
        for _ in range(3):
            append(current, 3)
            future = fill(manager)
        future.leader_epochs.assign(3, 9, durable=False)
        future.flusher.schedule(9)
        assert future.recovery_point == 9
        offset = {"truncate": 2, "restart": 0, "forget-epoch": 9}[kind]
        restart = future.restart_steps(offset)
        steps: Steps[Any] = restart if kind == "restart" else future.truncate_steps(offset)
        try:
            work = next(steps)
            for _ in range(taken - 1):
                work()
                work = next(steps)
        except StopIteration:
            machine.kill()
            break
        dropping = manager.futures.drop_steps([T0])
        next(dropping)()  # The directory is renamed, on another thread.
        try:
            work()
        except OSError as error:
            with pytest.raises(StorageError, match="the move is given up"):
                steps.throw(error)
            ended.append(taken)
        run_here(dropping)
        assert future.log_directory.is_online
        assert len(manager.online_directories) == 2
        steps.close()
        machine.kill()
    assert ended


def test_deleting_a_partition_deletes_its_copy_first(machine: Machine) -> None:
    manager = machine.start()
    append(manager.get_or_create_log(T0), 2)
    begin(manager)
    machine.disk.operations.clear()
    assert manager.delete_log(T0)
    renames = [path for kind, path in machine.disk.operations if kind == "rename"]
    renames = [path for path in renames if path.endswith("-delete")]
    assert ["-future ->" in path for path in renames] == [True, False]
    assert machine.names() == []
    machine.kill()
    manager = machine.start()
    assert manager.all_logs() == []


@pytest.mark.parametrize("point", range(18))
def test_a_deletion_with_a_copy_is_whole_at_every_crash_point(tmp_path: Path, point: int) -> None:
    """A copy without its log would be live again: the records of a deleted topic."""
    machine = Machine(tmp_path)
    manager = machine.start()
    append(manager.get_or_create_log(T0), 3)
    found(manager.get_log(T0)).flush()
    begin(manager)
    fill(manager).flush()
    machine.disk.settle()
    machine.disk.crash_at(point)
    try:
        manager.delete_log(T0)
        is_deleted = True
    except SimulatedCrash:
        is_deleted = False
    machine.kill()
    machine.disk.crash(mode="drop")
    log = machine.start().get_log(T0)
    if log is not None:
        assert not is_deleted
        assert offsets(read_all(log)) == [0, 1, 2]
    machine.kill()


def test_a_failing_target_leaves_the_current_log(machine: Machine) -> None:
    manager = machine.start()
    current = manager.get_or_create_log(T0)
    append(current, 2)
    future = begin(manager)
    fill(manager)
    run_here(manager.futures.prepare_steps(T0))
    future.flush()
    machine.disk.fail("rename", path_contains="-future ->")
    with pytest.raises(StorageError):
        manager.futures.replace(T0)
    assert manager.get_log(T0) is current
    assert manager.get_future_log(T0) is None
    assert not elsewhere(manager, current).is_online
    append(current, 1)
    assert offsets(read_all(current)) == [0, 1, 2]


def test_a_failing_source_does_not_undo_the_replacement(machine: Machine) -> None:
    """The log is where its records are; the next start finds two, and takes the longer one."""
    manager = machine.start()
    current = manager.get_or_create_log(T0)
    append(current, 2)
    future = begin(manager)
    fill(manager)
    run_here(manager.futures.prepare_steps(T0))
    future.flush()
    machine.disk.fail("rename", path_contains="t-0 -> ")
    before, work = manager.futures.replace(T0)
    assert manager.get_log(T0) is future
    run_here(manager.futures.finish_steps(before, future, work))
    assert not current.log_directory.is_online
    append(future, 2)
    machine.disk.heal()
    machine.kill()
    assert len(machine.names()) == 2
    log = found(machine.start().get_log(T0))
    assert offsets(read_all(log)) == [0, 1, 2, 3]
    assert len(machine.names()) == 1


@pytest.mark.parametrize("operation", ["fsync_dir", "unlink"])
def test_a_replaced_log_stays_unless_the_replacement_is_durable(
    machine: Machine, operation: str
) -> None:
    """It may be the only complete log: the name of the other one is not on its disk."""
    manager = machine.start()
    current = manager.get_or_create_log(T0)
    append(current, 2)
    future = begin(manager)
    fill(manager)
    run_here(manager.futures.prepare_steps(T0))
    future.flush()
    before, work = manager.futures.replace(T0)
    machine.clock.advance(60_000)
    manager.tasks.run_due()  # type: ignore[attr-defined]  # They are InlineTasks.
    assert Path(before.directory).is_dir()
    machine.disk.fail(operation, path_contains=Path(future.log_directory.path).name)
    with pytest.raises(StorageError):
        run_here(manager.futures.finish_steps(before, future, work))
    assert not future.log_directory.is_online
    machine.clock.advance(60_000)
    manager.tasks.run_due()  # type: ignore[attr-defined]
    assert before.log_directory.is_online
    assert (Path(before.directory) / f"{0:020}.log").stat().st_size


def test_a_replaced_log_is_removed_if_the_partition_is_deleted_meanwhile(machine: Machine) -> None:
    manager = machine.start()
    append(manager.get_or_create_log(T0), 2)
    future = begin(manager)
    fill(manager)
    run_here(manager.futures.prepare_steps(T0))
    future.flush()
    before, work = manager.futures.replace(T0)
    steps = manager.futures.finish_steps(before, future, work)
    next(steps)
    deleting = manager.put_aside_steps([future], PartitionKind.DELETED)
    next(deleting)()  # The directory is renamed, on another thread.
    run_here(steps)
    run_here(deleting)
    machine.clock.advance(60_000)
    manager.tasks.run_due()  # type: ignore[attr-defined]  # They are InlineTasks.
    assert [one for path in machine.paths for one in path.glob("t-0*")] == []


def test_producers_and_epochs_without_records_move_along(machine: Machine) -> None:
    """A producer whose records were deleted is still known: its duplicates are found."""
    manager = machine.start(LogConfig(segment_bytes=200))
    current = manager.get_or_create_log(T0)
    sent: Any = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    current.append_as_leader(batch(2, **sent), leader_epoch=0)
    append(current, 4)
    current.maybe_increment_log_start_offset(4)
    current.leader_epochs.assign(7, current.log_end_offset)
    begin(manager)
    future = found(manager.get_future_log(T0))
    run_here(future.restart_steps(4))
    future = replace(manager)
    assert future.leader_epochs.entries == current.leader_epochs.entries
    assert future.leader_epochs.latest_epoch == 7
    assert 9 in future.producer_state.producers
    machine.kill()
    log = found(machine.start().get_log(T0))
    assert log.append_as_leader(batch(2, **sent), leader_epoch=7).is_duplicate


def test_a_copy_is_ready_once_it_is_synced_as_far_as_the_log(machine: Machine) -> None:
    """Else a crash could take records along that were durable before the move."""
    manager = machine.start()
    current = manager.get_or_create_log(T0)
    append(current, 3)
    current.flush()
    begin(manager)
    future = fill(manager)
    run_here(manager.futures.prepare_steps(T0))
    assert not manager.futures.is_prepared(T0)
    future.flush()
    assert manager.futures.is_prepared(T0)
    current.leader_epochs.assign(4, 3)
    assert not manager.futures.is_prepared(T0)
    run_here(manager.futures.prepare_steps(T0))
    assert manager.futures.is_prepared(T0)


def test_the_first_dirty_offset_moves_along(machine: Machine) -> None:
    config = LogConfig(cleanup_policy=("compact",))
    manager = machine.start(config)
    current = manager.get_or_create_log(T0)
    append(current, 3)
    manager.cleaner.first_dirty.raise_to(current, 2)()
    begin(manager)
    assert manager.cleaner.find(lambda _tp: True) == []  # It is left alone meanwhile.
    future = replace(manager)
    assert manager.cleaner.first_dirty.get(future) == 2
    assert manager.cleaner.first_dirty.get(current) is None
    assert [one.log for one in manager.cleaner.find(lambda _tp: True)] == [future]
    machine.kill()
    manager = machine.start(config)
    assert manager.cleaner.first_dirty.get(found(manager.get_log(T0))) == 2


def test_a_copy_whose_log_changed_meanwhile_is_given_up(machine: Machine) -> None:
    manager = machine.start()
    current = manager.get_or_create_log(T0)
    steps = manager.futures.create_steps(current, elsewhere(manager, current), None)
    next(steps)()
    manager.delete_log(T0)
    with pytest.raises(ApiError) as refused:
        run_here(steps)
    assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
    assert manager.get_future_log(T0) is None
    assert machine.names() == []


def test_a_wish_places_the_next_log(machine: Machine) -> None:
    manager = machine.start()
    last = manager.directories[1]
    manager.futures.wish(T0, last)
    assert manager.get_or_create_log(T0).log_directory is last
    manager.delete_log(T0)
    assert manager.get_or_create_log(T0).log_directory is manager.directories[0]


class Found:
    """Partition directories as a start may find them: a log of so many records each."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def make(
        self, where: str, count: int, *, epoch: int = 0, is_marked: bool = False, topic: int = 0
    ) -> None:
        """Makes the log in a directory that no manager has open."""
        directory, _, name = where.partition("/")
        manager = LogManager(
            [str(self.machine.paths[0].parent / "workshop")],
            services=make_services(self.machine.disk, self.machine.clock),
        )
        manager.startup()
        log = manager.get_or_create_log(T0)
        append(log, count, leader_epoch=epoch)
        path = Path(log.directory)
        if topic:
            write_topic_id(self.machine.disk, log.directory, uuid.UUID(int=topic))
        manager.shutdown()
        if is_marked:
            (path / REPLACEMENT_FILE).write_bytes(b"")
        target = self.machine.paths[0].parent / directory
        target.mkdir(exist_ok=True)
        path.rename(target / name)
        self.machine.disk.settle()


FUTURE = f"t-0.{HEX}-future"


@pytest.mark.parametrize(
    ("here", "there", "live"),
    [
        pytest.param((3, {}), (2, {}), 3, id="behind"),
        pytest.param((3, {}), (5, {}), 3, id="not-marked"),
        pytest.param((3, {}), (5, {"is_marked": True}), 5, id="ahead"),
        pytest.param((3, {}), (3, {"is_marked": True}), 3, id="equal"),
        pytest.param((5, {}), (3, {"is_marked": True, "epoch": 1}), 3, id="later-epoch"),
        pytest.param((5, {"epoch": 1}), (7, {"is_marked": True}), 5, id="earlier-epoch"),
        pytest.param(
            (3, {"topic": 1}), (5, {"is_marked": True, "topic": 2}), 3, id="of-another-topic"
        ),
    ],
)
def test_the_copy_that_reaches_further_is_live(
    machine: Machine, here: tuple[int, dict[str, Any]], there: tuple[int, dict[str, Any]], live: int
) -> None:
    Found(machine).make("a/t-0", here[0], **here[1])
    Found(machine).make(f"b/{FUTURE}", there[0], **there[1])
    manager = machine.start()
    assert found(manager.get_log(T0)).log_end_offset == live
    future = manager.get_future_log(T0)
    stays = live == here[0] and here[1].get("topic") == there[1].get("topic")
    assert (future is not None) is stays


@pytest.mark.parametrize(("ends", "live"), [((3, 5), 5), ((5, 3), 5), ((3, 3), 3)])
def test_of_two_live_logs_one_is_left_if_one_was_to_replace_the_other(
    machine: Machine, ends: tuple[int, int], live: int
) -> None:
    Found(machine).make("a/t-0", ends[0])
    Found(machine).make("b/t-0", ends[1], is_marked=True)
    manager = machine.start()
    assert found(manager.get_log(T0)).log_end_offset == live
    [name] = machine.names()
    assert name.startswith("a" if ends[0] > ends[1] else "b")


def test_two_live_logs_without_a_mark_end_the_start(machine: Machine) -> None:
    Found(machine).make("a/t-0", 3)
    Found(machine).make("b/t-0", 5)
    with pytest.raises(ConfigError, match="partition t-0 is in"):
        machine.start()


def test_a_copy_alone_is_live_unless_its_log_may_be_offline(machine: Machine) -> None:
    Found(machine).make(f"b/{FUTURE}", 3)
    machine.disk.fail("open", path_contains="a/.lock", times=None)
    manager = machine.start()
    assert manager.get_log(T0) is None
    assert found(manager.get_future_log(T0)).log_end_offset == 3
    machine.disk.heal()
    machine.kill()
    manager = machine.start()
    assert found(manager.get_log(T0)).log_end_offset == 3
    assert machine.names() == ["b/t-0"]


def test_of_several_copies_one_is_left(machine: Machine) -> None:
    Found(machine).make(f"a/t-0.{'0' * 32}-future", 2)
    Found(machine).make(f"b/{FUTURE}", 3)
    manager = machine.start()
    assert found(manager.get_log(T0)).log_end_offset == 3
    assert found(manager.get_future_log(T0)).log_end_offset == 2
