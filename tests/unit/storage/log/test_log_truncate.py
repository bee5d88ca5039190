"""Truncation (01 section 9.8) and renaming."""

import errno
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.errors import ApiError, StorageError
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.reader import FetchIsolation
from odradek.testing import SimDisk
from odradek.testing.faults import SimulatedCrash
from tests.support.log_scenarios import (
    UnsyncedDisk,
    abort,
    append_follower,
    append_leader,
    bases,
    epochs,
    idempotent,
    pass_time,
    transactional,
)
from tests.support.logs import T0, LogFixture, batch, offsets, read_all, rename_directory


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


@pytest.fixture
def log(fixture: LogFixture) -> Log:
    """Segments 0, 3, 6 and 9 of three batches of 100 bytes, the last one of one."""
    log = fixture.open(config=LogConfig(segment_bytes=300))
    fixture.append(10, size=100)
    assert bases(log) == [0, 3, 6, 9]
    return log


@pytest.fixture
def disk(tmp_path: Path) -> SimDisk:
    (tmp_path / "data").mkdir()
    return SimDisk(tmp_path)


def test_negative_offset(log: Log) -> None:
    with pytest.raises(ValueError, match="to -1"):
        log.truncate_to(-1)
    assert log.log_end_offset == 10


@pytest.mark.parametrize("offset", [10, 11, 1000])
def test_at_or_above_the_log_end(log: Log, offset: int) -> None:
    before = read_all(log)

    assert not log.truncate_to(offset)

    assert (log.log_end_offset, read_all(log)) == (10, before)


def test_epoch_without_a_record_goes(fixture: LogFixture) -> None:
    """15:KAFKA-10706: else the follower finds its own claim again and never ends truncating."""
    log = fixture.open()
    append_follower(log, (0, 4), epoch=1)
    log.leader_epochs.assign(2, 5)
    log.leader_epochs.assign(3, 8)

    assert not log.truncate_to(20)

    assert epochs(log) == [(1, 0)]
    assert fixture.path("leader-epoch-checkpoint").read_bytes() == b"0\n1\n1 0\n"


@pytest.mark.parametrize("offset", range(10))
def test_within_the_log(log: Log, fixture: LogFixture, offset: int) -> None:
    assert log.truncate_to(offset)

    assert log.log_end_offset == offset
    assert offsets(read_all(log)) == list(range(offset))
    assert log.active.size == log.log_end_offset_metadata.relative_position
    fixture.append(3, size=100)
    assert offsets(read_all(log)) == list(range(offset + 3))
    assert offsets(read_all(fixture.reopen(clean=False))) == list(range(offset + 3))


def test_batch_that_contains_the_offset_goes_whole(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, batch(5))
    append_leader(log, batch(5))

    assert log.truncate_to(7)

    assert log.log_end_offset == 7
    assert offsets(read_all(log)) == list(range(5))
    append_follower(log, (7, 8))
    assert offsets(read_all(log)) == [*range(5), 7, 8]


def test_state_follows(log: Log) -> None:
    log.update_high_watermark(8)
    log.flush()

    log.truncate_to(5)

    assert log.offsets() == (0, 5, 5, 5)
    assert log.recovery_point == 5
    assert log.fetch_high_watermark_metadata() == LogOffsetMetadata(5, 3, 200)


def test_below_the_log_start(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(10)
    log.update_high_watermark(10)
    log.maybe_increment_log_start_offset(6)

    log.truncate_to(4)

    assert log.offsets() == (4, 4, 4, 4)
    fixture.append(1)
    assert offsets(read_all(log)) == [4]


def test_below_the_first_segment(fixture: LogFixture) -> None:
    """01 section 9.8: nothing is left, and the log starts there."""
    log = fixture.open(log_start_offset=50)
    fixture.append(5)

    assert log.truncate_to(20)

    assert bases(log) == [20]
    assert log.offsets() == (20, 20, 20, 20)


def test_epochs_are_cut(fixture: LogFixture) -> None:
    log = fixture.open()
    for epoch in (1, 2, 5):
        fixture.append(4, epoch=epoch)

    log.truncate_to(8)

    assert epochs(log) == [(1, 0), (2, 4)]
    assert fixture.path("leader-epoch-checkpoint").read_bytes() == b"0\n2\n1 0\n2 4\n"


def test_producers_are_cut(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=300))
    for number in range(8):
        append_leader(log, idempotent(number, size=100))

    log.truncate_to(4)

    assert not any(int(n[:20]) > 4 for n in fixture.names() if n.endswith(".snapshot"))
    with pytest.raises(ApiError, match="expected sequence 4"):
        append_leader(log, idempotent(7, size=100))
    assert append_leader(log, idempotent(3, size=100)).is_duplicate
    assert append_leader(log, idempotent(4, size=100)).first_offset == 4


