"""Producers of a partition: snapshots, restart, truncation, 10 §8.4."""

import os
from pathlib import Path

import pytest

from odradek.errors import ApiError
from odradek.files import Disk
from odradek.model import AppendOrigin, TopicPartition
from odradek.storage.producers.state import CachedBatch, ProducerStateManager
from odradek.testing import SimDisk
from tests.support.producer_batches import T, append, append_marker, data_batch

EXPIRATION_MS = 86_400_000


def new_state(directory: Path, disk: Disk | None = None) -> ProducerStateManager:
    return ProducerStateManager(
        TopicPartition("t", 0), str(directory), disk=disk or Disk(), expiration_ms=EXPIRATION_MS
    )


def snapshot_file(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}.snapshot"


def recent_file(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}.recent"


def state_with_snapshots(directory: Path) -> ProducerStateManager:
    """One producer, batches of five; snapshots at 10 and 20; log end 25."""
    state = new_state(directory)
    for sequence in range(0, 25, 5):
        append(state, data_batch(sequence, 5))
        if sequence in (5, 15):
            state.take_snapshot()
    return state


def replay(state: ProducerStateManager, log_end_offset: int) -> None:
    """What the log of `state_with_snapshots` has from the state's end on."""
    for offset in range(state.map_end_offset, log_end_offset, 5):
        state.apply_append(data_batch(offset, 5), first_offset=offset, last_offset=offset + 4)


@pytest.mark.parametrize("is_recent_lost", [False, True])
def test_clean_restart_recognises_the_last_batches(tmp_path: Path, is_recent_lost: bool) -> None:
    """10:PR-8, 10 §8.4: all five, and the newest one without the file beside the snapshot."""
    state = state_with_snapshots(tmp_path)
    assert state.take_snapshot() == str(snapshot_file(tmp_path, 25))

    if is_recent_lost:
        recent_file(tmp_path, 25).unlink()

    restarted = new_state(tmp_path)
    restarted.truncate_and_reload(0, 25, T)

    assert restarted.map_end_offset == 25  # Nothing to replay.
    assert append(restarted, data_batch(20, 5)) == CachedBatch(24, 24, 4, T)
    for sequence in (0, 5, 10, 15):
        if is_recent_lost:
            with pytest.raises(ApiError):
                append(restarted, data_batch(sequence, 5))
        else:
            expected = CachedBatch(sequence + 4, sequence + 4, 4, T)
            assert append(restarted, data_batch(sequence, 5)) == expected
    assert append(restarted, data_batch(25, 5)) == 25


def test_restart_replays_from_the_newest_snapshot(tmp_path: Path) -> None:
    state_with_snapshots(tmp_path)

    restarted = new_state(tmp_path)
    restarted.truncate_and_reload(0, 25, T)

    assert (restarted.map_end_offset, restarted.last_snapshot_offset) == (20, 20)
    replay(restarted, 25)
    for sequence in (15, 20):
        assert isinstance(append(restarted, data_batch(sequence, 5)), CachedBatch)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_damaged_newest_snapshot_falls_back_to_the_one_before(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """10:PR-9."""
    state = state_with_snapshots(tmp_path)
    data = bytearray(snapshot_file(tmp_path, 20).read_bytes())
    if damage == "flip":
        data[30] ^= 4
    else:
        del data[-1 if damage == "cut" else 0 :]
    snapshot_file(tmp_path, 20).write_bytes(data)

    restarted = new_state(tmp_path)
    restarted.truncate_and_reload(0, 25, T)
    assert restarted.map_end_offset == 10
    replay(restarted, 25)

    assert restarted.snapshots.offsets() == [10]
    assert str(snapshot_file(tmp_path, 20)) in caplog.text
    for sequence in (5, 10, 15, 20):
        repeated = data_batch(sequence, 5)
        expected = state.check_append(repeated, AppendOrigin.CLIENT)
        assert expected is not None
        assert restarted.check_append(repeated, AppendOrigin.CLIENT) == expected


def test_without_a_good_snapshot_the_state_starts_at_the_log_start(tmp_path: Path) -> None:
    state_with_snapshots(tmp_path)
    for offset in (10, 20):
        snapshot_file(tmp_path, offset).write_bytes(b"")

    restarted = new_state(tmp_path)
    restarted.truncate_and_reload(5, 25, T)

    assert restarted.is_empty
    assert (restarted.map_end_offset, restarted.last_snapshot_offset) == (5, 5)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("log_start", "log_end", "kept", "map_end"),
    [
        (0, 19, [10], 10),
        (0, 20, [10, 20], 20),
        (9, 20, [10, 20], 20),
        (10, 20, [20], 20),
        (10, 19, [], 10),
        (20, 25, [], 25),
    ],
)
def test_snapshots_outside_of_the_log_are_deleted(
    tmp_path: Path, log_start: int, log_end: int, kept: list[int], map_end: int
) -> None:
    state = state_with_snapshots(tmp_path)

    state.truncate_and_reload(log_start, log_end, T)

    assert state.snapshots.offsets() == kept
    assert state.map_end_offset == map_end


