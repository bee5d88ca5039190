"""Compaction of a log, pass by pass: what stays, what goes, and what may happen meanwhile."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.records.batch import DELETE_HORIZON_MASK
from odradek.records.compression import Codec
from odradek.storage.cleaning.checkpoint import CLEANER_OFFSET_FILE
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log.config import INT32_MAX
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.retention import delete_old_segments
from odradek.testing import SimDisk
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import (
    DeferredTasks,
    abort,
    append_leader,
    bases,
    commit,
    idempotent,
    pass_time,
    transactional,
    visible,
)
from tests.support.logs import (
    T0,
    WatchfulDisk,
    batch,
    flip_bit,
    headers,
    read_all,
    rename_directory,
)


def checkpoint(fixture: CleaningFixture) -> str:
    return Path(fixture.log_directory.path, CLEANER_OFFSET_FILE).read_text()


# What stays


def test_the_last_value_of_each_key_stays_where_it_was(tmp_path: Path) -> None:
    """10:CO-2, 10:CO-3, 08:F-4: a reader at any old offset gets the next record that is left."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
        fixture.produce((b"c", b"4"))
        fixture.roll()
        fixture.produce((b"b", b"5"), (b"d", b"6"))
        fixture.roll()
        fixture.produce((b"a", b"7"))
        fixture.clean()
        left = [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5"), (5, b"d", b"6"), (6, b"a", b"7")]
        assert fixture.records() == left
        for offset in range(7):
            data = log.read(offset, 1 << 20, FetchIsolation.LOG_END).read()
            first = headers(data)[0]
            expected = next(kept for kept, _, _ in left if kept >= offset)
            assert first.base_offset <= expected <= first.last_offset
        assert bases(log) == [0, 6], "two segments became one"
        assert checkpoint(fixture) == "0\n1\nt 0 6\n"
        fixture.clean()
        assert fixture.records() == left
        assert fixture.records(fixture.reopen(clean=True)) == left
        assert fixture.records(fixture.reopen(clean=False)) == left


def test_an_untouched_batch_keeps_its_bytes(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"), (b"b", b"2"), codec=Codec.GZIP)
        before = read_all(log)
        fixture.roll()
        fixture.clean()
        assert read_all(log) == before


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_codec_its_offsets_and_its_times(codec: Codec, tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"), (b"b", b"2" * 100), (b"a", None), codec=codec)
        fixture.clock.advance(7)
        fixture.produce((b"c", b"4"), (b"c", b"5"), codec=codec)
        fixture.roll()
        fixture.clean()
        assert fixture.records() == [(1, b"b", b"2" * 100), (2, b"a", None), (4, b"c", b"5")]
        first, second = headers(read_all(log))
        assert (first.codec_id, first.base_offset, first.last_offset) == (codec, 0, 2)
        assert (second.codec_id, second.base_offset, second.last_offset) == (codec, 3, 4)
        assert (first.record_count, second.record_count) == (2, 1)
        assert (first.max_timestamp, second.max_timestamp) == (T0, T0 + 7)


def test_nothing_from_the_last_stable_offset_on_is_touched(tmp_path: Path) -> None:
    """10:CO-1: nor is the active segment."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.roll()
        append_leader(log, transactional(0, key=b"a"))
        fixture.produce((b"a", b"4"), (b"a", b"5"))
        fixture.roll()
        fixture.produce((b"a", b"6"), (b"a", b"7"))
        fixture.clean()
        assert [offset for offset, _, _ in fixture.records()] == [1, 2, 3, 4, 5, 6]
        assert fixture.cleaner.first_dirty.get(log) == 2
        commit(log)
        fixture.commit()
        fixture.clean()
        assert [offset for offset, key, _ in fixture.records() if key == b"a"] == [4, 5, 6]


def test_a_pass_goes_no_further_than_the_high_watermark(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        for _ in range(2):
            append_leader(log, batch(2, key=b"a"))
            log.roll()
        fixture.opened.update_high_watermark(3)
        fixture.clean()
        assert [offset for offset, _, _ in fixture.records()] == [1, 2, 3]


def test_records_without_a_key_go_and_stop_nothing(tmp_path: Path) -> None:
    """10:CO-9: they came before the topic was compacted."""
    with CleaningFixture(tmp_path) as fixture:
        fixture.open()
        fixture.configure(cleanup_policy=("delete",))
        fixture.produce((None, b"1"), (b"a", b"2"), (None, b"3"))
        fixture.produce((None, b"4"))
        fixture.roll()
        fixture.configure(cleanup_policy=("compact",))
        fixture.clean()
        assert fixture.records() == [(1, b"a", b"2")]
        assert fixture.cleaner.stats.last_pass.invalid_records == 3
        assert not fixture.cleaner.uncleanable


# Tombstones


def test_a_tombstone_stays_until_its_horizon_which_never_moves(tmp_path: Path) -> None:
    """10:CO-4, 08:F-16: a key is deleted by a record without a value."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"), (b"b", b"2"))
        fixture.produce((b"a", None))
        fixture.roll()
        for waited_ms, is_there in ((0, True), (999, True), (1, False)):
            pass_time(fixture, waited_ms)
            fixture.produce((b"x", b"y"))
            fixture.roll()
            fixture.clean()
            there = [h for h in headers(read_all(log)) if h.attributes & DELETE_HORIZON_MASK]
            assert [(h.base_offset, h.delete_horizon_ms) for h in there] == (
                [(2, T0 + 1_000)] if is_there else []
            )
            assert ((2, b"a", None) in fixture.records()) is is_there
            assert (1, b"b", b"2") in fixture.records()
            assert (0, b"a", b"1") not in fixture.records()
        assert fixture.cleaner.stats.passes == 3


def test_a_horizon_beyond_all_time_is_the_end_of_time(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path, config=replace(COMPACTED, delete_retention_ms=2**63 - 1)) as f:
        log = f.open()
        f.produce((b"a", None))
        f.roll()
        f.clean()
        (header,) = headers(read_all(log))
        assert header.delete_horizon_ms == 2**63 - 1
        assert f.records() == [(0, b"a", None)]
        assert header.max_timestamp == T0


# Producers and transactions


def test_the_last_sequence_of_a_producer_survives_its_records(tmp_path: Path) -> None:
    """10:CO-5, 15:KAFKA-5490: also when its state is read from the log alone."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        append_leader(log, idempotent(0, 3, key=b"a", epoch=1))
        append_leader(log, idempotent(3, 2, key=b"a", epoch=1))
        fixture.roll()
        fixture.produce((b"a", b"new"))
        fixture.roll()
        fixture.clean()
        empty, full = headers(read_all(log))
        assert (empty.base_offset, empty.last_offset, empty.record_count) == (3, 4, 0)
        assert (empty.base_sequence, empty.last_sequence, empty.producer_epoch) == (3, 4, 1)
        assert full.base_offset == 5
        for snapshot in Path(fixture.directory).glob("*.snapshot"):
            snapshot.unlink()
        log = fixture.reopen(clean=False)
        for snapshot in Path(fixture.directory).glob("*.snapshot"):
            snapshot.unlink()
        append_leader(log, idempotent(5, key=b"b", epoch=1))
        with pytest.raises(Exception, match="expected epoch 1 or later"):
            append_leader(log, idempotent(0, key=b"b", epoch=0))
        # Its next batch replaces it: the empty one has nothing more to keep alive.
        fixture.roll()
        fixture.clean()
        assert [h.base_offset for h in headers(read_all(log))] == [5, 6]


def test_committed_data_is_compacted_and_aborted_data_goes(tmp_path: Path) -> None:
    """10:CO-6: a read_committed consumer gets the same last values before and after."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"old"))  # 0
        append_leader(log, transactional(0, 2, key=b"a"))  # 1, 2
        commit(log)  # 3
        append_leader(log, transactional(2, 2, key=b"b"))  # 4, 5
        append_leader(log, transactional(0, 1, key=b"a", producer_id=4001))  # 6
        commit(log, 4001)  # 7
        abort(log)  # 8
        fixture.produce((b"c", b"x"))  # 9
        fixture.roll()
        before = visible(log)
        assert before == [0, 1, 2, 6, 9]
        fixture.clean()
        assert visible(log) == [6, 9]
        assert [offset for offset, key, _ in fixture.records() if key == b"b"] == []
        # The last batch of 4000 is in there, empty, and its marker says how it ended.
        kept = {h.base_offset: h for h in headers(read_all(log))}
        assert (kept[4].record_count, kept[4].base_sequence) == (0, 2)
        assert 8 in kept
        (first, *_) = log.segments
        assert first.transaction_index.all_entries() == (AbortedTransaction(4000, 4, 8, 9),)
        log = fixture.reopen(clean=False)
        fixture.commit()
        assert visible(log) == [6, 9]
        assert log.producer_state.first_unstable_offset is None


def test_an_abort_in_the_clean_part_says_nothing_of_later_transactions(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        append_leader(log, transactional(0, key=b"a"))
        abort(log)
        fixture.roll()
        fixture.clean()
        assert log.collect_aborted_transactions(0, 2), "it is still known"
        append_leader(log, transactional(1, 2, key=b"b"))
        commit(log)
        fixture.roll()
        fixture.clean()
        assert [offset for offset, key, _ in fixture.records() if key == b"b"] == [3]


def test_a_marker_goes_after_its_horizon_once_its_transaction_is_empty(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        append_leader(log, transactional(0, key=b"a"))
        commit(log)
        fixture.roll()
        # A later transaction of the same producer, so that nothing needs to be kept alive.
        append_leader(log, transactional(1, key=b"a"))
        commit(log)
        fixture.roll()
        fixture.clean()
        seen = [{h.base_offset: h for h in headers(read_all(log))}]
        for wait_ms in (0, 999, 1):
            pass_time(fixture, wait_ms)
            fixture.produce((b"x", b"y"))
            fixture.roll()
            fixture.clean()
            seen.append({h.base_offset: h for h in headers(read_all(log))})
        assert [sorted(s)[:3] for s in seen[:3]] == [[1, 2, 3]] * 3
        assert [s[1].delete_horizon_ms for s in seen[:3]] == [None, T0 + 1_000, T0 + 1_000]
        assert sorted(seen[3])[:2] == [2, 3], "its data was met in the pass before"
        assert [s[3].delete_horizon_ms for s in seen] == [None] * 4


def test_a_marker_in_another_group_than_its_data(tmp_path: Path) -> None:
    """15:KAFKA-8351: the transaction is not taken for an empty one."""
    with CleaningFixture(tmp_path, config=replace(COMPACTED, segment_bytes=400)) as fixture:
        log = fixture.open()
        append_leader(log, transactional(0, size=300))
        append_leader(log, transactional(1, size=300))
        append_leader(log, batch(size=300, key=b"z"))
        abort(log)
        append_leader(log, transactional(0, size=300, producer_id=4001, key=b"y"))
        append_leader(log, batch(size=300, key=b"z"))
        commit(log, 4001)
        fixture.roll()
        assert len(log.segments) > 4
        fixture.clean()
        pass_time(fixture, 5_000)
        for _ in range(2):
            fixture.produce((b"x", b"y"))
            fixture.roll()
            fixture.clean()
        kept = {h.base_offset: h for h in headers(read_all(log))}
        # Both have their producer's last sequence in the log; one as data, one without records.
        assert kept[6].delete_horizon_ms is None
        assert kept[3].delete_horizon_ms is None
        assert kept[1].record_count == 0
        assert 4 in visible(log)


def test_open_producers_with_markers_only_keep_an_empty_one(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        commit(log)  # A transaction that wrote nothing here.
        fixture.roll()
        for _ in range(3):
            fixture.produce((b"x", b"y"))
            fixture.roll()
            fixture.clean()
            pass_time(fixture, 2_000)
        first = headers(read_all(log))[0]
        assert (first.base_offset, first.is_control, first.record_count) == (0, True, 0)


# Bounds


def test_a_table_too_small_for_all_keys_still_gets_on(tmp_path: Path) -> None:
    """10:CO-8."""
    config = CleanerConfig(dedupe_buffer_bytes=24 * 12, load_factor=0.5)
    with CleaningFixture(tmp_path, cleaner_config=config) as fixture:
        fixture.open()
        for number in range(30):
            fixture.produce((b"%d" % (number % 15), b"%d" % number), (b"same", b"x"))
        fixture.roll()
        fixture.clean()
        left = {key: value for _, key, value in fixture.records()}
        assert left == {b"%d" % (n % 15): b"%d" % n for n in range(15, 30)} | {b"same": b"x"}
        assert fixture.cleaner.stats.passes > 5
        assert fixture.cleaner.first_dirty.get(fixture.opened) == 60
        # Records that were cleaned in an earlier pass go when a later one meets their key.
        assert len(fixture.records()) == len(left)


def test_a_batch_with_more_keys_than_there_is_room_for(tmp_path: Path) -> None:
    config = CleanerConfig(dedupe_buffer_bytes=24 * 4)
    with CleaningFixture(tmp_path, cleaner_config=config) as fixture:
        log = fixture.open()
        fixture.produce(*[(b"%d" % n, b"v") for n in range(9)])
        fixture.roll()
        fixture.clean()
        reason = fixture.cleaner.uncleanable[log.topic_partition]
        assert "raise log.cleaner.dedupe.buffer.size" in reason
        assert len(fixture.records()) == 9


def test_segments_become_one_only_as_far_as_their_offsets_fit(tmp_path: Path) -> None:
    """15:KAFKA-5413."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        for base in (0, INT32_MAX - 5, INT32_MAX + 5):
            log.append_as_follower(batch(2, base_offset=base, leader_epoch=0, key=b"%d" % base))
            fixture.roll()
        fixture.clean()
        assert not fixture.cleaner.uncleanable
        assert bases(log)[:2] == [0, INT32_MAX - 3]
        assert [offset for offset, _, _ in fixture.records()] == [
            1, INT32_MAX - 4, INT32_MAX + 6,
        ]  # fmt: skip


def test_whole_batches_may_go_however_large(tmp_path: Path) -> None:
    """15:KAFKA-6854: batches larger than the read buffer, all of whose records go."""
    config = CleanerConfig(dedupe_buffer_bytes=24 * 1000, io_buffer_bytes=100)
    with CleaningFixture(tmp_path, cleaner_config=config) as fixture:
        fixture.open()
        for number in range(5):
            fixture.produce((b"a", b"%d" % number * 3_000))
        fixture.roll()
        fixture.clean()
        assert fixture.records() == [(4, b"a", b"4" * 3_000)]


def test_the_end_of_the_log_does_not_fall_back(tmp_path: Path) -> None:
    """15:KAFKA-17076: the last batch before the active segment stays, if only empty."""
    with CleaningFixture(tmp_path, config=replace(COMPACTED, delete_retention_ms=0)) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"))
        fixture.produce((b"a", None))
        fixture.roll()
        fixture.clean()
        fixture.produce((b"b", b"1"))
        fixture.produce((b"b", None), (b"b", None))
        fixture.roll()
        fixture.clean()
        pass_time(fixture, 10)
        log.truncate_to(5)
        last = headers(read_all(log))[-1]
        assert (last.base_offset, last.last_offset) == (3, 4)
        log = fixture.reopen(clean=False)
        assert log.log_end_offset == 5


def test_groups_of_which_nothing_is_left_leave_no_empty_segments(tmp_path: Path) -> None:
    """01 §9.8: but the first, which holds the place of the log's beginning."""
    with CleaningFixture(tmp_path, config=replace(COMPACTED, segment_bytes=250)) as fixture:
        log = fixture.open()
        for number in range(10):
            append_leader(log, batch(size=200, timestamp=T0 + number))
        fixture.commit()
        fixture.roll()
        assert len(log.segments) == 11
        fixture.clean()
        assert [offset for offset, _, _ in fixture.records()] == [9]
        assert bases(log) == [0, 9, 10]
        for clean in (False, True):
            log = fixture.reopen(clean=clean)
            assert [offset for offset, _, _ in fixture.records()] == [9]
            assert bases(log) == [0, 9, 10]
        assert log.log_start_offset == 0


def test_old_files_go_after_the_delay_and_snapshots_with_their_segments(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        for number in range(3):
            append_leader(log, idempotent(number, key=b"a"))
            fixture.roll()
        data = log.read(0, 1 << 20, FetchIsolation.LOG_END)
        fixture.clean()
        assert len(data.read()) > 0, "who holds the old bytes may read them"
        assert any(name.endswith(".deleted") for name in fixture.names())
        pass_time(fixture, 600)
        assert {name for name in fixture.names() if not name.endswith("checkpoint")} == {
            f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex",
            f"{3:020d}.log", f"{3:020d}.index", f"{3:020d}.timeindex", f"{3:020d}.snapshot",
            f"{3:020d}.recent",
        }  # fmt: skip


# Choosing


def test_a_dirty_offset_beyond_the_active_segment_is_no_work(tmp_path: Path) -> None:
    """15:KAFKA-8764, 15:KAFKA-9826."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"))
        fixture.roll()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.cleaner.first_dirty.raise_to(log, 2)()
        fixture.clean()
        assert fixture.cleaner.stats.passes == 0
        assert len(fixture.records()) == 3


def test_a_log_start_beyond_the_active_segment_is_no_work(tmp_path: Path) -> None:
    """15:KAFKA-9133: and what follows is compacted."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"))
        fixture.roll()
        fixture.produce((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
        log.maybe_increment_log_start_offset(2)
        fixture.clean()
        assert fixture.cleaner.stats.passes == 0
        fixture.roll()
        fixture.clean()
        assert fixture.records() == [(3, b"a", b"3")]
        assert log.log_start_offset == 2


def test_a_log_that_is_not_compacted_is_left_alone(tmp_path: Path) -> None:
    with CleaningFixture(
        tmp_path, config=replace(COMPACTED, cleanup_policy=("delete",))
    ) as fixture:
        fixture.open()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.roll()
        fixture.clean()
        assert len(fixture.records()) == 2


def test_the_cleaner_may_be_switched_off(tmp_path: Path) -> None:
    config = CleanerConfig(enable=False)
    with CleaningFixture(tmp_path, cleaner_config=config) as fixture:
        fixture.open()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.roll()
        fixture.clean()
        assert len(fixture.records()) == 2


def test_it_looks_again_after_the_backoff(tmp_path: Path) -> None:
    config = CleanerConfig(backoff_ms=100, dedupe_buffer_bytes=2_400)
    with CleaningFixture(tmp_path, cleaner_config=config) as fixture:
        fixture.open()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.roll()
        fixture.cleaner.start()
        pass_time(fixture, 99)
        assert len(fixture.records()) == 2
        pass_time(fixture, 1)
        assert len(fixture.records()) == 1
        fixture.produce((b"a", b"3"))
        fixture.roll()
        for _ in range(3):
            pass_time(fixture, 100)
        assert fixture.records() == [(2, b"a", b"3")]
        fixture.cleaner.stop()
        fixture.produce((b"a", b"4"))
        fixture.roll()
        pass_time(fixture, 1_000)
        assert len(fixture.records()) == 2


def test_compact_and_delete_work_on_the_same_log(tmp_path: Path) -> None:
    config = replace(COMPACTED, cleanup_policy=("delete", "compact"), retention_ms=10_000)
    with CleaningFixture(tmp_path, config=config) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.roll()
        fixture.clean()
        pass_time(fixture, 9_000)
        fixture.produce((b"b", b"1"), (b"b", b"2"))
        fixture.roll()
        pass_time(fixture, 2_000)
        assert delete_old_segments(log) == 1
        fixture.clean()
        assert fixture.records() == [(3, b"b", b"2")]
        assert log.log_start_offset == 2


# What happens meanwhile


def deferred(path: Path, disk: Disk | None = None) -> tuple[CleaningFixture, DeferredTasks]:
    """Two dirty segments, and a pass of which nothing has been done yet."""
    fixture = CleaningFixture(path, disk=disk)
    tasks = DeferredTasks(fixture.clock)
    fixture.cleaner_tasks = tasks
    fixture.open()
    for number in range(2):
        fixture.produce((b"a", b"%d" % number), (b"b", b"%d" % number))
        fixture.roll()
    fixture.produce((b"c", b"x"))
    fixture.opened.flush()  # Or the pass would do it first.
    fixture.cleaner.run()
    assert not fixture.cleaner.is_idle
    return fixture, tasks


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "after"])
def test_a_truncation_cancels_the_pass(is_written: bool, tmp_path: Path) -> None:
    fixture, tasks = deferred(tmp_path)
    with fixture:
        work, done = tasks.submitted.pop(0)
        if is_written:
            work()
        fixture.opened.truncate_to(3)
        if not is_written:
            work()
        assert any(".cleaned" in name for name in fixture.names()) is is_written
        done(None)
        tasks.run(0)
        assert not any(".cleaned" in name for name in fixture.names())
        assert [offset for offset, _, _ in fixture.records()] == [0, 1]
        assert not fixture.cleaner.uncleanable
        tasks.run()
        assert fixture.cleaner.is_idle


def test_a_segment_that_was_deleted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    fixture, tasks = deferred(tmp_path)
    with fixture:
        log = fixture.opened
        work, done = tasks.submitted.pop(0)
        work()
        log.maybe_increment_log_start_offset(2)
        assert delete_old_segments(log) == 1
        done(None)
        assert bases(log) == [2, 4]
        assert not fixture.cleaner.uncleanable
        tasks.run()
        assert [offset for offset, _, _ in fixture.records()] == [2, 3, 4]


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "seen"])
@pytest.mark.parametrize("remove", ["retention", "delete_records"])
def test_a_segment_that_goes_before_the_pass_opens_it_cancels_the_pass(
    remove: str, is_told: bool, tmp_path: Path
) -> None:
    """Its file has another name by then, which is no failure of the disk."""
    fixture, tasks = deferred(tmp_path)
    with fixture:
        log = fixture.opened
        if not is_told:
            log.before_removal = None
        work, done = tasks.submitted.pop(0)
        first = log.segments.first
        assert first is not None
        if remove == "retention":
            fixture.configure(
                cleanup_policy=("delete", "compact"), retention_bytes=log.size_in_bytes - first.size
            )
        else:
            log.maybe_increment_log_start_offset(2)
        assert delete_old_segments(log) == 1
        work()
        done(None)
        assert fixture.log_directory.is_online
        assert not fixture.cleaner.uncleanable
        assert not any(".cleaned" in name for name in fixture.names())
        tasks.run()
        fixture.clean()
        assert [offset for offset, _, _ in fixture.records()] == [2, 3, 4]


def test_a_removal_ends_the_pass_before_it_opens_another_file(tmp_path: Path) -> None:
    disk = WatchfulDisk()
    fixture, tasks = deferred(tmp_path, disk)
    with fixture:
        work, done = tasks.submitted.pop(0)
        fixture.opened.maybe_increment_log_start_offset(2)
        assert delete_old_segments(fixture.opened) == 1
        disk.read.clear()
        work()
        assert not [name for name in disk.read if name.endswith(".log")]
        done(None)
        tasks.run()
        assert fixture.cleaner.is_idle


def test_a_pass_goes_on_when_a_segment_goes_that_it_has_cleaned(tmp_path: Path) -> None:
    fixture = CleaningFixture(tmp_path)
    tasks = DeferredTasks(fixture.clock)
    fixture.cleaner_tasks = tasks
    with fixture:
        log = fixture.open(config=replace(COMPACTED, segment_bytes=100))  # No two in a group.
        for number in range(4):
            fixture.produce((b"a", b"%d" % number), (b"b%d" % number, b"x"))
            fixture.roll()
        log.flush()
        fixture.cleaner.run()
        first = log.segments.first
        while log.segments.first is first:
            tasks.run(1)
        log.maybe_increment_log_start_offset(2)
        assert delete_old_segments(log) == 1
        tasks.run()
        assert fixture.cleaner.is_idle
        assert fixture.cleaner.first_dirty.get(log) == 8
        assert [offset for offset, _, _ in fixture.records()] == [3, 5, 6, 7]


def test_an_index_that_was_removed_by_hand_does_not_stop_the_cleaner(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        fixture.open()
        for number in range(2):
            fixture.produce((b"a", b"%d" % number))
            fixture.roll()
        for suffix in ("index", "timeindex"):
            fixture.path(f"{0:020d}.{suffix}").unlink()
        fixture.clean()
        assert fixture.log_directory.is_online
        assert fixture.records() == [(1, b"a", b"1")]


def test_a_partition_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    fixture, tasks = deferred(tmp_path)
    with fixture:
        log = fixture.opened
        rename_directory(log, "t-0.0123-delete")
        fixture.cleaner.forget(log)
        log.retire("deleted")
        tasks.run()
        assert fixture.cleaner.is_idle
        assert fixture.log_directory.is_online


def test_a_stop_cancels_the_pass(tmp_path: Path) -> None:
    fixture, tasks = deferred(tmp_path)
    with fixture:
        fixture.cleaner.stop()
        tasks.run()
        assert fixture.cleaner.is_idle
        assert len(fixture.records()) == 5
        assert fixture.log_directory.is_online


def test_the_old_records_are_read_until_the_new_ones_are_in_place(tmp_path: Path) -> None:
    fixture, tasks = deferred(tmp_path)
    with fixture:
        work, done = tasks.submitted.pop(0)
        work()
        assert [offset for offset, _, _ in fixture.records()] == [0, 1, 2, 3, 4]
        fixture.produce((b"a", b"new"))
        done(None)
        tasks.run()
        assert [offset for offset, _, _ in fixture.records()] == [2, 3, 4, 5]


# Faults


def test_a_damaged_batch_makes_the_partition_uncleanable(tmp_path: Path) -> None:
    """Only the partition, and not for ever; its bytes stay as they are."""
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.roll()
        path = fixture.path(f"{0:020d}.log")
        flip_bit(path, -4)
        damaged = path.read_bytes()
        fixture.clean()
        assert "does not match its checksum" in fixture.cleaner.uncleanable[log.topic_partition]
        assert path.read_bytes() == damaged
        assert fixture.log_directory.is_online
        assert not any(".cleaned" in name for name in fixture.names())
        flip_bit(path, -4)
        fixture.clean()
        assert len(fixture.records()) == 2, "not before the next start"
        fixture.reopen(clean=False)
        fixture.commit()
        fixture.clean()
        assert len(fixture.records()) == 1


@pytest.mark.parametrize(
    ("operation", "where"), [("write", ".log.cleaned"), ("fsync", ".log.cleaned"), ("rename", "")]
)
def test_a_failing_disk_takes_the_directory_offline(
    operation: str, where: str, tmp_path: Path
) -> None:
    disk = SimDisk(tmp_path)
    with CleaningFixture(tmp_path, disk=disk) as fixture:
        fixture.open()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.roll()
        disk.fail(operation, path_contains=where, error=OSError(errno.EIO, "planted"))
        fixture.clean()
        assert not fixture.log_directory.is_online
        disk.heal()
        log = fixture.open()
        fixture.commit()
        fixture.clean()
        assert fixture.records(log) == [(1, b"a", b"2")]


def test_without_descriptors_it_is_tried_again(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    with CleaningFixture(tmp_path, disk=disk) as fixture:
        fixture.open()
        fixture.produce((b"a", b"1"), (b"a", b"2"))
        fixture.roll()
        error = OSError(errno.EMFILE, "planted")
        disk.fail("open", path_contains=".cleaned", error=error, times=1)
        fixture.clean()
        assert fixture.log_directory.is_online
        assert not fixture.cleaner.uncleanable
        assert len(fixture.records()) == 2
        pass_time(fixture, 15_000)
        assert len(fixture.records()) == 1
