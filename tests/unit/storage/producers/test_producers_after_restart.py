"""What a log knows of its producers after a restart: the last five batches, and open transactions.

10 §8.4. A producer repeats up to five batches whose answers were lost; none may be written again.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from odradek.testing import SimDisk
from tests.support.cleaning import CleaningFixture
from tests.support.log_scenarios import abort, append_leader, transactional
from tests.support.logs import LogFixture, WatchfulDisk, batch, flip_bit

CONFIG = LogConfig(index_interval_bytes=100, segment_index_bytes=4_800)


def produce(log: Log, count: int, *, producer_id: int = 7) -> None:
    """Batches of two records that go on where the producer was."""
    entry = log.producer_state.producers.get(producer_id)
    sequence = 0 if entry is None else entry.batches[-1].last_sequence + 1
    for first in range(sequence, sequence + 2 * count, 2):
        built = batch(2, producer_id=producer_id, producer_epoch=0, base_sequence=first)
        append_leader(log, built)


def last_batches(log: Log) -> dict[int, list[tuple[int, ...]]]:
    return {
        producer_id: [cached.values() for cached in entry.batches]
        for producer_id, entry in log.producer_state.producers.items()
    }


def assert_duplicates(log: Log, known: dict[int, list[tuple[int, ...]]]) -> None:
    """Each of the five is answered with its offset, and nothing is written."""
    end = log.log_end_offset
    for producer_id, batches in known.items():
        assert len(batches) == 5
        for last_sequence, last_offset, _, _ in batches:
            again = batch(
                2, producer_id=producer_id, producer_epoch=0, base_sequence=last_sequence - 1
            )
            info = append_leader(log, again)
            assert (info.first_offset, info.last_offset) == (last_offset - 1, last_offset)
    assert log.log_end_offset == end


def nothing(_log: Log) -> None:
    pass


def roll(log: Log) -> None:
    log.roll()


def roll_and_go_on(log: Log) -> None:
    log.roll()
    produce(log, 2)


def flush_and_go_on(log: Log) -> None:
    log.flush()
    produce(log, 1, producer_id=8)


def truncate(log: Log) -> None:
    produce(log, 2)
    log.roll()
    produce(log, 2)
    log.truncate_to(log.log_end_offset - 6)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("act", [nothing, roll, roll_and_go_on, flush_and_go_on, truncate])
def test_all_five_batches_in_flight_are_recognised(
    act: Callable[[Log], None], clean: bool, tmp_path: Path
) -> None:
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        produce(log, 7, producer_id=8)
        log.roll()
        produce(log, 3)
        act(log)
        known = last_batches(log)
        for _ in range(2):
            log = fixture.reopen(clean=clean)
            assert last_batches(log) == known
        assert_duplicates(log, known)


def test_a_machine_crash_keeps_what_was_flushed(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path, disk=disk, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        log.roll()
        log.flush()
        known = last_batches(log)
        point = fixture.abandon()
        disk.crash(mode="drop")
        assert_duplicates(fixture.open(recovery_point=point), known)


def damage_last_batch(fixture: LogFixture) -> None:
    name = max(n for n in fixture.names() if n.endswith(".log") and fixture.path(n).stat().st_size)
    flip_bit(fixture.path(name), -4)


def lose_newest_index(fixture: LogFixture) -> None:
    fixture.path(max(n for n in fixture.names() if n.endswith(".index"))).unlink()


def lose_oldest_index(fixture: LogFixture) -> None:
    fixture.path(min(n for n in fixture.names() if n.endswith(".index"))).unlink()


def spoil_transaction_index(fixture: LogFixture) -> None:
    fixture.path(
        min(n for n in fixture.names() if n.endswith(".log")).replace("log", "txnindex")
    ).write_bytes(b"x")


@pytest.mark.parametrize(
    "damage",
    [damage_last_batch, lose_newest_index, lose_oldest_index, spoil_transaction_index],
)
@pytest.mark.parametrize("segments", [1, 3])
def test_damage_after_a_clean_stop_costs_no_producer_its_state(
    damage: Callable[[LogFixture], None], segments: int, tmp_path: Path
) -> None:
    """The snapshot is good: a scan that rebuilds an index does not delete it."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        for number in range(segments):
            if number:
                log.roll()
            produce(log, 7)
            produce(log, 7, producer_id=8)
        append_leader(log, transactional(0, 2))
        produce(log, 1, producer_id=8)
        log.update_high_watermark(log.log_end_offset)
        end, stable, known = log.log_end_offset, log.last_stable_offset, last_batches(log)
        assert stable < end
        recovery_point = fixture.close()
        damage(fixture)
        for _ in range(2):
            log = fixture.open(clean=True, recovery_point=recovery_point)
            log.update_high_watermark(end)
            assert log.log_end_offset == end
            assert last_batches(log) == known
            assert log.last_stable_offset == stable
            fixture.close()
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert_duplicates(log, {pid: known[pid] for pid in (7, 8)})