def test_transactions_are_cut(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, transactional(0))
    fixture.append(3)
    abort(log)
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    assert log.active.transaction_index.all_entries()

    log.truncate_to(4)

    assert log.active.transaction_index.all_entries() == ()
    assert log.last_stable_offset == 0  # The transaction is open again.
    abort(log)
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5


def test_largest_timestamp_is_found_again(fixture: LogFixture) -> None:
    log = fixture.open()
    for timestamp in (T0 + 5, T0 + 9, T0 + 7):
        append_leader(log, batch(timestamp=timestamp))

    log.truncate_to(1)

    assert log.active.max_timestamp == T0 + 5


def test_files_vanish_after_the_delay(log: Log, fixture: LogFixture) -> None:
    log.truncate_to(2)

    deleted = {name for name in fixture.names() if name.endswith(".deleted")}
    assert {name[:20] for name in deleted} == {f"{base:020d}" for base in (3, 6, 9)}
    assert pass_time(fixture, 59_999) == 0
    assert pass_time(fixture, 1) == 3
    assert not any(name.endswith(".deleted") for name in fixture.names())


def test_new_segment_outlives_the_removal_of_an_old_one_of_its_base(
    log: Log, fixture: LogFixture
) -> None:
    log.truncate_to(3)
    fixture.append(7, size=100)
    assert bases(log) == [0, 3, 6, 9]

    pass_time(fixture, 60_000)

    assert offsets(read_all(log)) == list(range(10))
    assert offsets(read_all(fixture.reopen(clean=True))) == list(range(10))


def test_recovery_point_is_checkpointed_at_once(log: Log, fixture: LogFixture) -> None:
    """01 section 8.7: before the truncated log takes appends."""
    log.flush()

    log.truncate_to(5)

    assert fixture.log_directory.read_recovery_points() == {log.topic_partition: 5}


def test_fully(log: Log, fixture: LogFixture) -> None:
    log.update_high_watermark(10)
    append_leader(log, idempotent(0, size=100), epoch=4)

    log.truncate_fully_and_start_at(70)

    assert bases(log) == [70]
    assert log.offsets() == (70, 70, 70, 70)
    assert log.recovery_point == 70
    assert epochs(log) == []
    assert log.producer_state.is_empty
    assert not any(name.endswith(".snapshot") for name in fixture.names())
    assert append_leader(log, idempotent(0, size=100), epoch=5).first_offset == 70
    log = fixture.reopen(clean=False)
    assert (bases(log), offsets(read_all(log)), epochs(log)) == ([70], [70], [(5, 70)])


def test_fully_and_start_at_an_old_base(log: Log, fixture: LogFixture) -> None:
    log.truncate_fully_and_start_at(3)
    fixture.append(2, size=100)

    pass_time(fixture, 60_000)

    assert offsets(read_all(log)) == [3, 4]


def test_readers_of_the_old_data_are_not_disturbed(log: Log, fixture: LogFixture) -> None:
    held = log.read(6, 1000, FetchIsolation.LOG_END)

    log.truncate_to(2)
    fixture.append(8, size=100)

    assert offsets(held.read()) == [6, 7, 8]


@pytest.mark.parametrize("operation", ["rename", "ftruncate", "write"])
def test_failing_disk(tmp_path: Path, disk: SimDisk, operation: str) -> None:
    with LogFixture(tmp_path / "data", disk=disk, config=LogConfig(segment_bytes=300)) as fixture:
        log = fixture.open()
        fixture.append(10, size=100)
        disk.fail(operation)

        with pytest.raises(StorageError):
            log.truncate_to(4)
        assert not fixture.log_directory.is_online
        with pytest.raises(StorageError):
            log.truncate_to(4)


def test_running_out_of_descriptors_halfway_is_a_failure(tmp_path: Path, disk: SimDisk) -> None:
    """Half a truncation cannot be taken back, and memory would no longer tell what is there."""
    with LogFixture(tmp_path / "data", disk=disk, config=LogConfig(segment_bytes=300)) as fixture:
        log = fixture.open()
        fixture.append(10, size=100)
        disk.fail("open", path_contains="t-0/", error=errno.EMFILE)

        with pytest.raises(StorageError):
            log.truncate_to(4)
        assert not fixture.log_directory.is_online