def test_state_that_is_there_already_is_kept(tmp_path: Path) -> None:
    state = state_with_snapshots(tmp_path)
    state.truncate_and_reload(10, 25, T + 10 * EXPIRATION_MS)
    for sequence in range(0, 25, 5):
        assert isinstance(append(state, data_batch(sequence, 5)), CachedBatch)


def test_truncation_forgets_what_was_cut(tmp_path: Path) -> None:
    state = state_with_snapshots(tmp_path)
    assert append(state, data_batch(0, 5, producer_id=7, transactional=True)) == 25

    state.truncate_and_reload(0, 15, T)
    replay(state, 15)

    assert list(state.producers) == [4000]
    assert state.first_unstable_offset is None
    assert append(state, data_batch(15, 5)) == 15


def test_expired_producers_are_not_loaded_unless_in_a_transaction(tmp_path: Path) -> None:
    state = new_state(tmp_path)
    append(state, data_batch(0, producer_id=1))
    append(state, data_batch(0, producer_id=2, transactional=True))
    append(state, data_batch(0, producer_id=3, timestamp=T + 1))
    append(state, data_batch(0, producer_id=4, transactional=True))
    state.take_snapshot()

    restarted = new_state(tmp_path)
    restarted.truncate_and_reload(0, 4, T + EXPIRATION_MS)

    assert list(restarted.producers) == [2, 3, 4]
    assert restarted.first_unstable_offset == 1
    completed = append_marker(restarted, producer_id=2)
    assert completed is not None
    assert completed.first_offset == 1
    assert restarted.last_stable_offset_for(completed) == 3


def test_transactions_are_in_order_whatever_the_order_in_the_file(tmp_path: Path) -> None:
    state = new_state(tmp_path)
    append(state, data_batch(0, producer_id=1))
    append(state, data_batch(0, producer_id=2, transactional=True))
    append(state, data_batch(1, producer_id=1, transactional=True))
    state.take_snapshot()

    restarted = new_state(tmp_path)
    restarted.truncate_and_reload(0, 3, T)

    assert list(restarted.producers) == [1, 2]
    assert restarted.first_unstable_offset == 1


def test_unreplicated_transactions_of_a_truncated_log_are_forgotten(tmp_path: Path) -> None:
    state = new_state(tmp_path)
    append(state, data_batch(0, transactional=True))
    completed = append_marker(state)
    assert completed is not None
    state.complete_transaction(completed)
    assert state.remove_expired(T + EXPIRATION_MS) == 1
    was_empty = state.is_empty

    state.truncate_and_reload(0, 0, T)

    assert (was_empty, state.is_empty) == (False, True)
    assert state.first_unstable_offset is None


def test_truncating_fully_forgets_everything(tmp_path: Path) -> None:
    state = state_with_snapshots(tmp_path)
    append(state, data_batch(25, transactional=True))

    state.truncate_fully_and_start_at(100)

    assert state.is_empty
    assert state.first_unstable_offset is None
    assert (state.map_end_offset, state.last_snapshot_offset) == (100, 100)
    assert os.listdir(tmp_path) == []
    assert append(state, data_batch(17)) == 100


def test_snapshot_is_taken_only_if_the_log_has_moved(tmp_path: Path) -> None:
    state = new_state(tmp_path)
    assert state.take_snapshot() is None
    assert state.snapshots.latest_offset is None

    state.update_map_end_offset(10)  # Batches without a producer.
    assert state.take_snapshot() == str(snapshot_file(tmp_path, 10))
    assert snapshot_file(tmp_path, 10).stat().st_size == 10
    assert state.take_snapshot() is None
    assert state.snapshots.latest_offset == state.last_snapshot_offset == 10