def test_the_end_that_a_snapshot_tells_of_holds_without_a_recovery_point(tmp_path: Path) -> None:
    """The checkpoint is lost and the last batch damaged: no offset is handed out twice."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        known, end = last_batches(log), log.log_end_offset
        fixture.close()
        damage_last_batch(fixture)
        log = fixture.open(clean=True)
        assert log.log_end_offset == end
        assert_duplicates(log, known)


def test_a_rebuilt_transaction_index_has_the_aborted_ones(tmp_path: Path) -> None:
    """The index-only scan starts from the state as of the segment's base."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        append_leader(log, transactional(0, 3))
        log.roll()
        abort(log)
        log.roll()
        produce(log, 7)
        aborted = log.collect_aborted_transactions(0, log.log_end_offset)
        assert len(aborted) == 1
        recovery_point = fixture.close()
        snapshots = {name for name in fixture.names() if name.endswith(".snapshot")}
        fixture.path(f"{3:020d}.txnindex").write_bytes(b"x")
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.collect_aborted_transactions(0, log.log_end_offset) == aborted
        assert {name for name in fixture.names() if name.endswith(".snapshot")} == snapshots


def test_all_five_are_recognised_after_a_compaction_that_no_checkpoint_knows_of(
    tmp_path: Path,
) -> None:
    """Older batches are compacted away; the snapshots of the rolls have them."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        produce(log, 7)
        fixture.roll()
        produce(log, 1)
        produce(log, 5, producer_id=8)
        known = last_batches(log)
        fixture.clean()
        fixture.abandon()
        log = fixture.open(recovery_point=0)
        assert last_batches(log) == known
        assert_duplicates(log, known)


def test_all_five_are_recognised_after_a_clean_stop_and_a_kill(tmp_path: Path) -> None:
    """The batches are damaged; what the clean stop wrote down is synced, and holds."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        append_leader(log, transactional(0, 2))
        log = fixture.reopen(clean=True)
        produce(log, 3, producer_id=8)
        known, end, synced = last_batches(log), log.log_end_offset, log.recovery_point
        fixture.abandon()
        path = fixture.path(f"{0:020d}.log")
        path.write_bytes(bytes(200) + path.read_bytes()[200:])
        for _ in range(2):
            log = fixture.open(recovery_point=synced)
            log.update_high_watermark(end)
            assert (log.log_end_offset, log.last_stable_offset) == (end, 14)
            assert last_batches(log) == known
            fixture.abandon()