@pytest.mark.parametrize("truncate", [Log.truncate_to, Log.truncate_fully_and_start_at])
def test_no_descriptor_for_the_recovery_point_leaves_everything_as_it_was(
    truncate: Callable[[Log, int], object], tmp_path: Path, disk: SimDisk
) -> None:
    """01:DIR-8. The checkpoint comes first: what is appended later must not pass for synced."""
    with LogFixture(tmp_path / "data", disk=disk, config=LogConfig(segment_bytes=300)) as fixture:
        log = fixture.open()
        fixture.append(10, size=100)
        log.flush()
        fixture.log_directory.checkpoint_recovery_points()
        error = OSError(errno.EMFILE, "planted")
        disk.fail("open", path_contains="recovery-point", error=error, times=2)

        for _ in range(2):
            with pytest.raises(ApiError, match="limit on open files"):
                truncate(log, 4)
            assert fixture.log_directory.is_online
            assert offsets(read_all(log)) == list(range(10))
        truncate(log, 4)

        assert fixture.log_directory.read_recovery_points() == {log.topic_partition: 4}


def test_no_descriptor_for_a_lowered_log_start_is_a_failure(tmp_path: Path, disk: SimDisk) -> None:
    """Appended behind, the next start would take the log for one that ends below its start."""
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        log = fixture.open()
        fixture.append(10)
        log.update_high_watermark(10)
        log.maybe_increment_log_start_offset(8)
        disk.fail("open", path_contains="log-start", error=OSError(errno.EMFILE, "planted"))

        with pytest.raises(StorageError):
            log.truncate_to(4)
        assert not fixture.log_directory.is_online


@pytest.mark.slow
@pytest.mark.parametrize("fully", [False, True])
def test_crash_at_every_step(tmp_path: Path, fully: bool) -> None:
    """What is found again is a prefix of the old log, or the new one: never a hole."""
    for step in itertools.count():
        root = tmp_path / str(step)
        (root / "data").mkdir(parents=True)
        disk = SimDisk(root)
        fixture = LogFixture(root / "data", disk=disk, config=LogConfig(segment_bytes=300))
        log = fixture.open()
        fixture.append(10, size=100)
        log.flush()
        fixture.log_directory.checkpoint_recovery_points()
        disk.settle()
        disk.crash_at(step)
        crashed = False
        try:
            if fully:
                log.truncate_fully_and_start_at(20)
            else:
                log.truncate_to(4)
        except SimulatedCrash:
            crashed = True
        disk.crash_at(0)  # Whatever is done to the files while the process dies.
        fixture.abandon()
        disk.crash(mode="keep")
        points = fixture.log_directory.read_recovery_points()
        log = fixture.open(recovery_point=points[log.topic_partition])

        found = offsets(read_all(log))
        assert found == list(range(len(found)))
        assert log.log_end_offset == len(found) or (fully and log.log_end_offset == 20)
        fixture.abandon()
        if not crashed:
            assert log.log_end_offset == (20 if fully else 4)
            return


@pytest.mark.parametrize("recovery_point", [0, 8])
def test_old_names_do_not_come_back_below_the_recovery_point(
    tmp_path: Path, disk: SimDisk, recovery_point: int
) -> None:
    """Unsynced data of the old log must not stand where recovery takes everything for synced."""
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        log = fixture.open()
        disk.settle()
        fixture.append(10)
        log.truncate_fully_and_start_at(8)
        fixture.abandon()

        disk.crash(mode="drop")
        log = fixture.open(recovery_point=recovery_point)

        assert bases(log) == [8]
        assert log.log_end_offset == 8


def test_renamed_directory(log: Log, fixture: LogFixture) -> None:
    name = "t-0.0123456789abcdef0123456789abcdef-delete"

    rename_directory(log, name)

    assert log.name == name
    assert not log.is_live
    assert not Path(fixture.directory).exists()
    append_leader(log, idempotent(0, size=100), epoch=3)
    log.roll()
    log.truncate_to(1)
    log.flush()
    assert offsets(read_all(log)) == [0]
    assert Path(log.directory, "leader-epoch-checkpoint").exists()