def test_snapshot_is_synced_when_asked_or_later(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    state = new_state(tmp_path, disk)
    append(state, data_batch(0))
    state.take_snapshot(sync=False)
    assert "fsync" not in [operation for operation, _ in disk.operations]
    assert state.snapshots.sync(1)
    append(state, data_batch(1))
    state.take_snapshot(sync=True)
    append(state, data_batch(2))
    state.take_snapshot(sync=False)

    disk.crash(mode="drop")

    restarted = new_state(tmp_path, disk)
    assert restarted.snapshots.offsets() == [1, 2]
    restarted.truncate_and_reload(0, 3, T)
    assert restarted.map_end_offset == 2


def test_failed_snapshot_is_taken_again(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    state = new_state(tmp_path, disk)
    append(state, data_batch(0))
    disk.fail("write", path_contains="snapshot")

    with pytest.raises(OSError, match="Input/output"):
        state.take_snapshot()

    assert state.last_snapshot_offset == 0
    assert state.take_snapshot() == str(snapshot_file(tmp_path, 1))


@pytest.mark.parametrize(
    ("bases", "kept"),
    [
        ([0, 10], [10, 40]),
        ([0, 10, 40], [10, 40]),
        ([0, 20, 30], [20, 30, 40]),
        ([0, 50], []),
        ([], [40]),
    ],
)
def test_stray_snapshots_are_removed(tmp_path: Path, bases: list[int], kept: list[int]) -> None:
    """The newest one stays if it lies above the last segment."""
    for offset in (10, 20, 30, 40):
        snapshot_file(tmp_path, offset).touch()
    state = new_state(tmp_path)

    state.snapshots.remove_strays(bases)

    assert state.snapshots.offsets() == kept


@pytest.mark.parametrize(("recovery_point", "kept"), [(9, []), (19, [10]), (20, [20]), (21, [20])])
def test_newest_snapshot_up_to_the_recovery_point_stays(
    tmp_path: Path, recovery_point: int, kept: list[int]
) -> None:
    """The next recovery goes on from it; one above it holds what that has yet to read."""
    for offset in (10, 20, 30):
        snapshot_file(tmp_path, offset).touch()
    state = new_state(tmp_path)

    state.snapshots.remove_strays([0, 40], recovery_point)

    assert state.snapshots.offsets() == kept


def test_newest_snapshot_stays_right_above_the_last_segment(tmp_path: Path) -> None:
    """An orderly stop left it there, after a segment of a single record."""
    for offset in (20, 21):
        snapshot_file(tmp_path, offset).touch()
    state = new_state(tmp_path)

    state.snapshots.remove_strays([0, 20])

    assert state.snapshots.offsets() == [20, 21]


@pytest.mark.parametrize(("log_start", "start_of_replay"), [(19, 20), (20, 20), (21, 21)])
def test_a_snapshot_at_the_log_start_is_not_loaded(
    tmp_path: Path, log_start: int, start_of_replay: int
) -> None:
    state = state_with_snapshots(tmp_path)

    assert state.reload(log_start, 25, T) == []

    assert state.map_end_offset == start_of_replay
    assert bool(state.producers) is (log_start < 20)
    assert state.snapshots.offsets() == [10, 20]


def test_snapshot_goes_with_its_segment(tmp_path: Path) -> None:
    state = state_with_snapshots(tmp_path)

    renamed = state.snapshots.rename_deleted(10)

    assert renamed == f"{snapshot_file(tmp_path, 10)}.deleted"
    assert state.snapshots.offsets() == [20]
    assert state.snapshots.rename_deleted(10) is None
    assert not recent_file(tmp_path, 10).exists()
    snapshot_file(tmp_path, 10).touch()  # Taken anew before the old one is removed.
    assert state.snapshots.delete(10, renamed=True)
    assert not state.snapshots.delete(10, renamed=True)
    assert state.snapshots.offsets() == [10, 20]
    assert state.snapshots.delete(10)
    assert not state.snapshots.delete(10)
    kept = [recent_file(tmp_path, 20).name, snapshot_file(tmp_path, 20).name]
    assert sorted(os.listdir(tmp_path)) == kept
    assert state.snapshots.delete(20)
    assert not os.listdir(tmp_path)


def test_no_directory_is_no_snapshot(tmp_path: Path) -> None:
    state = new_state(tmp_path / "later")
    state.truncate_and_reload(0, 0, T)
    assert state.is_empty
    assert state.snapshots.latest_offset is None