@pytest.mark.parametrize("start", [0, 3])
def test_producers_of_deleted_segments_are_recognised_after_a_kill(
    start: int, tmp_path: Path
) -> None:
    """10 section 8.4: the snapshot at the base of the first segment tells of them."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        log.roll()
        produce(log, 6, producer_id=8)
        log.update_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start_offset(14 + start)
        assert delete_old_segments(log) == 1
        known = last_batches(log)
        log = fixture.reopen(clean=False)
        assert last_batches(log) == known
        assert_duplicates(log, known)


def test_a_log_start_above_a_segment_hides_no_producer_of_those_before(tmp_path: Path) -> None:
    """No snapshot is left: the batches below the log start are still there, and are replayed."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        log.roll()
        produce(log, 7, producer_id=8)
        known = last_batches(log)
        fixture.abandon()
        for name in fixture.names():
            if name.endswith((".snapshot", ".recent")):
                fixture.path(name).unlink()
        log = fixture.open(recovery_point=16, log_start_offset=20)
        assert last_batches(log) == known


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_last_segment_and_its_producers(clean: bool, tmp_path: Path) -> None:
    """Where the log goes on behind what is lost they are known; where it gives the offsets out
    again they are not."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        log.roll()
        before = last_batches(log)
        produce(log, 6)
        known, end = last_batches(log), log.log_end_offset
        recovery_point = fixture.close()
        fixture.path(f"{14:020d}.log").unlink()
        log = fixture.open(clean=clean, recovery_point=recovery_point)
        assert (log.log_end_offset, last_batches(log)) == ((end, known) if clean else (14, before))


def test_a_truncation_forgets_snapshots_for_good(tmp_path: Path) -> None:
    """One that came back after a crash would pass for the state of the log that grew since."""
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path, disk=disk, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        log = fixture.reopen(clean=True)
        log.truncate_to(4)
        point = fixture.abandon()
        disk.crash(mode="drop")
        assert f"{14:020d}.snapshot" not in fixture.names()
        assert fixture.open(recovery_point=point).log_end_offset == 4


def test_a_replay_takes_sound_batches_only_and_goes_on_behind_damage(tmp_path: Path) -> None:
    """No snapshot is left. A header is zeroed, which ends the chain; a later value has a flipped
    bit."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 7)
        size = log.active.size // 7
        produce(log, 3, producer_id=8)
        log.roll()
        produce(log, 1)
        log.flush()
        known = last_batches(log)
        recovery_point = fixture.abandon()
        for name in fixture.names():
            if name.endswith((".snapshot", ".recent")):
                fixture.path(name).unlink()
        path = fixture.path(f"{0:020d}.log")
        data = bytearray(path.read_bytes())
        data[size : size + 61] = bytes(61)
        data[-2] ^= 1
        path.write_bytes(data)
        log = fixture.open(recovery_point=recovery_point)
        assert last_batches(log) == {7: known[7], 8: known[8][:2]}


def test_producers_are_found_in_the_batches_when_all_snapshots_are_lost(tmp_path: Path) -> None:
    """After a clean stop, too: no snapshot does not mean that there was no producer."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        produce(log, 3)
        log.roll()
        produce(log, 6)
        append_leader(log, transactional(0))
        known = {7: last_batches(log)[7]}
        end = log.log_end_offset
        recovery_point = fixture.close()
        for name in fixture.names():
            if name.endswith((".snapshot", ".recent")):
                fixture.path(name).unlink()
        log = fixture.open(clean=True, recovery_point=recovery_point)
        log.update_high_watermark(end)
        assert_duplicates(log, known)
        assert log.last_stable_offset == end - 1


def test_recovery_hands_its_producers_to_the_log(tmp_path: Path) -> None:
    """The log does not read the snapshot that recovery has written, nor the batches again."""
    disk = WatchfulDisk()
    with LogFixture(tmp_path, disk=disk, config=CONFIG) as fixture:
        produce(fixture.open(), 7)
        fixture.abandon()
        disk.read.clear()
        log = fixture.open()
        known = last_batches(log)
        assert f"{log.log_end_offset:020d}.snapshot" in fixture.names()
        assert not [name for name in disk.read if name.endswith((".snapshot", ".recent"))]
        assert_duplicates(log, known)
